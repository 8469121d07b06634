//! What commands are told to read: traces, and Spark's event logs wherever they lie.
//!
//! An input may be a trace, a log in one file or many, a folder of logs, a pattern
//! (`logs/app-*`), an object store's URL or a History Server's. Each becomes one
//! [`Input`] a trace or log; nothing is read before [`Input::read`], so that many
//! large logs can be gone through one at a time.

mod remote;

use crate::failure::Failure;
use crate::interrupt;
use pellucid_sparklog::Part;
use pellucid_sparklog::layout::{self, LogFiles};
use pellucid_storage::pattern::matching;
use pellucid_trace::Trace;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::rc::Rc;
use tempfile::TempDir;

/// How much of a file tells what it is. A first line may be long: Spark 1.2 logs begin
/// with no short event.
const START_BYTES: u64 = 64 << 10;

/// One trace or log.
#[derive(Debug)]
pub struct Input {
    /// What it is called: its path or URL.
    pub name: String,
    /// Whether it is one of Spark's event logs; else a trace.
    pub is_spark_log: bool,
    files: LogFiles,
    /// Holds what was fetched for as long as it is needed.
    _fetched: Option<Rc<TempDir>>,
}

impl Input {
    /// What is in these files: a trace or a log.
    fn new(name: String, files: LogFiles, fetched: Option<Rc<TempDir>>) -> Result<Self, Failure> {
        let single = files.parts.len() == 1 && files.parts[0] == files.name;
        let is_spark_log = !single
            || starts_as_spark_log(Path::new(&files.name))
                .map_err(|error| Failure::file("read", &name, &error))?;
        Ok(Input { name, is_spark_log, files, _fetched: fetched })
    }

    /// Reads it whole.
    ///
    /// # Errors
    /// When it cannot be read, or is neither a trace nor an event log.
    pub fn read(&self) -> Result<Trace, Failure> {
        if !self.is_spark_log {
            let path = Path::new(&self.files.parts[0]);
            let start = start_of(path).map_err(|error| Failure::file("read", &self.name, &error))?;
            if let Some(why) = no_trace(&start) {
                return Err(Failure::Failed(format!("cannot read {}: {why}", self.name)));
            }
            let called = |error: pellucid_trace::TraceError| {
                error.to_string().replacen(&self.files.name, &self.name, 1)
            };
            return Trace::read(path).map_err(|error| Failure::Failed(called(error)));
        }
        if self.files.parts.is_empty() {
            let name = &self.name;
            return Err(Failure::Failed(format!(
                "{name} holds no events: the application died before its first"
            )));
        }
        let mut parts = Vec::new();
        for part in &self.files.parts {
            let file = File::open(part).map_err(|error| Failure::file("read", part, &error))?;
            parts.push(Part::new(part.replacen(&self.files.name, &self.name, 1), file));
        }
        let mut trace = pellucid_sparklog::read(parts).map_err(|error| Failure::Failed(error.to_string()))?;
        trace.warnings.extend_from_slice(&self.files.warnings);
        Ok(trace)
    }

    /// Bytes of its files now: what changes while a log is written.
    pub fn bytes(&self) -> u64 {
        let length = |part: &String| std::fs::metadata(part).map_or(0, |found| found.len());
        self.files.parts.iter().map(length).sum()
    }
}

/// The traces and logs found for an input.
#[derive(Debug, Default)]
pub struct Found {
    /// Every trace and log.
    pub inputs: Vec<Input>,
    /// Files of a folder that are neither, by their paths: a log may be among them that is compressed in a
    /// way that Spark does not use.
    pub others: Vec<String>,
}

/// Every trace and log that `input` names.
///
/// # Errors
/// When there is none, or it cannot be reached.
pub fn find(input: &Path) -> Result<Found, Failure> {
    let text = input.to_string_lossy();
    if let Some(url) = text.strip_prefix("file://") {
        return find(Path::new(url));
    }
    if text.contains("://") {
        return Ok(Found { inputs: remote::find(&text)?, others: Vec::new() });
    }
    let mut found = Found::default();
    for path in matching(input) {
        local(&path, &mut found)?;
    }
    if found.inputs.is_empty() {
        return Err(Failure::Failed(format!(
            "{text}: no trace and no event log there; pass a file, a log's folder, a folder of logs, \
             or a pattern like logs/app-*"
        )));
    }
    Ok(found)
}

