//! Reads the parts of a log into a trace.

use std::cell::Cell;
use std::io::{self, Read};

use pellucid_trace::{Trace, budget};

use crate::error::Error;
use crate::event;
use crate::files::codec::{self, Codec};
use crate::files::lines::{Line, Lines, MAX_LINE_BYTES};
use crate::json::Malformed;
use crate::log::{Log, build};

/// One file of a log, with its name for messages.
pub struct Part<R> {
    name: String,
    reader: R,
}

impl<R: Read> Part<R> {
    /// Creates a part. `reader` may be compressed.
    pub fn new(name: impl Into<String>, reader: R) -> Part<R> {
        Part { name: name.into(), reader }
    }
}

/// A reader that counts the bytes of all parts, as they are stored.
struct Counted<'a, R> {
    reader: R,
    bytes: &'a Cell<u64>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(into)?;
        self.bytes.set(self.bytes.get() + read as u64);
        Ok(read)
    }
}

/// The end of a part.
enum PartEnd {
    /// The part is truncated, with the reason.
    Truncated(String),
    /// The part was read completely.
    Complete,
}

/// Reads one application's log from its parts, in order. Truncated, damaged or malformed parts are read as
/// far as possible; `truncated` and `warnings` of the trace describe what is missing.
///
/// # Errors
/// Fails if the first bytes of a part cannot be read, if no part contains a Spark event, or if the events
/// exceed the [budget](pellucid_trace::budget).
pub fn read<R: Read>(parts: impl IntoIterator<Item = Part<R>>) -> Result<Trace, Error> {
    let mut log = Log::default();
    let mut bytes = 0;
    let stored_bytes = Cell::new(0);
    let mut first: Option<(String, Codec, u64)> = None;
    let mut truncated = None;
    for part in parts {
        let io = |source| Error::Io { name: part.name.clone(), source };
        let (codec, reader) =
            codec::open(Counted { reader: part.reader, bytes: &stored_bytes }).map_err(io)?;
        let mut lines = Lines::new(reader);
        let end = read_part(&mut log, &mut lines, &part.name, &stored_bytes)?;
        first.get_or_insert((part.name, codec, lines.bytes));
        bytes += lines.bytes;
        if let PartEnd::Truncated(why) = end {
            truncated.get_or_insert(why);
        }
    }
    if !log.is_event_log() {
        return Err(no_events(first, &log, truncated));
    }
    let mut trace = build::trace(log);
    trace.bytes = bytes;
    if let Some(why) = truncated {
        // Both are shown to the user, so the reason goes into only one of them.
        if trace.end.is_none() {
            trace.truncated = Some(why);
        } else {
            trace.warnings.push(why);
        }
    }
    Ok(trace)
}

fn read_part<R: Read>(
    log: &mut Log,
    lines: &mut Lines<R>,
    name: &str,
    stored_bytes: &Cell<u64>,
) -> Result<PartEnd, Error> {
    loop {
        if let Some(why) = budget::exceeded(log.memory_bytes(), stored_bytes.get()) {
            return Err(Error::TooLarge { name: name.to_owned(), why });
        }
        let number = lines.lines + 1;
        match lines.next() {
            Ok(None) => return Ok(PartEnd::Complete),
            Ok(Some(Line::Whole(line))) => {
                let line = without_mark(line, number);
                if let Err(error) = take(log, line) {
                    log.warnings.malformed(number, error.offset, line.len());
                }
            }
            Ok(Some(Line::Unterminated(line))) => {
                let line = without_mark(line, number);
                // The writer may have omitted the last terminator. Only a truncated line is invalid JSON.
                let truncated = PartEnd::Truncated(format!("{name} is truncated within line {number}"));
                return Ok(if take(log, line).is_ok() { PartEnd::Complete } else { truncated });
            }
            Ok(Some(Line::TooLong(length))) => {
                let limit = MAX_LINE_BYTES >> 20;
                log.warnings.add(format!("skipped line {number} of {length} bytes: longer than {limit} MiB"));
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(PartEnd::Truncated(format!(
                    "{name} is truncated: its compressed data ends early, after line {}",
                    number - 1
                )));
            }
            Err(error) => {
                return Ok(PartEnd::Truncated(format!(
                    "{name} is readable up to line {} only: {error}",
                    number - 1
                )));
            }
        }
    }
}

