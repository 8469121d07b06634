//! What a probe measured: the document `pellucid.probe/1`.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

/// In which order requests meet an object's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Whole objects, one after another.
    Sequential,
    /// Small pieces anywhere.
    Random,
}

impl Pattern {
    /// In words.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Pattern::Sequential => "reading, sequential",
            Pattern::Random => "reading, random",
        }
    }
}

/// Time until the first byte of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FirstByte {
    /// Half of the requests were faster.
    pub median: f64,
    /// 99 of 100 were.
    pub p99: f64,
}

/// A rate of reading with so many requests at once.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ReadRate {
    /// Requests at once.
    pub concurrency: u32,
    /// In which order.
    pub pattern: Pattern,
    /// Bytes of a request.
    pub request_bytes: u64,
    /// All of them together.
    pub bytes_per_s: f64,
    /// In milliseconds.
    pub first_byte_ms: FirstByte,
}

/// What a rename takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rename {
    /// Of the large object, in milliseconds.
    pub ms: f64,
    /// Whether its time grows with the object.
    pub is_copy: bool,
    /// Bytes of the large object.
    pub bytes: u64,
}

/// What putting the output of four tasks, 6 MiB each, in place takes after it was written.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Commit {
    /// By renames of each task and of the driver, in milliseconds.
    pub rename_ms: Option<f64>,
    /// By completing uploads, in milliseconds.
    pub multipart_ms: Option<f64>,
    /// A small request of a task that notes what it uploaded, while another task does or uploads, in milliseconds.
    #[serde(default)]
    pub request_ms: Option<f64>,
}

/// What an upload takes that is made as the engine makes its output.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Upload {
    /// Bytes of the large one, in parts of 10 MiB.
    pub bytes: u64,
    /// Until all its parts were there, in milliseconds.
    pub sent_ms: f64,
    /// Completing it.
    pub complete_ms: f64,
    /// Completing one of 4 KiB.
    pub complete_small_ms: f64,
}

impl Upload {
    /// Bytes per second of its parts.
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 * 1e3 / self.sent_ms.max(1e-6)
    }

    /// What completing takes whatever the size, and nanoseconds more of each byte.
    pub fn completion_ns(&self) -> (f64, f64) {
        let fixed_ms = self.complete_small_ms.min(self.complete_ms);
        (fixed_ms * 1e6, (self.complete_ms - fixed_ms) * 1e6 / self.bytes.max(1) as f64)
    }
}

/// Which objects were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadFrom {
    /// Those that the probe had just written.
    #[default]
    Written,
    /// Those that were there; no byte twice.
    Existing,
}

/// What `pellucid storage probe` measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name and version of the document.
    pub format: String,
    /// The store, without credentials.
    pub url: String,
    /// Which objects were read.
    #[serde(default)]
    pub read_from: ReadFrom,
    /// Rates of reading.
    pub read: Vec<ReadRate>,
    /// How many requests at once the adaptive controller settled on.
    pub chosen_concurrency: Option<u32>,
    /// Objects of 8 MiB, four at once.
    pub write_bytes_per_s: Option<f64>,
    /// Objects of 4 KiB written, eight at once.
    pub small_objects_per_s: Option<f64>,
    /// Entries of a listing.
    pub list_per_s: Option<f64>,
    /// What a rename takes.
    pub rename: Option<Rename>,
    /// What a commit takes.
    pub commit: Commit,
    /// What an upload takes; nothing of a local file system, which has none.
    #[serde(default)]
    pub upload: Option<Upload>,
    /// Whether what was written is read and listed at once.
    pub read_after_write: Option<bool>,
}

/// What a client meets: a wait for the first byte, and rates once bytes flow.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    /// Until the first byte of an answer, with one request at a time.
    pub first_byte_ns: u64,
    /// Total bytes per second of answers that have begun, with so many at once, ascending.
    pub read: Vec<(u32, f64)>,
    /// Requests at once that pay.
    pub at_once: u32,
}

/// Name and version of the document.
const FORMAT: &str = "pellucid.probe/1";

impl Report {
    /// A report of nothing yet.
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

    /// Reads a report from its JSON.
    ///
    /// # Errors
    /// What is not a report of this version, in words with a way out.
    pub fn parse(text: &str) -> Result<Report, String> {
        let way_out = "`pellucid storage probe URL -o probe.json` writes one";
        let report: Report =
            serde_json::from_str(text).map_err(|e| format!("not a probe's report: {e}; {way_out}"))?;
        match report.format.as_str() {
            FORMAT => Ok(report),
            other => Err(format!("its format is {other}, not {FORMAT}; {way_out}")),
        }
    }

    /// The rates of one pattern.
    pub fn rates(&self, pattern: Pattern) -> impl Iterator<Item = &ReadRate> {
        self.read.iter().filter(move |r| r.pattern == pattern)
    }

    /// The best sequential rate, with how many requests at once.
    pub fn best_read(&self) -> Option<&ReadRate> {
        self.rates(Pattern::Sequential).max_by(|a, b| a.bytes_per_s.total_cmp(&b.bytes_per_s))
    }

