//! Operators of SQL executions with their metrics, for the trace.
//!
//! A metric's value is the one of its accumulator when the last stage that updated it completed, so that the ends of
//! tasks need not be read for it. The newest plan of each execution is kept as text and read again at the end.

use std::collections::{HashMap, HashSet};

use pellucid_trace::{Metric, QueryIx, QueryOperator, StageIx};

use crate::event::plan::{Node, Plan};
use crate::json::{Raw, unescaped};

/// Maximum memory of plans and metrics. Beyond it, those of the shortest executions are dropped.
const MAX_BYTES: usize = 16 << 20;
/// An entry of a map.
const TOTAL_BYTES: usize = 64;

/// The plans and metrics of all executions.
#[derive(Debug, Default)]
pub struct QueryOperators {
    executions: HashMap<u64, Execution>,
    bytes: usize,
    /// Number of executions that were dropped.
    pub dropped: u64,
}

#[derive(Debug, Default)]
struct Execution {
    /// The newest plan, as JSON.
    plan: Vec<u8>,
    totals: HashMap<u64, Total>,
    started_ms: Option<u64>,
    duration_ms: Option<u64>,
}

/// The value of an accumulator.
#[derive(Debug, Default)]
struct Total {
    value: u64,
    /// The last stage that updated it; `None` if the driver did.
    stage: Option<StageIx>,
}

impl QueryOperators {
    /// Sets the newest plan of an execution. Only its start has a time.
    pub fn plan(&mut self, execution: u64, plan: &[u8], started_ms: Option<u64>) {
        if plan.is_empty() {
            return;
        }
        let kept = self.executions.entry(execution).or_default();
        self.bytes = self.bytes - kept.plan.len() + plan.len();
        kept.plan.clear();
        kept.plan.extend_from_slice(plan);
        kept.started_ms = kept.started_ms.or(started_ms);
        self.drop_short();
    }

    /// Sets the value of an accumulator, which never decreases.
    pub fn counted(&mut self, execution: u64, accumulator: u64, value: u64, stage: Option<StageIx>) {
        let Some(kept) = self.executions.get_mut(&execution) else { return };
        let total = kept.totals.entry(accumulator).or_insert_with(|| {
            self.bytes += TOTAL_BYTES;
            Total::default()
        });
        total.value = total.value.max(value);
        total.stage = total.stage.max(stage);
    }

    /// Marks an execution as ended.
    pub fn ended(&mut self, execution: u64, at_ms: Option<u64>) {
        if let Some(kept) = self.executions.get_mut(&execution) {
            let duration_ms = at_ms.zip(kept.started_ms).map(|(end, start)| end.saturating_sub(start));
            kept.duration_ms = Some(duration_ms.unwrap_or(0));
        }
    }

    pub fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// Drops the shortest executions once the maximum is exceeded. Those that have not ended are the longest.
    fn drop_short(&mut self) {
        if self.bytes <= MAX_BYTES {
            return;
        }
        let duration = |kept: &Execution| kept.duration_ms.unwrap_or(u64::MAX);
        let mut shortest: Vec<(u64, u64)> =
            self.executions.iter().map(|(id, kept)| (duration(kept), *id)).collect();
        shortest.sort_unstable();
        for (_, id) in shortest {
            if self.bytes <= MAX_BYTES / 2 {
                break;
            }
            let kept = self.executions.remove(&id).unwrap_or_default();
            self.bytes -= kept.plan.len() + TOTAL_BYTES * kept.totals.len();
            self.dropped += 1;
        }
    }

    /// Returns the operators of the executions that are queries of the trace.
    pub fn into_records(self, queries: &HashMap<u64, QueryIx>) -> Vec<QueryOperator> {
        let records = self.executions.into_iter().filter_map(|(id, kept)| {
            let query = *queries.get(&id)?;
            // The text was read before, when its event was.
            let plan = Plan::read(Raw(&kept.plan)).ok()?;
            Some(Records::of(query, &plan.root, &kept.totals))
        });
        records.flatten().collect()
    }
}

