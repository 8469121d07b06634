//! Jobs over real processes: the test binary starts itself as a worker.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use pellucid_iterate::simulator::Random;
use pellucid_iterate::{
    Cluster, Dataset, Invitation, JobControl, JobError, Plan, Program, RunOptions, Snapshots, WorkerSettings,
    control, run_sequentially, work,
};
use pellucid_trace::{Recorder, RecorderOptions};
use url::Url;

/// Environment variable with the location of snapshots, for workers.
const PLACE: &str = "PELLUCID_TEST_SNAPSHOTS";

/// Environment variable with the rank of the slow worker.
const SLOW: &str = "PELLUCID_TEST_SLOW";

/// Environment variable that enables tracing in workers.
const TRACED: &str = "PELLUCID_TEST_TRACED";

/// Environment variable with the kind of failure of the kernel.
const FAILS: &str = "PELLUCID_TEST_FAILS";

/// Number of times that this process repeats each task, keeping the last result.
static TIMES: AtomicU32 = AtomicU32::new(1);

struct TestProgram {
    plan: Arc<Plan>,
    data: Dataset<Vec<u64>>,
    model: Dataset<u64>,
}

/// A program with iterations of some milliseconds over data, of which half changes.
fn test_program() -> TestProgram {
    let mut program = Program::new("processes");
    let fixed = program
        .dataset("fixed", 8, |index| Ok((0..2000).map(|n| n ^ u64::from(index)).collect::<Vec<u64>>()));
    let data = program.dataset("data", 8, |index| Ok(vec![u64::from(index); 2000]));
    let model = program.dataset("model", 1, |_| Ok(1u64));
    let (local, total) =
        (program.dataset("local", 8, |_| Ok(0u64)), program.dataset("total", 1, |_| Ok(vec![0u64])));
    program.times("rounds", 150, |body| {
        body.broadcast("model to all", model, local);
        body.transform("mix", (fixed, local), data, |(fixed, model), data| {
            fail_if_requested(data)?;
            let before = data.clone();
            for _ in 0..TIMES.load(Ordering::Relaxed) {
                data.clone_from(&before);
                // Long enough that the job is still running at a kill within the first 270 ms, even on fast cores.
                for _ in 0..2400 {
                    for (data, fixed) in data.iter_mut().zip(fixed) {
                        *data = (data.rotate_left(5) ^ fixed).wrapping_mul(*model | 1);
                    }
                }
            }
            Ok(())
        });
        body.tree_reduce("total", data, total, |sum, next| sum[0] = sum[0].rotate_left(1) ^ next[0]);
        body.transform("step", total, model, |total, model| {
            *model = model.wrapping_mul(7).wrapping_add(total[0]);
            Ok(())
        });
    });
    program.output(data);
    program.output(model);
    TestProgram { plan: program.build().unwrap(), data, model }
}

fn snapshots(place: &Url) -> Snapshots {
    Snapshots { place: place.clone(), every_iterations: 10 }
}

/// Fails in the kernel of partition 7, if the environment requests it.
fn fail_if_requested(data: &[u64]) -> pellucid_iterate::KernelResult {
    static HOW: OnceLock<Option<String>> = OnceLock::new();
    match HOW.get_or_init(|| std::env::var(FAILS).ok()).as_deref() {
        Some("error") if data[0] == 7 => Err("seven is not allowed".into()),
        Some("panic") if data[0] == 7 => panic!("seven"),
        _ => Ok(()),
    }
}

/// Not a test: the entry point of worker processes.
#[test]
fn worker_process() {
    let Some((invitation, rank)) = Invitation::from_environment().expect("a whole invitation") else {
        return;
    };
    let place = std::env::var(PLACE).ok().map(|place| Url::parse(&place).unwrap());
    if std::env::var(SLOW).is_ok_and(|slow| slow == rank.to_string()) {
        TIMES.store(4, Ordering::Relaxed);
    }
    let traced = std::env::var_os(TRACED).is_some();
    let settings = WorkerSettings {
        rank,
        snapshots: place.as_ref().map(snapshots),
        traced,
        ..WorkerSettings::default()
    };
    if let Err(error) = work(test_program().plan, &invitation, &settings) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn worker(invitation: &Invitation, rank: u32) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", "worker_process", "--nocapture"]).stdout(Stdio::null());
    invitation.put_into(&mut command, rank);
    Ok(command)
}

