//! Which operators of which SQL plan a stage ran.
//!
//! Spark does not say. But each operator of a plan has metrics, each metric an
//! accumulator, and a completed stage lists the accumulators that its tasks
//! added to. So the operators of a stage are those whose accumulators it lists.
//! Adaptive execution logs a new plan whenever it changed its mind; an operator
//! keeps its accumulators then, and the newest plan counts.

use std::collections::HashMap;

use crate::scan::{Bad, Raw, Scanner};
use crate::text;

/// Deepest plan that is read; each level takes stack. Deeper ones lose their ends.
const MAX_DEPTH: u32 = 300;
/// Accumulators that are kept of executions that have ended, since a stage may
/// complete after its execution. Beyond it the oldest executions go.
const MAX_ENDED: usize = 200_000;
const MAX_NAME_CHARS: usize = 60;
/// Operators named of one stage.
const MAX_NAMED: usize = 8;

/// The operators of all executions that may still have a stage.
#[derive(Debug, Default)]
pub struct Plans {
    /// By accumulator: whose execution's, its place in the plan, its name.
    operators: HashMap<u64, (u64, u32, u32)>,
    names: Vec<String>,
    numbers: HashMap<String, u32>,
    accumulators: HashMap<u64, Vec<u64>>,
    /// Executions that ended, oldest first, and how many accumulators they have.
    ended: std::collections::VecDeque<u64>,
    held: usize,
}

/// What a plan says besides its operators.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PlanFacts {
    /// It scans Parquet files of the local file system.
    pub local_parquet: bool,
    /// It is deeper than what is read.
    pub too_deep: bool,
}

/// A walk over one plan.
struct Walk<'p> {
    plans: &'p mut Plans,
    execution: u64,
    next_place: u32,
    facts: PlanFacts,
}

impl Plans {
    /// Reads a `sparkPlanInfo` of an execution.
    ///
    /// # Errors
    /// When it is no such object.
    pub fn read(&mut self, execution: u64, plan: Raw<'_>) -> Result<PlanFacts, Bad> {
        let mut walk = Walk { plans: self, execution, next_place: 0, facts: PlanFacts::default() };
        walk.node(&mut Scanner::new(plan.0), 0)?;
        Ok(walk.facts)
    }

    /// An execution ended: its operators are forgotten once newer ones need the room.
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

    /// The operators that have these accumulators, outermost first.
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
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }
}

impl Walk<'_> {
    /// Places count from the root down, whatever the order of the keys: a node
    /// takes its place when it begins.
    fn node(&mut self, scanner: &mut Scanner<'_>, depth: u32) -> Result<(), Bad> {
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

/// Nodes that do nothing themselves.
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
    fn operators_stand_outermost_first_without_wrappers() {
        let mut plans = Plans::default();
        let facts = plans.read(7, Raw(PLAN)).expect("a plan");
        assert!(facts.local_parquet && !facts.too_deep);
        let of = |ids: &[u64]| plans.operators_of(ids.iter().copied());
        assert_eq!(of(&[1, 2, 3, 4, 5]).as_deref(), Some("Sort, HashAggregate, Scan parquet db.t"));
        assert_eq!(of(&[4, 99]), None);
    }

    #[test]
    fn executions_long_ended_are_forgotten() {
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
    fn a_plan_deeper_than_the_stack_is_said() {
        let deep = r#"{"nodeName":"Union","children":["#.repeat(100_000) + &"]}".repeat(100_000);
        let facts = Plans::default().read(0, Raw(deep.as_bytes())).expect("a plan");
        assert!(facts.too_deep);
    }
}
