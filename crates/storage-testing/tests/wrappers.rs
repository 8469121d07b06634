//! The conformance suite on every wrapper, and every fault on a virtual clock. A call must return the
//! correct result or a clear error; it must never return a wrong result or hang.

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use pellucid_storage::clock::{Clock, Live};
use pellucid_storage::errors::{MappedErrors, Secrets};
use pellucid_storage::retry::{Limits, Retrying};
use pellucid_storage_testing::Virtual;
use pellucid_storage_testing::conformance::{check, check_failing, content};
use pellucid_storage_testing::count::Count;
use pellucid_storage_testing::fault::{ALL, Fault, Faults, transient};
use pellucid_storage_testing::pace::Pace;
use pellucid_storage_testing::wrap::Wrapped;
use pellucid_trace::Operation;

fn memory() -> Store {
    Arc::new(InMemory::new())
}

type Store = Arc<dyn ObjectStore>;
type Result<T> = object_store::Result<T>;

/// Returns a store without wrappers, in each wrapper, and in all of them.
fn every_wrapper(inner: &Store, clock: &Arc<dyn Clock>) -> Vec<(&'static str, Store)> {
    let inner = || Arc::clone(inner);
    let no_faults = Faults::new(clock.clone(), 1, &[]);
    let all: Store = Wrapped::new(inner(), Count::default());
    let all: Store = Wrapped::new(all, Pace::new(clock.clone(), 1e9, 10));
    let all: Store = Retrying::new(all, clock.clone(), Limits::default(), 1);
    vec![
        ("bare", inner()),
        ("pace", Wrapped::new(inner(), Pace::new(clock.clone(), 1e9, 100_000))),
        ("count", Wrapped::new(inner(), Count::default())),
        ("secrets", MappedErrors::new(inner(), Secrets::new(["secret".to_string()]))),
        ("no faults", Wrapped::new(inner(), no_faults)),
        ("retry", Retrying::new(inner(), clock.clone(), Limits::default(), 1)),
        ("all of them", all),
    ]
}

/// Returns retrying stores over stores with faults, for several fault rates.
fn every_rate(inner: &Store, clock: &Arc<dyn Clock>, limits: Limits, faults: &[Fault]) -> Vec<(u64, Store)> {
    let failing = |every| {
        let failing = Wrapped::new(Arc::clone(inner), Faults::new(clock.clone(), every, faults));
        let repeating: Store = Retrying::new(failing, clock.clone(), limits, 1);
        (every, repeating)
    };
    [3, 4, 5, 7, 11, 23].map(failing).to_vec()
}

#[test]
fn memory_store_conforms_in_every_wrapper() {
    let virtual_clock = Arc::new(Virtual::default());
    let (clock, at): (Arc<dyn Clock>, _) = (virtual_clock.clone(), Path::from("folder"));
    let inner = memory();
    for (name, store) in every_wrapper(&inner, &clock) {
        let wrong = virtual_clock.run(check(&*store, &at)).unwrap_or_else(|h| panic!("{name}: {h:?}"));
        assert!(wrong.is_empty(), "{name}: {wrong:#?}");
    }
    for (every, store) in every_rate(&inner, &clock, Limits::default(), &transient()) {
        let wrong =
            virtual_clock.run(check_failing(&*store, &at)).unwrap_or_else(|h| panic!("{every}: {h:?}"));
        assert!(wrong.is_empty(), "one in {every} fails: {wrong:#?}");
    }
}

