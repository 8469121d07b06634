//! Moves semi and anti joins below the joins whose rows they filter.
//!
//! DataFusion 55 plans `key IN (SELECT …)` above all joins of the FROM clause, so that these join and exchange rows that the
//! semi join drops afterwards. A semi or anti join only keeps or drops rows of its left side, so it gives the same rows
//! on the input that has its keys, if no row of that input can be missing from the join or have NULLs instead. TPC-H query
//! 18 then joins and exchanges 57 orders instead of all of them.
//!
//! It moves only where that input is not estimated to have more rows than the left side has now. An EXISTS on a large
//! table would otherwise test rows that other joins drop (TPC-H query 21).
//!
//! The anti join of `key NOT IN (SELECT …)` has to know NULLs of either side, for which one core collects all rows of the
//! left side. Where statistics say that there are none, it becomes an ordinary one (TPC-H query 16).

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinType, Result};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, HashJoinExecBuilder, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;

use crate::plan::cut::Node;
use crate::plan::estimates::rows;
use crate::scan::text;

/// The rule, which runs before DataFusion chooses the sides of joins.
#[derive(Debug)]
pub(crate) struct EarlySemiJoins;

impl PhysicalOptimizerRule for EarlySemiJoins {
    fn optimize(&self, plan: Node, _: &ConfigOptions) -> Result<Node> {
        plan.transform_up(|node| {
            let plain = without_nulls(&node)?;
            let moved = moved(plain.as_ref().unwrap_or(&node))?;
            Ok(match moved.or(plain) {
                Some(made) => Transformed::yes(made),
                None => Transformed::no(node),
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "early_semi_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns an anti join that knows NULLs as one that does not; `None` if it may meet some or `node` is another node.
fn without_nulls(node: &Node) -> Result<Option<Node>> {
    let Some(join) = node.downcast_ref::<HashJoinExec>().filter(|join| join.null_aware) else {
        return Ok(None);
    };
    let none = |side: &Node, key| column(key).is_some_and(|key| has_no_nulls(side, key));
    if !join.on.iter().all(|(left, right)| none(join.left(), left) && none(join.right(), right)) {
        return Ok(None);
    }
    let plain = join.builder().with_null_aware(false).with_partition_mode(PartitionMode::Auto);
    plain.build_exec().map(Some)
}

/// Returns true if a column of a node has no NULLs for certain.
fn has_no_nulls(node: &Node, at: usize) -> bool {
    if !node.schema().field(at).is_nullable() {
        return true;
    }
    if let Some(scan) = text::file_scan(node) {
        return scan_has_no_nulls(scan, at);
    }
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        let below = column(&projection.expr()[at].expr);
        return below.is_some_and(|below| has_no_nulls(projection.input(), below));
    }
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        let below = filter.projection().as_ref().map_or(at, |columns| columns[at]);
        return has_no_nulls(filter.input(), below);
    }
    let Some(join) = node.downcast_ref::<HashJoinExec>() else { return false };
    let width = join.left().schema().fields().len();
    let below = join.projection.as_ref().map_or(at, |columns| columns[at]);
    match join.join_type {
        JoinType::Inner | JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti if below < width => {
            has_no_nulls(join.left(), below)
        }
        JoinType::Inner | JoinType::Right if below >= width => has_no_nulls(join.right(), below - width),
        JoinType::RightSemi | JoinType::RightAnti => has_no_nulls(join.right(), below),
        _ => false,
    }
}

/// Returns true if a column of a scan has no NULLs by the statistics of all its files.
fn scan_has_no_nulls(scan: &FileScanConfig, at: usize) -> bool {
    let of_table = match scan.file_source.projection() {
        Some(projection) => projection.iter().nth(at).and_then(|projected| column(&projected.expr)),
        None => Some(at),
    };
    let none = |file: &PartitionedFile| {
        let statistics = file.statistics.as_ref()?.column_statistics.get(of_table?)?;
        (statistics.null_count == Precision::Exact(0)).then_some(())
    };
    scan.file_groups.iter().flat_map(|group| group.iter()).all(|file| none(file).is_some())
}

/// Returns the left side of a semi or anti join, with the join moved into it; `None` if it stays or `node` is another node.
fn moved(node: &Node) -> Result<Option<Node>> {
    let Some(join) = node.downcast_ref::<HashJoinExec>() else { return Ok(None) };
    let filters = matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti);
    if !filters || join.null_aware || join.filter.is_some() || join.projection.is_some() {
        return Ok(None);
    }
    let index = |(left, _): &(_, _)| column(left);
    let Some(keys) = join.on.iter().map(index).collect::<Option<Vec<usize>>>() else { return Ok(None) };
    let Some(most) = rows(join.left())? else { return Ok(None) };
    below(join.left(), &keys, &Moving { join, most })
}

/// A join on its way down.
struct Moving<'a> {
    join: &'a HashJoinExec,
    /// The number of rows that its left side is estimated to have at its present place.
    most: usize,
}

impl Moving<'_> {
    /// Returns the join with another left side, in which its keys have the indices `keys`.
    fn over(&self, left: &Node, keys: &[usize]) -> Result<Node> {
        let schema = left.schema();
        let key = |(&index, (_, right)): (&usize, &(_, _))| {
            (Arc::new(Column::new(schema.field(index).name(), index)) as _, Arc::clone(right))
        };
        let on = keys.iter().zip(&self.join.on).map(key).collect();
        HashJoinExecBuilder::new(Arc::clone(left), Arc::clone(self.join.right()), on, self.join.join_type)
            .with_partition_mode(self.join.mode)
            .with_null_equality(self.join.null_equality)
            .build_exec()
    }
}

/// Returns `node` with the join as deep in it as it may go; `None` if it cannot go below `node`.
fn below(node: &Node, keys: &[usize], moving: &Moving<'_>) -> Result<Option<Node>> {
    let child = |at: usize, child: Node| {
        let mut children: Vec<Node> = node.children().into_iter().map(Arc::clone).collect();
        children[at] = child;
        replace_children_if_necessary(Arc::clone(node), children).map(Some)
    };
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        let below_projection = keys.iter().map(|&key| column(&projection.expr()[key].expr)).collect();
        let Some(keys): Option<Vec<usize>> = below_projection else { return Ok(None) };
        return match below(projection.input(), &keys, moving)? {
            Some(input) => child(0, input),
            None => Ok(None),
        };
    }
    let Some(join) = node.downcast_ref::<HashJoinExec>() else { return Ok(None) };
    let width = join.left().schema().fields().len();
    let of_output = |&key: &usize| join.projection.as_ref().map_or(key, |columns| columns[key]);
    let keys: Vec<usize> = keys.iter().map(of_output).collect();
    let left = keys.iter().all(|&key| key < width);
    let right = keys.iter().all(|&key| key >= width);
    let (at, side, keys) = match join.join_type {
        JoinType::Inner | JoinType::Left if left => (0, join.left(), keys),
        JoinType::Inner | JoinType::Right if right => {
            (1, join.right(), keys.iter().map(|key| key - width).collect())
        }
        _ => return Ok(None),
    };
    if let Some(deeper) = below(side, &keys, moving)? {
        return child(at, deeper);
    }
    match rows(side)? {
        Some(rows) if rows <= moving.most => child(at, moving.over(side, &keys)?),
        _ => Ok(None),
    }
}

