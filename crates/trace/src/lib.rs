//! The trace format: the records of a job, a recorder that writes them, and a reader.
//!
//! Producers (engine, plugin, log readers, probes) pass records to a
//! [`Recorder`]; analyses read a [`Trace`]. They depend only on the format,
//! which is specified in `docs/trace-format.md` and versioned
//! ([`FORMAT_MAJOR`], [`FORMAT_MINOR`]), so a trace outlives the build that
//! wrote it.
//!
//! A trace is a file of zstd frames, each of whole JSON lines. `zstdcat` and
//! `jq` can read it, truncation loses at most the last frame, and an event takes
//! less than 40 bytes on disk.
//!
//! ```
//! use pellucid_trace::{Job, Machine, Recorder, RecorderOptions};
//!
//! let recorder = Recorder::start(RecorderOptions {
//!     producer: "engine".into(),
//!     producer_version: "0.1.0".into(),
//!     labels: vec![],
//!     path: None,
//!     keep: true,
//! })?;
//! recorder.machine(Machine { name: "here".into(), cores: Some(2), memory_bytes: None });
//! recorder.job(Job { name: "SELECT 1".into(), submitted_ns: recorder.now_ns(), ..Default::default() });
//! let trace = recorder.finish()?;
//! assert_eq!(trace.jobs[0].name, "SELECT 1");
//! assert_eq!(trace.check(), Vec::<String>::new());
//! # Ok::<(), pellucid_trace::TraceError>(())
//! ```
//!
//! [`whole`] writes the other outputs of commands: files and folders that appear whole or
//! not at all. [`guard`] converts panics to errors. [`probe`] is the report of a store's measurements,
//! which analyses read beside traces.
//!
//! This crate does not interpret traces; `pellucid-model` does. It depends on no
//! other crate of the workspace.

mod blocks;
pub mod budget;
mod check;
mod error;
mod format;
pub mod guard;
mod packed;
pub mod probe;
mod reader;
pub mod record;
mod recorder;
mod trace;
pub mod whole;
mod writer;

pub use error::TraceError;
pub use format::{FORMAT_MAJOR, FORMAT_MINOR};
pub use packed::{Iter as PipelinedTaskIter, PipelinedTasks};
pub use reader::Reader;
pub use record::*;
pub use recorder::{Recorder, RecorderOptions};
pub use trace::{Trace, union_ns};
