//! The compiled program: a flat table of statements that every worker holds (paper §4.1).
//!
//! Control flow is part of the statements: each names its successor, and a signal also names its successor
//! if false. Between two signals the flow is a straight line, and every iteration of a loop passes a signal.
//! The number of signals passed (the *epoch*) and a statement therefore identify one run of one stage, on
//! every worker; see [`Instance`].
//!
//! Datasets that a stage uses together have their partitions of one index on one worker. Such sets of
//! datasets are *groups*, and a group's partitions of one index are a *bundle*, the unit of placement and
//! migration. These are the placement constraints of §3.3, which hold by construction.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::dataflow::data::{AnyData, DataError};
use crate::dataflow::index::{BundleIx, DatasetIx, DatasetSet, GroupIx, Ix, StatementIx, Table};
use crate::dataflow::routes::{Decode, GatherKernel, Routes, ScatterKernel};
use crate::dataflow::views::Partitions;
use crate::error::{Cause, KernelResult};

pub(crate) type Kernel<T> = Box<dyn Fn(Partitions) -> T + Send + Sync>;

/// One run of one stage: the statement, and the number of signals passed before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Instance {
    pub epoch: u64,
    pub statement: StatementIx,
}

/// The content of a partition, or the error in loading it.
type LoadResult<E> = Result<Box<dyn AnyData>, E>;

/// Decodes and checks the partition with an index.
type DecodePartition = Box<dyn Fn(u32, &[u8]) -> LoadResult<DataError> + Send + Sync>;

/// A type-erased dataset.
pub(crate) struct DatasetSpec {
    pub name: String,
    pub partitions: u32,
    pub load: Box<dyn Fn(u32) -> LoadResult<Cause> + Send + Sync>,
    pub decode: DecodePartition,
    /// True if no stage writes the dataset, so that its loader can recreate it at any time.
    pub constant: bool,
    pub output: bool,
    pub group: GroupIx,
}

/// A statement of the table.
pub(crate) struct Statement {
    pub name: String,
    pub kind: Kind,
    pub reads: DatasetSet,
    pub writes: DatasetSet,
    /// One of these datasets, which determines the group.
    pub dataset: DatasetIx,
    pub group: GroupIx,
    /// The next statement, unless a false signal chooses another.
    pub next: StatementIx,
}

impl Statement {
    /// Returns the datasets that the statement reads or writes.
    pub fn datasets(&self) -> DatasetSet {
        self.reads | self.writes
    }
}

pub(crate) enum Kind {
    Transform(Kernel<KernelResult>),
    Scatter {
        kernel: ScatterKernel,
        routes: Arc<Routes>,
    },
    /// Follows its scatter in the table.
    Gather {
        kernel: GatherKernel,
        routes: Arc<Routes>,
        decode: Decode,
    },
    /// `iteration` marks a signal of an outermost loop: passing it counts as an iteration. If it is `first` in the
    /// body, leaving the loop does not count.
    Signal {
        kernel: Kernel<bool>,
        otherwise: StatementIx,
        iteration: bool,
        first: bool,
    },
    Observe(Kernel<f64>),
    /// Used only while a program is built.
    Jump,
    End,
}

/// A set of datasets that are used together.
pub(crate) struct Group {
    pub partitions: u32,
    pub first: BundleIx,
    pub datasets: DatasetSet,
    /// By statement: the first statement from there on that concerns the group (its own, a signal, or the end).
    pub next_relevant: Table<StatementIx, StatementIx>,
}

impl Group {
    /// Returns the bundle at an index.
    pub fn bundle(&self, index: u32) -> BundleIx {
        BundleIx(self.first.0 + index)
    }
}

/// A checked program, which can be run any number of times.
pub struct Plan {
    pub(crate) program: u32,
    pub(crate) name: String,
    pub(crate) datasets: Table<DatasetIx, DatasetSpec>,
    pub(crate) statements: Table<StatementIx, Statement>,
    pub(crate) groups: Table<GroupIx, Group>,
    pub(crate) bundle_count: usize,
    pub(crate) fingerprint: u64,
}

impl Plan {
    /// Returns the program's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a hash that is equal for equal programs; peers compare it when they connect.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Returns all bundles.
    pub(crate) fn bundles(&self) -> impl Iterator<Item = BundleIx> + use<> {
        BundleIx::first(self.bundle_count)
    }

    /// Returns a bundle's group and its index within the group.
    pub(crate) fn locate(&self, bundle: BundleIx) -> (GroupIx, u32) {
        let group = GroupIx::of(self.groups.partition_point(|group| group.first <= bundle) - 1);
        (group, bundle.0 - self.groups[group].first.0)
    }

    /// Returns the group of a statement.
    pub(crate) fn group_of(&self, statement: StatementIx) -> &Group {
        &self.groups[self.statements[statement].group]
    }

    /// Returns the datasets of a group that snapshots contain: all that some stage writes.
    pub(crate) fn saved_datasets(&self, group: GroupIx) -> impl Iterator<Item = DatasetIx> {
        let here = self.groups[group].datasets;
        let datasets = self.datasets.entries();
        datasets.filter(move |&(at, spec)| here.contains(at) && !spec.constant).map(|(at, _)| at)
    }

    /// Returns the bundles that compute signals.
    pub(crate) fn signal_bundles(&self) -> impl Iterator<Item = BundleIx> {
        let signals = self.statements.iter().filter(|s| matches!(s.kind, Kind::Signal { .. }));
        signals.map(|s| self.groups[s.group].first)
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} datasets, {} bundles", self.name, self.datasets.len(), self.bundle_count)?;
        for (at, s) in self.statements.entries() {
            let otherwise = match s.kind {
                Kind::Signal { otherwise, .. } => format!(" or {otherwise}"),
                _ => String::new(),
            };
            writeln!(f, "{at:4} {:?} group {} then {}{otherwise}", s.name, s.group, s.next)?;
        }
        Ok(())
    }
}
