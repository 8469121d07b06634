//! A conformance suite for every store and wrapper.
//!
//! [`check`] takes any store and an empty folder in it, and returns every deviation. It uses
//! `object_store`'s trait only, checks results only, and leaves the folder empty. A store may
//! reject an operation (create if absent) as not implemented, but must not perform it incorrectly.
//!
//! [`check_failing`] runs the same suite on a store that retries over one whose calls fail
//! occasionally.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutPayload, Result};

pub use pellucid_storage::probe::content;

use crate::fault;

/// Size of a part of a multipart upload: the minimum of S3 for all parts but the last.
const PART_BYTES: usize = 5 << 20;

/// Checks whose calls are not retried, because they are not idempotent and their response may be lost:
/// create if absent, rename, uploading a part, and completing an upload ([`pellucid_storage::retry`]).
const NOT_RETRIED: [&str; 4] =
    ["creates_only_if_absent", "copies_and_renames", "uploads_in_parts", "removes_aborted_uploads"];

/// The result of one check; an error describes the deviation.
type CheckResult = std::result::Result<(), String>;

/// Runs every check of the suite below `folder` and returns the deviations.
pub async fn check(store: &dyn ObjectStore, folder: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    macro_rules! checks {
        ($($check:ident),*) => {$(
            let at = folder.clone().join(stringify!($check));
            if let Err(found) = $check(store, &at).await {
                wrong.push(format!("{}: {found}", stringify!($check)));
            }
            if let Err(error) = clear(store, &at).await {
                wrong.push(format!("{}: cleaning up: {error}", stringify!($check)));
            }
        )*};
    }
    checks!(
        reads_written_bytes,
        reads_ranges,
        overwrites,
        reports_missing_objects,
        creates_only_if_absent,
        lists,
        lists_folders,
        copies_and_renames,
        deletes,
        uploads_in_parts,
        removes_aborted_uploads,
        accepts_special_names
    );
    wrong
}

/// Runs the suite on a store that retries ([`pellucid_storage::retry::Retrying`]) over one with transient
/// [`fault`]s. Checks of calls that are not retried may fail with such a fault; returns all other
/// deviations.
pub async fn check_failing(store: &dyn ObjectStore, folder: &Path) -> Vec<String> {
    let failed = |found: &str| {
        NOT_RETRIED.iter().any(|check| found.starts_with(check))
            && fault::MESSAGES.iter().any(|message| found.contains(message))
    };
    check(store, folder).await.into_iter().filter(|found| !failed(found)).collect()
}

/// Removes all objects below `folder`.
///
/// # Errors
/// Returns the store's error.
pub async fn clear(store: &dyn ObjectStore, folder: &Path) -> Result<()> {
    let found: Vec<Path> = store.list(Some(folder)).map_ok(|o| o.location).try_collect().await?;
    let found = futures::stream::iter(found.into_iter().map(Ok)).boxed();
    store.delete_stream(found).try_collect::<Vec<Path>>().await.map(|_| ())
}

fn context(what: &str) -> impl Fn(Error) -> String + '_ {
    move |error| format!("{what}: {error}")
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> CheckResult {
    if holds { Ok(()) } else { Err(otherwise()) }
}

async fn put(store: &dyn ObjectStore, at: &Path, bytes: &Bytes) -> CheckResult {
    store.put(at, PutPayload::from_bytes(bytes.clone())).await.map(|_| ()).map_err(context("put"))
}

async fn get(store: &dyn ObjectStore, at: &Path) -> Result<Bytes> {
    store.get(at).await?.bytes().await
}

async fn has_content(store: &dyn ObjectStore, at: &Path, expected: &Bytes) -> CheckResult {
    let read = get(store, at).await.map_err(context("get"))?;
    ensure(read == expected, || format!("{at}: read {} bytes that differ from those written", read.len()))
}

async fn reads_written_bytes(store: &dyn ObjectStore, folder: &Path) -> CheckResult {
    for bytes in [0, 1, 1000, 3 << 20] {
        let (at, content) = (folder.clone().join(format!("{bytes}")), content(bytes as u64, bytes));
        put(store, &at, &content).await?;
        has_content(store, &at, &content).await?;
        let meta = store.head(&at).await.map_err(context("head"))?;
        ensure(meta.size == bytes as u64 && meta.location == at, || format!("head returned {meta:?}"))?;
    }
    Ok(())
}

