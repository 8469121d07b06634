//! Reads a trace back, record by record, however it ended.
//!
//! A block (one zstd frame of whole JSON lines) is handed on only once all of it
//! decompressed and its checksum held. So a trace that was cut anywhere reads
//! back to the last record of its last whole block, and a damaged one to the
//! block before the damage; [`Reader::truncated`] then says where it stopped and
//! why. Memory is bounded by one block and its records, whatever the bytes say.
//!
//! A whole block with a line that is no record is another matter: whoever wrote
//! it is at fault, and the reader says which line.

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
use crate::{FORMAT_MAJOR, FORMAT_MINOR, MAX_BLOCK_BYTES, TraceError};

/// What precedes the version in [`Header::format`](crate::Header::format).
const FORMAT_NAME: &str = "pellucid.trace/";
/// Window that a frame may ask for: that of the largest block.
const WINDOW_LOG_MAX: u32 = MAX_BLOCK_BYTES.ilog2();
const INPUT_BYTES: usize = 64 << 10;
/// How often the same warning is worth its line.
const MAX_WARNINGS: usize = 20;
/// Smaller blocks are parsed before a second thread has begun.
const SHARED_BYTES: usize = 64 << 10;

/// A record of the types that a trace has most of, in a third of the time: its type is known before it is
/// parsed, so that nothing need be kept until it is. `None`: of another type, written otherwise, or no record.
fn frequent(line: &str) -> Option<Record> {
    match line.strip_prefix(r#"{"t":""#)?.split_once('"')?.0 {
        "monotask" => serde_json::from_str(line).ok().map(Record::Monotask),
        "multitask" => serde_json::from_str(line).ok().map(Record::Multitask),
        "pipelined_task" => serde_json::from_str(line).ok().map(Record::PipelinedTask),
        "utilization_sample" => serde_json::from_str(line).ok().map(Record::UtilizationSample),
        _ => None,
    }
}

/// The [`frequent`] records of a part of a block, and where their lines are: from, and their newline.
#[derive(Default)]
struct Parsed {
    lines: VecDeque<(usize, usize)>,
    records: VecDeque<Record>,
}

impl Parsed {
    /// Those of the lines between two places.
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

    /// The record of the line that begins at a place, and where its newline is.
    fn at(&mut self, from: usize) -> Option<(usize, Record)> {
        let newline = self.lines.front().filter(|line| line.0 == from)?.1;
        self.lines.pop_front();
        Some((newline, self.records.pop_front()?))
    }
}

/// Streams the records of a trace: the header first, then as they were written.
///
/// Ends after the last record of the last whole block, or with the first error.
pub struct Reader<R> {
    blocks: Blocks<R>,
    path: Option<PathBuf>,
    /// The block in hand and how far it was read.
    block: Vec<u8>,
    at: usize,
    /// Those of its records that were parsed when it came, in two parts.
    parsed: [Parsed; 2],
    /// The next block, where it was decompressed meanwhile.
    ahead: Option<(io::Result<Block>, Vec<u8>)>,
    lines: u64,
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
    /// When it cannot be read, is no trace, or has a newer major version.
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
    /// Reads the first block of `reader`, which needs no buffer around it.
    ///
    /// # Errors
    /// When it cannot be read, is no trace, or has a newer major version.
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

    /// Why the trace is not whole; known once the iterator ended.
    pub fn truncated(&self) -> Option<&str> {
        self.truncated.as_deref()
    }

    /// What was skipped or is odd so far, in words.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Bytes of the file that were read so far.
    pub fn bytes(&self) -> u64 {
        self.blocks.bytes
    }

    /// Says of `error` in which line it is.
    pub(crate) fn malformed(&self, error: TraceError) -> TraceError {
        match error {
            TraceError::Invalid { why } => self.malformed_because(why),
            other => other,
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
            .map_err(|_| self.not_a_trace("its first line is no header".into()))?;
        let numbers = header
            .format
            .strip_prefix(FORMAT_NAME)
            .and_then(|version| version.split_once('.'))
            .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        let (major, minor): (u32, u32) =
            numbers.ok_or_else(|| self.not_a_trace(format!("its format is `{:.40}`", header.format)))?;
        if major > FORMAT_MAJOR {
            return Err(TraceError::NewerMajor { path: self.path.clone(), format: header.format });
        }
        Ok(minor)
    }

    /// Brings the next whole block; false at the end, whole or not.
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
                    self.stopped("no end record; the job was killed or still runs; ends");
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

    /// Parses the [`frequent`] records of the block in hand. Of a large one a second thread parses the last
    /// third, once it has decompressed the next block: that is about half of what reading takes.
    fn parse_ahead(&mut self) {
        // What is not text is met, and said, when its turn comes.
        let Ok(text) = std::str::from_utf8(&self.block) else { return };
        let most = text.len() / 3 * 2;
        let cut = memchr(b'\n', &self.block[most..]).filter(|_| text.len() >= SHARED_BYTES);
        let Some(cut) = cut.map(|at| most + at + 1) else {
            self.parsed = [Parsed::between(text, 0..text.len()), Parsed::default()];
            return;
        };
        let blocks = &mut self.blocks;
        thread::scope(|scope| {
            let beside = thread::Builder::new().spawn_scoped(scope, move || {
                let mut next = Vec::with_capacity(text.len());
                let found = blocks.next(&mut next);
                (Parsed::between(text, cut..text.len()), (found, next))
            });
            let first = Parsed::between(text, 0..cut);
            let Ok(beside) = beside else {
                // No more threads are to be had.
                self.parsed = [first, Parsed::between(text, cut..text.len())];
                return;
            };
            let (last, next) = beside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
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

    /// The record in `line`; `None` when a newer minor version added its type.
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
                        "line {}: skipped a `{t:.40}`, which format {FORMAT_MAJOR}.{} added; \
                         upgrade pellucid to see it",
                        self.lines, self.minor
                    ));
                    Ok(None)
                }
                _ => Err(self.malformed_because(format!("no record: {why}"))),
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
                return Err(self.malformed_because("a record after the end".into()));
            }
            if let Some((newline, record)) = self.parsed.iter_mut().find_map(|part| part.at(from)) {
                self.at = newline + 1;
                return Ok(Some(record));
            }
            let Some(length) = memchr(b'\n', &self.block[from..]) else {
                return Err(self.malformed_because("a block that ends within a line".into()));
            };
            self.at += length + 1;
            let block = std::mem::take(&mut self.block);
            let record = self.parse(&block[from..from + length]);
            self.block = block;
            let Some(record) = record? else { continue };
            if let Record::End(end) = &record {
                self.ended = true;
                let read = self.lines - 1;
                if end.records != read {
                    self.warn(format!("its end counts {} records before it, there are {read}", end.records));
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

/// What [`Blocks::next`] found.
enum Block {
    Whole,
    /// The input is at its end.
    None,
    /// The input ends within a frame.
    Cut,
    /// The frame does not decompress; the rest cannot be trusted.
    Damaged(String),
}

/// Decompresses frame by frame.
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

    /// Puts the next frame's lines into `block`; errors are the input's own.
    fn next(&mut self, block: &mut Vec<u8>) -> io::Result<Block> {
        block.clear();
        let mut begun = false;
        // The decoder may hold output that the last call had no room for.
        let mut pending = false;
        loop {
            if !pending && self.from == self.to && !self.fill()? {
                block.clear();
                return Ok(if begun { Block::Cut } else { Block::None });
            }
            begun = true;
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
                    let why = format!("a block over {} MiB", MAX_BLOCK_BYTES >> 20);
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
