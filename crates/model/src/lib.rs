//! Analyses of a trace: ideal times, the bottleneck, and what would limit next.
//!
//! # The model
//!
//! Work split into monotasks records how long each resource was used, so a job's time can be explained by
//! a model that fits on one line (monotasks-sosp17 §6.1): a resource's *ideal time* is its total demand
//! over its capacity, a stage takes as long as its largest ideal time, and a job takes the sum over its
//! stages. Removing a resource from the maximum shows its cost (§6.5). The model differs from the paper
//! in three ways:
//!
//! * **Spans, not stages, are summed.** The paper's stages run one after another. Here stages may overlap
//!   and share the resources, so the sum of their maxima could exceed the measured time. A job is
//!   therefore cut wherever a stage starts or ends its service. Between two cuts the same stages run, and
//!   their demands are added before the maximum is taken. Without overlap, this is the paper's formula.
//!   If capacities are right, each span's maximum is at most its length, so the modelled time is a lower
//!   bound.
//! * **Bytes stay on their disk.** A kind's ideal time is total demand over total capacity, as in the
//!   paper. But input is fixed to a disk: if one disk holds most of it, the kind takes as long as that
//!   disk. This time is the kind's *limit*, and maxima are taken over limits. Demands that any resource
//!   could have served (computing, spilled bytes) do not count towards the limit of a single one.
//! * **The capacity may come from the trace.** Set or probed capacities take precedence. Otherwise a
//!   resource's capacity is the rate of its best two busy seconds. A resource with less busy time has no
//!   capacity; its busy time then stands in for its ideal time, and the result is marked as a bound.
//!
//! # Example
//!
//! ```
//! let trace = pellucid_trace::Trace::default();
//! let analysis = pellucid_model::analyze(&trace);
//! assert!(analysis.jobs.is_empty());
//! ```
//!
//! # Limits
//!
//! The model uses totals only, without queueing, ramp-up or waves. These make up the difference between
//! measured and modelled time, which is reported as unexplained. The model applies to monotasks.
//! Pipelined tasks (Spark's) have no ideal times; `pipelined` analyzes them as in blocked-time-nsdi15.
//! Sampled tasks (of iterative jobs) are read as monotasks on cores and memory bandwidth, in `iterative`.
//!
//! Two analyses are of storage: [`composition`] counts the links of a data path, and [`doctor`] finds problems in
//! how a trace, a Spark configuration or a composition uses stores.
//!
//! This crate reads no clock and does no I/O. Input may be damaged: records with invalid indices are
//! skipped with a warning. Values that were not measured are `None`.

mod analysis;
mod analyze;
pub mod backtest;
mod compare;
pub mod composition;
pub mod doctor;
mod finding;
mod index;
mod iterative;
mod monotasks;
mod numbers;
mod pipelined;
mod predict;
mod series;
pub mod units;
pub mod whatif;

pub use analysis::*;
pub use analyze::analyze;
pub use compare::{Change, Comparison, StageChange, Verdict, compare};
pub use finding::Finding;
pub use monotasks::steps::Steps;
pub use pipelined::{is_known_setting, query, saved_by_shorter_tasks_ms, spread};
pub use predict::measured_ms;
pub use series::{Series, series};
