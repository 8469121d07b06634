//! Spark event logs in, trace out.
//!
//! A Spark application logs its events as lines of JSON, compressed or not, in
//! one file or many. This crate reads what Spark 1.2 to 4.x and its vendors wrote
//! and makes the same trace of it that every other producer writes: executors as
//! resources of kind `slots`, tasks as pipelined tasks. What Spark did not record
//! is absent from the trace, never zero.
//!
//! One pass, in memory that grows with tasks by well under a hundred bytes each:
//!
//! 1. [`layout`] tells which files make up which application's log, in which order;
//! 2. [`codec`] finds how a file is compressed, and undoes it;
//! 3. lines are events; [`read`] takes the few dozen fields that matter from
//!    each, and passes everything else unread;
//! 4. at the end, names and times are resolved into a [`Trace`](pellucid_trace::Trace).
//!
//! ```
//! let log = br#"{"Event":"SparkListenerLogStart","Spark Version":"3.5.6"}
//! {"Event":"SparkListenerApplicationStart","App Name":"report","App ID":"app-1","Timestamp":1000,"User":"etl"}
//! {"Event":"SparkListenerApplicationEnd","Timestamp":3000}
//! "#;
//! let trace = pellucid_sparklog::read([pellucid_sparklog::Part::new("app-1", &log[..])])?;
//! let application = trace.application.expect("always there");
//! assert_eq!(application.ended_ns, Some(2_000_000_000));
//! # Ok::<(), pellucid_sparklog::Error>(())
//! ```
//!
//! It judges nothing: what a trace means is the model's business. It opens no
//! files by itself, so that a log may come from anywhere; [`layout`] needs names
//! only.

pub mod archive;
mod build;
mod codec;
mod error;
mod escape;
mod event;
mod failure;
pub mod layout;
mod lines;
mod log;
mod operators;
mod plan;
mod plugin;
mod read;
mod redact;
mod scan;
mod task;
mod text;
mod warnings;

pub use codec::Codec;
pub use error::Error;
pub use read::{Part, decompressed, is_compressed, looks_like_event_log, read};