#[tokio::test]
async fn local_store_conforms_in_every_wrapper() {
    let folder = tempfile::tempdir().unwrap();
    let (at, clock): (_, Arc<dyn Clock>) =
        (Path::from_absolute_path(folder.path()).unwrap(), Arc::new(Live::default()));
    let local: Store = Arc::new(pellucid_storage::LocalStore::default());
    for (name, store) in every_wrapper(&local, &clock) {
        assert_eq!(check(&*store, &at).await, Vec::<String>::new(), "{name}");
    }
    // The clock is real, so waits are brief and nothing stalls.
    let limits = Limits { pause_ns: 10_000, ..Limits::default() };
    let brief = |fault| match fault {
        Fault::Stalled => None,
        Fault::Slow(_) => Some(Fault::Slow(1_000_000)),
        Fault::Throttled(_) => Some(Fault::Throttled(1_000_000)),
        fault => Some(fault),
    };
    let faults: Vec<Fault> = transient().into_iter().filter_map(brief).collect();
    for (every, store) in every_rate(&local, &clock, limits, &faults) {
        assert_eq!(check_failing(&*store, &at).await, Vec::<String>::new(), "one in {every} fails");
    }
    let counted = Wrapped::new(local, Count::default());
    assert_eq!(check(&*counted, &at).await, Vec::<String>::new());
    assert!(counted.interceptor().read_bytes() > 10_000_000, "{:?}", counted.interceptor());
    assert!(counted.interceptor().calls(Operation::Commit) == 1 && counted.interceptor().failed() > 0);
    // A retried copy is a second link to the same file, and renaming one onto the other does nothing (rename(2)), so
    // object_store's temporary name remains.
    let of_a_copy = folder.path().join("copies_and_renames");
    let mut left = local_files(folder.path());
    left.retain(|file| !file.starts_with(&of_a_copy));
    assert!(left.is_empty(), "{left:?}");
}

/// Returns every file below a folder, including those that listings omit.
fn local_files(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    let (folders, mut files): (Vec<_>, Vec<_>) = entries.into_iter().partition(|path| path.is_dir());
    files.extend(folders.iter().flat_map(|folder| local_files(folder)));
    files
}

fn faulty(
    clock: &Arc<Virtual>,
    inner: Arc<dyn ObjectStore>,
    every: u64,
    faults: &[Fault],
) -> Arc<dyn ObjectStore> {
    let faulty = Wrapped::new(inner, Faults::new(clock.clone() as Arc<dyn Clock>, every, faults));
    Retrying::new(faulty, clock.clone(), Limits::default(), 1)
}

#[test]
fn transient_faults_are_retried() {
    for every in 2..20 {
        let clock = Arc::new(Virtual::default());
        let inner = memory();
        let store = faulty(&clock, Arc::clone(&inner), every, &transient());
        let (at, to) = (Path::from("a/b"), Path::from("a/c"));
        for seed in 0..40 {
            let content = content(seed, 10_000 + seed as usize);
            let round = async {
                store.put(&at, content.clone().into()).await?;
                store.copy(&at, &to).await?;
                let read = store.get(&to).await?.bytes().await?;
                let ranges = store.get_ranges(&to, &[7..99, 5_000..5_001]).await?;
                let listed: Vec<_> = store.list(Some(&Path::from("a"))).try_collect().await?;
                store.delete(&to).await?;
                Ok::<_, Error>((read, ranges, listed.len()))
            };
            let (read, ranges, listed) = clock.run(round).unwrap().unwrap();
            assert!(read == content && ranges[0] == content[7..99] && ranges[1] == content[5_000..5_001]);
            assert_eq!(listed, 2, "every {every}, seed {seed}");
            assert!(clock.run(inner.head(&to)).unwrap().is_err());
        }
    }
}

/// Returns the error of a call that fails with `fault` in every attempt.
fn cause(fault: Fault, has_body: bool) -> &'static str {
    match fault {
        Fault::Refused => "500 Internal Server Error (after 5 attempts)",
        Fault::Throttled(_) => "503 Service Unavailable, retry after 3 s (after 5 attempts)",
        Fault::Expired => "the token has expired",
        Fault::Stalled => "no response within 60 s",
        Fault::Slow(_) => "never",
        // A call without a body loses its response instead.
        _ if !has_body => "connection closed before the response (after 5 attempts)",
        Fault::Lost | Fault::Reset => "connection reset by peer (after 5 attempts)",
        Fault::Truncated => "bytes early (after 5 attempts)",
        Fault::TooLong => "the response is longer than the requested range",
        Fault::WrongRange => "requested bytes 0..10000 but received 1..10001 (after 5 attempts)",
    }
}

