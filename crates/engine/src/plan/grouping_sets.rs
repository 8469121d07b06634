//! Computes grouping sets from groups instead of rows.
//!
//! DataFusion 55 looks up every row once for each set, and `ROLLUP (a, b, c)` has four. Sets that include the one of all
//! keys, as those of ROLLUP and CUBE do, need no row twice: rows are grouped by all keys, and the partial states of these
//! groups by each set.

use std::sync::Arc;
use std::{fmt, slice};

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Aggregate;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{Column, lit};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{
    AggregateExec, AggregateMode, PhysicalGroupBy, evaluate_group_by,
};
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::TryStreamExt;

use crate::execute::compact::batch_bytes;
use crate::plan::cut::Node;

/// The rule, which runs after all others.
#[derive(Debug)]
pub(crate) struct SetsOfGroups;

impl PhysicalOptimizerRule for SetsOfGroups {
    fn optimize(&self, plan: Node, _: &ConfigOptions) -> Result<Node> {
        plan.transform_up(|node| {
            Ok(match of_groups(&node)? {
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
fn of_groups(node: &Node) -> Result<Option<Node>> {
    let partial = node.downcast_ref::<AggregateExec>().filter(|a| *a.mode() == AggregateMode::Partial);
    let Some(partial) = partial.filter(|a| a.limit_options().is_none()) else { return Ok(None) };
    let (sets, aggregates) = (partial.group_expr(), partial.aggr_expr());
    let has_all_keys = sets.groups().iter().any(|nulls| !nulls.contains(&true));
    if !sets.has_grouping_set() || sets.groups().len() < 2 || !has_all_keys {
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
    let by_name = groups.schema();
    let columns = by_name.fields().iter().map(|field| field.name()).enumerate().map(column);
    let mut columns: Vec<ProjectionExpr> = columns.map(ProjectionExpr::from).collect();
    // States are expected behind the keys and the number of the set.
    columns.insert(sets.expr().len(), (lit(0_u8), Aggregate::INTERNAL_GROUPING_ID.to_string()).into());
    let states = Arc::new(ProjectionExec::try_new(columns, groups)?);
    let keys = sets.expr().iter().map(|(_, name)| name).enumerate().map(column).collect();
    let sets = Arc::new(PhysicalGroupBy::new(keys, sets.null_expr().to_vec(), sets.groups().to_vec(), true));
    let of_states = AggregateExec::try_new(
        AggregateMode::PartialReduce,
        Arc::clone(&sets),
        aggregates.to_vec(),
        vec![None; aggregates.len()],
        states,
        schema,
    )?;
    if of_states.schema() != partial.schema() {
        return Ok(None);
    }
    let nothing = Arc::new(EmptyExec::new(partial.input().schema()));
    let of_nothing = replace_children_if_necessary(Arc::clone(node), vec![nothing])?;
    Ok(Some(Arc::new(GroupingSetsExec { aggregate: Arc::new(of_states), sets, of_nothing })))
}

/// Returns true if the partial state of an aggregate has the same size for any number of rows, and does not depend on their
/// order.
fn merges_cheaply(aggregate: &AggregateFunctionExpr) -> Result<bool> {
    let fixed = !aggregate.is_distinct() && aggregate.order_bys().is_empty();
    Ok(fixed && aggregate.state_fields()?.iter().all(|field| !field.data_type().is_nested()))
}

/// Groups partial states by each set. Groups may repeat in its output, as in that of any partial aggregate: DataFusion's
/// aggregate gets the states in chunks, and if it fails on one for lack of memory, its states go to each set without being
/// grouped.
#[derive(Debug)]
struct GroupingSetsExec {
    aggregate: Node,
    sets: Arc<PhysicalGroupBy>,
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
        let (aggregate, sets) = (Arc::clone(&self.aggregate), Arc::clone(&self.sets));
        let mut of_nothing = Some(self.of_nothing.execute(0, Arc::clone(&context))?);
        let grouped = futures::stream::try_unfold((input, bytes), move |(mut input, bytes)| {
            let (aggregate, sets, context) =
                (Arc::clone(&aggregate), Arc::clone(&sets), Arc::clone(&context));
            let of_nothing = of_nothing.take();
            async move {
                let chunk = next_chunk(&mut input, bytes).await?;
                if chunk.is_empty() {
                    return Ok::<_, DataFusionError>(of_nothing.map(|states| (states, (input, bytes))));
                }
                let schema = aggregate.schema();
                let rows = MemorySourceConfig::try_new_exec(slice::from_ref(&chunk), input.schema(), None)?;
                let of_chunk = replace_children_if_necessary(aggregate, vec![rows])?;
                let (grouped, bytes): (SendableRecordBatchStream, u64) =
                    match of_chunk.execute(0, context)?.try_collect::<Vec<_>>().await {
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
    use datafusion::prelude::{SessionConfig, SessionContext};

    use crate::plan::pushdown;

    /// Runs a query on 50,000 rows. Returns its plan and its sorted rows.
    async fn run(sql: &str, ours: bool) -> (String, Vec<String>) {
        let mut builder = SessionStateBuilder::new_with_default_features()
            .with_config(SessionConfig::new().with_target_partitions(2));
        if ours {
            builder = builder.with_physical_optimizer_rules(pushdown::rules());
        }
        let context = SessionContext::new_with_state(builder.build());
        let rows = "SELECT value % 7 AS a, nullif(value % 11, 5) AS b, value AS v FROM range(50000)";
        context.sql(&format!("CREATE TABLE t AS {rows}")).await.unwrap().collect().await.unwrap();
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
            ("GROUPING SETS ((a, b), (a, b), (b), ())", "grouping(b)", true),
            ("a, ROLLUP (b)", "a", true),
            ("GROUPING SETS ((a), (b))", "a", false),
            ("ROLLUP (a)", "count(DISTINCT b)", false),
            ("ROLLUP (a)", "array_agg(v ORDER BY v)", false),
            ("a", "a", false),
        ] {
            for rows in ["", "WHERE v < 0"] {
                let sql = format!("SELECT {select} AS x, a, {aggregates} FROM t {rows} GROUP BY {keys}");
                let (plan, rows) = run(&sql, true).await;
                assert_eq!(plan.contains("GroupingSetsExec"), is_ours, "{sql}: {plan}");
                assert_eq!(rows, run(&sql, false).await.1, "{sql}");
            }
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
