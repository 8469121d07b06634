//! Orders inner joins by the rows that they are estimated to have.
//!
//! DataFusion 55 joins tables in the order of the FROM clause. TPC-DS query 29 names three fact tables before the dates that
//! leave a few of their rows. Here, inner joins that follow each other are taken apart into their inputs, the columns that
//! they make equal, and their other conditions. Then the two inputs whose join has the fewest rows are joined, again and
//! again ("greedy operator ordering", Fegaras 1998, "A New Heuristic for Optimizing Large Queries", section 4).
//!
//! Estimates may be wrong, and whoever wrote the query may have known better. So its order stays, unless another has less
//! than [`MAX_SHARE`] of its cost: the rows of all joins, and those of their smaller inputs, of which tables are built.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{
    ColumnStatistics, JoinSide, JoinType, NullEquality, Result, internal_datafusion_err,
};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::intervals::utils::check_support;
use datafusion::physical_expr::{PhysicalExpr, conjunction, split_conjunction};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::joins::{HashJoinExec, HashJoinExecBuilder, PartitionMode};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};

use crate::plan::cut::Node;
use crate::plan::estimates::{rows, statistics};
use crate::plan::semi_joins::column;

/// Maximum cost of another order, as a share of that of the query's.
const MAX_SHARE: f64 = 0.5;
/// Assumed share of the rows that meet a condition on columns of several inputs, such as `a < b`.
const CONDITION_SHARE: f64 = 1.0 / 3.0;
/// Minimum share of an input's rows with a key of their own for which the key counts as unique.
const UNIQUE_SHARE: f64 = 0.9;

/// The rule, which runs before DataFusion chooses the sides of joins.
#[derive(Debug)]
pub(crate) struct JoinOrder;

impl PhysicalOptimizerRule for JoinOrder {
    fn optimize(&self, plan: Node, _: &ConfigOptions) -> Result<Node> {
        ordered(plan, false)
    }

