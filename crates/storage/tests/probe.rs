//! The probe on a store of known speed and a virtual clock: it measures what is there, keeps
//! to its budget, and leaves nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::{StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use pellucid_storage::clock::{Clock, Virtual};
use pellucid_storage::probe::{Budget, Folder, FolderKind, Pattern, Probe, ProbeError, ReadFrom, Report};
use pellucid_storage::wrap::fault::{Fault, Faults};
use pellucid_storage::wrap::pace::Pace;
use pellucid_storage::wrap::{Around, Call, Wrapped};
use pellucid_trace::Operation;

/// Copies take as long as 200 MB/s need for an object of 8 MiB; a small one is not told apart.
#[derive(Debug)]
struct SlowCopies(Arc<dyn Clock>, std::sync::atomic::AtomicU64);

#[async_trait::async_trait]
impl Around for SlowCopies {
    type Pass = ();

    async fn enter(&self, call: Call) -> object_store::Result<()> {
        if call.operation == Operation::Rename {
            // The probe renames the small one to and fro, then the large one.
            let large = self.1.fetch_add(1, Ordering::Relaxed) % 4 >= 2;
            self.0.sleep(if large { 42_000_000 } else { 1_000_000 }).await;
        }
        Ok(())
    }
}

const BUDGET: Budget = Budget { time_ns: 60_000_000_000, bytes: 1 << 30 };

fn probe(
    clock: &Arc<Virtual>,
    store: Arc<dyn ObjectStore>,
    budget: Budget,
    cancelled: &Arc<AtomicBool>,
    progress: &(dyn Fn(&str, f64) + Send + Sync),
) -> Result<Report, ProbeError> {
    let ended = probe_of(clock, store, None, budget, cancelled, progress);
    clock.run(ended).expect("the probe hangs")
}

async fn probe_of(
    clock: &Arc<Virtual>,
    store: Arc<dyn ObjectStore>,
    existing: Option<&str>,
    budget: Budget,
    cancelled: &Arc<AtomicBool>,
    progress: &(dyn Fn(&str, f64) + Send + Sync),
) -> Result<Report, ProbeError> {
    probe_at(clock, store, Path::from("data"), existing, budget, cancelled, progress).await
}

async fn probe_at(
    clock: &Arc<Virtual>,
    store: Arc<dyn ObjectStore>,
    place: Path,
    existing: Option<&str>,
    budget: Budget,
    cancelled: &Arc<AtomicBool>,
    progress: &(dyn Fn(&str, f64) + Send + Sync),
) -> Result<Report, ProbeError> {
    let probe = Probe {
        store,
        uploads: None,
        folder: Folder::new(place, FolderKind::Prefix),
        url: "memory://x".to_string(),
        budget,
        clock: clock.clone(),
        cancelled: Arc::clone(cancelled),
        progress,
        existing: existing.map(Path::from),
        evict: &|_| {},
    };
    probe.run().await
}

/// A link of 100 MB/s and 5 ms, with something of somebody else behind it.
fn store(clock: &Arc<Virtual>) -> (Arc<InMemory>, Arc<dyn ObjectStore>) {
    let inner = Arc::new(InMemory::new());
    clock.run(inner.put(&Path::from("data/theirs"), "x".into())).unwrap().unwrap();
    let paced = Wrapped::new(inner.clone(), Pace::new(clock.clone(), 1e8, 5_000_000));
    (inner, paced)
}

fn left(clock: &Virtual, store: &InMemory) -> Vec<String> {
    clock.run(store.list(None).map_ok(|o| o.location.to_string()).try_collect()).unwrap().unwrap()
}

