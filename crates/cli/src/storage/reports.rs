//! Probes' reports, as read from a file and as used by predictions.

use crate::failure::Failure;
use pellucid_model::whatif::Storage;
use pellucid_storage::probe::{ReadFrom, Report};
use std::path::Path;

/// Reads a probe's report from a file.
pub fn probe_report(path: &Path) -> Result<Report, Failure> {
    let text =
        std::fs::read_to_string(path).map_err(|error| Failure::file("read", path.display(), &error))?;
    Report::parse(&text).map_err(|why| Failure::Failed(format!("{}: {why}", path.display())))
}

/// Converts a probe's report to the model's storage parameters.
pub fn probed(report: &Report) -> Storage {
    let service = report.service();
    Storage {
        name: report.url.clone(),
        is_disk: report.url.starts_with("file://"),
        first_byte_ns: service.first_byte_ns,
        read: service.read,
        at_once: service.at_once,
        read_just_written: report.read_from == ReadFrom::Written,
        // Jobs write multipart uploads. Objects put in one request include their own completion time.
        write_bytes_per_s: report.upload.map(|upload| upload.bytes_per_s()).or(report.write_bytes_per_s),
        publish_ns: report.upload.map(|upload| upload.completion_ns()),
    }
}
