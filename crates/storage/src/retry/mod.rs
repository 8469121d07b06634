//! Retries, timeouts and length checks for a store over an unreliable link: an operation returns the
//! correct bytes or a clear error, in bounded time.
//!
//! Idempotent calls are retried a few times, with exponential backoff and jitter so that clients that
//! failed together do not retry together; a store's `Retry-After` is honoured. Every response and
//! every chunk of a body has a timeout. An interrupted body resumes where it stopped, from the same
//! version of the object. A body of the wrong length is an error.
//!
//! Two kinds of calls are not retried. The first are calls that are not idempotent and may have
//! succeeded although the response was lost: create if absent, rename, and the parts and completion
//! of a multipart upload. (Swift's parts are separate objects and can be retried, see
//! `crates/backends/src/segments.rs`.) The second are calls that would fail again: not found, not
//! allowed, expired. If the client retries requests itself (S3's does), [`Limits::retries_calls`] is
//! false and this module only resumes bodies.

mod attempts;
mod limits;
mod reading;
mod store;

pub use limits::{Limits, Permanent, Throttled};
pub(crate) use reading::{ResponseStart, same_version};
pub use store::Retrying;
