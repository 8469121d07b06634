//! Times that the operators of a plan measure themselves, by the names of their metrics.
//!
//! A log has no place for them but the accumulables of its tasks, and no unit beside a name, so each name
//! stands here with its unit. Stock Spark times scans (waiting and decoding together) and commits. Engines
//! that run in its place say more: Comet and Photon how long they decoded and decompressed, and how long
//! they waited for input. What RAPIDS decodes on a GPU takes no core time, and is not read.

use memchr::memmem::Finder;
use pellucid_trace::{Blocked, PipelinedTask};
use std::sync::LazyLock;

use crate::task::ns;

/// Text that is in every list with a name of [`Operators::place`], and in few others.
static TELLING: LazyLock<[Finder<'static>; 4]> =
    LazyLock::new(|| ["\"scan time\"", "\"task commit time\"", "ecod", "ecompress"].map(Finder::new));

/// What the operators of one task measured.
#[derive(Debug, Default)]
pub struct Operators {
    /// In scans: waiting, and decoding; milliseconds, or nanoseconds of native ones.
    scan_time: Option<u64>,
    /// Putting files of output in place.
    commit_ms: Option<u64>,
    decode_ns: Option<u64>,
    input_wait_ns: Option<u64>,
}

impl Operators {
    /// Whether a list of accumulables may hold a name that is read here.
    pub fn are_in(list: &[u8]) -> bool {
        TELLING.iter().any(|text| text.find(list).is_some())
    }

    /// The place of an accumulable of this name; `None` for one that nothing here reads.
    pub fn place(&mut self, name: &[u8]) -> Option<&mut Option<u64>> {
        Some(match name {
            b"scan time" => &mut self.scan_time,
            b"task commit time" => &mut self.commit_ms,
            // Comet's native scans, its scans in the JVM, its shuffles.
            b"Wall clock time elapsed for data decompression + decoding"
            | b"time spent in Parquet native decoding"
            | b"decoding and decompression time"
            // Photon's scans and shuffles.
            | b"executor time CPU - decoding columns"
            | b"executor time CPU - decoding footers"
            | b"executor time CPU - decoding deletion vectors"
            | b"executor time CPU - decompressing pages"
            | b"time taken to decompress data" => &mut self.decode_ns,
            b"time spent in reading Parquet file from storage" | b"executor time IO wait" => &mut self.input_wait_ns,
            _ => return None,
        })
    }

    /// Adds what was measured to the task, each within its run time.
    pub fn add(&self, task: &mut PipelinedTask) {
        let run_ns = task.run_ns.unwrap_or(task.duration_ns);
        let within = |time_ns: u64| time_ns.min(run_ns);
        // Comet's and Gluten's scans count nanoseconds under the name for which Spark's count milliseconds.
        let scan_ns = |time: u64| {
            if ns(time) > run_ns.saturating_mul(2).saturating_add(ns(1)) { time } else { ns(time) }
        };
        task.scan_ns = self.scan_time.map(scan_ns).map(within);
        task.commit_ns = self.commit_ms.map(ns).map(within);
        task.decode_ns = self.decode_ns.map(within);
        // The plugin sees the waits of the task's own thread: that is better.
        let waited = self.input_wait_ns.map(within).map(Blocked::MeasuredNs);
        task.blocked_input = task.blocked_input.or(waited);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_engine_measures_is_read_with_its_unit() {
        let mut operators = Operators::default();
        let said = [
            ("scan time", 120),
            ("executor time CPU - decoding columns", 70_000_000),
            ("executor time IO wait", 30_000_000),
        ];
        for (name, value) in said {
            *operators.place(name.as_bytes()).expect(name) = Some(value);
        }
        let mut task = PipelinedTask { run_ns: Some(100_000_000), ..PipelinedTask::default() };
        operators.add(&mut task);
        assert_eq!((task.scan_ns, task.decode_ns), (Some(100_000_000), Some(70_000_000)));
        assert_eq!(task.blocked_input, Some(Blocked::MeasuredNs(30_000_000)));
        assert_eq!(task.commit_ns, None);
    }

    #[test]
    fn a_native_scan_counts_nanoseconds() {
        let mut operators = Operators::default();
        *operators.place(b"scan time").expect("a name") = Some(1_051_660_304);
        let mut task = PipelinedTask { run_ns: Some(3_837_000_000), ..PipelinedTask::default() };
        operators.add(&mut task);
        assert_eq!(task.scan_ns, Some(1_051_660_304));
    }

    #[test]
    fn parts_of_a_wait_are_not_added_to_it() {
        assert!(Operators::default().place(b"executor time IO wait - footers").is_none());
        let list = br#"[{"Name":"executor time CPU - decoding columns"}]"#;
        assert!(Operators::are_in(list) && !Operators::are_in(br#"[{"Name":"peak memory"}]"#));
    }
}
