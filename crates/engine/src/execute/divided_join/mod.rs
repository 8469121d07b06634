//! A hash join whose build side is divided by its keys, while its probe side streams.
//!
//! DataFusion's partitioned join reads both sides from an exchange. Here only the build side goes through one. Each of its
//! partitions becomes a [`Table`] in a multitask of its own. When all tables are there, other multitasks look up their rows
//! of the probe side in them as they compute these. So the probe side is never whole in memory and needs no stage of its
//! own, and cores still build tables in parallel.
//!
//! Rows of the build side that a join returns by whether they have a partner are a partition of their own, the last one. It
//! runs after the others, whichever of them ends last, so that the answer does not depend on it.
//!
//! If the tables do not fit into memory together, the probe side has been divided as well ([`crate::plan::cut`]). Then each
//! multitask builds the table of its own partition only.

mod joining;
mod table;

use std::fmt;
use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::joins::utils::build_join_schema;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::TryStreamExt;

use crate::execute::divided_join::joining::{Joining, Output, Shared, Step, emits_build_side};
use crate::execute::divided_join::table::Table;
use crate::plan::cut::Node;

/// The join in one stage.
pub(crate) struct DividedJoinExec {
    shared: Arc<Shared>,
    probe: Node,
    properties: Arc<PlanProperties>,
}

impl DividedJoinExec {
    /// Creates the join from one whose build side has been divided by the keys of that side, in their order, and whose
    /// probe side has been as well if it is `paired`.
    pub(crate) fn new(join: &HashJoinExec, paired: bool) -> Self {
        let (build, probe) = (join.left(), join.right());
        let of_probe = probe.output_partitioning().partition_count();
        let has_last = emits_build_side(*join.join_type()) && !paired;
        let multitasks = of_probe + usize::from(has_last);
        let (_, columns) = build_join_schema(&build.schema(), &probe.schema(), join.join_type());
        let columns = match &join.projection {
            Some(projection) => projection.iter().map(|&column| columns[column].clone()).collect(),
            None => columns,
        };
        let (build_keys, probe_keys) = join.on().iter().cloned().unzip();
        let metrics = ExecutionPlanMetricsSet::new();
        let table_bytes = MetricBuilder::new(&metrics).peak_memory_usage("build_mem_used", 0);
        let partitions = build.output_partitioning().partition_count();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(join.schema()),
            Partitioning::UnknownPartitioning(multitasks),
            join.properties().emission_type,
            join.properties().boundedness,
        );
        let shared = Shared {
            build: Arc::clone(build),
            probe: probe.schema(),
            join_type: *join.join_type(),
            nulls: join.null_equality(),
            build_keys,
            probe_keys,
            filter: join.filter().cloned(),
            schema: join.schema(),
            columns,
            fetch: join.fetch(),
            tables: (0..partitions).map(|_| OnceLock::new()).collect(),
            paired,
            metrics,
            table_bytes,
        };
        Self { shared: Arc::new(shared), probe: Arc::clone(probe), properties: Arc::new(properties) }
    }

    /// Returns the build side.
    pub(crate) fn build(&self) -> &Node {
        &self.shared.build
    }

    /// Returns true if the probe side is divided like the build side, so that no tables are built in advance.
    pub(crate) fn is_paired(&self) -> bool {
        self.shared.paired
    }

    /// Returns a node whose partitions build one table each and have no rows. They must all end before the join is executed.
    pub(crate) fn builds(&self) -> Result<Node> {
        let building = |partition| Arc::new(Building { shared: Arc::clone(&self.shared), partition }) as _;
        let partitions = (0..self.shared.tables.len()).map(building).collect();
        let builds =
            StreamingTableExec::try_new(Arc::clone(&self.shared.schema), partitions, None, [], false, None)?;
        Ok(Arc::new(builds))
    }

    /// Returns the partition that returns rows of the build side, if there is one. It may run only after all others.
    pub(crate) fn last(&self) -> Option<usize> {
        let has_last = emits_build_side(self.shared.join_type) && !self.shared.paired;
        has_last.then(|| self.probe.output_partitioning().partition_count())
    }
}

