//! Tests on real files: residency, the exact bytes that a read moves, and what an output leaves behind.
//! Tests are skipped with a message if the file system has no device or does not report cached pages.
//!
//! Linux only: other systems cannot evict a file or count the bytes of a thread.
#![cfg(target_os = "linux")]
#![allow(clippy::single_range_in_vec_init)]

mod common;

use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{Task, checked_trace, recorder, runtime};
use pellucid_runtime::{
    Done, Error, File, IoMode, Job, JobError, Monotask, Options, Output, Phase, Residency, Runtime, Segment,
    slice,
};
use pellucid_trace::{Outcome, Trace, kind};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// Creates a folder next to the build's other files, which are usually on a real disk.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

/// Returns bytes that depend on their offset in the file.
fn pattern(range: Range<u64>) -> Vec<u8> {
    range.map(|at| (at ^ (at >> 8) ^ (at >> 17)) as u8).collect()
}

fn make(folder: &Path, len: u64) -> PathBuf {
    let path = folder.join("table.bin");
    fs::write(&path, pattern(0..len)).expect("written");
    path
}

/// Evicts the file from the page cache. Returns false if that fails or cannot be checked.
fn evict(file: &Arc<File>) -> bool {
    let own = fs::File::open(file.path()).expect("it exists");
    own.sync_all().expect("flushed");
    unsafe { libc::posix_fadvise(own.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    let whole = [0..file.len()];
    let gone = file.residency(&whole).missing == whole;
    if !gone {
        eprintln!("skipped: cannot evict files of {} from memory", file.disk().name());
    }
    gone
}

/// Retries a check that depends on pages staying in memory: under a memory limit the kernel may evict pages
/// at any time, but not in every attempt.
fn in_some_attempt(check: &str, mut attempt: impl FnMut() -> bool) {
    assert!((0..10).any(|_| attempt()), "{check}: failed in 10 attempts");
}

/// Runs monotasks as one multitask of one job.
fn run(runtime: &Runtime, monotasks: Vec<Monotask>) -> (Result<(), JobError>, Trace) {
    let job = runtime.begin("files", recorder());
    submit(&job, monotasks);
    let result = job.wait();
    (result, checked_trace(&job))
}

fn submit(job: &Job, monotasks: Vec<Monotask>) {
    let stage = job.stage("files", &[], vec![]);
    let of = job.clone();
    let done = move || {
        of.succeed();
        Ok(())
    };
    job.submit(stage, 0, 0, Task::new(move || Ok(monotasks), done));
}

type Sunk = Arc<Mutex<Vec<Segment>>>;

fn sink() -> (Sunk, impl FnOnce(Vec<Segment>) -> Result<(), Error> + Send + 'static) {
    let sunk = Sunk::default();
    let to = Arc::clone(&sunk);
    (sunk, move |segments| {
        to.lock().expect("not poisoned").extend(segments);
        Ok(())
    })
}

fn check_bytes(segments: &[Segment], ranges: &[Range<u64>]) {
    assert_eq!(segments.len(), ranges.len());
    for (segment, range) in segments.iter().zip(ranges) {
        assert_eq!(segment.offset, range.start);
        assert!(segment.bytes == pattern(range.clone()), "bytes of {range:?}");
    }
}

#[test]
fn read_loads_exactly_the_missing_ranges() {
    let (folder, runtime) = (folder(), runtime());
    let file = runtime.open(&make(folder.path(), 16 * MIB)).expect("open");
    if !evict(&file) {
        return;
    }
    // Ranges with gaps, unaligned, small and large, two of them touching.
    let wanted = [
        5..PAGE,
        MIB + 1..3 * MIB + 7,
        3 * MIB + 7..4 * MIB,
        5 * MIB..5 * MIB + 100,
        6 * MIB + 100..6 * MIB + 300,
        15 * MIB..16 * MIB,
    ];
    let merged =
        [wanted[0].clone(), MIB + 1..4 * MIB, wanted[3].clone(), wanted[4].clone(), wanted[5].clone()];
    let residency = file.residency(&wanted);
    assert_eq!((residency.cached.len(), residency.missing.as_slice()), (0, &merged[..]));
    let (sunk, to) = sink();
    let (result, trace) = run(&runtime, vec![file.read_monotask(residency.missing, to)]);
    result.expect("it succeeds");
    check_bytes(&sunk.lock().expect("not poisoned"), &merged);

    let m = &trace.monotasks[0];
    let bytes: u64 = merged.iter().map(|r| r.end - r.start).sum();
    let pages: u64 = merged.iter().map(|r| r.end.div_ceil(PAGE) - r.start / PAGE).sum();
    assert_eq!(m.bytes, Some(bytes));
    match m.device_bytes {
        Some(moved) => assert_eq!(moved, pages * PAGE, "exactly the whole pages of the ranges"),
        None => eprintln!("not checked: this kernel does not count bytes of threads"),
    }
    let resource = &trace.resources[m.resource as usize];
    assert_eq!((resource.kind.as_str(), resource.name.as_str()), (kind::DISK, file.disk().name()));

    let gap = 8 * MIB..9 * MIB;
    assert_eq!(file.residency(std::slice::from_ref(&gap)).missing, [gap], "the gap was read");
    in_some_attempt("a read warms the cache", || {
        let (_, to) = sink();
        run(&runtime, vec![file.read_monotask(wanted.to_vec(), to)]).0.expect("it succeeds");
        file.residency(&wanted) == Residency { cached: merged.to_vec(), missing: vec![] }
    });
}

#[test]
fn core_reads_cached_ranges_without_the_device() {
    let (folder, runtime) = (folder(), runtime());
    let file = runtime.open(&make(folder.path(), 4 * MIB)).expect("open");
    let own = fs::File::open(file.path()).expect("it exists");
    unsafe { libc::posix_fadvise(own.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
    if !evict(&file) {
        return;
    }
    let expect = Residency { cached: vec![2 * MIB..3 * MIB], missing: vec![0..2 * MIB, 3 * MIB..4 * MIB] };
    in_some_attempt("a core reads cached ranges without the device", || {
        own.read_exact_at(&mut vec![0; MIB as usize], 2 * MIB).expect("read");
        let residency = file.residency(&[0..4 * MIB]);
        residency == expect && moved_by_core(&runtime, &file, residency.cached) == 0
    });
}

/// Reads cached ranges on a core, and returns the bytes that the device moved for it.
fn moved_by_core(runtime: &Runtime, file: &Arc<File>, cached: Vec<Range<u64>>) -> u64 {
    fn moved() -> Result<u64, Error> {
        let io = fs::read_to_string("/proc/thread-self/io")?;
        let bytes = io.lines().find_map(|l| l.strip_prefix("read_bytes: ")).ok_or("not counted")?;
        Ok(bytes.parse()?)
    }
    let (sunk, to) = sink();
    let (of, ranges, device) = (Arc::clone(file), cached.clone(), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&device);
    let core = Monotask::new(&runtime.cores(), Phase::Compute, vec![], 0, move |_| {
        let before = moved().unwrap_or(0);
        to(of.read_cached(&ranges)?)?;
        counted.store(moved().unwrap_or(0) - before, Ordering::Relaxed);
        Ok(Done { cached_bytes: Some(MIB), ..Done::default() })
    });
    let job = runtime.begin("cached", recorder());
    submit(&job, vec![core]);
    job.wait().expect("it succeeds");
    assert_eq!(job.progress().cached_bytes, MIB);
    assert_eq!(checked_trace(&job).monotasks[0].cached_bytes, Some(MIB));
    check_bytes(&sunk.lock().expect("not poisoned"), &cached);
    device.load(Ordering::Relaxed)
}

#[test]
fn ranges_evicted_after_plan_are_returned_and_not_read() {
    let (folder, runtime) = (folder(), runtime());
    let file = runtime.open(&make(folder.path(), 2 * MIB)).expect("open");
    if !evict(&file) {
        return;
    }
    let (segments, missing) = file.read_if_cached(&[0..MIB]).expect("nothing to read");
    assert_eq!((segments.len(), missing), (0, vec![0..MIB]));
    in_some_attempt("a cached range is read", || {
        file.read_cached(&[0..MIB]).expect("read");
        let (segments, missing) = file.read_if_cached(&[0..MIB, MIB + 7..2 * MIB]).expect("read");
        if missing != [MIB + 7..2 * MIB] {
            return false;
        }
        check_bytes(&segments, &[0..MIB]);
        true
    });
}

#[test]
fn slice_joins_segments_of_separate_reads() {
    let (folder, runtime) = (folder(), runtime());
    let file = runtime.open(&make(folder.path(), 2 * MIB)).expect("open");
    let parts = [0..PAGE, PAGE..2 * PAGE + 9, 2 * PAGE + 9..MIB];
    let mut segments = Vec::new();
    for part in &parts {
        segments.extend(file.read_cached(std::slice::from_ref(part)).expect("read"));
    }
    check_bytes(&segments, &parts);
    let whole = slice(&segments, &(100..MIB - 3)).expect("complete");
    assert!(whole == pattern(100..MIB - 3));
    assert_eq!(slice(&segments, &(100..MIB + 1)), None);
}

#[test]
fn direct_reads_bypass_the_cache() {
    let folder = folder();
    let path = make(folder.path(), 3 * MIB + 123);
    let options = Options { cores: 1, io: IoMode::Direct, ..Options::default() };
    let runtime = Runtime::new(options).expect("a runtime");
    assert_eq!(runtime.labels(), ["page cache bypassed (direct I/O)"]);
    let file = match runtime.open(&path) {
        Ok(file) => file,
        Err(error) => {
            assert!(error.to_string().contains("use --io cached"), "{error}");
            return eprintln!("skipped: {error}");
        }
    };
    // Two ranges in one block, one across blocks, and one up to the end of the file.
    let wanted = [10..20, 30..40, MIB - 1..2 * MIB + 1, 3 * MIB..3 * MIB + 123];
    let residency = file.residency(&wanted);
    assert_eq!(residency.missing, wanted, "nothing counts as cached");
    // The first read may also load pages of this program, which count as read by the thread.
    run(&runtime, vec![file.read_monotask(wanted.to_vec(), sink().1)]).0.expect("it succeeds");
    let (sunk, to) = sink();
    let (result, trace) = run(&runtime, vec![file.read_monotask(residency.missing, to)]);
    result.expect("it succeeds");
    check_bytes(&sunk.lock().expect("not poisoned"), &wanted);
    let m = &trace.monotasks[0];
    assert_eq!(m.bytes, Some(20 + MIB + 2 + 123));
    let blocks = PAGE + MIB + 2 * PAGE;
    match m.device_bytes {
        // The kernel counts the last block up to the end of the file, rounded to a sector, or in full.
        Some(moved) => assert!((blocks + 123..=blocks + PAGE).contains(&moved), "{moved}"),
        None => eprintln!("not checked: this kernel does not count bytes of threads"),
    }
}

#[test]
fn truncated_file_error_names_path_and_offset() {
    let (folder, runtime) = (folder(), runtime());
    let path = make(folder.path(), MIB);
    let file = runtime.open(&path).expect("open");
    fs::OpenOptions::new().write(true).open(&path).expect("open").set_len(MIB / 2).expect("cut");
    let (_, to) = sink();
    let (result, trace) = run(&runtime, vec![file.read_monotask(vec![0..MIB], to)]);
    let error = result.expect_err("cut").to_string();
    assert!(error.contains("table.bin ends at byte 524288"), "{error}");
    assert_eq!(trace.monotasks[0].outcome, Outcome::Failed);
    let beyond = file.read_cached(&[MIB - 1..MIB + 1]).expect_err("beyond").to_string();
    assert!(beyond.contains("ends at byte 1048576"), "{beyond}");
    let again = runtime.open(&path).expect("open");
    assert_eq!(again.len(), MIB / 2, "a changed file is opened again");
    assert!(!Arc::ptr_eq(&again, &file));
    assert!(Arc::ptr_eq(&again, &runtime.open(&path).expect("open")), "an unchanged file is shared");
}

#[test]
fn unreadable_file_errors_name_path_and_remedy() {
    let (folder, runtime) = (folder(), runtime());
    let message = |path: &Path| runtime.open(path).expect_err("refused").to_string();
    let missing = message(&folder.path().join("missing.parquet"));
    assert!(missing.contains("missing.parquet") && missing.contains("check the path"), "{missing}");
    assert!(message(folder.path()).contains("is a folder"));
}

#[test]
fn paced_read_is_labelled_and_cancellable() {
    let folder = folder();
    let path = make(folder.path(), MIB);
    let rates = vec![(folder.path().to_path_buf(), 1000)];
    let runtime =
        Runtime::new(Options { cores: 1, disk_rates: rates, ..Options::default() }).expect("a runtime");
    let file = runtime.open(&path).expect("open");
    let name = file.disk().name().to_string();
    assert_eq!(runtime.labels(), [format!("disk {name} paced at 0.001 MB/s inside the engine")]);
    assert_eq!(file.disk().capacity(), Some(1000.0));
    let job = runtime.begin("it would take 17 minutes", recorder());
    let (sunk, to) = sink();
    let (started, has_started) = channel();
    // Starts after the read, on the same disk.
    let signal = Monotask::new(file.disk(), Phase::Read, vec![], 0, move |_| {
        started.send(())?;
        Ok(Done::default())
    });
    submit(&job, vec![file.read_monotask(vec![0..MIB], to), signal]);
    has_started.recv().expect("it started");
    job.cancel();
    assert!(matches!(job.wait(), Err(JobError::Cancelled)));
    assert!(sunk.lock().expect("not poisoned").is_empty());
    let trace = checked_trace(&job);
    let disk = trace.resources.iter().find(|r| r.name == name).expect("registered");
    assert_eq!((disk.capacity, disk.capacity_from.as_deref()), (Some(1000.0), Some("set")));
    let reads: Vec<_> = trace.monotasks.iter().filter(|m| m.bytes == Some(MIB)).collect();
    assert!(reads.iter().all(|m| m.outcome == Outcome::Cancelled), "{reads:?}");
}

#[test]
fn two_rates_for_one_disk_are_refused() {
    let folder = folder();
    let rates = |a, b| vec![(folder.path().to_path_buf(), a), (folder.path().join("not/there/yet"), b)];
    let of = |disk_rates| Runtime::new(Options { cores: 1, disk_rates, ..Options::default() });
    assert!(of(rates(1000, 1000)).is_ok());
    let error = of(rates(1000, 2000)).err().expect("refused").to_string();
    assert!(error.contains("two different rates"), "{error}");
}

#[test]
fn threads_are_named_after_their_resource() {
    let (folder, runtime) = (folder(), runtime());
    let file = runtime.open(&make(folder.path(), PAGE)).expect("open");
    let (_, to) = sink();
    run(&runtime, vec![file.read_monotask(vec![0..PAGE], to)]).0.expect("it succeeds");
    let names = || -> Option<Vec<String>> {
        let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
        let tasks = fs::read_dir("/proc/self/task").ok()?.flatten();
        Some(tasks.filter_map(name).map(|name| name.trim().to_string()).collect())
    };
    let disk = file.disk().name();
    let disk = format!("disk-{}", &disk[..disk.len().min(8)]);
    let wanted = ["core-0", "core-1", "sampler", &disk];
    // A thread sets its name when it first runs, for which the job above does not wait.
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let Some(names) = names() else { return eprintln!("skipped: no /proc") };
        let missing: Vec<_> = wanted.iter().filter(|w| !names.iter().any(|n| n.starts_with(**w))).collect();
        if missing.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "no {missing:?} among {names:?}");
        std::thread::yield_now();
    }
}

#[test]
fn output_appears_complete() {
    let (folder, runtime) = (folder(), runtime());
    let target = folder.path().join("out.parquet");
    fs::write(&target, "old").expect("written");
    let output = Output::create(&runtime, &target).expect("created");
    let all = Bytes::from(pattern(0..3 * MIB));
    let first = output.write_monotask(vec![all.slice(..9), all.slice(9..MIB as usize)], vec![]);
    let second = output.write_monotask(vec![all.slice(MIB as usize..)], vec![]);
    assert!(output.publish().expect_err("too early").to_string().contains("0 of 3145728 bytes"));
    assert_eq!(fs::read(&target).expect("it exists"), b"old");
    // The monotask planned last comes first: each has its offset already.
    let publish = output.publish_monotask(vec![0, 1]);
    let (result, trace) = run(&runtime, vec![second, first, publish]);
    result.expect("it succeeds");
    assert!(fs::read(&target).expect("it exists") == all);
    assert_eq!(fs::read_dir(folder.path()).expect("it exists").count(), 1, "another file was left");
    output.publish().expect("a second call has no effect");
    let written: u64 = trace.monotasks.iter().filter_map(|m| m.bytes).sum();
    assert_eq!(written, 3 * MIB);
    drop(output);
    assert!(target.exists());
}

#[test]
fn scratch_file_returns_its_bytes_and_has_no_name() {
    let folder = folder();
    let runtime = runtime();
    let scratch = runtime.scratch(folder.path()).expect("a file");
    let (zero, first) = scratch.write_monotask(vec![pattern(0..5).into(), pattern(5..3 * MIB).into()]);
    let (from, second) = scratch.write_monotask(vec![pattern(0..100).into()]);
    assert_eq!((zero, from), (0, 3 * MIB));
    run(&runtime, vec![first, second]).0.expect("written");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    let sunk: Arc<Mutex<Vec<Bytes>>> = Arc::default();
    let to = Arc::clone(&sunk);
    let ranges = vec![from + 10..from + 100, 1..2 * MIB];
    let read = scratch.read_monotask(ranges, move |bytes| *to.lock().unwrap() = bytes);
    run(&runtime, vec![read]).0.expect("read");
    assert_eq!(*sunk.lock().unwrap(), [pattern(10..100), pattern(1..2 * MIB)]);
    // The page cache still has those bytes.
    assert!(scratch.is_cached(&(1..2 * MIB)) && !scratch.is_cached(&(0..100 * MIB)));
    assert_eq!(scratch.read_cached(1..2 * MIB).expect("cached"), pattern(1..2 * MIB));
    let missing = folder.path().join("none");
    let error = runtime.scratch(&missing).expect_err("no folder").to_string();
    let expect = format!("cannot write spilled data in {}: ", missing.display());
    assert!(error.starts_with(&expect) && error.contains("create the folder"), "{error}");
}

#[test]
fn failed_output_leaves_no_files() {
    let (folder, runtime) = (folder(), runtime());
    let target = folder.path().join("out.parquet");
    let output = Output::create(&runtime, &target).expect("created");
    let write = output.write_monotask(vec![Bytes::from(pattern(0..MIB))], vec![]);
    drop(output);
    let fails = Monotask::new(&runtime.cores(), Phase::Compute, vec![0], 0, |_| Err("corrupt".into()));
    run(&runtime, vec![write, fails]).0.expect_err("it fails");
    assert_eq!(fs::read_dir(folder.path()).expect("it exists").count(), 0);
    let refused = Output::create(&runtime, &folder.path().join("no/such/x.csv")).err().expect("refused");
    assert!(refused.to_string().contains("create its folder first"), "{refused}");
    let refused = Output::create(&runtime, folder.path()).err().expect("refused");
    assert!(refused.to_string().contains("is a folder"), "{refused}");
}

#[test]
fn output_keeps_mode_and_link_and_refuses_a_device() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    let (folder, runtime) = (folder(), runtime());
    let (real, link) = (folder.path().join("real.csv"), folder.path().join("link.csv"));
    fs::write(&real, "old").expect("written");
    fs::set_permissions(&real, fs::Permissions::from_mode(0o600)).expect("set");
    symlink("real.csv", &link).expect("linked");
    let output = Output::create(&runtime, &link).expect("created");
    let write = output.write_monotask(vec![Bytes::from_static(b"new")], vec![]);
    let publish = output.publish_monotask(vec![0]);
    run(&runtime, vec![write, publish]).0.expect("it succeeds");
    assert!(fs::symlink_metadata(&link).expect("it exists").is_symlink());
    assert_eq!(fs::read(&real).expect("it exists"), b"new");
    assert_eq!(fs::metadata(&real).expect("it exists").mode() & 0o777, 0o600);
    let refused = Output::create(&runtime, Path::new("/dev/null")).err().expect("refused");
    assert!(refused.to_string().contains("it is a device or a pipe; name a file"), "{refused}");
}

/// Mounts a file system of 1 MiB in a private mount namespace of this thread.
#[test]
fn full_disk_error_names_path_and_remedy() {
    let (folder, runtime) = (folder(), runtime());
    let full = std::ffi::CString::new(folder.path().to_str().expect("text")).expect("no zero");
    let private = || unsafe {
        let none = std::ptr::null();
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()) == 0
            && libc::mount(c"none".as_ptr(), full.as_ptr(), c"tmpfs".as_ptr(), 0, c"size=1m".as_ptr().cast())
                == 0
    };
    if !private() {
        return eprintln!("skipped: cannot create a mount namespace: {}", io::Error::last_os_error());
    }
    let target = folder.path().join("out.csv");
    let output = Output::create(&runtime, &target).expect("created");
    let write = output.write_monotask(vec![Bytes::from(pattern(0..4 * MIB))], vec![]);
    let error = run(&runtime, vec![write]).0.expect_err("full").to_string();
    assert!(error.contains("out.csv") && error.contains("free some space"), "{error}");
    assert!(output.publish().is_err());
    drop(output);
    assert_eq!(fs::read_dir(folder.path()).expect("it exists").count(), 0);
    assert_eq!(runtime.disk_of(&target).expect("it exists").name(), "tmpfs");
}