#[test]
fn a_link_is_measured_as_it_is() {
    let clock = Arc::new(Virtual::default());
    let (inner, store) = store(&clock);
    let never = Arc::new(AtomicBool::new(false));
    let report = probe(&clock, store, BUDGET, &never, &|_, _| {}).unwrap();
    let best = report.best_read().unwrap();
    assert!((9e7..1.001e8).contains(&best.bytes_per_s), "{best:?}");
    let of = |pattern, concurrency| {
        report.rates(pattern).find(|r: &&_| r.concurrency == concurrency).unwrap().bytes_per_s
    };
    // 64 KiB in 5 ms and 0.66 ms: alone 11.6 MB/s, eight at once eight times that.
    assert!((1.1e7..1.2e7).contains(&of(Pattern::Random, 1)), "{:?}", report.read);
    assert!(of(Pattern::Random, 8) > 7.0 * of(Pattern::Random, 1));
    assert!((9e7..1.001e8).contains(&report.write_bytes_per_s.unwrap()), "{report:?}");
    // A mebibyte takes 10.5 ms on the link and 5 ms around it: two at once fill it, and the
    // controller, whose intervals are short, may end a step or two beside that.
    assert!(matches!(report.chosen_concurrency, Some(2..=8)), "{:?}", report.chosen_concurrency);
    assert!(report.small_objects_per_s.unwrap() > 1000.0 && report.list_per_s.unwrap() > 1000.0);
    assert!(!report.rename.unwrap().is_copy && report.read_after_write == Some(true), "{report:?}");
    assert!(report.commit.rename_ms.is_some() && report.commit.multipart_ms.is_some());
    // 5 ms, and longer behind what the other task writes.
    assert!(matches!(report.commit.request_ms, Some(5.0..15.0)), "{:?}", report.commit);
    assert_eq!(left(&clock, &inner), ["data/theirs"]);
    let text = serde_json::to_string(&report).unwrap();
    let read = Report::parse(&text).unwrap();
    // The last digit of a float may change on the way.
    let close = |a: f64, b: f64| (a - b).abs() < 1e-9 * a.abs();
    assert!(close(read.best_read().unwrap().bytes_per_s, report.best_read().unwrap().bytes_per_s));
    assert_eq!((read.read.len(), read.chosen_concurrency), (report.read.len(), report.chosen_concurrency));
    assert!(Report::parse("{}").unwrap_err().contains("pellucid storage probe"));
}

#[test]
fn a_rename_that_copies_is_seen() {
    let clock = Arc::new(Virtual::default());
    let (_, store) = store(&clock);
    let store = Wrapped::new(store, SlowCopies(clock.clone(), Default::default()));
    let never = Arc::new(AtomicBool::new(false));
    let rename = probe(&clock, store, BUDGET, &never, &|_, _| {}).unwrap().rename.unwrap();
    assert!(rename.is_copy && rename.ms > 40.0, "{rename:?}");
}

/// Joins the parts of the upload that was begun last at 50 MB/s when it is completed, after 20 ms.
#[derive(Debug)]
struct Joins(Arc<dyn Clock>, std::sync::atomic::AtomicU64);

#[async_trait::async_trait]
impl Around for Joins {
    type Pass = ();

    async fn enter(&self, call: Call) -> object_store::Result<()> {
        match (call.operation, call.sent_bytes) {
            (Operation::Write, 0) => self.1.store(0, Ordering::Relaxed),
            (Operation::Write, bytes) => _ = self.1.fetch_add(bytes, Ordering::Relaxed),
            (Operation::Commit, _) => self.0.sleep(20_000_000 + 20 * self.1.load(Ordering::Relaxed)).await,
            _ => {}
        }
        Ok(())
    }
}

#[test]
fn an_upload_is_timed_apart_from_its_completion() {
    let clock = Arc::new(Virtual::default());
    let (inner, store) = store(&clock);
    let store = Wrapped::new(store, Joins(clock.clone(), Default::default()));
    let never = Arc::new(AtomicBool::new(false));
    let report = probe(&clock, store, BUDGET, &never, &|_, _| {}).unwrap();
    let upload = report.upload.unwrap();
    // A quarter of the bytes that are left.
    assert!((150 << 20..256 << 20).contains(&upload.bytes), "{upload:?}");
    assert!((9e7..1.001e8).contains(&upload.bytes_per_s()), "{upload:?}");
    let (each_ns, of_a_byte_ns) = upload.completion_ns();
    assert!((20e6..30e6).contains(&each_ns) && (19.9..20.1).contains(&of_a_byte_ns), "{upload:?}");
    assert_eq!(left(&clock, &inner), ["data/theirs"]);
}

