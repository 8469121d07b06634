//! What a job did: the records of a trace, what collects them, and what reads them back.
//!
//! Producers (engine, plugin, log readers, probes) hand records to a
//! [`Recorder`]; analyses take a [`Trace`]. Neither knows the other: the format
//! between them is specified in `docs/trace-format.md` and versioned
//! ([`FORMAT_MAJOR`], [`FORMAT_MINOR`]), so that a trace outlives the build that
//! wrote it.
//!
//! A trace is a file of zstd frames, each of whole JSON lines: `zstdcat` and
//! `jq` read it, a cut costs at most its last frame, and an event takes less
//! than 40 bytes on disk.
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
//! This crate judges nothing: what a trace means is the model's business. It
//! depends on no other part of the project.

mod application;
mod check;
mod error;
pub mod kind;
mod packed;
mod pipelined;
mod reader;
pub mod record;
mod recorder;
mod sampled;
mod trace;
mod writer;

pub use error::TraceError;
pub use packed::{Iter as PipelinedTaskIter, PipelinedTasks};
pub use reader::Reader;
pub use record::*;
pub use recorder::{Recorder, RecorderOptions};
pub use trace::{Trace, union_ns};

/// Major version of the format that this build writes. It reads this one and every older one.
pub const FORMAT_MAJOR: u32 = 1;
/// Minor version of the format that this build writes. Newer ones are read too, without what they added.
pub const FORMAT_MINOR: u32 = 3;

/// Most bytes of lines in one block. A reader refuses more, so that a damaged
/// file cannot make it hold more memory than this.
const MAX_BLOCK_BYTES: usize = 16 << 20;
