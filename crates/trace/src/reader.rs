//! Reads a trace record by record, even if it is truncated or damaged.
//!
//! The reader returns the records of a block (one zstd frame of whole JSON lines)
//! only after the whole block was decompressed and its checksum verified. It thus
//! reads a truncated trace up to the last whole block, and a damaged one up to the
//! damage; [`Reader::truncated`] then returns the place and the cause. Memory is
//! bounded by one block and its records, whatever the input.
//!
//! In contrast, a whole block with a malformed line is an error of the producer,
//! and the reader returns an error that names the line.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread;

use memchr::memchr;
use serde::Deserialize;

use crate::blocks::{Block, Blocks};
use crate::budget;
use crate::error::TraceError;
use crate::format::{FORMAT_MAJOR, FORMAT_MINOR};
use crate::record::{Monotask, Record};
use crate::trace::Trace;

/// Prefix of the version in [`Header::format`](crate::Header::format).
const FORMAT_NAME: &str = "pellucid.trace/";
/// Maximum number of warnings to keep.
const MAX_WARNINGS: usize = 20;
/// Minimum size of a block to parse with two threads; smaller ones are parsed before a thread starts.
const MIN_SHARED_BYTES: usize = 64 << 10;

/// Parses a record of a frequent type, in a third of the time of serde's tagged enum: reading the type first
/// avoids buffering the other fields. Returns `None` for other types, other formatting, and malformed lines.
fn frequent(line: &str) -> Option<Record> {
    match line.strip_prefix(r#"{"t":""#)?.split_once('"')?.0 {
        "monotask" => serde_json::from_str(line).ok().map(Record::Monotask),
        "multitask" => serde_json::from_str(line).ok().map(Record::Multitask),
        "pipelined_task" => serde_json::from_str(line).ok().map(Record::PipelinedTask),
        "utilization_sample" => serde_json::from_str(line).ok().map(Record::UtilizationSample),
        _ => None,
    }
}

/// Returns the estimated memory of a record in a [`Trace`](crate::Trace), from its line's length.
fn memory_bytes(record: &Record, line_bytes: usize) -> u64 {
    /// A [packed](crate::PipelinedTasks) task.
    const PACKED_BYTES: usize = 100;
    let bytes = match record {
        Record::Monotask(_) => size_of::<Monotask>(),
        Record::PipelinedTask(_) => PACKED_BYTES,
        // Texts take no more memory than in the line.
        _ => size_of::<Record>() + line_bytes,
    };
    bytes as u64
}

/// The [`frequent`] records of a part of a block, with the start and the newline of each line.
#[derive(Default)]
struct Parsed {
    lines: VecDeque<(usize, usize)>,
    records: VecDeque<Record>,
}

impl Parsed {
    /// Parses the lines within a range of the block.
    fn between(text: &str, between: Range<usize>) -> Parsed {
        let (mut parsed, mut at) = (Parsed::default(), between.start);
        while let Some(length) = memchr(b'\n', &text.as_bytes()[at..between.end]) {
            let line = (at, at + length);
            at = line.1 + 1;
            if let Some(record) = frequent(&text[line.0..line.1]) {
                parsed.lines.push_back(line);
                parsed.records.push_back(record);
            }
        }
        parsed
    }

    /// Takes the record of the line that starts at `from`, with the position of its newline.
    fn at(&mut self, from: usize) -> Option<(usize, Record)> {
        let newline = self.lines.front().filter(|line| line.0 == from)?.1;
        self.lines.pop_front();
        Some((newline, self.records.pop_front()?))
    }
}

/// A streaming reader of the records of a trace: first the header, then the others in file order.
///
/// Ends after the last record of the last whole block, or with the first error.
pub struct Reader<R> {
    blocks: Blocks<R>,
    path: Option<PathBuf>,
    /// The current block and the read position in it.
    block: Vec<u8>,
    at: usize,
    /// The frequent records of the current block, parsed in advance in two parts.
    parsed: [Parsed; 2],
    /// The next block, if it was decompressed in advance.
    ahead: Option<(io::Result<Block>, Vec<u8>)>,
    lines: u64,
    /// Estimated memory of the records so far.
    record_bytes: u64,
    minor: u32,
    ended: bool,
    failed: bool,
    truncated: Option<String>,
    warnings: Vec<String>,
}

impl Reader<File> {
    /// Opens the trace at `path`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is not a trace, or has a newer major version.
    pub fn open(path: &Path) -> Result<Reader<File>, TraceError> {
        let file = File::open(path).map_err(|source| TraceError::Io {
            path: Some(path.to_owned()),
            action: "read",
            source,
        })?;
        Reader::begin(file, Some(path.to_owned()))
    }
}

