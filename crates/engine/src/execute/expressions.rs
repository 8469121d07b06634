//! Measures the expressions of filters, projections and conditions of joins, in some of their batches.
//!
//! Each expression of a projection, and each part of a condition between ANDs, is wrapped in a [`TimedExpr`]. An AND keeps
//! its own rules of which parts it evaluates for which rows. Columns and literals cost nothing and stay as they are.
//!
//! The first calls of an expression are timed, and then one of every few: a query of few batches is measured as a whole,
//! and one of many at next to no cost. The time is the wall clock's, since the thread's clock of core time takes half a
//! microsecond to read. It is scaled to the rows of all calls, and expressions take at most the core time that their
//! operator has for them.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use datafusion::arrow::array::BooleanArray;
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result;
use datafusion::datasource::physical_plan::FileSource;
use datafusion::logical_expr::sort_properties::ExprProperties;
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
use datafusion::physical_expr::projection::{ProjectionExpr, ProjectionExprs};
use datafusion::physical_expr_common::physical_expr::fmt_sql;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder};
use datafusion::physical_plan::projection::ProjectionExec;
use pellucid_trace::Expression;

use crate::plan::cut::Node;
use crate::scan::column_work::share;

/// Calls of an expression that are all timed.
const FIRST_CALLS: u64 = 8;
/// After those, one of this many calls is timed.
const EVERY_CALL: u64 = 16;
/// Maximum number of expressions of an operator in a trace.
const MAX_RECORDED: usize = 8;
/// Maximum number of characters of an expression in a trace.
const MAX_TEXT: usize = 160;

/// The timers of a node's expressions.
type Timers = Vec<Arc<Timer>>;

/// The time of an expression, over all partitions.
#[derive(Debug)]
pub(crate) struct Timer {
    /// The expression as planned.
    expr: Arc<dyn PhysicalExpr>,
    calls: AtomicU64,
    rows: AtomicU64,
    /// Rows of the timed calls.
    timed_rows: AtomicU64,
    /// Wall-clock time of the timed calls.
    timed_ns: AtomicU64,
}

impl Timer {
    /// Returns a timer of `expr`; `None` if it costs nothing.
    pub(crate) fn of(expr: &Arc<dyn PhysicalExpr>) -> Option<Arc<Self>> {
        let free = expr.is::<Column>() || expr.is::<Literal>();
        let expr = Arc::clone(expr);
        let zero = AtomicU64::default;
        let timer = Self { expr, calls: zero(), rows: zero(), timed_rows: zero(), timed_ns: zero() };
        (!free).then(|| Arc::new(timer))
    }

    /// Returns `expr`, whose evaluation this timer measures.
    pub(crate) fn wrap(self: &Arc<Self>, expr: Arc<dyn PhysicalExpr>) -> Arc<dyn PhysicalExpr> {
        Arc::new(TimedExpr { expr, timer: Arc::clone(self) })
    }

    fn time<T>(&self, rows: usize, evaluate: impl FnOnce() -> T) -> T {
        let call = self.calls.fetch_add(1, Relaxed);
        self.rows.fetch_add(rows as u64, Relaxed);
        if call >= FIRST_CALLS && !call.is_multiple_of(EVERY_CALL) {
            return evaluate();
        }
        let started = Instant::now();
        let value = evaluate();
        self.timed_ns.fetch_add(started.elapsed().as_nanos() as u64, Relaxed);
        self.timed_rows.fetch_add(rows as u64, Relaxed);
        value
    }

    /// Returns the time of all calls, estimated from those that were timed.
    fn estimated_ns(&self) -> u64 {
        share(self.timed_ns.load(Relaxed), self.rows.load(Relaxed), self.timed_rows.load(Relaxed))
    }

    fn text(&self) -> String {
        let text = fmt_sql(self.expr.as_ref()).to_string();
        match text.char_indices().nth(MAX_TEXT) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }
}