    /// How long a copy of so many bytes within the store takes alone; `None` where a rename is none.
    pub fn copy_ns(&self, bytes: u64) -> Option<u64> {
        let rename = self.rename.filter(|r| r.is_copy && r.ms > 0.0 && r.bytes > 0)?;
        Some((bytes as f64 / rename.bytes as f64 * rename.ms * 1e6) as u64)
    }

    /// The store as one who sends requests of any size meets it: the rates of large requests,
    /// without the wait for their first byte.
    pub fn service(&self) -> Service {
        let alone = self.read.iter().filter(|r| r.concurrency == 1).map(|r| r.first_byte_ms.median / 1e3);
        let first_byte_s = alone.fold(f64::INFINITY, f64::min);
        let first_byte_s = if first_byte_s.is_finite() { first_byte_s } else { 0.0 };
        let flowing = |r: &ReadRate| {
            let bytes = f64::from(r.concurrency) * r.request_bytes as f64;
            let took_s = bytes / r.bytes_per_s;
            // Of a wait that is most of the request no rate is left to be told.
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

    /// The report for people.
    pub fn text(&self) -> String {
        let mut out = format!("{}\n", self.url);
        let rate = |value: Option<f64>, unit: &str, scale: f64| match value {
            Some(value) => format!("{} {unit}", digits(value / scale)),
            None => "not measured".to_string(),
        };
        for pattern in [Pattern::Sequential, Pattern::Random] {
            let Some(first) = self.rates(pattern).next() else { continue };
            let of = match self.read_from {
                ReadFrom::Written => "what was just written",
                ReadFrom::Existing => "what was there",
            };
            let _ = writeln!(out, "  {}, {of}, {} KiB a request", pattern.words(), first.request_bytes >> 10);
            let _ =
                writeln!(out, "    {:>7}  {:>12}  {:>16}  {:>10}", "at once", "rate", "first byte", "p99");
            for r in self.rates(pattern) {
                let rate = format!("{} MB/s", digits(r.bytes_per_s / 1e6));
                let [median, p99] =
                    [r.first_byte_ms.median, r.first_byte_ms.p99].map(|ms| format!("{} ms", digits(ms)));
                let _ = writeln!(out, "    {:>7}  {rate:>12}  {median:>16}  {p99:>10}", r.concurrency);
            }
        }
        let chosen = self.chosen_concurrency.map_or("not measured".to_string(), |c| format!("{c} at once"));
        let _ = writeln!(out, "  the adaptive controller picks  {chosen}");
        let _ =
            writeln!(out, "  writing                        {}", rate(self.write_bytes_per_s, "MB/s", 1e6));
        let _ = writeln!(
            out,
            "  small objects written          {}",
            rate(self.small_objects_per_s, "a second", 1.0)
        );
        let _ = writeln!(out, "  entries listed                 {}", rate(self.list_per_s, "a second", 1.0));
        let rename = match self.rename {
            Some(Rename { ms, is_copy: true, bytes }) => {
                format!("{} ms for {} MiB: it copies", digits(ms), bytes >> 20)
            }
            Some(Rename { ms, is_copy: false, .. }) => format!("{} ms, whatever the size", digits(ms)),
            None => "not measured".to_string(),
        };
        let _ = writeln!(out, "  rename                         {rename}");
        let _ = writeln!(out, "  commit by rename               {}", rate(self.commit.rename_ms, "ms", 1.0));
        let _ =
            writeln!(out, "  commit by multipart upload     {}", rate(self.commit.multipart_ms, "ms", 1.0));
        let _ = writeln!(
            out,
            "  a task's small requests        {}",
            rate(self.commit.request_ms, "ms each", 1.0)
        );
        if let Some(upload) = self.upload {
            let (rate, complete_ms) = (digits(upload.bytes_per_s() / 1e6), digits(upload.complete_ms));
            let mib = upload.bytes >> 20;
            let _ = writeln!(
                out,
                "  upload in parts                {rate} MB/s; completing {mib} MiB {complete_ms} ms"
            );
        }
        let seen = match self.read_after_write {
            Some(true) => "yes",
            Some(false) => "no: what was written was not seen at once",
            None => "not measured",
        };
        let _ = writeln!(out, "  read after write               {seen}");
        out
    }
}

/// Three significant digits.
pub(crate) fn digits(value: f64) -> String {
    // Of zero the logarithm is the least there is.
    let whole = (value.abs().log10().floor() as i32).saturating_add(1);
    let after = 3i32.saturating_sub(whole).clamp(0, 3) as usize;
    format!("{value:.after$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_nothing_is_zero() {
        let said = [0.0, 0.0123, 1.0, 12.34, 1234.5, f64::INFINITY].map(digits);
        assert_eq!(said, ["0.000", "0.012", "1.00", "12.3", "1234", "inf"].map(String::from));
    }

    #[test]
    fn a_copy_takes_as_long_as_its_bytes_and_what_only_moves_is_none() {
        let renames = |is_copy| Report {
            rename: Some(Rename { ms: 640.0, is_copy, bytes: 64 << 20 }),
            ..Report::new("x")
        };
        assert_eq!(renames(true).copy_ns(6 << 20), Some(60_000_000));
        assert_eq!(renames(false).copy_ns(6 << 20), None);
    }
}
