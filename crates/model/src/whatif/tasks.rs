//! The kinds of tasks that a trace may hold.

/// The unit that a trace's work is divided into. Residuals of one kind do not apply to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tasks {
    /// The SQL engine's monotasks.
    Monotasks,
    /// Spark's pipelined tasks.
    Pipelined,
    /// The sampled tasks of iterative jobs.
    Sampled,
}

impl Tasks {
    pub(super) const ALL: [Tasks; 3] = [Tasks::Monotasks, Tasks::Pipelined, Tasks::Sampled];

    /// Returns the name used in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Tasks::Monotasks => "monotasks",
            Tasks::Pipelined => "pipelined",
            Tasks::Sampled => "sampled",
        }
    }
}
