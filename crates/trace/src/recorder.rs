//! Collects what happened without slowing what happens.
//!
//! A worker that records a monotask copies it into a buffer of its own shard
//! (an uncontended lock and a copy, tens of nanoseconds). One thread empties the
//! shards a few times a second, writes and keeps ([`crate::writer`]). Nothing
//! that a caller does waits for I/O; when the disk is slower than the job,
//! records pile up in memory instead.
//!
//! Registrations and the rarer records share one lock; they are not for loops
//! over rows. Times are read by the caller ([`Recorder::now_ns`]), so that
//! recording costs no clock read of its own.

use std::cell::Cell;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::record::*;
use crate::trace::{Registered, Trace};
use crate::writer::{Output, Writer};
use crate::{FORMAT_MAJOR, FORMAT_MINOR, TraceError};

/// A shard wakes the writer when it holds this many, so that memory stays small between its rounds.
const WAKE_AT: usize = 4096;

/// How a [`Recorder`] is set up.
#[derive(Debug, Clone, Default)]
pub struct RecorderOptions {
    /// What records: see [`Header::producer`].
    pub producer: String,
    /// Its version.
    pub producer_version: String,
    /// What makes its times not those of the bare machine: see [`Header::labels`].
    pub labels: Vec<String>,
    /// File to write as it goes, created anew; `None`: memory only.
    pub path: Option<PathBuf>,
    /// Keep the records in memory too, for [`Recorder::finish`] to return them.
    pub keep: bool,
}

/// Collects the records of one job or session. Cheap to clone; clones share one trace.
///
/// Dropping the last clone without [`Recorder::finish`] writes what there is and
/// no end, so that the trace reads as truncated.
#[derive(Clone)]
pub struct Recorder {
    handle: Arc<Handle>,
}

/// Ends the writer when the last recorder goes.
struct Handle {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<Result<Trace, TraceError>>>>,
    /// Of the writer; beside the lock, so that waking it takes none.
    thread: Thread,
}

/// What recorders and the writer share.
pub(crate) struct Shared {
    origin: Instant,
    shards: Box<[Shard]>,
    rest: Mutex<Rest>,
    /// No more rounds after the next; with an end record or without.
    pub closing: AtomicBool,
    pub complete: AtomicBool,
    /// What recording one monotask costs, measured at the start.
    pub event_ns: f64,
}

/// Own cache lines, so that two workers do not share one.
#[repr(align(128))]
#[derive(Default)]
struct Shard(Mutex<ShardState>);

#[derive(Default)]
struct ShardState {
    monotasks: Vec<Monotask>,
    recorded: u64,
    closed: bool,
}

/// Everything but monotasks.
#[derive(Default)]
struct Rest {
    registered: Registered,
    registrations: Vec<Record>,
    events: Vec<Record>,
    recorded: u64,
    closed: bool,
}

/// What the writer took in one round, to be written in the order of the fields.
#[derive(Default)]
pub(crate) struct Round {
    pub registrations: Vec<Record>,
    pub monotasks: Vec<Vec<Monotask>>,
    pub events: Vec<Record>,
}

/// A lock whose holders cannot panic half-way; a poisoned one is as good as another.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of this thread, counted up; spreads threads over shards.
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
    /// Creates the file, writes the header, measures what recording a monotask costs, starts the writer.
    ///
    /// # Errors
    /// When the file cannot be created or the header not written.
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
            let created = File::create(&path);
            match created {
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

    /// Nanoseconds since the trace's origin, monotonic.
    pub fn now_ns(&self) -> u64 {
        self.at(Instant::now())
    }

    /// `instant` as the trace counts time; 0 for one before its origin.
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

    /// Records a monotask of a registered multitask on a registered resource. The
    /// one call that is made for everything that runs: a lock that is hardly ever
    /// contended, and a copy.
    pub fn monotask(&self, monotask: Monotask) {
        let shards = &self.handle.shared.shards;
        let shard = &shards[thread_number() & (shards.len() - 1)];
        if shard.push(monotask) {
            self.handle.thread.unpark();
        }
    }

    /// Records anything else. A registration is registered (its index is the next
    /// of its kind), a monotask goes the way of [`Recorder::monotask`]; header and
    /// end are the recorder's own and ignored.
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

    /// Writes the end, waits for the writer, and returns what was kept (without
    /// `keep`: the header and the end). What other clones record from now on is
    /// dropped.
    ///
    /// # Errors
    /// [`TraceError::NotWritten`], with what was kept, when writing failed on the
    /// way; [`TraceError::Finished`] at the second call.
    pub fn finish(&self) -> Result<Trace, TraceError> {
        self.handle.shared.complete.store(true, Ordering::Release);
        self.handle.close().ok_or(TraceError::Finished)?
    }

    /// Records so far, without header and end.
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
    /// Asks the writer to end and waits for it; `None` when it ended before.
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
        // Nobody is left to hear of an error; a panic would abort.
        if let Some(writer) = lock(&self.writer).take() {
            self.shared.closing.store(true, Ordering::Release);
            self.thread.unpark();
            drop(writer.join());
        }
    }
}

impl Shard {
    /// True when the writer should be woken.
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
    /// Swaps what was recorded for the empty buffers in `round`.
    ///
    /// Taken last to first: what a record refers to was recorded before it, so it
    /// is in this round or in an earlier one, and is written before it.
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

/// What one monotask costs its worker, in nanoseconds: the better of a few short
/// runs on a shard of its own, over memory that was touched before.
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
