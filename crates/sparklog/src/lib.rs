//! Reads Spark event logs into traces.
//!
//! A Spark application logs its events as lines of JSON, compressed or not, in one or more files. This crate
//! reads the logs of Spark 1.2 to 4.x and its vendors. The resulting [`Trace`](pellucid_trace::Trace) has the
//! same format as that of other producers: executors are resources of kind `slots`, and tasks are pipelined
//! tasks. Values that Spark did not record are absent from the trace, never zero.
//!
//! A log is read in one pass, with less than 200 bytes of memory for each task:
//!
//! 1. [`layout`] determines which files make up an application's log, and their order;
//! 2. [`Codec`] detects the compression of a file and decompresses it;
//! 3. each line is an event; [`read`] extracts the few dozen fields that matter and skips the rest;
//! 4. at the end, names and times are resolved into the trace.
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
//! This crate does not analyse logs; that is the task of `pellucid-model`. It does not open files either, so
//! that logs can come from anywhere, except that [`layout::local`] lists local folders.

mod error;
mod event;
mod files;
mod json;
mod log;
mod read;
mod text;

pub use error::Error;
pub use files::codec::Codec;
pub use files::{archive, layout};
pub use read::{Part, decompressed, is_compressed, looks_like_event_log, read};
