//! What was odd about a log, counted while it is read and said at its end.

use crate::task::Oddities;

/// Malformed lines that are named; the rest are counted.
const NAMED: usize = 5;

/// Counts of what was odd.
#[derive(Debug, Default)]
pub struct Warnings {
    /// Numbers of malformed lines, and offset and length of each.
    malformed: Vec<(u64, usize, usize)>,
    more_malformed: u64,
    /// Objects that are no events.
    pub no_event: u64,
    /// Events without the id that they are about.
    pub no_id: u64,
    /// Ends of jobs whose start was not seen.
    pub unknown_jobs: u64,
    /// Plans deeper than what is read.
    pub deep_plans: u64,
    /// Tasks whose input bytes are left out.
    pub distrusted_inputs: u64,
    gc_over_run: u64,
    part_over_whole: u64,
    backwards: u64,
    words: Vec<String>,
}

impl Warnings {
    /// A line that is no JSON, from `at` on.
    pub fn malformed(&mut self, line: u64, at: usize, length: usize) {
        if self.malformed.len() < NAMED {
            self.malformed.push((line, at, length));
        } else {
            self.more_malformed += 1;
        }
    }

    /// Lines that were no JSON.
    pub fn malformed_lines(&self) -> u64 {
        self.malformed.len() as u64 + self.more_malformed
    }

    /// Something that is said as it is.
    pub fn say(&mut self, words: impl Into<String>) {
        let words = words.into();
        if !self.words.contains(&words) {
            self.words.push(words);
        }
    }

    /// What one task contradicted.
    pub fn odd(&mut self, odd: Oddities) {
        self.gc_over_run += u64::from(odd.gc_over_run);
        self.part_over_whole += u64::from(odd.part_over_whole);
        self.backwards += u64::from(odd.backwards);
    }

    /// In words.
    pub fn into_words(self) -> Vec<String> {
        let mut words = self.words;
        for (line, at, length) in self.malformed {
            words.push(format!("line {line} is left out: no valid JSON at byte {at} of {length}"));
        }
        let mut count = |number: u64, what: &str, then: &str| {
            if number > 0 {
                let plural = if number == 1 { "" } else { "s" };
                words.push(format!("{number} {}{then}", what.replace("(s)", plural)));
            }
        };
        count(self.more_malformed, "more line(s)", " left out: no valid JSON");
        count(self.no_event, "line(s)", " left out: JSON, but no event of Spark");
        count(self.no_id, "event(s)", " left out: without the id of what they are about");
        count(self.unknown_jobs, "job(s)", " ended whose start is not in the log");
        count(self.deep_plans, "SQL plan(s)", " deeper than 300 operators: read to that depth");
        count(
            self.distrusted_inputs,
            "task(s)",
            ": input bytes not used, since Spark does not count vectored reads of local Parquet files",
        );
        count(
            self.gc_over_run,
            "task(s)",
            " with more garbage collection than run time: cut to the run time",
        );
        count(self.part_over_whole, "task(s)", " with a part longer than the whole: cut to the whole");
        count(self.backwards, "task(s)", " that ended before they were launched: taken as of no duration");
        words
    }
}
