//! Compilation of a program into a plan.
//!
//! Jumps are resolved, datasets that stages use together are grouped, and each group gets the statements that concern
//! it. The fingerprint covers everything that must be equal in all processes of a job.

use std::sync::Arc;

use crate::dataflow::index::{BundleIx, DatasetIx, DatasetSet, GroupIx, StatementIx, Table};
use crate::dataflow::plan::{DatasetSpec, Group, Kind, Plan, Statement};
use crate::dataflow::program::Program;
use crate::error::ProgramError;

impl Program {
    /// Checks the program and compiles it into the table that workers run.
    ///
    /// # Errors
    /// The first error in the program.
    pub fn build(self) -> Result<Arc<Plan>, ProgramError> {
        compile(self).map(Arc::new)
    }
}

/// Checks a program and compiles it.
fn compile(mut program: Program) -> Result<Plan, ProgramError> {
    if let Some(error) = program.error.take() {
        return Err(error);
    }
    if program.statements.is_empty() {
        return Err(ProgramError::Empty);
    }
    let Program { id, name, made_from, mut datasets, mut statements, .. } = program;
    let end = statements.end();
    statements.push(Statement {
        name: "end".into(),
        kind: Kind::End,
        reads: DatasetSet::default(),
        writes: DatasetSet::default(),
        dataset: DatasetIx::default(),
        group: GroupIx(u32::MAX),
        next: end,
    });
    resolve_jumps(&mut statements);
    let mut groups = group(&mut datasets, &mut statements);
    for index in groups.indexes() {
        let relevant = statements.indexes().map(|at| next_relevant(&statements, index, at));
        groups[index].next_relevant = relevant.collect();
    }
    let bundle_count = groups.iter().map(|group| group.partitions as usize).sum();
    let mut plan = Plan { program: id, name, datasets, statements, groups, bundle_count, fingerprint: 0 };
    plan.fingerprint = fingerprint(&plan, &made_from);
    Ok(plan)
}

fn resolve_jumps(statements: &mut Table<StatementIx, Statement>) {
    let target = |statements: &Table<StatementIx, Statement>, mut at: StatementIx| {
        // Every chain of jumps ends, because a loop without a signal is rejected.
        while matches!(statements[at].kind, Kind::Jump) {
            at = statements[at].next;
        }
        at
    };
    for at in statements.indexes() {
        let next = target(statements, statements[at].next);
        let other = match statements[at].kind {
            Kind::Signal { otherwise, .. } => target(statements, otherwise),
            _ => at,
        };
        let statement = &mut statements[at];
        statement.next = next;
        if let Kind::Signal { otherwise, .. } = &mut statement.kind {
            *otherwise = other;
        }
    }
}

/// Groups the datasets that statements name together.
fn group(
    datasets: &mut Table<DatasetIx, DatasetSpec>,
    statements: &mut Table<StatementIx, Statement>,
) -> Table<GroupIx, Group> {
    let mut sets: Vec<DatasetSet> = datasets.indexes().map(DatasetSet::of).collect();
    for used in statements.iter().map(Statement::datasets).filter(|used| !used.is_empty()) {
        let merged = sets.extract_if(.., |set| set.meets(used)).collect();
        sets.push(merged);
    }
    sets.sort_unstable_by_key(|set| set.first());
    let mut groups = Table::new();
    let mut first = BundleIx::default();
    for set in sets {
        for (_, dataset) in datasets.entries_mut().filter(|(index, _)| set.contains(*index)) {
            dataset.group = groups.end();
        }
        let partitions = datasets[set.first()].partitions;
        let group = Group { partitions, first, datasets: set, next_relevant: Table::new() };
        first = group.bundle(partitions);
        groups.push(group);
    }
    for statement in statements.iter_mut().filter(|s| !s.datasets().is_empty()) {
        statement.group = datasets[statement.dataset].group;
    }
    groups
}

fn next_relevant(
    statements: &Table<StatementIx, Statement>,
    group: GroupIx,
    mut at: StatementIx,
) -> StatementIx {
    loop {
        let statement = &statements[at];
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
    for dataset in plan.datasets.iter() {
        add(dataset.name.as_bytes());
        add(&dataset.partitions.to_le_bytes());
        add(&[u8::from(dataset.output)]);
    }
    for s in plan.statements.iter() {
        add(s.name.as_bytes());
        for number in [s.reads.0, s.writes.0, u64::from(s.next.0)] {
            add(&number.to_le_bytes());
        }
        if let Kind::Scatter { routes, .. } = &s.kind {
            (0..routes.sources).for_each(|source| add(&(routes.width(source) as u64).to_le_bytes()));
        }
    }
    hash
}