impl fmt::Debug for DividedJoinExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DividedJoinExec({} tables, {:?})", self.shared.tables.len(), self.probe)
    }
}

impl DisplayAs for DividedJoinExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DividedJoinExec: tables={}", self.shared.tables.len())
    }
}

impl ExecutionPlan for DividedJoinExec {
    fn name(&self) -> &str {
        "DividedJoinExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    /// Returns the probe side only: the build side is an input of all multitasks, not of one.
    fn children(&self) -> Vec<&Node> {
        vec![&self.probe]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Node>) -> Result<Node> {
        Ok(self)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let shared = Arc::clone(&self.shared);
        if shared.paired {
            let probe = Arc::clone(&self.probe);
            let joined = futures::stream::once(async move {
                let tables = vec![Arc::new(Building::table(&shared, partition, Arc::clone(&context)).await?)];
                let empty = tables[0].rows == 0;
                let (probe, step) = match empty && shared.join_type.empty_build_side_produces_empty_result() {
                    true => (None, Step::End),
                    false => (Some(probe.execute(partition, context)?), Step::Ask),
                };
                let joining = Joining { probe, tables, step, output: Output::new(&shared), shared };
                Ok::<_, DataFusionError>(joining.batches())
            });
            let batches = joined.try_flatten();
            return Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.shared.schema), batches)));
        }
        let tables = shared.tables()?;
        let is_last = self.last() == Some(partition);
        let empty = tables.iter().all(|table| table.rows == 0);
        let step = match is_last {
            _ if empty && shared.join_type.empty_build_side_produces_empty_result() => Step::End,
            true => Step::Rest(0, 0),
            false => Step::Ask,
        };
        let probe = if is_last { None } else { Some(self.probe.execute(partition, context)?) };
        let joining = Joining { probe, tables, step, output: Output::new(&shared), shared };
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.shared.schema), joining.batches())))
    }

    /// Returns the memory of all tables, which live as long as the stage.
    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.shared.metrics.clone_inner())
    }
}

/// Builds the table of one partition.
struct Building {
    shared: Arc<Shared>,
    partition: usize,
}

impl Building {
    async fn table(shared: &Shared, partition: usize, context: Arc<TaskContext>) -> Result<Table> {
        let batches = shared.build.execute(partition, Arc::clone(&context))?.try_collect().await?;
        let reservation = MemoryConsumer::new("HashJoinInput").register(context.memory_pool());
        let (schema, visited) = (shared.build.schema(), emits_build_side(shared.join_type));
        let table = Table::build(batches, &schema, &shared.build_keys, shared.nulls, visited, reservation)?;
        if shared.paired {
            shared.table_bytes.set_max(table.bytes());
        } else {
            shared.table_bytes.add(table.bytes());
        }
        Ok(table)
    }

    async fn run(shared: Arc<Shared>, partition: usize, context: Arc<TaskContext>) -> Result<RecordBatch> {
        let table = Self::table(&shared, partition, context).await?;
        // A partition is built once.
        let _ = shared.tables[partition].set(Arc::new(table));
        Ok(RecordBatch::new_empty(Arc::clone(&shared.schema)))
    }
}

impl fmt::Debug for Building {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {}", self.partition)
    }
}

