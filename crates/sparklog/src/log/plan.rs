//! Mapping from stages to the operators of their SQL plan.
//!
//! Spark does not log this mapping. However, each operator has metrics, each metric has an accumulator, and
//! a completed stage lists the accumulators that its tasks updated. The operators of a stage are thus those
//! whose accumulators it lists. Adaptive execution logs a new plan after each change; operators keep their
//! accumulators, and the newest plan applies.

use std::collections::HashMap;

use crate::json::{Malformed, Raw, Scanner};
use crate::text;

/// Maximum depth of a plan, since each level uses stack. Deeper operators are ignored.
const MAX_DEPTH: u32 = 300;
/// Maximum number of accumulators kept for ended executions, since a stage may complete after its execution.
/// Beyond it, the oldest executions are removed.
const MAX_ENDED: usize = 200_000;
const MAX_NAME_CHARS: usize = 60;
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

/// Properties of a plan.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PlanFacts {
    /// True if the plan scans Parquet files on the local file system.
    pub local_parquet: bool,
    /// True if the plan exceeds the maximum depth.
    pub too_deep: bool,
}

/// A traversal of one plan.
struct Walk<'p> {
    plans: &'p mut Plans,
    execution: u64,
    next_place: u32,
    facts: PlanFacts,
}

impl Plans {
    /// Reads the `sparkPlanInfo` of an execution.
    ///
    /// # Errors
    /// Fails if the JSON is malformed.
    pub fn read(&mut self, execution: u64, plan: Raw<'_>) -> Result<PlanFacts, Malformed> {
        let mut walk = Walk { plans: self, execution, next_place: 0, facts: PlanFacts::default() };
        walk.node(&mut Scanner::new(plan.0), 0)?;
        Ok(walk.facts)
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
        let mut names: Vec<&str> = found.iter().map(|o| self.names[o.2 as usize].as_str()).collect();
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

impl Walk<'_> {
    /// Reads a node. Positions are assigned on entry, so that they run from the root down whatever the
    /// order of the keys.
    fn node(&mut self, scanner: &mut Scanner<'_>, depth: u32) -> Result<(), Malformed> {
        if depth > MAX_DEPTH {
            self.facts.too_deep = true;
            return scanner.skip();
        }
        let place = self.next_place;
        self.next_place += 1;
        let mut name = None;
        let mut simple = &b""[..];
        let mut metrics = Vec::new();
        scanner.object_or_skip(|key, value| {
            match key {
                b"nodeName" => name = value.text()?,
                b"simpleString" => simple = value.raw_text()?.unwrap_or_default(),
                b"children" => value.array_or_skip(|child| self.node(child, depth + 1))?,
                b"metrics" => value.array_or_skip(|metric| {
                    metric.object_or_skip(|key, value| {
                        match key {
                            b"accumulatorId" => metrics.extend(value.number()?),
                            _ => value.skip()?,
                        }
                        Ok(())
                    })
                })?,
                _ => value.skip()?,
            }
            Ok(())
        })?;
        let name = name.unwrap_or_default();
        let name = text::clipped(name.trim(), MAX_NAME_CHARS);
        let local = memchr::memmem::find(simple, b"[file:").is_some();
        self.facts.local_parquet |= local && name.to_ascii_lowercase().contains("parquet");
        if is_wrapper(&name) {
            return Ok(());
        }
        let number = self.plans.number_of(&name);
        for accumulator in metrics {
            let operator = (self.execution, place, number);
            if self.plans.operators.insert(accumulator, operator).is_none() {
                self.plans.accumulators.entry(self.execution).or_default().push(accumulator);
            }
        }
        Ok(())
    }
}

/// Returns whether a node only wraps other operators.
fn is_wrapper(name: &str) -> bool {
    const WRAPPERS: [&str; 9] = [
        "WholeStageCodegen",
        "InputAdapter",
        "AdaptiveSparkPlan",
        "ShuffleQueryStage",
        "BroadcastQueryStage",
        "TableCacheQueryStage",
        "ResultQueryStage",
        "ReusedExchange",
        "Execute ",
    ];
    name.is_empty() || WRAPPERS.iter().any(|wrapper| name.starts_with(wrapper))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let facts = plans.read(7, Raw(PLAN)).expect("a plan");
        assert!(facts.local_parquet && !facts.too_deep);
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
            plans.read(execution, Raw(plan.as_bytes())).expect("a plan");
            plans.ended(execution);
        }
        assert!(plans.operators.len() <= MAX_ENDED);
        assert_eq!(plans.operators_of([0].into_iter()), None);
        let last = 2 * MAX_ENDED as u64 - 1;
        assert_eq!(plans.operators_of([last].into_iter()).as_deref(), Some("Sort"));
    }

    #[test]
    fn plan_beyond_the_maximum_depth_is_reported() {
        let deep = r#"{"nodeName":"Union","children":["#.repeat(100_000) + &"]}".repeat(100_000);
        let facts = Plans::default().read(0, Raw(deep.as_bytes())).expect("a plan");
        assert!(facts.too_deep);
    }
}
