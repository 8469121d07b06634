//! Warnings about a log, counted while it is read and reported at its end.

use crate::log::measured::Contradictions;

/// Maximum number of malformed lines that are listed; further ones are counted.
const MAX_LISTED: usize = 5;

/// Counts of the problems in a log.
#[derive(Debug, Default)]
pub struct Warnings {
    /// Line number, offset of the error and length of each listed malformed line.
    malformed: Vec<(u64, usize, usize)>,
    more_malformed: u64,
    /// JSON objects that are not events.
    pub no_event: u64,
    /// Events without the id of their subject.
    pub no_id: u64,
    /// Ends of jobs without a recorded start.
    pub unknown_jobs: u64,
    /// Plans beyond the maximum depth.
    pub deep_plans: u64,
    /// Plans that take too much memory.
    pub dropped_plans: u64,
    /// Tasks whose input bytes are ignored.
    pub distrusted_inputs: u64,
    gc_over_run: u64,
    part_over_whole: u64,
    backwards: u64,
    messages: Vec<String>,
}

impl Warnings {
    /// Counts a line that is invalid JSON at offset `at`.
    pub fn malformed(&mut self, line: u64, at: usize, length: usize) {
        if self.malformed.len() < MAX_LISTED {
            self.malformed.push((line, at, length));
        } else {
            self.more_malformed += 1;
        }
    }

    /// Returns the number of malformed lines.
    pub fn malformed_lines(&self) -> u64 {
        self.malformed.len() as u64 + self.more_malformed
    }

    /// Adds a message, unless it exists already.
    pub fn add(&mut self, message: impl Into<String>) {
        let message = message.into();
        if !self.messages.contains(&message) {
            self.messages.push(message);
        }
    }

    /// Counts the contradictions of a task.
    pub fn add_contradictions(&mut self, contradictions: Contradictions) {
        self.gc_over_run += u64::from(contradictions.gc_over_run);
        self.part_over_whole += u64::from(contradictions.part_over_whole);
        self.backwards += u64::from(contradictions.backwards);
    }

    /// Returns the messages.
    pub fn into_messages(self) -> Vec<String> {
        let mut messages = self.messages;
        for (line, at, length) in self.malformed {
            messages.push(format!("skipped line {line}: invalid JSON at byte {at} of {length}"));
        }
        let mut count = |before: &str, number: u64, noun: &str, after: &str| {
            if number > 0 {
                let plural = if number == 1 { "" } else { "s" };
                messages.push(format!("{before}{number} {noun}{plural}{after}"));
            }
        };
        count("skipped ", self.more_malformed, "further line", ": invalid JSON");
        count("skipped ", self.no_event, "line", ": JSON, but not a Spark event");
        count("skipped ", self.no_id, "event", ": no id of a stage or SQL execution");
        count("", self.unknown_jobs, "job", " ended without a recorded start");
        count("", self.deep_plans, "SQL plan", " deeper than 300 operators: read to that depth");
        count("", self.dropped_plans, "SQL plan", " of short executions not kept: the plans exceed 16 MiB");
        count(
            "",
            self.distrusted_inputs,
            "task",
            ": input bytes ignored, since Spark does not count vectored reads of local Parquet files",
        );
        count(
            "",
            self.gc_over_run,
            "task",
            " with more garbage collection than run time: limited to the run time",
        );
        count("", self.part_over_whole, "task", " with a part longer than the whole: limited to the whole");
        count("", self.backwards, "task", " with an end before the launch: duration set to zero");
        messages
    }
}
