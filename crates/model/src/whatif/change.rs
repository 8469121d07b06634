//! A single change to a recorded job.

/// An absolute or relative value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amount {
    /// A count, bytes, or bytes per second, depending on the key.
    Absolute(f64),
    /// A multiple of the trace's value.
    Times(f64),
}

impl Amount {
    /// Returns the value, given the trace's; `None` if it is relative to an unknown one.
    pub fn of(self, there: Option<f64>) -> Option<f64> {
        match self {
            Amount::Absolute(value) => Some(value),
            Amount::Times(factor) => there.map(|there| there * factor),
        }
    }
}

/// The place of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputFrom {
    /// In memory as the bytes of its files: nothing is read or fetched.
    Memory,
    /// In memory and decoded: decoding is skipped as well (monotasks-sosp17 §6.3).
    MemoryDecoded,
}

/// A probed store that input is to come from and output is to go to.
#[derive(Debug, Clone, PartialEq)]
pub struct Storage {
    /// Its name in messages.
    pub name: String,
    /// True for a disk of this machine, false for a store.
    pub is_disk: bool,
    /// Time to the first byte of a response, in nanoseconds.
    pub first_byte_ns: u64,
    /// Total bytes per second after the first byte, by number of concurrent requests, ascending.
    pub read: Vec<(u32, f64)>,
    /// The concurrency chosen by the probe.
    pub at_once: u32,
    /// True if the probe read bytes it had just written: the store may have served them from memory.
    pub read_just_written: bool,
    /// Bytes per second written; `None` if not measured.
    pub write_bytes_per_s: Option<f64>,
    /// Further time until an output is visible, in nanoseconds: a constant, and a part per byte; `None`
    /// if not measured.
    pub publish_ns: Option<(f64, f64)>,
}

/// A single change.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Cores of each machine.
    Cores(Amount),
    /// Disks of each machine, all like the present ones.
    Disks(Amount),
    /// Rate of one disk, or of all (`None`), in bytes per second.
    DiskRate(Option<String>, Amount),
    /// Rate of every link.
    NetworkRate(Amount),
    /// Rate of every store.
    StoreRate(Amount),
    /// Concurrent monotasks on each resource of a kind.
    Concurrency(String, Amount),
    /// The memory budget, in bytes.
    Memory(Amount),
    /// Multitasks of each stage after an exchange.
    Partitions(Amount),
    /// Number of machines.
    Machines(Amount),
    /// Number of executors (Spark).
    Executors(Amount),
    /// Cores of each executor (Spark).
    ExecutorCores(Amount),
    /// Maximum idle time of an executor, in nanoseconds; `u64::MAX` for never (Spark).
    IdleTimeout(u64),
    /// The place of the input.
    Input(InputFrom),
    /// A factor on the input.
    InputScale(f64),
    /// A factor on the core time of the operator with this number.
    OperatorTime(String, f64),
    /// A factor on the bytes that the scan with this number reads.
    OperatorBytes(String, f64),
    /// Multitasks of the stage of the scan with this number.
    OperatorMultitasks(String, Amount),
    /// A factor on the core time of decoding.
    DecodeTime(f64),
    /// A factor on the rows that the operator with this number emits.
    Rows(String, f64),
    /// The exchange of the operator with this number is left out.
    NoExchange(String),
    /// The columns that scans of this table still read.
    Columns(String, Vec<String>),
    /// Input and output on another storage.
    Storage(Storage),
    /// A kind of resource that becomes infinitely fast, or a part of the time that is removed.
    No(String),
}

impl Change {
    /// Returns true if the change is to the query or to its operators, not to hardware or a setting.
    pub(crate) fn is_of_code(&self) -> bool {
        matches!(
            self,
            Change::OperatorTime(..) | Change::DecodeTime(_) | Change::Rows(..) | Change::NoExchange(_)
        )
    }

    /// Changes the core time of decoding.
    pub(crate) fn decode_time(_: String, factor: f64) -> Change {
        Change::DecodeTime(factor)
    }

    /// Changes the input.
    pub(crate) fn input_scale(_: String, factor: f64) -> Change {
        Change::InputScale(factor)
    }

    /// Changes the rate of every disk.
    pub(crate) fn all_disks(amount: Amount) -> Change {
        Change::DiskRate(None, amount)
    }

    /// Changes the rate of one disk.
    pub(crate) fn one_disk(name: String, amount: Amount) -> Change {
        Change::DiskRate(Some(name), amount)
    }

    /// Returns the amount of a change to a number or a rate.
    pub fn amount(&self) -> Option<Amount> {
        match self {
            Change::Cores(amount)
            | Change::Disks(amount)
            | Change::DiskRate(_, amount)
            | Change::NetworkRate(amount)
            | Change::StoreRate(amount)
            | Change::Concurrency(_, amount)
            | Change::Memory(amount)
            | Change::Partitions(amount)
            | Change::OperatorMultitasks(_, amount)
            | Change::Machines(amount)
            | Change::Executors(amount)
            | Change::ExecutorCores(amount) => Some(*amount),
            Change::InputScale(factor) => Some(Amount::Absolute(*factor)),
            Change::OperatorTime(_, factor)
            | Change::OperatorBytes(_, factor)
            | Change::DecodeTime(factor)
            | Change::Rows(_, factor) => Some(Amount::Times(*factor)),
            Change::NoExchange(_)
            | Change::IdleTimeout(_)
            | Change::Input(_)
            | Change::Columns(..)
            | Change::Storage(_)
            | Change::No(_) => None,
        }
    }
}
