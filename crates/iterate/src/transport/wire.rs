//! The wire format of messages.
//!
//! A frame consists of a length, a CRC-32 checksum of the rest, the job's generation, a kind, and a body.
//! Messages of every iteration have a binary body; rare ones are JSON. Numbers are little-endian.

use serde::{Deserialize, Serialize};

use crate::dataflow::data::Chunk;
use crate::dataflow::plan::{BundleIx, Instance};
use crate::error::JobError;
use crate::protocol::message::{Envelope, Message, Packed};
use crate::protocol::records::{
    Arrival, Entry, Exchanged, Host, JobState, Part, Report, Sample, Saved, Signal, TraceBatch,
};

/// Size of a frame's head: length and checksum.
pub(crate) const HEAD: usize = 12;

/// Maximum length of a frame, which holds at most one bundle, and a bundle fits into a worker's memory. A larger
/// length means corruption.
const MAX_FRAME: u64 = 1 << 36;

/// The messages with a JSON body.
#[derive(Serialize, Deserialize)]
enum Rare {
    Begin(JobState),
    Map(Vec<(BundleIx, Entry)>),
    Members { version: u32, members: Vec<u32> },
    Migrate { bundle: BundleIx, to: Entry },
    Snapshot,
    Pause(bool),
    Finish,
    Drain { members: Vec<u32> },
    Stop,
    Drained,
    Unreachable { worker: u32, cause: String },
    Report(Report),
    Installed { bundle: BundleIx, version: u32 },
    Saved(Saved),
    Damaged { cause: String },
    Ended { bundle: BundleIx },
    Finished(Report),
    Failed(JobError),
    Addresses(Vec<(u32, String)>),
}

/// The content of a frame.
pub(crate) enum Frame {
    Envelope(Envelope),
    /// From the controller: the addresses that workers listen on.
    Addresses(Vec<(u32, String)>),
}

const RARE: u8 = 0;
const DELIVER: u8 = 1;
const SIGNALS: u8 = 2;
const INSTALL: u8 = 3;
const OUTPUT: u8 = 4;
const TRACE: u8 = 5;

/// Appends a message as a frame.
pub(crate) fn encode(envelope: &Envelope, out: &mut Vec<u8>) {
    frame(out, |out| {
        out.extend_from_slice(&envelope.generation.to_le_bytes());
        body(&envelope.message, out);
    });
}

/// Appends the workers' addresses as a frame.
pub(crate) fn encode_addresses(addresses: Vec<(u32, String)>, out: &mut Vec<u8>) {
    frame(out, |out| {
        out.extend_from_slice(&0u32.to_le_bytes());
        rare(Rare::Addresses(addresses), out);
    });
}

fn frame(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; HEAD]);
    fill(out);
    let length = (out.len() - at - HEAD) as u64;
    let checksum = crc32fast::hash(&out[at + HEAD..]);
    out[at..at + 8].copy_from_slice(&length.to_le_bytes());
    out[at + 8..at + HEAD].copy_from_slice(&checksum.to_le_bytes());
}

fn rare(message: Rare, out: &mut Vec<u8>) {
    out.push(RARE);
    // Serialising numbers, strings and lists of them to memory cannot fail.
    let _ = serde_json::to_writer(out, &message);
}