fn start(invitation: &Invitation, rank: u32, place: Option<&Url>) -> std::io::Result<Child> {
    let mut command = worker(invitation, rank)?;
    if let Some(place) = place {
        command.env(PLACE, place.as_str());
    }
    command.spawn()
}

fn options() -> RunOptions {
    RunOptions { wait_limit: Duration::from_secs(20), ..RunOptions::default() }
}

#[test]
fn processes_give_the_result_of_sequential_execution() {
    let program = test_program();
    let expected = run_sequentially(program.plan.clone(), u64::MAX).unwrap();
    for (workers, encrypted) in [(1, false), (2, false), (3, false), (3, true)] {
        let cluster = Cluster { workers, encrypted, ..Cluster::default() };
        let outcome = control(program.plan.clone(), &cluster, options(), |invitation| {
            (0..workers).map(|rank| start(invitation, rank, None)).collect()
        })
        .unwrap();
        assert_eq!(outcome.single(program.model).unwrap(), expected.single(program.model).unwrap());
        assert_eq!(outcome.partitions(program.data).unwrap(), expected.partitions(program.data).unwrap());
        assert_eq!(outcome.iterations, 150);
    }
}

/// Kills one worker per job at a random moment, with and without snapshots and encryption: in four jobs, or in fifty with
/// `PELLUCID_FULL=1`. Snapshots every ten iterations make some kills hit a snapshot being written.
#[test]
fn killed_workers_do_not_change_results() {
    let program = test_program();
    let expected = run_sequentially(program.plan.clone(), u64::MAX).unwrap();
    let kills = if std::env::var("PELLUCID_FULL").is_ok_and(|full| full == "1") { 50 } else { 4 };
    let mut recoveries = 0;
    for seed in 0..kills {
        let mut random = Random::new(seed);
        let folder = tempfile::tempdir().unwrap();
        let place = Url::from_directory_path(folder.path()).unwrap();
        let place = (seed % 4 != 3).then_some(&place);
        let cluster = Cluster { workers: 3, encrypted: seed % 2 == 1, ..Cluster::default() };
        let options = RunOptions { snapshots: place.map(snapshots), ..options() };
        let outcome = control(program.plan.clone(), &cluster, options, |invitation| {
            let children: Vec<Child> =
                (0..3).map(|rank| start(invitation, rank, place)).collect::<Result<_, _>>()?;
            let victim = children[random.below(3) as usize].id();
            let after = Duration::from_millis(20 + random.below(250));
            std::thread::spawn(move || {
                std::thread::sleep(after);
                // The process id cannot be reused, since only the job waits for this child.
                let _ = Command::new("kill").args(["-9", &victim.to_string()]).status();
            });
            Ok(children)
        });
        let outcome = match outcome {
            Err(JobError::WorkerLost { cause, .. }) if cause.contains("before the job began") => continue,
            outcome => outcome.unwrap_or_else(|error| panic!("seed {seed}: {error}")),
        };
        assert_eq!(
            outcome.single(program.model).unwrap(),
            expected.single(program.model).unwrap(),
            "seed {seed}"
        );
        assert_eq!(outcome.partitions(program.data).unwrap(), expected.partitions(program.data).unwrap());
        recoveries += outcome.recoveries;
    }
    assert!(recoveries > 0, "no worker was killed while the job ran; adjust the delays");
}

