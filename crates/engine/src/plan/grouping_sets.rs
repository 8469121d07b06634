//! Computes grouping sets from groups instead of rows.
//!
//! DataFusion 55 looks up every row once for each set, and `ROLLUP (a, b, c)` has four. Sets that include the one of all
//! keys, as those of ROLLUP and CUBE do, need no row twice: rows are grouped by all keys, and each other set groups the
//! partial states of the smallest set that has its keys.
//!
//! If each partition is likely to have most of the groups, these are exchanged before they are grouped by each set: a set
//! would be exchanged once for each partition otherwise (TPC-DS query 22).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::{fmt, slice};

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, JoinType, Result, Statistics};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Aggregate;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{Column, lit};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{Partitioning, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{
    AggregateExec, AggregateMode, PhysicalGroupBy, evaluate_group_by,
};
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::TryStreamExt;

use crate::execute::compact::batch_bytes;
use crate::plan::cut::Node;
use crate::plan::estimates::{row_bytes, rows};

/// Estimated bytes of an exchange of all sets from which only groups are exchanged first: another stage takes a millisecond.
const LARGE_EXCHANGE_BYTES: usize = 64 << 20;

/// The rule, which runs after all others.
#[derive(Debug)]
pub(crate) struct SetsOfGroups {
    large_exchange_bytes: usize,
}

impl Default for SetsOfGroups {
    fn default() -> Self {
        Self { large_exchange_bytes: LARGE_EXCHANGE_BYTES }
    }
}

impl PhysicalOptimizerRule for SetsOfGroups {
    fn optimize(&self, plan: Node, _: &ConfigOptions) -> Result<Node> {
        plan.transform_up(|node| {
            Ok(match of_groups(&node, self.large_exchange_bytes)? {
                Some(made) => Transformed::yes(made),
                None => Transformed::no(node),
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "sets_of_groups"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns a partial aggregate with grouping sets as one of groups; `None` if it must stay as it is.
fn of_groups(node: &Node, large_exchange_bytes: usize) -> Result<Option<Node>> {
    let partial = node.downcast_ref::<AggregateExec>().filter(|a| *a.mode() == AggregateMode::Partial);
    let Some(partial) = partial.filter(|a| a.limit_options().is_none()) else { return Ok(None) };
    let (sets, aggregates) = (partial.group_expr(), partial.aggr_expr());
    let has_all_keys = sets.groups().iter().any(|nulls| !nulls.contains(&true));
    if !sets.has_grouping_set() || sets.groups().len() < 2 || !has_all_keys {
        return Ok(None);
    }
    let mut each = sets.groups().to_vec();
    each.sort_by_key(|nulls| (nulls.iter().filter(|null| **null).count(), nulls.clone()));
    // DataFusion tells sets that are named twice apart by their number.
    if each.windows(2).any(|pair| pair[0] == pair[1]) {
        return Ok(None);
    }
    for aggregate in aggregates {
        if !merges_cheaply(aggregate)? {
            return Ok(None);
        }
    }
    let (keys, schema) = (sets.expr().to_vec(), partial.input_schema());
    let groups: Node = Arc::new(AggregateExec::try_new(
        AggregateMode::Partial,
        PhysicalGroupBy::new_single(keys),
        aggregates.to_vec(),
        partial.filter_expr().to_vec(),
        Arc::clone(partial.input()),
        Arc::clone(&schema),
    )?);
    let column = |(at, name): (usize, &String)| -> (Arc<dyn PhysicalExpr>, String) {
        (Arc::new(Column::new(name, at)), name.clone())
    };
    let keys: Vec<_> = sets.expr().iter().map(|(_, name)| name).enumerate().map(column).collect();
    let groups = match exchanged_bytes(partial)? {
        Some(bytes) if bytes >= large_exchange_bytes => merged(groups, &keys, aggregates, &schema)?,
        _ => groups,
    };
    let by_name = groups.schema();
    let columns = by_name.fields().iter().map(|field| field.name()).enumerate().map(column);
    let mut columns: Vec<ProjectionExpr> = columns.map(ProjectionExpr::from).collect();
    // States are expected behind the keys and the number of the set.
    columns.insert(sets.expr().len(), (lit(0_u8), Aggregate::INTERNAL_GROUPING_ID.to_string()).into());
    let states = Arc::new(ProjectionExec::try_new(columns, groups)?);
    let sets = Arc::new(PhysicalGroupBy::new(keys, sets.null_expr().to_vec(), sets.groups().to_vec(), true));
    let of_states = AggregateExec::try_new(
        AggregateMode::PartialReduce,
        Arc::clone(&sets),
        aggregates.to_vec(),
        vec![None; aggregates.len()],
        states,
        Arc::clone(&schema),
    )?;
    let of_set = |nulls| {
        let group_by =
            PhysicalGroupBy::new(sets.expr().to_vec(), sets.null_expr().to_vec(), vec![nulls], true);
        let aggregate = AggregateExec::try_new(
            AggregateMode::PartialReduce,
            group_by.clone(),
            aggregates.to_vec(),
            vec![None; aggregates.len()],
            Arc::new(EmptyExec::new(partial.schema())),
            Arc::clone(&schema),
        )?;
        Ok(Set { group_by, aggregate: Arc::new(aggregate) })
    };
    let each: Vec<Set> = each.into_iter().map(of_set).collect::<Result<_>>()?;
    if of_states.schema() != partial.schema()
        || each.iter().any(|set| set.aggregate.schema() != partial.schema())
    {
        return Ok(None);
    }
    let nothing = Arc::new(EmptyExec::new(partial.input().schema()));
    let of_nothing = replace_children_if_necessary(Arc::clone(node), vec![nothing])?;
    let (aggregate, each) = (Arc::new(of_states), each.into());
    Ok(Some(Arc::new(GroupingSetsExec { aggregate, sets, each, of_nothing })))
}

/// Estimates the bytes of an exchange of all sets from each partition; `None` if partitions may have few groups in common,
/// or that is unknown.
fn exchanged_bytes(partial: &AggregateExec) -> Result<Option<usize>> {
    let (input, sets) = (partial.input(), partial.group_expr());
    let partitions = input.output_partitioning().partition_count();
    let keys = sets.expr().iter().flat_map(|(key, _)| collect_columns(key));
    let (Some(rows), Some(groups)) =
        (rows(input)?, most_groups(input, &keys.map(|key| key.index()).collect())?)
    else {
        return Ok(None);
    };
    let all = groups.saturating_mul(partitions);
    let repeat = partitions > 1 && all <= rows;
    let bytes = sets.groups().len() * row_bytes(&partial.schema());
    Ok(repeat.then(|| all.saturating_mul(bytes)))
}

/// Returns the largest number of groups that columns of a node can have, by the estimated rows of the inputs of its joins;
/// `None` if these are unknown.
fn most_groups(node: &Node, columns: &BTreeSet<usize>) -> Result<Option<usize>> {
    if columns.is_empty() {
        return Ok(Some(1));
    }
    let Some(rows) = rows(node)? else { return Ok(None) };
    let below = |projection: Option<&[usize]>| -> BTreeSet<usize> {
        columns.iter().map(|&at| projection.map_or(at, |columns| columns[at])).collect()
    };
    let groups = if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        let of_expression = |&at: &usize| collect_columns(&projection.expr()[at].expr);
        let columns = columns.iter().flat_map(of_expression).map(|column| column.index()).collect();
        most_groups(projection.input(), &columns)?
    } else if let Some(filter) = node.downcast_ref::<FilterExec>() {
        most_groups(filter.input(), &below(filter.projection().as_deref()))?
    } else if let Some(exchange) = node.downcast_ref::<RepartitionExec>() {
        most_groups(exchange.input(), columns)?
    } else if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        let columns = below(join.projection.as_deref());
        let width = join.left().schema().fields().len();
        match join.join_type {
            JoinType::LeftSemi | JoinType::LeftAnti => most_groups(join.left(), &columns)?,
            JoinType::RightSemi | JoinType::RightAnti => most_groups(join.right(), &columns)?,
            JoinType::LeftMark | JoinType::RightMark => Some(rows),
            _ => {
                let of_left = columns.iter().copied().filter(|&at| at < width).collect();
                let of_right = columns.iter().filter(|&&at| at >= width).map(|at| at - width).collect();
                let groups = most_groups(join.left(), &of_left)?.zip(most_groups(join.right(), &of_right)?);
                groups.map(|(left, right)| left.saturating_mul(right))
            }
        }
    } else {
        Some(rows)
    };
    Ok(groups.map(|groups| groups.min(rows)))
}

/// Returns the groups of all partitions from those of each.
fn merged(
    groups: Node,
    keys: &[(Arc<dyn PhysicalExpr>, String)],
    aggregates: &[Arc<AggregateFunctionExpr>],
    schema: &SchemaRef,
) -> Result<Node> {
    let partitions = groups.output_partitioning().partition_count();
    let by = keys.iter().map(|(key, _)| Arc::clone(key)).collect();
    Ok(Arc::new(AggregateExec::try_new(
        AggregateMode::PartialReduce,
        PhysicalGroupBy::new_single(keys.to_vec()),
        aggregates.to_vec(),
        vec![None; aggregates.len()],
        Arc::new(RepartitionExec::try_new(groups, Partitioning::Hash(by, partitions))?),
        Arc::clone(schema),
    )?))
}

/// Returns true if the partial state of an aggregate has the same size for any number of rows, and does not depend on their
/// order.
fn merges_cheaply(aggregate: &AggregateFunctionExpr) -> Result<bool> {
    let fixed = !aggregate.is_distinct() && aggregate.order_bys().is_empty();
    Ok(fixed && aggregate.state_fields()?.iter().all(|field| !field.data_type().is_nested()))
}

/// A set whose groups are those of a finer one, grouped by fewer keys.
#[derive(Debug)]
struct Set {
    group_by: PhysicalGroupBy,
    /// Groups partial states that have the schema of its own.
    aggregate: Node,
}

impl Set {
    /// Returns for each key whether it is NULL in this set.
    fn nulls(&self) -> &[bool] {
        &self.group_by.groups()[0]
    }

    /// Returns true if another set has the keys of this one.
    fn is_coarser(&self, other: &Self) -> bool {
        self.nulls().iter().zip(other.nulls()).all(|(null, of_other)| *null || !of_other)
    }
}

/// Groups partial states by each set. Groups may repeat in its output, as in that of any partial aggregate: DataFusion's
/// aggregates get the states in chunks, and if one fails for lack of memory, the states of the chunk go to each set without
/// being grouped.
#[derive(Debug)]
struct GroupingSetsExec {
    /// Groups the input by all sets at once. It is not executed.
    aggregate: Node,
    sets: Arc<PhysicalGroupBy>,
    /// The sets, with the one of all keys first, and each after the finer ones.
    each: Arc<[Set]>,
    /// Returns the states without input: the empty set has a group nevertheless.
    of_nothing: Node,
}

impl DisplayAs for GroupingSetsExec {
    fn fmt_as(&self, how: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GroupingSetsExec: ")?;
        self.aggregate.fmt_as(how, f)
    }
}

impl ExecutionPlan for GroupingSetsExec {
    fn name(&self) -> &str {
        "GroupingSetsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.aggregate.properties()
    }

    fn children(&self) -> Vec<&Node> {
        self.aggregate.children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.aggregate.apply_expressions(f)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Node>) -> Result<Node> {
        let aggregate = replace_children_if_necessary(Arc::clone(&self.aggregate), children)?;
        Ok(Arc::new(Self {
            aggregate,
            sets: Arc::clone(&self.sets),
            each: Arc::clone(&self.each),
            of_nothing: Arc::clone(&self.of_nothing),
        }))
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.aggregate.statistics_from_inputs(inputs, args)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let bytes = match context.memory_pool().memory_limit() {
            MemoryLimit::Finite(bytes) => bytes as u64 / 64,
            _ => u64::MAX,
        };
        let input = self.children()[0].execute(partition, Arc::clone(&context))?;
        let (sets, each, schema) = (Arc::clone(&self.sets), Arc::clone(&self.each), self.schema());
        let mut of_nothing = Some(self.of_nothing.execute(0, Arc::clone(&context))?);
        let grouped = futures::stream::try_unfold((input, bytes), move |(mut input, bytes)| {
            let (sets, each, schema) = (Arc::clone(&sets), Arc::clone(&each), Arc::clone(&schema));
            let context = Arc::clone(&context);
            let of_nothing = of_nothing.take();
            async move {
                let chunk = next_chunk(&mut input, bytes).await?;
                if chunk.is_empty() {
                    return Ok::<_, DataFusionError>(of_nothing.map(|states| (states, (input, bytes))));
                }
                let (grouped, bytes): (SendableRecordBatchStream, u64) =
                    match in_groups(&chunk, &each, &schema, &context).await {
                        Err(error) if matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)) => {
                            let to = Arc::clone(&schema);
                            let all = chunk.into_iter().map(move |batch| in_each_set(&batch, &sets, &to));
                            let all = futures::stream::iter(all)
                                .map_ok(|batches| futures::stream::iter(batches.into_iter().map(Ok)));
                            (Box::pin(RecordBatchStreamAdapter::new(schema, all.try_flatten())), bytes / 2)
                        }
                        grouped => {
                            let grouped = futures::stream::iter(grouped?.into_iter().map(Ok));
                            (Box::pin(RecordBatchStreamAdapter::new(schema, grouped)), bytes)
                        }
                    };
                Ok(Some((grouped, (input, bytes))))
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), grouped.try_flatten())))
    }
}

/// Returns the states of a chunk, grouped by each set.
async fn in_groups(
    chunk: &[RecordBatch],
    each: &[Set],
    schema: &SchemaRef,
    context: &Arc<TaskContext>,
) -> Result<Vec<RecordBatch>> {
    let mut of_sets: Vec<Vec<RecordBatch>> = Vec::with_capacity(each.len());
    for set in each {
        let finer = each.iter().zip(&of_sets).filter(|(other, _)| set.is_coarser(other));
        let smallest = finer.min_by_key(|(_, rows)| rows.iter().map(RecordBatch::num_rows).sum::<usize>());
        of_sets.push(match smallest {
            Some((_, rows)) => {
                let rows = MemorySourceConfig::try_new_exec(slice::from_ref(rows), Arc::clone(schema), None)?;
                let grouped = replace_children_if_necessary(Arc::clone(&set.aggregate), vec![rows])?;
                grouped.execute(0, Arc::clone(context))?.try_collect().await?
            }
            // The set of all keys: the chunk consists of its groups.
            None => {
                let rows = chunk.iter().map(|batch| in_each_set(batch, &set.group_by, schema));
                rows.collect::<Result<Vec<_>>>()?.concat()
            }
        });
    }
    Ok(of_sets.concat())
}

/// Returns the states of a batch in each set, without grouping them.
fn in_each_set(batch: &RecordBatch, sets: &PhysicalGroupBy, schema: &SchemaRef) -> Result<Vec<RecordBatch>> {
    // Behind the keys and the number of the set.
    let states = &batch.columns()[sets.num_group_exprs()..];
    let in_set = |mut columns: Vec<ArrayRef>| {
        columns.extend_from_slice(states);
        Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
    };
    evaluate_group_by(sets, batch)?.into_iter().map(in_set).collect()
}

/// Returns the next batches, of at least `bytes` unless they are the last; none at the end.
async fn next_chunk(input: &mut SendableRecordBatchStream, bytes: u64) -> Result<Vec<RecordBatch>> {
    let (mut chunk, mut so_far) = (Vec::new(), 0);
    while so_far < bytes
        && let Some(batch) = input.try_next().await?
    {
        so_far += batch_bytes(&batch);
        chunk.push(batch);
    }
    Ok(chunk)
}

#[cfg(test)]
mod tests {
    use super::*;

    use datafusion::arrow::array::Int64Array;
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::common::ScalarValue;
    use datafusion::execution::session_state::SessionStateBuilder;
    use datafusion::physical_plan::displayable;
    use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};

    use crate::plan::pushdown;

    /// Runs a query on 50,000 rows, and 70 rows to join. Returns its plan and its sorted rows.
    async fn run(sql: &str, ours: bool, large_exchange_bytes: usize) -> (String, Vec<String>) {
        let mut builder = SessionStateBuilder::new_with_default_features()
            .with_config(SessionConfig::new().with_target_partitions(2));
        if ours {
            let mut rules = pushdown::rules();
            let ours = rules.iter_mut().find(|rule| rule.name() == "sets_of_groups").unwrap();
            *ours = Arc::new(SetsOfGroups { large_exchange_bytes });
            builder = builder.with_physical_optimizer_rules(rules);
        }
        let context = SessionContext::new_with_state(builder.build());
        let folder = tempfile::tempdir().unwrap();
        for (name, rows) in [
            ("t", "value % 7 AS a, nullif(value % 11, 5) AS b, value AS v FROM range(50000)"),
            ("few", "value AS k, value % 5 AS c, nullif(value % 9, 2) AS d FROM range(70)"),
        ] {
            // Files have the statistics by which the rows of a join are estimated.
            let path = folder.path().join(format!("{name}.parquet")).display().to_string();
            let copy = format!("COPY (SELECT {rows}) TO '{path}'");
            context.sql(&copy).await.unwrap().collect().await.unwrap();
            context.register_parquet(name, path, ParquetReadOptions::default()).await.unwrap();
        }
        let plan = context.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        let batches =
            datafusion::physical_plan::collect(Arc::clone(&plan), context.task_ctx()).await.unwrap();
        let table = datafusion::arrow::util::pretty::pretty_format_batches(&batches).unwrap().to_string();
        let mut rows: Vec<String> = table.lines().map(str::to_string).collect();
        rows.sort();
        (displayable(plan.as_ref()).indent(false).to_string(), rows)
    }

    #[tokio::test]
    async fn sets_of_groups_have_the_rows_of_sets_of_rows() {
        let aggregates = "count(*), sum(v) FILTER (WHERE v % 2 = 0), avg(v), min(b), max(v)";
        for (keys, select, is_ours) in [
            ("ROLLUP (a, b)", "grouping(a)", true),
            ("CUBE (a, b + 1)", "grouping(a)", true),
            ("GROUPING SETS ((a, b), (a), (b), ())", "grouping(b)", true),
            ("GROUPING SETS ((a, b), (a, b), (b), ())", "grouping(b)", false),
            ("a, ROLLUP (b)", "a", true),
            ("GROUPING SETS ((a), (b))", "a", false),
            ("ROLLUP (a)", "count(DISTINCT b)", false),
            ("ROLLUP (a)", "array_agg(v ORDER BY v)", false),
            ("a", "a", false),
        ] {
            for rows in ["", "WHERE v < 0"] {
                let sql = format!("SELECT {select} AS x, a, {aggregates} FROM t {rows} GROUP BY {keys}");
                let (plan, rows) = run(&sql, true, LARGE_EXCHANGE_BYTES).await;
                assert_eq!(plan.contains("GroupingSetsExec"), is_ours, "{sql}: {plan}");
                assert_eq!(rows, run(&sql, false, 0).await.1, "{sql}");
            }
        }
    }

    #[tokio::test]
    async fn groups_that_partitions_share_are_exchanged_first() {
        let aggregates = "count(*), sum(v) FILTER (WHERE v % 2 = 0), avg(v), min(b), max(v)";
        for (keys, rows, large_exchange_bytes, is_first) in [
            ("ROLLUP (c, d)", "t JOIN few ON a = k", 0, true),
            ("CUBE (c, d + 1)", "t LEFT JOIN few ON a = k WHERE v % 10 > 2", 0, true),
            ("ROLLUP (c, d)", "t JOIN few ON a = k WHERE v % 10 < 0", 0, true),
            ("ROLLUP (c, d)", "t JOIN few ON a = k", LARGE_EXCHANGE_BYTES, false),
            ("ROLLUP (c, v)", "t JOIN few ON a = k", 0, false),
            ("ROLLUP (c, b)", "(SELECT a AS c, b, v FROM t)", 0, false),
        ] {
            let sql = format!("SELECT c, {aggregates} FROM {rows} GROUP BY {keys}");
            let (plan, rows) = run(&sql, true, large_exchange_bytes).await;
            assert!(plan.contains("GroupingSetsExec"), "{sql}: {plan}");
            assert_eq!(plan.contains("mode=PartialReduce, gby=[c"), is_first, "{sql}: {plan}");
            assert_eq!(rows, run(&sql, false, 0).await.1, "{sql}");
        }
    }

    #[test]
    fn states_in_each_set_are_those_of_its_groups() {
        let schema = |names: &[&str]| {
            let field = |name: &&str| Field::new(*name, DataType::Int64, true);
            Arc::new(Schema::new(names.iter().map(field).collect::<Vec<_>>()))
        };
        let column = |values: [i64; 2]| Arc::new(Int64Array::from_iter_values(values)) as ArrayRef;
        let states = RecordBatch::try_new(
            schema(&["a", "b", "id", "sum"]),
            vec![column([1, 2]), column([3, 4]), column([0, 0]), column([5, 6])],
        )
        .unwrap();
        let key =
            |name: &str, at| (Arc::new(Column::new(name, at)) as Arc<dyn PhysicalExpr>, name.to_string());
        let null = |name: &str| (lit(ScalarValue::Int64(None)), name.to_string());
        let sets = vec![vec![false, false], vec![false, true], vec![true, true]];
        let sets =
            PhysicalGroupBy::new(vec![key("a", 0), key("b", 1)], vec![null("a"), null("b")], sets, true);
        let mut fields = schema(&["a", "b", "id", "sum"]).fields().to_vec();
        fields[2] = Arc::new(Field::new("id", DataType::UInt8, false));
        let rows = in_each_set(&states, &sets, &Arc::new(Schema::new(fields))).unwrap();
        let rows = datafusion::arrow::util::pretty::pretty_format_batches(&rows).unwrap().to_string();
        let rows: Vec<Vec<&str>> = rows
            .lines()
            .skip(3)
            .map(|row| row.split(['|', ' ']).filter(|v| !v.is_empty()).collect())
            .collect();
        let expected = [["1", "3", "0", "5"], ["2", "4", "0", "6"]];
        assert_eq!(rows[..2], expected);
        assert_eq!(rows[2..4], [["1", "1", "5"], ["2", "1", "6"]]);
        assert_eq!(rows[4..6], [["3", "5"], ["3", "6"]]);
    }
}
