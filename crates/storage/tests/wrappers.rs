//! The conformance suite through every wrapper, and every fault on a virtual clock: the right
//! answer or a clear error, never a wrong answer, never a hang.

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
use pellucid_storage::clock::{Clock, Virtual};
use pellucid_storage::conformance::{check, content};
use pellucid_storage::retry::{Limits, Retrying};
use pellucid_storage::wrap::Wrapped;
use pellucid_storage::wrap::count::Count;
use pellucid_storage::wrap::fault::{ALL, Fault, Faults};
use pellucid_storage::wrap::limit::Limit;
use pellucid_storage::wrap::pace::Pace;
use pellucid_storage::wrap::secrets::Secrets;
use pellucid_trace::Operation;

fn memory() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

/// The suite on a store that needs no clock but `clock`.
fn conforms(name: &str, clock: &Virtual, store: Arc<dyn ObjectStore>) {
    let wrong = clock.run(check(&*store, &Path::from("folder"))).unwrap_or_else(|h| panic!("{name}: {h:?}"));
    assert!(wrong.is_empty(), "{name}: {wrong:#?}");
}

#[test]
fn every_wrapper_conforms() {
    let clock = Arc::new(Virtual::default());
    let faults = |every| Faults::new(clock.clone(), every, &[]);
    conforms("memory", &clock, memory());
    conforms("limit", &clock, Wrapped::new(memory(), Limit::new(3)));
    conforms("pace", &clock, Wrapped::new(memory(), Pace::new(clock.clone(), 1e6, 1_000_000)));
    conforms("count", &clock, Wrapped::new(memory(), Count::default()));
    conforms("secrets", &clock, Wrapped::new(memory(), Secrets::new(["secret".to_string()])));
    conforms("no faults", &clock, Wrapped::new(memory(), faults(1)));
    conforms("retry", &clock, Retrying::new(memory(), clock.clone(), Limits::default(), 1));
    let all: Arc<dyn ObjectStore> = Wrapped::new(memory(), Count::default());
    let all: Arc<dyn ObjectStore> = Wrapped::new(all, Pace::new(clock.clone(), 1e8, 10));
    let all: Arc<dyn ObjectStore> = Retrying::new(all, clock.clone(), Limits::default(), 1);
    conforms("all of them", &clock, Wrapped::new(all, Limit::new(64)));
}

#[tokio::test]
async fn the_local_file_system_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let at = Path::from_absolute_path(folder.path()).unwrap();
    let local: Arc<dyn ObjectStore> = Arc::new(pellucid_storage::LocalStore::default());
    assert_eq!(check(&*local, &at).await, Vec::<String>::new());
    let counted = Wrapped::new(local, Count::default());
    assert_eq!(check(&*counted, &at).await, Vec::<String>::new());
    assert!(counted.around().read_bytes() > 10_000_000, "{:?}", counted.around());
    assert!(counted.around().calls(Operation::Commit) == 1 && counted.around().failed() > 0);
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

/// Faults that another attempt gets round.
fn passing() -> Vec<Fault> {
    ALL.into_iter().filter(|f| !matches!(f, Fault::Expired | Fault::TooLong)).collect()
}