    fn name(&self) -> &str {
        "join_order"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns a plan with all its joins in order. Those of `node` stay if it is `within` joins that stay.
fn ordered(node: Node, within: bool) -> Result<Node> {
    let mut joins = Joins::default();
    let found = if within { None } else { joins.take(&node)? };
    if let Some((tree, columns)) = found.filter(|_| (3..=64).contains(&joins.inputs.len()))
        && let Some(better) = joins.better(&tree)
    {
        for input in &mut joins.inputs {
            input.node = ordered(Arc::clone(&input.node), false)?;
        }
        let made = joins.plan(&better, &columns, &node)?;
        if made.schema() == node.schema() {
            return Ok(made);
        }
    }
    let stays = is_joins(&node);
    let children = node.children().into_iter().map(|child| ordered(Arc::clone(child), stays));
    replace_children_if_necessary(Arc::clone(&node), children.collect::<Result<_>>()?)
}

/// A column of an input: the number of the input, and the index in it.
type Id = (usize, usize);

/// An input of the joins.
struct Input {
    node: Node,
    rows: f64,
    /// Rows before filters.
    all_rows: f64,
    /// By column, the number of values that its rows have before filters.
    values: Vec<f64>,
}

/// A condition on columns of several inputs.
struct Condition {
    filter: JoinFilter,
    columns: Vec<Id>,
}

/// Inner joins that follow each other, without their order.
#[derive(Default)]
struct Joins {
    inputs: Vec<Input>,
    /// Columns that are equal.
    classes: Vec<BTreeSet<Id>>,
    conditions: Vec<Condition>,
    mode: Option<PartitionMode>,
}

/// An order of joins.
enum Tree {
    Input(usize),
    Join(Box<Tree>, Box<Tree>),
}

/// Joined inputs.
struct Set {
    tree: Tree,
    /// A bit for each input.
    inputs: u64,
    rows: f64,
    cost: f64,
}

impl Joins {
    /// Takes joins apart. Returns their order, and the columns of `node`; `None` for other nodes, and without statistics.
    fn take(&mut self, node: &Node) -> Result<Option<(Tree, Vec<Id>)>> {
        if let Some(join) = joined(node) {
            let Some((left, mut columns)) = self.part(join.left())? else { return Ok(None) };
            let Some((right, of_right)) = self.part(join.right())? else { return Ok(None) };
            for (a, b) in join.on() {
                if let (Some(a), Some(b)) = (column(a), column(b)) {
                    self.equate(columns[a], of_right[b]);
                }
            }
            if let Some(filter) = join.filter() {
                let id = |column: &ColumnIndex| match column.side {
                    JoinSide::Left => columns[column.index],
                    _ => of_right[column.index],
                };
                let columns = filter.column_indices().iter().map(id).collect();
                self.conditions.push(Condition { filter: filter.clone(), columns });
            }
            self.mode = Some(*join.partition_mode());
            columns.extend(of_right);
            return Ok(Some((Tree::Join(Box::new(left), Box::new(right)), columns)));
        }
        let Some((input, indices)) = columns_only(node) else { return Ok(None) };
        let below = self.take(input)?;
        Ok(below.map(|(tree, columns)| (tree, indices.into_iter().map(|index| columns[index]).collect())))
    }

    /// Takes a side of a join, which is other joins or an input.
    fn part(&mut self, node: &Node) -> Result<Option<(Tree, Vec<Id>)>> {
        if is_joins(node) {
            return self.take(node);
        }
        let Some(input) = Input::of(node)? else { return Ok(None) };
        let at = self.inputs.len();
        let columns = (0..input.values.len()).map(|index| (at, index)).collect();
        self.inputs.push(input);
        Ok(Some((Tree::Input(at), columns)))
    }

    /// Notes that two columns are equal.
    fn equate(&mut self, a: Id, b: Id) {
        let touches = |class: &BTreeSet<Id>| class.contains(&a) || class.contains(&b);
        let (of_these, mut others): (Vec<_>, Vec<_>) = self.classes.drain(..).partition(touches);
        others.push(of_these.into_iter().flatten().chain([a, b]).collect());
        self.classes = others;
    }

    /// Returns a better order; `None` if there is none.
    fn better(&self, tree: &Tree) -> Option<Tree> {
        if !self.classes.iter().all(|class| self.is_joinable(class))
            || self.conditions.iter().any(|condition| inputs_among(&condition.columns) < 2)
        {
            return None;
        }
        let as_written = self.set_of(tree)?;
        let mut sets: Vec<Set> = (0..self.inputs.len()).map(|input| self.input(input)).collect();
        while sets.len() > 1 {
            let pairs = (0..sets.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
            let rows = pairs.filter_map(|(a, b)| Some((self.rows(&sets[a], &sets[b])?, a, b)));
            let (_, a, b) = rows.min_by(|one, other| one.0.total_cmp(&other.0))?;
            let (a, b) = (sets.swap_remove(a), sets.swap_remove(b));
            sets.push(self.join(a, b)?);
        }
        let best = sets.pop()?;
        (best.cost < MAX_SHARE * as_written.cost).then_some(best.tree)
    }

    /// Returns true if any two columns of a class can be the keys of a join. That two of one input are equal would have to be
    /// checked beside them.
    fn is_joinable(&self, class: &BTreeSet<Id>) -> bool {
        let data_type = |id: &Id| self.inputs[id.0].node.schema().field(id.1).data_type().clone();
        let types: Vec<DataType> = class.iter().map(data_type).collect();
        inputs_among(class) == class.len() && types.windows(2).all(|pair| pair[0] == pair[1])
    }

    fn set_of(&self, tree: &Tree) -> Option<Set> {
        match tree {
            Tree::Input(input) => Some(self.input(*input)),
            Tree::Join(left, right) => self.join(self.set_of(left)?, self.set_of(right)?),
        }
    }

    fn input(&self, input: usize) -> Set {
        Set { tree: Tree::Input(input), inputs: 1 << input, rows: self.inputs[input].rows, cost: 0.0 }
    }

    fn join(&self, a: Set, b: Set) -> Option<Set> {
        let rows = self.rows(&a, &b)?;
        let cost = a.cost + b.cost + rows + a.rows.min(b.rows);
        // The larger one asks the table of the other.
        let (build, probe) = if a.rows <= b.rows { (a, b) } else { (b, a) };
        let inputs = build.inputs | probe.inputs;
        Some(Set { tree: Tree::Join(Box::new(build.tree), Box::new(probe.tree)), inputs, rows, cost })
    }

    /// Estimates the rows of a join; `None` if no columns are equal.
    ///
    /// If one side has each key once, a row of the other finds a partner unless a filter has left it out; keys that the filter
    /// leaves are assumed to be among those of the other side. Otherwise, the side with fewer values has only values of the
    /// other (Selinger 1979, "Access Path Selection", table 1).
    fn rows(&self, a: &Set, b: &Set) -> Option<f64> {
        let shared: Vec<_> = self.shared(a.inputs, b.inputs).collect();
        if shared.is_empty() {
            return None;
        }
        let ((a_values, a_unique), (b_values, b_unique)) =
            (self.values(a.inputs, &shared), self.values(b.inputs, &shared));
        let of_unique = |rows: f64, unique: f64| rows * (unique / a_values.min(b_values)).min(1.0);
        let rows = match (a_unique, b_unique) {
            (true, true) => of_unique(a.rows, b.rows).min(of_unique(b.rows, a.rows)),
            (false, true) => of_unique(a.rows, b.rows),
            (true, false) => of_unique(b.rows, a.rows),
            (false, false) => a.rows * b.rows / a_values.max(b_values),
        };
        let conditions = self.conditions_of(a.inputs, b.inputs).count();
        Some((rows * CONDITION_SHARE.powi(conditions as i32)).max(1.0))
    }

    /// Returns the classes with columns on both sides.
    fn shared(&self, a: u64, b: u64) -> impl Iterator<Item = &BTreeSet<Id>> {
        let has = |class: &BTreeSet<Id>, inputs| class.iter().any(|id| is_of(id, inputs));
        self.classes.iter().filter(move |class| has(class, a) && has(class, b))
    }

    /// Returns the conditions that only a join of both sides can check.
    fn conditions_of(&self, a: u64, b: u64) -> impl Iterator<Item = &Condition> {
        let all = |condition: &Condition, inputs| condition.columns.iter().all(|id| is_of(id, inputs));
        self.conditions.iter().filter(move |c| all(c, a | b) && !all(c, a) && !all(c, b))
    }

    /// Returns the number of values that some inputs have in the columns of `classes` together, and whether each row has one
    /// of its own.
    fn values(&self, inputs: u64, classes: &[&BTreeSet<Id>]) -> (f64, bool) {
        let mut by_input: BTreeMap<usize, f64> = BTreeMap::new();
        for class in classes {
            let of_column = |id: &Id| (self.inputs[id.0].values[id.1], id.0);
            let columns = class.iter().filter(|id| is_of(id, inputs)).map(of_column);
            if let Some((values, input)) = columns.min_by(|one, other| one.0.total_cmp(&other.0)) {
                *by_input.entry(input).or_insert(1.0) *= values;
            }
        }
        let values = by_input.iter().map(|(input, values)| values.min(self.inputs[*input].all_rows));
        let values = values.product::<f64>().max(1.0);
        let unique = match inputs.count_ones() {
            1 => values >= UNIQUE_SHARE * self.inputs[inputs.trailing_zeros() as usize].all_rows,
            _ => false,
        };
        (values, unique)
    }

    /// Returns the plan of an order, with the columns and names of `node`.
    fn plan(&self, tree: &Tree, columns: &[Id], node: &Node) -> Result<Node> {
        let (joined, of_joined) = self.node(tree, columns)?;
        let (schema, names) = (joined.schema(), node.schema());
        let output = columns.iter().zip(names.fields()).map(|(id, field)| {
            let at = position(&of_joined, |column| column == id)?;
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(schema.field(at).name(), at));
            Ok(ProjectionExpr::from((column, field.name().clone())))
        });
        let output: Vec<ProjectionExpr> = output.collect::<Result<_>>()?;
        Ok(Arc::new(ProjectionExec::try_new(output, joined)?))
    }

    /// Returns the node of an order with its columns, which are those that are needed above it.
    fn node(&self, tree: &Tree, output: &[Id]) -> Result<(Node, Vec<Id>)> {
        let (left, right) = match tree {
            Tree::Input(at) => {
                let input = &self.inputs[*at];
                return Ok((Arc::clone(&input.node), (0..input.values.len()).map(|i| (*at, i)).collect()));
            }
            Tree::Join(left, right) => (left, right),
        };
        let (of_left, of_right) = (inputs_of(left), inputs_of(right));
        let ((left, left_columns), (right, right_columns)) =
            (self.node(left, output)?, self.node(right, output)?);
        let key = |node: &Node, columns: &[Id], class: &BTreeSet<Id>| -> Result<Arc<dyn PhysicalExpr>> {
            let at = position(columns, |id| class.contains(id))?;
            Ok(Arc::new(Column::new(node.schema().field(at).name(), at)))
        };
        let keys = |class| Ok((key(&left, &left_columns, class)?, key(&right, &right_columns, class)?));
        let on = self.shared(of_left, of_right).map(keys).collect::<Result<_>>()?;
        let filter = combined(self.conditions_of(of_left, of_right), &left_columns, &right_columns)?;
        let join: Node = HashJoinExecBuilder::new(left, right, on, JoinType::Inner)
            .with_partition_mode(self.mode.unwrap_or(PartitionMode::Auto))
            .with_filter(filter)
            .build_exec()?;
        let columns = [left_columns, right_columns].concat();
        let kept = self.kept(of_left | of_right, output);
        let schema = join.schema();
        let wanted = columns.iter().enumerate().filter(|(_, id)| kept.contains(id));
        let expression = |(at, _): (usize, &Id)| {
            let name = schema.field(at).name();
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(name, at));
            ProjectionExpr::from((column, name.clone()))
        };
        let expressions: Vec<ProjectionExpr> = wanted.map(expression).collect();
        if expressions.len() == columns.len() {
            return Ok((join, columns));
        }
        let columns = columns.into_iter().filter(|id| kept.contains(id)).collect();
        Ok((Arc::new(ProjectionExec::try_new(expressions, join)?), columns))
    }

    /// Returns the columns of some joined inputs that are needed above: those of the output and of conditions, and one of each
    /// class that other inputs are joined by.
    fn kept(&self, inputs: u64, output: &[Id]) -> BTreeSet<Id> {
        let later = |condition: &&Condition| !condition.columns.iter().all(|id| is_of(id, inputs));
        let of_conditions = self.conditions.iter().filter(later).flat_map(|condition| &condition.columns);
        let mut kept: BTreeSet<Id> =
            output.iter().chain(of_conditions).filter(|id| is_of(id, inputs)).copied().collect();
        for class in &self.classes {
            let within: Vec<&Id> = class.iter().filter(|id| is_of(id, inputs)).collect();
            if within.len() < class.len() && !within.iter().any(|id| kept.contains(id)) {
                kept.extend(within.first().copied());
            }
        }
        kept
    }
}

impl Input {
    /// Returns an input with its statistics; `None` if its number of rows is unknown.
    fn of(node: &Node) -> Result<Option<Self>> {
        let mut below = node;
        let mut share = 1.0;
        let mut columns: Vec<Option<usize>> = (0..node.schema().fields().len()).map(Some).collect();
        loop {
            if let Some(projection) = below.downcast_ref::<ProjectionExec>() {
                let of_input = |at: usize| column(&projection.expr()[at].expr);
                columns.iter_mut().for_each(|at| *at = at.and_then(of_input));
                below = projection.input();
            } else if let Some(filter) = below.downcast_ref::<FilterExec>() {
                if let Some(projection) = filter.projection() {
                    columns.iter_mut().for_each(|at| *at = at.map(|at| projection[at]));
                }
                share *= kept_share(filter)?;
                below = filter.input();
            } else {
                break;
            }
        }
        let all = statistics(below.as_ref())?;
        let Some(all_rows) = all.num_rows.get_value().map(|rows| (*rows).max(1)) else { return Ok(None) };
        let values = |at: &Option<usize>| {
            let column = at.and_then(|at| all.column_statistics.get(at));
            column.and_then(values).map_or(all_rows, |values| values.clamp(1, all_rows)) as f64
        };
        let values = columns.iter().map(values).collect();
        let all_rows = all_rows as f64;
        Ok(Some(Self { node: Arc::clone(node), rows: (all_rows * share).max(1.0), all_rows, values }))
    }
}

/// Estimates the share of the rows that a filter keeps. DataFusion assumes the same share for any filter with a condition whose
/// intervals it does not know, as those of texts; here, each such condition keeps that share of what the others keep.
fn kept_share(filter: &FilterExec) -> Result<f64> {
    let input = filter.input();
    let schema = input.schema();
    let parts = split_conjunction(filter.predicate()).into_iter().cloned();
    let (known, unknown): (Vec<_>, Vec<_>) = parts.partition(|part| check_support(part, &schema));
    let all = rows(input)?.unwrap_or(0);
    let mut share = f64::from(filter.default_selectivity()) / 100.0;
    share = share.powi(unknown.len() as i32);
    if !known.is_empty() {
        let known: Node = Arc::new(FilterExec::try_new(conjunction(known), Arc::clone(input))?);
        let rows = rows(&known)?.unwrap_or(all);
        share *= rows as f64 / all.max(1) as f64;
    }
    Ok(share)
}

/// Returns the number of values of a column, or how many there are between the least and the greatest.
fn values(column: &ColumnStatistics) -> Option<usize> {
    let known = column.distinct_count.get_value().copied();
    let range = || column.max_value.get_value()?.distance(column.min_value.get_value()?);
    known.or_else(|| range()?.checked_add(1))
}

/// Returns the inner join of equal columns that a node is; `None` for other nodes.
fn joined(node: &Node) -> Option<&HashJoinExec> {
    let join = node.downcast_ref::<HashJoinExec>()?;
    let ordinary = *join.join_type() == JoinType::Inner
        && join.null_equality() == NullEquality::NullEqualsNothing
        && join.projection.is_none()
        && join.fetch().is_none()
        && join.on().iter().all(|(a, b)| column(a).is_some() && column(b).is_some());
    ordinary.then_some(join)
}

/// Returns true for joins that can be taken apart.
fn is_joins(node: &Node) -> bool {
    joined(node).is_some() || columns_only(node).is_some_and(|(input, _)| is_joins(input))
}

/// Returns the input of a projection that only chooses columns, and their indices.
fn columns_only(node: &Node) -> Option<(&Node, Vec<usize>)> {
    let projection = node.downcast_ref::<ProjectionExec>()?;
    let indices = projection.expr().iter().map(|projected| column(&projected.expr)).collect::<Option<_>>()?;
    Some((projection.input(), indices))
}

fn is_of(id: &Id, inputs: u64) -> bool {
    inputs & 1 << id.0 != 0
}

/// Returns the number of inputs that have some of the columns.
fn inputs_among<'a>(columns: impl IntoIterator<Item = &'a Id>) -> usize {
    columns.into_iter().map(|id| id.0).collect::<BTreeSet<_>>().len()
}

