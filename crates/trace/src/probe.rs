//! The report of a store's probe: the document `pellucid.probe/1`.
//!
//! `pellucid-storage` measures stores and writes it; `pellucid-model` reads it.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

/// The access pattern of reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Whole objects.
    Sequential,
    /// Small ranges in random order.
    Random,
}

impl Pattern {
    /// Returns the name for progress and reports.
    pub fn name(self) -> &'static str {
        match self {
            Pattern::Sequential => "sequential reads",
            Pattern::Random => "random reads",
        }
    }
}

/// The time to the first byte of a response.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FirstByte {
    /// Median.
    pub median: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// A read rate at one level of concurrency.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ReadRate {
    /// Concurrent requests.
    pub concurrency: u32,
    /// Access pattern.
    pub pattern: Pattern,
    /// Bytes of a request.
    pub request_bytes: u64,
    /// Total rate of all requests.
    pub bytes_per_s: f64,
    /// Time to the first byte, in milliseconds.
    pub first_byte_ms: FirstByte,
}

/// The cost of a rename.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rename {
    /// Time for the large object, in milliseconds.
    pub ms: f64,
    /// True if the time grows with the size of the object.
    pub is_copy: bool,
    /// Bytes of the large object.
    pub bytes: u64,
}

/// The time to commit the output of [`Commit::TASKS`] tasks, [`Commit::TASK_BYTES`] each, after it was written.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Commit {
    /// Commit by renames in each task and in the driver, in milliseconds.
    pub rename_ms: Option<f64>,
    /// Commit by completing uploads, in milliseconds.
    pub multipart_ms: Option<f64>,
    /// A small request of a committing task while another task uploads or commits, in milliseconds.
    #[serde(default)]
    pub request_ms: Option<f64>,
}

impl Commit {
    /// Tasks of the job whose commit is timed.
    pub const TASKS: usize = 4;
    /// Output bytes of each task.
    pub const TASK_BYTES: usize = 6 << 20;
}

/// The cost of an upload as the engine makes it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Upload {
    /// Bytes of the large upload, in parts of 10 MiB.
    pub bytes: u64,
    /// Time until all its parts were sent, in milliseconds.
    pub sent_ms: f64,
    /// Time to complete it, in milliseconds.
    pub complete_ms: f64,
    /// Time to complete an upload of 4 KiB, in milliseconds.
    pub complete_small_ms: f64,
}

impl Upload {
    /// Returns the rate of the parts in bytes per second.
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 * 1e3 / self.sent_ms.max(1e-6)
    }

    /// Returns the fixed cost of a completion and the cost per byte, both in nanoseconds.
    pub fn completion_ns(&self) -> (f64, f64) {
        let fixed_ms = self.complete_small_ms.min(self.complete_ms);
        (fixed_ms * 1e6, (self.complete_ms - fixed_ms) * 1e6 / self.bytes.max(1) as f64)
    }
}

/// The source of the objects that were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadFrom {
    /// Objects that the probe had just written.
    #[default]
    Written,
    /// Existing objects, each byte read at most once.
    Existing,
}

/// The measurements of `pellucid storage probe`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name and version of the document.
    pub format: String,
    /// The store, without credentials.
    pub url: String,
    /// Source of the objects that were read.
    #[serde(default)]
    pub read_from: ReadFrom,
    /// Read rates.
    pub read: Vec<ReadRate>,
    /// Concurrency on which the adaptive controller settled.
    pub chosen_concurrency: Option<u32>,
    /// Write rate of objects of 8 MiB, four of them concurrently.
    pub write_bytes_per_s: Option<f64>,
    /// Objects of 4 KiB written per second, eight of them concurrently.
    pub small_objects_per_s: Option<f64>,
    /// Entries listed per second.
    pub list_per_s: Option<f64>,
    /// Cost of a rename.
    pub rename: Option<Rename>,
    /// Cost of a commit.
    pub commit: Commit,
    /// Cost of an upload; `None` for a local file system, which has no uploads.
    #[serde(default)]
    pub upload: Option<Upload>,
    /// True if new objects are immediately visible to reads and listings.
    pub read_after_write: Option<bool>,
}

