//! Iterative jobs whose workers spawn their own tasks.
//!
//! The controller only decides where partitions are placed. Every worker holds the whole program, infers
//! which tasks its partitions need next, and runs them, as in *Canary: A Scheduling Architecture for High
//! Performance Cloud Computing*. An iteration therefore sends no message to a central scheduler, and
//! starting a task takes nanoseconds.
//!
//! - [`Program`] is the driver program that an application builds; [`Plan`] is its compiled form.
//! - [`run`] executes a plan and returns its [`Outcome`].
//!
//! The folders of the sources, each of which uses only those above it:
//!
//! | folder | content |
//! |---|---|
//! | `dataflow` | programs, their plans, and their results |
//! | `protocol` | messages, their checks, and the ports that they leave by |
//! | `exec` | bundles of partitions: the next task, and the queues of those that are ready |
//! | `tracing`, `snapshot` | what a job leaves behind: a trace, and states to resume from |
//! | `control` | the controller's decisions: placement, balance, recovery |
//! | `worker` | a worker's state, its handlers, and its threads |
//! | `transport` | connections between processes |
//! | `drive` | a job in this process, over several, or in a simulation |
//!
//! Use this crate for data that fits in the workers' memory and work that is limited by cores or memory
//! bandwidth. It does not support SQL, data that must be streamed from disk in every iteration, or
//! programs whose stages are unknown until they run.

mod clock;
mod control;
mod dataflow;
mod drive;
mod error;
mod exec;
#[cfg(test)]
mod fuzz;
mod protocol;
mod snapshot;
mod sync;
#[doc(hidden)]
pub mod testing;
mod tracing;
mod transport;
mod worker;

pub use dataflow::data::{Data, DataError};
pub use dataflow::exchange::{Incoming, Outgoing, Scatter};
pub use dataflow::outcome::{Outcome, Progress};
pub use dataflow::plan::Plan;
pub use dataflow::program::Program;
pub use dataflow::routes::Route;
pub use dataflow::sequential::run_sequentially;
pub use dataflow::views::{Dataset, Partitions, Reads, Writes};
pub use dataflow::{data, program};
pub use drive::job_control::JobControl;
pub use drive::local::run;
pub use drive::options::RunOptions;
pub use drive::processes::{Cluster, WorkerSettings, control, work};
pub use drive::simulator;
pub use error::{Cause, JobError, KernelResult, ProgramError};
pub use snapshot::store::Snapshots;
pub use tracing::bandwidth::Bandwidth;
pub use transport::invitation::Invitation;
