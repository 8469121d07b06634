//! Findings from a trace of this engine.

use pellucid_trace::probe::{ReadFrom, Report};
use pellucid_trace::{Monotask, Operation, Phase, StorageOperation, Trace, kind, union_ns};

use super::listing::long_listings;
use super::problem::{Problem, Saving};
use super::remedies::{
    FASTER_WRITES, FEWER_REQUESTS, LARGE_REQUEST_BYTES, MIN_REQUESTS, MIN_TIME_SHARE, READ_SLOWER,
    SMALL_BYTES, UPLOADS_IN_PLACE, UPLOADS_WAIT, is_throttling,
};
use crate::finding::{Finding, number, percent};

/// Minimum share of input from memory at which storage is irrelevant.
const MIN_CACHED_SHARE: f64 = 0.95;

/// Finds problems in a trace of this engine.
pub(super) fn of_trace(trace: &Trace, probe: Option<&Report>) -> Vec<Problem> {
    let found = [
        throttled(trace),
        listing(trace),
        small_objects(trace, probe),
        read_amplification(trace),
        probe.and_then(|probe| slow_reads(trace, probe)),
        probe.and_then(|probe| slow_writes(trace, probe)),
        completions(trace),
        idle_streams(trace, probe),
        cached(trace),
    ];
    found.into_iter().flatten().collect()
}

fn throttled(trace: &Trace) -> Option<Problem> {
    let of_stores = stores(trace);
    let refuses = |o: &&StorageOperation| o.error.as_deref().is_some_and(is_throttling);
    let refused: Vec<&StorageOperation> = trace.storage_operations.iter().filter(refuses).collect();
    let first = refused.first()?.error.as_deref()?;
    let made = trace.monotasks.iter().filter(|m| of_stores.contains(&m.resource)).count();
    // Refused requests may overlap.
    let spans = refused.iter().map(|o| (o.started_ns, o.started_ns.saturating_add(o.duration_ns)));
    let waited = union_ns(spans.collect());
    let evidence = format!(
        "{} requests were throttled, in addition to the job's {made} reads and writes, the first with: {first}; \
         responses and the pauses that they requested took {} ms",
        refused.len(),
        number(waited as f64 / 1e6)
    );
    let finding = Finding::new("the store throttles requests", evidence, FEWER_REQUESTS);
    // Other requests may have run meanwhile, so nothing may be saved.
    Some(Problem::saving(finding, Saving::Time([0, waited, waited])))
}

/// Minimum ratio of received to requested bytes to report. Packet and response headers add a twentieth or less.
const MIN_EXCESS_RATIO: f64 = 1.1;

/// Returns the time from the first submission to the last end of a job.
fn duration_ns(trace: &Trace) -> Option<u64> {
    let started_ns = trace.jobs.iter().map(|j| j.submitted_ns).min()?;
    let ended = trace.job_ends.iter().map(|e| e.ended_ns).max()?;
    ended.checked_sub(started_ns).filter(|ns| *ns > 0)
}

fn listing(trace: &Trace) -> Option<Problem> {
    let lists: Vec<u64> = trace
        .storage_operations
        .iter()
        // The successful listing's duration includes its failed attempts.
        .filter(|o| o.operation == Operation::List && o.error.is_none())
        .map(|o| o.duration_ns)
        .collect();
    let change = "use fewer and larger files, or a table format that keeps its own list of files";
    long_listings("listings", &lists, duration_ns(trace)?, change, |listed| {
        // Listings may overlap other work, and one is needed anyway.
        let one = listed / lists.len() as u64;
        [0, listed - one, listed - one]
    })
}

/// Returns the indices of the resources that are stores.
fn stores(trace: &Trace) -> Vec<u32> {
    let resources = (0..).zip(&trace.resources);
    resources.filter(|(_, r)| r.kind == kind::STORE).map(|(ix, _)| ix).collect()
}

fn small_objects(trace: &Trace, probe: Option<&Report>) -> Option<Problem> {
    let stores = stores(trace);
    let mut bytes: Vec<u64> = trace
        .monotasks
        .iter()
        .filter(|m| stores.contains(&m.resource))
        .filter_map(|m| m.bytes)
        .filter(|bytes| *bytes > 0)
        .collect();
    if bytes.len() < MIN_REQUESTS {
        return None;
    }
    bytes.sort_unstable();
    let median = bytes[bytes.len() / 2];
    (median < SMALL_BYTES).then(|| {
        let finding = Finding::new(
            "many small requests",
            format!("half of {} requests moved {} kB or less", bytes.len(), number(median as f64 / 1e3)),
            "use larger files (128 MiB or more) and row groups: each request costs a round trip",
        );
        let service = probe.map(Report::service);
        let saving = service.map_or(Saving::Unknown, |service| {
            let needed = (bytes.iter().sum::<u64>() / LARGE_REQUEST_BYTES).max(1);
            let avoided = (bytes.len() as u64).saturating_sub(needed);
            let waited_ns = avoided * service.first_byte_ns / u64::from(service.at_once.max(1));
            // These waits may overlap computing, so nothing may be saved.
            Saving::Time([0, waited_ns, waited_ns])
        });
        Problem::saving(finding, saving)
    })
}

