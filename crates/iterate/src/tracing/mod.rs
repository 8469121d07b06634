//! Traces of jobs: sampling of tasks, and the records of one or several processes.

pub(crate) mod bandwidth;
pub(crate) mod merging;
pub(crate) mod recording;
pub(crate) mod sampling;
