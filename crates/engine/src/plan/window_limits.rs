//! Drops rows before they are exchanged and sorted, if a filter on ranks is certain to drop them.
//!
//! `rank() OVER (PARTITION BY k ORDER BY v) <= 3` keeps few rows of each key, but DataFusion 55 exchanges and sorts all of
//! them to rank them. Here each partition of the input drops the rows that three others of their key precede. The window and
//! the filter stay above it, so it may keep more: it stops where it drops few, or needs much memory.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result, ScalarValue, Statistics};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Literal};
use datafusion::physical_expr::projection::update_expr;
use datafusion::physical_expr::window::{StandardWindowExpr, WindowExpr};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr, split_conjunction};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowUDFExpr};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{StreamExt, TryStreamExt};

use crate::execute::exchange::coalescer;
use crate::plan::cut::Node;
use crate::plan::semi_joins::column;

/// Rows after which a partition stops looking for rows to drop, if it dropped less than a quarter: to look costs about a
/// fifth of an exchange and a sort.
const SAMPLE_ROWS: usize = 16_384;
/// Bytes of keys and ranked values with which a partition stops.
const MAX_BYTES: usize = 4 << 20;
/// Bytes of an entry of a map beside its contents.
const ENTRY_BYTES: usize = 48;

/// The rule, which runs after DataFusion's.
#[derive(Debug)]
pub(crate) struct WindowLimits;

