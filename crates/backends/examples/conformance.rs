//! Runs the conformance suite on the store behind a URL, plain, wrapped and with faults:
//! `conformance s3://bucket/folder`. Prints deviations and exits with 1 if there are any.
//! `tests/storage/test_storage.py` calls it for each service that it starts.

use std::process::ExitCode;
use std::sync::Arc;

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt};
use pellucid_storage::clock::Live;
use pellucid_storage::retry::{Limits, Retrying};
use pellucid_storage_testing::conformance::{check, check_failing, clear, content};
use pellucid_storage_testing::count::Count;
use pellucid_storage_testing::fault::{ALL, Fault, Faults, transient};
use pellucid_storage_testing::pace::Pace;
use pellucid_storage_testing::wrap::Wrapped;
use url::Url;

type Store = Arc<dyn ObjectStore>;

/// Rounds of reads and writes with faults.
const ROUNDS: u64 = 12;

/// Short pauses and timeouts, to match the brief faults.
const LIMITS: Limits = Limits {
    attempts: 5,
    pause_ns: 1_000_000,
    max_pause_ns: 1_000_000_000,
    response_timeout_ns: 5_000_000_000,
    chunk_timeout_ns: 500_000_000,
    retries_calls: true,
};

fn briefly(fault: Fault) -> Fault {
    match fault {
        Fault::Slow(_) => Fault::Slow(20_000_000),
        Fault::Throttled(_) => Fault::Throttled(20_000_000),
        fault => fault,
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let wrong = match std::env::args().nth(1).map(|url| Url::parse(&url)) {
        Some(Ok(url)) => run(&url).await,
        _ => vec![
            "usage: conformance URL, where URL is a folder to test in, such as s3://bucket/folder"
                .to_string(),
        ],
    };
    wrong.iter().for_each(|words| println!("{words}"));
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn run(url: &Url) -> Vec<String> {
    pellucid_backends::register();
    let store = match pellucid_storage::open(url) {
        Ok(store) => store,
        Err(error) => return vec![error.to_string()],
    };
    let folder = match Path::from_url_path(url.path()) {
        Ok(path) => path.join("conformance"),
        Err(error) => return vec![error.to_string()],
    };
    let clock = Arc::new(Live::default());
    let mut wrong = Vec::new();
    let mut found =
        |way: &str, words: Vec<String>| wrong.extend(words.into_iter().map(|w| format!("{way}: {w}")));
    found("plain", check(&*store, &folder).await);
    let wrapped: Store = Wrapped::new(Arc::clone(&store), Pace::new(clock.clone(), 1e9, 100_000));
    let wrapped = Wrapped::new(wrapped, Count::default());
    found("paced and counted", check(&*wrapped, &folder).await);
    if wrapped.interceptor().read_bytes() == 0 {
        found("counted", vec!["counted no bytes".to_string()]);
    }
    // Brief faults, since the clock is real. Stalls are left to the rounds below, since the timeout of a part is a minute.
    let brief: Vec<Fault> = transient().into_iter().filter(|f| *f != Fault::Stalled).map(briefly).collect();
    let failing = Wrapped::new(Arc::clone(&store), Faults::new(clock.clone(), 5, &brief));
    let repeated = Retrying::new(failing, clock.clone(), LIMITS, 1);
    found("repeated", check_failing(&*repeated, &folder).await);
    for fault in ALL.map(briefly) {
        let limits = if fault == Fault::Stalled {
            Limits { response_timeout_ns: 500_000_000, ..LIMITS }
        } else {
            LIMITS
        };
        let faulty = Wrapped::new(Arc::clone(&store), Faults::new(clock.clone(), 5, &[fault]));
        let guarded = Retrying::new(faulty, clock.clone(), limits, 1);
        let passes = !matches!(fault, Fault::Expired | Fault::TooLong);
        found(&format!("{fault:?}"), rounds(&*guarded, &folder, passes).await);
        if let Err(error) = clear(&*store, &folder).await {
            found("cleaning up", vec![error.to_string()]);
        }
    }
    wrong
}

/// Writes, reads, lists and deletes. The bytes must be correct; errors are allowed for permanent faults only.
async fn rounds(store: &dyn ObjectStore, folder: &Path, passes: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for seed in 0..ROUNDS {
        let at = folder.clone().join(format!("round-{seed}"));
        let bytes = content(seed, 200_000 + seed as usize);
        let round = async {
            store.put(&at, bytes.clone().into()).await?;
            let read = store.get(&at).await?.bytes().await?;
            let ranges = store.get_ranges(&at, &[7..99, 100_000..100_001]).await?;
            let listed: Vec<_> = store.list(Some(folder)).try_collect().await?;
            store.delete(&at).await?;
            Ok::<_, Error>((read, ranges, listed.iter().any(|o| o.location == at)))
        };
        match round.await {
            Ok((read, ranges, listed)) => {
                if read != bytes
                    || ranges[0] != bytes[7..99]
                    || ranges[1] != bytes[100_000..100_001]
                    || !listed
                {
                    wrong.push(format!("round {seed}: wrong result"));
                }
            }
            Err(error) if passes => wrong.push(format!("round {seed}: {error}")),
            Err(_) => {}
        }
    }
    wrong
}