impl<R: Read + Send> Reader<R> {
    /// Reads the first block of `reader`, which needs no buffering.
    ///
    /// # Errors
    /// Returns an error if the input cannot be read, is not a trace, or has a newer major version.
    pub fn new(reader: R) -> Result<Reader<R>, TraceError> {
        Reader::begin(reader, None)
    }

    fn begin(input: R, path: Option<PathBuf>) -> Result<Reader<R>, TraceError> {
        let blocks = Blocks::new(input).map_err(|source| TraceError::Io {
            path: path.clone(),
            action: "read",
            source,
        })?;
        let mut reader = Reader {
            blocks,
            path,
            block: Vec::new(),
            at: 0,
            parsed: Default::default(),
            ahead: None,
            lines: 0,
            record_bytes: 0,
            minor: 0,
            ended: false,
            failed: false,
            truncated: None,
            warnings: Vec::new(),
        };
        reader.next_block()?;
        if reader.blocks.bytes == 0 {
            return Err(reader.not_a_trace("it is empty".into()));
        }
        if let Some(why) = reader.truncated.take() {
            return Err(reader.not_a_trace(why));
        }
        let first = reader.block.split(|b| *b == b'\n').next().unwrap_or(&[]);
        reader.minor = reader.version(first)?;
        Ok(reader)
    }

    /// Returns the cause of an incomplete trace; known after the end of the iterator.
    pub fn truncated(&self) -> Option<&str> {
        self.truncated.as_deref()
    }

    /// Returns messages about skipped or unusual records so far.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the number of bytes read so far.
    pub fn bytes(&self) -> u64 {
        self.blocks.bytes
    }

    /// Adds the current line to a [`TraceError::Invalid`].
    fn malformed(&self, error: TraceError) -> TraceError {
        match error {
            TraceError::Invalid { why } => self.malformed_because(why),
            other => other,
        }
    }

    /// Returns an error if the records so far exceed the [budget](crate::budget) of a reader that keeps them.
    fn within_budget(&self) -> Result<(), TraceError> {
        match budget::exceeded(self.record_bytes, self.blocks.bytes) {
            Some(why) => Err(TraceError::TooLarge { path: self.path.clone(), why }),
            None => Ok(()),
        }
    }

    fn malformed_because(&self, why: String) -> TraceError {
        TraceError::Malformed { path: self.path.clone(), line: self.lines, why }
    }

    fn not_a_trace(&self, why: String) -> TraceError {
        TraceError::NotATrace { path: self.path.clone(), why }
    }

    /// Checks the first line and returns its minor version.
    fn version(&self, first: &[u8]) -> Result<u32, TraceError> {
        #[derive(Deserialize)]
        struct Format {
            format: String,
        }
        let header: Format = serde_json::from_slice(first)
            .map_err(|_| self.not_a_trace("the first line is not a header".into()))?;
        let numbers = header
            .format
            .strip_prefix(FORMAT_NAME)
            .and_then(|version| version.split_once('.'))
            .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        let (major, minor): (u32, u32) =
            numbers.ok_or_else(|| self.not_a_trace(format!("unknown format `{:.40}`", header.format)))?;
        if major > FORMAT_MAJOR {
            return Err(TraceError::NewerMajor { path: self.path.clone(), format: header.format });
        }
        Ok(minor)
    }

    /// Advances to the next whole block; returns false at the end of the trace or of its readable part.
    fn next_block(&mut self) -> Result<bool, TraceError> {
        self.at = 0;
        let found = match self.ahead.take() {
            Some((found, block)) => {
                self.block = block;
                found
            }
            None => self.blocks.next(&mut self.block),
        };
        match found {
            Ok(Block::Whole) => {
                self.parse_ahead();
                Ok(true)
            }
            Ok(Block::None) => {
                if !self.ended {
                    self.stopped("no end record (the job was killed or is still running); ends");
                }
                Ok(false)
            }
            Ok(Block::Cut) => {
                self.stopped("cut");
                Ok(false)
            }
            Ok(Block::Damaged(why)) => {
                self.stopped(&format!("damaged ({why})"));
                Ok(false)
            }
            Err(source) => Err(TraceError::Io { path: self.path.clone(), action: "read", source }),
        }
    }