impl PhysicalOptimizerRule for WindowLimits {
    fn optimize(&self, plan: Node, _: &ConfigOptions) -> Result<Node> {
        plan.transform_up(|node| {
            Ok(match below_filter(&node)? {
                Some(made) => Transformed::yes(made),
                None => Transformed::no(node),
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "window_limits"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The largest rank that is kept.
#[derive(Clone, Debug)]
struct Limit {
    /// Keys of the window's partitions.
    keys: Vec<Arc<dyn PhysicalExpr>>,
    order: Vec<PhysicalSortExpr>,
    max: usize,
    /// True if equal rows count once (`dense_rank`).
    distinct: bool,
}

/// Returns a filter on ranks with limits below it; `None` if `node` is another node, or limits would gain nothing.
fn below_filter(node: &Node) -> Result<Option<Node>> {
    let Some(filter) = node.downcast_ref::<FilterExec>() else { return Ok(None) };
    for (at, max) in split_conjunction(filter.predicate()).into_iter().filter_map(max_of) {
        if let Some(input) = below_window(filter.input(), at, max)? {
            return replace_children_if_necessary(Arc::clone(node), vec![input]).map(Some);
        }
    }
    Ok(None)
}

/// Returns the column that a condition limits, and its largest value.
fn max_of(condition: &Arc<dyn PhysicalExpr>) -> Option<(usize, usize)> {
    let condition = condition.downcast_ref::<BinaryExpr>()?;
    let (at, operator, literal) = match column(condition.left()) {
        Some(at) => (at, *condition.op(), condition.right()),
        None => (column(condition.right())?, condition.op().swap()?, condition.left()),
    };
    let literal = literal.downcast_ref::<Literal>()?.value();
    if !literal.data_type().is_integer() {
        return None;
    }
    let ScalarValue::UInt64(Some(value)) = literal.cast_to(&DataType::UInt64).ok()? else { return None };
    let max = match operator {
        Operator::LtEq | Operator::Eq => value,
        Operator::Lt => value.checked_sub(1)?,
        _ => return None,
    };
    usize::try_from(max).ok().filter(|max| *max > 0).map(|max| (at, max))
}

/// Returns a window, or an exchange or projection of one, with limits below it.
fn below_window(node: &Node, at: usize, max: usize) -> Result<Option<Node>> {
    let limited = if let Some(exchange) = node.downcast_ref::<RepartitionExec>() {
        below_window(exchange.input(), at, max)?
    } else if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        match column(&projection.expr()[at].expr) {
            Some(at) => below_window(projection.input(), at, max)?,
            None => None,
        }
    } else if let Some(window) = node.downcast_ref::<BoundedWindowAggExec>() {
        match limit_of(window, at, max) {
            Some(limit) => below(window.input(), &limit)?,
            None => None,
        }
    } else {
        None
    };
    limited.map(|input| replace_children_if_necessary(Arc::clone(node), vec![input])).transpose()
}

/// Returns the limit of the ranks in a column of a window; `None` if it has no ranks, or if other functions of the window
/// need the rows that are dropped.
fn limit_of(window: &BoundedWindowAggExec, at: usize, max: usize) -> Option<Limit> {
    let functions = window.window_expr();
    let function = functions.get(at.checked_sub(window.input().schema().fields().len())?)?;
    let (keys, order) = (function.partition_by(), function.order_by());
    let is_alike = |other: &Arc<dyn WindowExpr>| {
        ranks_distinct(other).is_some() && other.partition_by() == keys && other.order_by() == order
    };
    if order.is_empty() || !functions.iter().all(is_alike) {
        return None;
    }
    let distinct = ranks_distinct(function)?;
    Some(Limit { keys: keys.to_vec(), order: order.to_vec(), max, distinct })
}

/// Returns whether a function that ranks counts equal rows once; `None` for other functions.
fn ranks_distinct(function: &Arc<dyn WindowExpr>) -> Option<bool> {
    let function = function.as_any().downcast_ref::<StandardWindowExpr>()?.get_standard_func_expr();
    match function.as_any().downcast_ref::<WindowUDFExpr>()?.fun().name() {
        "rank" | "row_number" => Some(false),
        "dense_rank" => Some(true),
        _ => None,
    }
}

/// Returns a node with a limit below the sorts and exchanges that it consists of; `None` if it has none.
fn below(node: &Node, limit: &Limit) -> Result<Option<Node>> {
    let mut limit = limit.clone();
    let is_costly = if let Some(sort) = node.downcast_ref::<SortExec>() {
        sort.fetch().is_none()
    } else if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        let of_order = limit.order.iter_mut().map(|key| &mut key.expr);
        for key in limit.keys.iter_mut().chain(of_order) {
            let Some(of_input) = update_expr(key, projection.expr(), true)? else { return Ok(None) };
            *key = of_input;
        }
        false
    } else {
        let costly = node.is::<RepartitionExec>()
            || node.is::<CoalescePartitionsExec>()
            || node.is::<SortPreservingMergeExec>();
        costly && node.fetch().is_none()
    };
    if !is_costly && !node.is::<ProjectionExec>() {
        return Ok(None);
    }
    let input = node.children()[0];
    let limited = match below(input, &limit)? {
        Some(deeper) => deeper,
        None if is_costly && limit.can_rank(&input.schema())? => {
            Arc::new(WindowLimitExec { input: Arc::clone(input), limit })
        }
        None => return Ok(None),
    };
    replace_children_if_necessary(Arc::clone(node), vec![limited]).map(Some)
}

impl Limit {
    fn key_fields(&self, schema: &Schema) -> Result<Vec<SortField>> {
        self.keys.iter().map(|key| Ok(SortField::new(key.data_type(schema)?))).collect()
    }

    fn order_fields(&self, schema: &Schema) -> Result<Vec<SortField>> {
        let field = |key: &PhysicalSortExpr| {
            Ok(SortField::new_with_options(key.expr.data_type(schema)?, key.options))
        };
        self.order.iter().map(field).collect()
    }

    /// Returns true if rows have values that can be compared, and that are the same when they are computed again.
    fn can_rank(&self, schema: &Schema) -> Result<bool> {
        let mut all = self.keys.iter().chain(self.order.iter().map(|key| &key.expr));
        let fields = [self.key_fields(schema)?, self.order_fields(schema)?];
        Ok(!all.any(is_volatile) && fields.iter().all(|fields| RowConverter::supports_fields(fields)))
    }
}

/// Drops rows that at least as many others of their key precede as ranks are kept.
#[derive(Debug)]
struct WindowLimitExec {
    input: Node,
    limit: Limit,
}

impl DisplayAs for WindowLimitExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limit { keys, order, max, distinct } = &self.limit;
        let list = |all: Vec<String>| all.join(", ");
        let keys = list(keys.iter().map(ToString::to_string).collect());
        let order = list(order.iter().map(ToString::to_string).collect());
        let rank = if *distinct { "dense_rank" } else { "rank" };
        write!(f, "WindowLimitExec: {rank} <= {max}, partition_by=[{keys}], order_by=[{order}]")
    }
}

impl ExecutionPlan for WindowLimitExec {
    fn name(&self) -> &str {
        "WindowLimitExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Node> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let mut then = TreeNodeRecursion::Continue;
        for key in self.limit.keys.iter().chain(self.limit.order.iter().map(|key| &key.expr)) {
            then = then.visit_sibling(|| f(key))?;
        }
        Ok(then)
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Node>) -> Result<Node> {
        Ok(Arc::new(Self { input: children.swap_remove(0), limit: self.limit.clone() }))
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        Ok(Arc::new(Statistics::clone(&inputs[0]).to_inexact()))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, Arc::clone(&context))?.fuse();
        let held = MemoryConsumer::new("WindowLimit").register(context.memory_pool());
        let ranks = Ranks::of(&self.limit, &self.schema(), held)?;
        let rows = futures::stream::try_unfold(
            (input, coalescer(&self.schema()), Some(ranks)),
            |(mut input, mut rows, mut ranks)| async move {
                loop {
                    if let Some(batch) = rows.next_completed_batch() {
                        return Ok::<_, DataFusionError>(Some((batch, (input, rows, ranks))));
                    }
                    let Some(batch) = input.try_next().await? else {
                        if rows.is_empty() {
                            return Ok(None);
                        }
                        rows.finish_buffered_batch()?;
                        continue;
                    };
                    let kept = match &mut ranks {
                        Some(ranks) => ranks.kept(&batch)?,
                        None => None,
                    };
                    if let Some(kept) = kept {
                        rows.push_batch_with_filter(batch, &kept)?;
                    } else {
                        ranks = None;
                        rows.push_batch(batch)?;
                    }
                }
            },
        );
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}

/// The first rows of each key so far.
struct Ranks {
    limit: Limit,
    /// None without keys.
    key_rows: Option<RowConverter>,
    order_rows: RowConverter,
    of_key: HashMap<Box<[u8]>, usize>,
    first: Vec<First>,
    bytes: usize,
    held: MemoryReservation,
    seen: usize,
    dropped: usize,
}

impl Ranks {
    fn of(limit: &Limit, schema: &Schema, held: MemoryReservation) -> Result<Self> {
        let keys = limit.key_fields(schema)?;
        Ok(Self {
            key_rows: if keys.is_empty() { None } else { Some(RowConverter::new(keys)?) },
            order_rows: RowConverter::new(limit.order_fields(schema)?)?,
            limit: limit.clone(),
            of_key: HashMap::new(),
            first: Vec::new(),
            bytes: 0,
            held,
            seen: 0,
            dropped: 0,
        })
    }

    /// Returns the rows of a batch that may be kept; `None` if it is not worth it to look at this and further batches.
    fn kept(&mut self, batch: &RecordBatch) -> Result<Option<BooleanArray>> {
        let count = batch.num_rows();
        let column = |expression: &Arc<dyn PhysicalExpr>| expression.evaluate(batch)?.into_array(count);
        let keys: Vec<ArrayRef> = self.limit.keys.iter().map(column).collect::<Result<_>>()?;
        let order: Vec<ArrayRef> =
            self.limit.order.iter().map(|key| column(&key.expr)).collect::<Result<_>>()?;
        let keys = self.key_rows.as_ref().map(|rows| rows.convert_columns(&keys)).transpose()?;
        let order = self.order_rows.convert_columns(&order)?;
        let mut of_row = Vec::with_capacity(count);
        for row in 0..count {
            let key = keys.as_ref().map_or(&[][..], |keys| keys.row(row).data());
            let at = self.of_key.get(key).copied().unwrap_or_else(|| {
                self.bytes += key.len() + ENTRY_BYTES;
                self.first.push(First::default());
                self.of_key.insert(key.into(), self.first.len() - 1);
                self.first.len() - 1
            });
            self.first[at].add(order.row(row).data(), &self.limit, &mut self.bytes);
            of_row.push(at);
        }
        let is_kept = |row: usize| self.first[of_row[row]].has_room(order.row(row).data(), self.limit.max);
        let kept = BooleanArray::from(BooleanBuffer::collect_bool(count, is_kept));
        self.seen += count;
        self.dropped += kept.false_count();
        let pays = self.seen < SAMPLE_ROWS || self.dropped * 4 >= self.seen;
        let fits = self.bytes <= MAX_BYTES && self.held.try_resize(self.bytes).is_ok();
        Ok((pays && fits).then_some(kept))
    }
}

/// The values of the first rows of a key.
#[derive(Default)]
struct First {
    /// Each with the number of its rows that count.
    values: BTreeMap<Box<[u8]>, usize>,
    rows: usize,
}

impl First {
    /// Returns true if less than `max` rows precede a value.
    fn has_room(&self, value: &[u8], max: usize) -> bool {
        self.rows < max || self.values.last_key_value().is_none_or(|(last, _)| value <= &**last)
    }

    fn add(&mut self, value: &[u8], limit: &Limit, bytes: &mut usize) {
        if !self.has_room(value, limit.max) {
            return;
        }
        if let Some(rows) = self.values.get_mut(value) {
            if limit.distinct {
                return;
            }
            *rows += 1;
        } else {
            self.values.insert(value.into(), 1);
            *bytes += value.len() + ENTRY_BYTES;
        }
        self.rows += 1;
        while let Some(last) = self.values.last_entry()
            && self.rows - last.get() >= limit.max
        {
            *bytes -= last.key().len() + ENTRY_BYTES;
            self.rows -= last.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Float64Array, Int32Array};
    use datafusion::arrow::compute::SortOptions;
    use datafusion::arrow::datatypes::Field;
    use datafusion::arrow::util::pretty::pretty_format_batches;
    use datafusion::execution::memory_pool::{MemoryPool, UnboundedMemoryPool};
    use datafusion::execution::session_state::SessionStateBuilder;
    use datafusion::physical_expr::expressions::Column;
    use datafusion::physical_plan::displayable;
    use datafusion::prelude::{SessionConfig, SessionContext};
    use pellucid_fuzz::Random;

    use super::*;
    use crate::plan::pushdown;

    /// Runs a query on 50,000 rows. Returns its plan and its sorted rows.
    async fn run(sql: &str, limits: bool) -> (String, Vec<String>) {
        let mut rules = pushdown::rules();
        rules.retain(|rule| limits || rule.name() != "window_limits");
        let builder = SessionStateBuilder::new_with_default_features()
            .with_config(SessionConfig::new().with_target_partitions(2))
            .with_physical_optimizer_rules(rules);
        let context = SessionContext::new_with_state(builder.build());
        let rows = "SELECT value % 7 AS a, nullif(value % 11, 5) AS b, value * 7919 % 1000 AS v, value AS i FROM range(50000)";
        context.sql(&format!("CREATE TABLE t AS {rows}")).await.unwrap().collect().await.unwrap();
        let plan = context.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        let batches =
            datafusion::physical_plan::collect(Arc::clone(&plan), context.task_ctx()).await.unwrap();
        let mut rows: Vec<String> =
            pretty_format_batches(&batches).unwrap().to_string().lines().map(str::to_string).collect();
        rows.sort();
        (displayable(plan.as_ref()).indent(false).to_string(), rows)
    }

    #[tokio::test]
    async fn ranks_below_a_limit_stay() {
        let by_b = "OVER (PARTITION BY b ORDER BY v DESC NULLS FIRST)";
        let by_a = "OVER (PARTITION BY a ORDER BY v)";
        for (functions, condition, expected) in [
            (format!("rank() {by_b} AS r"), "r <= 3", Some("WindowLimitExec: rank <= 3")),
            (format!("row_number() {by_b} AS r"), "r = 2 AND a > 1", Some("WindowLimitExec: rank <= 2")),
            (format!("dense_rank() {by_b} AS r"), "4 > r", Some("WindowLimitExec: dense_rank <= 3")),
            (
                format!("rank() {by_b} AS r, dense_rank() {by_b} AS d"),
                "r BETWEEN 2 AND 5",
                Some("WindowLimitExec: rank <= 5"),
            ),
            ("rank() OVER (ORDER BY v, i) AS r".to_string(), "r <= 10", Some("rank <= 10, partition_by=[]")),
            ("rank() OVER (PARTITION BY a + 1 ORDER BY -v) AS r".to_string(), "r < 3", Some("rank <= 2")),
            ("rank() OVER (PARTITION BY i ORDER BY v) AS r".to_string(), "r <= 1", Some("rank <= 1")),
            // The window of the sums is above that of the ranks, and needs all rows.
            (format!("rank() {by_a} AS r, sum(v) {by_b} AS s"), "r <= 3", None),
            (format!("rank() {by_b} AS r, sum(v) {by_b} AS s"), "r <= 3", None),
            (format!("rank() {by_b} AS r"), "r > 3", None),
            (format!("rank() {by_b} AS r"), "r <= 0", None),
            (format!("rank() {by_b} AS r"), "r <= 3 OR a = 1", None),
            (format!("lag(v) {by_b} AS r"), "r <= 3", None),
            ("row_number() OVER (PARTITION BY a ORDER BY random()) AS r".to_string(), "r <= 1", None),
        ] {
            let sql = format!("SELECT * FROM (SELECT a, b, v, i, {functions} FROM t) WHERE {condition}");
            let (plan, rows) = run(&sql, true).await;
            let expected = expected.map_or(!plan.contains("WindowLimitExec"), |text| plan.contains(text));
            assert!(expected, "{sql}: {plan}");
            // Equal rows may have any of their numbers.
            if !sql.contains("row_number") {
                assert_eq!(rows, run(&sql, false).await.1, "{sql}");
            }
        }
    }

    #[tokio::test]
    async fn numbered_rows_have_the_values_of_the_first() {
        let numbered = "row_number() OVER (PARTITION BY b ORDER BY v) AS r";
        let sql = format!("SELECT b, v, r FROM (SELECT b, v, {numbered} FROM t) WHERE r <= 40");
        let (plan, rows) = run(&sql, true).await;
        assert!(plan.contains("WindowLimitExec"), "{plan}");
        assert_eq!(rows, run(&sql, false).await.1);
    }

    fn limit(max: usize, distinct: bool) -> Limit {
        let column = |name: &str, at| Arc::new(Column::new(name, at)) as Arc<dyn PhysicalExpr>;
        let options = SortOptions { descending: true, nulls_first: false };
        let order = vec![PhysicalSortExpr { expr: column("v", 1), options }];
        Limit { keys: vec![column("k", 0)], order, max, distinct }
    }

    fn ranks(limit: &Limit, schema: &Schema) -> Ranks {
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        Ranks::of(limit, schema, MemoryConsumer::new("WindowLimit").register(&pool)).unwrap()
    }

    fn rows(keys: Vec<Option<i32>>, values: Vec<Option<f64>>) -> RecordBatch {
        let fields = vec![Field::new("k", DataType::Int32, true), Field::new("v", DataType::Float64, true)];
        let columns: Vec<ArrayRef> =
            vec![Arc::new(Int32Array::from(keys)), Arc::new(Float64Array::from(values))];
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
    }

    #[test]
    fn rows_of_one_batch_are_kept_by_their_rank() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let (count, keys, values) = (1 + random.below(500), 1 + random.below(9), 1 + random.below(60));
            let (max, distinct) = (1 + random.below(8), random.below(2) == 0);
            let mut value = |most: usize| Some(random.below(most + 1)).filter(|value| *value > 0);
            let k: Vec<Option<i32>> = (0..count).map(|_| value(keys).map(|key| key as i32)).collect();
            let v: Vec<Option<f64>> = (0..count).map(|_| value(values).map(|value| value as f64)).collect();
            let limit = limit(max, distinct);
            let batch = rows(k.clone(), v.clone());
            let mut ranks = ranks(&limit, &batch.schema());
            let kept = ranks.kept(&batch).unwrap().unwrap();
            for row in 0..count {
                // None is less than any value, and comes last in descending order.
                let before = (0..count).filter(|other| k[*other] == k[row] && v[*other] > v[row]);
                let mut before: Vec<u64> = before.map(|other| v[other].unwrap_or(0.0) as u64).collect();
                if distinct {
                    before.sort_unstable();
                    before.dedup();
                }
                assert_eq!(kept.value(row), before.len() < max, "seed {seed}, row {row}");
            }
            // The first rows of a second batch have to be among those of both.
            let again = ranks.kept(&batch).unwrap().unwrap();
            assert!((0..count).all(|row| kept.value(row) || !again.value(row)), "seed {seed}");
        }
    }

    #[test]
    fn a_partition_stops_if_it_drops_few_rows_or_has_many_keys() {
        let schema = rows(vec![], vec![]).schema();
        let batch = |from: i32, keys: i32| {
            let numbers = from..from + 8192;
            rows(
                numbers.clone().map(|n| Some(n % keys)).collect(),
                numbers.map(|n| Some(f64::from(n))).collect(),
            )
        };
        // Later rows are larger, so nothing is dropped.
        let (limited, unlimited) = (limit(1, false), limit(usize::MAX, false));
        let mut few = ranks(&limited, &schema);
        assert!(few.kept(&batch(0, i32::MAX)).unwrap().is_some());
        assert!(few.kept(&batch(8192, i32::MAX)).unwrap().is_none());
        let mut many = ranks(&unlimited, &schema);
        let stopped =
            (0..10).map(|at| batch(at * 8192, 10)).position(|batch| many.kept(&batch).unwrap().is_none());
        assert_eq!(stopped, Some(1), "nothing is dropped");
        let mut sorted = ranks(&limited, &schema);
        let descending = |batch: &RecordBatch| {
            let last_first: Vec<usize> = (0..batch.num_rows()).rev().collect();
            let indices = Int32Array::from_iter_values(last_first.into_iter().map(|row| row as i32));
            datafusion::arrow::compute::take_record_batch(batch, &indices).unwrap()
        };
        for batch in (0..10).rev().map(|at| descending(&batch(at * 8192, 10))) {
            assert!(sorted.kept(&batch).unwrap().is_some());
        }
        assert_eq!((sorted.seen, sorted.dropped), (81920, 81910));
    }
}