/// Adds a line's event to the log. On failure, the log is unchanged.
fn take(log: &mut Log, line: &[u8]) -> Result<(), Malformed> {
    if line.trim_ascii().is_empty() {
        return Ok(());
    }
    match event::parse(line)? {
        Some(event) => log.apply(event),
        None => log.warnings.no_event += 1,
    }
    Ok(())
}

/// The mark that editors on Windows put at the beginning of a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

fn without_mark(line: &[u8], number: u64) -> &[u8] {
    line.strip_prefix(BYTE_ORDER_MARK).filter(|_| number == 1).unwrap_or(line)
}

/// Returns the error for a log without events.
fn no_events(first: Option<(String, Codec, u64)>, log: &Log, truncated: Option<String>) -> Error {
    let Some((name, codec, bytes)) = first else {
        return Error::NotAnEventLog { name: "the input".into(), why: "it has no files".into() };
    };
    let malformed = log.warnings.malformed_lines() > 0;
    let why = match (truncated, bytes) {
        (Some(why), _) if !malformed => return Error::Truncated { why },
        (Some(why), _) => why,
        (None, 0) => "it is empty".into(),
        (None, _) if !malformed => "its lines are JSON, but not Spark events".into(),
        (None, _) if codec == Codec::Plain => "its lines are not JSON".into(),
        (None, _) => format!("its lines, decompressed as {codec:?}, are not JSON"),
    };
    Error::NotAnEventLog { name, why }
}

/// Returns a reader of a file's content, decompressed if it has one of the codecs of logs.
///
/// # Errors
/// Fails if the first bytes cannot be read.
pub fn decompressed<'a>(reader: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    codec::open(reader).map(|(_, reader)| reader)
}

/// Returns whether a file that begins with `start` is compressed with one of the codecs of logs.
pub fn is_compressed(start: &[u8]) -> bool {
    Codec::of(start) != Codec::Plain
}

/// Returns whether a file that begins with `start` (some kilobytes) may be an event log: either its first
/// complete line is an event, or it has a codec that only Spark uses.
pub fn looks_like_event_log(start: &[u8]) -> bool {
    match Codec::of(start) {
        Codec::Lz4 | Codec::Lzf | Codec::Snappy => return true,
        Codec::Plain | Codec::Gzip | Codec::Zstd => {}
    }
    let Ok((_, mut reader)) = codec::open(start) else { return false };
    let mut head = vec![0; 1 << 12];
    let mut length = 0;
    // If `start` ends within a frame, the reader returns the content so far, then an error.
    while let Ok(read @ 1..) = reader.read(&mut head[length..]) {
        length += read;
    }
    let text = without_mark(&head[..length], 1).trim_ascii_start();
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    match event::name(line) {
        Ok(Some(name)) => event::is_spark(event::short(&name)),
        Ok(None) => false,
        // The first line exceeds the inspected bytes, so only its beginning is checked.
        Err(_) => {
            text.starts_with(b"{") && memchr::memmem::find(line, b"\"Event\":\"SparkListener").is_some()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "{\"Event\":\"SparkListenerLogStart\",\"Spark Version\":\"4.0.1\"}\n\
                       {\"Event\":\"SparkListenerApplicationEnd\",\"Timestamp\":2}\n";

    fn of(bytes: &[u8]) -> Result<Trace, Error> {
        read([Part::new("app", bytes)])
    }

    #[test]
    fn byte_order_mark_is_skipped() {
        let marked = [BYTE_ORDER_MARK, LOG.as_bytes()].concat();
        for bytes in [zstd::encode_all(&marked[..], 3).expect("compressed"), marked] {
            assert!(looks_like_event_log(&bytes));
            let trace = of(&bytes).expect("a log");
            assert_eq!(trace.warnings, of(LOG.as_bytes()).expect("a log").warnings);
            assert_eq!(trace.application.and_then(|a| a.engine_version).as_deref(), Some("4.0.1"));
        }
    }

    #[test]
    fn errors_tell_truncated_logs_from_other_files() {
        let whole = zstd::encode_all(LOG.as_bytes(), 3).expect("compressed");
        let error = of(&whole[..whole.len() / 2]).expect_err("cut").to_string();
        assert!(error.contains("app is truncated") && error.contains("copy the log again"), "{error}");
        let error = of(b"[1]\nno JSON\n").expect_err("no log").to_string();
        assert!(error.contains("not a Spark event log: its lines are not JSON"), "{error}");
    }
}
