//! The numbers of partitions into which stages divide their outputs by hash.
//!
//! Outputs that a stage reads together have the same number, since it may join them partition by partition. The number is
//! chosen when the first of the stages that write them starts: the sizes of what that stage reads are known then, while
//! much more is often planned.

use std::sync::OnceLock;

use datafusion::physical_plan::joins::HashJoinExec;

use crate::plan::cut::{Output, StagePlan, key};

/// The numbers of partitions of a plan.
pub(crate) struct Partitions {
    /// By stage, the first stage whose output has the same number.
    first: Vec<usize>,
    /// By first stage.
    counts: Vec<OnceLock<usize>>,
}

impl Partitions {
    pub(crate) fn of(plan: &StagePlan) -> Self {
        let mut first: Vec<usize> = (0..plan.stage_count()).collect();
        let mut join = |stages: &[usize]| {
            let joined: Vec<usize> = stages.iter().map(|stage| first[*stage]).collect();
            if let Some(least) = joined.iter().min() {
                first.iter_mut().filter(|stage| joined.contains(*stage)).for_each(|stage| *stage = *least);
            }
        };
        for stage in 0..plan.stages.len() {
            join(&together(plan, stage));
        }
        for (build, probe) in plan.divided_probes() {
            join(&[build, probe]);
        }
        let counts = first.iter().map(|_| OnceLock::new()).collect();
        Self { first, counts }
    }

    /// Returns the number of partitions of a stage's output. If it has not been chosen, `choose` does, from the stages with
    /// the same number.
    pub(crate) fn count(&self, stage: usize, choose: impl FnOnce(&[usize]) -> usize) -> usize {
        let first = self.first[stage];
        let same = || (0..self.first.len()).filter(|other| self.first[*other] == first);
        *self.counts[first].get_or_init(|| choose(&same().collect::<Vec<_>>()))
    }
}

/// Returns the stages whose partitions correspond in a stage: those that it reads, except tables of joins, and itself if it
/// keeps them.
fn together(plan: &StagePlan, index: usize) -> Vec<usize> {
    let mut stages = Vec::new();
    let mut tables = Vec::new();
    plan.visit(index, &mut |node| {
        if let Some(join) = node.downcast_ref::<HashJoinExec>()
            && plan.divided(node, index).is_some()
        {
            tables.push(key(join.left()));
        }
        let Some(stage) = plan.cut(node, index) else { return true };
        let has_partitions = matches!(plan.stage(stage).output, Output::Divide(_) | Output::Keep);
        if has_partitions && !tables.contains(&key(node)) {
            stages.push(stage);
        }
        false
    });
    if matches!(plan.stage(index).output, Output::Keep) {
        stages.push(index);
    }
    stages
}
