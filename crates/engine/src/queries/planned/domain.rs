//! The values of outer columns that a correlated subquery runs for, and its plan for all of them at once.
//!
//! A subquery with LIMIT, window functions or UNION, or with outer columns outside of WHERE, is computed for each distinct
//! combination of the outer columns that it uses: these are joined to its tables, and each operator above keeps the rows of
//! one combination apart from those of others.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, TableReference};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, ExprFunctionExt, FetchType, Join, JoinType, Limit, LogicalPlan,
    LogicalPlanBuilder, Operator, Projection, SkipType, SortExpr, SubqueryAlias, Union, Window, binary_expr,
    lit,
};

use super::kept_order;

/// How the names of domains begin.
const PREFIX: &str = "__outer_";

/// The distinct values of the outer columns of a subquery.
pub(super) struct Domain {
    name: String,
    outer: Vec<Column>,
    values: LogicalPlan,
}

impl Domain {
    /// Returns the domain of a subquery within a query over `outer`; `None` if it uses none of its columns. No domain in
    /// `others` has its name.
    pub(super) fn new(body: &LogicalPlan, outer: &LogicalPlan, others: &LogicalPlan) -> Result<Option<Self>> {
        let mut columns: Vec<Column> = Vec::new();
        outer_columns(body, |column| {
            if outer.schema().has_column(column) && !columns.contains(column) {
                columns.push(column.clone());
            }
            true
        })?;
        if columns.is_empty() {
            return Ok(None);
        }
        let name = format!("{PREFIX}{}", domains(body)? + domains(others)?);
        let named =
            |(at, column): (usize, &Column)| Expr::Column(column.clone()).alias(format!("{name}_{at}"));
        let values: Vec<Expr> = columns.iter().enumerate().map(named).collect();
        let values =
            LogicalPlanBuilder::from(outer.clone()).project(values)?.distinct()?.alias(&name)?.build()?;
        Ok(Some(Self { name, outer: columns, values }))
    }

    /// Returns a name that no table has.
    pub(super) fn own(&self, suffix: &str) -> String {
        format!("{}_{suffix}", self.name)
    }

    /// Returns the conditions under which a row of the subquery is one of a row of the query around it.
    pub(super) fn conditions(&self) -> impl Iterator<Item = Expr> {
        self.outer.iter().cloned().map(Expr::Column).zip(self.columns()).map(|(a, b)| same(a, b))
    }

    pub(super) fn columns(&self) -> Vec<Expr> {
        (0..self.outer.len()).map(|at| self.column(at)).collect()
    }

    fn column(&self, at: usize) -> Expr {
        Expr::Column(Column::new(Some(self.name.clone()), self.own(&at.to_string())))
    }

