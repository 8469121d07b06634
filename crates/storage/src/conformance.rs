//! What every store must do, whatever is behind it or round it: one suite for all.
//!
//! [`check`] takes any store and a folder of its own in it, and says everything that was not
//! as it must be. It is written against `object_store`'s trait, in terms of answers only, and
//! leaves the folder empty. What a store does not offer (create if absent) may be refused as
//! not implemented, but must not be done wrong.
//!
//! [`check_failing`] is the same suite on a store under which calls fail now and then, and
//! which repeats what may be repeated.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutPayload, Result};

use crate::wrap::fault;

/// Size of a part of a multipart upload: the least that S3 takes before the last one.
const PART_BYTES: usize = 5 << 20;

/// Checks with calls that are made once only, since their answer may be lost and a second one would do
/// something else: create if absent, rename, a part of an upload and its end ([`crate::retry`]).
const MADE_ONCE: [&str; 4] = [
    "creates_only_what_is_absent",
    "copies_and_renames",
    "uploads_in_parts",
    "shows_nothing_of_an_aborted_upload",
];

/// What one check found: nothing, or what is wrong.
type Found = std::result::Result<(), String>;

/// Runs every check of the suite below `folder`; what it returns is wrong with the store.
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
        reads_what_was_written,
        reads_ranges,
        overwrites,
        misses_what_is_not_there,
        creates_only_what_is_absent,
        lists,
        lists_folders,
        copies_and_renames,
        deletes,
        uploads_in_parts,
        shows_nothing_of_an_aborted_upload,
        takes_odd_names
    );
    wrong
}

/// The same on a store that repeats ([`crate::retry::Retrying`]) round one that fails with the
/// [`fault`]s that pass. A check of calls that are made once may end with such a failure; nothing else
/// may be wrong.
pub async fn check_failing(store: &dyn ObjectStore, folder: &Path) -> Vec<String> {
    let failed = |found: &str| {
        MADE_ONCE.iter().any(|check| found.starts_with(check))
            && fault::WORDS.iter().any(|w| found.contains(w))
    };
    check(store, folder).await.into_iter().filter(|found| !failed(found)).collect()
}

/// Removes all objects below `folder`.
///
/// # Errors
/// The store's.
pub async fn clear(store: &dyn ObjectStore, folder: &Path) -> Result<()> {
    let found: Vec<Path> = store.list(Some(folder)).map_ok(|o| o.location).try_collect().await?;
    let found = futures::stream::iter(found.into_iter().map(Ok)).boxed();
    store.delete_stream(found).try_collect::<Vec<Path>>().await.map(|_| ())
}

/// Bytes that differ from place to place, and from seed to seed.
pub fn content(seed: u64, bytes: usize) -> Bytes {
    let mut state = seed;
    let word = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    let words = std::iter::repeat_with(word).take(bytes.div_ceil(4));
    let mut all: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    all.truncate(bytes);
    all.into()
}

fn words(what: &str) -> impl Fn(Error) -> String + '_ {
    move |error| format!("{what}: {error}")
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Found {
    if holds { Ok(()) } else { Err(otherwise()) }
}

async fn put(store: &dyn ObjectStore, at: &Path, bytes: &Bytes) -> Found {
    store.put(at, PutPayload::from_bytes(bytes.clone())).await.map(|_| ()).map_err(words("put"))
}

async fn get(store: &dyn ObjectStore, at: &Path) -> Result<Bytes> {
    store.get(at).await?.bytes().await
}

async fn holds(store: &dyn ObjectStore, at: &Path, expected: &Bytes) -> Found {
    let read = get(store, at).await.map_err(words("get"))?;
    ensure(read == expected, || format!("{at}: {} other bytes were read than written", read.len()))
}

async fn reads_what_was_written(store: &dyn ObjectStore, folder: &Path) -> Found {
    for bytes in [0, 1, 1000, 3 << 20] {
        let (at, content) = (folder.clone().join(format!("{bytes}")), content(bytes as u64, bytes));
        put(store, &at, &content).await?;
        holds(store, &at, &content).await?;
        let meta = store.head(&at).await.map_err(words("head"))?;
        ensure(meta.size == bytes as u64 && meta.location == at, || format!("head said {meta:?}"))?;
    }
    Ok(())
}

