//! The one-line summary of a job: its outcome, its bottleneck, the next bottleneck and the bytes moved.

use pellucid_model::units::{count, size, time};
use pellucid_model::{BlockedTimes, JobAnalysis};
use pellucid_trace::Outcome;

use super::page::clean;
use crate::words::{limiting, not_limited, noun, resource};

/// Returns the one-line summary of a job, without a line end:
/// `4 rows in 1.84 s · limited by disk nvme0n1 (ideal 1.67 s of 1.84 s) · next: cores (0.61 s) · 812 MB read, 96 MB cached`.
///
/// `rows` is the number of result rows, if the job has a result. `busy` replaces `ideal` for a resource
/// of unknown capacity. If no resource limits the job, the line names its longest steps instead:
/// `not limited by one resource: planning 1.2 of 2.1 ms`.
pub fn summary_line(a: &JobAnalysis, rows: Option<u64>) -> String {
    let parts = [Some(outcome(a, rows)), Some(limit(a)), next(a), moved(a)];
    clean(&parts.into_iter().flatten().collect::<Vec<_>>().join(" · "))
}

fn outcome(a: &JobAnalysis, rows: Option<u64>) -> String {
    let (what, after) = match (a.outcome, rows) {
        (Some(Outcome::Failed), _) => ("failed".to_owned(), "after"),
        (Some(Outcome::Cancelled), _) => ("cancelled".to_owned(), "after"),
        (Some(Outcome::Ok), Some(rows)) => (count(rows, "row"), "in"),
        (Some(Outcome::Ok), None) => ("done".to_owned(), "in"),
        (None, _) if a.observed_ms.is_none() => ("end not recorded".to_owned(), "after"),
        (None, _) => ("end not recorded; observed".to_owned(), "for"),
    };
    match a.duration_ms.or(a.observed_ms) {
        Some(ms) => format!("{what} {after} {}", time(ms)),
        None => what,
    }
}

fn limit(a: &JobAnalysis) -> String {
    if let Some(blocked) = &a.blocked {
        return of_tasks(blocked).unwrap_or_else(|| "time breakdown not measured".into());
    }
    let Some((bottleneck, used)) = a.bottleneck.as_ref().and_then(|b| Some((b, a.kinds.get(&b.kind)?)))
    else {
        return match a.duration_ms.filter(|_| a.kinds.values().any(|used| used.limit_ms > 0.0)) {
            Some(whole) => not_limited(a.steps.as_ref(), whole),
            None => "bottleneck not measured".into(),
        };
    };
    let (what, ms) = limiting(&bottleneck.kind, used);
    let ideal = if used.from_busy_time { "busy" } else { "ideal" };
    let of = a.duration_ms.or(a.observed_ms).map_or(String::new(), |ms| format!(" of {}", time(ms)));
    format!("limited by {what} ({ideal} {}{of})", time(ms))
}

/// Describes the largest part of the task time. Pipelined tasks have no ideal times, so they have no
/// bottleneck.
fn of_tasks(blocked: &BlockedTimes) -> Option<String> {
    let whole: f64 = blocked.measured().iter().map(|(_, ms)| ms).sum();
    let (part, most) = blocked.largest()?;
    let what = match part {
        "cpu" => "computing",
        "disk" => "waiting for disks",
        "network" => "waiting for the network",
        "gc" => "in garbage collection",
        "scheduler" => "in scheduler delay",
        "deserialize" => "deserialising",
        _ => "in unexplained time",
    };
    Some(format!("tasks mostly {what} ({} of {})", time(most), time(whole)))
}

fn next(a: &JobAnalysis) -> Option<String> {
    let next = a.next.as_ref()?;
    let used = a.kinds.get(&next.kind);
    let name = used.filter(|u| u.resources == 1).and_then(|u| u.largest.as_deref());
    let what = if name.is_some() { resource(&next.kind, name) } else { noun(&next.kind).to_owned() };
    Some(format!("next: {what} ({})", time(next.ideal_ms)))
}

/// Lists the bytes read, cached and written, as far as they were measured.
fn moved(a: &JobAnalysis) -> Option<String> {
    let part = |bytes: Option<u64>, what: &str| bytes.map(|b| format!("{} {what}", size(b as f64)));
    let written = a.written_bytes.filter(|b| *b > 0);
    let parts = [part(a.read_bytes, "read"), part(a.cached_bytes, "cached"), part(written, "written")];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}
