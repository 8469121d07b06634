//! Options of a runtime, and resources other than disks.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use common::{Task, checked_trace, recorder, runtime};
use pellucid_runtime::{Done, Monotask, Options, Phase, Runtime};
use pellucid_trace::kind;

#[test]
fn invalid_options_are_refused() {
    let check = |options: Options, expect: &str| {
        let error = Runtime::new(options).err().expect("refused").to_string();
        assert!(error.contains(expect), "{error}");
    };
    check(Options { cores: 0, ..Options::default() }, "at least 1");
    let of = |kind: &str, n| Options { concurrency: vec![(kind.into(), n)], ..Options::default() };
    check(of("tape", 1), "'tape'");
    check(of("disk", 0), "disk=0");
    check(Options { network_rate: Some(0), ..Options::default() }, "rate of 0");
}

#[test]
fn chosen_cores_are_recorded_as_set_and_excess_is_labelled() {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let of = |options: Options| {
        let runtime = Runtime::new(options).expect("a runtime");
        let job = runtime.begin("cores", recorder());
        job.succeed();
        job.wait().expect("it succeeds");
        let from = checked_trace(&job).resources[0].capacity_from.clone();
        (from.filter(|from| from != "quota"), runtime.labels())
    };
    let plain = Options::default;
    let set = of(Options { cores_set: true, ..plain() });
    assert!(set.0.is_none_or(|from| from == "set") && set.1.is_empty());
    let (from, labels) = of(Options { cores: available + 1, ..plain() });
    assert!(from.is_none_or(|from| from == "set"));
    assert!(
        labels[0].starts_with(&format!("{} compute threads on {available} core", available + 1)),
        "{labels:?}"
    );
    assert!(of(plain()).0.is_none_or(|from| from == "counted"));
}

#[test]
fn stores_share_one_paced_link() {
    let options = Options { network_rate: Some(5_000_000), ..Options::default() };
    let runtime = Runtime::new(options).expect("a runtime");
    let store = runtime.store("s3://warehouse", Some(9));
    assert_eq!(runtime.store("s3://warehouse", None), store);
    assert_eq!(runtime.labels(), ["network paced at 5 MB/s inside the engine"]);
    assert_eq!(runtime.network_pacer().map(|p| p.bytes_per_s()), Some(5_000_000));
    let job = runtime.begin("stores", recorder());
    job.resource_ix(&runtime.store("s3://other", None)); // as its first monotask would
    job.succeed();
    job.wait().expect("it succeeds");
    let resources = checked_trace(&job).resources;
    let names: Vec<_> = resources.iter().map(|r| (r.kind.as_str(), r.name.as_str(), r.link)).collect();
    assert_eq!(
        names,
        [
            ("cpu", "cores", None),
            ("network", "network", None),
            ("store", "s3://warehouse", Some(1)),
            ("store", "s3://other", Some(1)),
        ]
    );
    assert_eq!((resources[1].capacity, resources[2].capacity), (Some(5e6), Some(9.0)));
}

/// A job gets no credit for idle time before it.
#[test]
fn job_starts_without_credit_on_paced_resources() {
    let options = Options { network_rate: Some(1_000_000), ..Options::default() };
    let runtime = Runtime::new(options).expect("a runtime");
    runtime.store("s3://warehouse", None);
    let pacer = runtime.network_pacer().expect("paced");
    pacer.book(0);
    let job = runtime.begin("fetches", recorder());
    assert_eq!(pacer.book(1_000_000), Duration::from_secs(1));
    job.succeed();
    job.wait().expect("it succeeds");
}

#[test]
fn store_first_used_during_a_job_is_registered_with_its_link() {
    let runtime = runtime();
    let job = runtime.begin("stores", recorder());
    job.resource_ix(&runtime.store("s3://late", None));
    job.succeed();
    job.wait().expect("it succeeds");
    let resources = checked_trace(&job).resources;
    assert_eq!((resources[1].kind.as_str(), resources[2].link), (kind::NETWORK, Some(1)));
}

#[test]
fn fetches_run_on_threads_of_their_store() {
    let runtime = runtime();
    let store = runtime.store("s3://b", None);
    let job = runtime.begin("threads", recorder());
    let stage = job.stage("s", &[], vec![]);
    let (names, all) = channel();
    let left = Arc::new(AtomicU32::new(20));
    for i in 0..20 {
        let (store, names, left, of) = (store.clone(), names.clone(), Arc::clone(&left), job.clone());
        let plan = move || {
            Ok(vec![Monotask::new(&store, Phase::Fetch, vec![], 10, move |_| {
                let name = std::thread::current().name().map(str::to_string);
                names.send(name.unwrap_or_default())?;
                Ok(Done::default())
            })])
        };
        let done = move || {
            if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                of.succeed();
            }
            Ok(())
        };
        job.submit(stage, i, 0, Task::new(plan, done));
    }
    job.wait().expect("it succeeds");
    drop(names);
    let names: Vec<String> = all.try_iter().collect();
    assert_eq!(names.len(), 20);
    assert!(names.iter().all(|n| n.starts_with("store-s3://b-")), "{names:?}");
    let trace = checked_trace(&job);
    assert!(trace.monotasks.iter().all(|m| m.bytes == Some(10) && m.device_bytes.is_none()));
    assert_eq!(job.progress().read_bytes, 200);
}
