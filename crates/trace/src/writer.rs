//! The thread that writes and keeps the records of recorders.
//!
//! Each round takes the records since the previous one, converts them to blocks
//! (zstd frames of whole JSON lines) and appends them. Rounds are at most [`ROUND`]
//! apart, so a killed job loses less than a second. If writing the file fails, the
//! thread still keeps records and reports the failure at the end, without affecting
//! the recorded job.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use zstd::bulk::Compressor;
use zstd::stream::raw::CParameter;

use crate::error::TraceError;
use crate::format::MAX_BLOCK_BYTES;
use crate::record::*;
use crate::recorder::{Round, Shared};
use crate::trace::{Registered, Trace};
use crate::whole::WholeFile;

/// Time between rounds; the rest of the guaranteed second is for writing.
const ROUND: Duration = Duration::from_millis(700);
/// Size of lines at which a block is closed. Larger blocks do not compress better.
const BLOCK_BYTES: usize = 1 << 20;
/// The fastest level. It also compresses best, except for levels that cost 50 times
/// as much, because lines of digits have few matches worth a search (level 3 takes a
/// sixth more space than level 1).
const LEVEL: i32 = 1;
/// Maximum length of a text in a record; a query of megabytes would fill the trace.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// The output file, with the current block.
pub(crate) struct Output {
    file: WholeFile,
    path: PathBuf,
    compressor: Compressor<'static>,
    block: Vec<u8>,
    written: u64,
}

impl Output {
    pub fn new(file: WholeFile, path: PathBuf) -> Result<Output, TraceError> {
        let compressor = || {
            let mut compressor = Compressor::new(LEVEL)?;
            compressor.set_parameter(CParameter::ChecksumFlag(true))?;
            Ok(compressor)
        };
        match compressor() {
            Ok(compressor) => Ok(Output { file, path, compressor, block: Vec::new(), written: 0 }),
            Err(source) => Err(TraceError::Io { path: Some(path), action: "create", source }),
        }
    }

