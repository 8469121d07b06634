//! Plans of SQL executions: trees of operators, each with the accumulators of its metrics.

use crate::json::{Malformed, Raw, Scanner, fields, unescaped};
use crate::text;
use pellucid_trace::Unit;

/// Maximum depth of a plan, since each level uses stack. Deeper operators are ignored.
const MAX_DEPTH: u32 = 300;
const MAX_NAME_CHARS: usize = 60;
const MAX_DETAIL_CHARS: usize = 1000;

/// A plan.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan<'a> {
    /// Its JSON, to be read again at the end of the log.
    pub text: &'a [u8],
    pub root: Node<'a>,
    /// True if the plan scans Parquet files on the local file system.
    pub local_parquet: bool,
    /// True if the plan exceeds the maximum depth.
    pub too_deep: bool,
}

/// An operator, or a node that only wraps others.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Node<'a> {
    pub name: String,
    /// Spark's text for it (`simpleString`), with escapes.
    simple: &'a [u8],
    pub metrics: Vec<Metric<'a>>,
    pub children: Vec<Node<'a>>,
}

/// A metric of an operator.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Metric<'a> {
    /// Name, with escapes.
    pub name: &'a [u8],
    pub accumulator: u64,
    /// Type, such as `nsTiming`.
    of_type: &'a [u8],
}

impl<'a> Plan<'a> {
    /// Reads a `sparkPlanInfo`.
    ///
    /// # Errors
    /// Fails if the JSON is malformed.
    pub fn read(Raw(text): Raw<'a>) -> Result<Plan<'a>, Malformed> {
        let mut plan = Plan { text, ..Plan::default() };
        plan.root = plan.node(&mut Scanner::new(text), 0)?;
        Ok(plan)
    }

    fn node(&mut self, scanner: &mut Scanner<'a>, depth: u32) -> Result<Node<'a>, Malformed> {
        let mut node = Node::default();
        if depth > MAX_DEPTH {
            self.too_deep = true;
            scanner.skip()?;
            return Ok(node);
        }
        let mut name = None;
        fields!(scanner.object_or_skip, value {
            b"nodeName" => name = value.text()?,
            b"simpleString" => node.simple = value.raw_text()?.unwrap_or_default(),
            b"children" => value.array_or_skip(|child| {
                node.children.push(self.node(child, depth + 1)?);
                Ok(())
            })?,
            b"metrics" => value.array_or_skip(|metric| {
                let (mut read, mut accumulator) = (Metric::default(), None);
                fields!(metric.object_or_skip, value {
                    b"name" => read.name = value.raw_text()?.unwrap_or_default(),
                    b"accumulatorId" => accumulator = value.number()?,
                    b"metricType" => read.of_type = value.raw_text()?.unwrap_or_default(),
                });
                node.metrics.extend(accumulator.map(|accumulator| Metric { accumulator, ..read }));
                Ok(())
            })?,
        });
        node.name = text::clipped(name.unwrap_or_default().trim(), MAX_NAME_CHARS);
        let local = memchr::memmem::find(node.simple, b"[file:").is_some();
        self.local_parquet |= local && node.name.to_ascii_lowercase().contains("parquet");
        Ok(node)
    }
}

impl Node<'_> {
    /// Returns what the operator does, without its name.
    pub fn detail(&self) -> Option<String> {
        let simple = unescaped(self.simple);
        let detail = simple.strip_prefix(&self.name).unwrap_or(&simple).trim();
        (!detail.is_empty()).then(|| text::clipped(detail, MAX_DETAIL_CHARS))
    }
}

impl Metric<'_> {
    /// Returns the unit of the metric, and the number of units in a recorded one. `None` for averages, minima and maxima,
    /// whose values of several tasks cannot be added.
    pub fn unit(&self) -> Option<(Unit, u64)> {
        Some(match self.of_type {
            b"sum" | b"count" => (Unit::Count, 1),
            b"size" => (Unit::Bytes, 1),
            b"timing" => (Unit::Ns, 1_000_000),
            b"nsTiming" => (Unit::Ns, 1),
            _ => return None,
        })
    }

    /// Returns whether the metric is of reading a shuffle, which the stage after the operator's own does.
    pub fn is_of_shuffle_read(&self) -> bool {
        let begins: [&[u8]; 6] =
            [b"records read", b"fetch wait time", b"local ", b"remote ", b"merged ", b"corrupt merged "];
        begins.iter().any(|begin| self.name.starts_with(begin))
    }
}

/// Returns whether a node only wraps other operators.
pub fn is_wrapper(name: &str) -> bool {
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

    #[test]
    fn plan_beyond_the_maximum_depth_is_reported() {
        let deep = r#"{"nodeName":"Union","children":["#.repeat(100_000) + &"]}".repeat(100_000);
        assert!(Plan::read(Raw(deep.as_bytes())).expect("a plan").too_deep);
    }

    #[test]
    fn details_omit_the_name_and_metrics_know_their_unit() {
        let plan = br#"{"nodeName":"Sort","simpleString":"Sort [k#1 ASC]","metrics":[
            {"name":"sort time","accumulatorId":1,"metricType":"timing"},
            {"name":"peak memory","accumulatorId":2,"metricType":"size"},
            {"name":"avg hash probes","accumulatorId":3,"metricType":"average"}]}"#;
        let plan = Plan::read(Raw(plan)).expect("a plan");
        assert_eq!(plan.root.detail().as_deref(), Some("[k#1 ASC]"));
        let units: Vec<_> = plan.root.metrics.iter().map(Metric::unit).collect();
        assert_eq!(units, [Some((Unit::Ns, 1_000_000)), Some((Unit::Bytes, 1)), None]);
    }
}