/// Compares the bytes that the machine's link received, for all processes, with those that the job read from the
/// stores behind it.
fn read_amplification(trace: &Trace) -> Option<Problem> {
    let links = (0..).zip(&trace.resources).filter(|(_, r)| r.kind == kind::NETWORK);
    links.map(|(link, _)| link).find_map(|link| {
        let samples = trace.utilization_samples.iter().filter(|s| s.resource == link);
        let received: u64 = samples.filter_map(|s| s.read_bytes).sum();
        let behind = |r: u32| trace.resources.get(r as usize).is_some_and(|r| r.link == Some(link));
        let reads = trace.monotasks.iter().filter(|m| m.phase != Phase::Write && behind(m.resource));
        let missed = trace.storage_operations.iter().filter(|o| o.operation == Operation::Read && behind(o.resource));
        let asked = reads.filter_map(|m| m.bytes).chain(missed.filter_map(|o| o.bytes)).sum::<u64>();
        let times = received as f64 / asked.max(1) as f64;
        (asked >= LARGE_REQUEST_BYTES && times >= MIN_EXCESS_RATIO).then(|| {
            let finding = Finding::new(
                "more is read than the job asks for",
                format!(
                    "{} MB came over this machine's link while the job read {} MB: the local service fetches more than it \
                     delivers, by reading ahead or for several copies (bytes of other processes would count, too)",
                    number(received as f64 / 1e6),
                    number(asked as f64 / 1e6)
                ),
                "keep one copy, serve the data from local disks, or use a client that reads over the link directly",
            );
            // Nothing is saved if another process received the excess bytes.
            let settings = vec![format!("store.rate=x{times:.3}")];
            Problem::saving(finding, Saving::WhatIf { settings, share: [0.0, 1.0, 1.0] })
        })
    })
}

/// The bytes that a job moved to or from the probed kind of resource, and the time that took.
struct Moved {
    /// Kind of the resource.
    kind: &'static str,
    bytes: u64,
    busy_ns: u64,
}

impl Moved {
    /// Sums up the job's reads or its writes; `None` if they moved little.
    fn of(trace: &Trace, probe: &Report, writes: bool) -> Option<Moved> {
        let kind = if probe.url.starts_with("file://") { kind::DISK } else { kind::STORE };
        let is_of = |r: u32| trace.resources.get(r as usize).is_some_and(|r| r.kind == kind);
        // Completing an upload moves no bytes.
        let moving =
            trace.monotasks.iter().filter(|m| (m.phase == Phase::Write) == writes && m.bytes > Some(0));
        let moving: Vec<_> = moving.filter(|m| is_of(m.resource)).collect();
        let started = |m: &Monotask| m.queued_ns.saturating_add(m.queue_ns);
        let span = |m: &&Monotask| (started(m), started(m).saturating_add(m.service_ns));
        let moved = Moved {
            kind,
            bytes: moving.iter().filter_map(|m| m.bytes).sum(),
            busy_ns: union_ns(moving.iter().map(span).collect()),
        };
        (moved.bytes >= LARGE_REQUEST_BYTES && moved.busy_ns > 0).then_some(moved)
    }

    fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 * 1e9 / self.busy_ns as f64
    }

    /// Returns the time saved by moving the bytes at another rate, if it is a notable share of `whole_ns`.
    fn saved_ns(&self, bytes_per_s: f64, whole_ns: u64) -> Option<u64> {
        let saved_ns = self.busy_ns as f64 * (1.0 - self.bytes_per_s() / bytes_per_s);
        (saved_ns > MIN_TIME_SHARE * whole_ns as f64).then_some(saved_ns as u64)
    }
}

/// Finds input that the job read slower than the probe, which only reads.
fn slow_reads(trace: &Trace, probe: &Report) -> Option<Problem> {
    // The store may serve objects that were just written from memory, unlike the job's input.
    let best = probe.best_read().filter(|_| probe.read_from == ReadFrom::Existing)?;
    let read = Moved::of(trace, probe, false)?;
    read.saved_ns(best.bytes_per_s, duration_ns(trace)?)?;
    let finding = Finding::new(
        READ_SLOWER,
        format!(
            "{} MB came at {} MB/s while reads were running; the probe read existing objects at {} MB/s at \
             concurrency {}",
            number(read.bytes as f64 / 1e6),
            number(read.bytes_per_s() / 1e6),
            number(best.bytes_per_s / 1e6),
            best.concurrency
        ),
        "if a process on this machine delivers the bytes (a user-space file system, a client's threads), leave it a core \
         (`--cores`) or use the kernel's client; otherwise check for other users of the store or its disks",
    );
    let settings = vec![format!("{}.rate=x{:.3}", read.kind, best.bytes_per_s / read.bytes_per_s())];
    Some(Problem::saving(finding, Saving::WhatIf { settings, share: [0.0, 1.0, 1.0] }))
}