    /// Returns a plan with the columns of the subquery's plan and those of the domain after them; `None` if an operator
    /// cannot keep the values of the domain apart.
    pub(super) fn over(&self, plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
        if !self.is_used(plan)? {
            let values = self.values.clone();
            return Ok(Some(LogicalPlanBuilder::from(plan.clone()).cross_join(values)?.build()?));
        }
        let Some(exprs) = plan
            .expressions()
            .into_iter()
            .map(|expr| self.filled(expr))
            .collect::<Result<Option<Vec<_>>>>()?
        else {
            return Ok(None);
        };
        Ok(Some(match plan {
            LogicalPlan::Projection(projection) => {
                let Some(input) = self.over(&projection.input)? else { return Ok(None) };
                let exprs = exprs.into_iter().chain(self.columns()).collect();
                LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input))?)
            }
            LogicalPlan::Filter(filter) => {
                let Some(input) = self.over(&filter.input)? else { return Ok(None) };
                match conjunction(exprs) {
                    Some(predicate) => LogicalPlanBuilder::from(input).filter(predicate)?.build()?,
                    None => input,
                }
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let Some(input) = self.over(&alias.input)? else { return Ok(None) };
                self.aliased(input, &alias.alias)?
            }
            // The order within each value is that of its rows' numbers, if a LIMIT needs it.
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => return self.over(&sort.input),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let Some(input) = self.over(input)? else { return Ok(None) };
                LogicalPlanBuilder::from(input).distinct()?.build()?
            }
            LogicalPlan::Limit(limit) => return self.limited(limit),
            // `FROM unnest(outer.list)`, unless it uses columns of another query.
            LogicalPlan::Subquery(inner) if self.is_only(&inner.subquery)? => {
                return self.over(&inner.subquery);
            }
            LogicalPlan::Aggregate(aggregate) => {
                let Some(input) = self.over(&aggregate.input)? else { return Ok(None) };
                return self.aggregated(aggregate, exprs, input);
            }
            LogicalPlan::Window(window) => {
                let Some(input) = self.over(&window.input)? else { return Ok(None) };
                let windows = exprs.into_iter().map(|expr| self.apart(expr)).collect::<Result<Vec<_>>>()?;
                self.ordered(plan, LogicalPlan::Window(Window::try_new(windows, Arc::new(input))?))?
            }
            LogicalPlan::Union(union) => {
                let inputs = union.inputs.iter().map(|input| Ok(self.over(input)?.map(Arc::new)));
                let Some(inputs) = inputs.collect::<Result<Option<Vec<_>>>>()? else { return Ok(None) };
                let made = LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?);
                self.renamed(made, plan.schema().columns())?
            }
            LogicalPlan::Join(join) => return self.joined(plan, join),
            LogicalPlan::Unnest(unnest) => {
                let Some(input) = self.over(&unnest.input)? else { return Ok(None) };
                let columns = unnest.exec_columns.clone();
                let made = LogicalPlanBuilder::from(input)
                    .unnest_columns_with_options(columns, unnest.options.clone())?
                    .build()?;
                self.ordered(plan, made)?
            }
            _ => return Ok(None),
        }))
    }

    /// Gives a table its alias; the columns of the domain keep their name.
    pub(super) fn aliased(&self, input: LogicalPlan, alias: &TableReference) -> Result<LogicalPlan> {
        let made = LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(input), alias.clone())?);
        let own = made.schema().columns();
        self.renamed(made, own)
    }

    /// Names the columns of a plan; the last ones are those of the domain.
    fn renamed(&self, plan: LogicalPlan, names: Vec<Column>) -> Result<LogicalPlan> {
        let from = plan.schema().columns();
        let own = from.len() - self.outer.len();
        let values = self.columns().into_iter().filter_map(|one| one.try_as_col().cloned());
        let to = names.into_iter().take(own).chain(values);
        let exprs = from.into_iter().zip(to).map(|(from, to)| match from == to {
            true => Expr::Column(from),
            false => Expr::Column(from).alias_qualified(to.relation, to.name),
        });
        LogicalPlanBuilder::from(plan).project(exprs.collect::<Vec<_>>())?.build()
    }

    /// Puts the columns of a plan in the order of the subquery's, with those of the domain after them.
    fn ordered(&self, plan: &LogicalPlan, made: LogicalPlan) -> Result<LogicalPlan> {
        let own = plan.schema().columns().into_iter().map(Expr::Column);
        LogicalPlanBuilder::from(made).project(own.chain(self.columns()).collect::<Vec<_>>())?.build()
    }

    /// Numbers the rows of each value, and keeps the first ones.
    fn limited(&self, limit: &Limit) -> Result<Option<LogicalPlan>> {
        if let LogicalPlan::Projection(projection) = limit.input.as_ref() {
            // Below the columns that are shown, those that the rows are ordered by are there.
            let below = Limit { input: Arc::clone(&projection.input), ..limit.clone() };
            let exprs = projection.expr.clone();
            let made = Projection::try_new(exprs, Arc::new(LogicalPlan::Limit(below)))?;
            return self.over(&LogicalPlan::Projection(made));
        }
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
            (limit.get_skip_type()?, limit.get_fetch_type()?)
        else {
            return Ok(None);
        };
        let keys = kept_order::order(&limit.input)
            .into_iter()
            .map(|key| Ok(self.filled(key.expr)?.map(|expr| SortExpr { expr: expr.unalias(), ..key })));
        let (Some(keys), Some(input)) = (keys.collect::<Result<Option<Vec<_>>>>()?, self.over(&limit.input)?)
        else {
            return Ok(None);
        };
        let name = self.own("row");
        let numbered = row_number().partition_by(self.columns());
        // An empty order would have the frame of one with keys.
        let numbered = if keys.is_empty() { numbered } else { numbered.order_by(keys) };
        let number = numbered.build()?.alias(&name);
        let number_of = || Expr::Column(Column::new_unqualified(&name));
        let rows = |count: usize| lit(u64::try_from(count).unwrap_or(u64::MAX));
        let mut kept = number_of().gt(rows(skip));
        if let Some(fetch) = fetch {
            kept = kept.and(number_of().lt_eq(rows(skip.saturating_add(fetch))));
        }
        let made = LogicalPlanBuilder::from(input).window([number])?.filter(kept)?.build()?;
        self.ordered(&limit.input, made).map(Some)
    }

    /// Aggregates the rows of each value. Without GROUP BY, a value without rows has a result too.
    fn aggregated(
        &self,
        aggregate: &Aggregate,
        exprs: Vec<Expr>,
        input: LogicalPlan,
    ) -> Result<Option<LogicalPlan>> {
        let (groups, aggregates) = exprs.split_at(aggregate.group_expr.len());
        if groups.iter().any(|group| matches!(group, Expr::GroupingSet(_))) {
            return Ok(None);
        }
        let (mut input, mut aggregates) = (input, aggregates.to_vec());
        if groups.is_empty() {
            let found = self.own("found");
            let rows = self.inner(&aggregate.input, input, Some(lit(true).alias(&found)))?;
            input = LogicalPlanBuilder::from(self.values.clone())
                .join_on(rows, JoinType::Left, self.inner_conditions())?
                .build()?;
            let found = Expr::Column(Column::new_unqualified(found)).is_not_null();
            let names = NamePreserver::new_for_projection();
            let filtered = |expr: Expr| {
                let name = names.save(&expr);
                let made = expr.transform_up(|expr| match expr {
                    Expr::AggregateFunction(mut call) => {
                        let own = call.params.filter.take().map(|own| *own);
                        call.params.filter =
                            conjunction(own.into_iter().chain([found.clone()])).map(Box::new);
                        Ok(Transformed::yes(Expr::AggregateFunction(call)))
                    }
                    other => Ok(Transformed::no(other)),
                })?;
                Ok(name.restore(made.data))
            };
            aggregates = aggregates.into_iter().map(filtered).collect::<Result<Vec<_>>>()?;
        }
        let groups = groups.iter().cloned().chain(self.columns()).collect();
        let made = LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(input), groups, aggregates)?);
        self.ordered(&LogicalPlan::Aggregate(aggregate.clone()), made).map(Some)
    }

    /// Adds the values to the partitions of window functions.
    fn apart(&self, expr: Expr) -> Result<Expr> {
        let names = NamePreserver::new_for_projection();
        let name = names.save(&expr);
        let made = expr.transform_up(|expr| match expr {
            Expr::WindowFunction(mut window) => {
                window.params.partition_by.extend(self.columns());
                Ok(Transformed::yes(Expr::WindowFunction(window)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(name.restore(made.data))
    }

    /// Joins the rows of each value.
    fn joined(&self, plan: &LogicalPlan, join: &Join) -> Result<Option<LogicalPlan>> {
        use JoinType::{Inner, Left, LeftAnti, LeftMark, LeftSemi};
        let in_right = self.is_used(&join.right)?;
        if !matches!((join.join_type, in_right), (Inner | Left, _) | (LeftSemi | LeftAnti | LeftMark, false))
        {
            return Ok(None);
        }
        let Some(left) = self.over(&join.left)? else { return Ok(None) };
        let mut conditions = Vec::new();
        for expr in join.on.iter().map(|(a, b)| a.clone().eq(b.clone())).chain(join.filter.clone()) {
            let Some(expr) = self.filled(expr)? else { return Ok(None) };
            conditions.push(expr.unalias());
        }
        let mut right = join.right.as_ref().clone();
        if in_right {
            let Some(made) = self.over(&join.right)? else { return Ok(None) };
            right = self.inner(&join.right, made, None)?;
            conditions.extend(self.inner_conditions());
        }
        let made = LogicalPlanBuilder::from(left).join_on(right, join.join_type, conditions)?.build()?;
        self.ordered(plan, made).map(Some)
    }

    /// Renames the values in a plan that is joined to the values themselves.
    fn inner(&self, plan: &LogicalPlan, made: LogicalPlan, more: Option<Expr>) -> Result<LogicalPlan> {
        let own = plan.schema().columns().into_iter().map(Expr::Column);
        let values = (0..self.outer.len()).map(|at| self.column(at).alias(self.own(&format!("in_{at}"))));
        LogicalPlanBuilder::from(made).project(own.chain(values).chain(more).collect::<Vec<_>>())?.build()
    }

    fn inner_conditions(&self) -> impl Iterator<Item = Expr> {
        (0..self.outer.len()).map(|at| {
            let inner = Column::new_unqualified(self.own(&format!("in_{at}")));
            same(self.column(at), Expr::Column(inner))
        })
    }

    /// Replaces the outer columns of an expression, which keeps its name; `None` if a subquery in it uses them.
    fn filled(&self, expr: Expr) -> Result<Option<Expr>> {
        let names = NamePreserver::new_for_projection();
        let name = names.save(&expr);
        let mut nested = false;
        let made = expr.transform_up(|expr| {
            if let Expr::OuterReferenceColumn(_, column) = &expr
                && let Some(at) = self.outer.iter().position(|one| one == column)
            {
                return Ok(Transformed::yes(self.column(at)));
            }
            let subquery = match &expr {
                Expr::ScalarSubquery(subquery) => Some(subquery),
                Expr::Exists(exists) => Some(&exists.subquery),
                Expr::InSubquery(member) => Some(&member.subquery),
                Expr::SetComparison(comparison) => Some(&comparison.subquery),
                _ => None,
            };
            if let Some(subquery) = subquery {
                nested |= self.is_used(&subquery.subquery)?;
            }
            Ok(Transformed::no(expr))
        })?;
        Ok((!nested).then(|| if made.transformed { name.restore(made.data) } else { made.data }))
    }

    /// Returns true if a plan uses no outer columns but these.
    fn is_only(&self, plan: &LogicalPlan) -> Result<bool> {
        let mut only = true;
        outer_columns(plan, |column| {
            only &= self.outer.contains(column);
            only
        })?;
        Ok(only)
    }

    /// Returns true if a plan uses these outer columns.
    pub(super) fn is_used(&self, plan: &LogicalPlan) -> Result<bool> {
        let mut used = false;
        outer_columns(plan, |column| {
            used |= self.outer.contains(column);
            !used
        })?;
        Ok(used)
    }
}

fn same(left: Expr, right: Expr) -> Expr {
    binary_expr(left, Operator::IsNotDistinctFrom, right)
}

/// Calls `visit` for the outer columns of a plan while it returns true.
fn outer_columns(plan: &LogicalPlan, mut visit: impl FnMut(&Column) -> bool) -> Result<()> {
    let next = |more| if more { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop };
    plan.apply_with_subqueries(|plan| {
        plan.apply_expressions(|expr| {
            expr.apply(|expr| match expr {
                Expr::OuterReferenceColumn(_, column) => Ok(next(visit(column))),
                _ => Ok(TreeNodeRecursion::Continue),
            })
        })
    })?;
    Ok(())
}

/// Returns the number of domains that a plan reads.
fn domains(plan: &LogicalPlan) -> Result<usize> {
    let mut count = 0;
    plan.apply_with_subqueries(|plan| {
        if let LogicalPlan::SubqueryAlias(alias) = plan
            && alias.alias.table().starts_with(PREFIX)
        {
            count += 1;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(count)
}
