//! Findings from a composition, with an optional probe of its store.

use pellucid_trace::probe::{self, Pattern, Report};

use super::problem::Problem;
use super::remedies::{COMMITTER, FASTER_WRITES, MIN_STREAM_SPEEDUP, UPLOADS_IN_PLACE, UPLOADS_WAIT};
use crate::composition::mismatch::{self, RENAME_COMMIT_WRITES};
use crate::composition::{Commit, Composition, Layer};
use crate::finding::{Finding, number, percent};

/// Minimum share of its link's rate at which a proxy counts as near it.
const MIN_LINK_SHARE: f64 = 0.8;
/// Minimum ratio of the read rate to the write rate at which the link does not limit writes.
const MIN_READ_WRITE_RATIO: f64 = 2.0;
/// Minimum time of completing uploads to report, as a share of the time of writing their bytes.
const MIN_COMPLETION_SHARE: f64 = 0.5;

/// Finds problems in a composition.
pub fn of_composition(c: &Composition, probe: Option<&Report>) -> Vec<Problem> {
    let mut found: Vec<Finding> = Vec::new();
    found.extend(rename_commit(c, probe));
    found.extend(mismatch::double_replication(c).map(|f| f.finding));
    for layer in [&c.data, &c.storage] {
        found.extend(probe.and_then(|probe| busy_mediator(layer, probe)));
    }
    if [&c.data, &c.storage].iter().any(|layer| layer.runs.is_remote() || !layer.mediators.is_empty()) {
        found.extend(probe.and_then(one_stream));
        found.extend(probe.and_then(slow_writes));
        found.extend(probe.and_then(slow_completions));
    }
    found.into_iter().map(Problem::from).collect()
}

/// Returns the evidence that a rename copies; `None` if it does not, or if that is not known.
fn rename_copies(c: &Composition, probe: Option<&Report>) -> Option<String> {
    if let Some(rename) = probe.and_then(|p| p.rename) {
        let (ms, mib) = (number(rename.ms), rename.bytes >> 20);
        return rename.is_copy.then(|| format!("the probe measured {ms} ms for a rename of {mib} MiB"));
    }
    (c.rename_copies == Some(true)).then(|| "the file sets rename = \"copy\"".to_string())
}

fn rename_commit(c: &Composition, probe: Option<&Report>) -> Option<Finding> {
    if c.commit != Some(Commit::Rename) {
        return None;
    }
    let known = rename_copies(c, probe)?;
    let both = probe.map(|p| p.commit).and_then(|c| Some((c.rename_ms?, c.multipart_ms?)));
    let measured = both.map_or(String::new(), |(rename, multipart)| {
        format!(
            "; committing 24 MiB of four tasks took {} ms by rename and {} ms by multipart upload",
            number(rename),
            number(multipart)
        )
    });
    Some(Finding::new(
        "output is committed by rename, and a rename copies",
        format!(
            "{} renames by copying ({known}), and tasks and driver both rename: each byte is written {} times{measured}",
            c.data.system,
            number(RENAME_COMMIT_WRITES)
        ),
        COMMITTER,
    ))
}

fn busy_mediator(layer: &Layer, probe: &Report) -> Option<Finding> {
    let read = probe.best_read()?;
    layer.mediators.iter().find_map(|m| {
        let limit = m.link_bytes_per_s? * f64::from(m.instances);
        (read.bytes_per_s >= MIN_LINK_SHARE * limit).then(|| {
            Finding::new(
                format!("the {} is near its link's rate", m.name),
                format!(
                    "{} of the {} MB/s of its link, measured at concurrency {}; every byte passes it",
                    percent(read.bytes_per_s / limit),
                    number(limit / 1e6),
                    read.concurrency
                ),
                format!(
                    "run more than {} of it, use a faster link, or read from the storage nodes directly",
                    m.instances
                ),
            )
        })
    })
}

fn one_stream(probe: &Report) -> Option<Finding> {
    let one = probe.rates(Pattern::Sequential).find(|r| r.concurrency == 1)?;
    let best = probe.best_read()?;
    (best.bytes_per_s >= MIN_STREAM_SPEEDUP * one.bytes_per_s).then(|| {
        Finding::new(
            "one stream per read leaves the link idle",
            format!(
                "one request at a time reads {} MB/s, and {} concurrent requests read {} MB/s",
                number(one.bytes_per_s / 1e6),
                best.concurrency,
                number(best.bytes_per_s / 1e6)
            ),
            format!(
                "read with {} concurrent requests: more tasks per executor, or a client that fetches ranges in \
                 parallel (S3A's vectored reads); Pellucid tunes this automatically",
                probe.chosen_concurrency.unwrap_or(best.concurrency)
            ),
        )
    })
}

/// Finds writes that are much slower than reads over the same link. The probe writes four objects
/// concurrently.
fn slow_writes(probe: &Report) -> Option<Finding> {
    let (write, read) = (probe.write_bytes_per_s?, probe.best_read()?);
    (write > 0.0 && read.bytes_per_s >= MIN_READ_WRITE_RATIO * write).then(|| {
        Finding::new(
            "writes leave the link idle",
            format!(
                "four concurrent objects are written at {} MB/s, and read at {} MB/s: the link does not limit the writes",
                number(write / 1e6),
                number(read.bytes_per_s / 1e6)
            ),
            FASTER_WRITES,
        )
    })
}

/// Finds uploads that take long to complete after all their bytes were sent.
fn slow_completions(probe: &Report) -> Option<Finding> {
    let (completing_ms, write) = (probe.commit.multipart_ms?, probe.write_bytes_per_s?);
    const TASKS: usize = probe::Commit::TASKS;
    const TASK_BYTES: usize = probe::Commit::TASK_BYTES;
    let writing_ms = (TASKS * TASK_BYTES) as f64 / write.max(1.0) * 1e3;
    (completing_ms >= MIN_COMPLETION_SHARE * writing_ms).then(|| {
        Finding::new(
            UPLOADS_WAIT,
            format!(
                "completing {TASKS} uploads of {} MiB took {} ms after all bytes were sent; writing as many bytes takes {} ms",
                TASK_BYTES >> 20,
                number(completing_ms),
                number(writing_ms)
            ),
            UPLOADS_IN_PLACE,
        )
    })
}