async fn reads_ranges(store: &dyn ObjectStore, folder: &Path) -> Found {
    let (at, size) = (folder.clone().join("a"), 2_000_003u64);
    let content = content(1, size as usize);
    put(store, &at, &content).await?;
    let ranges = [0..1, 5..1000, 999_999..1_000_001, size - 4..size, 0..size];
    let read = store.get_ranges(&at, &ranges).await.map_err(words("get_ranges"))?;
    for (range, bytes) in ranges.iter().zip(&read) {
        let expected = &content[range.start as usize..range.end as usize];
        ensure(bytes == expected, || format!("range {range:?}: {} other bytes", bytes.len()))?;
    }
    let of = async |range: GetRange| {
        let options = GetOptions { range: Some(range), ..GetOptions::default() };
        store.get_opts(&at, options).await?.bytes().await
    };
    let rest = of(GetRange::Offset(size - 10)).await.map_err(words("read from an offset"))?;
    ensure(rest == content[size as usize - 10..], || format!("from an offset: {} other bytes", rest.len()))?;
    let last = of(GetRange::Suffix(7)).await.map_err(words("read of the last bytes"))?;
    ensure(last == content[size as usize - 7..], || format!("the last bytes: {} others", last.len()))?;
    let beyond = of(GetRange::Bounded(size - 5..size + 5)).await.map_err(words("read beyond the end"))?;
    ensure(beyond == content[size as usize - 5..], || format!("beyond the end: {} other bytes", beyond.len()))
}

async fn overwrites(store: &dyn ObjectStore, folder: &Path) -> Found {
    let at = folder.clone().join("a");
    for (seed, bytes) in [(1, 5000), (2, 100), (3, 7000)] {
        let content = content(seed, bytes);
        put(store, &at, &content).await?;
        holds(store, &at, &content).await?;
    }
    Ok(())
}

async fn misses_what_is_not_there(store: &dyn ObjectStore, folder: &Path) -> Found {
    let at = folder.clone().join("none");
    let said = |what: &str, error: Option<Error>| match error {
        Some(Error::NotFound { .. }) => Ok(()),
        Some(other) => Err(format!("{what}: not \"not found\" but {other}")),
        None => Err(format!("{what} of what is not there went well")),
    };
    said("get", get(store, &at).await.err())?;
    said("head", store.head(&at).await.err())?;
    said("copy", store.copy(&at, &folder.clone().join("to")).await.err())?;
    let listed: Vec<_> = store.list(Some(&at)).try_collect().await.map_err(words("list"))?;
    ensure(listed.is_empty(), || format!("listed {listed:?}"))
}

async fn creates_only_what_is_absent(store: &dyn ObjectStore, folder: &Path) -> Found {
    let at = folder.clone().join("a");
    let create = |content: Bytes| store.put_opts(&at, content.into(), PutMode::Create.into());
    let first = content(1, 100);
    match create(first.clone()).await {
        Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => return Ok(()),
        outcome => outcome.map(|_| ()).map_err(words("create"))?,
    }
    match create(content(2, 100)).await {
        Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {}
        Err(other) => return Err(format!("create of what is there: not \"already exists\" but {other}")),
        Ok(_) => return Err("created what was there already".to_string()),
    }
    holds(store, &at, &first).await
}

async fn lists(store: &dyn ObjectStore, folder: &Path) -> Found {
    let names = ["a", "b/c", "b/d/e", "b/d/f"];
    for (i, name) in names.iter().enumerate() {
        let at = Path::from(format!("{folder}/{name}"));
        put(store, &at, &content(i as u64, i * 10)).await?;
    }
    put(store, &Path::from(format!("{folder}x")), &content(9, 1)).await?;
    let listed: Vec<_> = store.list(Some(folder)).try_collect().await.map_err(words("list"))?;
    let found: BTreeSet<(String, u64)> = listed.iter().map(|o| (o.location.to_string(), o.size)).collect();
    let expected = names.iter().enumerate().map(|(i, n)| (format!("{folder}/{n}"), i as u64 * 10)).collect();
    store.delete(&Path::from(format!("{folder}x"))).await.map_err(words("delete"))?;
    ensure(found == expected && listed.len() == names.len(), || format!("listed {found:?}, not {expected:?}"))
}

async fn lists_folders(store: &dyn ObjectStore, folder: &Path) -> Found {
    for name in ["a", "b", "c/d", "e/f/g"] {
        put(store, &Path::from(format!("{folder}/{name}")), &content(1, 10)).await?;
    }
    let found = store.list_with_delimiter(Some(folder)).await.map_err(words("list"))?;
    let objects: BTreeSet<String> = found.objects.iter().map(|o| o.location.to_string()).collect();
    let folders: BTreeSet<String> = found.common_prefixes.iter().map(Path::to_string).collect();
    let expected = |names: [&str; 2]| names.map(|n| format!("{folder}/{n}")).into();
    ensure(objects == expected(["a", "b"]) && folders == expected(["c", "e"]), || {
        format!("listed objects {objects:?} and folders {folders:?}")
    })
}