/// Returns the index of an expression that is a column.
pub(crate) fn column(expression: &Arc<dyn datafusion::physical_expr::PhysicalExpr>) -> Option<usize> {
    expression.downcast_ref::<Column>().map(Column::index)
}

#[cfg(test)]
mod tests {
    use datafusion::execution::session_state::SessionStateBuilder;
    use datafusion::physical_plan::displayable;
    use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};

    use crate::plan::pushdown::rules;

    const GROUPS: &str = "(SELECT k FROM t GROUP BY k HAVING sum(d) > 30)";

    async fn session(folder: &std::path::Path, ours: bool) -> SessionContext {
        let mut builder = SessionStateBuilder::new_with_default_features()
            .with_config(SessionConfig::new().with_target_partitions(4));
        if ours {
            builder = builder.with_physical_optimizer_rules(rules());
        }
        let context = SessionContext::new_with_state(builder.build());
        let path = folder.join("t.parquet").display().to_string();
        if !folder.join("t.parquet").exists() {
            let rows = "SELECT value AS id, nullif(value % 10, 0) AS k, value % 7 AS d FROM range(100)";
            context.sql(&format!("COPY ({rows}) TO '{path}'")).await.unwrap().collect().await.unwrap();
        }
        context.register_parquet("t", path, ParquetReadOptions::default()).await.unwrap();
        context
    }

    /// Returns the rows as sorted text, and the plan.
    async fn ran(context: &SessionContext, sql: &str) -> (Vec<String>, String) {
        let frame = context.sql(sql).await.unwrap();
        let plan = frame.clone().create_physical_plan().await.unwrap();
        let text =
            datafusion::arrow::util::pretty::pretty_format_batches(&frame.collect().await.unwrap()).unwrap();
        let mut lines: Vec<String> = text.to_string().lines().map(str::to_string).collect();
        lines.sort();
        (lines, displayable(plan.as_ref()).indent(false).to_string())
    }

    /// Returns how deep the plan's first line with a word is.
    fn depth(plan: &str, word: &str) -> usize {
        let line = plan.lines().find(|line| line.contains(word)).unwrap_or_else(|| panic!("{word}: {plan}"));
        line.len() - line.trim_start().len()
    }

    #[tokio::test]
    async fn semi_and_anti_joins_go_to_the_input_with_their_keys() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (session(folder.path(), true).await, session(folder.path(), false).await);
        for (join, condition, kind) in [
            ("JOIN", format!("a.k IN {GROUPS}"), "Semi"),
            ("JOIN", format!("b.k IN {GROUPS}"), "Semi"),
            ("LEFT JOIN", format!("a.k IN {GROUPS}"), "Semi"),
            ("RIGHT JOIN", format!("b.k IN {GROUPS}"), "Semi"),
            ("JOIN", format!("NOT EXISTS (SELECT 1 FROM {GROUPS} g WHERE g.k = a.k)"), "Anti"),
        ] {
            let sql = format!(
                "SELECT a.id, b.id, a.d + b.d FROM t a {join} t b ON a.id = b.id + 3 WHERE {condition}"
            );
            let (rows, plan) = ran(&ours, &sql).await;
            let (expected, above) = ran(&theirs, &sql).await;
            assert_eq!(rows, expected, "{sql}\n{plan}");
            assert!(depth(&plan, kind) > depth(&above, kind), "{sql}\n{plan}");
        }
    }

    #[tokio::test]
    async fn not_in_without_nulls_is_an_ordinary_anti_join() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (session(folder.path(), true).await, session(folder.path(), false).await);
        for (condition, ordinary) in [
            ("a.id NOT IN (SELECT d FROM t)", true),
            ("a.id NOT IN (SELECT id FROM t WHERE d = 3)", true),
            ("a.id NOT IN (SELECT b.d FROM t b JOIN t c ON b.k = c.id)", true),
            ("a.id NOT IN (SELECT c.d FROM t b LEFT JOIN t c ON b.k = c.id)", false),
            ("a.id NOT IN (SELECT k FROM t)", false),
            ("a.k NOT IN (SELECT d FROM t)", false),
            ("a.k + 1 NOT IN (SELECT d FROM t)", false),
        ] {
            let sql = format!("SELECT a.id FROM t a WHERE {condition}");
            let (rows, plan) = ran(&ours, &sql).await;
            assert_eq!(rows, ran(&theirs, &sql).await.0, "{sql}");
            assert_eq!(!plan.contains("null_aware"), ordinary, "{sql}\n{plan}");
        }
    }

    #[tokio::test]
    async fn joins_that_would_change_rows_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (session(folder.path(), true).await, session(folder.path(), false).await);
        for (join, condition) in [
            // A row of the other side may have NULLs instead of the keys.
            ("LEFT JOIN", format!("NOT EXISTS (SELECT 1 FROM {GROUPS} g WHERE g.k = b.k)")),
            ("FULL JOIN", format!("NOT EXISTS (SELECT 1 FROM {GROUPS} g WHERE g.k = a.k)")),
            ("JOIN", format!("a.k NOT IN {GROUPS}")),
            // Keys of both sides, and a condition beside them.
            ("JOIN", "EXISTS (SELECT 1 FROM t c WHERE c.k = a.k AND c.d = b.d)".to_string()),
            ("JOIN", "EXISTS (SELECT 1 FROM t c WHERE c.k = a.k AND c.d < b.d)".to_string()),
            ("JOIN", format!("a.k + b.k IN {GROUPS}")),
        ] {
            let sql = format!("SELECT a.id, b.id FROM t a {join} t b ON a.id = b.id + 3 WHERE {condition}");
            assert_eq!(ran(&ours, &sql).await.0, ran(&theirs, &sql).await.0, "{sql}");
        }
    }
}
