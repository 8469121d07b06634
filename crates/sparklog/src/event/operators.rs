//! Times that SQL operators measure themselves, from the accumulables of tasks.
//!
//! Accumulables have a name but no unit, so each supported name is listed here with its unit. Stock Spark
//! times scans (waiting and decoding together) and commits. Native engines measure more: Comet and Photon
//! time decoding and decompression, and waits for input. RAPIDS decodes on the GPU, which takes no core
//! time, so its metrics are ignored.

use memchr::memmem::Finder;
use pellucid_trace::{Blocked, PipelinedTask};
use std::sync::LazyLock;

use crate::event::time::ns;

/// Texts that occur in every list with a name known to [`OperatorMetrics::slot`], and in few others.
static MARKERS: LazyLock<[Finder<'static>; 4]> =
    LazyLock::new(|| ["\"scan time\"", "\"task commit time\"", "ecod", "ecompress"].map(Finder::new));

/// The operator metrics of one task.
#[derive(Debug, Default)]
pub struct OperatorMetrics {
    /// Waiting and decoding in scans, in milliseconds; native scans count nanoseconds.
    scan_time: Option<u64>,
    /// Committing output files.
    commit_ms: Option<u64>,
    decode_ns: Option<u64>,
    input_wait_ns: Option<u64>,
}

impl OperatorMetrics {
    /// Returns whether a list of accumulables may contain a known name.
    pub fn are_in(list: &[u8]) -> bool {
        MARKERS.iter().any(|text| text.find(list).is_some())
    }

    /// Returns the field for an accumulable of this name, or `None` if the name is unknown.
    pub fn slot(&mut self, name: &[u8]) -> Option<&mut Option<u64>> {
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

    /// Adds the metrics to the task, each limited to the task's run time.
    pub fn add(&self, task: &mut PipelinedTask) {
        let run_ns = task.run_ns.unwrap_or(task.duration_ns);
        let within = |time_ns: u64| time_ns.min(run_ns);
        // Comet and Gluten count nanoseconds under a name that Spark uses for milliseconds.
        let scan_ns = |time: u64| {
            if ns(time) > run_ns.saturating_mul(2).saturating_add(ns(1)) { time } else { ns(time) }
        };
        task.scan_ns = self.scan_time.map(scan_ns).map(within);
        task.commit_ns = self.commit_ms.map(ns).map(within);
        task.decode_ns = self.decode_ns.map(within);
        // The plugin's measurement takes precedence, since it covers all waits of the task's thread.
        let waited = self.input_wait_ns.map(within).map(Blocked::MeasuredNs);
        task.blocked_input = task.blocked_input.or(waited);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_converted_from_their_units() {
        let mut operators = OperatorMetrics::default();
        let metrics = [
            ("scan time", 120),
            ("executor time CPU - decoding columns", 70_000_000),
            ("executor time IO wait", 30_000_000),
        ];
        for (name, value) in metrics {
            *operators.slot(name.as_bytes()).expect(name) = Some(value);
        }
        let mut task = PipelinedTask { run_ns: Some(100_000_000), ..PipelinedTask::default() };
        operators.add(&mut task);
        assert_eq!((task.scan_ns, task.decode_ns), (Some(100_000_000), Some(70_000_000)));
        assert_eq!(task.blocked_input, Some(Blocked::MeasuredNs(30_000_000)));
        assert_eq!(task.commit_ns, None);
    }

    #[test]
    fn scan_time_of_native_scans_is_in_nanoseconds() {
        let mut operators = OperatorMetrics::default();
        *operators.slot(b"scan time").expect("a name") = Some(1_051_660_304);
        let mut task = PipelinedTask { run_ns: Some(3_837_000_000), ..PipelinedTask::default() };
        operators.add(&mut task);
        assert_eq!(task.scan_ns, Some(1_051_660_304));
    }

    #[test]
    fn parts_of_a_wait_are_ignored() {
        assert!(OperatorMetrics::default().slot(b"executor time IO wait - footers").is_none());
        let list = br#"[{"Name":"executor time CPU - decoding columns"}]"#;
        assert!(OperatorMetrics::are_in(list) && !OperatorMetrics::are_in(br#"[{"Name":"peak memory"}]"#));
    }
}
