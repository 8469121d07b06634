//! Snapshots in local folders: damage, leftovers, and locations that cannot be used.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use pellucid_iterate::{Dataset, JobError, Outcome, Plan, Program, RunOptions, Snapshots, run};
use url::Url;

struct TestProgram {
    plan: Arc<Plan>,
    data: Dataset<Vec<u64>>,
    model: Dataset<Vec<u64>>,
}

impl TestProgram {
    /// Creates a job of 25 iterations. With a location, iterations 12 and 22 wait until the manifest there has one
    /// and two snapshots.
    fn new(waits_for: Option<PathBuf>) -> Self {
        let mut program = Program::new("snapshots");
        let fixed = program.dataset("fixed", 4, |index| Ok(vec![u64::from(index) * 77; 50]));
        let data = program.dataset("data", 4, |index| Ok(vec![u64::from(index); 50]));
        let model = program.dataset("model", 1, |_| Ok(vec![0u64, 1]));
        let local = program.dataset("local", 4, |_| Ok(vec![0u64; 2]));
        let total = program.dataset("total", 1, |_| Ok(vec![0u64]));
        program.repeat("rounds", |body| {
            // The signal depends on the model, so that no iteration starts before the last has ended.
            body.while_signal("again", model, |model| model[0] < 25);
            body.broadcast("model to all", model, local);
            body.transform("mix", (fixed, local), data, |(fixed, model), data| {
                for (data, fixed) in data.iter_mut().zip(fixed) {
                    *data = (data.rotate_left(5) ^ fixed).wrapping_mul(model[1] | 1);
                }
                Ok(())
            });
            body.tree_reduce("total", data, total, |sum, next| sum[0] = sum[0].rotate_left(1) ^ next[0]);
            let waits_for = waits_for.clone();
            body.transform("step", total, model, move |total, model| {
                *model = vec![model[0] + 1, model[1].wrapping_mul(7).wrapping_add(total[0])];
                match (&waits_for, model[0]) {
                    (Some(place), 12) => wait_for(place, 1),
                    (Some(place), 22) => wait_for(place, 2),
                    _ => {}
                }
                Ok(())
            });
        });
        program.output(data);
        program.output(model);
        Self { plan: program.build().unwrap(), data, model }
    }

    fn contents(&self, outcome: &Outcome) -> (Vec<Vec<u64>>, Vec<u64>) {
        (outcome.partitions(self.data).unwrap(), outcome.single(self.model).unwrap())
    }
}

/// Waits until the only manifest below a folder has a number of snapshots.
fn wait_for(place: &Path, snapshots: usize) {
    let until = Instant::now() + Duration::from_secs(20);
    let count = || {
        let job = fs::read_dir(place).ok()?.next()?.ok()?.path();
        Some(fs::read_to_string(job.join("manifest.json")).ok()?.lines().count())
    };
    while count().unwrap_or(0) < snapshots {
        assert!(Instant::now() < until, "no snapshot {snapshots} in {}", place.display());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn options(place: &Path) -> RunOptions {
    let place = Url::from_directory_path(place).unwrap();
    let snapshots = Some(Snapshots { place, every_iterations: 5 });
    RunOptions { threads: 2, snapshots, wait_limit: Duration::from_secs(20), ..RunOptions::default() }
}

/// The snapshots of a whole run, with their iterations and the result of the run.
struct Kept {
    folder: tempfile::TempDir,
    iterations: Vec<u64>,
    result: (Vec<Vec<u64>>, Vec<u64>),
}

static KEPT: LazyLock<Kept> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let program = TestProgram::new(Some(folder.path().to_path_buf()));
    let outcome = run(program.plan.clone(), options(folder.path())).unwrap();
    let manifest = fs::read_to_string(job(folder.path()).join("manifest.json")).unwrap();
    let iteration = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["snapshot"]["iteration"].as_u64().unwrap()
    };
    let iterations = manifest.lines().map(iteration).collect();
    Kept { folder, iterations, result: program.contents(&outcome) }
});

/// Returns the folder of the only job below a location.
fn job(place: &Path) -> PathBuf {
    fs::read_dir(place).unwrap().next().unwrap().unwrap().path()
}

