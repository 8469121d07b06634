//! Tests of the probe on a store of known speed with a virtual clock: its measurements are correct, it
//! keeps to its budget, and it leaves no objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::{StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use pellucid_storage::clock::Clock;
use pellucid_storage::probe::{Budget, Folder, FolderKind, Pattern, Probe, ProbeError, ReadFrom, Report};
use pellucid_storage_testing::Virtual;
use pellucid_storage_testing::count::Count;
use pellucid_storage_testing::fault::{Fault, Faults};
use pellucid_storage_testing::pace::Pace;
use pellucid_storage_testing::wrap::{Call, Interceptor, Wrapped};
use pellucid_trace::Operation;

/// A store whose renames copy at 200 MB/s. Identifies large objects by the probe's order of renames.
#[derive(Debug)]
struct SlowCopies(Arc<dyn Clock>, std::sync::atomic::AtomicU64);

#[async_trait::async_trait]
impl Interceptor for SlowCopies {
    type State = ();

    async fn enter(&self, call: Call) -> object_store::Result<()> {
        if call.operation == Operation::Rename {
            // The probe renames the small object back and forth, then the large one.
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

/// Returns a store with an unrelated object, behind a link of 100 MB/s and 5 ms.
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
fn probe_measures_the_link() {
    let clock = Arc::new(Virtual::default());
    let (inner, store) = store(&clock);
    let never = Arc::new(AtomicBool::new(false));
    let report = probe(&clock, store, BUDGET, &never, &|_, _| {}).unwrap();
    let best = report.best_read().unwrap();
    assert!((9e7..1.001e8).contains(&best.bytes_per_s), "{best:?}");
    let of = |pattern, concurrency| {
        report.rates(pattern).find(|r: &&_| r.concurrency == concurrency).unwrap().bytes_per_s
    };
    // 64 KiB take 5 ms and 0.66 ms: 11.6 MB/s with one request, eight times that with eight.
    assert!((1.1e7..1.2e7).contains(&of(Pattern::Random, 1)), "{:?}", report.read);
    assert!(of(Pattern::Random, 8) > 7.0 * of(Pattern::Random, 1));
    assert!((9e7..1.001e8).contains(&report.write_bytes_per_s.unwrap()), "{report:?}");
    // 1 MiB takes 10.5 ms on the link and 5 ms of latency, so two requests fill the link. The
    // controller's intervals are short, so it may settle a step or two away from that.
    assert!(matches!(report.chosen_concurrency, Some(2..=8)), "{:?}", report.chosen_concurrency);
    assert!(report.small_objects_per_s.unwrap() > 1000.0 && report.list_per_s.unwrap() > 1000.0);
    assert!(!report.rename.unwrap().is_copy && report.read_after_write == Some(true), "{report:?}");
    assert!(report.commit.rename_ms.is_some() && report.commit.multipart_ms.is_some());
    // 5 ms, or longer while the other task writes.
    assert!(matches!(report.commit.request_ms, Some(5.0..15.0)), "{:?}", report.commit);
    assert_eq!(left(&clock, &inner), ["data/theirs"]);
    let text = serde_json::to_string(&report).unwrap();
    let read = Report::parse(&text).unwrap();
    // The last digit of a float may change in JSON.
    let close = |a: f64, b: f64| (a - b).abs() < 1e-9 * a.abs();
    assert!(close(read.best_read().unwrap().bytes_per_s, report.best_read().unwrap().bytes_per_s));
    assert_eq!((read.read.len(), read.chosen_concurrency), (report.read.len(), report.chosen_concurrency));
    assert!(Report::parse("{}").unwrap_err().contains("pellucid storage probe"));
}

#[test]
fn copying_rename_is_detected() {
    let clock = Arc::new(Virtual::default());
    let (_, store) = store(&clock);
    let store = Wrapped::new(store, SlowCopies(clock.clone(), Default::default()));
    let never = Arc::new(AtomicBool::new(false));
    let rename = probe(&clock, store, BUDGET, &never, &|_, _| {}).unwrap().rename.unwrap();
    assert!(rename.is_copy && rename.ms > 40.0, "{rename:?}");
}

/// A store that takes 20 ms to complete an upload and joins its parts at 50 MB/s.
#[derive(Debug)]
struct Joins(Arc<dyn Clock>, std::sync::atomic::AtomicU64);

#[async_trait::async_trait]
impl Interceptor for Joins {
    type State = ();

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
fn upload_and_completion_are_timed_separately() {
    let clock = Arc::new(Virtual::default());
    let (inner, store) = store(&clock);
    let store = Wrapped::new(store, Joins(clock.clone(), Default::default()));
    let never = Arc::new(AtomicBool::new(false));
    let report = probe(&clock, store, BUDGET, &never, &|_, _| {}).unwrap();
    let upload = report.upload.unwrap();
    // A quarter of the remaining bytes.
    assert!((150 << 20..256 << 20).contains(&upload.bytes), "{upload:?}");
    assert!((9e7..1.001e8).contains(&upload.bytes_per_s()), "{upload:?}");
    let (each_ns, of_a_byte_ns) = upload.completion_ns();
    assert!((20e6..30e6).contains(&each_ns) && (19.9..20.1).contains(&of_a_byte_ns), "{upload:?}");
    assert_eq!(left(&clock, &inner), ["data/theirs"]);
}

#[test]
fn existing_objects_are_read_at_most_once_and_kept() {
    let clock = Arc::new(Virtual::default());
    let (inner, store) = store(&clock);
    let (size, count) = (64 << 20, 4);
    for i in 0..count {
        let at = Path::from(format!("big/{i}"));
        clock.run(inner.put(&at, vec![7; size].into())).unwrap().unwrap();
    }
    let counted = Wrapped::new(store, Count::default());
    let never = Arc::new(AtomicBool::new(false));
    let report = clock
        .run(probe_of(&clock, counted.clone(), Some("big"), BUDGET, &never, &|_, _| {}))
        .expect("the probe hangs")
        .unwrap();
    assert_eq!(report.read_from, ReadFrom::Existing);
    assert!(report.rates(Pattern::Sequential).count() >= 2, "{report:?}");
    let read = counted.interceptor().read_bytes();
    // Its own objects: the records of two tasks in four rounds, and five overwritten objects.
    let own = 8 * 4096 + 5 * 1002;
    assert!((128 << 20..=(count * size) as u64 + own).contains(&read), "{read} B of {}", count * size);
    assert_eq!(left(&clock, &inner), ["big/0", "big/1", "big/2", "big/3", "data/theirs"]);
    let (_, empty) = self::store(&clock);
    let none = clock.run(probe_of(&clock, empty, Some("data"), BUDGET, &never, &|_, _| {})).unwrap();
    assert!(format!("{none:?}").contains("no object of 8 MiB"), "{none:?}");
}

#[test]
fn minimum_budget_is_never_exceeded() {
    for seconds in [1, 600] {
        let clock = Arc::new(Virtual::default());
        let (_, store) = store(&clock);
        let counted = Wrapped::new(store, Count::default());
        let never = Arc::new(AtomicBool::new(false));
        let budget = Budget { time_ns: seconds * 1_000_000_000, bytes: Budget::MIN_BYTES };
        let report = probe(&clock, counted.clone(), budget, &never, &|_, _| {}).unwrap();
        let moved = counted.interceptor().read_bytes() + counted.interceptor().written_bytes();
        assert!(moved <= Budget::MIN_BYTES, "{seconds} s: {moved} B moved");
        assert!(report.best_read().is_some() && report.write_bytes_per_s.is_some());
    }
}

#[test]
fn budgets_of_time_and_bytes_are_kept() {
    for (seconds, bytes) in [(1, 1 << 30), (10, 64 << 20), (600, 16 << 20)] {
        let clock = Arc::new(Virtual::default());
        let (inner, store) = store(&clock);
        let counted = Wrapped::new(store, Count::default());
        let never = Arc::new(AtomicBool::new(false));
        let budget = Budget { time_ns: seconds * 1_000_000_000, bytes };
        let report = probe(&clock, counted.clone(), budget, &never, &|_, _| {}).unwrap();
        let moved = counted.interceptor().read_bytes() + counted.interceptor().written_bytes();
        // The minimum measurements may exceed the budget: one object, and one request of each kind.
        assert!(moved < bytes + (32 << 20), "{seconds} s, {bytes} B: {moved} B moved");
        let took = clock.now_ns() / 1_000_000_000;
        assert!(took <= seconds + 4, "{seconds} s, {bytes} B: took {took} s");
        assert!(report.best_read().is_some());
        assert_eq!(left(&clock, &inner), ["data/theirs"]);
    }
}

/// Names are used unchanged, without another round of encoding.
#[test]
fn place_may_have_special_characters() {
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
fn slow_store_is_measured_within_the_time() {
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
fn commit_is_measured_whatever_the_reads_use() {
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
fn cancelled_probe_leaves_nothing_at_any_step() {
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
        // Small, since allocating memory is slow on some machines.
        let budget = Budget { time_ns: 2_000_000_000, bytes: 128 << 20 };
        let ended = probe(&clock, store, budget, &cancelled, &progress);
        assert_eq!(left(&clock, &inner), ["data/theirs"], "cancelled at step {stop_at:?}");
        (ended, steps.load(Ordering::Relaxed))
    };
    let (whole, steps) = run(None);
    assert!(whole.is_ok() && steps > 10, "{steps} steps");
    // At its last step, cleanup, the probe has completed.
    for at in 0..steps - 1 {
        let (ended, _) = run(Some(at));
        assert!(matches!(ended, Err(ProbeError::Cancelled)), "cancelled at step {at}: {ended:?}");
    }
}

#[test]
fn probe_of_a_failing_store_fails_and_cleans_up() {
    let clock = Arc::new(Virtual::default());
    let (inner, store) = store(&clock);
    let store = Wrapped::new(store, Faults::new(clock.clone(), 40, &[Fault::Refused]));
    let never = Arc::new(AtomicBool::new(false));
    let ended = probe(&clock, store, BUDGET, &never, &|_, _| {});
    assert!(matches!(&ended, Err(ProbeError::Store(e)) if e.to_string().contains("500")), "{ended:?}");
    assert_eq!(left(&clock, &inner), ["data/theirs"]);
}

#[test]
fn next_probe_removes_leftovers_of_a_killed_one() {
    let clock = Arc::new(Virtual::default());
    let (inner, store) = store(&clock);
    let folder = Path::from("data/pellucid-probe-00000000000000aa");
    clock
        .run(async {
            // Leftovers of an exited process, over a day old.
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
fn upload_of_a_killed_probe_is_aborted_by_its_id() {
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

/// A store that rejects records of uploads, recognised by their size: no other object is as short.
#[derive(Debug)]
struct NoNotes;

#[async_trait::async_trait]
impl Interceptor for NoNotes {
    type State = ();

    async fn enter(&self, call: Call) -> object_store::Result<()> {
        if call.operation == Operation::Write && (1..5).contains(&call.sent_bytes) {
            return Err(object_store::Error::Generic { store: "full", source: "no room".into() });
        }
        Ok(())
    }
}

#[test]
fn upload_whose_id_cannot_be_recorded_is_aborted() {
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
    // Upload IDs of the in-memory store are numbers.
    for id in (0..500).map(|id| id.to_string()) {
        let part = clock.run(inner.put_part(&Path::from("data/theirs"), &id, 0, "x".into())).unwrap();
        assert!(part.is_err(), "upload {id} is still there");
    }
}

/// A store that stops responding after a number of calls, and sets a flag then.
#[derive(Debug)]
struct StopsResponding(std::sync::atomic::AtomicU64, Arc<AtomicBool>);

#[async_trait::async_trait]
impl Interceptor for StopsResponding {
    type State = ();

    async fn enter(&self, _call: Call) -> object_store::Result<()> {
        if self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err() {
            self.1.store(true, Ordering::Relaxed);
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

#[test]
fn unresponsive_store_times_out_and_does_not_delay_cancellation() {
    for calls in [0, 1, 3, 20, 40] {
        let clock = Arc::new(Virtual::default());
        let (_, store) = store(&clock);
        let store = Wrapped::new(store, StopsResponding(calls.into(), Arc::default()));
        let never = Arc::new(AtomicBool::new(false));
        let budget = Budget { time_ns: 2_000_000_000, bytes: 128 << 20 };
        let ended = probe(&clock, store, budget, &never, &|_, _| {});
        let words = format!("{ended:?}");
        assert!(matches!(ended, Err(ProbeError::Store(_))) && words.contains("did not answer"), "{words}");
        // The budget, the grace period, and the cleanup before and after.
        assert!(clock.now_ns() < 280_000_000_000, "{calls} calls: {} s", clock.now_ns() / 1_000_000_000);
    }
    let clock = Arc::new(Virtual::default());
    let (_, paced) = store(&clock);
    let cancelled = Arc::new(AtomicBool::new(false));
    let store = Wrapped::new(paced, StopsResponding(40.into(), cancelled.clone()));
    let begun = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let progress = |what: &str, _: f64| {
        if what == "cleaning up" {
            begun.store(clock.now_ns(), Ordering::Relaxed);
        }
    };
    let ended = probe(&clock, store, BUDGET, &cancelled, &progress);
    assert!(matches!(ended, Err(ProbeError::Cancelled)), "{ended:?}");
    // The cleanup starts well before the end of the budget.
    assert!((1..20_000_000_000).contains(&begun.load(Ordering::Relaxed)), "{begun:?}");
}
