//! Object stores of the engine, and the view of them that a job has.
//!
//! DataFusion's openers and sinks get their stores from a registry. Each job has its own registry.
//! Its stores serve reads from the bytes that the job's read monotasks loaded into memory, and turn
//! writes into write monotasks.
//!
//! I/O outside monotasks is recorded in the trace as storage operations, so that no wait for a device
//! goes unseen: reads of records that are longer than the look-ahead, planning-time requests to remote
//! stores (listings, footers, the start of a file), and all failed attempts, including those of monotasks.

mod engine_store;
mod job_io;
mod job_store;
mod planning;
mod registry;
mod store_name;

pub(crate) use job_io::{JobIo, in_store};
pub(crate) use job_store::JobStores;
pub(crate) use planning::with_planning_job;
pub(crate) use registry::Stores;