/// Returns the files of partitions below a location, by name.
fn parts(place: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(job(place).join("partitions")).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

/// Copies the kept snapshots to a new location.
fn copy() -> tempfile::TempDir {
    let (from, copy) = (job(KEPT.folder.path()), tempfile::tempdir().unwrap());
    let to = copy.path().join(from.file_name().unwrap());
    fs::create_dir_all(to.join("partitions")).unwrap();
    fs::copy(from.join("manifest.json"), to.join("manifest.json")).unwrap();
    for part in parts(KEPT.folder.path()) {
        fs::copy(&part, to.join("partitions").join(part.file_name().unwrap())).unwrap();
    }
    copy
}

/// Resumes from damaged snapshots, compares the result with that of an undisturbed run, and returns the iteration
/// from which it resumed.
fn resume(place: &Path, damage: &str) -> Option<u64> {
    let program = TestProgram::new(None);
    let outcome =
        run(program.plan.clone(), options(place)).unwrap_or_else(|error| panic!("{damage}: {error}"));
    assert!(program.contents(&outcome) == KEPT.result, "{damage}: another result");
    outcome.resumed_at
}

fn flip(file: &Path, bit: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[bit / 8] ^= 1 << (bit % 8);
    fs::write(file, bytes).unwrap();
}

#[test]
fn two_snapshots_and_nothing_else_are_kept() {
    let [newest, previous] = KEPT.iterations[..] else { panic!("{:?}", KEPT.iterations) };
    assert!(newest > previous, "{newest}, {previous}");
    // Every iteration changes dataset 1, so each snapshot has its own version.
    let names: Vec<_> = parts(KEPT.folder.path()).iter().map(|p| p.file_name().unwrap().to_owned()).collect();
    // The job may have ended while a third was being written; the next run removes its parts.
    let epochs = names.iter().filter_map(|name| name.to_str()?.strip_prefix("1-0-")?.parse::<u64>().ok());
    assert_eq!(epochs.filter(|&epoch| epoch <= newest).count(), 2, "{names:?}");
    assert!(names.iter().all(|name| !name.to_string_lossy().starts_with('.')), "{names:?}");
    assert_eq!(resume(copy().path(), "no damage"), Some(newest));
}

#[test]
fn damaged_part_falls_back_to_the_previous_snapshot_or_the_start() {
    let [newest, previous] = KEPT.iterations[..] else { panic!("{:?}", KEPT.iterations) };
    let count = parts(KEPT.folder.path()).len();
    let mut resumed = Vec::new();
    for at in 0..count {
        let place = copy();
        let part = &parts(place.path())[at];
        flip(part, at * 7 % (fs::metadata(part).unwrap().len() as usize * 8));
        resumed.push(resume(place.path(), &part.display().to_string()));
    }
    assert!(resumed.contains(&Some(previous)), "{resumed:?}");
    assert!(resumed.iter().all(|at| [Some(newest), Some(previous), None].contains(at)), "{resumed:?}");
    // Both snapshots have a damaged or missing part.
    for damage in ["a flipped bit", "an empty file", "a missing file"] {
        let place = copy();
        for part in parts(place.path()) {
            match damage {
                "a flipped bit" => flip(&part, 3),
                "an empty file" => fs::write(part, b"").unwrap(),
                _ => fs::remove_file(part).unwrap(),
            }
        }
        assert_eq!(resume(place.path(), damage), None, "{damage}");
    }
}

#[test]
fn damaged_manifest_falls_back_to_the_previous_snapshot_or_the_start() {
    let [newest, previous] = KEPT.iterations[..] else { panic!("{:?}", KEPT.iterations) };
    let manifest = |place: &Path| job(place).join("manifest.json");
    let length = fs::metadata(manifest(KEPT.folder.path())).unwrap().len() as usize;
    let mut resumed = Vec::new();
    for bit in (5..length * 8).step_by(length * 8 / 40) {
        let place = copy();
        flip(&manifest(place.path()), bit);
        resumed.push(resume(place.path(), &format!("bit {bit}")));
    }
    assert!(resumed.contains(&Some(previous)) && resumed.contains(&Some(newest)), "{resumed:?}");
    for (damage, content) in [("empty", vec![]), ("zeros", vec![0; length]), ("text", b"none\n\n".to_vec())] {
        let place = copy();
        fs::write(manifest(place.path()), content).unwrap();
        assert_eq!(resume(place.path(), damage), None, "{damage}");
    }
}

#[test]
fn manifest_of_another_format_is_refused_with_folder_and_version() {
    let place = copy();
    let first = r#"{"position":{"epoch":5,"statement":1},"iteration":5,"saved":[]}"#;
    fs::write(job(place.path()).join("manifest.json"), first).unwrap();
    let error = run(TestProgram::new(None).plan, options(place.path())).unwrap_err();
    let JobError::SnapshotPlace { place: named, cause } = &error else { panic!("{error}") };
    assert!(named.ends_with(&*job(place.path()).to_string_lossy()), "{error}");
    assert!(cause.contains("format 1") && cause.contains("choose another location"), "{error}");
    // The snapshots are still there, for the version that wrote them.
    assert_eq!(parts(place.path()).len(), parts(KEPT.folder.path()).len());
}

#[test]
fn files_of_an_unfinished_snapshot_are_removed() {
    let place = copy();
    let folder = job(place.path()).join("partitions");
    let left = ["1-0-00000000000000000099", ".1-0-00000000000000000099.7-1.partial"];
    left.iter().for_each(|name| fs::write(folder.join(name), b"left").unwrap());
    assert_eq!(resume(place.path(), "leftovers"), Some(KEPT.iterations[0]));
    left.iter().for_each(|name| assert!(!folder.join(name).exists(), "{name} is still there"));
}

#[test]
fn second_job_in_a_locked_folder_is_refused() {
    let place = copy();
    let lock = fs::File::create(job(place.path()).join("lock")).unwrap();
    lock.lock().unwrap();
    let error = run(TestProgram::new(None).plan, options(place.path())).unwrap_err();
    let JobError::SnapshotPlace { place: named, cause } = &error else { panic!("{error}") };
    assert!(named.ends_with(&*job(place.path()).to_string_lossy()), "{error}");
    assert!(cause.contains("another process is running this job"), "{error}");
    drop(lock);
    assert_eq!(resume(place.path(), "after the lock"), Some(KEPT.iterations[0]));
}

#[test]
fn unwritable_location_is_refused_before_the_first_task() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), b"").unwrap();
    let mut program = Program::new("unwritable");
    let started = Arc::new(AtomicUsize::new(0));
    let count = started.clone();
    let one = program.dataset("one", 1, |_| Ok(0u64));
    program.times("rounds", 2, |body| {
        body.transform("count", (), one, move |(), _| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
    });
    let options = options(&folder.path().join("file").join("snapshots"));
    let error = run(program.build().unwrap(), options).unwrap_err();
    assert!(matches!(error, JobError::Snapshot { .. }), "{error}");
    assert!(error.to_string().contains("file/snapshots"), "{error}");
    assert_eq!(started.load(Ordering::Relaxed), 0);
}
