//! The keys of `--set`, in one table that parsing, refusals and the check of the help text use.

use super::change::{Amount, Change};
use super::tasks::Tasks;

/// A key of `--set`, with the values it takes and the traces that support it.
pub struct Key {
    /// The key; a word in capitals stands for a name.
    pub name: &'static str,
    /// The values, for messages.
    pub(crate) takes: &'static str,
    pub(crate) values: Values,
    pub(crate) on: &'static [On],
}

/// The values of a key.
pub(crate) enum Values {
    Number(fn(Amount) -> Change),
    Whole(fn(Amount) -> Change),
    Rate(fn(Amount) -> Change),
    Size(fn(Amount) -> Change),
    /// A whole number of what the key names.
    WholeOf(fn(String, Amount) -> Change),
    /// A rate of what the key names.
    RateOf(fn(String, Amount) -> Change),
    Timeout,
    Place,
    /// A factor on what the key names.
    Factor(fn(String, f64) -> Change),
    /// The word `none`, for the removal of what the key names.
    Removal(fn(String) -> Change),
    /// Names within what the key names.
    Names(fn(String, Vec<String>) -> Change),
    File,
    Part,
}

/// A kind of traces that supports a key. `machines` and `workers` mean the same everywhere; each is listed
/// where it is the usual name.
pub(crate) enum On {
    /// Traces of monotasks that hold this.
    Monotasks(Needs),
    /// Spark's event logs.
    Pipelined,
    /// Traces of iterative jobs.
    Sampled,
}

/// The part of a trace of monotasks that a key changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    Cores,
    Disk,
    Network,
    Store,
    /// A stage after an exchange, divided into several multitasks.
    Exchange,
    /// Several machines.
    Machines,
    /// Operators with their core time.
    Operators,
    /// Operators that read exchanges.
    ExchangeOperators,
    /// Monotasks that decode.
    Decoding,
    /// Scans whose columns were measured one by one.
    Columns,
    Anything,
}

use On::{Monotasks, Pipelined, Sampled};
use Values::{Factor, File, Names, Number, Part, Place, Rate, RateOf, Size, Timeout, Whole, WholeOf};

/// Every key. `workers` is another name of `machines`.
pub const KEYS: &[Key] = &[
    key(
        "cores",
        "a number of cores, for example 4 or x2 or 0.5",
        Number(Change::Cores),
        &[Monotasks(Needs::Cores), Pipelined, Sampled],
    ),
    key(
        "disks",
        "a whole number of disks, for example 2 or x2",
        Whole(Change::Disks),
        &[Monotasks(Needs::Disk)],
    ),
    key(
        "disk.rate",
        "a rate of every disk, for example 200MB/s or x2",
        Rate(Change::all_disks),
        &[Monotasks(Needs::Disk), Pipelined],
    ),
    key(
        "disk.NAME.rate",
        "a rate of one disk, for example disk.vda.rate=200MB/s",
        RateOf(Change::one_disk),
        &[Monotasks(Needs::Disk)],
    ),
    key(
        "network.rate",
        "a rate of every link, for example 1Gbit/s or x2",
        Rate(Change::NetworkRate),
        &[Monotasks(Needs::Network), Pipelined, Sampled],
    ),
    key(
        "store.rate",
        "a rate of every object store, for example 200MB/s or x2",
        Rate(Change::StoreRate),
        &[Monotasks(Needs::Store)],
    ),
    key(
        "concurrency.KIND",
        "concurrent monotasks on each resource of a kind, for example concurrency.disk=4",
        WholeOf(Change::Concurrency),
        &[Monotasks(Needs::Anything)],
    ),
    key(
        "memory",
        "a memory budget, for example 4GiB or x2",
        Size(Change::Memory),
        &[Monotasks(Needs::Anything)],
    ),
    key(
        "partitions",
        "a whole number of multitasks per stage after an exchange, for example 16 or x2",
        Whole(Change::Partitions),
        &[Monotasks(Needs::Exchange)],
    ),
    key(
        "machines",
        "a whole number of machines, for example 4 or x2",
        Whole(Change::Machines),
        &[Monotasks(Needs::Machines)],
    ),
    key("workers", "the same as machines", Whole(Change::Machines), &[Sampled]),
    key(
        "executors",
        "a whole number of executors, for example 8 or x2",
        Whole(Change::Executors),
        &[Pipelined],
    ),
    key(
        "executor.cores",
        "a whole number of cores per executor, for example 4 or x2",
        Whole(Change::ExecutorCores),
        &[Pipelined],
    ),
    key(
        "idle.timeout",
        "an executor's maximum idle time, for example 60s; or never: all are present from the first job on",
        Timeout,
        &[Pipelined],
    ),
    key("input", "memory or memory-decoded", Place, &[Monotasks(Needs::Anything), Pipelined]),
    key(
        "input.scale",
        "a factor on the input, for example x2 or 0.5",
        Factor(Change::input_scale),
        &[Monotasks(Needs::Anything), Pipelined],
    ),
    key(
        "operator.N.time",
        "a factor on the core time of operator N of `analyze --json`, for example operator.3.time=x0.5",
        Factor(Change::OperatorTime),
        &[Monotasks(Needs::Operators)],
    ),
    key(
        "operator.N.bytes",
        "a factor on the bytes that scan N of `analyze --json` reads, for example operator.3.bytes=x0.5",
        Factor(Change::OperatorBytes),
        &[Monotasks(Needs::Operators)],
    ),
    key(
        "operator.N.multitasks",
        "a whole number of multitasks of the stage of scan N, for example operator.3.multitasks=8 or x2",
        WholeOf(Change::OperatorMultitasks),
        &[Monotasks(Needs::Operators)],
    ),
    key(
        "rows.N",
        "a factor on the rows that operator N of `analyze --json` emits, for example rows.3=x0.5",
        Factor(Change::Rows),
        &[Monotasks(Needs::Operators)],
    ),
    key(
        "exchange.N",
        "none, for the exchange that operator N of `analyze --json` reads, for example exchange.3=none",
        Values::Removal(Change::NoExchange),
        &[Monotasks(Needs::ExchangeOperators)],
    ),
    key(
        "decode.time",
        "a factor on the core time of decoding, for example x0.5",
        Factor(Change::decode_time),
        &[Monotasks(Needs::Decoding)],
    ),
    key(
        "columns.TABLE",
        "the columns that scans of a file still read, for example columns.lineitem=l_orderkey,l_tax",
        Names(Change::Columns),
        &[Monotasks(Needs::Columns)],
    ),
    key(
        "storage",
        "a file that `pellucid storage probe -o` wrote, for example storage=probe.json",
        File,
        &[Monotasks(Needs::Anything)],
    ),
    key(
        "no",
        "a kind of resource (cpu, disk, network, store), or gc, scheduler, deserialize, stragglers, skew",
        Part,
        &[Monotasks(Needs::Anything), Pipelined],
    ),
];

