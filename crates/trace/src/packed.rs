//! A compact in-memory encoding for millions of pipelined tasks.
//!
//! A [`PipelinedTask`] takes over 600 bytes, mostly for absent fields and the upper
//! halves of small numbers. The packed form is a bit mask of the present fields
//! followed by variable-length integers of seven bits per byte. Logs record most
//! times in milliseconds, so whole milliseconds are stored as such, and a launch is
//! stored as the difference from the previous one. Analyses scan all tasks a few
//! times and keep what they need, so only sequential reads are supported; reading a
//! task costs about as much as a cache miss.
//!
//! Error messages of failed tasks repeat, so each distinct message is stored once,
//! up to a fixed number of messages.

use crate::record::{Blocked, Failure, Locality, Outcome, PipelinedTask};

/// Size of a chunk. Chunks avoid copying existing tasks on growth.
const CHUNK_BYTES: usize = 1 << 20;
/// Maximum number of distinct error messages; further failures keep only their kind.
const MAX_ERRORS: usize = 256;
/// Upper bound of a task's size: 8 bytes of mask, 60 numbers of at most 10 bytes (a time may take two).
const MAX_TASK_BYTES: usize = 8 + 60 * 10;
const MS: u64 = 1_000_000;
/// Marks a time that follows in nanoseconds; greater than the encoding of any other time.
const LONG: u64 = u64::MAX;

/// A packed sequence of pipelined tasks, in the order of insertion.
#[derive(Debug, Clone, Default)]
pub struct PipelinedTasks {
    chunks: Vec<Vec<u8>>,
    tasks: usize,
    errors: Vec<String>,
    /// Launch of the last task.
    last_launched_ns: u64,
    /// Subtracted from every launch; see [`PipelinedTasks::count_from`].
    origin_ns: u64,
}

/// The optional times, each with its bit in the mask.
macro_rules! with_times {
    ($then:ident, $task:ident) => {
        $then!($task:
            1 run_ns, 2 cpu_ns, 3 deserialize_cpu_ns, 4 result_serialize_ns, 5 getting_result_ns,
            6 scan_ns, 51 commit_ns, 52 decode_ns, 53 queue_ns)
    };
}

/// The other optional numbers, each with its bit in the mask.
macro_rules! with_amounts {
    ($then:ident, $task:ident) => {
        $then!($task:
            0 id, 7 input_bytes, 8 input_records, 9 output_bytes, 10 output_records,
            11 shuffle_remote_bytes, 12 shuffle_local_bytes, 13 shuffle_read_records,
            14 shuffle_write_bytes, 15 shuffle_write_records, 16 spill_bytes, 17 memory_spill_bytes,
            18 result_bytes, 19 peak_memory_bytes)
    };
}

/// The blocked times, each with its bit; a second bit, [`BOUND`] higher, marks an upper bound.
macro_rules! with_blocked {
    ($then:ident, $task:ident) => {
        $then!($task:
            20 blocked_network, 21 blocked_input, 22 blocked_shuffle_read, 23 blocked_shuffle_write,
            24 blocked_spill, 25 blocked_output, 26 gc, 27 scheduler, 28 deserialize)
    };
}

const BOUND: u32 = 10;
const ATTEMPT: u32 = 39;
const SPECULATIVE: u32 = 40;
const OUTCOME: u32 = 41; // two bits
const LOCALITY: u32 = 43; // three bits
const FAILURE: u32 = 46; // four bits
const ERROR: u32 = 50;
/// The task was launched before its predecessor.
const EARLIER: u32 = 54;

const OUTCOMES: [Outcome; 3] = [Outcome::Ok, Outcome::Failed, Outcome::Cancelled];
const LOCALITIES: [Locality; 5] =
    [Locality::Process, Locality::Node, Locality::NoPreference, Locality::Rack, Locality::Any];
const FAILURES: [Failure; 8] = [
    Failure::Exception,
    Failure::FetchFailed,
    Failure::ExecutorLost,
    Failure::OutOfMemory,
    Failure::Killed,
    Failure::CommitDenied,
    Failure::OutputLost,
    Failure::Other,
];

impl PipelinedTasks {
    /// Returns the number of tasks.
    pub fn len(&self) -> usize {
        self.tasks
    }

    /// Returns true if the sequence is empty.
    pub fn is_empty(&self) -> bool {
        self.tasks == 0
    }