fn inputs_of(tree: &Tree) -> u64 {
    match tree {
        Tree::Input(input) => 1 << input,
        Tree::Join(left, right) => inputs_of(left) | inputs_of(right),
    }
}

/// Returns the position of a column that joins have.
fn position(columns: &[Id], is_wanted: impl Fn(&Id) -> bool) -> Result<usize> {
    columns.iter().position(is_wanted).ok_or_else(|| internal_datafusion_err!("a join lacks a column"))
}

/// Returns the filter of a join for some conditions; `None` if there are none.
fn combined<'a>(
    conditions: impl Iterator<Item = &'a Condition>,
    left: &[Id],
    right: &[Id],
) -> Result<Option<JoinFilter>> {
    let (mut parts, mut fields, mut indices) = (Vec::new(), Vec::<Arc<Field>>::new(), Vec::new());
    for Condition { filter, columns } in conditions {
        let from = fields.len();
        let shifted = Arc::clone(filter.expression()).transform(|part| {
            Ok(match part.downcast_ref::<Column>() {
                Some(column) => {
                    Transformed::yes(Arc::new(Column::new(column.name(), from + column.index())) as _)
                }
                None => Transformed::no(part),
            })
        });
        parts.push(shifted.data()?);
        fields.extend(filter.schema().fields().iter().cloned());
        for id in columns {
            let side = if left.contains(id) { JoinSide::Left } else { JoinSide::Right };
            let of_side = if side == JoinSide::Left { left } else { right };
            indices.push(ColumnIndex { side, index: position(of_side, |column| column == id)? });
        }
    }
    let filter =
        || JoinFilter::new(conjunction(parts.iter().cloned()), indices, Arc::new(Schema::new(fields)));
    Ok(if parts.is_empty() { None } else { Some(filter()) })
}

