//! Finds and reads the inputs of commands: traces and Spark event logs.
//!
//! An input is a trace, an event log in one or more files, a folder of logs, a pattern
//! (`logs/app-*`), or the URL of an object store or a History Server. Each trace or log
//! becomes one [`Input`]. [`Input::read`] reads it on demand, so that many large logs can be
//! processed one at a time.

mod remote;

use crate::console::Console;
use crate::failure::Failure;
use crate::output;
use pellucid_sparklog::Part;
use pellucid_sparklog::layout::{self, LogFiles};
use pellucid_storage::pattern::matching;
use pellucid_trace::{Recorder, Trace};
use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;
use std::rc::Rc;
use tempfile::TempDir;

/// Bytes read to detect the type of a file. The first line may be long: Spark 1.2 logs do
/// not begin with a short event.
const START_BYTES: u64 = 64 << 10;

/// One trace or log.
pub struct Input {
    /// Its path, or its URL without credentials.
    pub name: String,
    /// True for a Spark event log, false for a trace.
    pub is_spark_log: bool,
    files: LogFiles,
    /// A pipe, which can be read only once.
    pipe: Cell<Option<Pipe>>,
    /// Keeps fetched files alive as long as the input.
    _fetched: Option<Rc<TempDir>>,
}

/// An open pipe (`<(zstdcat app.zstd)`), device or socket, and the bytes that were read from it to detect its type.
type Pipe = (Vec<u8>, File);

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Input({})", self.name)
    }
}

impl Input {
    /// Detects whether the files are a trace or an event log.
    fn new(name: String, files: LogFiles, fetched: Option<Rc<TempDir>>) -> Result<Self, Failure> {
        let single = files.parts.len() == 1 && files.parts[0] == files.name;
        let is_spark_log = !single
            || starts_as_spark_log(Path::new(&files.name))
                .map_err(|error| Failure::file("read", &name, &error))?;
        Ok(Input { name, is_spark_log, files, pipe: Cell::default(), _fetched: fetched })
    }

    /// Opens a pipe and detects whether it has a trace or an event log.
    fn from_pipe(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let failed = |error: io::Error| Failure::file("read", &name, &error);
        let mut file = File::open(path).map_err(failed)?;
        let mut start = Vec::new();
        file.by_ref().take(START_BYTES).read_to_end(&mut start).map_err(failed)?;
        let is_spark_log = looks_like_spark_log(&start);
        let files = LogFiles { name: name.clone(), ..LogFiles::default() };
        Ok(Input { name, is_spark_log, files, pipe: Cell::new(Some((start, file))), _fetched: None })
    }