#[test]
fn every_fault_ends_with_the_right_result_or_its_error_in_bounded_time() {
    for fault in ALL {
        for every in [1, 2, 3] {
            let clock = Arc::new(Virtual::default());
            let inner = memory();
            let (at, gone) = (Path::from("folder/a"), Path::from("folder/b"));
            let content = content(1, 10_000);
            let store = faulty(&clock, Arc::clone(&inner), every, &[fault]);
            for _ in 0..5 {
                for place in [&at, &gone] {
                    clock.run(inner.put(place, content.clone().into())).unwrap().unwrap();
                }
                let check = |what: &str, ended: Result<bool>, begun: u64| {
                    let here = format!("{what}, {fault:?}, every {every}");
                    match ended {
                        Ok(right) => assert!(right, "{here}: wrong result"),
                        Err(error) => {
                            let words = error.to_string();
                            assert!(words.contains(cause(fault, what == "get")), "{here}: {words}");
                        }
                    }
                    let minutes = (clock.now_ns() - begun) / 60_000_000_000;
                    assert!(minutes < 11, "{here}: took {minutes} minutes");
                };
                macro_rules! ends {
                    ($what:literal, $call:expr) => {{
                        let begun = clock.now_ns();
                        let ended = clock
                            .run(async { $call })
                            .unwrap_or_else(|h| panic!("{}, {fault:?}: {h:?}", $what));
                        let always = every == 1 && !matches!(fault, Fault::Slow(_));
                        assert!(ended.is_err() || !always, "{}, {fault:?}: succeeded", $what);
                        check($what, ended, begun);
                    }};
                }
                ends!("put", store.put(&at, content.clone().into()).await.map(|_| true));
                ends!("get", Ok(store.get(&at).await?.bytes().await? == content));
                ends!("head", Ok(store.head(&at).await?.size == 10_000));
                ends!("list", {
                    let listed: Vec<_> = store.list(Some(&Path::from("folder"))).try_collect().await?;
                    Ok(listed.len() == 2)
                });
                ends!("delete", {
                    store.delete(&gone).await?;
                    Ok(inner.head(&gone).await.is_err())
                });
            }
        }
    }
}

#[test]
fn upload_with_faults_is_complete_or_fails_without_an_object() {
    let (mut whole, mut failed) = (0, 0);
    for fault in ALL {
        for every in 1..8 {
            let clock = Arc::new(Virtual::default());
            let (inner, at, content) = (memory(), Path::from("a"), content(every, 40_000));
            let store = faulty(&clock, Arc::clone(&inner), every, &[fault]);
            let uploaded = clock.run(async {
                let mut upload = store.put_multipart(&at).await?;
                let sent = async {
                    let parts = (0..4).map(|i| content.slice(10_000 * i..10_000 * (i + 1)));
                    let parts: Vec<_> = parts.map(|part| upload.put_part(part.into())).collect();
                    futures::future::try_join_all(parts).await?;
                    upload.complete().await
                };
                let sent = sent.await;
                if sent.is_err() {
                    upload.abort().await.expect("abort succeeds");
                }
                sent
            });
            let seen = clock.run(async { inner.get(&at).await?.bytes().await }).unwrap();
            let here = format!("{fault:?}, every {every}");
            match uploaded.unwrap_or_else(|h| panic!("{here}: {h:?}")) {
                Ok(_) => {
                    whole += 1;
                    assert!(seen.is_ok_and(|bytes| bytes == content), "{here}: different bytes");
                }
                Err(error) => {
                    failed += 1;
                    // Parts and the completion are not retried.
                    let words = error.to_string();
                    let once = cause(fault, false).trim_end_matches(" (after 5 attempts)");
                    assert!(words.contains(once), "{here}: {words}");
                    // If the response of the completion was lost, the object exists and is complete.
                    assert!(seen.map_or(true, |bytes| bytes == content), "{here}: partial object");
                }
            }
        }
    }
    assert!(whole > 10 && failed > 40, "{whole} complete, {failed} failed");
}