#[cfg(test)]
mod tests {
    use datafusion::execution::session_state::SessionStateBuilder;
    use datafusion::physical_plan::displayable;
    use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};

    use crate::plan::pushdown::rules;

    /// Tables of 20,000, 2,000 and 100 rows; `small` has a row for each value of the others' `s`.
    const TABLES: [(&str, &str); 3] = [
        ("large", "value % 2000 AS m, nullif(value % 100, 7) AS s, value AS id FROM range(20000)"),
        ("medium", "value AS m, value % 100 AS s, value % 13 AS v FROM range(2000)"),
        ("small", "value AS s, value % 5 AS w FROM range(100)"),
    ];

    async fn session(folder: &std::path::Path, ours: bool) -> SessionContext {
        let mut builder = SessionStateBuilder::new_with_default_features()
            .with_config(SessionConfig::new().with_target_partitions(2));
        if ours {
            builder = builder.with_physical_optimizer_rules(rules());
        }
        let context = SessionContext::new_with_state(builder.build());
        for (name, rows) in TABLES {
            let path = folder.join(format!("{name}.parquet")).display().to_string();
            if ours {
                let copy = format!("COPY (SELECT {rows}) TO '{path}'");
                context.sql(&copy).await.unwrap().collect().await.unwrap();
            }
            context.register_parquet(name, path, ParquetReadOptions::default()).await.unwrap();
        }
        context
    }

    /// Returns the rows as sorted text, and the tables in the order of the plan's lines, each with its depth.
    async fn ran(context: &SessionContext, sql: &str) -> (Vec<String>, Vec<(usize, &'static str)>) {
        let frame = context.sql(sql).await.unwrap();
        let plan = frame.clone().create_physical_plan().await.unwrap();
        let text =
            datafusion::arrow::util::pretty::pretty_format_batches(&frame.collect().await.unwrap()).unwrap();
        let mut lines: Vec<String> = text.to_string().lines().map(str::to_string).collect();
        lines.sort();
        let plan = displayable(plan.as_ref()).indent(false).to_string();
        let table = |line: &str| {
            let found = TABLES.iter().find(|(name, _)| line.contains(&format!("{name}.parquet")));
            found.map(|(name, _)| (line.len() - line.trim_start().len(), *name))
        };
        (lines, plan.lines().filter_map(table).collect())
    }

    #[tokio::test]
    async fn joins_are_reordered_without_changing_rows() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (session(folder.path(), true).await, session(folder.path(), false).await);
        let from = "FROM large a JOIN large b ON a.m = b.m";
        for (sql, reordered) in [
            // Five rows of the small table leave few of the large one.
            (format!("SELECT a.id, b.id, c.w {from} JOIN small c ON a.s = c.s WHERE c.s = 3"), true),
            (
                format!(
                    "SELECT a.id, c.w, a.id AS again {from} JOIN small c ON a.s = c.s AND c.w + b.s > 5 WHERE c.s < 3"
                ),
                true,
            ),
            // Equal columns that the query does not join by each other.
            (
                format!(
                    "SELECT count(*), sum(b.id) {from} JOIN medium d ON b.m = d.m JOIN small c ON d.s = c.s WHERE d.m < 5"
                ),
                true,
            ),
            (
                format!(
                    "SELECT 1 AS one {from} JOIN small c ON a.s = c.s JOIN small e ON b.s = e.s WHERE c.s = 3 AND e.s = 4 AND a.id < b.id + e.w"
                ),
                true,
            ),
            (
                format!(
                    "SELECT * FROM (SELECT a.id + 1 AS i, b.s {from} JOIN small c ON a.s = c.s WHERE c.s = 9) x JOIN medium d ON x.i = d.m"
                ),
                true,
            ),
            // A condition of no table, which DataFusion moves to one.
            (
                format!("SELECT a.id, c.w {from} AND random() < 2 JOIN small c ON a.s = c.s WHERE c.s = 3"),
                true,
            ),
            // A column that must equal two of another table.
            (
                format!(
                    "SELECT a.id {from} JOIN small c ON a.s = c.s AND b.s = c.s AND c.s = a.m WHERE c.s = 3"
                ),
                false,
            ),
            // Nothing is gained, or a join is an outer one.
            (
                "SELECT a.id, c.w FROM large a JOIN medium d ON a.m = d.m JOIN small c ON a.s = c.s"
                    .to_string(),
                false,
            ),
            (
                format!(
                    "SELECT a.id, b.id, c.w {from} LEFT JOIN small c ON a.s = c.s AND c.s = 3 WHERE a.id < 9"
                ),
                false,
            ),
        ] {
            let ((rows, order), (expected, theirs)) = (ran(&ours, &sql).await, ran(&theirs, &sql).await);
            assert_eq!(rows, expected, "{sql}");
            assert_eq!(order != theirs, reordered, "{sql}: {order:?}, {theirs:?}");
        }
    }
}