const fn key(name: &'static str, takes: &'static str, values: Values, on: &'static [On]) -> Key {
    Key { name, takes, values, on }
}

impl Key {
    /// Returns true if traces of such tasks can support the key.
    pub fn is_for(&self, tasks: Tasks) -> bool {
        self.on.iter().any(|on| match on {
            On::Monotasks(_) => tasks == Tasks::Monotasks,
            On::Pipelined => tasks == Tasks::Pipelined,
            On::Sampled => tasks == Tasks::Sampled,
        })
    }

    /// Returns the key that a setting uses, and the name within it: `vda` in `disk.vda.rate`.
    pub(crate) fn find(text: &str) -> Option<(&'static Key, String)> {
        let exact = |key: &&Key| key.name == text && key.around_name().is_none();
        let named = |key: &'static Key| {
            let (before, after) = key.around_name()?;
            let name = text.strip_prefix(before)?.strip_suffix(after)?;
            (!name.is_empty()).then(|| (key, name.to_string()))
        };
        KEYS.iter().find(exact).map(|key| (key, String::new())).or_else(|| KEYS.iter().find_map(named))
    }

    /// Returns the text before and after the name that a key holds, if any.
    fn around_name(&self) -> Option<(&'static str, &'static str)> {
        let start = self.name.find(|c: char| c.is_ascii_uppercase())?;
        let (before, rest) = self.name.split_at(start);
        Some((before, rest.trim_start_matches(|c: char| c.is_ascii_uppercase())))
    }

    /// Returns true if values must be whole numbers.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.values, Whole(_) | WholeOf(_))
    }

    /// Returns true if values are rates.
    pub(crate) fn is_rate(&self) -> bool {
        matches!(self.values, Rate(_) | RateOf(_))
    }
}

/// Returns the names of all keys, in order.
pub(crate) fn all() -> Vec<&'static str> {
    KEYS.iter().map(|key| key.name).collect()
}

/// Returns the names of the keys that a trace of monotasks supports, in order.
pub(crate) fn of_monotasks(holds: impl Fn(Needs) -> bool) -> Vec<&'static str> {
    let supports = |key: &&Key| key.on.iter().any(|on| matches!(on, On::Monotasks(needs) if holds(*needs)));
    KEYS.iter().filter(supports).map(|key| key.name).collect()
}