/// A model of a store's reads: a wait for the first byte, and rates once bytes flow.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    /// Time to the first byte of a response, with one request at a time.
    pub first_byte_ns: u64,
    /// Concurrency and total bytes per second of responses that have started, in ascending order.
    pub read: Vec<(u32, f64)>,
    /// Largest concurrency that improves the rate.
    pub at_once: u32,
}

/// Name and version of the document.
const FORMAT: &str = "pellucid.probe/1";

impl Report {
    /// Creates a report without measurements.
    pub fn new(url: &str) -> Report {
        Report {
            format: FORMAT.to_string(),
            url: url.to_string(),
            read_from: ReadFrom::default(),
            read: Vec::new(),
            chosen_concurrency: None,
            write_bytes_per_s: None,
            small_objects_per_s: None,
            list_per_s: None,
            rename: None,
            commit: Commit::default(),
            upload: None,
            read_after_write: None,
        }
    }

    /// Parses a report from JSON.
    ///
    /// # Errors
    /// Returns a message with a remedy if the text is not a report of this version.
    pub fn parse(text: &str) -> Result<Report, String> {
        let remedy = "create one with `pellucid storage probe URL -o probe.json`";
        let report: Report =
            serde_json::from_str(text).map_err(|e| format!("invalid probe report: {e}; {remedy}"))?;
        match report.format.as_str() {
            FORMAT => Ok(report),
            other => Err(format!("unsupported format {other}, expected {FORMAT}; {remedy}")),
        }
    }

    /// Returns the rates of one pattern.
    pub fn rates(&self, pattern: Pattern) -> impl Iterator<Item = &ReadRate> {
        self.read.iter().filter(move |r| r.pattern == pattern)
    }

    /// Returns the best sequential rate.
    pub fn best_read(&self) -> Option<&ReadRate> {
        self.rates(Pattern::Sequential).max_by(|a, b| a.bytes_per_s.total_cmp(&b.bytes_per_s))
    }

    /// Returns the time of a single copy of `bytes` within the store; `None` if renames do not copy.
    pub fn copy_ns(&self, bytes: u64) -> Option<u64> {
        let rename = self.rename.filter(|r| r.is_copy && r.ms > 0.0 && r.bytes > 0)?;
        Some((bytes as f64 / rename.bytes as f64 * rename.ms * 1e6) as u64)
    }

    /// Returns a model for requests of any size: the rates of large requests, without the wait for
    /// their first byte.
    pub fn service(&self) -> Service {
        let alone = self.read.iter().filter(|r| r.concurrency == 1).map(|r| r.first_byte_ms.median / 1e3);
        let first_byte_s = alone.fold(f64::INFINITY, f64::min);
        let first_byte_s = if first_byte_s.is_finite() { first_byte_s } else { 0.0 };
        let flowing = |r: &ReadRate| {
            let bytes = f64::from(r.concurrency) * r.request_bytes as f64;
            let took_s = bytes / r.bytes_per_s;
            // If the wait is most of the request, the rest is too short to derive a rate from.
            (r.concurrency, bytes / (took_s - first_byte_s).max(took_s / 2.0))
        };
        let some = self.rates(Pattern::Sequential).filter(|r| r.bytes_per_s > 0.0);
        let best = self.best_read().map_or(1, |r| r.concurrency);
        Service {
            first_byte_ns: (first_byte_s * 1e9) as u64,
            read: some.map(flowing).collect(),
            at_once: self.chosen_concurrency.unwrap_or(best),
        }
    }

