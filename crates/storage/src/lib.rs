//! Storage backends, and measurements of them.
//!
//! Every store implements `object_store`'s trait. [`open`] turns a URL into a store: the local
//! file system ([`LocalStore`], which reads only the requested bytes), S3, a [`web`] server, or a scheme that another
//! crate [`register`]s (`crates/backends`: HDFS and Swift). Remote stores are [`guarded`]: an answer
//! is correct or an error ([`retry`]), and errors contain no secrets ([`errors`]).
//! This crate does not schedule reads: the engine wraps these stores, and the runtime reads local
//! data files itself.
//!
//! A [`probe`] measures a store. `pellucid-model` reads its report: the doctor and what-ifs of storage.

mod address;
mod backend;
pub mod body;
pub mod clock;
pub mod errors;
mod failed_attempt;
pub mod fetch;
mod guard;
mod local;
mod open;
pub mod pattern;
pub mod probe;
pub mod retry;
mod s3;
pub mod web;

pub use address::{name, refused_redirect, shown};
pub use backend::{Backend, Opened, StorageError, register};
pub use failed_attempt::{FailedAttempt, Watch};
pub use guard::guarded;
pub use local::LocalStore;
pub use open::{open, open_watched};