/// The only trace that `input` names, for commands that take one.
///
/// # Errors
/// When there is none or several, or it cannot be read.
pub fn read_one(input: &Path) -> Result<Trace, Failure> {
    let mut found = find(input)?.inputs;
    match (found.pop(), found.is_empty()) {
        (Some(only), true) => only.read(),
        (last, _) => {
            let some = found.iter().chain(&last).map(|input| input.name.as_str()).take(5);
            let some = some.collect::<Vec<_>>().join(", ");
            let count = found.len() + 1;
            Err(Failure::Usage(format!(
                "{}: {count} logs are there; name one of them: {some}",
                input.display()
            )))
        }
    }
}

fn local(path: &Path, found: &mut Found) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::file("read", path.display(), &error);
    let whole_folder = path.is_dir();
    if !whole_folder && !path.is_file() && path.exists() {
        found.inputs.extend(piped(path)?);
        return Ok(());
    }
    for files in layout::local(path).map_err(failed)? {
        let input = Input::new(files.name.clone(), files, None)?;
        // What else lies in a folder is passed over; what was named is not.
        let named = !whole_folder
            || input.is_spark_log
            || starts_as_trace(Path::new(&input.files.name)).map_err(failed)?;
        if named {
            found.inputs.push(input);
        } else {
            found.others.push(input.name);
        }
    }
    Ok(())
}

/// What a pipe brings (`<(zstdcat app.zstd)`): kept as a file, since a pipe can be read but once.
fn piped(path: &Path) -> Result<Vec<Input>, Failure> {
    let name = path.display().to_string();
    let failed = |error: io::Error| Failure::file("read", &name, &error);
    let folder = tempfile::tempdir().map_err(failed)?;
    interrupt::temporary(folder.path());
    let kept = folder.path().join("piped");
    io::copy(&mut File::open(path).map_err(failed)?, &mut File::create(&kept).map_err(failed)?)
        .map_err(failed)?;
    let folder = Rc::new(folder);
    let found = layout::local(&kept).map_err(failed)?;
    found.into_iter().map(|files| Input::new(name.clone(), files, Some(Rc::clone(&folder)))).collect()
}

fn start_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    File::open(path)?.take(START_BYTES).read_to_end(&mut start)?;
    Ok(start)
}

/// Whether it is to be read as an event log. Text that begins as JSON is, even where its
/// first line is damaged: the log's reader says best what is wrong with it.
fn starts_as_spark_log(path: &Path) -> io::Result<bool> {
    let start = start_of(path)?;
    Ok(pellucid_sparklog::looks_like_event_log(&start) || start.trim_ascii_start().starts_with(b"{"))
}

/// Describes a file that cannot be a trace by its first bytes, with a way out.
fn no_trace(start: &[u8]) -> Option<String> {
    let packed =
        |how: &str, with: &str| Some(format!("it is compressed with {how}; decompress it first ({with})"));
    match start {
        [] => {
            Some("it is empty; the job that should have written it did not begin, or still runs".to_owned())
        }
        [b'B', b'Z', b'h', ..] => packed("bzip2", "`bunzip2`"),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => packed("xz", "`unxz`"),
        [b'P', b'K', 3, 4, ..] => packed("zip", "`unzip`"),
        // As traces begin, or logs: who reads them says best what is wrong.
        _ if pellucid_sparklog::is_compressed(start) => None,
        _ => Some(format!(
            "it is neither a Pellucid trace nor a Spark event log: it begins with `{}`; pass a file that `--trace` \
             wrote, or what Spark wrote to spark.eventLog.dir",
            start[..start.len().min(20)].escape_ascii()
        )),
    }
}

fn starts_as_trace(path: &Path) -> io::Result<bool> {
    let start = start_of(path)?;
    let mut text = Vec::new();
    let mut reader = pellucid_sparklog::decompressed(&start[..])?;
    let _ = reader.by_ref().take(4096).read_to_end(&mut text); // the start of a frame may be all there is
    Ok(text.starts_with(b"{\"t\":\"header\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_no_traces_say_what_they_are() {
        for (start, says) in [
            (&b""[..], "is empty"),
            (b"BZh91AY", "compressed with bzip2; decompress it first"),
            (b"\xfd7zXZ\0", "xz"),
            (b"PK\x03\x04", "zip"),
            (b"# notes\nof ours", "begins with `# notes\\nof ours`"),
            (b"\x7fELF\x02", "begins with `\\x7fELF\\x02`"),
        ] {
            let why = no_trace(start).expect("no trace");
            assert!(why.contains(says), "{why}");
        }
        assert_eq!(no_trace(b"\x28\xb5\x2f\xfd..."), None);
    }
}