#[test]
fn of_objects_that_were_there_each_byte_is_read_once() {
    let clock = Arc::new(Virtual::default());
    let (inner, store) = store(&clock);
    let (size, count) = (64 << 20, 4);
    for i in 0..count {
        let at = Path::from(format!("big/{i}"));
        clock.run(inner.put(&at, vec![7; size].into())).unwrap().unwrap();
    }
    let counted = Wrapped::new(store, pellucid_storage::wrap::count::Count::default());
    let never = Arc::new(AtomicBool::new(false));
    let report = clock
        .run(probe_of(&clock, counted.clone(), Some("big"), BUDGET, &never, &|_, _| {}))
        .expect("the probe hangs")
        .unwrap();
    assert_eq!(report.read_from, ReadFrom::Existing);
    assert!(report.rates(Pattern::Sequential).count() >= 2, "{report:?}");
    let read = counted.around().read_bytes();
    // Of its own, what two tasks noted four times, and what it wrote over five times.
    let own = 8 * 4096 + 5 * 1002;
    assert!((128 << 20..=(count * size) as u64 + own).contains(&read), "{read} B of {}", count * size);
    assert_eq!(left(&clock, &inner), ["big/0", "big/1", "big/2", "big/3", "data/theirs"]);
    let (_, empty) = self::store(&clock);
    let none = clock.run(probe_of(&clock, empty, Some("data"), BUDGET, &never, &|_, _| {})).unwrap();
    assert!(format!("{none:?}").contains("no object of 8 MiB"), "{none:?}");
}

#[test]
fn the_least_budget_is_kept_to_the_byte() {
    for seconds in [1, 600] {
        let clock = Arc::new(Virtual::default());
        let (_, store) = store(&clock);
        let counted = Wrapped::new(store, pellucid_storage::wrap::count::Count::default());
        let never = Arc::new(AtomicBool::new(false));
        let budget = Budget { time_ns: seconds * 1_000_000_000, bytes: Budget::MIN_BYTES };
        let report = probe(&clock, counted.clone(), budget, &never, &|_, _| {}).unwrap();
        let moved = counted.around().read_bytes() + counted.around().written_bytes();
        assert!(moved <= Budget::MIN_BYTES, "{seconds} s: {moved} B moved");
        assert!(report.best_read().is_some() && report.write_bytes_per_s.is_some());
    }
}

#[test]
fn a_budget_is_kept() {
    for (seconds, bytes) in [(1, 1 << 30), (10, 64 << 20), (600, 16 << 20)] {
        let clock = Arc::new(Virtual::default());
        let (inner, store) = store(&clock);
        let counted = Wrapped::new(store, pellucid_storage::wrap::count::Count::default());
        let never = Arc::new(AtomicBool::new(false));
        let budget = Budget { time_ns: seconds * 1_000_000_000, bytes };
        let report = probe(&clock, counted.clone(), budget, &never, &|_, _| {}).unwrap();
        let moved = counted.around().read_bytes() + counted.around().written_bytes();
        // What is least worth measuring at all is beside the budget: an object, and a request of each kind.
        assert!(moved < bytes + (32 << 20), "{seconds} s, {bytes} B: {moved} B moved");
        let took = clock.now_ns() / 1_000_000_000;
        assert!(took <= seconds + 4, "{seconds} s, {bytes} B: took {took} s");
        assert!(report.best_read().is_some());
        assert_eq!(left(&clock, &inner), ["data/theirs"]);
    }
}

/// A name is kept as it was given, and not encoded once more.
#[test]
fn a_place_may_have_any_name() {
    for name in ["a~b", "Müller", "50%25", "[x]"] {
        let clock = Arc::new(Virtual::default());
        let (inner, store) = store(&clock);
        let never = Arc::new(AtomicBool::new(false));
        let place = Path::parse(format!("data/{name}")).unwrap();
        let budget = Budget { time_ns: 2_000_000_000, bytes: 128 << 20 };
        let ended = probe_at(&clock, store, place, None, budget, &never, &|_, _| {});
        let report = clock.run(ended).expect("the probe hangs").unwrap();
        assert_eq!(report.read_after_write, Some(true), "{name}");
        assert_eq!(left(&clock, &inner), ["data/theirs"], "{name}");
    }
}

#[test]
fn a_slow_store_is_measured_as_far_as_time_goes() {
    for bytes_per_s in [6e5, 1e6, 2e6] {
        let clock = Arc::new(Virtual::default());
        let paced = Pace::new(clock.clone(), bytes_per_s, 30_000_000);
        let paced = Wrapped::new(Arc::new(InMemory::new()) as Arc<dyn ObjectStore>, paced);
        let never = Arc::new(AtomicBool::new(false));
        let report = probe(&clock, paced, BUDGET, &never, &|_, _| {}).unwrap();
        let best = report.best_read().unwrap().bytes_per_s;
        assert!((0.8 * bytes_per_s..1.01 * bytes_per_s).contains(&best), "{bytes_per_s}: {best}");
    }
}

