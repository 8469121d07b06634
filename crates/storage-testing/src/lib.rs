//! Test equipment for object stores: injected faults, a slow link, counters, a virtual clock, and a
//! conformance suite for every store and wrapper.
//!
//! Only tests and examples depend on this crate. The unit tests of
//! `crates/storage` cannot use it, since they compile another instance of that crate's types.

pub mod conformance;
pub mod count;
pub mod fault;
pub mod pace;
mod virtual_clock;
pub mod wrap;

pub use virtual_clock::{Deadlock, Virtual};