/// The place of a node in its plan.
#[derive(Debug, Clone, Copy)]
struct Place {
    fragment: u32,
    within: Option<u32>,
    /// True if nothing but wrappers is above the node in its fragment.
    is_root: bool,
}

/// The records of an execution's operators.
struct Records<'p> {
    query: QueryIx,
    totals: &'p HashMap<u64, Total>,
    operators: Vec<QueryOperator>,
    /// For the first accumulator of each node, the operators that return the node's rows. A node may be in the plan
    /// several times: reused exchanges contain the one that they reuse.
    seen: HashMap<u64, Vec<u32>>,
    /// Number of fragments, and those that are complete, inputs first.
    fragments: u32,
    complete: Vec<u32>,
    /// Number of a fragment's metrics by the stage that updated them.
    votes: HashMap<(u32, StageIx), u32>,
}

impl Records<'_> {
    fn of(query: QueryIx, root: &Node<'_>, totals: &HashMap<u64, Total>) -> Vec<QueryOperator> {
        let mut records = Records {
            query,
            totals,
            operators: Vec::new(),
            seen: HashMap::new(),
            fragments: 0,
            complete: Vec::new(),
            votes: HashMap::new(),
        };
        records.fragment(root);
        let mut number = vec![0; records.complete.len()];
        for (position, fragment) in records.complete.iter().enumerate() {
            number[*fragment as usize] = position as u32;
        }
        let mut stage: HashMap<u32, (u32, StageIx)> = HashMap::new();
        for ((fragment, of), votes) in records.votes {
            let most = stage.entry(fragment).or_default();
            *most = (*most).max((votes, of));
        }
        for operator in &mut records.operators {
            operator.stage = stage.get(&operator.fragment).map(|(_, stage)| *stage);
            operator.fragment = number[operator.fragment as usize];
        }
        records.operators
    }

    /// Adds a node and what is below it as a fragment of its own, and returns the operators that return its rows.
    fn fragment(&mut self, node: &Node<'_>) -> Vec<u32> {
        let fragment = self.fragments;
        self.fragments += 1;
        let roots = self.node(node, Place { fragment, within: None, is_root: true });
        self.complete.push(fragment);
        roots
    }

    fn node(&mut self, node: &Node<'_>, place: Place) -> Vec<u32> {
        let first = node.metrics.first().map(|metric| metric.accumulator);
        let known = first.and_then(|accumulator| self.seen.get(&accumulator));
        if let Some(known) = known.filter(|known| self.is_before(known, place.fragment)) {
            return known.clone();
        }
        if begins_fragment(node) && !place.is_root {
            return self.fragment(node);
        }
        let roots = if node.name.starts_with("WholeStageCodegen") {
            let within = Some(self.add(node, Vec::new(), place));
            self.below(node, Place { within, ..place })
        } else if is_transparent(node) {
            let within = place.within.filter(|_| first_word(&node.name) != "InputAdapter");
            self.below(node, Place { within, ..place })
        } else {
            let inputs = self.below(node, Place { is_root: false, ..place });
            vec![self.add(node, inputs, place)]
        };
        self.seen.extend(first.map(|accumulator| (accumulator, roots.clone())));
        roots
    }

    /// Returns whether operators can be inputs of a fragment: they are in it, or in one that is complete.
    fn is_before(&self, operators: &[u32], fragment: u32) -> bool {
        let mut of = operators.iter().map(|operator| self.operators[*operator as usize].fragment);
        of.all(|of| of == fragment || self.complete.contains(&of))
    }

    /// Adds the children of a node.
    fn below(&mut self, node: &Node<'_>, place: Place) -> Vec<u32> {
        let mut roots: Vec<u32> = Vec::new();
        for child in &node.children {
            // The plan of a cached table may have run in an earlier stage.
            let is_cached = node.name.starts_with("InMemoryTableScan");
            roots.extend(if is_cached { self.fragment(child) } else { self.node(child, place) });
        }
        let mut seen = HashSet::new();
        roots.retain(|root| seen.insert(*root));
        roots
    }

    fn add(&mut self, node: &Node<'_>, inputs: Vec<u32>, place: Place) -> u32 {
        let number = self.operators.len() as u32;
        let mut metrics = Vec::new();
        for metric in &node.metrics {
            let Some((total, (unit, scale))) = self.totals.get(&metric.accumulator).zip(metric.unit()) else {
                continue;
            };
            if let Some(stage) = total.stage.filter(|_| !metric.is_of_shuffle_read()) {
                *self.votes.entry((place.fragment, stage)).or_default() += 1;
            }
            let name = unescaped(metric.name).into_owned();
            metrics.push(Metric { name, unit, value: total.value.saturating_mul(scale) });
        }
        self.operators.push(QueryOperator {
            query: self.query,
            operator: number,
            name: node.name.clone(),
            detail: node.detail().filter(|_| !node.name.starts_with("WholeStageCodegen")),
            inputs,
            within: place.within,
            fragment: place.fragment,
            stage: None,
            metrics,
        });
        number
    }
}

