//! Records events with low overhead.
//!
//! A worker that records a monotask copies it into the buffer of its shard (an
//! uncontended lock and a copy, tens of nanoseconds). One thread drains the shards
//! a few times a second and writes and keeps the records ([`crate::writer`]).
//! Callers never wait for I/O; if the disk is slower than the job, records
//! accumulate in memory.
//!
//! Registrations and the rarer records share one lock, so they do not belong in
//! loops over rows. Callers read the clock ([`Recorder::now_ns`]), so recording
//! adds no clock read.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::error::TraceError;
use crate::format::{FORMAT_MAJOR, FORMAT_MINOR};
use crate::reader::Reader;
use crate::record::*;
use crate::trace::{Registered, Trace};
use crate::whole::WholeFile;
use crate::writer::{Output, Writer};

/// Number of records at which a shard wakes the writer, to bound memory between its rounds.
const WAKE_AT: usize = 4096;

/// The options of a [`Recorder`].
#[derive(Debug, Clone, Default)]
pub struct RecorderOptions {
    /// Producer; see [`Header::producer`].
    pub producer: String,
    /// Version of the producer.
    pub producer_version: String,
    /// Conditions under which times differ from those of the bare machine; see [`Header::labels`].
    pub labels: Vec<String>,
    /// File to write, replaced if it is empty or a trace; `None` for memory only. A new file grows while the job
    /// runs. An older trace stays until the writer has ended.
    pub path: Option<PathBuf>,
    /// Keeps the records in memory, too, for [`Recorder::finish`] to return them.
    pub keep: bool,
}

/// A recorder of one job or session. Cheap to clone; clones share one trace.
///
/// Dropping the last clone without [`Recorder::finish`] writes the collected
/// records without an end, so the trace reads as truncated.
#[derive(Clone)]
pub struct Recorder {
    handle: Arc<Handle>,
}

/// The handle of the writer; ends it when the last recorder is dropped.
struct Handle {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<Result<Trace, TraceError>>>>,
    /// Thread of the writer; outside the lock, so that waking it takes no lock.
    thread: Thread,
}

/// State shared by recorders and the writer.
pub(crate) struct Shared {
    origin: Instant,
    shards: Box<[Shard]>,
    rest: Mutex<Rest>,
    /// The next round is the last.
    pub closing: AtomicBool,
    /// The trace ends with an end record.
    pub complete: AtomicBool,
    /// Cost of recording one monotask, measured at the start.
    pub event_ns: f64,
}

/// A buffer for the monotasks of some threads; aligned to avoid false sharing.
#[repr(align(128))]
#[derive(Default)]
struct Shard(Mutex<ShardState>);

#[derive(Default)]
struct ShardState {
    monotasks: Vec<Monotask>,
    recorded: u64,
    closed: bool,
}

/// A buffer for all records except monotasks.
#[derive(Default)]
struct Rest {
    registered: Registered,
    registrations: Vec<Record>,
    events: Vec<Record>,
    recorded: u64,
    closed: bool,
}

/// The records of one round of the writer, written in the order of the fields.
#[derive(Default)]
pub(crate) struct Round {
    pub registrations: Vec<Record>,
    pub monotasks: Vec<Vec<Monotask>>,
    pub events: Vec<Record>,
}

