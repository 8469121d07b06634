//! What a trace of this engine shows.

use pellucid_trace::{Monotask, Operation, Phase, StorageOperation, Trace, kind, union_ns};

use super::{
    Advice, CACHED, FASTER_WRITES, MANY, NOTABLE, READ_SLOWER, SMALL_BYTES, Saving, UPLOADS_IN_PLACE,
    UPLOADS_WAIT, percent,
};
use crate::finding::Finding;
use crate::mismatch::number;
use crate::probe::{ReadFrom, Report};

/// As the module's head says.
pub(super) fn of_trace(trace: &Trace, probe: Option<&Report>) -> Vec<Advice> {
    let found = [
        throttled(trace),
        listing(trace),
        small_objects(trace, probe),
        more_than_asked(trace),
        probe.and_then(|probe| slow_reads(trace, probe)),
        probe.and_then(|probe| slow_writes(trace, probe)),
        completions(trace),
        idle_streams(trace, probe),
        cached(trace),
    ];
    found.into_iter().flatten().collect()
}

/// Whether an error is a store's wish to be left alone.
pub(super) fn asks_for_less(error: &str) -> bool {
    // A status alone may be any number: a port, a line, a place in a file.
    const WORDS: [&str; 9] = [
        "SlowDown",
        "Slow Down",
        "Throttl",
        "Service Unavailable",
        "ServiceUnavailable",
        "Too Many Requests",
        "TooManyRequests",
        "Status Code: 503",
        "Status Code: 429",
    ];
    WORDS.iter().any(|word| error.contains(word))
}

pub(super) const ASK_LESS: &str = "fewer and larger requests (larger files, larger row groups), fewer at once, or keys \
                                   spread over more prefixes";

fn throttled(trace: &Trace) -> Option<Advice> {
    let of_stores = stores(trace);
    let refuses = |o: &&StorageOperation| o.error.as_deref().is_some_and(asks_for_less);
    let refused: Vec<&StorageOperation> = trace.storage_operations.iter().filter(refuses).collect();
    let first = refused.first()?.error.as_deref()?;
    let made = trace.monotasks.iter().filter(|m| of_stores.contains(&m.resource)).count();
    // One after another, or beside each other.
    let spans = refused.iter().map(|o| (o.started_ns, o.started_ns.saturating_add(o.duration_ns)));
    let waited = union_ns(spans.collect());
    let evidence = format!(
        "{} requests were refused so, beside {made} reads and writes of the job's, the first with: {first}; answers and \
         the pauses that they asked for took {} ms",
        refused.len(),
        number(waited as f64 / 1e6)
    );
    let finding = Finding::new("the store throttles requests", evidence, ASK_LESS);
    // Others may have been on their way meanwhile.
    Some(Advice::saving(finding, Saving::Time([0, waited, waited])))
}

/// A request whose wait for the first byte hardly matters.
pub(super) const LARGE_REQUEST_BYTES: u64 = 8 << 20;

/// What links add to what is asked for, heads of packets and of answers, is a twentieth or less.
const MORE_THAN_ASKED: f64 = 1.1;

/// From the first submission to the last end of a job.
fn duration_ns(trace: &Trace) -> Option<u64> {
    let begun = trace.jobs.iter().map(|j| j.submitted_ns).min()?;
    let ended = trace.job_ends.iter().map(|e| e.ended_ns).max()?;
    ended.checked_sub(begun).filter(|ns| *ns > 0)
}

fn listing(trace: &Trace) -> Option<Advice> {
    let lists: Vec<u64> = trace
        .storage_operations
        .iter()
        // An attempt that failed is within the listing that it was repeated for.
        .filter(|o| o.operation == Operation::List && o.error.is_none())
        .map(|o| o.duration_ns)
        .collect();
    let (listed, whole) = (lists.iter().sum::<u64>(), duration_ns(trace)?);
    (listed as f64 > NOTABLE * whole as f64).then(|| {
        let finding = Finding::new(
            "planning waits for listings",
            format!(
                "{} listings took {} ms, {} of the jobs' time",
                lists.len(),
                number(listed as f64 / 1e6),
                percent(listed as f64 / whole as f64)
            ),
            "fewer and larger files, or a table format that keeps its own list of files",
        );
        // They may have been made beside other work, and one is needed anyway.
        let one = listed / lists.len() as u64;
        Advice::saving(finding, Saving::Time([0, listed - one, listed - one]))
    })
}

/// Indices of the resources that are stores.
fn stores(trace: &Trace) -> Vec<u32> {
    let resources = trace.resources.iter().enumerate();
    resources.filter(|(_, r)| r.kind == kind::STORE).map(|(i, _)| i as u32).collect()
}