    /// Returns an iterator over the tasks in the order of insertion.
    pub fn iter(&self) -> Iter<'_> {
        Iter { tasks: self, chunk: 0, at: 0, left: self.tasks, launched_ns: 0 }
    }

    /// Returns the memory that the tasks take.
    pub fn memory_bytes(&self) -> usize {
        let errors: usize = self.errors.iter().map(String::capacity).sum();
        self.chunks.iter().map(Vec::capacity).sum::<usize>() + errors
    }

    /// Makes every launch, past and future, relative to `origin_ns` on the clock of
    /// the pushed launches, for producers that learn the trace's origin last.
    /// Launches before the origin become 0.
    pub fn count_from(&mut self, origin_ns: u64) {
        self.origin_ns = origin_ns;
    }

    /// Adds a task.
    pub fn push(&mut self, task: &PipelinedTask) {
        let fits = |chunk: &Vec<u8>| chunk.len() + MAX_TASK_BYTES <= CHUNK_BYTES;
        if !self.chunks.last().is_some_and(fits) {
            // The first chunk grows on demand, so a few tasks do not take a mebibyte.
            let room = if self.chunks.is_empty() { 0 } else { CHUNK_BYTES };
            self.chunks.push(Vec::with_capacity(room));
        }
        let error = task.error.as_deref().and_then(|message| self.error(message));
        if let Some(chunk) = self.chunks.last_mut() {
            pack(task, self.last_launched_ns, error, chunk);
            self.last_launched_ns = task.launched_ns;
            self.tasks += 1;
        }
    }

    /// Applies `change` to each distinct error message.
    pub fn map_errors(&mut self, mut change: impl FnMut(&mut String)) {
        self.errors.iter_mut().for_each(&mut change);
    }

    fn error(&mut self, message: &str) -> Option<u64> {
        let known = self.errors.iter().position(|known| known == message);
        if known.is_none() && self.errors.len() < MAX_ERRORS {
            self.errors.push(message.to_owned());
            return Some(self.errors.len() as u64 - 1);
        }
        known.map(|at| at as u64)
    }
}

/// Compares the tasks and their order, regardless of their packing.
impl PartialEq for PipelinedTasks {
    fn eq(&self, other: &PipelinedTasks) -> bool {
        self.tasks == other.tasks && self.iter().eq(other.iter())
    }
}

impl<'a> IntoIterator for &'a PipelinedTasks {
    type Item = PipelinedTask;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl Extend<PipelinedTask> for PipelinedTasks {
    fn extend<I: IntoIterator<Item = PipelinedTask>>(&mut self, tasks: I) {
        tasks.into_iter().for_each(|task| self.push(&task));
    }
}

impl FromIterator<PipelinedTask> for PipelinedTasks {
    fn from_iter<I: IntoIterator<Item = PipelinedTask>>(tasks: I) -> PipelinedTasks {
        let mut packed = PipelinedTasks::default();
        packed.extend(tasks);
        packed
    }
}

/// An iterator over packed tasks; see [`PipelinedTasks::iter`].
#[derive(Debug, Clone)]
pub struct Iter<'a> {
    tasks: &'a PipelinedTasks,
    chunk: usize,
    at: usize,
    left: usize,
    /// Launch of the last task.
    launched_ns: u64,
}