fn body(message: &Message, out: &mut Vec<u8>) {
    match message {
        Message::Deliver { to, arrival } => {
            out.push(DELIVER);
            put_u32(out, to.len() as u32);
            to.iter().for_each(|&(bundle, version)| [bundle, version].iter().for_each(|&n| put_u32(out, n)));
            match arrival {
                Arrival::Passed { worker, epoch } => {
                    out.push(0);
                    put_u32(out, *worker);
                    put_u64(out, *epoch);
                }
                Arrival::Chunk { gather, source, chunk } => {
                    out.push(1);
                    put_chunk(out, *gather, *source, chunk.as_ref());
                }
            }
        }
        Message::Signals(signals) => {
            out.push(SIGNALS);
            put_signals(out, signals);
        }
        Message::Install(packed) => {
            out.push(INSTALL);
            put_packed(out, packed);
        }
        Message::Output { dataset, partition, content } => {
            out.push(OUTPUT);
            put_u32(out, *dataset);
            put_u32(out, *partition);
            content.encode(out);
        }
        Message::Trace(batch) => {
            out.push(TRACE);
            put_trace_batch(out, batch);
        }
        Message::Begin(job_state) => rare(Rare::Begin((**job_state).clone()), out),
        Message::Map(entries) => rare(Rare::Map(entries.clone()), out),
        Message::Members { version, members } => {
            rare(Rare::Members { version: *version, members: members.clone() }, out);
        }
        Message::Migrate { bundle, to } => rare(Rare::Migrate { bundle: *bundle, to: *to }, out),
        Message::Snapshot => rare(Rare::Snapshot, out),
        Message::Pause(pause) => rare(Rare::Pause(*pause), out),
        Message::Finish => rare(Rare::Finish, out),
        Message::Drain { members } => rare(Rare::Drain { members: members.clone() }, out),
        Message::Stop => rare(Rare::Stop, out),
        Message::Drained => rare(Rare::Drained, out),
        Message::Unreachable { worker, cause } => {
            rare(Rare::Unreachable { worker: *worker, cause: cause.clone() }, out);
        }
        Message::Report(report) => rare(Rare::Report((**report).clone()), out),
        Message::Installed { bundle, version } => {
            rare(Rare::Installed { bundle: *bundle, version: *version }, out);
        }
        Message::Saved(saved) => rare(Rare::Saved((**saved).clone()), out),
        Message::Damaged { cause } => rare(Rare::Damaged { cause: cause.clone() }, out),
        Message::Ended { bundle } => rare(Rare::Ended { bundle: *bundle }, out),
        Message::Finished(report) => rare(Rare::Finished((**report).clone()), out),
        Message::Failed(error) => rare(Rare::Failed(error.clone()), out),
    }
}

/// Returns the length of the frame that starts with `head`.
///
/// # Errors
/// If the length is out of range.
pub(crate) fn length(head: &[u8; HEAD]) -> Result<usize, String> {
    let (length, _) = numbers(head);
    let fits = usize::try_from(length).ok().filter(|_| (5..MAX_FRAME).contains(&length));
    fits.ok_or_else(|| format!("invalid frame length of {length} bytes"))
}

/// Splits a head into length and checksum.
fn numbers(head: &[u8; HEAD]) -> (u64, u32) {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = *head;
    (u64::from_le_bytes([a, b, c, d, e, f, g, h]), u32::from_le_bytes([i, j, k, l]))
}

/// Decodes a frame from its head and the rest.
///
/// # Errors
/// If the checksum does not match or the body is malformed.
pub(crate) fn decode(head: &[u8; HEAD], rest: bytes::Bytes) -> Result<Frame, String> {
    if crc32fast::hash(&rest) != numbers(head).1 {
        return Err("invalid frame: checksum mismatch".into());
    }
    let mut input = Input(rest);
    let generation = input.u32()?;
    let message = match input.u8()? {
        RARE => {
            let rare: Rare = serde_json::from_slice(&input.0).map_err(|error| error.to_string())?;
            match common(rare) {
                Ok(message) => message,
                Err(addresses) => return Ok(Frame::Addresses(addresses)),
            }
        }
        DELIVER => {
            let to = input.list(|input| Ok((input.u32()?, input.u32()?)))?;
            let arrival = match input.u8()? {
                0 => Arrival::Passed { worker: input.u32()?, epoch: input.u64()? },
                _ => {
                    let (gather, source, chunk) = input.chunk()?;
                    Arrival::Chunk { gather, source, chunk }
                }
            };
            Message::Deliver { to, arrival }
        }
        SIGNALS => Message::Signals(input.signals()?),
        INSTALL => Message::Install(Box::new(input.packed()?)),
        OUTPUT => {
            let (dataset, partition) = (input.u32()?, input.u32()?);
            Message::Output { dataset, partition, content: Chunk::Encoded(input.0) }
        }
        TRACE => Message::Trace(Box::new(input.trace_batch()?)),
        kind => return Err(format!("invalid frame: unknown kind {kind}")),
    };
    Ok(Frame::Envelope(Envelope { generation, message }))
}