/// Returns whether a node ends the stage below it.
fn begins_fragment(node: &Node<'_>) -> bool {
    let word = first_word(&node.name);
    // Spark does not log the plan below a reused exchange, which is then a leaf of its reader.
    let reads_reused = matches!(&node.children[..], [only] if is_reused_leaf(only));
    let ends = word.ends_with("Exchange") && !word.starts_with("Reused") || word.ends_with("QueryStage");
    ends && !reads_reused || word.starts_with("Subquery")
}

fn is_reused_leaf(node: &Node<'_>) -> bool {
    node.name.starts_with("Reused") && node.children.is_empty()
}

/// Returns whether a node stands for those below it.
fn is_transparent(node: &Node<'_>) -> bool {
    let word = first_word(&node.name);
    let reuses = word.starts_with("Reused") && !is_reused_leaf(node);
    word.is_empty()
        || reuses
        || matches!(word, "InputAdapter" | "AdaptiveSparkPlan")
        || word.ends_with("QueryStage")
}

fn first_word(name: &str) -> &str {
    name.split([' ', '(']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A join of a scan with a broadcast table that is used twice.
    const PLAN: &str = r#"{"nodeName":"AdaptiveSparkPlan","children":[
      {"nodeName":"WholeStageCodegen (2)","metrics":[{"name":"duration","accumulatorId":1,"metricType":"timing"}],"children":[
        {"nodeName":"BroadcastHashJoin","simpleString":"BroadcastHashJoin [a#1], [b#2]",
         "metrics":[{"name":"number of output rows","accumulatorId":2,"metricType":"sum"}],"children":[
          {"nodeName":"Project","simpleString":"Project [a#1]","metrics":[],"children":[
            {"nodeName":"InputAdapter","children":[
              {"nodeName":"ShuffleQueryStage","children":[
                {"nodeName":"Exchange","metrics":[
                  {"name":"shuffle bytes written","accumulatorId":3,"metricType":"size"},
                  {"name":"records read","accumulatorId":4,"metricType":"sum"}],"children":[
                  {"nodeName":"Scan parquet t","metrics":[
                    {"name":"scan time","accumulatorId":5,"metricType":"timing"}],"children":[]}]}]}]}]},
          {"nodeName":"InputAdapter","children":[{"nodeName":"BroadcastExchange","metrics":[
             {"name":"data size","accumulatorId":6,"metricType":"size"}],"children":[
               {"nodeName":"LocalTableScan","metrics":[],"children":[]}]}]},
          {"nodeName":"ReusedExchange","children":[{"nodeName":"BroadcastExchange","metrics":[
             {"name":"data size","accumulatorId":6,"metricType":"size"}],"children":[
               {"nodeName":"LocalTableScan","metrics":[],"children":[]}]}]}]}]}]}"#;

    fn recorded() -> Vec<QueryOperator> {
        let mut kept = QueryOperators::default();
        kept.plan(7, PLAN.as_bytes(), Some(5));
        for (accumulator, value, stage) in [
            (1, 12, Some(1)),
            (2, 40, Some(1)),
            (3, 900, Some(0)),
            (4, 60, Some(1)),
            (5, 3, Some(0)),
            (6, 8, None),
        ] {
            kept.counted(7, accumulator, value, stage);
        }
        kept.counted(8, 2, 99, None);
        kept.into_records(&[(7, 3)].into())
    }

    fn named<'o>(operators: &'o [QueryOperator], name: &str) -> &'o QueryOperator {
        let mut found = operators.iter().filter(|operator| operator.name == name);
        let one = found.next().expect(name);
        assert!(found.next().is_none(), "{name} is there twice");
        one
    }

    #[test]
    fn operators_have_their_inputs_stages_and_metrics() {
        let operators = recorded();
        let of = |name| named(&operators, name);
        assert_eq!(operators.len(), 7);
        let join = of("BroadcastHashJoin");
        // The reused exchange is the one that it reuses.
        assert_eq!(join.inputs, [of("Project").operator, of("BroadcastExchange").operator]);
        assert_eq!(join.detail.as_deref(), Some("[a#1], [b#2]"));
        let codegen = of("WholeStageCodegen (2)");
        assert_eq!((join.within, of("Project").within), (Some(codegen.operator), Some(codegen.operator)));
        assert_eq!(
            (codegen.metrics[0].value, codegen.metrics[0].unit),
            (12_000_000, pellucid_trace::Unit::Ns)
        );
        let exchange = of("Exchange");
        assert_eq!((exchange.within, exchange.fragment), (None, of("Scan parquet t").fragment));
        assert!(exchange.fragment < join.fragment && of("BroadcastExchange").fragment < join.fragment);
        // The reading of a shuffle is by the next stage, and the driver's metrics have none.
        assert_eq!((exchange.stage, of("Scan parquet t").stage), (Some(0), Some(0)));
        assert_eq!(
            (join.stage, of("Project").stage, of("BroadcastExchange").stage),
            (Some(1), Some(1), None)
        );
        assert_eq!(of("BroadcastExchange").metrics[0].value, 8);
        assert!(operators.iter().all(|operator| operator.query == 3));
    }

    #[test]
    fn inputs_are_in_fragments_before_even_if_accumulators_repeat() {
        // Damaged: the scan is below the exchange, and beside it.
        let scan = r#"{"nodeName":"Scan","metrics":[{"name":"rows","accumulatorId":1,"metricType":"sum"}],"children":[]}"#;
        let plan = format!(
            r#"{{"nodeName":"Union","metrics":[],"children":[{scan},{{"nodeName":"Exchange","children":[{{"nodeName":"Filter","children":[{scan}]}}]}}]}}"#
        );
        let mut kept = QueryOperators::default();
        kept.plan(0, plan.as_bytes(), None);
        let operators = kept.into_records(&[(0, 0)].into());
        let fragment_of = |number: &u32| operators[*number as usize].fragment;
        for operator in &operators {
            assert!(
                operator.inputs.iter().all(|input| fragment_of(input) <= operator.fragment),
                "{operator:?}"
            );
        }
        assert_eq!(operators.len(), 5);
    }

    #[test]
    fn shortest_executions_are_dropped_beyond_the_maximum() {
        let mut kept = QueryOperators::default();
        let plan = vec![b' '; MAX_BYTES / 8];
        for execution in 0..9 {
            kept.plan(execution, &plan, Some(0));
            kept.ended(execution, Some(100 - execution));
        }
        let mut left: Vec<u64> = kept.executions.into_keys().collect();
        left.sort_unstable();
        // When the ninth came, it had not ended; the last of the others were the shortest.
        assert_eq!((left, kept.dropped), (vec![0, 1, 2, 8], 5));
        assert!(kept.bytes <= MAX_BYTES / 2);
    }
}
