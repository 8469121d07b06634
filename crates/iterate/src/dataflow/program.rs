//! The driver program: datasets, and the stages that read and write them.
//!
//! A program is built once, by calls in the order in which it appears to run, and compiled into a
//! [`Plan`](crate::Plan): a flat table of statements that every worker holds (paper §3.2, §4.1). There are
//! no scalars: a loop counter or a model is a dataset with one partition. Control flow follows *signals*,
//! booleans that the worker with that partition computes and broadcasts.
//!
//! ```
//! use pellucid_iterate::{Program, Route};
//!
//! let mut program = Program::new("mean by iteration");
//! let rows = program.dataset("rows", 4, |index| Ok(vec![f64::from(index); 10]));
//! let local = program.dataset("local guess", 4, |_| Ok(0.0));
//! let error = program.dataset("local error", 4, |_| Ok(0.0));
//! let total = program.dataset("error", 1, |_| Ok(f64::INFINITY));
//! let guess = program.dataset("guess", 1, |_| Ok(0.0));
//! program.repeat("descent", |body| {
//!     body.broadcast("guess to all", guess, local);
//!     body.transform("error", (rows, local), error, |(rows, guess), error| {
//!         *error = rows.iter().map(|row| row - guess).sum();
//!         Ok(())
//!     });
//!     body.tree_reduce("sum", error, total, |sum, next| *sum += next);
//!     body.transform("step", total, guess, |total, guess| Ok(*guess += total / 80.0));
//!     body.while_signal("not converged", total, |total| total.abs() > 1e-9);
//! });
//! program.output(guess);
//! let outcome = pellucid_iterate::run(program.build()?, Default::default())?;
//! assert!((outcome.single(guess)? - 1.5).abs() < 1e-9);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//! - The result equals that of running the statements one after the other, for any number of workers.
//! - A gather sees its chunks in the order of the partitions that sent them, and a tree reduce combines
//!   partitions in a fixed tree. Floating-point results do not depend on the number of workers or on timing.
//! - A kernel may run again from a snapshot after a failure, so it must have no side effects other than on
//!   the views that it writes.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::dataflow::data::{AnyData, Data, DataError};
use crate::dataflow::index::{DatasetIx, DatasetSet, GroupIx, StatementIx, Table};
use crate::dataflow::plan::{DatasetSpec, Kind, Statement};
use crate::dataflow::views::{Dataset, Reads, Writes};
use crate::error::{Cause, KernelResult, ProgramError};

/// Maximum number of datasets in a program: a set of datasets is one machine word.
pub const MAX_DATASETS: usize = 64;

/// A program under construction. See the [module](self).
pub struct Program {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) made_from: String,
    pub(crate) datasets: Table<DatasetIx, DatasetSpec>,
    pub(crate) statements: Table<StatementIx, Statement>,
    /// Starts of the open loops and the signals that exit them, innermost last.
    loops: Vec<(StatementIx, Vec<StatementIx>)>,
    /// The first error; later ones may be consequences of it.
    pub(crate) error: Option<ProgramError>,
}

impl Program {
    /// Creates an empty program.
    pub fn new(name: impl Into<String>) -> Self {
        static PROGRAMS: AtomicU32 = AtomicU32::new(0);
        Self {
            id: PROGRAMS.fetch_add(1, Ordering::Relaxed),
            name: name.into(),
            made_from: String::new(),
            datasets: Table::new(),
            statements: Table::new(),
            loops: Vec::new(),
            error: None,
        }
    }

    /// Adds `what` to the program's fingerprint: options and the identity of the data, which the stages do not show.
    /// Programs that differ in it do not share workers or snapshots.
    pub fn made_from(&mut self, what: impl std::fmt::Debug) {
        self.made_from += &format!("{what:?};");
    }

    /// Adds a dataset with `partitions` partitions. `load` creates the partition with a given index, on the worker
    /// that holds it. It runs again if a lost partition that no stage writes must be reloaded.
    pub fn dataset<T: Data>(
        &mut self,
        name: impl Into<String>,
        partitions: u32,
        load: impl Fn(u32) -> Result<T, Cause> + Send + Sync + 'static,
    ) -> Dataset<T> {
        self.checked_dataset(name, partitions, load, |_, _| Ok(()))
    }

