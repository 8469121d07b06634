//! Ways to run a job: in this process, over several processes, or in a simulation.

pub(crate) mod commit;
pub(crate) mod driver;
pub(crate) mod job_control;
pub(crate) mod local;
pub(crate) mod options;
pub(crate) mod processes;
pub mod simulator;