    /// Renders the report as text.
    pub fn text(&self) -> String {
        let mut out = format!("{}\n", self.url);
        let rate = |value: Option<f64>, unit: &str, scale: f64| match value {
            Some(value) => format!("{} {unit}", digits(value / scale)),
            None => "not measured".to_string(),
        };
        for pattern in [Pattern::Sequential, Pattern::Random] {
            let Some(first) = self.rates(pattern).next() else { continue };
            let source = match self.read_from {
                ReadFrom::Written => "newly written objects",
                ReadFrom::Existing => "existing objects",
            };
            let kib = first.request_bytes >> 10;
            let _ = writeln!(out, "  {} of {source}, {kib} KiB per request", pattern.name());
            let _ = writeln!(
                out,
                "    {:>11}  {:>12}  {:>16}  {:>10}",
                "concurrency", "rate", "first byte", "p99"
            );
            for r in self.rates(pattern) {
                let rate = format!("{} MB/s", digits(r.bytes_per_s / 1e6));
                let [median, p99] =
                    [r.first_byte_ms.median, r.first_byte_ms.p99].map(|ms| format!("{} ms", digits(ms)));
                let _ = writeln!(out, "    {:>11}  {rate:>12}  {median:>16}  {p99:>10}", r.concurrency);
            }
        }
        let chosen = self.chosen_concurrency.map_or("not measured".to_string(), |c| c.to_string());
        let _ = writeln!(out, "  tuned concurrency              {chosen}");
        let _ =
            writeln!(out, "  write rate                     {}", rate(self.write_bytes_per_s, "MB/s", 1e6));
        let _ = writeln!(
            out,
            "  small objects written          {}",
            rate(self.small_objects_per_s, "per second", 1.0)
        );
        let _ =
            writeln!(out, "  entries listed                 {}", rate(self.list_per_s, "per second", 1.0));
        let rename = match self.rename {
            Some(Rename { ms, is_copy: true, bytes }) => {
                format!("{} ms for {} MiB (copies the data)", digits(ms), bytes >> 20)
            }
            Some(Rename { ms, is_copy: false, .. }) => {
                format!("{} ms, independent of the size", digits(ms))
            }
            None => "not measured".to_string(),
        };
        let _ = writeln!(out, "  rename                         {rename}");
        let _ = writeln!(out, "  commit by rename               {}", rate(self.commit.rename_ms, "ms", 1.0));
        let _ =
            writeln!(out, "  commit by multipart upload     {}", rate(self.commit.multipart_ms, "ms", 1.0));
        let _ = writeln!(
            out,
            "  small requests of a commit     {}",
            rate(self.commit.request_ms, "ms each", 1.0)
        );
        if let Some(upload) = self.upload {
            let (rate, complete_ms) = (digits(upload.bytes_per_s() / 1e6), digits(upload.complete_ms));
            let mib = upload.bytes >> 20;
            let _ = writeln!(
                out,
                "  upload in parts                {rate} MB/s; completing {mib} MiB takes {complete_ms} ms"
            );
        }
        let seen = match self.read_after_write {
            Some(true) => "yes",
            Some(false) => "no: new objects are not immediately visible",
            None => "not measured",
        };
        let _ = writeln!(out, "  read after write               {seen}");
        out
    }
}

/// Formats a number with three significant digits.
fn digits(value: f64) -> String {
    // The logarithm of zero is -inf, which saturates.
    let whole = (value.abs().log10().floor() as i32).saturating_add(1);
    let after = 3i32.saturating_sub(whole).clamp(0, 3) as usize;
    format!("{value:.after$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        let formatted = [0.0, 0.0123, 1.0, 12.34, 1234.5, f64::INFINITY].map(digits);
        assert_eq!(formatted, ["0.000", "0.012", "1.00", "12.3", "1234", "inf"].map(String::from));
    }

    #[test]
    fn copy_time_is_proportional_to_bytes_and_none_for_metadata_renames() {
        let renames = |is_copy| Report {
            rename: Some(Rename { ms: 640.0, is_copy, bytes: 64 << 20 }),
            ..Report::new("x")
        };
        assert_eq!(renames(true).copy_ns(6 << 20), Some(60_000_000));
        assert_eq!(renames(false).copy_ns(6 << 20), None);
    }
}