    /// Reads the trace or log.
    ///
    /// # Errors
    /// Returns an error if the input cannot be read, or is neither a trace nor an event log.
    pub fn read(&self) -> Result<Trace, Failure> {
        if let Some(pipe) = self.pipe.take() {
            return self.read_pipe(pipe);
        }
        if !self.is_spark_log {
            let Some(path) = self.files.parts.first().map(Path::new) else {
                return Err(Failure::Failed(format!(
                    "cannot read {} twice: it is a pipe; write it to a file first",
                    self.name
                )));
            };
            let start = start_of(path).map_err(|error| Failure::file("read", &self.name, &error))?;
            self.check_trace(&start)?;
            let renamed = |error: pellucid_trace::TraceError| {
                error.to_string().replacen(&self.files.name, &self.name, 1)
            };
            return Trace::read(path).map_err(|error| Failure::Failed(renamed(error)));
        }
        if self.files.parts.is_empty() {
            let name = &self.name;
            return Err(Failure::Failed(format!(
                "{name} contains no events: the application ended before its first event"
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

    fn read_pipe(&self, (start, file): Pipe) -> Result<Trace, Failure> {
        if self.is_spark_log {
            let part = Part::new(self.name.clone(), Cursor::new(start).chain(file));
            return pellucid_sparklog::read([part]).map_err(|error| Failure::Failed(error.to_string()));
        }
        self.check_trace(&start)?;
        let trace = Trace::from_reader(Cursor::new(start).chain(file));
        trace.map_err(|error| Failure::Failed(format!("{}: {error}", self.name)))
    }

    /// Refuses a file with these first bytes if it cannot be a trace.
    fn check_trace(&self, start: &[u8]) -> Result<(), Failure> {
        match not_a_trace(start) {
            Some(why) => Err(Failure::Failed(format!("cannot read {}: {why}", self.name))),
            None => Ok(()),
        }
    }

    /// Returns the paths of its files.
    fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.parts.iter().map(Path::new)
    }

    /// Returns the current size of its files, which changes while a log is written.
    pub fn bytes(&self) -> u64 {
        self.paths().map(|part| std::fs::metadata(part).map_or(0, |found| found.len())).sum()
    }
}

/// The traces and logs found for an input.
#[derive(Debug, Default)]
pub struct Found {
    /// All traces and logs.
    pub inputs: Vec<Input>,
    /// Paths of a folder's files that are neither. They may include logs with a compression that Spark does
    /// not use.
    pub unrecognized: Vec<String>,
}

/// Returns every trace and log that `input` names.
///
/// # Errors
/// Returns an error if there are none, or if the location cannot be reached.
pub fn find(input: &Path) -> Result<Found, Failure> {
    let text = input.to_string_lossy();
    if let Some(url) = text.strip_prefix("file://") {
        return find(Path::new(url));
    }
    if text.contains("://") {
        return Ok(Found { inputs: remote::find(&text)?, unrecognized: Vec::new() });
    }
    let mut found = Found::default();
    for path in matching(input) {
        local(&path, &mut found)?;
    }
    if found.inputs.is_empty() {
        return Err(Failure::Failed(format!(
            "found no trace or event log at {text}; pass a file, a log's folder, a folder of logs, \
             or a pattern like logs/app-*"
        )));
    }
    Ok(found)
}

/// Reads the single trace or log that `input` names.
///
/// # Errors
/// Returns an error if there are none or several, or if it cannot be read.
pub fn read_one(input: &Path) -> Result<Trace, Failure> {
    find_one(input)?.read()
}

/// Reads the single trace or log that `input` names, for a command that writes `-o output`. Warns if it is
/// truncated, which some outputs cannot say.
///
/// # Errors
/// As [`read_one`], and if the output would replace a file of the input.
pub fn read_one_for(input: &Path, output: &Path, console: &Console) -> Result<Trace, Failure> {
    let found = find_one(input)?;
    output::check_outputs(&[("-o", Some(output))], found.paths())?;
    let trace = found.read()?;
    if let Some(why) = &trace.truncated {
        console.warn(&format!("{} is truncated ({why}): the output covers the recorded part", found.name));
    }
    Ok(trace)
}

/// Rejects a file of the option `--trace` that exists and is neither empty, a trace, nor an event log.
///
/// # Errors
/// Returns an error for such a file, or if it cannot be read.
pub fn check_log_path(path: &Path) -> Result<(), Failure> {
    // Reading a pipe would wait for its writer.
    if path.is_file()
        && let Ok(start) = start_of(path)
        && pellucid_sparklog::looks_like_event_log(&start)
    {
        return Ok(());
    }
    Ok(Recorder::check_path(path)?)
}

fn find_one(input: &Path) -> Result<Input, Failure> {
    let mut found = find(input)?.inputs;
    match (found.pop(), found.is_empty()) {
        (Some(only), true) => Ok(only),
        (last, _) => {
            let some = found.iter().chain(&last).map(|input| input.name.as_str()).take(5);
            let some = some.collect::<Vec<_>>().join(", ");
            let count = found.len() + 1;
            Err(Failure::Usage(format!(
                "{} contains {count} logs; name one of them: {some}",
                pellucid_storage::shown(&input.to_string_lossy())
            )))
        }
    }
}

fn local(path: &Path, found: &mut Found) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::file("read", path.display(), &error);
    let whole_folder = path.is_dir();
    if !whole_folder && !path.is_file() && path.exists() {
        found.inputs.push(Input::from_pipe(path)?);
        return Ok(());
    }
    for files in layout::local(path).map_err(failed)? {
        let input = Input::new(files.name.clone(), files, None)?;
        // Skip unrecognized files of a folder. Keep explicitly named ones: reading them reports an error.
        let wanted = !whole_folder
            || input.is_spark_log
            || starts_as_trace(Path::new(&input.files.name)).map_err(failed)?;
        if wanted {
            found.inputs.push(input);
        } else {
            found.unrecognized.push(input.name);
        }
    }
    Ok(())
}

fn start_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    File::open(path)?.take(START_BYTES).read_to_end(&mut start)?;
    Ok(start)
}

fn starts_as_spark_log(path: &Path) -> io::Result<bool> {
    start_of(path).map(|start| looks_like_spark_log(&start))
}

/// Returns whether to read a file as an event log. This includes JSON text with a damaged first
/// line, since the log reader reports the damage best.
fn looks_like_spark_log(start: &[u8]) -> bool {
    pellucid_sparklog::looks_like_event_log(start) || start.trim_ascii_start().starts_with(b"{")
}

/// Returns why a file with these first bytes cannot be a trace, with a remedy; `None` if it may be one.
fn not_a_trace(start: &[u8]) -> Option<String> {
    let packed =
        |how: &str, with: &str| Some(format!("it is compressed with {how}; decompress it first ({with})"));
    match start {
        [] => Some("it is empty; the job that writes it has not started, or is still running".to_owned()),
        [b'B', b'Z', b'h', ..] => packed("bzip2", "`bunzip2`"),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => packed("xz", "`unxz`"),
        [b'P', b'K', 3, 4, ..] => packed("zip", "`unzip`"),
        // It may be a trace or a log; their readers report damage best.
        _ if pellucid_sparklog::is_compressed(start) => None,
        _ => Some(format!(
            "it is neither a Pellucid trace nor a Spark event log: it begins with `{}`; pass a file written \
             by `--trace`, or one that Spark wrote to spark.eventLog.dir",
            start[..start.len().min(20)].escape_ascii()
        )),
    }
}

fn starts_as_trace(path: &Path) -> io::Result<bool> {
    let start = start_of(path)?;
    let mut text = Vec::new();
    let mut reader = pellucid_sparklog::decompressed(&start[..])?;
    let _ = reader.by_ref().take(4096).read_to_end(&mut text); // the frame may be truncated
    Ok(text.starts_with(b"{\"t\":\"header\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_trace_files_are_described() {
        for (start, says) in [
            (&b""[..], "is empty"),
            (b"BZh91AY", "compressed with bzip2; decompress it first"),
            (b"\xfd7zXZ\0", "xz"),
            (b"PK\x03\x04", "zip"),
            (b"# notes\nof ours", "begins with `# notes\\nof ours`"),
            (b"\x7fELF\x02", "begins with `\\x7fELF\\x02`"),
        ] {
            let why = not_a_trace(start).expect("not a trace");
            assert!(why.contains(says), "{why}");
        }
        assert_eq!(not_a_trace(b"\x28\xb5\x2f\xfd..."), None);
    }
}
