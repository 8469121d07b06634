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
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use crate::record::Record;
use crate::{FORMAT_MAJOR, FORMAT_MINOR, MAX_BLOCK_BYTES, Monotask, TraceError, budget};

/// Prefix of the version in [`Header::format`](crate::Header::format).
const FORMAT_NAME: &str = "pellucid.trace/";
/// Maximum window of a frame: that of the largest block.
const WINDOW_LOG_MAX: u32 = MAX_BLOCK_BYTES.ilog2();
const INPUT_BYTES: usize = 64 << 10;
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
    pub(crate) fn malformed(&self, error: TraceError) -> TraceError {
        match error {
            TraceError::Invalid { why } => self.malformed_because(why),
            other => other,
        }
    }

    /// Returns an error if the records so far exceed the [budget](crate::budget) of a reader that keeps them.
    pub(crate) fn within_budget(&self) -> Result<(), TraceError> {
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

/// The result of [`Blocks::next`].
enum Block {
    Whole,
    /// The input has ended.
    None,
    /// The input ends within a frame.
    Cut,
    /// The frame cannot be decompressed; the rest is not trusted.
    Damaged(String),
}

/// A decompressor that reads one frame at a time.
struct Blocks<R> {
    input: R,
    decoder: Decoder<'static>,
    buffer: Vec<u8>,
    from: usize,
    to: usize,
    bytes: u64,
    whole: u64,
}

impl<R: Read + Send> Blocks<R> {
    fn new(input: R) -> io::Result<Blocks<R>> {
        let mut decoder = Decoder::new()?;
        decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX))?;
        Ok(Blocks { input, decoder, buffer: vec![0; INPUT_BYTES], from: 0, to: 0, bytes: 0, whole: 0 })
    }

    /// Decompresses the next frame into `block`. Errors are those of the input.
    fn next(&mut self, block: &mut Vec<u8>) -> io::Result<Block> {
        block.clear();
        let mut in_frame = false;
        // The decoder may hold output that did not fit in the last call.
        let mut pending = false;
        loop {
            if !pending && self.from == self.to && !self.fill()? {
                block.clear();
                return Ok(if in_frame { Block::Cut } else { Block::None });
            }
            in_frame = true;
            if block.len() == block.capacity() {
                block.reserve(INPUT_BYTES);
            }
            let mut input = InBuffer::around(&self.buffer[self.from..self.to]);
            let written = block.len();
            let mut output = OutBuffer::around_pos(block, written);
            let hint = self.decoder.run(&mut input, &mut output);
            self.from += input.pos();
            pending = block.len() == block.capacity();
            match hint {
                Err(why) => {
                    block.clear();
                    return Ok(Block::Damaged(why.to_string()));
                }
                Ok(0) => {
                    self.whole += 1;
                    self.decoder.reinit()?;
                    return Ok(Block::Whole);
                }
                Ok(_) if block.len() > MAX_BLOCK_BYTES => {
                    block.clear();
                    let why = format!("a block exceeds {} MiB", MAX_BLOCK_BYTES >> 20);
                    return Ok(Block::Damaged(why));
                }
                Ok(_) => {}
            }
        }
    }

    fn fill(&mut self) -> io::Result<bool> {
        let read = loop {
            match self.input.read(&mut self.buffer) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        (self.from, self.to) = (0, read);
        self.bytes += read as u64;
        Ok(read > 0)
    }
}