    fn line(&mut self, record: &Record) -> io::Result<()> {
        let before = self.block.len();
        serde_json::to_writer(&mut self.block, record)?;
        self.block.push(b'\n');
        let length = self.block.len() - before;
        if length > MAX_BLOCK_BYTES - BLOCK_BYTES {
            let why = format!("a record of {length} bytes exceeds the maximum size of a block");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        if self.block.len() >= BLOCK_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Appends the current block to the file.
    fn flush(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let frame = self.compressor.compress(&self.block)?;
        self.block.clear();
        self.file.write_all(&frame)?;
        self.written += frame.len() as u64;
        Ok(())
    }
}

/// The state of the writer thread.
pub(crate) struct Writer {
    output: Option<Output>,
    /// The first write error, with the file's path; writing stops after it.
    failed: Option<(PathBuf, io::Error)>,
    keep: bool,
    trace: Trace,
    registered: Registered,
    records: u64,
    bytes: u64,
}

impl Writer {
    /// Writes the header immediately, so that even a job that is killed at the start leaves a trace.
    pub fn start(header: Header, mut output: Option<Output>, keep: bool) -> Result<Writer, TraceError> {
        let record = Record::Header(header.clone());
        if let Some(output) = &mut output {
            output.line(&record).and_then(|()| output.flush()).map_err(|source| {
                // A part of a header would not be recognized as a trace, which the next job may replace.
                drop(output.file.file().set_len(0));
                TraceError::Io { path: Some(output.path.clone()), action: "write", source }
            })?;
        }
        Ok(Writer {
            output,
            failed: None,
            keep,
            trace: Trace { header: Some(header), ..Trace::default() },
            registered: Registered::default(),
            records: 1,
            bytes: 0,
        })
    }

    /// Runs until the recorder closes.
    pub fn run(mut self, shared: &Shared) -> Result<Trace, TraceError> {
        let mut round = Round::default();
        loop {
            let last = shared.closing.load(Ordering::Acquire);
            shared.take(&mut round, last);
            self.write(&mut round);
            if last {
                break;
            }
            // A full shard or the end wakes the thread early. A wake-up between the
            // load above and this call makes it return immediately.
            std::thread::park_timeout(ROUND);
        }
        if shared.complete.load(Ordering::Acquire) {
            let recorded = (self.records - 1) as f64;
            let end = End {
                records: self.records,
                recording_ns: Some((recorded * shared.event_ns).round() as u64),
                writer_ns: thread_cpu_ns(),
            };
            self.trace.end = Some(end.clone());
            self.append(&Record::End(end));
            self.flush();
        }
        self.finish()
    }

    fn write(&mut self, round: &mut Round) {
        for record in round.registrations.drain(..) {
            self.registered.count(&record);
            self.take(record);
        }
        for monotasks in &mut round.monotasks {
            for monotask in monotasks.drain(..) {
                self.take(Record::Monotask(monotask));
            }
        }
        for record in round.events.drain(..) {
            self.take(record);
        }
        self.flush();
    }

    /// Writes and keeps one record. Skips a record with unregistered indices, with a
    /// warning, because it would make the whole trace unreadable.
    fn take(&mut self, mut record: Record) {
        clip(&mut record);
        if let Err(why) = self.registered.admits(&record) {
            self.trace.warnings.push(format!("skipped: {why}"));
            return;
        }
        self.records += 1;
        self.append(&record);
        if self.keep
            && let Err(why) = self.trace.push(record)
        {
            self.trace.warnings.push(why.to_string());
        }
    }

    fn append(&mut self, record: &Record) {
        if let Some(output) = &mut self.output {
            let result = output.line(record);
            self.handle_failure(result);
        }
    }

    fn flush(&mut self) {
        if let Some(output) = &mut self.output {
            let result = output.flush();
            self.handle_failure(result);
        }
    }

    /// Closes the file after the first failure and truncates it to its whole blocks.
    fn handle_failure(&mut self, result: io::Result<()>) {
        let Err(source) = result else { return };
        if let Some(output) = self.output.take() {
            self.bytes = output.written;
            // If truncation fails, readers still stop at the last whole block.
            drop(output.file.file().set_len(output.written));
            let source = match output.file.target() {
                Some(_) => io::Error::new(source.kind(), format!("{source}, and the older trace was kept")),
                None => source,
            };
            self.failed = Some((output.path, source));
        }
    }

    fn finish(mut self) -> Result<Trace, TraceError> {
        if let Some(output) = &self.output {
            let published = output.file.publish();
            self.handle_failure(published);
        }
        self.trace.bytes = self.output.map_or(self.bytes, |output| output.written);
        match self.failed {
            None => Ok(self.trace),
            Some((path, source)) => Err(TraceError::NotWritten { path, source, kept: Box::new(self.trace) }),
        }
    }
}

/// Shortens texts of external origin to [`MAX_TEXT_BYTES`].
fn clip(record: &mut Record) {
    let clip = |text: &mut String| {
        if text.len() > MAX_TEXT_BYTES {
            let end = text.floor_char_boundary(MAX_TEXT_BYTES - '…'.len_utf8());
            text.truncate(end);
            text.push('…');
        }
    };
    match record {
        Record::Job(r) => clip(&mut r.name),
        Record::Stage(r) => {
            clip(&mut r.name);
            r.call_site.iter_mut().for_each(clip);
            r.not_split.iter_mut().for_each(clip);
        }
        Record::StorageOperation(r) => r.error.iter_mut().for_each(clip),
        Record::StageEnd(r) => r.error.iter_mut().for_each(clip),
        Record::JobEnd(r) => r.error.iter_mut().for_each(clip),
        Record::Query(r) => clip(&mut r.name),
        Record::QueryEnd(r) => r.error.iter_mut().for_each(clip),
        _ => {}
    }
}

/// Returns the core time of the calling thread; `None` if the system does not provide it.
fn thread_cpu_ns() -> Option<u64> {
    #[cfg(unix)]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a valid timespec for the call to fill.
        let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        (status == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }
    #[cfg(not(unix))]
    None
}