#[test]
fn what_the_reads_use_up_is_not_taken_from_the_commit() {
    for (bytes_per_s, latency_ns) in [(2e10, 10_000), (1e8, 5_000_000), (5e6, 30_000_000)] {
        let clock = Arc::new(Virtual::default());
        let paced = Wrapped::new(
            Arc::new(InMemory::new()) as Arc<dyn ObjectStore>,
            Pace::new(clock.clone(), bytes_per_s, latency_ns),
        );
        let never = Arc::new(AtomicBool::new(false));
        let budget = Budget { time_ns: 45_000_000_000, bytes: 512 << 20 };
        let report = probe(&clock, paced, budget, &never, &|_, _| {}).unwrap();
        let commit = report.commit;
        assert!(commit.rename_ms.is_some() && commit.multipart_ms.is_some(), "{bytes_per_s} B/s: {commit:?}");
    }
}

#[test]
fn whenever_it_is_stopped_nothing_is_left() {
    let run = |stop_at: Option<u32>| {
        let clock = Arc::new(Virtual::default());
        let (inner, store) = store(&clock);
        let cancelled = Arc::new(AtomicBool::new(false));
        let steps = std::sync::atomic::AtomicU32::new(0);
        let progress = |_: &str, _: f64| {
            if Some(steps.fetch_add(1, Ordering::Relaxed)) == stop_at {
                cancelled.store(true, Ordering::Relaxed);
            }
        };
        // Small, since fresh memory is dear on some machines.
        let budget = Budget { time_ns: 2_000_000_000, bytes: 128 << 20 };
        let ended = probe(&clock, store, budget, &cancelled, &progress);
        assert_eq!(left(&clock, &inner), ["data/theirs"], "stopped at step {stop_at:?}");
        (ended, steps.load(Ordering::Relaxed))
    };
    let (whole, steps) = run(None);
    assert!(whole.is_ok() && steps > 10, "{steps} steps");
    // At its last step, cleaning up, it has all that it wanted.
    for at in 0..steps - 1 {
        let (ended, _) = run(Some(at));
        assert!(matches!(ended, Err(ProbeError::Cancelled)), "stopped at step {at}: {ended:?}");
    }
}

#[test]
fn a_failing_store_is_an_error_and_cleaned_up_where_that_can_be() {
    let clock = Arc::new(Virtual::default());
    let (inner, store) = store(&clock);
    let store = Wrapped::new(store, Faults::new(clock.clone(), 40, &[Fault::Refused]));
    let never = Arc::new(AtomicBool::new(false));
    let ended = probe(&clock, store, BUDGET, &never, &|_, _| {});
    assert!(matches!(&ended, Err(ProbeError::Store(e)) if e.to_string().contains("500")), "{ended:?}");
    assert_eq!(left(&clock, &inner), ["data/theirs"]);
}

#[test]
fn the_next_probe_removes_what_a_killed_one_left() {
    let clock = Arc::new(Virtual::default());
    let (inner, store) = store(&clock);
    let folder = Path::from("data/pellucid-probe-00000000000000aa");
    clock
        .run(async {
            // As a probe of a process that is no more leaves it; a day and more ago.
            let owner = r#"{"machine": "x", "process": 1, "process_started": 1, "unix_s": 1}"#;
            inner.put(&folder.clone().join("owner.json"), owner.into()).await?;
            for name in ["object-0", "object-1", "again"] {
                inner.put(&folder.clone().join(name), "x".into()).await?;
            }
            Ok::<_, object_store::Error>(())
        })
        .unwrap()
        .unwrap();
    assert_eq!(left(&clock, &inner).len(), 5);
    let never = Arc::new(AtomicBool::new(false));
    probe(&clock, store, BUDGET, &never, &|_, _| {}).unwrap();
    let all: Vec<_> = clock.run(inner.list(None).collect::<Vec<_>>()).unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
}