fn common(rare: Rare) -> Result<Message, Vec<(u32, String)>> {
    Ok(match rare {
        Rare::Begin(job_state) => Message::Begin(job_state.into()),
        Rare::Map(entries) => Message::Map(entries),
        Rare::Members { version, members } => Message::Members { version, members },
        Rare::Migrate { bundle, to } => Message::Migrate { bundle, to },
        Rare::Snapshot => Message::Snapshot,
        Rare::Pause(pause) => Message::Pause(pause),
        Rare::Finish => Message::Finish,
        Rare::Drain { members } => Message::Drain { members },
        Rare::Stop => Message::Stop,
        Rare::Drained => Message::Drained,
        Rare::Unreachable { worker, cause } => Message::Unreachable { worker, cause },
        Rare::Report(report) => Message::Report(Box::new(report)),
        Rare::Installed { bundle, version } => Message::Installed { bundle, version },
        Rare::Saved(saved) => Message::Saved(Box::new(saved)),
        Rare::Damaged { cause } => Message::Damaged { cause },
        Rare::Ended { bundle } => Message::Ended { bundle },
        Rare::Finished(report) => Message::Finished(Box::new(report)),
        Rare::Failed(error) => Message::Failed(error),
        Rare::Addresses(addresses) => return Err(addresses),
    })
}

fn put_u32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_instance(out: &mut Vec<u8>, instance: Instance) {
    put_u64(out, instance.epoch);
    put_u32(out, instance.statement);
}

fn put_chunk(out: &mut Vec<u8>, gather: Instance, source: u32, chunk: Option<&Chunk>) {
    put_instance(out, gather);
    put_u32(out, source);
    out.push(u8::from(chunk.is_some()));
    put_content(out, chunk);
}

/// Appends a length and the content's bytes.
fn put_content(out: &mut Vec<u8>, content: Option<&Chunk>) {
    let at = out.len();
    put_u64(out, 0);
    if let Some(content) = content {
        content.encode(out);
    }
    let length = (out.len() - at - 8) as u64;
    out[at..at + 8].copy_from_slice(&length.to_le_bytes());
}

fn put_signals(out: &mut Vec<u8>, signals: &[(u64, Signal)]) {
    put_u32(out, signals.len() as u32);
    for (epoch, signal) in signals {
        put_u64(out, *epoch);
        out.push(u8::from(signal.value) | u8::from(signal.snapshot) << 1);
    }
}

fn put_packed(out: &mut Vec<u8>, packed: &Packed) {
    put_u32(out, packed.bundle);
    put_u32(out, packed.version);
    put_instance(out, packed.position);
    put_u32(out, packed.deferred.len() as u32);
    packed.deferred.iter().for_each(|&instance| put_instance(out, instance));
    put_u32(out, packed.gathered.len() as u32);
    packed.gathered.iter().for_each(|&statement| put_u32(out, statement));
    put_u64(out, packed.iteration);
    put_u32(out, packed.since_snapshot);
    put_u64(out, packed.written);
    put_u64(out, packed.tasks);
    put_u32(out, packed.written_before.len() as u32);
    packed.written_before.iter().for_each(|&(epoch, set)| [epoch, set].iter().for_each(|&n| put_u64(out, n)));
    put_u32(out, packed.saved.len() as u32);
    for part in &packed.saved {
        [part.dataset, part.checksum].iter().for_each(|&n| put_u32(out, n));
        [part.epoch, part.bytes].iter().for_each(|&n| put_u64(out, n));
    }
    put_u32(out, packed.passed.len() as u32);
    for &(worker, epoch) in &packed.passed {
        put_u32(out, worker);
        put_u64(out, epoch);
    }
    put_signals(out, &packed.signals);
    put_u32(out, packed.chunks.len() as u32);
    packed.chunks.iter().for_each(|(gather, source, chunk)| put_chunk(out, *gather, *source, chunk.as_ref()));
    put_u32(out, packed.states.len() as u32);
    for (dataset, content) in &packed.states {
        put_u32(out, *dataset);
        put_content(out, Some(content));
    }
}

fn put_trace_batch(out: &mut Vec<u8>, batch: &TraceBatch) {
    put_u32(out, batch.host.name.len() as u32);
    out.extend_from_slice(batch.host.name.as_bytes());
    [batch.host.cores, batch.threads].iter().for_each(|&n| put_u32(out, n));
    [batch.now_ns, batch.interval_ns].iter().for_each(|&n| put_u64(out, n));
    put_u32(out, batch.tasks.len() as u32);
    for (ago_ns, task) in &batch.tasks {
        [task.statement, task.bundle].iter().for_each(|&n| put_u32(out, n));
        let numbers = [*ago_ns, task.iteration, task.service_ns, task.weight.to_bits(), task.bytes];
        numbers.iter().for_each(|&n| put_u64(out, n));
    }
    put_u32(out, batch.exchanges.len() as u32);
    for sent in &batch.exchanges {
        put_u32(out, sent.statement);
        [sent.messages, sent.bytes].iter().for_each(|&n| put_u64(out, n));
    }
}

