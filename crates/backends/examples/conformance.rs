//! Runs the conformance suite on the store behind a URL, plain, wrapped and with faults:
//! `conformance s3://bucket/folder`. What `tests/test_storage.py` calls for each service that
//! it has started. Prints what is wrong and exits with 1 then.

use std::process::ExitCode;
use std::sync::Arc;

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt};
use pellucid_storage::clock::Live;
use pellucid_storage::conformance::{check, check_failing, clear, content};
use pellucid_storage::retry::{Limits, Retrying};
use pellucid_storage::wrap::Wrapped;
use pellucid_storage::wrap::count::Count;
use pellucid_storage::wrap::fault::{ALL, Fault, Faults, passing};
use pellucid_storage::wrap::limit::Limit;
use pellucid_storage::wrap::pace::Pace;
use url::Url;

type Store = Arc<dyn ObjectStore>;

/// Rounds of reads and writes with faults in between.
const ROUNDS: u64 = 12;

/// Of pauses and waits, for faults that are brief.
const LIMITS: Limits = Limits {
    attempts: 5,
    pause_ns: 1_000_000,
    longest_pause_ns: 1_000_000_000,
    answer_ns: 5_000_000_000,
    piece_ns: 500_000_000,
    repeats_calls: true,
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
        _ => vec!["say the URL of a folder to test in, such as s3://bucket/folder".to_string()],
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
    let wrapped: Store = Wrapped::new(Arc::clone(&store), Limit::new(4));
    let wrapped: Store = Wrapped::new(wrapped, Pace::new(clock.clone(), 1e9, 100_000));
    let wrapped = Wrapped::new(wrapped, Count::default());
    found("limited, paced and counted", check(&*wrapped, &folder).await);
    if wrapped.around().read_bytes() == 0 {
        found("counted", vec!["no byte was counted".to_string()]);
    }
    // Briefer than on a bad day, since this clock does not jump. And without stalls, since a part is waited for a minute;
    // those are in the rounds.
    let brief: Vec<Fault> = passing().into_iter().filter(|f| *f != Fault::Stalled).map(briefly).collect();
    let failing = Wrapped::new(Arc::clone(&store), Faults::new(clock.clone(), 5, &brief));
    let repeated = Retrying::new(failing, clock.clone(), LIMITS, 1);
    found("repeated", check_failing(&*repeated, &folder).await);
    for fault in ALL.map(briefly) {
        let limits =
            if fault == Fault::Stalled { Limits { answer_ns: 500_000_000, ..LIMITS } } else { LIMITS };
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

/// Writes, reads, lists and deletes: the right bytes, or an error where the fault does not pass.
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
                    wrong.push(format!("round {seed}: a wrong answer"));
                }
            }
            Err(error) if passes => wrong.push(format!("round {seed}: {error}")),
            Err(_) => {}
        }
    }
    wrong
}
