//! `analyze --follow`: a log that is still being written, looked at again as it grows.
//!
//! Each time all of it is read again: a gigabyte takes a second or two, compressed logs
//! cannot be entered in their middle, and so what is shown is exactly what `analyze` would
//! say at that moment. After a look that took long, the next one waits for longer.

use crate::failure::Failure;
use crate::inputs::{self, Input};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Least and most time between two looks at how large the log is.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const REST_AT_MOST: Duration = Duration::from_secs(15);
/// Within those, a look is followed by so many times its own length of rest.
const REST: u32 = 9;
/// What Spark takes off a log's name when its application ends.
const IN_PROGRESS: &str = ".inprogress";

/// Calls `show` with the log whenever it has grown, until that says that the application ended.
///
/// # Errors
/// When the input is not exactly one event log here, is gone, or `show` fails.
pub fn follow(path: &Path, mut show: impl FnMut(&Input) -> Result<bool, Failure>) -> Result<(), Failure> {
    let text = path.to_string_lossy();
    if text.contains("://") {
        return Err(Failure::Usage(format!("{text}: --follow needs a log on this machine's file systems")));
    }
    let mut seen = None;
    loop {
        let at = renamed(path);
        let begun = Instant::now();
        match look(&at, &mut seen, &mut show) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            // It was renamed while it was looked at: the application has ended.
            Err(_) if renamed(path) != at => continue,
            Err(failure) => return Err(failure),
        }
        std::thread::sleep(LOOK_EVERY.max((begun.elapsed() * REST).min(REST_AT_MOST)));
    }
}

/// Shows the log if it has another size than when it was last seen; whether its application ended.
fn look(
    path: &Path,
    seen: &mut Option<u64>,
    show: &mut impl FnMut(&Input) -> Result<bool, Failure>,
) -> Result<bool, Failure> {
    let input = only(path)?;
    let bytes = Some(input.bytes());
    if *seen == bytes {
        return Ok(false);
    }
    let ended = show(&input)?;
    *seen = bytes;
    Ok(ended)
}

fn only(path: &Path) -> Result<Input, Failure> {
    let mut found = inputs::find(path)?.inputs;
    match found.pop() {
        Some(input) if found.is_empty() && input.is_spark_log => Ok(input),
        _ => Err(Failure::Usage(format!("{}: --follow needs exactly one Spark event log", path.display()))),
    }
}

/// The path, or what it is called since its application ended.
fn renamed(path: &Path) -> PathBuf {
    let text = path.to_string_lossy();
    match text.strip_suffix(IN_PROGRESS) {
        Some(ended) if !path.exists() => PathBuf::from(ended),
        _ => path.to_owned(),
    }
}
