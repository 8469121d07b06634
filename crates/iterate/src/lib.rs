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
//! Use this crate for data that fits in the workers' memory and work that is limited by cores or memory
//! bandwidth. It does not support SQL, data that must be streamed from disk in every iteration, or
//! programs whose stages are unknown until they run.

mod accept;
mod admission;
pub mod applications;
mod balance;
mod bundle;
mod cell;
mod clock;
mod control;
mod controller;
pub mod data;
mod error;
mod exchange;
#[cfg(test)]
mod fuzz;
mod handshake;
pub mod input;
mod invitation;
pub mod kernels;
mod local;
mod manifest;
mod memory;
mod merging;
mod mesh;
mod message;
mod plan;
mod processes;
pub mod program;
mod protocol;
mod recording;
mod reduce;
mod run;
mod sampling;
mod sequential;
mod signals;
pub mod simulator;
mod store;
mod thread;
mod threads;
mod tunnel;
mod validity;
mod views;
mod wire;
mod worker;

pub use control::JobControl;
pub use data::{Data, DataError};
pub use error::{Cause, JobError, ProgramError};
pub use exchange::{Incoming, Outgoing, Route, Scatter};
pub use invitation::Invitation;
pub use plan::Plan;
pub use processes::{Cluster, WorkerSettings, control, work};
pub use program::{KernelResult, Program};
pub use run::{Outcome, Progress, RunOptions, Snapshots, run};
pub use sequential::run_sequentially;
pub use views::{Dataset, Partitions, Reads, Writes};
