//! The wire format of messages.
//!
//! A frame consists of a length, a CRC-32 checksum of the rest, the job's generation, a kind, and a body.
//! Messages of every iteration have a binary body, whose parts implement [`Binary`]; rare ones are JSON, by serde.
//! Numbers are little-endian.

use bytes::Bytes;

use crate::dataflow::data::Chunk;
use crate::dataflow::index::{BundleIx, DatasetIx, DatasetSet, StatementIx, WorkerIx};
use crate::dataflow::plan::Instance;
use crate::protocol::message::{Envelope, Message, Packed};
use crate::protocol::records::{Arrival, Exchanged, Host, Part, Sample, Signal, TraceBatch};

/// Size of a frame's head: length and checksum.
pub(crate) const HEAD: usize = 12;

/// Maximum length of a frame, which holds at most one bundle, and a bundle fits into a worker's memory. A larger
/// length means corruption.
const MAX_FRAME: u64 = 1 << 36;

const RARE: u8 = 0;
const DELIVER: u8 = 1;
const SIGNALS: u8 = 2;
const INSTALL: u8 = 3;
const OUTPUT: u8 = 4;
const TRACE: u8 = 5;

/// Appends a message as a frame.
pub(crate) fn encode(envelope: &Envelope, out: &mut Vec<u8>) {
    let at = out.len();
    out.extend_from_slice(&[0; HEAD]);
    envelope.generation.put(out);
    put_message(&envelope.message, out);
    let length = (out.len() - at - HEAD) as u64;
    let checksum = crc32fast::hash(&out[at + HEAD..]);
    out[at..at + 8].copy_from_slice(&length.to_le_bytes());
    out[at + 8..at + HEAD].copy_from_slice(&checksum.to_le_bytes());
}

fn put_message(message: &Message, out: &mut Vec<u8>) {
    match message {
        Message::Deliver { to, arrival } => {
            out.push(DELIVER);
            to.put(out);
            arrival.put(out);
        }
        Message::Signals(signals) => {
            out.push(SIGNALS);
            signals.put(out);
        }
        Message::Install(packed) => {
            out.push(INSTALL);
            packed.put(out);
        }
        Message::Output { dataset, partition, content } => {
            out.push(OUTPUT);
            dataset.put(out);
            partition.put(out);
            content.encode(out);
        }
        Message::Trace(batch) => {
            out.push(TRACE);
            batch.put(out);
        }
        rare => {
            out.push(RARE);
            // Serialising numbers, strings and lists of them to memory cannot fail.
            let _ = serde_json::to_writer(out, rare);
        }
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
pub(crate) fn decode(head: &[u8; HEAD], rest: Bytes) -> Result<Envelope, String> {
    if crc32fast::hash(&rest) != numbers(head).1 {
        return Err("invalid frame: checksum mismatch".into());
    }
    let input = &mut Input(rest);
    let generation = u32::take(input)?;
    let message = match u8::take(input)? {
        RARE => serde_json::from_slice(&input.0).map_err(|error| error.to_string())?,
        DELIVER => Message::Deliver { to: Binary::take(input)?, arrival: Binary::take(input)? },
        SIGNALS => Message::Signals(Binary::take(input)?),
        INSTALL => Message::Install(Box::new(Binary::take(input)?)),
        OUTPUT => {
            let (dataset, partition) = Binary::take(input)?;
            Message::Output { dataset, partition, content: Chunk::Encoded(std::mem::take(&mut input.0)) }
        }
        TRACE => Message::Trace(Box::new(Binary::take(input)?)),
        kind => return Err(format!("invalid frame: unknown kind {kind}")),
    };
    Ok(Envelope { generation, message })
}

/// A cursor over the bytes of a frame.
struct Input(Bytes);

impl Input {
    fn split(&mut self, length: usize) -> Result<Bytes, String> {
        if self.0.len() < length {
            return Err("invalid frame: truncated".into());
        }
        Ok(self.0.split_to(length))
    }
}

/// A part of a binary body.
trait Binary: Sized {
    /// Appends the value.
    fn put(&self, out: &mut Vec<u8>);

    /// Reads the value that [`Binary::put`] appended.
    ///
    /// # Errors
    /// If the frame ends before the value does.
    fn take(input: &mut Input) -> Result<Self, String>;
}

impl Binary for u8 {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }

    fn take(input: &mut Input) -> Result<Self, String> {
        Ok(input.split(1)?[0])
    }
}

impl Binary for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }

    fn take(input: &mut Input) -> Result<Self, String> {
        let bytes = input.split(4)?;
        Ok(Self::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }
}

