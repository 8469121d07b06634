//! Mapping from stages to the operators of their SQL plan.
//!
//! Spark does not log this mapping. However, each operator has metrics, each metric has an accumulator, and
//! a completed stage lists the accumulators that its tasks updated. The operators of a stage are thus those
//! whose accumulators it lists. Adaptive execution logs a new plan after each change; operators keep their
//! accumulators, and the newest plan applies.

use std::collections::HashMap;

use crate::event::plan::{Node, is_wrapper};

/// Maximum number of accumulators kept for ended executions, since a stage may complete after its execution.
/// Beyond it, the oldest executions are removed.
const MAX_ENDED: usize = 200_000;
/// Maximum number of operators in a stage's name.
const MAX_NAMED: usize = 8;

/// The operators of all executions that may still complete stages.
#[derive(Debug, Default)]
pub struct Plans {
    /// For each accumulator, the execution, the operator's position in the plan, and the index of its name.
    operators: HashMap<u64, (u64, u32, u32)>,
    names: Vec<String>,
    /// Total length of `names`.
    name_bytes: usize,
    numbers: HashMap<String, u32>,
    accumulators: HashMap<u64, Vec<u64>>,
    /// Ended executions, oldest first.
    ended: std::collections::VecDeque<u64>,
    /// Number of accumulators of ended executions.
    held: usize,
}

impl Plans {
    /// Adds the operators of an execution's plan.
    pub fn add(&mut self, execution: u64, root: &Node<'_>) {
        self.node(execution, root, &mut 0);
    }

    /// Adds a node, after its children: if several have the same accumulator, the outermost applies. Positions run from
    /// the root down.
    fn node(&mut self, execution: u64, node: &Node<'_>, next_place: &mut u32) {
        let place = *next_place;
        *next_place += 1;
        node.children.iter().for_each(|child| self.node(execution, child, next_place));
        if node.metrics.is_empty() {
            return;
        }
        let name = self.number_of(&node.name);
        for metric in &node.metrics {
            if self.operators.insert(metric.accumulator, (execution, place, name)).is_none() {
                self.accumulators.entry(execution).or_default().push(metric.accumulator);
            }
        }
    }

    /// Returns the execution whose plan has this accumulator.
    pub fn execution_of(&self, accumulator: u64) -> Option<u64> {
        self.operators.get(&accumulator).map(|operator| operator.0)
    }

    /// Returns the estimated memory of the operators: several map entries for each accumulator.
    pub fn memory_bytes(&self) -> usize {
        100 * self.operators.len() + self.name_bytes
    }

    /// Marks an execution as ended. Its operators are removed once newer ones need the space.
    pub fn ended(&mut self, execution: u64) {
        if let Some(accumulators) = self.accumulators.get(&execution) {
            self.held += accumulators.len();
            self.ended.push_back(execution);
        }
        while self.held > MAX_ENDED
            && let Some(oldest) = self.ended.pop_front()
        {
            let accumulators = self.accumulators.remove(&oldest).unwrap_or_default();
            self.held = self.held.saturating_sub(accumulators.len());
            for accumulator in accumulators {
                if self.operators.get(&accumulator).is_some_and(|o| o.0 == oldest) {
                    self.operators.remove(&accumulator);
                }
            }
        }
    }

    /// Returns the names of the operators with these accumulators, outermost first.
    pub fn operators_of(&self, accumulators: impl Iterator<Item = u64>) -> Option<String> {
        let mut found: Vec<_> = accumulators.filter_map(|a| self.operators.get(&a)).copied().collect();
        found.sort_unstable();
        found.dedup();
        let names = found.iter().map(|o| self.names[o.2 as usize].as_str());
        let mut names: Vec<&str> = names.filter(|name| !is_wrapper(name)).collect();
        names.dedup();
        let more = names.len() > MAX_NAMED;
        names.truncate(MAX_NAMED);
        if more {
            names.push("…");
        }
        (!names.is_empty()).then(|| names.join(", "))
    }

    fn number_of(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.name_bytes += 2 * name.len() + 100;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::plan::Plan;
    use crate::json::Raw;

    const PLAN: &[u8] = br#"{"nodeName":"AdaptiveSparkPlan","simpleString":"","children":[
        {"metrics":[{"name":"sort time","accumulatorId":3,"metricType":"timing"}],"children":[
          {"nodeName":"WholeStageCodegen (2)","children":[
            {"nodeName":"HashAggregate","children":[
              {"nodeName":"Scan parquet db.t ","simpleString":"FileScan [file:/data]","children":[],
               "metrics":[{"name":"scan time","accumulatorId":1}]}],
             "metrics":[{"name":"time","accumulatorId":2},{"name":"rows","accumulatorId":5}]}],
           "metrics":[{"name":"duration","accumulatorId":4}]}],
         "nodeName":"Sort"}]}"#;

    #[test]
    fn operators_are_listed_outermost_first_without_wrappers() {
        let mut plans = Plans::default();
        let plan = Plan::read(Raw(PLAN)).expect("a plan");
        assert!(plan.local_parquet && !plan.too_deep);
        plans.add(7, &plan.root);
        let of = |ids: &[u64]| plans.operators_of(ids.iter().copied());
        assert_eq!(of(&[1, 2, 3, 4, 5]).as_deref(), Some("Sort, HashAggregate, Scan parquet db.t"));
        assert_eq!(of(&[4, 99]), None);
    }

    #[test]
    fn oldest_ended_executions_are_removed() {
        let mut plans = Plans::default();
        for execution in 0..MAX_ENDED as u64 {
            let id = execution * 2;
            let plan = format!(
                r#"{{"nodeName":"Sort","metrics":[{{"accumulatorId":{id}}},{{"accumulatorId":{}}}]}}"#,
                id + 1
            );
            plans.add(execution, &Plan::read(Raw(plan.as_bytes())).expect("a plan").root);
            plans.ended(execution);
        }
        assert!(plans.operators.len() <= MAX_ENDED);
        assert_eq!(plans.operators_of([0].into_iter()), None);
        let last = 2 * MAX_ENDED as u64 - 1;
        assert_eq!(plans.operators_of([last].into_iter()).as_deref(), Some("Sort"));
    }
}