async fn reads_ranges(store: &dyn ObjectStore, folder: &Path) -> CheckResult {
    let (at, size) = (folder.clone().join("a"), 2_000_003u64);
    let content = content(1, size as usize);
    put(store, &at, &content).await?;
    let ranges = [0..1, 5..1000, 999_999..1_000_001, size - 4..size, 0..size];
    let read = store.get_ranges(&at, &ranges).await.map_err(context("get_ranges"))?;
    for (range, bytes) in ranges.iter().zip(&read) {
        let expected = &content[range.start as usize..range.end as usize];
        ensure(bytes == expected, || format!("range {range:?}: {} bytes that differ", bytes.len()))?;
    }
    let of = async |range: GetRange| {
        let options = GetOptions { range: Some(range), ..GetOptions::default() };
        store.get_opts(&at, options).await?.bytes().await
    };
    let rest = of(GetRange::Offset(size - 10)).await.map_err(context("read from an offset"))?;
    ensure(rest == content[size as usize - 10..], || {
        format!("from an offset: {} bytes that differ", rest.len())
    })?;
    let last = of(GetRange::Suffix(7)).await.map_err(context("read of the last bytes"))?;
    ensure(last == content[size as usize - 7..], || {
        format!("the last bytes: {} bytes that differ", last.len())
    })?;
    let beyond = of(GetRange::Bounded(size - 5..size + 5)).await.map_err(context("read beyond the end"))?;
    ensure(beyond == content[size as usize - 5..], || {
        format!("beyond the end: {} bytes that differ", beyond.len())
    })
}

async fn overwrites(store: &dyn ObjectStore, folder: &Path) -> CheckResult {
    let at = folder.clone().join("a");
    for (seed, bytes) in [(1, 5000), (2, 100), (3, 7000)] {
        let content = content(seed, bytes);
        put(store, &at, &content).await?;
        has_content(store, &at, &content).await?;
    }
    Ok(())
}

async fn reports_missing_objects(store: &dyn ObjectStore, folder: &Path) -> CheckResult {
    let at = folder.clone().join("none");
    let not_found = |call: &str, error: Option<Error>| match error {
        Some(Error::NotFound { .. }) => Ok(()),
        Some(other) => Err(format!("{call}: expected \"not found\", got {other}")),
        None => Err(format!("{call} of a missing object succeeded")),
    };
    not_found("get", get(store, &at).await.err())?;
    not_found("head", store.head(&at).await.err())?;
    not_found("copy", store.copy(&at, &folder.clone().join("to")).await.err())?;
    let listed: Vec<_> = store.list(Some(&at)).try_collect().await.map_err(context("list"))?;
    ensure(listed.is_empty(), || format!("listed {listed:?}"))
}

async fn creates_only_if_absent(store: &dyn ObjectStore, folder: &Path) -> CheckResult {
    let at = folder.clone().join("a");
    let create = |content: Bytes| store.put_opts(&at, content.into(), PutMode::Create.into());
    let first = content(1, 100);
    match create(first.clone()).await {
        Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => return Ok(()),
        outcome => outcome.map(|_| ()).map_err(context("create"))?,
    }
    match create(content(2, 100)).await {
        Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {}
        Err(other) => {
            return Err(format!("create of an existing object: expected \"already exists\", got {other}"));
        }
        Ok(_) => return Err("create of an existing object succeeded".to_string()),
    }
    has_content(store, &at, &first).await
}

async fn lists(store: &dyn ObjectStore, folder: &Path) -> CheckResult {
    let names = ["a", "b/c", "b/d/e", "b/d/f"];
    for (i, name) in names.iter().enumerate() {
        let at = Path::from(format!("{folder}/{name}"));
        put(store, &at, &content(i as u64, i * 10)).await?;
    }
    put(store, &Path::from(format!("{folder}x")), &content(9, 1)).await?;
    let listed: Vec<_> = store.list(Some(folder)).try_collect().await.map_err(context("list"))?;
    let found: BTreeSet<(String, u64)> = listed.iter().map(|o| (o.location.to_string(), o.size)).collect();
    let expected = names.iter().enumerate().map(|(i, n)| (format!("{folder}/{n}"), i as u64 * 10)).collect();
    store.delete(&Path::from(format!("{folder}x"))).await.map_err(context("delete"))?;
    ensure(found == expected && listed.len() == names.len(), || {
        format!("listed {found:?}, expected {expected:?}")
    })
}

async fn lists_folders(store: &dyn ObjectStore, folder: &Path) -> CheckResult {
    for name in ["a", "b", "c/d", "e/f/g"] {
        put(store, &Path::from(format!("{folder}/{name}")), &content(1, 10)).await?;
    }
    let found = store.list_with_delimiter(Some(folder)).await.map_err(context("list"))?;
    let objects: BTreeSet<String> = found.objects.iter().map(|o| o.location.to_string()).collect();
    let folders: BTreeSet<String> = found.common_prefixes.iter().map(Path::to_string).collect();
    let expected = |names: [&str; 2]| names.map(|n| format!("{folder}/{n}")).into();
    ensure(objects == expected(["a", "b"]) && folders == expected(["c", "e"]), || {
        format!("listed objects {objects:?} and folders {folders:?}")
    })
}

