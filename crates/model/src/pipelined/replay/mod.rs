//! Replays of pipelined tasks: the same schedule with other task durations, or on other slots.

pub(crate) mod allocation;
pub(crate) mod bounds;
pub(crate) mod schedule;
pub(crate) mod simulate;
