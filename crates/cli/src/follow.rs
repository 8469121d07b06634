//! `analyze --follow`: a log that is still being written, looked at again as it grows.
//!
//! Each time all of it is read again: a gigabyte takes a second or two, compressed logs
//! cannot be entered in their middle, and so what is shown is exactly what `analyze` would
//! say at that moment. Between two looks passes at least ten times what a look took, so
//! that following costs a tenth of a core at most.

use crate::failure::Failure;
use crate::inputs::{self, Input};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time between two looks at how large the log is.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A look costs at most one part in so many of the time.
const REST: u32 = 10;
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
        let input = only(&renamed(path))?;
        let begun = Instant::now();
        if seen.replace(input.bytes()) != Some(input.bytes()) && show(&input)? {
            return Ok(());
        }
        std::thread::sleep(LOOK_EVERY.max(begun.elapsed() * REST));
    }
}

fn only(path: &Path) -> Result<Input, Failure> {
    let mut found = inputs::find(path)?;
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
