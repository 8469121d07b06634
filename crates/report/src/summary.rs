//! The one line after each query: what came out, what limited it, what would limit next.

use pellucid_model::{BlockedTimes, JobAnalysis};
use pellucid_trace::Outcome;

use crate::page::clean;
use crate::words::{count, limiting, noun, resource, size, time};

/// Part of the measured time that the model has to explain before a resource is
/// said to limit. Below it, the job mostly did something else than use resources.
const EXPLAINED: f64 = 0.5;

/// The one honest line on a job, without a line end:
/// `4 rows in 1.84 s · limited by disk nvme0n1 (ideal 1.67 s of 1.84 s) · next: cores (0.61 s) · 812 MB read, 96 MB cached`.
///
/// `rows` is the number of rows of the answer, where there is one. Where a resource's
/// capacity is not known the line says `busy` instead of `ideal`; where no resource
/// was in use for half of the time it says that none limited.
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
        (None, _) => ("end not recorded; seen".to_owned(), "for"),
    };
    match a.duration_ms.or(a.observed_ms) {
        Some(ms) => format!("{what} {after} {}", time(ms)),
        None => what,
    }
}

/// Whether the model explains enough of a job for a resource to be what limits it.
/// Unknown, and so not denied, while the job has no duration.
fn explained(a: &JobAnalysis) -> bool {
    match (a.modelled_ms, a.duration_ms) {
        (Some(modelled), Some(duration)) => modelled >= EXPLAINED * duration,
        (modelled, _) => modelled.is_some(),
    }
}

fn limit(a: &JobAnalysis) -> String {
    if let Some(blocked) = &a.blocked {
        return of_tasks(blocked).unwrap_or_else(|| "where its time went was not measured".into());
    }
    let Some((bottleneck, used)) = a.bottleneck.as_ref().and_then(|b| Some((b, a.kinds.get(&b.kind)?)))
    else {
        return "what limited it was not measured".into();
    };
    let (what, ms) = limiting(&bottleneck.kind, used);
    let ideal = if used.from_busy_time { "busy" } else { "ideal" };
    let of = a.duration_ms.or(a.observed_ms).map_or(String::new(), |ms| format!(" of {}", time(ms)));
    if explained(a) {
        format!("limited by {what} ({ideal} {}{of})", time(ms))
    } else {
        format!("limited by no resource ({what}: {ideal} {}{of})", time(ms))
    }
}

/// Where tasks that use several resources at once spent most: they have no ideal times.
fn of_tasks(blocked: &BlockedTimes) -> Option<String> {
    let parts = [
        ("computing", blocked.cpu),
        ("waiting for disks", blocked.disk),
        ("waiting for the network", blocked.network),
        ("collecting garbage", blocked.gc),
        ("before they ran", blocked.scheduler),
        ("deserialising", blocked.deserialize),
        ("with what nothing explains", blocked.other),
    ];
    let parts: Vec<(&str, f64)> =
        parts.iter().filter_map(|(what, time)| Some((*what, time.measured_ms?))).collect();
    let whole: f64 = parts.iter().map(|(_, ms)| ms).sum();
    let (what, most) = parts.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(format!("tasks mostly {what} ({} of {})", time(most), time(whole)))
}

fn next(a: &JobAnalysis) -> Option<String> {
    let next = a.next.as_ref().filter(|_| explained(a))?;
    let used = a.kinds.get(&next.kind);
    let name = used.filter(|u| u.resources == 1).and_then(|u| u.largest.as_deref());
    let what = if name.is_some() { resource(&next.kind, name) } else { noun(&next.kind).to_owned() };
    Some(format!("next: {what} ({})", time(next.ideal_ms)))
}

/// Bytes that were moved, as far as they were measured.
fn moved(a: &JobAnalysis) -> Option<String> {
    let part = |bytes: Option<u64>, what: &str| bytes.map(|b| format!("{} {what}", size(b as f64)));
    let written = a.written_bytes.filter(|b| *b > 0);
    let parts = [part(a.read_bytes, "read"), part(a.cached_bytes, "cached"), part(written, "written")];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}