impl PartitionStream for Building {
    fn schema(&self) -> &SchemaRef {
        &self.shared.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let built = futures::stream::once(Self::run(Arc::clone(&self.shared), self.partition, context));
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.shared.schema), built))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{ArrayRef, Int64Array};
    use datafusion::arrow::compute::cast;
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::arrow::util::pretty::pretty_format_batches;
    use datafusion::common::{JoinSide, JoinType, NullEquality};
    use datafusion::datasource::memory::MemorySourceConfig;
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::PhysicalExprRef;
    use datafusion::physical_expr::expressions::{binary, col};
    use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
    use datafusion::physical_plan::collect;
    use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
    use datafusion::physical_plan::joins::{HashJoinExecBuilder, PartitionMode};
    use datafusion::physical_plan::metrics::Time;
    use datafusion::physical_plan::repartition::BatchPartitioner;
    use futures::StreamExt;

    const TYPES: [JoinType; 10] = [
        JoinType::Inner,
        JoinType::Left,
        JoinType::Right,
        JoinType::Full,
        JoinType::LeftSemi,
        JoinType::RightSemi,
        JoinType::LeftAnti,
        JoinType::RightAnti,
        JoinType::LeftMark,
        JoinType::RightMark,
    ];

    /// One side of a join.
    struct Side {
        schema: SchemaRef,
        batches: Vec<RecordBatch>,
    }

    impl Side {
        /// Makes batches with a key of a type and a number, both sometimes NULL. Many keys are equal.
        fn new(names: [&str; 2], key: &DataType, batches: usize, keys: u64, state: &mut u64) -> Self {
            let types = [key.clone(), DataType::Int64];
            let fields: Vec<Field> =
                names.iter().zip(types).map(|(name, of)| Field::new(*name, of, true)).collect();
            let schema = Arc::new(Schema::new(fields));
            let mut column = |of: u64, to: &DataType| {
                let value = |_| {
                    *state ^= *state << 13;
                    *state ^= *state >> 7;
                    *state ^= *state << 17;
                    Some(*state % of).filter(|value| *value > 0).map(|value| value as i64)
                };
                let numbers: ArrayRef = Arc::new((0..500).map(value).collect::<Int64Array>());
                cast(&numbers, to).unwrap()
            };
            let mut batch = || {
                let columns = vec![column(keys, key), column(100, &DataType::Int64)];
                RecordBatch::try_new(Arc::clone(&schema), columns).unwrap()
            };
            let batches = (0..batches).map(|_| batch()).collect();
            Self { schema, batches }
        }

        fn column(&self, index: usize) -> PhysicalExprRef {
            col(self.schema.field(index).name(), &self.schema).unwrap()
        }

        /// Returns a node with the batches in partitions.
        fn node(&self, partitions: &[Vec<RecordBatch>]) -> Node {
            MemorySourceConfig::try_new_exec(partitions, Arc::clone(&self.schema), None).unwrap()
        }
    }

    /// Returns the sorted lines of all partitions, which run at the same time except for the last one of a divided join.
    async fn lines(node: Node) -> Vec<String> {
        if let Some(join) = node.downcast_ref::<DividedJoinExec>().filter(|join| !join.is_paired()) {
            let built = collect(join.builds().unwrap(), Arc::default()).await.unwrap();
            assert!(built.iter().all(|batch| batch.num_rows() == 0));
        }
        let partitions = node.output_partitioning().partition_count();
        let last = node.downcast_ref::<DividedJoinExec>().and_then(DividedJoinExec::last);
        let run = |partition| {
            let stream = node.execute(partition, Arc::default()).unwrap();
            tokio::spawn(stream.collect::<Vec<_>>())
        };
        let first = (0..partitions).filter(|partition| Some(*partition) != last).map(run);
        let mut ran = futures::future::join_all(first).await;
        ran.extend(futures::future::join_all(last.map(run)).await);
        let batches: Vec<RecordBatch> =
            ran.into_iter().flat_map(Result::unwrap).map(Result::unwrap).collect();
        let mut lines: Vec<String> =
            pretty_format_batches(&batches).unwrap().to_string().lines().map(str::to_string).collect();
        lines.sort();
        lines
    }

    /// Compares all kinds of joins on `keys` of the columns with those of one table.
    async fn compare(build: &Side, probe: &Side, keys: usize, tables: usize) {
        let on: Vec<_> = (0..keys).map(|key| (build.column(key), probe.column(key))).collect();
        let divided = |side: &Side, keys| {
            let by_keys = Partitioning::Hash(keys, tables);
            let mut partitioner = BatchPartitioner::try_new(by_keys, Time::new(), 0, 1).unwrap();
            let mut parts = vec![Vec::new(); tables];
            for batch in &side.batches {
                let mut put = |to: usize, part| {
                    parts[to].push(part);
                    Ok(())
                };
                partitioner.partition(batch.clone(), &mut put).unwrap();
            }
            side.node(&parts)
        };
        let (build_keys, probe_keys) = on.iter().cloned().unzip();
        let (parts, probe_parts) = (divided(build, build_keys), divided(probe, probe_keys));
        let of_multitask = |at| probe.batches.iter().skip(at).step_by(3).cloned().collect();
        let probe_side = probe.node(&[of_multitask(0), of_multitask(1), of_multitask(2)]);
        let side = |side| ColumnIndex { side, index: 1 };
        let both = Arc::new(Schema::new(vec![build.schema.field(1).clone(), probe.schema.field(1).clone()]));
        let less = binary(col("x", &both).unwrap(), Operator::Lt, col("y", &both).unwrap(), &both).unwrap();
        let less = JoinFilter::new(less, vec![side(JoinSide::Left), side(JoinSide::Right)], both);
        for kind in TYPES {
            for filter in [None, Some(&less)] {
                for nulls in [NullEquality::NullEqualsNothing, NullEquality::NullEqualsNull] {
                    let join = |left: &Node, right: &Node, mode| {
                        HashJoinExecBuilder::new(Arc::clone(left), Arc::clone(right), on.clone(), kind)
                            .with_partition_mode(mode)
                            .with_filter(filter.cloned())
                            .with_null_equality(nulls)
                            .build()
                            .unwrap()
                    };
                    let one: Node = Arc::new(CoalescePartitionsExec::new(Arc::clone(&parts)));
                    let one = join(&one, &probe_side, PartitionMode::CollectLeft);
                    let one = lines(Arc::new(one)).await;
                    for (right, paired) in [(&probe_side, false), (&probe_parts, true)] {
                        let join = join(&parts, right, PartitionMode::Partitioned);
                        let conditions = filter.is_some();
                        assert_eq!(
                            lines(Arc::new(DividedJoinExec::new(&join, paired))).await,
                            one,
                            "{kind} {nulls:?} {conditions} {keys} {tables} {paired} {:?}",
                            build.schema.field(0).data_type()
                        );
                    }
                }
            }
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn every_join_has_the_rows_of_one_table() {
        let mut state = 88_172_645_463_325_252_u64;
        println!("seed {state}");
        let key_types = [DataType::Int64, DataType::Int32, DataType::Float64, DataType::Utf8View];
        for (key, tables) in key_types.iter().zip([4, 3, 1, 5]) {
            // The second has an empty build side, the third an empty probe side.
            for (build, probe) in [(3, 4), (0, 2), (2, 0)] {
                let build = Side::new(["a", "x"], key, build, 300, &mut state);
                let probe = Side::new(["b", "y"], key, probe, 400, &mut state);
                compare(&build, &probe, 1, tables).await;
                compare(&build, &probe, 2, tables).await;
            }
        }
    }

    #[tokio::test]
    async fn row_with_many_partners_is_joined_in_steps() {
        let mut state = 7;
        let build = Side::new(["a", "x"], &DataType::Int64, 60, 2, &mut state);
        let probe = Side::new(["b", "y"], &DataType::Int64, 1, 2, &mut state);
        let some = |side: &Side, rows| Side {
            schema: Arc::clone(&side.schema),
            batches: side.batches.iter().map(|batch| batch.slice(0, rows)).collect(),
        };
        compare(&build, &some(&probe, 3), 1, 2).await;
    }
}