#[test]
fn what_passes_is_passed_over() {
    for every in 2..20 {
        let clock = Arc::new(Virtual::default());
        let inner = memory();
        let store = faulty(&clock, Arc::clone(&inner), every, &passing());
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

#[test]
fn what_does_not_pass_is_an_error_in_bounded_time() {
    for fault in ALL {
        for every in [1, 2, 3] {
            let clock = Arc::new(Virtual::default());
            let inner = memory();
            let at = Path::from("a");
            let content = content(1, 10_000);
            clock.run(inner.put(&at, content.clone().into())).unwrap().unwrap();
            let store = faulty(&clock, inner, every, &[fault]);
            for _ in 0..5 {
                let begun = clock.now_ns();
                let read = clock.run(async { store.get(&at).await?.bytes().await });
                let read = read.unwrap_or_else(|h| panic!("{fault:?}, every {every}: {h:?}"));
                match read {
                    Ok(bytes) => assert!(bytes == content, "{fault:?}, every {every}: {} bytes", bytes.len()),
                    Err(error) => assert!(error.to_string().len() > 20, "{fault:?}: {error}"),
                }
                let minutes = (clock.now_ns() - begun) / 60_000_000_000;
                assert!(minutes < 11, "{fault:?}, every {every}: took {minutes} minutes");
            }
        }
    }
}

#[test]
fn a_final_error_is_not_tried_again_and_a_store_that_asks_for_time_gets_it() {
    let clock = Arc::new(Virtual::default());
    let limits = Limits::default();
    let with = |fault| Wrapped::new(memory(), Faults::new(clock.clone(), 1, &[fault]));
    let expired = with(Fault::Expired);
    let store = Retrying::new(expired.clone(), clock.clone(), limits, 1);
    let error = clock.run(store.get(&Path::from("a"))).unwrap().unwrap_err();
    assert!(matches!(error, Error::Unauthenticated { .. }), "{error}");
    assert_eq!((expired.around().calls(), clock.now_ns()), (1, 0));

    let throttled = with(Fault::Throttled(7_000_000_000));
    let store = Retrying::new(throttled.clone(), clock.clone(), limits, 1);
    let error = clock.run(store.put(&Path::from("a"), "x".into())).unwrap().unwrap_err();
    assert!(error.to_string().contains("after 5 attempts"), "{error}");
    assert_eq!((throttled.around().calls(), clock.now_ns()), (5, 4 * 7_000_000_000));

    let day = with(Fault::Throttled(86_400_000_000_000));
    let store = Retrying::new(day.clone(), clock.clone(), limits, 1);
    assert!(clock.run(store.put(&Path::from("a"), "x".into())).unwrap().is_err());
    assert_eq!(day.around().calls(), 1);
}

#[test]
fn pauses_double_and_are_spread() {
    let took = |seed| {
        let clock = Arc::new(Virtual::default());
        let refused = Wrapped::new(memory(), Faults::new(clock.clone(), 1, &[Fault::Refused]));
        let store = Retrying::new(refused, clock.clone(), Limits::default(), seed);
        clock.run(store.put(&Path::from("a"), "x".into())).unwrap().unwrap_err();
        clock.now_ns()
    };
    let all: Vec<u64> = (0..50).map(took).collect();
    // 100, 200, 400 and 800 ms, each by half of it at most shorter.
    assert!(all.iter().all(|ns| (750_000_000..=1_500_000_000).contains(ns)), "{all:?}");
    let distinct: std::collections::BTreeSet<&u64> = all.iter().collect();
    assert!(distinct.len() > 40, "{all:?}");
    assert_eq!(took(7), took(7));
}

/// A store without names for versions of its objects, which lists an entry in 10 s.
#[derive(Debug)]
struct Bare(Arc<dyn ObjectStore>, Arc<Virtual>);

impl std::fmt::Display for Bare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

type Result<T> = object_store::Result<T>;

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
fn a_listing_that_goes_on_is_waited_for_however_long_it_is() {
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
fn what_was_written_anew_in_the_middle_of_a_read_is_never_mixed() {
    let clock = Arc::new(Virtual::default());
    let (inner, at) = (memory(), Path::from("a"));
    let bare: Arc<dyn ObjectStore> = Arc::new(Bare(Arc::clone(&inner), clock.clone()));
    // The second call breaks in its middle.
    let store = faulty(&clock, bare, 2, &[Fault::Reset]);
    let read = clock.run(async {
        inner.put(&at, content(1, 10_000).into()).await?;
        store.head(&at).await?;
        let mut body = store.get(&at).await?.into_stream();
        let first = body.next().await.expect("a first piece")?;
        assert!(first == content(1, 10_000)[..5_000]);
        // As long as before.
        inner.put(&at, content(2, 10_000).into()).await?;
        body.try_collect::<Vec<_>>().await
    });
    let error = read.unwrap().unwrap_err();
    assert!(matches!(error, Error::Precondition { .. }), "{error}");
}