impl Binary for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }

    fn take(input: &mut Input) -> Result<Self, String> {
        Ok(Self::from(u32::take(input)?) | Self::from(u32::take(input)?) << 32)
    }
}

/// Implements [`Binary`] for a number with a type of its own.
macro_rules! number {
    ($($name:ident),+) => {$(
        impl Binary for $name {
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }

            fn take(input: &mut Input) -> Result<Self, String> {
                Binary::take(input).map(Self)
            }
        }
    )+};
}

number!(StatementIx, BundleIx, DatasetIx, DatasetSet, WorkerIx);

impl Binary for f64 {
    fn put(&self, out: &mut Vec<u8>) {
        self.to_bits().put(out);
    }

    fn take(input: &mut Input) -> Result<Self, String> {
        u64::take(input).map(Self::from_bits)
    }
}

impl<A: Binary, B: Binary> Binary for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(input: &mut Input) -> Result<Self, String> {
        Ok((A::take(input)?, B::take(input)?))
    }
}

impl<A: Binary, B: Binary, C: Binary> Binary for (A, B, C) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
        self.2.put(out);
    }

    fn take(input: &mut Input) -> Result<Self, String> {
        Ok((A::take(input)?, B::take(input)?, C::take(input)?))
    }
}

impl<T: Binary> Binary for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        self.iter().for_each(|item| item.put(out));
    }

    fn take(input: &mut Input) -> Result<Self, String> {
        let length = u32::take(input)?;
        // Not allocated in advance: with a wrong length, decoding fails at the end of the bytes.
        (0..length).map(|_| T::take(input)).collect()
    }
}

impl Binary for String {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn take(input: &mut Input) -> Result<Self, String> {
        let length = u32::take(input)? as usize;
        Ok(Self::from_utf8_lossy(&input.split(length)?).into_owned())
    }
}

/// A length and the encoded content, which is not copied when it is read.
impl Binary for Chunk {
    fn put(&self, out: &mut Vec<u8>) {
        let at = out.len();
        0u64.put(out);
        self.encode(out);
        let length = (out.len() - at - 8) as u64;
        out[at..at + 8].copy_from_slice(&length.to_le_bytes());
    }

    fn take(input: &mut Input) -> Result<Self, String> {
        let length = usize::try_from(u64::take(input)?).unwrap_or(usize::MAX);
        input.split(length).map(Chunk::Encoded)
    }
}

impl Binary for Option<Chunk> {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_some()));
        self.iter().for_each(|chunk| chunk.put(out));
    }

    fn take(input: &mut Input) -> Result<Self, String> {
        Ok(if u8::take(input)? == 1 { Some(Binary::take(input)?) } else { None })
    }
}

impl Binary for Signal {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.value) | u8::from(self.snapshot) << 1);
    }

    fn take(input: &mut Input) -> Result<Self, String> {
        let bits = u8::take(input)?;
        Ok(Self { value: bits & 1 == 1, snapshot: bits & 2 == 2 })
    }
}

impl Binary for Arrival {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Passed { worker, epoch } => {
                out.push(0);
                worker.put(out);
                epoch.put(out);
            }
            Self::Chunk { gather, source, chunk } => {
                out.push(1);
                gather.put(out);
                source.put(out);
                chunk.put(out);
            }
        }
    }

    fn take(input: &mut Input) -> Result<Self, String> {
        Ok(match u8::take(input)? {
            0 => Self::Passed { worker: Binary::take(input)?, epoch: Binary::take(input)? },
            _ => Self::Chunk {
                gather: Binary::take(input)?,
                source: Binary::take(input)?,
                chunk: Binary::take(input)?,
            },
        })
    }
}

/// Implements [`Binary`] field by field. The fields after the semicolon are not sent.
macro_rules! record {
    ($record:ident { $($field:ident),+ $(; $own:ident: $value:expr)? }) => {
        impl Binary for $record {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)+
            }

            fn take(input: &mut Input) -> Result<Self, String> {
                Ok(Self { $($field: Binary::take(input)?,)+ $($own: $value)? })
            }
        }
    };
}

record!(Instance { epoch, statement });
record!(Part { dataset, checksum, epoch, bytes });
record!(Packed {
    bundle,
    version,
    position,
    deferred,
    gathered,
    iteration,
    since_snapshot,
    written,
    tasks,
    written_before,
    saved,
    passed,
    signals,
    chunks,
    states
});
record!(Host { name, cores });
record!(Sample { statement, bundle, iteration, service_ns, weight, bytes; start_ticks: 0 });
record!(Exchanged { statement, messages, bytes });
record!(TraceBatch { host, threads, now_ns, interval_ns, tasks, exchanges });