#[test]
fn trace_contains_tasks_and_messages_of_all_processes() {
    let program = test_program();
    let options = RecorderOptions {
        producer: "iterate".into(),
        producer_version: "0".into(),
        keep: true,
        ..RecorderOptions::default()
    };
    let recorder = Recorder::start(options).unwrap();
    let options = RunOptions { recorder: Some(recorder.clone()), ..self::options() };
    let cluster = Cluster { balances: false, ..Cluster::default() };
    control(program.plan, &cluster, options, |invitation| {
        (0..2).map(|rank| worker(invitation, rank)?.env(TRACED, "1").spawn()).collect()
    })
    .unwrap();
    let trace = recorder.finish().unwrap();
    assert_eq!(trace.check(), Vec::<String>::new());
    let named = |stage: u32| trace.stages[stage as usize].name.as_str();
    // Every long task is recorded.
    let mixed: Vec<_> = trace.sampled_tasks.iter().filter(|task| named(task.stage) == "mix").collect();
    assert_eq!(mixed.iter().map(|task| task.weight).sum::<f64>(), 150.0 * 8.0);
    assert_eq!(mixed.iter().map(|task| task.partition).collect::<BTreeSet<_>>(), (0..8).collect());
    let (begun, ended) = (trace.jobs[0].submitted_ns, trace.job_ends[0].ended_ns);
    assert!(mixed.iter().all(|task| (begun..ended).contains(&task.started_ns)));
    // One machine, whose threads share its cores.
    assert_eq!((trace.machines.len(), trace.resources[0].concurrency), (1, Some(2)));
    // The model is sent to the other process once per iteration, for all of its partitions.
    let sent = trace.exchanges.iter().filter(|sent| named(sent.stage).starts_with("model to all"));
    let (messages, bytes) = sent.fold((0, 0), |all, sent| (all.0 + sent.messages, all.1 + sent.bytes));
    assert_eq!(messages, 150);
    assert!((8 * 150..200 * 150).contains(&bytes), "{bytes}");
}

/// Kills all workers and starts as many again with other ranks.
#[test]
fn restarted_workers_resume_from_the_snapshot() {
    let program = test_program();
    let expected = run_sequentially(program.plan.clone(), u64::MAX).unwrap();
    for snapshot in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let place = Url::from_directory_path(folder.path()).unwrap();
        let place = snapshot.then_some(place);
        let cluster = Cluster { restarts: true, ..Cluster::default() };
        let known = Arc::new(Mutex::new(None));
        let (invited, again) = (known.clone(), place.clone());
        let mut killed = false;
        let progress = move |progress: &pellucid_iterate::Progress| {
            if progress.iteration > 10 && !std::mem::replace(&mut killed, true) {
                let (invitation, children): (Invitation, Vec<u32>) = invited.lock().unwrap().take().unwrap();
                for child in children {
                    let _ = Command::new("kill").args(["-9", &child.to_string()]).status();
                }
                for rank in [10, 11] {
                    // They exit with the job.
                    drop(start(&invitation, rank, again.as_ref()).unwrap());
                }
            }
        };
        let options = RunOptions {
            snapshots: place.as_ref().map(snapshots),
            progress: Some(Box::new(progress)),
            ..options()
        };
        let outcome = control(program.plan.clone(), &cluster, options, |invitation| {
            let children: Vec<Child> =
                (0..2).map(|rank| start(invitation, rank, place.as_ref())).collect::<Result<_, _>>()?;
            *known.lock().unwrap() = Some((invitation.clone(), children.iter().map(Child::id).collect()));
            Ok(children)
        })
        .unwrap();
        assert_eq!(outcome.single(program.model).unwrap(), expected.single(program.model).unwrap());
        assert_eq!(outcome.partitions(program.data).unwrap(), expected.partitions(program.data).unwrap());
        assert!(outcome.recoveries > 0);
    }
}

#[test]
fn launcher_failure_fails_the_job() {
    let control_handle = JobControl::default();
    let launcher = control_handle.clone();
    let options = RunOptions { control: Some(control_handle), ..options() };
    let outcome = control(test_program().plan, &Cluster::default(), options, |_| {
        launcher.fail(JobError::Connection { peer: "launcher".into(), cause: "no machine is left".into() });
        Ok(Vec::new())
    });
    assert_eq!(outcome.unwrap_err().to_string(), "launcher: no machine is left");
}