    /// Adds a dataset like [`Program::dataset`], for kernels that rely on more than the type `T`. `check` accepts or
    /// refuses the partition with a given index, as decoded from a snapshot or after a migration.
    pub fn checked_dataset<T: Data>(
        &mut self,
        name: impl Into<String>,
        partitions: u32,
        load: impl Fn(u32) -> Result<T, Cause> + Send + Sync + 'static,
        check: impl Fn(u32, &T) -> Result<(), DataError> + Send + Sync + 'static,
    ) -> Dataset<T> {
        let name = name.into();
        if partitions == 0 {
            self.fail(ProgramError::NoPartitions { dataset: name.clone() });
        }
        if self.datasets.len() == MAX_DATASETS {
            self.fail(ProgramError::TooManyDatasets { dataset: name.clone(), limit: MAX_DATASETS });
        }
        let index = self.datasets.push(DatasetSpec {
            name,
            partitions,
            load: Box::new(move |index| load(index).map(|value| Box::new(value) as Box<dyn AnyData>)),
            decode: Box::new(move |index, bytes| {
                let value = T::decode(bytes)?;
                check(index, &value)?;
                Ok(Box::new(value))
            }),
            constant: true,
            output: false,
            group: GroupIx::default(),
        });
        Dataset { index, partitions, program: self.id, holds: PhantomData }
    }

    /// Marks a dataset as output: [`Outcome`](crate::Outcome) holds it when the program has ended.
    pub fn output<T>(&mut self, dataset: Dataset<T>) {
        match self.datasets.get_mut(dataset.index) {
            Some(spec) if dataset.program == self.id => spec.output = true,
            _ => self.fail(ProgramError::ForeignDataset { stage: "output".into() }),
        }
    }

    /// Adds a stage with one task per partition, which reads and writes partitions of the same index.
    pub fn transform<R: Reads, W: Writes>(
        &mut self,
        name: impl Into<String>,
        reads: R,
        writes: W,
        kernel: impl for<'a> Fn(R::Views<'a>, W::Views<'a>) -> KernelResult + Send + Sync + 'static,
    ) {
        let kernel = Box::new(move |partitions| {
            // SAFETY: `stage` and `Plan` checked that the datasets are distinct and belong to this program.
            unsafe { kernel(reads.views(partitions), writes.views(partitions)) }
        });
        self.stage(name.into(), &reads.datasets(), &writes.datasets(), Kind::Transform(kernel));
    }

    /// Adds a branch: `then` runs if the signal on the single partition of `on` is true, else `otherwise`.
    pub fn if_signal<T: Data>(
        &mut self,
        name: impl Into<String>,
        on: Dataset<T>,
        signal: impl Fn(&T) -> bool + Send + Sync + 'static,
        then: impl FnOnce(&mut Self),
        otherwise: impl FnOnce(&mut Self),
    ) {
        let branch = self.signal(name.into(), on, signal, false);
        then(self);
        let end_of_then = self.push(String::new(), Kind::Jump);
        self.set_otherwise(branch, self.statements.end());
        otherwise(self);
        self.statements[end_of_then].next = self.statements.end();
    }

    /// Adds a loop over `body`, which must contain a [`while_signal`](Self::while_signal).
    pub fn repeat(&mut self, name: impl Into<String>, body: impl FnOnce(&mut Self)) {
        let start = self.statements.end();
        self.loops.push((start, Vec::new()));
        body(self);
        let (_, exits) = self.loops.pop().unwrap_or_default();
        if exits.is_empty() {
            self.fail(ProgramError::LoopWithoutSignal { name: name.into() });
        }
        let back = self.push(String::new(), Kind::Jump);
        self.statements[back].next = start;
        for exit in exits {
            self.set_otherwise(exit, self.statements.end());
        }
    }

    /// Exits the innermost loop here unless the signal on the single partition of `on` is true. At the start of the
    /// body it makes a `while` loop, at the end a `do … while` loop.
    pub fn while_signal<T: Data>(
        &mut self,
        name: impl Into<String>,
        on: Dataset<T>,
        signal: impl Fn(&T) -> bool + Send + Sync + 'static,
    ) {
        let name = name.into();
        if self.loops.is_empty() {
            self.fail(ProgramError::SignalOutsideLoop { stage: name });
            return;
        }
        let iteration = self.loops.len() == 1;
        let exit = self.signal(name, on, signal, iteration);
        if let Some((_, exits)) = self.loops.last_mut() {
            exits.push(exit);
        }
    }

    /// Adds a loop that runs `body` exactly `times` times, with its own counter dataset.
    pub fn times(&mut self, name: impl Into<String>, times: u64, body: impl FnOnce(&mut Self)) {
        let name = name.into();
        let counter = self.dataset(format!("{name}: counter"), 1, |_| Ok(0u64));
        self.transform(format!("{name}: from 0"), (), counter, |(), counter| {
            *counter = 0;
            Ok(())
        });
        self.repeat(name.clone(), |inner| {
            inner.while_signal(format!("{name}: again"), counter, move |counter| *counter < times);
            inner.transform(format!("{name}: count"), (), counter, |(), counter| {
                *counter += 1;
                Ok(())
            });
            body(inner);
        });
    }

