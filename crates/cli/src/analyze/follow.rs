//! `analyze --follow`: repeats the analysis of a log while it grows.
//!
//! Each pass reads the whole log, since compressed logs cannot be read from the middle; a
//! gigabyte takes a second or two. The output therefore always equals that of `analyze`.
//! The pause between passes grows with their duration.

use crate::failure::Failure;
use crate::inputs::{self, Input};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bounds of the pause between two passes.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(15);
/// Pause after a pass, as a multiple of its duration, within the bounds.
const PAUSE_FACTOR: u32 = 9;
/// Suffix that Spark removes from a log's name when its application ends.
const IN_PROGRESS: &str = ".inprogress";

/// Calls `show` each time the log has grown, until `show` returns that the application has ended.
///
/// # Errors
/// Returns an error if the input is not exactly one local event log, if it is deleted, or if `show` fails.
pub fn follow(path: &Path, mut show: impl FnMut(&Input) -> Result<bool, Failure>) -> Result<(), Failure> {
    let text = path.to_string_lossy();
    if text.contains("://") {
        return Err(Failure::Usage(format!(
            "cannot follow {}: --follow supports local event logs only; run analyze without it",
            pellucid_storage::shown(&text)
        )));
    }
    let mut seen = None;
    loop {
        let current = current_path(path);
        let started = Instant::now();
        match show_if_changed(&current, &mut seen, &mut show) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            // Spark renamed the log during the pass: the application has ended.
            Err(_) if current_path(path) != current => continue,
            Err(failure) => return Err(failure),
        }
        std::thread::sleep(MIN_PAUSE.max((started.elapsed() * PAUSE_FACTOR).min(MAX_PAUSE)));
    }
}

/// Shows the log if its size has changed. Returns whether its application has ended.
fn show_if_changed(
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
        _ => Err(Failure::Usage(format!(
            "cannot follow {}: --follow needs exactly one Spark event log; name one",
            path.display()
        ))),
    }
}

/// Returns the path, or the log's final name if its application has ended.
fn current_path(path: &Path) -> PathBuf {
    let text = path.to_string_lossy();
    match text.strip_suffix(IN_PROGRESS) {
        Some(ended) if !path.exists() => PathBuf::from(ended),
        _ => path.to_owned(),
    }
}