#[test]
fn leaving_worker_hands_over_its_partitions() {
    let program = test_program();
    let expected = run_sequentially(program.plan.clone(), u64::MAX).unwrap();
    let control_handle = JobControl::default();
    let leaves = control_handle.clone();
    let mut left = false;
    let progress = move |progress: &pellucid_iterate::Progress| {
        if progress.iteration > 0 && !std::mem::replace(&mut left, true) {
            leaves.leave(1);
        }
    };
    let options =
        RunOptions { control: Some(control_handle), progress: Some(Box::new(progress)), ..options() };
    let cluster = Cluster { workers: 3, balances: false, ..Cluster::default() };
    let outcome = control(program.plan.clone(), &cluster, options, |invitation| {
        (0..3).map(|rank| start(invitation, rank, None)).collect()
    })
    .unwrap();
    assert_eq!(outcome.partitions(program.data).unwrap(), expected.partitions(program.data).unwrap());
    assert_eq!(outcome.recoveries, 0);
    // Two or three of the eight bundles, in each group with eight.
    assert!(outcome.migrations >= 2, "{}", outcome.migrations);
}

#[test]
fn partitions_move_away_from_a_slow_worker() {
    let program = test_program();
    let expected = run_sequentially(program.plan.clone(), u64::MAX).unwrap();
    let outcome = control(program.plan.clone(), &Cluster::default(), options(), |invitation| {
        (0..2).map(|rank| worker(invitation, rank)?.env(SLOW, "1").spawn()).collect()
    })
    .unwrap();
    assert_eq!(outcome.single(program.model).unwrap(), expected.single(program.model).unwrap());
    assert_eq!(outcome.partitions(program.data).unwrap(), expected.partitions(program.data).unwrap());
    assert!(outcome.migrations > 0, "nothing moved");
}

#[test]
fn kernel_failure_in_a_worker_process_is_reported_and_ends_all_processes() {
    for (how, expected) in [("error", "seven is not allowed"), ("panic", "the kernel panicked: seven")] {
        let mut ids = Vec::new();
        let outcome = control(test_program().plan, &Cluster::default(), options(), |invitation| {
            let start = |rank| worker(invitation, rank)?.env(FAILS, how).spawn();
            let children: Vec<Child> = (0..2).map(start).collect::<Result<_, _>>()?;
            ids.extend(children.iter().map(Child::id));
            Ok(children)
        });
        assert_eq!(outcome.unwrap_err().to_string(), format!(r#"stage "mix", partition 7: {expected}"#));
        for id in ids {
            // The job waited for them, so they are not even zombies.
            assert!(!std::path::Path::new(&format!("/proc/{id}")).exists(), "process {id} still exists");
        }
    }
}

/// Stops a worker, like a machine that hangs: it sends nothing, but its connections stay open.
#[test]
fn hanging_worker_is_dropped_and_the_job_continues() {
    let program = test_program();
    let expected = run_sequentially(program.plan.clone(), u64::MAX).unwrap();
    let known = Arc::new(Mutex::new(None));
    let hangs = known.clone();
    let progress = move |progress: &pellucid_iterate::Progress| {
        if progress.iteration > 0
            && let Some(child) = hangs.lock().unwrap().take()
        {
            let _ = Command::new("kill").args(["-STOP", &format!("{child}")]).status();
        }
    };
    let options = RunOptions {
        wait_limit: Duration::from_secs(2),
        progress: Some(Box::new(progress)),
        ..RunOptions::default()
    };
    let outcome = control(program.plan.clone(), &Cluster::default(), options, |invitation| {
        let children: Vec<Child> =
            (0..2).map(|rank| start(invitation, rank, None)).collect::<Result<_, _>>()?;
        *known.lock().unwrap() = Some(children[1].id());
        Ok(children)
    })
    .unwrap();
    assert_eq!(outcome.partitions(program.data).unwrap(), expected.partitions(program.data).unwrap());
    assert_eq!(outcome.recoveries, 1);
}

#[test]
fn peer_of_another_version_is_reported() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let controller = listener.local_addr().unwrap().to_string();
    let later = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"PLCDITR9 and the rest of a later version").unwrap();
        // Wait until the other end closes the connection.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let invitation = Invitation { controller, secret: "the secret of another job".into(), encrypted: false };
    let error = work(test_program().plan, &invitation, &WorkerSettings::default()).unwrap_err();
    assert!(error.to_string().contains("another version"), "{error}");
    later.join().unwrap();
}