/// Finds output that is written slower than the probe reads over the same path.
fn slow_writes(trace: &Trace, probe: &Report) -> Option<Problem> {
    let (best, written) = (probe.best_read()?, Moved::of(trace, probe, true)?);
    let saved_ns = written.saved_ns(best.bytes_per_s, duration_ns(trace)?)?;
    let finding = Finding::new(
        "output is written slower than the store is read",
        format!(
            "{} MB were written at {} MB/s while writes were running; the probe read {} MB/s at concurrency {}",
            number(written.bytes as f64 / 1e6),
            number(written.bytes_per_s() / 1e6),
            number(best.bytes_per_s / 1e6),
            best.concurrency
        ),
        FASTER_WRITES,
    );
    // An upper bound: a disk behind the store may write slower than it reads.
    Some(Problem::saving(finding, Saving::Time([0, saved_ns, saved_ns])))
}

/// Finds uploads that take long to complete: write monotasks that move no bytes.
fn completions(trace: &Trace) -> Option<Problem> {
    let (stores, whole) = (stores(trace), duration_ns(trace)?);
    let is_end =
        |m: &&Monotask| m.phase == Phase::Write && m.bytes.unwrap_or(0) == 0 && stores.contains(&m.resource);
    let took: Vec<u64> = trace.monotasks.iter().filter(is_end).map(|m| m.service_ns).collect();
    // Several outputs are completed concurrently.
    let longest = took.iter().copied().max().filter(|ns| *ns as f64 > MIN_TIME_SHARE * whole as f64)?;
    let finding = Finding::new(
        UPLOADS_WAIT,
        format!(
            "completing {} took {} ms, {} of the job's time, after all bytes were sent",
            if took.len() == 1 { "the upload".to_string() } else { format!("{} uploads", took.len()) },
            number(longest as f64 / 1e6),
            percent(longest as f64 / whole as f64)
        ),
        UPLOADS_IN_PLACE,
    );
    // A store that only records the names of the parts takes almost no time.
    Some(Problem::saving(finding, Saving::Time([longest / 2, longest, longest])))
}

fn idle_streams(trace: &Trace, probe: Option<&Report>) -> Option<Problem> {
    let whole = duration_ns(trace)?;
    stores(trace).into_iter().find_map(|store| {
        let resource = trace.resources.get(store as usize)?;
        let of_store: Vec<_> = trace.monotasks.iter().filter(|m| m.resource == store).collect();
        let busy: u64 = of_store.iter().map(|m| m.service_ns).sum();
        let waited: u64 = of_store.iter().map(|m| m.queue_ns).sum();
        // The store is busy with one request at a time while others queue.
        let always = busy as f64 > (1.0 - MIN_TIME_SHARE) * whole as f64 && waited > busy;
        (resource.concurrency == Some(1) && always).then(|| {
            let finding = Finding::new(
                format!("{} is read with one request at a time", resource.name),
                format!(
                    "requests waited in its queue for {} ms in total, and it was busy for {} of the jobs' time",
                    number(waited as f64 / 1e6),
                    percent(busy as f64 / whole as f64)
                ),
                "let concurrency adapt: remove `--concurrency store=1`",
            );
            Problem::saving(finding, probe.map_or(Saving::Unknown, |_| Saving::ProbedStorage))
        })
    })
}

fn cached(trace: &Trace) -> Option<Problem> {
    let of = |kind: &str| {
        let resources = trace.resources.iter().map(|r| r.kind == kind).collect::<Vec<_>>();
        let on = move |m: &&pellucid_trace::Monotask| resources.get(m.resource as usize) == Some(&true);
        trace.monotasks.iter().filter(on)
    };
    let from_memory: u64 = of(kind::CPU).filter_map(|m| m.cached_bytes).sum();
    let read: u64 = of(kind::DISK).chain(of(kind::STORE)).filter_map(|m| m.bytes).sum();
    let share = from_memory as f64 / (from_memory + read).max(1) as f64;
    (from_memory > 0 && share >= MIN_CACHED_SHARE).then(|| {
        let finding = Finding::new(
            "input was in memory: where it is stored makes no difference",
            format!("{} of the input came from the page cache", percent(share)),
            "none while it fits in memory; measure with a cold cache to see the cost of storage",
        );
        // Bounded by the saving of storage that takes no time.
        let used = |kind: &str| of(kind).next().is_some();
        let kinds = [kind::DISK, kind::STORE].into_iter().filter(|kind| used(kind));
        let settings: Vec<String> = kinds.map(|kind| format!("no={kind}")).collect();
        match settings.is_empty() {
            true => Problem::saving(finding, Saving::Time([0, 0, 0])),
            false => Problem::saving(finding, Saving::WhatIf { settings, share: [1.0; 3] }),
        }
    })
}
