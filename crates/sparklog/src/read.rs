//! From the parts of a log to its trace.

use std::io::{self, Read};

use pellucid_trace::Trace;

use crate::codec::{self, Codec};
use crate::error::Error;
use crate::event;
use crate::lines::{Line, Lines, MAX_LINE_BYTES};
use crate::log::Log;

/// One file of a log, under the name that messages call it by.
pub struct Part<R> {
    name: String,
    reader: R,
}

impl<R: Read> Part<R> {
    /// A part that is read from `reader`; compressed or not.
    pub fn new(name: impl Into<String>, reader: R) -> Part<R> {
        Part { name: name.into(), reader }
    }
}

/// How a part ended before its end.
enum Stopped {
    /// It is cut: the rest is not there.
    Cut(String),
    /// Not at all.
    No,
}

/// Reads one application's log from its parts, in their order. Parts that are
/// cut, damaged or malformed are read as far as they go; the trace's `truncated`
/// and `warnings` say what is missing.
///
/// # Errors
/// When a part cannot be read from its first byte on, or nothing in any of them
/// is an event of Spark.
pub fn read<R: Read>(parts: impl IntoIterator<Item = Part<R>>) -> Result<Trace, Error> {
    let mut log = Log::default();
    let mut bytes = 0;
    let mut first: Option<(String, Codec, u64)> = None;
    let mut cut = None;
    for part in parts {
        let io = |source| Error::Io { name: part.name.clone(), source };
        let (codec, reader) = codec::open(part.reader).map_err(io)?;
        let mut lines = Lines::new(reader);
        let stopped = read_part(&mut log, &mut lines, &part.name);
        first.get_or_insert((part.name, codec, lines.bytes));
        bytes += lines.bytes;
        if let Stopped::Cut(why) = stopped {
            cut.get_or_insert(why);
        }
    }
    if !log.is_event_log() {
        return Err(no_events(first, &log, cut));
    }
    let mut trace = log.finish();
    trace.bytes = bytes;
    if let Some(cut) = cut {
        // Either is shown: a cut that is said in both would be said twice.
        if trace.end.is_none() {
            trace.truncated = Some(cut);
        } else {
            trace.warnings.push(cut);
        }
    }
    Ok(trace)
}

fn read_part<R: Read>(log: &mut Log, lines: &mut Lines<R>, name: &str) -> Stopped {
    loop {
        let number = lines.lines + 1;
        match lines.next() {
            Ok(None) => return Stopped::No,
            Ok(Some(Line::Whole(line))) => log.line(without_mark(line, number), number),
            Ok(Some(Line::Unended(line))) => {
                let line = without_mark(line, number);
                // What wrote it may have left out the last line's end, or been
                // stopped within it; only then it is no JSON.
                let cut = Stopped::Cut(format!("{name} is cut within line {number}"));
                return if log.last_line(line) { Stopped::No } else { cut };
            }
            Ok(Some(Line::TooLong(length))) => {
                let limit = MAX_LINE_BYTES >> 20;
                log.warnings
                    .say(format!("line {number} of {length} bytes is left out: longer than {limit} MiB"));
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Stopped::Cut(format!(
                    "{name} is cut: its compressed bytes end early, after line {}",
                    number - 1
                ));
            }
            Err(error) => {
                return Stopped::Cut(format!("{name} is read up to line {} only: {error}", number - 1));
            }
        }
    }
}

/// Editors on Windows put it at the beginning of a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

fn without_mark(line: &[u8], number: u64) -> &[u8] {
    line.strip_prefix(BYTE_ORDER_MARK).filter(|_| number == 1).unwrap_or(line)
}

/// What a log without events is instead.
fn no_events(first: Option<(String, Codec, u64)>, log: &Log, cut: Option<String>) -> Error {
    let Some((name, codec, bytes)) = first else {
        return Error::NotAnEventLog { name: "the input".into(), why: "it has no files".into() };
    };
    let malformed = log.warnings.malformed_lines() > 0;
    let why = match (cut, bytes) {
        (Some(why), _) if !malformed => return Error::Cut { why },
        (Some(cut), _) => cut,
        (None, 0) => "it is empty".into(),
        (None, _) if !malformed => "its lines are JSON, but no events of Spark".into(),
        (None, _) if codec == Codec::Plain => "its lines are no JSON".into(),
        (None, _) => format!("its lines, decompressed as {codec:?}, are no JSON"),
    };
    Error::NotAnEventLog { name, why }
}

/// What a file holds, decompressed if it is compressed in a way that logs are.
///
/// # Errors
/// When its first bytes cannot be read.
pub fn decompressed<'a>(reader: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    codec::open(reader).map(|(_, reader)| reader)
}

/// Whether a file that begins with `start` is compressed in a way that logs are.
pub fn is_compressed(start: &[u8]) -> bool {
    Codec::of(start) != Codec::Plain
}

/// Whether a file that begins with `start` (some kilobytes of it) may be an
/// event log: its first whole line is an event, or it is compressed in a way
/// that only Spark does.
pub fn looks_like_event_log(start: &[u8]) -> bool {
    match Codec::of(start) {
        Codec::Lz4 | Codec::Lzf | Codec::Snappy => return true,
        Codec::Plain | Codec::Gzip | Codec::Zstd => {}
    }
    let Ok((_, mut reader)) = codec::open(start) else { return false };
    let mut head = vec![0; 1 << 12];
    let mut length = 0;
    // A start that is cut within a frame gives what it holds, then an error.
    while let Ok(read @ 1..) = reader.read(&mut head[length..]) {
        length += read;
    }
    let text = without_mark(&head[..length], 1).trim_ascii_start();
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    match event::name(line) {
        Ok(Some(name)) => event::is_spark(event::short(&name)),
        Ok(None) => false,
        // A first line longer than what was looked at: its beginning must do.
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
    fn a_byte_order_mark_is_passed_over() {
        let marked = [BYTE_ORDER_MARK, LOG.as_bytes()].concat();
        for bytes in [zstd::encode_all(&marked[..], 3).expect("compressed"), marked] {
            assert!(looks_like_event_log(&bytes));
            let trace = of(&bytes).expect("a log");
            assert_eq!(trace.warnings, of(LOG.as_bytes()).expect("a log").warnings);
            assert_eq!(trace.application.and_then(|a| a.engine_version).as_deref(), Some("4.0.1"));
        }
    }

    #[test]
    fn a_log_that_is_cut_before_its_first_event_says_so() {
        let whole = zstd::encode_all(LOG.as_bytes(), 3).expect("compressed");
        let error = of(&whole[..whole.len() / 2]).expect_err("cut").to_string();
        assert!(error.contains("app is cut") && error.contains("copy the log again"), "{error}");
        let error = of(b"[1]\nno JSON\n").expect_err("no log").to_string();
        assert!(error.contains("not a Spark event log: its lines are no JSON"), "{error}");
    }
}
