//! Finds problems in how data is stored and accessed: `pellucid storage doctor`.
//!
//! The input is a composition ([`of_composition`]), a Spark configuration ([`of_spark`]) or a trace
//! ([`of_trace`]: the engine's own, or one read from an event log), with an optional probe report.
//! Each finding carries its evidence and remedy, and describes how to predict the saving
//! ([`Saving`]). The caller obtains the prediction from the model. The doctor reports only what the
//! evidence shows, so a healthy input yields no findings.
//!
//! CLOUD '16 (§V-A, §V-B) describes these mismatches: output committed by a rename that copies,
//! replication at two layers, a proxy near its link's rate, and one stream per read while link and
//! cores idle. Object stores add many small objects, listings that delay planning, and throttled
//! requests. Input in memory makes storage irrelevant.

mod composition;
mod configuration;
mod listing;
mod log;
mod monotasks;
mod problem;
mod remedies;
mod spark;

use pellucid_trace::Trace;
use pellucid_trace::probe::Report;

pub use composition::of_composition;
pub use configuration::{NotAProperty, SparkConfiguration};
pub use problem::{Diagnosis, Problem, Saving};
pub use spark::of_spark;

/// Finds problems in how the jobs of a trace used stores.
pub fn of_trace(trace: &Trace, probe: Option<&Report>) -> Vec<Problem> {
    match &trace.application {
        Some(application) => log::of_log(trace, application, probe),
        None => monotasks::of_trace(trace, probe),
    }
}