    /// Parses the [`frequent`] records of the current block. For a large block, a second thread decompresses
    /// the next block and then parses the last third, which is about half of the work.
    fn parse_ahead(&mut self) {
        // Invalid UTF-8 is reported later, when its line is parsed.
        let Ok(text) = std::str::from_utf8(&self.block) else { return };
        let two_thirds = text.len() / 3 * 2;
        let cut = memchr(b'\n', &self.block[two_thirds..]).filter(|_| text.len() >= MIN_SHARED_BYTES);
        let Some(cut) = cut.map(|at| two_thirds + at + 1) else {
            self.parsed = [Parsed::between(text, 0..text.len()), Parsed::default()];
            return;
        };
        let blocks = &mut self.blocks;
        thread::scope(|scope| {
            let helper = thread::Builder::new().spawn_scoped(scope, move || {
                let mut next = Vec::with_capacity(text.len());
                let found = blocks.next(&mut next);
                (Parsed::between(text, cut..text.len()), (found, next))
            });
            let first = Parsed::between(text, 0..cut);
            let Ok(helper) = helper else {
                // The system cannot start another thread.
                self.parsed = [first, Parsed::between(text, cut..text.len())];
                return;
            };
            let (last, next) = helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            self.parsed = [first, last];
            self.ahead = Some(next);
        });
    }

    fn stopped(&mut self, how: &str) {
        let block = self.blocks.whole;
        let records = self.lines;
        self.truncated =
            Some(format!("{how} after block {block}, record {records}, of {} bytes", self.blocks.bytes));
    }

    fn warn(&mut self, warning: String) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(warning);
        }
    }

    /// Parses the record in `line`; returns `None` if a newer minor version added its type.
    fn parse(&mut self, line: &[u8]) -> Result<Option<Record>, TraceError> {
        #[derive(Deserialize)]
        struct Type {
            t: String,
        }
        match serde_json::from_slice::<Record>(line) {
            Ok(record) => Ok(Some(record)),
            Err(why) => match serde_json::from_slice::<Type>(line) {
                Ok(Type { t }) if self.minor > FORMAT_MINOR && !Record::TYPES.contains(&&*t) => {
                    self.warn(format!(
                        "line {}: skipped a `{t:.40}` record of format {FORMAT_MAJOR}.{}; \
                         upgrade pellucid to read it",
                        self.lines, self.minor
                    ));
                    Ok(None)
                }
                _ => Err(self.malformed_because(format!("not a record: {why}"))),
            },
        }
    }

    fn read(&mut self) -> Result<Option<Record>, TraceError> {
        loop {
            let from = self.at;
            if from == self.block.len() {
                if !self.next_block()? {
                    return Ok(None);
                }
                continue;
            }
            self.lines += 1;
            if self.ended {
                return Err(self.malformed_because("record after the end".into()));
            }
            if let Some((newline, record)) = self.parsed.iter_mut().find_map(|part| part.at(from)) {
                self.at = newline + 1;
                self.record_bytes += memory_bytes(&record, newline - from);
                return Ok(Some(record));
            }
            let Some(length) = memchr(b'\n', &self.block[from..]) else {
                return Err(self.malformed_because("the block ends within a line".into()));
            };
            self.at += length + 1;
            let block = std::mem::take(&mut self.block);
            let record = self.parse(&block[from..from + length]);
            self.block = block;
            let Some(record) = record? else { continue };
            self.record_bytes += memory_bytes(&record, length);
            if let Record::End(end) = &record {
                self.ended = true;
                let read = self.lines - 1;
                if end.records != read {
                    self.warn(format!("the end counts {} records, but the trace has {read}", end.records));
                }
            }
            return Ok(Some(record));
        }
    }
}

impl<R: Read + Send> Iterator for Reader<R> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.truncated.is_some() {
            return None;
        }
        let record = self.read().transpose();
        self.failed = matches!(record, Some(Err(_)));
        record
    }
}

impl Trace {
    /// Reads the file at `path`. Of a truncated file, reads all whole blocks.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is not a trace, has a newer major version, contains
    /// a malformed line, or exceeds the [budget](crate::budget).
    pub fn read(path: &Path) -> Result<Trace, TraceError> {
        Trace::collect(Reader::open(path)?)
    }

    /// Reads a trace from `reader`.
    ///
    /// # Errors
    /// Returns the same errors as [`Trace::read`].
    pub fn from_reader(reader: impl Read + Send) -> Result<Trace, TraceError> {
        Trace::collect(Reader::new(reader)?)
    }

    fn collect<R: Read + Send>(mut reader: Reader<R>) -> Result<Trace, TraceError> {
        let mut trace = Trace::default();
        while let Some(record) = reader.next() {
            trace.push(record?).map_err(|e| reader.malformed(e))?;
            reader.within_budget()?;
        }
        trace.truncated = reader.truncated().map(str::to_owned);
        trace.warnings.extend_from_slice(reader.warnings());
        trace.bytes = reader.bytes();
        Ok(trace)
    }
}
