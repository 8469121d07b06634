//! Plans of SQL executions: their operators, each with the accumulators of its metrics.

use crate::json::{Malformed, Raw, Scanner, fields};
use crate::text;

/// Maximum depth of a plan, since each level uses stack. Deeper operators are ignored.
const MAX_DEPTH: u32 = 300;
const MAX_NAME_CHARS: usize = 60;

/// The operators of a plan, without those that only wrap others. A child precedes its parent.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub operators: Vec<Operator>,
    /// Accumulators, each with the index of its operator. If several operators have the same, the last applies.
    pub accumulators: Vec<(u64, u32)>,
    /// True if the plan scans Parquet files on the local file system.
    pub local_parquet: bool,
    /// True if the plan exceeds the maximum depth.
    pub too_deep: bool,
}

/// An operator.
#[derive(Debug, PartialEq, Eq)]
pub struct Operator {
    pub name: String,
    /// Position in the plan, counted from the root down.
    pub place: u32,
}

/// A traversal of a plan.
#[derive(Default)]
struct Walk {
    plan: Plan,
    next_place: u32,
}

impl Plan {
    /// Reads a `sparkPlanInfo`.
    ///
    /// # Errors
    /// Fails if the JSON is malformed.
    pub fn read(plan: Raw<'_>) -> Result<Plan, Malformed> {
        let mut walk = Walk::default();
        walk.node(&mut Scanner::new(plan.0), 0)?;
        Ok(walk.plan)
    }
}

impl Walk {
    /// Reads a node. Positions are assigned on entry, so that they run from the root down whatever the
    /// order of the keys.
    fn node(&mut self, scanner: &mut Scanner<'_>, depth: u32) -> Result<(), Malformed> {
        if depth > MAX_DEPTH {
            self.plan.too_deep = true;
            return scanner.skip();
        }
        let place = self.next_place;
        self.next_place += 1;
        let mut name = None;
        let mut simple = &b""[..];
        let mut metrics = Vec::new();
        fields!(scanner.object_or_skip, value {
            b"nodeName" => name = value.text()?,
            b"simpleString" => simple = value.raw_text()?.unwrap_or_default(),
            b"children" => value.array_or_skip(|child| self.node(child, depth + 1))?,
            b"metrics" => value.array_or_skip(|metric| {
                fields!(metric.object_or_skip, value {
                    b"accumulatorId" => metrics.extend(value.number()?),
                });
                Ok(())
            })?,
        });
        let name = name.unwrap_or_default();
        let name = text::clipped(name.trim(), MAX_NAME_CHARS);
        let local = memchr::memmem::find(simple, b"[file:").is_some();
        self.plan.local_parquet |= local && name.to_ascii_lowercase().contains("parquet");
        if !is_wrapper(&name) {
            let operator = self.plan.operators.len() as u32;
            self.plan.operators.push(Operator { name, place });
            self.plan.accumulators.extend(metrics.into_iter().map(|accumulator| (accumulator, operator)));
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

    #[test]
    fn plan_beyond_the_maximum_depth_is_reported() {
        let deep = r#"{"nodeName":"Union","children":["#.repeat(100_000) + &"]}".repeat(100_000);
        assert!(Plan::read(Raw(deep.as_bytes())).expect("a plan").too_deep);
    }
}