    /// Observes a number, such as a loss or residual, of the single partition of `on` at this point of the program.
    /// The worker's periodic report carries only the latest value, to [`Progress`](crate::Progress), so observing
    /// costs no extra message.
    pub fn observe<T: Data>(
        &mut self,
        name: impl Into<String>,
        on: Dataset<T>,
        value: impl Fn(&T) -> f64 + Send + Sync + 'static,
    ) {
        let name = name.into();
        self.require_single(&name, on);
        // SAFETY: as in `transform`.
        let value = move |partitions| unsafe { value(Reads::views(on, partitions)) };
        self.stage(name, &Reads::datasets(&on), &[], Kind::Observe(Box::new(value)));
    }

    /// Adds a signal and returns its index, for [`Self::set_otherwise`].
    fn signal<T: Data>(
        &mut self,
        name: String,
        on: Dataset<T>,
        signal: impl Fn(&T) -> bool + Send + Sync + 'static,
        iteration: bool,
    ) -> StatementIx {
        self.require_single(&name, on);
        // SAFETY: as in `transform`.
        let kernel = Box::new(move |partitions| unsafe { signal(Reads::views(on, partitions)) });
        let at = self.statements.end();
        let first = self.loops.last().is_some_and(|(start, _)| *start == at);
        self.stage(
            name,
            &Reads::datasets(&on),
            &[],
            Kind::Signal { kernel, otherwise: at, iteration, first },
        );
        at
    }

    fn set_otherwise(&mut self, signal: StatementIx, to: StatementIx) {
        if let Some(Statement { kind: Kind::Signal { otherwise, .. }, .. }) = self.statements.get_mut(signal)
        {
            *otherwise = to;
        }
    }

    pub(crate) fn require_single<T>(&mut self, stage: &str, on: Dataset<T>) {
        if on.partitions != 1 {
            let dataset = self.datasets.get(on.index).map_or(String::new(), |d| d.name.clone());
            self.fail(ProgramError::NotSingle { stage: stage.into(), dataset, partitions: on.partitions });
        }
    }

    /// Checks the datasets that a statement reads and writes, adds the statement, and returns its index.
    pub(crate) fn stage(
        &mut self,
        name: String,
        reads: &[(DatasetIx, u32)],
        writes: &[(DatasetIx, u32)],
        kind: Kind,
    ) -> StatementIx {
        let mut sets = [DatasetSet::default(); 2];
        let mut first: Option<DatasetIx> = None;
        for (list, &(index, program)) in reads.iter().map(|d| (0, d)).chain(writes.iter().map(|d| (1, d))) {
            let Some(spec) = self.datasets.get(index).filter(|_| program == self.id) else {
                self.fail(ProgramError::ForeignDataset { stage: name });
                return self.push(String::new(), Kind::Jump);
            };
            if sets[1].contains(index) || (list == 1 && sets[0].contains(index)) {
                let dataset = spec.name.clone();
                self.fail(ProgramError::NamedTwice { stage: name.clone(), dataset });
            } else if let Some(other) = first.map(|first| &self.datasets[first])
                && other.partitions != spec.partitions
            {
                let (left, right) = (other.name.clone(), spec.name.clone());
                let partitions = [other.partitions, spec.partitions];
                self.fail(ProgramError::Partitionings { stage: name.clone(), left, right, partitions });
            }
            sets[list] |= DatasetSet::of(index);
            first = first.or(Some(index));
        }
        let Some(first) = first else {
            self.fail(ProgramError::NoDatasets { stage: name });
            return self.push(String::new(), Kind::Jump);
        };
        for &(index, _) in writes {
            self.datasets[index].constant = false;
        }
        let at = self.push(name, kind);
        let statement = &mut self.statements[at];
        (statement.reads, statement.writes, statement.dataset) = (sets[0], sets[1], first);
        at
    }

    fn push(&mut self, name: String, kind: Kind) -> StatementIx {
        let (group, next) = (GroupIx::default(), self.statements.end().after());
        let (none, dataset) = (DatasetSet::default(), DatasetIx::default());
        self.statements.push(Statement { name, kind, reads: none, writes: none, dataset, group, next })
    }

    pub(crate) fn fail(&mut self, error: ProgramError) {
        self.error.get_or_insert(error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoded_partition_is_checked() {
        let mut program = Program::new("checked");
        let check = |index, numbers: &Vec<u64>| match numbers.len() {
            3 => Ok(()),
            length => Err(DataError::new(format!("partition {index} has {length} numbers"))),
        };
        program.checked_dataset("numbers", 2, |_| Ok(vec![0u64; 3]), check);
        let decode = |numbers: &[u64]| {
            let mut bytes = Vec::new();
            numbers.to_vec().encode(&mut bytes);
            (program.datasets[DatasetIx(0)].decode)(1, &bytes).map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(decode(&[1, 2, 3]), Ok(()));
        assert_eq!(decode(&[1, 2]), Err("partition 1 has 2 numbers".to_string()));
    }
}
