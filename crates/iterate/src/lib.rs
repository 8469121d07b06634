//! Iterative jobs whose workers spawn their own tasks.
//!
//! The controller decides where partitions are, and nothing else; each worker holds the whole program,
//! infers from it which tasks its partitions need next, and runs them (the paper's title says it:
//! *Canary: A Scheduling Architecture for High Performance Cloud Computing*). So an iteration costs no
//! message to a central place, and a task nanoseconds.
//!
//! - [`Program`] is what an application writes, [`Plan`] what it is compiled into;
//! - [`run`] runs a plan and returns its [`Outcome`].
//!
//! It is for work that fits the memory of the workers and is bound by it or by cores. It is not for
//! SQL, for data that has to be streamed from disk in every iteration, or for programs whose stages
//! are not known before they run.

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
mod handshake;
pub mod input;
pub mod kernels;
mod local;
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
mod views;
mod wire;
mod worker;

pub use control::JobControl;
pub use data::{Data, DataError};
pub use error::{Cause, JobError, ProgramError};
pub use exchange::{Incoming, Outgoing, Route, Scatter};
pub use plan::Plan;
pub use processes::{Cluster, Invitation, WorkerSettings, control, work};
pub use program::{KernelResult, Program};
pub use run::{Outcome, Progress, RunOptions, Snapshots, run};
pub use sequential::run_sequentially;
pub use views::{Dataset, Partitions, Reads, Writes};