#[test]
fn an_upload_that_a_killed_probe_began_is_aborted_by_its_name() {
    let clock = Arc::new(Virtual::default());
    let inner = Arc::new(InMemory::new());
    let folder = Path::from("data/pellucid-probe-00000000000000aa");
    let whole = folder.clone().join("commit").join("whole-2");
    let (id, part) = clock
        .run(async {
            let owner = r#"{"machine": "x", "process": 1, "process_started": 1, "unix_s": 1}"#;
            inner.put(&folder.clone().join("owner.json"), owner.into()).await?;
            let id = inner.create_multipart(&whole).await?;
            inner.put(&folder.clone().join("commit").join("upload-2"), id.clone().into()).await?;
            let part = inner.put_part(&whole, &id, 0, "x".into()).await?;
            Ok::<_, object_store::Error>((id, part))
        })
        .unwrap()
        .unwrap();
    let uploads: &dyn MultipartStore = &*inner;
    clock
        .run(Folder::new(Path::from("data"), FolderKind::Prefix).remove_leftovers(&*inner, Some(uploads)))
        .unwrap()
        .unwrap();
    assert_eq!(left(&clock, &inner), Vec::<String>::new());
    assert!(clock.run(inner.complete_multipart(&whole, &id, vec![part])).unwrap().is_err(), "still there");
}

/// Takes no note of an upload: nothing else that a probe writes is as short as its name.
#[derive(Debug)]
struct NoNotes;

#[async_trait::async_trait]
impl Around for NoNotes {
    type Pass = ();

    async fn enter(&self, call: Call) -> object_store::Result<()> {
        if call.operation == Operation::Write && (1..5).contains(&call.sent_bytes) {
            return Err(object_store::Error::Generic { store: "full", source: "no room".into() });
        }
        Ok(())
    }
}

#[test]
fn an_upload_that_cannot_be_noted_is_aborted_at_once() {
    let clock = Arc::new(Virtual::default());
    let (inner, store) = store(&clock);
    let probe = Probe {
        store: Wrapped::new(store, NoNotes),
        uploads: Some(inner.clone()),
        folder: Folder::new(Path::from("data"), FolderKind::Prefix),
        url: "memory://x".to_string(),
        budget: BUDGET,
        clock: clock.clone(),
        cancelled: Arc::default(),
        progress: &|_, _| {},
        existing: None,
        evict: &|_| {},
    };
    let ended = clock.run(probe.run()).expect("the probe hangs");
    assert!(matches!(&ended, Err(ProbeError::Store(e)) if e.to_string().contains("no room")), "{ended:?}");
    assert_eq!(left(&clock, &inner), ["data/theirs"]);
    // It names uploads by numbers.
    for id in (0..500).map(|id| id.to_string()) {
        let part = clock.run(inner.put_part(&Path::from("data/theirs"), &id, 0, "x".into())).unwrap();
        assert!(part.is_err(), "upload {id} is still there");
    }
}

/// Answers so many calls, and then none, and says so.
#[derive(Debug)]
struct FallsSilent(std::sync::atomic::AtomicU64, Arc<AtomicBool>);

#[async_trait::async_trait]
impl Around for FallsSilent {
    type Pass = ();

    async fn enter(&self, _call: Call) -> object_store::Result<()> {
        if self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err() {
            self.1.store(true, Ordering::Relaxed);
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

#[test]
fn a_store_that_falls_silent_is_an_error_in_bounded_time_and_a_stop_does_not_wait_for_it() {
    for calls in [0, 1, 3, 20, 40] {
        let clock = Arc::new(Virtual::default());
        let (_, store) = store(&clock);
        let store = Wrapped::new(store, FallsSilent(calls.into(), Arc::default()));
        let never = Arc::new(AtomicBool::new(false));
        let budget = Budget { time_ns: 2_000_000_000, bytes: 128 << 20 };
        let ended = probe(&clock, store, budget, &never, &|_, _| {});
        let words = format!("{ended:?}");
        assert!(matches!(ended, Err(ProbeError::Store(_))) && words.contains("did not answer"), "{words}");
        // The budget, what is beside it, and cleaning up before and after.
        assert!(clock.now_ns() < 280_000_000_000, "{calls} calls: {} s", clock.now_ns() / 1_000_000_000);
    }
    let clock = Arc::new(Virtual::default());
    let (_, paced) = store(&clock);
    let cancelled = Arc::new(AtomicBool::new(false));
    let store = Wrapped::new(paced, FallsSilent(40.into(), cancelled.clone()));
    let begun = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let progress = |what: &str, _: f64| {
        if what == "cleaning up" {
            begun.store(clock.now_ns(), Ordering::Relaxed);
        }
    };
    let ended = probe(&clock, store, BUDGET, &cancelled, &progress);
    assert!(matches!(ended, Err(ProbeError::Cancelled)), "{ended:?}");
    // Well before its time was up.
    assert!((1..20_000_000_000).contains(&begun.load(Ordering::Relaxed)), "{begun:?}");
}
