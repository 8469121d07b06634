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
use crate::dataflow::exchange::{Decode, GatherKernel, Routes, ScatterKernel};
use crate::dataflow::program::{KernelResult, Program};
use crate::dataflow::views::Partitions;
use crate::error::{Cause, ProgramError};

/// Index of a bundle, counted over all groups in order.
pub(crate) type BundleIx = u32;

pub(crate) type Kernel<T> = Box<dyn Fn(Partitions) -> T + Send + Sync>;

/// One run of one stage: the statement, and the number of signals passed before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Instance {
    pub epoch: u64,
    pub statement: u32,
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
    pub group: u32,
}

/// A statement of the table.
pub(crate) struct Statement {
    pub name: String,
    pub kind: Kind,
    /// Sets of datasets, with one bit per dataset.
    pub reads: u64,
    pub writes: u64,
    /// One of these datasets, which determines the group.
    pub dataset: u32,
    pub group: u32,
    /// The next statement, unless a false signal chooses another.
    pub next: u32,
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
        otherwise: u32,
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
    /// The datasets, with one bit each.
    pub datasets: u64,
    /// By statement: the first statement from there on that concerns the group (its own, a signal, or the end).
    pub next_relevant: Vec<u32>,
}

/// A checked program, which can be run any number of times.
pub struct Plan {
    pub(crate) program: u32,
    pub(crate) name: String,
    pub(crate) datasets: Vec<DatasetSpec>,
    pub(crate) statements: Vec<Statement>,
    pub(crate) groups: Vec<Group>,
    pub(crate) bundles: u32,
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

    /// Returns a bundle's group and its index within the group.
    pub(crate) fn locate(&self, bundle: BundleIx) -> (u32, u32) {
        let group = self.groups.partition_point(|group| group.first <= bundle) - 1;
        (group as u32, bundle - self.groups[group].first)
    }

    /// Returns the bundle at an index of a statement's group.
    pub(crate) fn bundle(&self, statement: u32, index: u32) -> BundleIx {
        self.groups[self.statements[statement as usize].group as usize].first + index
    }

    /// Returns the datasets of a group that snapshots contain: all that some stage writes.
    pub(crate) fn saved_datasets(&self, group: u32) -> impl Iterator<Item = u32> {
        let here = self.groups[group as usize].datasets;
        let datasets = (0..).zip(&self.datasets);
        datasets.filter(move |&(at, spec)| here >> at & 1 == 1 && !spec.constant).map(|(at, _)| at)
    }

    /// Returns the bundles that compute signals.
    pub(crate) fn signal_bundles(&self) -> impl Iterator<Item = BundleIx> {
        let signals = self.statements.iter().filter(|s| matches!(s.kind, Kind::Signal { .. }));
        signals.map(|s| self.groups[s.group as usize].first)
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} datasets, {} bundles", self.name, self.datasets.len(), self.bundles)?;
        for (at, s) in self.statements.iter().enumerate() {
            let otherwise = match s.kind {
                Kind::Signal { otherwise, .. } => format!(" or {otherwise}"),
                _ => String::new(),
            };
            writeln!(f, "{at:4} {:?} group {} then {}{otherwise}", s.name, s.group, s.next)?;
        }
        Ok(())
    }
}

/// Checks a program and compiles it.
pub(crate) fn build(mut program: Program) -> Result<Plan, ProgramError> {
    if let Some(error) = program.error.take() {
        return Err(error);
    }
    if program.statements.is_empty() {
        return Err(ProgramError::Empty);
    }
    let Program { id, name, made_from, mut datasets, mut statements, .. } = program;
    let end = statements.len() as u32;
    statements.push(Statement {
        name: "end".into(),
        kind: Kind::End,
        reads: 0,
        writes: 0,
        dataset: 0,
        group: u32::MAX,
        next: end,
    });
    resolve_jumps(&mut statements);
    let mut groups = group(&mut datasets, &mut statements);
    for (index, group) in groups.iter_mut().enumerate() {
        group.next_relevant = (0..=end).map(|at| next_relevant(&statements, index as u32, at)).collect();
    }
    let bundles = groups.iter().map(|group| group.partitions).sum();
    let mut plan = Plan { program: id, name, datasets, statements, groups, bundles, fingerprint: 0 };
    plan.fingerprint = fingerprint(&plan, &made_from);
    Ok(plan)
}

fn resolve_jumps(statements: &mut [Statement]) {
    let target = |statements: &[Statement], mut at: u32| {
        // Every chain of jumps ends, because a loop without a signal is rejected.
        while matches!(statements[at as usize].kind, Kind::Jump) {
            at = statements[at as usize].next;
        }
        at
    };
    for at in 0..statements.len() {
        let next = target(statements, statements[at].next);
        let other = match statements[at].kind {
            Kind::Signal { otherwise, .. } => target(statements, otherwise),
            _ => 0,
        };
        let statement = &mut statements[at];
        statement.next = next;
        if let Kind::Signal { otherwise, .. } = &mut statement.kind {
            *otherwise = other;
        }
    }
}

/// Groups the datasets that statements name together.
fn group(datasets: &mut [DatasetSpec], statements: &mut [Statement]) -> Vec<Group> {
    let mut sets: Vec<u64> = (0..datasets.len()).map(|index| 1 << index).collect();
    for used in statements.iter().map(|s| s.reads | s.writes).filter(|&used| used != 0) {
        let merged = sets.iter().filter(|&&set| set & used != 0).fold(0, |all, set| all | set);
        sets.retain(|set| set & used == 0);
        sets.push(merged);
    }
    sets.sort_unstable_by_key(|set| set.trailing_zeros());
    let mut groups: Vec<Group> = Vec::new();
    let mut first = 0;
    for set in sets {
        for (index, dataset) in datasets.iter_mut().enumerate() {
            if set >> index & 1 == 1 {
                dataset.group = groups.len() as u32;
            }
        }
        let partitions = datasets[set.trailing_zeros() as usize].partitions;
        groups.push(Group { partitions, first, datasets: set, next_relevant: Vec::new() });
        first += partitions;
    }
    for statement in statements.iter_mut().filter(|s| s.reads | s.writes != 0) {
        statement.group = datasets[statement.dataset as usize].group;
    }
    groups
}

fn next_relevant(statements: &[Statement], group: u32, mut at: u32) -> u32 {
    loop {
        let statement = &statements[at as usize];
        match statement.kind {
            Kind::Signal { .. } | Kind::End => return at,
            Kind::Jump => {}
            _ if statement.group == group => return at,
            _ => {}
        }
        at = statement.next;
    }
}

/// Computes the FNV-1a hash of everything that must be equal in all processes of a job.
fn fingerprint(plan: &Plan, made_from: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut add = |bytes: &[u8]| {
        for &byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    add(env!("CARGO_PKG_VERSION").as_bytes());
    add(plan.name.as_bytes());
    add(made_from.as_bytes());
    for dataset in &plan.datasets {
        add(dataset.name.as_bytes());
        add(&dataset.partitions.to_le_bytes());
        add(&[u8::from(dataset.output)]);
    }
    for s in &plan.statements {
        add(s.name.as_bytes());
        for number in [s.reads, s.writes, u64::from(s.next)] {
            add(&number.to_le_bytes());
        }
        if let Kind::Scatter { routes, .. } = &s.kind {
            (0..routes.sources).for_each(|source| add(&(routes.width(source) as u64).to_le_bytes()));
        }
    }
    hash
}