fn small_objects(trace: &Trace, probe: Option<&Report>) -> Option<Advice> {
    let stores = stores(trace);
    let mut bytes: Vec<u64> = trace
        .monotasks
        .iter()
        .filter(|m| stores.contains(&m.resource))
        .filter_map(|m| m.bytes)
        .filter(|bytes| *bytes > 0)
        .collect();
    if bytes.len() < MANY {
        return None;
    }
    bytes.sort_unstable();
    let median = bytes[bytes.len() / 2];
    (median < SMALL_BYTES).then(|| {
        let finding = Finding::new(
            "many small requests",
            format!("half of {} requests moved {} kB or less", bytes.len(), number(median as f64 / 1e3)),
            "larger files and row groups (128 MiB and more a file): each request costs a round trip",
        );
        let service = probe.map(Report::service);
        let saving = service.map_or(Saving::Unknown, |service| {
            let needed = (bytes.iter().sum::<u64>() / LARGE_REQUEST_BYTES).max(1);
            let spared = (bytes.len() as u64).saturating_sub(needed);
            let waited_ns = spared * service.first_byte_ns / u64::from(service.at_once.max(1));
            // They wait beside computing, as far as there is some.
            Saving::Time([0, waited_ns, waited_ns])
        });
        Advice::saving(finding, saving)
    })
}

/// What came over the machine's link, by everyone, against what the job read of the stores behind it.
fn more_than_asked(trace: &Trace) -> Option<Advice> {
    let links = trace.resources.iter().enumerate().filter(|(_, r)| r.kind == kind::NETWORK);
    links.map(|(link, _)| link).find_map(|link| {
        let samples = trace.utilization_samples.iter().filter(|s| s.resource as usize == link);
        let received: u64 = samples.filter_map(|s| s.read_bytes).sum();
        let behind = |r: u32| trace.resources.get(r as usize).is_some_and(|r| r.link == Some(link as u32));
        let reads = trace.monotasks.iter().filter(|m| m.phase != Phase::Write && behind(m.resource));
        let missed = trace.storage_operations.iter().filter(|o| o.operation == Operation::Read && behind(o.resource));
        let asked = reads.filter_map(|m| m.bytes).chain(missed.filter_map(|o| o.bytes)).sum::<u64>();
        let times = received as f64 / asked.max(1) as f64;
        (asked >= LARGE_REQUEST_BYTES && times >= MORE_THAN_ASKED).then(|| {
            let finding = Finding::new(
                "more is read than the job asks for",
                format!(
                    "{} MB came over this machine's link while the job read {} MB: what serves it here brings more from \
                     behind the link than it hands on, ahead of what is asked for or to each of several copies (another \
                     process's bytes would count too)",
                    number(received as f64 / 1e6),
                    number(asked as f64 / 1e6)
                ),
                "one copy to read from, or none of it behind another link: the disks of the machine that serves it, or a \
                 client that reads from behind the link itself",
            );
            // Nothing, if the bytes were another process's.
            let settings = vec![format!("store.rate=x{times:.3}")];
            Advice::saving(finding, Saving::WhatIf { settings, share: [0.0, 1.0, 1.0] })
        })
    })
}

/// Bytes that a job moved to or from what was probed, and for how long that was under way.
struct Moved {
    /// Of the resource.
    kind: &'static str,
    bytes: u64,
    busy_ns: u64,
}