async fn copies_and_renames(store: &dyn ObjectStore, folder: &Path) -> CheckResult {
    let [a, b, c] = ["a", "b", "sub/c"].map(|n| Path::from(format!("{folder}/{n}")));
    let content = content(1, 10_000);
    put(store, &a, &content).await?;
    match store.copy(&a, &b).await {
        // HDFS cannot copy within the store.
        Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => put(store, &b, &content).await?,
        outcome => outcome.map_err(context("copy"))?,
    }
    has_content(store, &a, &content).await?;
    has_content(store, &b, &content).await?;
    // Creates the target folder, for stores with directories.
    put(store, &Path::from(format!("{folder}/sub/other")), &content).await?;
    store.rename(&b, &c).await.map_err(context("rename"))?;
    has_content(store, &c, &content).await?;
    ensure(store.head(&b).await.is_err(), || "the source of a rename still exists".to_string())
}

async fn deletes(store: &dyn ObjectStore, folder: &Path) -> CheckResult {
    let at: Vec<Path> = (0..25).map(|i| folder.clone().join(format!("{i}"))).collect();
    for place in &at {
        put(store, place, &content(1, 10)).await?;
    }
    let gone: Vec<Result<Path>> = at[..20].iter().cloned().map(Ok).collect();
    let gone = futures::stream::iter(gone).boxed();
    let deleted: Vec<Path> = store.delete_stream(gone).try_collect().await.map_err(context("delete"))?;
    ensure(deleted.len() == 20, || format!("reported {} of 20 deletions", deleted.len()))?;
    let left: BTreeSet<Path> =
        store.list(Some(folder)).map_ok(|o| o.location).try_collect().await.map_err(context("list"))?;
    ensure(left == at[20..].iter().cloned().collect(), || format!("remaining objects: {left:?}"))
}

async fn uploads_in_parts(store: &dyn ObjectStore, folder: &Path) -> CheckResult {
    let (at, content) = (folder.clone().join("a"), content(1, 2 * PART_BYTES + 1000));
    let mut upload = store.put_multipart(&at).await.map_err(context("begin an upload"))?;
    let uploaded = async {
        let mut parts = Vec::new();
        for start in (0..content.len()).step_by(PART_BYTES) {
            let part = content.slice(start..content.len().min(start + PART_BYTES));
            parts.push(upload.put_part(part.into()));
        }
        // Waits for all parts, so that none is running when a failed one leads to an abort.
        let sent: Result<Vec<()>> = futures::future::join_all(parts).await.into_iter().collect();
        sent.map_err(context("upload a part"))?;
        ensure(store.head(&at).await.is_err(), || {
            "an object is visible before its upload is complete".to_string()
        })?;
        upload.complete().await.map_err(context("complete an upload"))
    };
    if let Err(failed) = uploaded.await {
        let aborted = upload.abort().await;
        return match get(store, &at).await {
            // The upload was completed but the response was lost, so there is nothing to abort.
            Ok(read) if read == content => Err(failed),
            Ok(read) => Err(format!("a failed upload left {} bytes that differ", read.len())),
            Err(Error::NotFound { .. }) => aborted.map_err(context("abort an upload")).and(Err(failed)),
            Err(error) => Err(format!("get after a failed upload: {error}")),
        };
    }
    has_content(store, &at, &content).await
}

async fn removes_aborted_uploads(store: &dyn ObjectStore, folder: &Path) -> CheckResult {
    let at = folder.clone().join("a");
    let mut upload = store.put_multipart(&at).await.map_err(context("begin an upload"))?;
    let sent = async {
        upload.put_part(content(1, PART_BYTES).into()).await?;
        upload.put_part(content(2, 1000).into()).await
    };
    let sent = sent.await.map_err(context("upload a part"));
    upload.abort().await.map_err(context("abort an upload"))?;
    let left: Vec<_> = store.list(Some(folder)).try_collect().await.map_err(context("list"))?;
    ensure(left.is_empty(), || format!("an aborted upload left {left:?}"))?;
    sent
}

async fn accepts_special_names(store: &dyn ObjectStore, folder: &Path) -> CheckResult {
    let names = ["a b", "x=1", "50%", "ü", "a+b&c", "a~b", "q?r", "h#i"];
    let expected: BTreeSet<Path> = names.iter().map(|n| folder.clone().join(*n)).collect();
    for (i, at) in expected.iter().enumerate() {
        let content = content(i as u64, 20);
        put(store, at, &content).await?;
        has_content(store, at, &content).await?;
    }
    let found: BTreeSet<Path> =
        store.list(Some(folder)).map_ok(|o| o.location).try_collect().await.map_err(context("list"))?;
    ensure(found == expected, || format!("listed {found:?}, expected {expected:?}"))
}