/// Locks a mutex. Ignores poisoning, since holders do not panic midway through a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a sequential number of this thread, which distributes threads over shards.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) });
    NUMBER.with(|number| {
        if number.get() == usize::MAX {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

impl Recorder {
    /// Creates the file, writes the header, measures the cost of recording a monotask, and starts the writer.
    ///
    /// # Errors
    /// Returns an error if the file exists and is not a trace, cannot be created, or the header cannot be written.
    pub fn start(options: RecorderOptions) -> Result<Recorder, TraceError> {
        let origin = Instant::now();
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let header = Header {
            format: format!("pellucid.trace/{FORMAT_MAJOR}.{FORMAT_MINOR}"),
            producer: options.producer,
            producer_version: options.producer_version,
            origin_unix_ns: since_epoch.map_or(0, |d| d.as_nanos() as u64),
            labels: options.labels,
        };
        let output = options.path.map(|path| {
            Recorder::check_path(&path)?;
            match WholeFile::growing(&path) {
                Ok(file) => Output::new(file, path),
                Err(source) => Err(TraceError::Io { path: Some(path), action: "create", source }),
            }
        });
        let threads = std::thread::available_parallelism().map_or(8, |n| n.get());
        let shards = (2 * threads).next_power_of_two().max(8);
        let shared = Arc::new(Shared {
            origin,
            shards: (0..shards).map(|_| Shard::default()).collect(),
            rest: Mutex::default(),
            closing: AtomicBool::new(false),
            complete: AtomicBool::new(false),
            event_ns: measure_event_ns(),
        });
        let writer = Writer::start(header, output.transpose()?, options.keep)?;
        let joined = {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name("pellucid-trace".into())
                .spawn(move || writer.run(&shared))
                .map_err(|source| TraceError::Io { path: None, action: "start the writer of", source })?
        };
        Ok(Recorder {
            handle: Arc::new(Handle {
                shared,
                thread: joined.thread().clone(),
                writer: Mutex::new(Some(joined)),
            }),
        })
    }

    /// Checks that a trace may be written to `path`: a mistyped path must not empty a file of data.
    ///
    /// # Errors
    /// Returns [`TraceError::Occupied`] for a file that is neither empty nor begins as a trace, and an error for
    /// one that cannot be read.
    pub fn check_path(path: &Path) -> Result<(), TraceError> {
        if !fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() > 0) {
            return Ok(());
        }
        match Reader::open(path) {
            Err(TraceError::NotATrace { .. }) => Err(TraceError::Occupied { path: path.to_owned() }),
            Err(error @ TraceError::Io { .. }) => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the monotonic time in nanoseconds since the trace's origin.
    pub fn now_ns(&self) -> u64 {
        self.at(Instant::now())
    }

    /// Converts `instant` to nanoseconds since the trace's origin; 0 for an earlier instant.
    pub fn at(&self, instant: Instant) -> u64 {
        instant.saturating_duration_since(self.handle.shared.origin).as_nanos() as u64
    }

    /// Registers a machine.
    pub fn machine(&self, machine: Machine) -> MachineIx {
        self.register(Record::Machine(machine))
    }

    /// Registers a resource of a registered machine.
    pub fn resource(&self, resource: Resource) -> ResourceIx {
        self.register(Record::Resource(resource))
    }

    /// Registers a query.
    pub fn query(&self, query: Query) -> QueryIx {
        self.register(Record::Query(query))
    }

    /// Registers a job.
    pub fn job(&self, job: Job) -> JobIx {
        self.register(Record::Job(job))
    }

    /// Registers a stage of a registered job.
    pub fn stage(&self, stage: Stage) -> StageIx {
        self.register(Record::Stage(stage))
    }

    /// Registers a multitask of a registered stage.
    pub fn multitask(&self, multitask: Multitask) -> MultitaskIx {
        self.register(Record::Multitask(multitask))
    }

    /// Records a monotask of a registered multitask on a registered resource. This
    /// is the hot path: a lock that is rarely contended, and a copy.
    pub fn monotask(&self, monotask: Monotask) {
        let shards = &self.handle.shared.shards;
        let shard = &shards[thread_number() & (shards.len() - 1)];
        if shard.push(monotask) {
            self.handle.thread.unpark();
        }
    }

    /// Records any record. Entities are registered with the next index of their
    /// kind, and monotasks are passed to [`Recorder::monotask`]. Headers and ends are
    /// ignored, since the recorder writes them itself.
    pub fn record(&self, record: Record) {
        match record {
            Record::Header(_) | Record::End(_) => {}
            Record::Monotask(monotask) => self.monotask(monotask),
            Record::Machine(_)
            | Record::Resource(_)
            | Record::Query(_)
            | Record::Job(_)
            | Record::Stage(_)
            | Record::Multitask(_) => {
                self.register(record);
            }
            event => {
                let mut rest = lock(&self.handle.shared.rest);
                if !rest.closed {
                    rest.events.push(event);
                    rest.recorded += 1;
                    if rest.events.len().is_multiple_of(WAKE_AT) {
                        self.handle.thread.unpark();
                    }
                }
            }
        }
    }

    /// Writes the end, waits for the writer, and returns the kept records (without
    /// `keep`, only the header and the end). Records from other clones are dropped
    /// from now on.
    ///
    /// # Errors
    /// Returns [`TraceError::NotWritten`], with the kept records, if writing failed;
    /// returns [`TraceError::Finished`] on later calls.
    pub fn finish(&self) -> Result<Trace, TraceError> {
        self.handle.shared.complete.store(true, Ordering::Release);
        self.handle.close().ok_or(TraceError::Finished)?
    }

    /// Returns the number of records so far, excluding the header and the end.
    pub fn events(&self) -> u64 {
        let shared = &self.handle.shared;
        let monotasks: u64 = shared.shards.iter().map(|s| lock(&s.0).recorded).sum();
        monotasks + lock(&shared.rest).recorded
    }

    fn register(&self, record: Record) -> u32 {
        let mut rest = lock(&self.handle.shared.rest);
        let index = rest.registered.count(&record);
        if !rest.closed {
            rest.registrations.push(record);
            rest.recorded += 1;
        }
        index
    }
}

impl Handle {
    /// Ends the writer and waits for it; returns `None` if it has already ended.
    fn close(&self) -> Option<Result<Trace, TraceError>> {
        let writer = lock(&self.writer).take()?;
        self.shared.closing.store(true, Ordering::Release);
        self.thread.unpark();
        Some(match writer.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Errors are ignored because no caller is left; a panic here could abort the process.
        if let Some(writer) = lock(&self.writer).take() {
            self.shared.closing.store(true, Ordering::Release);
            self.thread.unpark();
            drop(writer.join());
        }
    }
}

impl Shard {
    /// Adds a monotask; returns true if the writer should be woken.
    fn push(&self, monotask: Monotask) -> bool {
        let mut state = lock(&self.0);
        if state.closed {
            return false;
        }
        state.monotasks.push(monotask);
        state.recorded += 1;
        state.monotasks.len().is_multiple_of(WAKE_AT)
    }
}

impl Shared {
    /// Swaps the recorded data with the empty buffers in `round`.
    ///
    /// Takes the buffers in reverse order of writing. An entity is recorded before
    /// the records that refer to it, so it is in the same round or an earlier one and
    /// is written before them.
    pub fn take(&self, round: &mut Round, last: bool) {
        round.monotasks.resize_with(self.shards.len(), Vec::new);
        {
            let mut rest = lock(&self.rest);
            std::mem::swap(&mut rest.events, &mut round.events);
        }
        for (shard, taken) in self.shards.iter().zip(&mut round.monotasks) {
            let mut state = lock(&shard.0);
            state.closed = last;
            std::mem::swap(&mut state.monotasks, taken);
        }
        let mut rest = lock(&self.rest);
        rest.closed = last;
        std::mem::swap(&mut rest.registrations, &mut round.registrations);
        if last {
            round.events.append(&mut rest.events);
        }
    }
}

/// Measures the cost of recording one monotask in nanoseconds: the best of a few
/// short runs on a separate shard, with memory that was touched before.
fn measure_event_ns() -> f64 {
    const EVENTS: u32 = 512;
    let shard = Shard::default();
    let monotask = Monotask {
        multitask: 0,
        resource: 0,
        phase: Phase::Compute,
        queued_ns: 0,
        queue_ns: 0,
        service_ns: 0,
        bytes: None,
        device_bytes: None,
        cached_bytes: None,
        cpu_ns: None,
        decode_ns: None,
        operator_ns: None,
        encode_ns: None,
        not_split_ns: None,
        rows: None,
        outcome: Outcome::Ok,
    };
    let run = || {
        lock(&shard.0).monotasks.clear();
        let begin = Instant::now();
        for _ in 0..EVENTS {
            std::hint::black_box(thread_number());
            shard.push(std::hint::black_box(monotask));
        }
        begin.elapsed().as_nanos() as f64 / f64::from(EVENTS)
    };
    (0..5).map(|_| run()).fold(f64::INFINITY, f64::min)
}