impl Moved {
    /// What reads moved, or writes; `None` where that is little.
    fn of(trace: &Trace, probe: &Report, writes: bool) -> Option<Moved> {
        let kind = if probe.url.starts_with("file://") { kind::DISK } else { kind::STORE };
        let is_of = |r: u32| trace.resources.get(r as usize).is_some_and(|r| r.kind == kind);
        // What completes an upload moves nothing itself.
        let moving =
            trace.monotasks.iter().filter(|m| (m.phase == Phase::Write) == writes && m.bytes > Some(0));
        let moving: Vec<_> = moving.filter(|m| is_of(m.resource)).collect();
        let begun = |m: &Monotask| m.queued_ns.saturating_add(m.queue_ns);
        let span = |m: &&Monotask| (begun(m), begun(m).saturating_add(m.service_ns));
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

    /// What moving them so much faster would spare, if it is worth a word beside the whole.
    fn spared_ns(&self, bytes_per_s: f64, whole_ns: u64) -> Option<u64> {
        let spared_ns = self.busy_ns as f64 * (1.0 - self.bytes_per_s() / bytes_per_s);
        (spared_ns > NOTABLE * whole_ns as f64).then_some(spared_ns as u64)
    }
}

/// The same bytes, or as many beside them, came faster to a probe, which does nothing else.
fn slow_reads(trace: &Trace, probe: &Report) -> Option<Advice> {
    // What was just written may come out of a memory that the job's input was not in.
    let best = probe.best_read().filter(|_| probe.read_from == ReadFrom::Existing)?;
    let read = Moved::of(trace, probe, false)?;
    read.spared_ns(best.bytes_per_s, duration_ns(trace)?)?;
    let finding = Finding::new(
        READ_SLOWER,
        format!(
            "{} MB came at {} MB/s while reads were under way; the probe read what was there at {} MB/s with {} at once",
            number(read.bytes as f64 / 1e6),
            number(read.bytes_per_s() / 1e6),
            number(best.bytes_per_s / 1e6),
            best.concurrency
        ),
        "what hands on the bytes on this machine (a file system in user space, a client's threads) waits for the job's \
         cores: leave it one (`--cores`), or read through the kernel's own client; where nothing does, look for others \
         who use the store or its disks",
    );
    let settings = vec![format!("{}.rate=x{:.3}", read.kind, best.bytes_per_s / read.bytes_per_s())];
    Some(Advice::saving(finding, Saving::WhatIf { settings, share: [0.0, 1.0, 1.0] }))
}

/// Over the same way as reads.
fn slow_writes(trace: &Trace, probe: &Report) -> Option<Advice> {
    let (best, written) = (probe.best_read()?, Moved::of(trace, probe, true)?);
    let spared_ns = written.spared_ns(best.bytes_per_s, duration_ns(trace)?)?;
    let finding = Finding::new(
        "output is written slower than the store is read",
        format!(
            "{} MB were taken at {} MB/s while writes were under way; the probe read {} MB/s with {} at once",
            number(written.bytes as f64 / 1e6),
            number(written.bytes_per_s() / 1e6),
            number(best.bytes_per_s / 1e6),
            best.concurrency
        ),
        FASTER_WRITES,
    );
    // At most: a disk behind the store may take bytes slower than it gives them.
    Some(Advice::saving(finding, Saving::Time([0, spared_ns, spared_ns])))
}

/// Uploads that are completed when all their parts are there: write monotasks that move no bytes themselves.
fn completions(trace: &Trace) -> Option<Advice> {
    let (stores, whole) = (stores(trace), duration_ns(trace)?);
    let is_end =
        |m: &&Monotask| m.phase == Phase::Write && m.bytes.unwrap_or(0) == 0 && stores.contains(&m.resource);
    let took: Vec<u64> = trace.monotasks.iter().filter(is_end).map(|m| m.service_ns).collect();
    // Several outputs are completed at once.
    let longest = took.iter().copied().max().filter(|ns| *ns as f64 > NOTABLE * whole as f64)?;
    let finding = Finding::new(
        UPLOADS_WAIT,
        format!(
            "completing {} took {} ms, {} of the job's time, when all bytes were there",
            if took.len() == 1 { "the upload".to_string() } else { format!("{} uploads", took.len()) },
            number(longest as f64 / 1e6),
            percent(longest as f64 / whole as f64)
        ),
        UPLOADS_IN_PLACE,
    );
    // A store that notes the parts' names takes next to nothing.
    Some(Advice::saving(finding, Saving::Time([longest / 2, longest, longest])))
}

fn idle_streams(trace: &Trace, probe: Option<&Report>) -> Option<Advice> {
    let whole = duration_ns(trace)?;
    stores(trace).into_iter().find_map(|store| {
        let resource = trace.resources.get(store as usize)?;
        let of_store: Vec<_> = trace.monotasks.iter().filter(|m| m.resource == store).collect();
        let busy: u64 = of_store.iter().map(|m| m.service_ns).sum();
        let waited: u64 = of_store.iter().map(|m| m.queue_ns).sum();
        // One at a time, all the time, while others wait.
        let always = busy as f64 > (1.0 - NOTABLE) * whole as f64 && waited > busy;
        (resource.concurrency == Some(1) && always).then(|| {
            let finding = Finding::new(
                format!("{} is read with one request at a time", resource.name),
                format!(
                    "its queue was waited for {} ms in all, and it was busy {} of the jobs' time",
                    number(waited as f64 / 1e6),
                    percent(busy as f64 / whole as f64)
                ),
                "let concurrency adapt: leave `--concurrency store=1` out",
            );
            Advice::saving(finding, probe.map_or(Saving::Unknown, |_| Saving::ProbedStorage))
        })
    })
}

fn cached(trace: &Trace) -> Option<Advice> {
    let of = |kind: &str| {
        let resources = trace.resources.iter().map(|r| r.kind == kind).collect::<Vec<_>>();
        let on = move |m: &&pellucid_trace::Monotask| resources.get(m.resource as usize) == Some(&true);
        trace.monotasks.iter().filter(on)
    };
    let from_memory: u64 = of(kind::CPU).filter_map(|m| m.cached_bytes).sum();
    let read: u64 = of(kind::DISK).chain(of(kind::STORE)).filter_map(|m| m.bytes).sum();
    let share = from_memory as f64 / (from_memory + read).max(1) as f64;
    (from_memory > 0 && share >= CACHED).then(|| {
        let finding = Finding::new(
            "input was in memory: where it is stored makes no difference",
            format!("{} of the input came from the page cache", percent(share)),
            "nothing, while it fits; measure with a cold cache to learn what storage would cost",
        );
        // What storage that takes no time at all would save.
        let used = |kind: &str| of(kind).next().is_some();
        let kinds = [kind::DISK, kind::STORE].into_iter().filter(|kind| used(kind));
        let settings: Vec<String> = kinds.map(|kind| format!("no={kind}")).collect();
        match settings.is_empty() {
            true => Advice::saving(finding, Saving::Time([0, 0, 0])),
            false => Advice::saving(finding, Saving::WhatIf { settings, share: [1.0; 3] }),
        }
    })
}