impl Iterator for Iter<'_> {
    type Item = PipelinedTask;

    fn next(&mut self) -> Option<PipelinedTask> {
        while self.at == self.tasks.chunks.get(self.chunk)?.len() {
            (self.chunk, self.at) = (self.chunk + 1, 0);
        }
        let mut packed = Packed { bytes: &self.tasks.chunks[self.chunk], at: self.at };
        let mut task = unpack(&mut packed, self.launched_ns, &self.tasks.errors);
        self.launched_ns = task.launched_ns;
        task.launched_ns = task.launched_ns.saturating_sub(self.tasks.origin_ns);
        self.at = packed.at;
        self.left -= 1;
        Some(task)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Iter<'_> {}

/// Appends a packed task. `before_ns` is the launch of the previous task; 0 for the first one.
fn pack(task: &PipelinedTask, before_ns: u64, error: Option<u64>, into: &mut Vec<u8>) {
    let place = into.len();
    into.extend_from_slice(&[0; 8]);
    let mut mask = 0_u64;
    for number in [task.stage, task.partition, task.resource] {
        put(into, u64::from(number));
    }
    put_time(into, task.launched_ns.abs_diff(before_ns));
    put_time(into, task.duration_ns);
    macro_rules! times {
        ($task:ident: $($bit:literal $field:ident),*) => {$(
            if let Some(ns) = $task.$field {
                mask |= 1 << $bit;
                put_time(into, ns);
            }
        )*};
    }
    with_times!(times, task);
    macro_rules! amounts {
        ($task:ident: $($bit:literal $field:ident),*) => {$(
            if let Some(value) = $task.$field {
                mask |= 1 << $bit;
                put(into, value);
            }
        )*};
    }
    with_amounts!(amounts, task);
    macro_rules! blocked {
        ($task:ident: $($bit:literal $field:ident),*) => {$(
            match $task.$field {
                None => {}
                Some(Blocked::MeasuredNs(ns)) => {
                    mask |= 1 << $bit;
                    put_time(into, ns);
                }
                Some(Blocked::AtMostNs(ns)) => {
                    mask |= 1 << $bit | 1 << ($bit + BOUND);
                    put_time(into, ns);
                }
            }
        )*};
    }
    with_blocked!(blocked, task);
    if task.attempt > 0 {
        mask |= 1 << ATTEMPT;
        put(into, u64::from(task.attempt));
    }
    if let Some(error) = error {
        mask |= 1 << ERROR;
        put(into, error);
    }
    mask |= u64::from(task.launched_ns < before_ns) << EARLIER;
    mask |= u64::from(task.speculative) << SPECULATIVE;
    mask |= place_in(&OUTCOMES, &task.outcome) << OUTCOME;
    mask |= task.locality.map_or(0, |l| place_in(&LOCALITIES, &l) + 1) << LOCALITY;
    mask |= task.failure.map_or(0, |f| place_in(&FAILURES, &f) + 1) << FAILURE;
    into[place..place + 8].copy_from_slice(&mask.to_le_bytes());
}

fn unpack(packed: &mut Packed<'_>, before_ns: u64, errors: &[String]) -> PipelinedTask {
    let mask = packed.mask();
    let launched_ns = |apart_ns: u64| match mask >> EARLIER & 1 {
        1 => before_ns - apart_ns,
        _ => before_ns + apart_ns,
    };
    let mut task = PipelinedTask {
        stage: packed.number() as u32,
        partition: packed.number() as u32,
        resource: packed.number() as u32,
        launched_ns: launched_ns(packed.time()),
        duration_ns: packed.time(),
        ..PipelinedTask::default()
    };
    macro_rules! times {
        ($task:ident: $($bit:literal $field:ident),*) => {$(
            if mask >> $bit & 1 == 1 {
                $task.$field = Some(packed.time());
            }
        )*};
    }
    with_times!(times, task);
    macro_rules! amounts {
        ($task:ident: $($bit:literal $field:ident),*) => {$(
            if mask >> $bit & 1 == 1 {
                $task.$field = Some(packed.number());
            }
        )*};
    }
    with_amounts!(amounts, task);
    macro_rules! blocked {
        ($task:ident: $($bit:literal $field:ident),*) => {$(
            if mask >> $bit & 1 == 1 {
                let bound = mask >> ($bit + BOUND) & 1 == 1;
                let ns = packed.time();
                $task.$field = Some(if bound { Blocked::AtMostNs(ns) } else { Blocked::MeasuredNs(ns) });
            }
        )*};
    }
    with_blocked!(blocked, task);
    if mask >> ATTEMPT & 1 == 1 {
        task.attempt = packed.number() as u32;
    }
    if mask >> ERROR & 1 == 1 {
        task.error = errors.get(packed.number() as usize).cloned();
    }
    let of = |bit: u32, bits: u32| (mask >> bit & ((1 << bits) - 1)) as usize;
    task.speculative = of(SPECULATIVE, 1) == 1;
    task.outcome = OUTCOMES.get(of(OUTCOME, 2)).copied().unwrap_or_default();
    task.locality = of(LOCALITY, 3).checked_sub(1).and_then(|at| LOCALITIES.get(at)).copied();
    task.failure = of(FAILURE, 4).checked_sub(1).and_then(|at| FAILURES.get(at)).copied();
    task
}

/// Returns the index of `value` in a table of all values of its type.
fn place_in<T: PartialEq>(table: &[T], value: &T) -> u64 {
    table.iter().position(|v| v == value).unwrap_or(0) as u64
}

/// Appends seven bits per byte, lowest first; the highest bit of a byte marks that more follow.
fn put(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// Appends a time: even values are twice the milliseconds, odd values twice the nanoseconds plus one.
fn put_time(into: &mut Vec<u8>, ns: u64) {
    if ns.is_multiple_of(MS) {
        put(into, ns / MS * 2);
    } else if ns < 1 << 62 {
        put(into, ns * 2 + 1);
    } else {
        put(into, LONG);
        put(into, ns);
    }
}

/// A reader for the bytes that [`pack`] wrote. The bytes are trusted.
struct Packed<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Packed<'_> {
    fn mask(&mut self) -> u64 {
        let mut mask = [0; 8];
        mask.copy_from_slice(&self.bytes[self.at..self.at + 8]);
        self.at += 8;
        u64::from_le_bytes(mask)
    }

    fn number(&mut self) -> u64 {
        let (mut value, mut shift) = (0_u64, 0);
        loop {
            let byte = self.bytes[self.at];
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return value;
            }
            shift += 7;
        }
    }

    fn time(&mut self) -> u64 {
        match self.number() {
            LONG => self.number(),
            kept if kept.is_multiple_of(2) => kept / 2 * MS,
            kept => kept / 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_contain_every_value_in_order() {
        // A value missing from its table would decode as another one.
        let outcome = |outcome| match outcome {
            Outcome::Ok => 0,
            Outcome::Failed => 1,
            Outcome::Cancelled => 2,
        };
        OUTCOMES.iter().enumerate().for_each(|(at, value)| assert_eq!(outcome(*value), at));
        let locality = |locality| match locality {
            Locality::Process => 0,
            Locality::Node => 1,
            Locality::NoPreference => 2,
            Locality::Rack => 3,
            Locality::Any => 4,
        };
        LOCALITIES.iter().enumerate().for_each(|(at, value)| assert_eq!(locality(*value), at));
        let failure = |failure| match failure {
            Failure::Exception => 0,
            Failure::FetchFailed => 1,
            Failure::ExecutorLost => 2,
            Failure::OutOfMemory => 3,
            Failure::Killed => 4,
            Failure::CommitDenied => 5,
            Failure::OutputLost => 6,
            Failure::Other => 7,
        };
        FAILURES.iter().enumerate().for_each(|(at, value)| assert_eq!(failure(*value), at));
    }

    #[test]
    fn distinct_error_messages_are_limited() {
        let mut tasks = PipelinedTasks::default();
        for number in 0..MAX_ERRORS + 10 {
            let error = Some(format!("failure {number}"));
            tasks.push(&PipelinedTask { failure: Some(Failure::Exception), error, ..Default::default() });
        }
        let last: Vec<PipelinedTask> = tasks.iter().skip(MAX_ERRORS - 1).take(2).collect();
        assert_eq!(last[0].error.as_deref(), Some("failure 255"));
        assert_eq!((last[1].error.as_deref(), last[1].failure), (None, Some(Failure::Exception)));
    }

    #[test]
    fn launches_are_relative_to_the_origin() {
        let launched = |launched_ns| PipelinedTask { launched_ns, ..Default::default() };
        let mut tasks: PipelinedTasks = [launched(105), launched(99)].into_iter().collect();
        tasks.count_from(100);
        assert_eq!(tasks.iter().map(|task| task.launched_ns).collect::<Vec<_>>(), [5, 0]);
    }

    #[test]
    fn all_times_round_trip() {
        let long = 1 << 62;
        let times = [0, 1, MS - 1, MS, 7 * MS, MS + 1, long - 1, long, u64::MAX / MS * MS, u64::MAX];
        let of = |launched_ns| PipelinedTask {
            launched_ns,
            duration_ns: launched_ns,
            gc: Some(Blocked::AtMostNs(launched_ns)),
            ..Default::default()
        };
        // Forwards and backwards, to cover every difference with both signs.
        let tasks: Vec<_> = times.into_iter().chain(times.into_iter().rev()).map(of).collect();
        let packed: PipelinedTasks = tasks.iter().cloned().collect();
        assert!(packed.iter().eq(tasks));
    }

    #[test]
    fn typical_log_task_takes_at_most_60_bytes() {
        // A typical task of a log: times in milliseconds, launches within seconds of each other.
        let ns = |ms: u64| Some(Blocked::MeasuredNs(ms * MS));
        let task = |n: u64| PipelinedTask {
            stage: 900,
            partition: n as u32,
            resource: 20,
            id: Some(500_000 + n),
            launched_ns: (1_780_000_000_000 + n * 37 % 5_000) * MS,
            duration_ns: 2_345 * MS,
            run_ns: Some(2_300 * MS),
            cpu_ns: Some(1_234_567_891),
            deserialize_cpu_ns: Some(3_456_789),
            input_bytes: Some(80_000_000),
            input_records: Some(1_000_000),
            shuffle_write_bytes: Some(1_000_000),
            shuffle_write_records: Some(10_000),
            blocked_shuffle_write: Some(Blocked::MeasuredNs(12_345_678)),
            blocked_input: Some(Blocked::AtMostNs(900_000_001)),
            gc: ns(40),
            scheduler: ns(5),
            deserialize: ns(9),
            ..Default::default()
        };
        let tasks: PipelinedTasks = (0..10_000).map(task).collect();
        let each = tasks.chunks.iter().map(Vec::len).sum::<usize>() / tasks.len();
        assert!(each <= 60, "{each} bytes");
    }
}