async fn copies_and_renames(store: &dyn ObjectStore, folder: &Path) -> Found {
    let [a, b, c] = ["a", "b", "sub/c"].map(|n| Path::from(format!("{folder}/{n}")));
    let content = content(1, 10_000);
    put(store, &a, &content).await?;
    match store.copy(&a, &b).await {
        // HDFS has no copy within the store.
        Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => put(store, &b, &content).await?,
        outcome => outcome.map_err(words("copy"))?,
    }
    holds(store, &a, &content).await?;
    holds(store, &b, &content).await?;
    // A folder to rename into, for stores that have folders.
    put(store, &Path::from(format!("{folder}/sub/other")), &content).await?;
    store.rename(&b, &c).await.map_err(words("rename"))?;
    holds(store, &c, &content).await?;
    ensure(store.head(&b).await.is_err(), || "what was renamed is still there".to_string())
}

async fn deletes(store: &dyn ObjectStore, folder: &Path) -> Found {
    let at: Vec<Path> = (0..25).map(|i| folder.clone().join(format!("{i}"))).collect();
    for place in &at {
        put(store, place, &content(1, 10)).await?;
    }
    let gone: Vec<Result<Path>> = at[..20].iter().cloned().map(Ok).collect();
    let gone = futures::stream::iter(gone).boxed();
    let said: Vec<Path> = store.delete_stream(gone).try_collect().await.map_err(words("delete"))?;
    ensure(said.len() == 20, || format!("said that {} of 20 were deleted", said.len()))?;
    let left: BTreeSet<Path> =
        store.list(Some(folder)).map_ok(|o| o.location).try_collect().await.map_err(words("list"))?;
    ensure(left == at[20..].iter().cloned().collect(), || format!("left {left:?}"))
}

async fn uploads_in_parts(store: &dyn ObjectStore, folder: &Path) -> Found {
    let (at, content) = (folder.clone().join("a"), content(1, 2 * PART_BYTES + 1000));
    let mut upload = store.put_multipart(&at).await.map_err(words("begin an upload"))?;
    let uploaded = async {
        let mut parts = Vec::new();
        for start in (0..content.len()).step_by(PART_BYTES) {
            let part = content.slice(start..content.len().min(start + PART_BYTES));
            parts.push(upload.put_part(part.into()));
        }
        // All of them, so that none is under way when one that failed has the upload aborted.
        let sent: Result<Vec<()>> = futures::future::join_all(parts).await.into_iter().collect();
        sent.map_err(words("upload a part"))?;
        ensure(store.head(&at).await.is_err(), || {
            "an object is visible before its upload is complete".to_string()
        })?;
        upload.complete().await.map_err(words("complete an upload"))
    };
    if let Err(failed) = uploaded.await {
        let aborted = upload.abort().await;
        return match get(store, &at).await {
            // It was completed, and the answer was lost: there is nothing to abort.
            Ok(read) if read == content => Err(failed),
            Ok(read) => Err(format!("an upload that failed left {} other bytes", read.len())),
            Err(Error::NotFound { .. }) => aborted.map_err(words("abort an upload")).and(Err(failed)),
            Err(error) => Err(format!("get after an upload that failed: {error}")),
        };
    }
    holds(store, &at, &content).await
}

async fn shows_nothing_of_an_aborted_upload(store: &dyn ObjectStore, folder: &Path) -> Found {
    let at = folder.clone().join("a");
    let mut upload = store.put_multipart(&at).await.map_err(words("begin an upload"))?;
    let sent = async {
        upload.put_part(content(1, PART_BYTES).into()).await?;
        upload.put_part(content(2, 1000).into()).await
    };
    let sent = sent.await.map_err(words("upload a part"));
    upload.abort().await.map_err(words("abort an upload"))?;
    let left: Vec<_> = store.list(Some(folder)).try_collect().await.map_err(words("list"))?;
    ensure(left.is_empty(), || format!("an aborted upload left {left:?}"))?;
    sent
}

async fn takes_odd_names(store: &dyn ObjectStore, folder: &Path) -> Found {
    let names = ["a b", "x=1", "50%", "ü", "a+b&c", "a~b", "q?r", "h#i"];
    let expected: BTreeSet<Path> = names.iter().map(|n| folder.clone().join(*n)).collect();
    for (i, at) in expected.iter().enumerate() {
        let content = content(i as u64, 20);
        put(store, at, &content).await?;
        holds(store, at, &content).await?;
    }
    let found: BTreeSet<Path> =
        store.list(Some(folder)).map_ok(|o| o.location).try_collect().await.map_err(words("list"))?;
    ensure(found == expected, || format!("listed {found:?}, not {expected:?}"))
}