/// Returns the most expensive of an operator's expressions, except those of less than 1 % of its core time. Together they
/// take at most `limit_ns`, the part of its core time that is not known to be something else.
pub(crate) fn most_expensive<'a>(
    timers: impl Iterator<Item = &'a Timer>,
    core_ns: u64,
    limit_ns: u64,
) -> Vec<Expression> {
    let mut times: Vec<(&Timer, u64)> = timers.map(|timer| (timer, timer.estimated_ns())).collect();
    let sum = times.iter().fold(0_u64, |sum, (_, ns)| sum.saturating_add(*ns));
    if sum > limit_ns {
        times.iter_mut().for_each(|(_, ns)| *ns = share(*ns, limit_ns, sum));
    }
    times.retain(|(_, ns)| *ns > 0 && *ns >= core_ns / 100);
    times.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    times.truncate(MAX_RECORDED);
    let expression = |(timer, cpu_ns): (&Timer, u64)| Expression {
        text: timer.text(),
        cpu_ns,
        rows: timer.rows.load(Relaxed),
    };
    times.into_iter().map(expression).collect()
}

/// Returns `node` with timed expressions, and their timers. Its properties are those of a node whose expressions are not
/// known, so that callers should see those of `node`.
///
/// # Errors
/// Returns an error if DataFusion cannot rebuild the node.
pub(crate) fn timed(node: Node) -> Result<(Node, Timers)> {
    let mut timers = Vec::new();
    let timed: Node = if let Some(filter) = node.downcast_ref::<FilterExec>() {
        let predicate = condition(filter.predicate(), &mut timers)?;
        Arc::new(FilterExecBuilder::from(filter).with_predicate(predicate).build()?)
    } else if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        let expr =
            |of: &ProjectionExpr| ProjectionExpr::new(wrapped(&of.expr, &mut timers), of.alias.clone());
        let exprs: Vec<ProjectionExpr> = projection.expr().iter().map(expr).collect();
        if timers.is_empty() {
            return Ok((node, timers));
        }
        let (input, schema) = (Arc::clone(projection.input()), node.schema());
        Arc::new(ProjectionExec::try_new_with_schema_metadata(exprs, input, &schema)?)
    } else if let Some((join, filter)) =
        node.downcast_ref::<HashJoinExec>().and_then(|j| Some((j, j.filter()?)))
    {
        join.builder().with_filter(Some(of_join(filter, &mut timers)?)).build_exec()?
    } else if let Some((join, filter)) =
        node.downcast_ref::<NestedLoopJoinExec>().and_then(|j| Some((j, j.filter()?)))
    {
        let filter = of_join(filter, &mut timers)?;
        Arc::new(NestedLoopJoinExecBuilder::from(join).with_filter(Some(filter)).build()?)
    } else {
        return Ok((node, timers));
    };
    Ok((timed, timers))
}

/// Returns a source that times the expressions of its projection, and their timers.
///
/// # Errors
/// Returns an error if DataFusion cannot rebuild the projection.
pub(crate) fn timed_source(source: &Arc<dyn FileSource>) -> Result<(Arc<dyn FileSource>, Timers)> {
    let mut timers = Vec::new();
    // A projection of the source's output, which the source merges with its own.
    let over = |(at, of): (usize, &ProjectionExpr)| {
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(&of.alias, at));
        let timer = Timer::of(&of.expr);
        timers.extend(timer.clone());
        ProjectionExpr::new(timer.map_or(Arc::clone(&column), |timer| timer.wrap(column)), of.alias.clone())
    };
    let projection = source.projection().into_iter().flat_map(ProjectionExprs::iter);
    let projection: ProjectionExprs = projection.enumerate().map(over).collect();
    let timed = if timers.is_empty() { None } else { source.try_pushdown_projection(&projection)? };
    Ok((timed.unwrap_or_else(|| Arc::clone(source)), timers))
}

fn of_join(filter: &JoinFilter, timers: &mut Timers) -> Result<JoinFilter> {
    let expr = condition(filter.expression(), timers)?;
    Ok(JoinFilter::new(expr, filter.column_indices().to_vec(), Arc::clone(filter.schema())))
}

/// Wraps the parts of a condition between ANDs.
fn condition(expr: &Arc<dyn PhysicalExpr>, timers: &mut Timers) -> Result<Arc<dyn PhysicalExpr>> {
    match expr.downcast_ref::<BinaryExpr>().filter(|binary| *binary.op() == Operator::And) {
        Some(and) => {
            let parts = vec![condition(and.left(), timers)?, condition(and.right(), timers)?];
            Arc::clone(expr).with_new_children(parts)
        }
        None => Ok(wrapped(expr, timers)),
    }
}

fn wrapped(expr: &Arc<dyn PhysicalExpr>, timers: &mut Timers) -> Arc<dyn PhysicalExpr> {
    let expr = Arc::clone(expr);
    let Some(timer) = Timer::of(&expr) else { return expr };
    let wrapped = timer.wrap(expr);
    timers.push(timer);
    wrapped
}

