//! Sequential execution of a program: statement by statement, partition by partition.
//!
//! Any other execution of a plan must give the same result, bit for bit. Tests compare against this one; it
//! also helps to find an error in a kernel.

use std::sync::Arc;

use crate::dataflow::data::Chunk;
use crate::dataflow::index::{GroupIx, StatementIx, Table};
use crate::dataflow::load::load_bundle;
use crate::dataflow::outcome::Outcome;
use crate::dataflow::plan::{Kind, Plan};
use crate::dataflow::routes::{Gathered, Sent};
use crate::dataflow::views::{Partitions, States};
use crate::error::{Cause, JobError};

/// Runs a plan on this thread. `signals` limits the number of signals passed.
///
/// # Errors
/// If a kernel or loader fails, or the limit is exceeded.
pub fn run_sequentially(plan: Arc<Plan>, signals: u64) -> Result<Outcome, JobError> {
    let mut job = Job::load(&plan)?;
    let (mut at, mut passed) = (StatementIx::default(), 0);
    loop {
        let statement = &plan.statements[at];
        at = statement.next;
        match &statement.kind {
            Kind::End => break,
            Kind::Signal { kernel, otherwise, iteration, first } => {
                passed += 1;
                if passed > signals {
                    let waited_for = format!("the program to end within {signals} signals");
                    return Err(JobError::TimedOut { waited_for, limit: std::time::Duration::ZERO });
                }
                let value = kernel(job.partitions(statement.group, 0));
                job.outcome.iterations += u64::from(*iteration && (value || !first));
                if !value {
                    at = *otherwise;
                }
            }
            _ => job.stage(&statement.name, statement.group, &statement.kind)?,
        }
    }
    Ok(job.finish())
}

struct Job<'a> {
    plan: &'a Plan,
    /// By group and index.
    states: Table<GroupIx, Vec<States>>,
    /// Chunks for the next gather, by destination and place.
    chunks: Vec<Vec<Option<Chunk>>>,
    outcome: Outcome,
}

impl<'a> Job<'a> {
    fn load(plan: &'a Plan) -> Result<Self, JobError> {
        let mut states = Table::new();
        for group in plan.groups.iter() {
            let mut bundles = Vec::new();
            for index in 0..group.partitions {
                bundles.push(load_bundle(plan, group.datasets, index)?);
            }
            states.push(bundles);
        }
        Ok(Self { plan, states, chunks: Vec::new(), outcome: Outcome::new(plan) })
    }

    fn partitions(&mut self, group: GroupIx, index: u32) -> Partitions {
        Partitions::of(&mut self.states[group][index as usize])
    }

    fn stage(&mut self, name: &str, group: GroupIx, kind: &Kind) -> Result<(), JobError> {
        if let Kind::Scatter { routes, .. } = kind {
            self.chunks = (0..routes.destinations).map(|to| vec![None; routes.expected(to)]).collect();
        }
        for index in 0..self.plan.groups[group].partitions {
            let partitions = self.partitions(group, index);
            let done = match kind {
                Kind::Transform(kernel) => kernel(partitions),
                Kind::Observe(kernel) => {
                    self.outcome.observed.insert(name.into(), kernel(partitions));
                    Ok(())
                }
                Kind::Scatter { kernel, routes } => {
                    let mut sent = Sent::default();
                    let done = if routes.width(index) > 0 {
                        kernel(partitions, routes, index, &mut sent)
                    } else {
                        Ok(())
                    };
                    for place in 0..routes.width(index) {
                        let to = routes.destination(index, place);
                        if let Some(slot) = routes.place(to, index) {
                            self.chunks[to as usize][slot] = sent.chunk(place);
                        }
                    }
                    done
                }
                Kind::Gather { kernel, routes, .. } => {
                    let chunks = &self.chunks[index as usize];
                    let gathered = Gathered { routes, destination: index, chunks };
                    if chunks.is_empty() { Ok(()) } else { kernel(partitions, gathered) }
                }
                Kind::Signal { .. } | Kind::Jump | Kind::End => Ok(()),
            };
            self.outcome.tasks += 1;
            let cause = |cause: Cause| JobError::Kernel {
                stage: name.into(),
                partition: index,
                cause: cause.to_string(),
            };
            done.map_err(cause)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Outcome {
        for (dataset, spec) in self.plan.datasets.entries().filter(|(_, spec)| spec.output) {
            for (index, bundle) in (0..).zip(&mut self.states[spec.group]) {
                if let Some(state) = bundle[dataset].take() {
                    self.outcome.put(dataset, index, Chunk::Typed(Arc::from(state)));
                }
            }
        }
        self.outcome
    }
}
