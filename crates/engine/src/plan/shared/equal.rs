//! Finds plans that a query has several times.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, Result};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, SubqueryAlias, UserDefinedLogicalNodeCore};
use datafusion::optimizer::AnalyzerRule;

use crate::sync::lock;

/// A plan that a query has several times.
#[derive(Debug)]
pub(super) struct Body {
    /// The plan, analyzed.
    pub plan: LogicalPlan,
    /// True if it has aggregates or windows.
    pub aggregates: bool,
    /// Columns that any place needs.
    used: Mutex<BTreeSet<usize>>,
}

impl Body {
    pub fn used(&self) -> MutexGuard<'_, BTreeSet<usize>> {
        lock(&self.used)
    }
}

/// A place of a plan that a query has several times. Its identity is that of the plan.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub body: Arc<Body>,
    schema: DFSchemaRef,
}

impl Shared {
    /// Returns the place that `plan` is, if it is one.
    pub fn of(plan: &LogicalPlan) -> Option<&Self> {
        let LogicalPlan::Extension(Extension { node }) = plan else { return None };
        node.as_any().downcast_ref()
    }

    pub fn plan(body: &Arc<Body>, schema: &DFSchemaRef) -> LogicalPlan {
        let place = Self { body: Arc::clone(body), schema: Arc::clone(schema) };
        LogicalPlan::Extension(Extension { node: Arc::new(place) })
    }
}

/// Returns the identity of a plan.
pub(super) fn key(body: &Arc<Body>) -> usize {
    Arc::as_ptr(body) as usize
}

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.body, &other.body) && self.schema == other.schema
    }
}

impl Eq for Shared {}

impl Hash for Shared {
    fn hash<H: Hasher>(&self, state: &mut H) {
        key(&self.body).hash(state);
    }
}

impl PartialOrd for Shared {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match key(&self.body).cmp(&key(&other.body)) {
            Ordering::Equal if self != other => None,
            order => Some(order),
        }
    }
}

impl UserDefinedLogicalNodeCore for Shared {
    fn name(&self) -> &str {
        "Shared"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        Vec::new()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, _: Vec<LogicalPlan>) -> Result<Self> {
        Ok(self.clone())
    }

    fn necessary_children_exprs(&self, columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        self.body.used().extend(columns);
        Some(Vec::new())
    }
}

/// The rule that finds equal inputs of aliases, the last one of the analyzer.
#[derive(Debug)]
pub(crate) struct ShareEqual;

impl AnalyzerRule for ShareEqual {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut places = HashMap::new();
        count(&plan, &mut places)?;
        places.retain(|_: &Input, count| *count > 1);
        if places.is_empty() { Ok(plan) } else { share(plan, &places, &mut HashMap::new()) }
    }

    fn name(&self) -> &str {
        "share_equal"
    }
}

/// The input of an alias.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Input {
    plan: Arc<LogicalPlan>,
    /// The tables that it reads, since plans count as equal if these have the same name.
    tables: Vec<usize>,
    /// True if it has aggregates or windows.
    aggregates: bool,
}

impl Input {
    /// Returns the input of an alias, if it is worth sharing and means the same everywhere.
    fn of(node: &LogicalPlan) -> Result<Option<Self>> {
        let LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. }) = node else { return Ok(None) };
        if matches!(**input, LogicalPlan::SubqueryAlias(_)) {
            return Ok(None);
        }
        let (mut tables, mut joins, mut aggregates, mut depends) = (Vec::new(), false, false, false);
        input.apply_with_subqueries(|node| {
            match node {
                LogicalPlan::TableScan(scan) => tables.push(match source_as_provider(&scan.source) {
                    Ok(table) => Arc::as_ptr(&table).cast::<()>() as usize,
                    Err(_) => Arc::as_ptr(&scan.source).cast::<()>() as usize,
                }),
                LogicalPlan::Aggregate(_) | LogicalPlan::Distinct(_) | LogicalPlan::Window(_) => {
                    aggregates = true;
                }
                LogicalPlan::Join(_) => joins = true,
                _ => {}
            }
            node.apply_expressions(|expr| {
                depends |= expr.is_volatile() || expr.contains_outer();
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        Ok(((aggregates || joins) && !depends).then(|| Self { plan: Arc::clone(input), tables, aggregates }))
    }
}

/// Counts the places of each input that could be shared.
fn count(plan: &LogicalPlan, places: &mut HashMap<Input, usize>) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        if matches!(node, LogicalPlan::RecursiveQuery(_)) {
            return Ok(TreeNodeRecursion::Jump);
        }
        let Some(input) = Input::of(node)? else { return Ok(TreeNodeRecursion::Continue) };
        let count = places.entry(input).or_default();
        *count += 1;
        // The inputs within it are computed once with it.
        Ok(if *count > 1 { TreeNodeRecursion::Jump } else { TreeNodeRecursion::Continue })
    })?;
    Ok(())
}

/// Replaces inputs with several places by leaves.
fn share(
    plan: LogicalPlan,
    places: &HashMap<Input, usize>,
    bodies: &mut HashMap<Input, Arc<Body>>,
) -> Result<LogicalPlan> {
    let shared = plan.transform_down_with_subqueries(|node| {
        if matches!(node, LogicalPlan::RecursiveQuery(_)) {
            return Ok(Transformed::new(node, false, TreeNodeRecursion::Jump));
        }
        let Some(input) = Input::of(&node)?.filter(|input| places.contains_key(input)) else {
            return Ok(Transformed::no(node));
        };
        let body = match bodies.get(&input) {
            Some(body) => Arc::clone(body),
            None => {
                let plan = share(LogicalPlan::clone(&input.plan), places, bodies)?;
                let body = Arc::new(Body { plan, aggregates: input.aggregates, used: Mutex::default() });
                bodies.insert(input, Arc::clone(&body));
                body
            }
        };
        let LogicalPlan::SubqueryAlias(SubqueryAlias { alias, .. }) = node else {
            return Ok(Transformed::no(node));
        };
        let leaf = Shared::plan(&body, body.plan.schema());
        let aliased = LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(leaf), alias)?);
        Ok(Transformed::new(aliased, true, TreeNodeRecursion::Jump))
    });
    shared.data()
}