/// A wrapper that measures an expression. Its only child is the expression, so that walks of the tree find everything.
#[derive(Debug)]
struct TimedExpr {
    expr: Arc<dyn PhysicalExpr>,
    timer: Arc<Timer>,
}

impl fmt::Display for TimedExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.expr, f)
    }
}

impl PartialEq for TimedExpr {
    fn eq(&self, other: &Self) -> bool {
        self.expr.eq(&other.expr)
    }
}

impl Eq for TimedExpr {}

impl Hash for TimedExpr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.expr.hash(state);
    }
}

impl PhysicalExpr for TimedExpr {
    fn data_type(&self, input: &Schema) -> Result<DataType> {
        self.expr.data_type(input)
    }

    fn nullable(&self, input: &Schema) -> Result<bool> {
        self.expr.nullable(input)
    }

    fn return_field(&self, input: &Schema) -> Result<FieldRef> {
        self.expr.return_field(input)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.timer.time(batch.num_rows(), || self.expr.evaluate(batch))
    }

    fn evaluate_selection(&self, batch: &RecordBatch, selection: &BooleanArray) -> Result<ColumnarValue> {
        self.timer.time(selection.true_count(), || self.expr.evaluate_selection(batch, selection))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.expr]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(match children.pop() {
            Some(expr) => self.timer.wrap(expr),
            None => self,
        })
    }

    fn get_properties(&self, children: &[ExprProperties]) -> Result<ExprProperties> {
        Ok(children.first().cloned().unwrap_or_else(ExprProperties::new_unknown))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expr.fmt_sql(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{ArrayRef, Int64Array};
    use datafusion::arrow::datatypes::Field;
    use datafusion::arrow::util::pretty::pretty_format_batches;
    use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
    use datafusion::datasource::physical_plan::FileScanConfigBuilder;
    use datafusion::datasource::source::DataSourceExec;
    use datafusion::physical_expr::expressions::{binary, col, lit};
    use datafusion::physical_expr_common::physical_expr::is_volatile;
    use datafusion::physical_plan::collect;
    use datafusion::prelude::{CsvReadOptions, SessionConfig, SessionContext};

    use crate::scan::text;

    fn batch(a: &[Option<i64>], b: &[Option<i64>]) -> RecordBatch {
        let column = |values: &[Option<i64>]| Arc::new(Int64Array::from(values.to_vec())) as ArrayRef;
        RecordBatch::try_new(Arc::new(schema()), vec![column(a), column(b)]).unwrap()
    }

    fn schema() -> Schema {
        let field = |name| Field::new(name, DataType::Int64, true);
        Schema::new(vec![field("a"), field("b")])
    }

    fn compared(name: &str, op: Operator, value: i64) -> Arc<dyn PhysicalExpr> {
        binary(col(name, &schema()).unwrap(), op, lit(value), &schema()).unwrap()
    }

    fn and(left: Arc<dyn PhysicalExpr>, right: Arc<dyn PhysicalExpr>) -> Arc<dyn PhysicalExpr> {
        binary(left, Operator::And, right, &schema()).unwrap()
    }

    fn array(expr: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> ArrayRef {
        expr.evaluate(batch).unwrap().into_array(batch.num_rows()).unwrap()
    }

    fn rows_of(timers: &[Arc<Timer>]) -> Vec<u64> {
        timers.iter().map(|timer| timer.rows.load(Relaxed)).collect()
    }

    #[test]
    fn wrapped_condition_has_the_same_values_and_nulls() {
        let either =
            binary(compared("a", Operator::Lt, -3), Operator::Or, compared("b", Operator::Gt, 2), &schema());
        let parts = [compared("a", Operator::Gt, -8), either.unwrap(), compared("b", Operator::NotEq, 5)];
        let expr = parts.into_iter().reduce(and).unwrap();
        let mut timers = Vec::new();
        let wrapped = condition(&expr, &mut timers).unwrap();
        assert_eq!(timers.len(), 3);
        assert_eq!(wrapped.data_type(&schema()).unwrap(), DataType::Boolean);
        assert_eq!(wrapped.nullable(&schema()).unwrap(), expr.nullable(&schema()).unwrap());
        let mut state = 7_u64;
        println!("seed {state}");
        let mut value = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let drawn = (state >> 33) % 24;
            (drawn < 20).then_some(drawn as i64 - 10)
        };
        for rows in 0..200 {
            let (a, b): (Vec<_>, Vec<_>) = (0..rows).map(|_| (value(), value())).unzip();
            let batch = batch(&a, &b);
            assert_eq!(&array(&wrapped, &batch), &array(&expr, &batch), "{rows} rows");
            let selection: BooleanArray = a.iter().map(|a| Some(a.is_some_and(|a| a > 0))).collect();
            let selected = |expr: &Arc<dyn PhysicalExpr>| {
                expr.evaluate_selection(&batch, &selection).unwrap().into_array(rows).unwrap()
            };
            assert_eq!(&selected(&wrapped), &selected(&expr), "{rows} rows");
        }
        assert!(rows_of(&timers).iter().all(|rows| *rows > 0));
    }

    #[test]
    fn an_and_evaluates_its_second_part_only_where_it_must() {
        let expr = and(compared("a", Operator::Gt, 90), compared("b", Operator::Gt, 0));
        let mut timers = Vec::new();
        let wrapped = condition(&expr, &mut timers).unwrap();
        let numbers = |from: i64| (from..from + 90).map(Some).collect::<Vec<_>>();
        array(&wrapped, &batch(&numbers(0), &numbers(0)));
        assert_eq!(rows_of(&timers), [90, 0], "no row passes");
        array(&wrapped, &batch(&numbers(10), &numbers(0)));
        assert_eq!(rows_of(&timers), [180, 9], "a tenth of the rows passes");
        array(&wrapped, &batch(&numbers(91), &numbers(0)));
        assert_eq!(rows_of(&timers), [270, 99], "all rows pass");
    }

    #[test]
    fn columns_and_literals_stay_as_they_are() {
        let mut timers = Vec::new();
        let column = col("a", &schema()).unwrap();
        assert!(condition(&column, &mut timers).unwrap().is::<Column>());
        assert!(condition(&lit(true), &mut timers).unwrap().is::<Literal>());
        assert!(timers.is_empty());
    }

    fn timer(name: &str, timed_ns: u64, rows: u64, timed_rows: u64) -> Timer {
        let timer = Timer::of(&compared(name, Operator::Gt, 1)).and_then(Arc::into_inner).unwrap();
        let (timed_ns, rows, timed_rows) = (timed_ns.into(), rows.into(), timed_rows.into());
        Timer { timed_ns, rows, timed_rows, ..timer }
    }

    #[test]
    fn first_calls_and_one_of_every_few_are_timed() {
        let timer = timer("a", 0, 0, 0);
        (0..100).for_each(|_| timer.time(10, || ()));
        // Calls 0 to 7, and 16, 32, 48, 64, 80 and 96.
        assert_eq!((timer.rows.load(Relaxed), timer.timed_rows.load(Relaxed)), (1000, 140));
        let error = timer.time(5, || Err::<(), _>("no value"));
        assert_eq!((error, timer.rows.load(Relaxed)), (Err("no value"), 1005));
    }

    #[test]
    fn times_are_scaled_to_all_rows_and_within_those_of_the_operator() {
        assert_eq!(timer("a", 300, 4000, 100).estimated_ns(), 12_000);
        assert_eq!(timer("a", 300, 0, 0).estimated_ns(), 0);
        let timers = [timer("b", 10, 100, 10), timer("a", 90, 100, 10), timer("a", 9, 1, 1)];
        let listed = |core_ns, limit_ns| {
            let listed = most_expensive(timers.iter(), core_ns, limit_ns).into_iter();
            listed.map(|of| (of.text, of.cpu_ns, of.rows)).collect::<Vec<_>>()
        };
        // The third takes less than 1 %.
        assert_eq!(listed(1000, 2000), [("a > 1".into(), 900, 100), ("b > 1".into(), 100, 100)]);
        assert_eq!(listed(1000, 505)[..1], [("a > 1".into(), 450, 100)]);
        assert_eq!(listed(0, 0), []);
        let many: Vec<Timer> = (1..20).map(|ns| timer("a", ns, 1, 1)).collect();
        let listed = most_expensive(many.iter(), 200, 200);
        assert_eq!(listed.iter().map(|of| of.cpu_ns).collect::<Vec<_>>(), [19, 18, 17, 16, 15, 14, 13, 12]);
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let text = "ä".repeat(300);
        let expr: Arc<dyn PhysicalExpr> =
            binary(lit(text.as_str()), Operator::Eq, lit("x"), &schema()).unwrap();
        let cut = Timer::of(&expr).unwrap().text();
        assert_eq!((cut.chars().count(), cut.ends_with("ä…")), (MAX_TEXT + 1, true), "{cut}");
    }

    async fn planned(context: &SessionContext, sql: &str) -> Node {
        context.sql(sql).await.unwrap().create_physical_plan().await.unwrap()
    }

    #[tokio::test]
    async fn timed_plans_return_the_same_rows() {
        let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(2));
        let table = "CREATE TABLE t AS SELECT value AS x, \
                     CASE WHEN value % 7 = 0 THEN NULL ELSE 'abc' || value END AS s FROM range(1000)";
        context.sql(table).await.unwrap().collect().await.unwrap();
        for (sql, count) in [
            ("SELECT x + 1, upper(s), s, 5 FROM t WHERE x % 3 = 1 AND s LIKE '%1%' AND NOT (x > 900)", 5),
            ("SELECT x, CASE WHEN x = 0 THEN 0 ELSE 100 / x END AS y FROM t", 1),
            ("SELECT s FROM t WHERE s IS NULL OR x < 3", 1),
            ("SELECT a.x, b.s FROM t a JOIN t b ON a.x % 10 = b.x AND a.x + b.x > 20", 1),
            ("SELECT a.x, b.x FROM t a JOIN t b ON a.x * 2 < b.x - 950 AND a.s < b.s", 2),
        ] {
            let plan = planned(&context, sql).await;
            let mut timers = Vec::new();
            // A plan that has run keeps state.
            let wrapped = planned(&context, sql).await.transform_up(|node| {
                let (node, of_node) = timed(node)?;
                timers.extend(of_node);
                Ok(Transformed::yes(node))
            });
            let wrapped = wrapped.data().unwrap();
            assert_eq!(wrapped.schema(), plan.schema(), "{sql}");
            let mut rows = Vec::new();
            for plan in [plan, wrapped] {
                let batches = collect(plan, context.task_ctx()).await.unwrap();
                let text = pretty_format_batches(&batches).unwrap().to_string();
                let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
                lines.sort_unstable();
                rows.push(lines);
            }
            assert!(rows[0].len() > 4 && rows[0] == rows[1], "{sql}: {rows:?}");
            let evaluated = timers.iter().filter(|timer| timer.rows.load(Relaxed) > 0).count();
            assert!(timers.len() >= count && evaluated == timers.len(), "{sql}: {timers:?}");
        }
    }

    #[tokio::test]
    async fn timed_source_computes_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        std::fs::write(&path, "x,s\n1,a\n2,\n3,b\n").unwrap();
        // With more partitions, the scan is below a node that divides its rows.
        let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
        let options = CsvReadOptions::new();
        context.register_csv("t", path.to_str().unwrap(), options).await.unwrap();
        let plan = planned(&context, "SELECT s, x + 1 AS y, 5 AS z FROM t").await;
        let config = text::file_scan(&plan).expect("the projection is part of the scan");
        let (source, timers) = timed_source(config.file_source()).unwrap();
        let timed = FileScanConfigBuilder::from(config.clone()).with_source(source).build();
        let timed: Node = DataSourceExec::from_data_source(timed);
        assert_eq!((timers.len(), timers[0].text(), timed.schema()), (1, "x + 1".into(), plan.schema()));
        let rows = collect(plan, context.task_ctx()).await.unwrap();
        assert_eq!(collect(timed, context.task_ctx()).await.unwrap(), rows);
        assert_eq!(rows_of(&timers), [3]);
    }

    #[tokio::test]
    async fn volatile_expressions_stay_so_and_are_evaluated_once_a_row() {
        let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
        let plan = planned(&context, "SELECT random() AS r FROM range(100)").await;
        let (wrapped, timers) = timed(plan).unwrap();
        let projection = wrapped.downcast_ref::<ProjectionExec>().expect("a projection");
        assert!(is_volatile(&projection.expr()[0].expr));
        let rows: usize =
            collect(wrapped, context.task_ctx()).await.unwrap().iter().map(RecordBatch::num_rows).sum();
        assert_eq!((rows, rows_of(&timers)), (100, vec![100]));
    }
}
