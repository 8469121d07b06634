//! Predicts a job's time with other hardware or software.
//!
//! Two predictors answer every question, and both results are shown. The *analytic* predictor sums ideal
//! times (monotasks-sosp17 §6.1). The *simulated* predictor runs the job's scheduler again on a virtual
//! clock. `docs/predictions.md` derives the interval and the choice between them.
//!
//! ```no_run
//! use pellucid_model::whatif::{Changes, WhatIfModel, residuals};
//! # fn rate(_: &str) -> Result<u64, String> { Ok(1) }
//! let trace = pellucid_trace::Trace::read("job.trace".as_ref())?;
//! let model = WhatIfModel::of(&trace, &residuals(None)).expect("a whole trace");
//! let changes = Changes::parse(&["disk.rate=x2"], rate).expect("a key and a value");
//! let answer = model.predict(&changes).expect("a trace with a disk");
//! println!("{} ms", answer.prediction.duration_ms);
//! # Ok::<(), pellucid_trace::TraceError>(())
//! ```
//!
//! The question, the answer and the interval are common to all traces and are handled here. Each kind of
//! tasks (monotasks, pipelined, sampled) implements [`Basis`], which reproduces the job and predicts it
//! under changes: see `predict`.

mod answer;
mod basis;
mod change;
mod changes;
mod error;
mod interval;
mod keys;
mod model;
pub(crate) mod parallel;
mod sweep;
mod tasks;

pub use answer::{Baseline, By, Point, Prediction, Single, WhatIf};
pub(crate) use basis::{Basis, Estimate};
pub use change::{Amount, Change, InputFrom, Storage};
pub(crate) use changes::is_part;
pub use changes::{Changes, ReadRate, Setting};
pub use error::WhatIfError;
pub use interval::{RESIDUALS_HEADER, Residual, Residuals, fingerprint, residual_table, residuals};
pub use keys::{KEYS, Key};
pub(crate) use keys::{Needs, of_monotasks};
pub use model::WhatIfModel;
pub use sweep::Sweep;
pub use tasks::Tasks;