/// A cursor over the bytes of a frame.
struct Input(bytes::Bytes);

impl Input {
    fn take(&mut self, length: usize) -> Result<bytes::Bytes, String> {
        if self.0.len() < length {
            return Err("invalid frame: truncated".into());
        }
        Ok(self.0.split_to(length))
    }

    fn u8(&mut self) -> Result<u8, String> {
        Ok(self.take(1)?[0])
    }

    fn u32(&mut self) -> Result<u32, String> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn u64(&mut self) -> Result<u64, String> {
        Ok(u64::from(self.u32()?) | u64::from(self.u32()?) << 32)
    }

    fn list<T>(&mut self, mut each: impl FnMut(&mut Self) -> Result<T, String>) -> Result<Vec<T>, String> {
        let length = self.u32()?;
        // Not allocated in advance: with a wrong length, decoding fails at the end of the bytes.
        (0..length).map(|_| each(self)).collect()
    }

    fn instance(&mut self) -> Result<Instance, String> {
        Ok(Instance { epoch: self.u64()?, statement: self.u32()? })
    }

    fn content(&mut self) -> Result<Chunk, String> {
        let length = usize::try_from(self.u64()?).unwrap_or(usize::MAX);
        self.take(length).map(Chunk::Encoded)
    }

    fn chunk(&mut self) -> Result<(Instance, u32, Option<Chunk>), String> {
        let (gather, source, some) = (self.instance()?, self.u32()?, self.u8()? == 1);
        let content = self.content()?;
        Ok((gather, source, some.then_some(content)))
    }

    fn signals(&mut self) -> Result<Vec<(u64, Signal)>, String> {
        self.list(|input| {
            let (epoch, bits) = (input.u64()?, input.u8()?);
            Ok((epoch, Signal { value: bits & 1 == 1, snapshot: bits & 2 == 2 }))
        })
    }

    fn trace_batch(&mut self) -> Result<TraceBatch, String> {
        let length = self.u32()? as usize;
        let name = String::from_utf8_lossy(&self.take(length)?).into_owned();
        Ok(TraceBatch {
            host: Host { name, cores: self.u32()? },
            threads: self.u32()?,
            now_ns: self.u64()?,
            interval_ns: self.u64()?,
            tasks: self.list(|input| {
                let (statement, bundle) = (input.u32()?, input.u32()?);
                let (ago_ns, iteration, service_ns) = (input.u64()?, input.u64()?, input.u64()?);
                let (weight, bytes) = (f64::from_bits(input.u64()?), input.u64()?);
                Ok((
                    ago_ns,
                    Sample { statement, bundle, iteration, start_ticks: 0, service_ns, weight, bytes },
                ))
            })?,
            exchanges: self.list(|input| {
                Ok(Exchanged { statement: input.u32()?, messages: input.u64()?, bytes: input.u64()? })
            })?,
        })
    }

    fn packed(&mut self) -> Result<Packed, String> {
        Ok(Packed {
            bundle: self.u32()?,
            version: self.u32()?,
            position: self.instance()?,
            deferred: self.list(Self::instance)?,
            gathered: self.list(Self::u32)?,
            iteration: self.u64()?,
            since_snapshot: self.u32()?,
            written: self.u64()?,
            tasks: self.u64()?,
            written_before: self.list(|input| Ok((input.u64()?, input.u64()?)))?,
            saved: self.list(|input| {
                let (dataset, checksum) = (input.u32()?, input.u32()?);
                Ok(Part { dataset, checksum, epoch: input.u64()?, bytes: input.u64()? })
            })?,
            passed: self.list(|input| Ok((input.u32()?, input.u64()?)))?,
            signals: self.signals()?,
            chunks: self.list(Self::chunk)?,
            states: self.list(|input| Ok((input.u32()?, input.content()?)))?,
        })
    }
}