#[test]
fn worker_with_wrong_secret_is_rejected() {
    let program = test_program();
    let cluster = Cluster { workers: 1, ..Cluster::default() };
    let error = Arc::new(Mutex::new(None));
    let reported = error.clone();
    let plan = program.plan.clone();
    let limit = RunOptions { wait_limit: Duration::from_secs(1), ..RunOptions::default() };
    let outcome = control(program.plan, &cluster, limit, move |invitation| {
        let wrong = Invitation { secret: "a guess of enough length".into(), ..invitation.clone() };
        *reported.lock().unwrap() = work(plan, &wrong, &WorkerSettings::default()).err();
        Ok(Vec::new())
    });
    let text = error.lock().unwrap().take().unwrap().to_string();
    assert!(text.contains("secret"), "{text}");
    let text = outcome.unwrap_err().to_string();
    assert!(text.contains("for workers to connect"), "{text}");
}

#[test]
fn short_secret_is_refused_on_both_sides() {
    let plan = test_program().plan;
    let cluster = Cluster { secret: Some("spark123".into()), ..Cluster::default() };
    let error = control(plan.clone(), &cluster, options(), |_| Ok(Vec::new())).unwrap_err().to_string();
    assert!(error.contains("openssl rand -hex 32"), "{error}");
    let invitation =
        Invitation { controller: "127.0.0.1:1".into(), secret: "spark123".into(), encrypted: false };
    let error = work(plan, &invitation, &WorkerSettings::default()).unwrap_err().to_string();
    assert!(error.contains("openssl rand -hex 32"), "{error}");
}

#[test]
fn peer_with_another_program_is_rejected() {
    let program = test_program();
    let mut other = Program::new("another");
    let one = other.dataset("one", 1, |_| Ok(0u64));
    other.transform("nothing", one, (), |_, ()| Ok(()));
    let other = other.build().unwrap();
    let cluster = Cluster { workers: 1, ..Cluster::default() };
    let limit = RunOptions { wait_limit: Duration::from_secs(1), ..RunOptions::default() };
    let error = Arc::new(Mutex::new(None));
    let reported = error.clone();
    let _ = control(program.plan, &cluster, limit, move |invitation| {
        *reported.lock().unwrap() = work(other, invitation, &WorkerSettings::default()).err();
        Ok(Vec::new())
    });
    let text = error.lock().unwrap().take().unwrap().to_string();
    assert!(text.contains("another program"), "{text}");
}

#[test]
fn unknown_client_is_dropped_and_the_job_continues() {
    let program = test_program();
    let expected = run_sequentially(program.plan.clone(), u64::MAX).unwrap();
    let cluster = Cluster { workers: 1, ..Cluster::default() };
    let outcome = control(program.plan.clone(), &cluster, options(), |invitation| {
        let mut stranger = std::net::TcpStream::connect(&invitation.controller)?;
        stranger.write_all(b"GET / HTTP/1.1\r\n\r\n")?;
        // Another client sends nothing.
        std::mem::forget(std::net::TcpStream::connect(&invitation.controller)?);
        Ok(vec![start(invitation, 0, None)?])
    })
    .unwrap();
    assert_eq!(outcome.single(program.model).unwrap(), expected.single(program.model).unwrap());
}

#[test]
fn unwritable_snapshot_location_fails_the_job() {
    let program = test_program();
    let (kept, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let run = |place: &Url| {
        let options = RunOptions { snapshots: Some(snapshots(place)), threads: 1, ..options() };
        pellucid_iterate::run(program.plan.clone(), options)
    };
    run(&Url::from_directory_path(kept.path()).unwrap()).unwrap();
    let job = std::fs::read_dir(kept.path()).unwrap().next().unwrap().unwrap().file_name();
    // A file in place of the partitions' folder makes writes fail.
    std::fs::create_dir(folder.path().join(&job)).unwrap();
    std::fs::write(folder.path().join(&job).join("partitions"), b"").unwrap();
    let place = Url::from_directory_path(folder.path()).unwrap();
    let error = run(&place).unwrap_err();
    let JobError::Snapshot { place: named, .. } = &error else { panic!("{error}") };
    assert_eq!(*named, place.to_string());
}