#[test]
fn permanent_errors_are_not_retried_and_requested_pauses_are_honoured() {
    let clock = Arc::new(Virtual::default());
    let limits = Limits::default();
    let with = |fault| Wrapped::new(memory(), Faults::new(clock.clone(), 1, &[fault]));
    let expired = with(Fault::Expired);
    let store = Retrying::new(expired.clone(), clock.clone(), limits, 1);
    let error = clock.run(store.get(&Path::from("a"))).unwrap().unwrap_err();
    assert!(matches!(error, Error::Unauthenticated { .. }), "{error}");
    assert_eq!((expired.interceptor().calls(), clock.now_ns()), (1, 0));

    let throttled = with(Fault::Throttled(7_000_000_000));
    let store = Retrying::new(throttled.clone(), clock.clone(), limits, 1);
    let error = clock.run(store.put(&Path::from("a"), "x".into())).unwrap().unwrap_err();
    assert!(error.to_string().contains("after 5 attempts"), "{error}");
    assert_eq!((throttled.interceptor().calls(), clock.now_ns()), (5, 4 * 7_000_000_000));

    let day = with(Fault::Throttled(86_400_000_000_000));
    let store = Retrying::new(day.clone(), clock.clone(), limits, 1);
    assert!(clock.run(store.put(&Path::from("a"), "x".into())).unwrap().is_err());
    assert_eq!(day.interceptor().calls(), 1);
}

#[test]
fn pauses_double_with_jitter() {
    let took = |seed| {
        let clock = Arc::new(Virtual::default());
        let refused = Wrapped::new(memory(), Faults::new(clock.clone(), 1, &[Fault::Refused]));
        let store = Retrying::new(refused, clock.clone(), Limits::default(), seed);
        clock.run(store.put(&Path::from("a"), "x".into())).unwrap().unwrap_err();
        clock.now_ns()
    };
    let all: Vec<u64> = (0..50).map(took).collect();
    // 100, 200, 400 and 800 ms, each shortened by at most half.
    assert!(all.iter().all(|ns| (750_000_000..=1_500_000_000).contains(ns)), "{all:?}");
    let distinct: std::collections::BTreeSet<&u64> = all.iter().collect();
    assert!(distinct.len() > 40, "{all:?}");
    assert_eq!(took(7), took(7));
}

/// A store without version identifiers that takes 10 s to list an entry.
#[derive(Debug)]
struct Bare(Arc<dyn ObjectStore>, Arc<Virtual>);

impl std::fmt::Display for Bare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Bare {
    async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.0.put_opts(at, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(at, options).await
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        let mut result = self.0.get_opts(at, options).await?;
        result.meta.e_tag = None;
        Ok(result)
    }

    fn delete_stream(&self, all: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(all)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let clock = Arc::clone(&self.1);
        let slowly = move |entry| {
            let clock = Arc::clone(&clock);
            async move {
                clock.sleep(10_000_000_000).await;
                entry
            }
        };
        self.0.list(prefix).then(slowly).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }
}

#[test]
fn long_listing_with_progress_does_not_time_out() {
    let clock = Arc::new(Virtual::default());
    let bare = Arc::new(Bare(memory(), clock.clone()));
    let store = Retrying::new(bare, clock.clone(), Limits::default(), 1);
    let listed = clock.run(async {
        for n in 0..50 {
            store.put(&Path::from(format!("a/{n}")), "x".into()).await?;
        }
        store.list(Some(&Path::from("a"))).try_collect::<Vec<_>>().await
    });
    assert_eq!((listed.unwrap().unwrap().len(), clock.now_ns()), (50, 500_000_000_000));
}

#[test]
fn read_of_an_overwritten_object_fails_instead_of_mixing_versions() {
    let clock = Arc::new(Virtual::default());
    let (inner, at) = (memory(), Path::from("a"));
    let bare: Arc<dyn ObjectStore> = Arc::new(Bare(Arc::clone(&inner), clock.clone()));
    // The second call breaks midway.
    let store = faulty(&clock, bare, 2, &[Fault::Reset]);
    let read = clock.run(async {
        inner.put(&at, content(1, 10_000).into()).await?;
        store.head(&at).await?;
        let mut body = store.get(&at).await?.into_stream();
        let first = body.next().await.expect("a first piece")?;
        assert!(first == content(1, 10_000)[..5_000]);
        // The new version has the same length.
        inner.put(&at, content(2, 10_000).into()).await?;
        body.try_collect::<Vec<_>>().await
    });
    let error = read.unwrap().unwrap_err();
    assert!(matches!(error, Error::Precondition { .. }), "{error}");
}
