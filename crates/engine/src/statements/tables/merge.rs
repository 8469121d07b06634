//! MERGE INTO a table in memory.
//!
//! A full join of the table and the source becomes a query of the clause that each row meets and of the clause's values.
//! It runs as a job; the rows are changed when it has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, StringArray};
use datafusion::arrow::compute::{concat_batches, filter_record_batch};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema, UInt64Type};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, ExcludeSelectItem, Expr, Function, FunctionArguments, Ident, Join,
    JoinConstraint, JoinOperator, Merge, MergeAction, MergeClause, MergeClauseKind, MergeInsertExpr,
    MergeInsertKind, ObjectName, OutputClause, Query, SelectItem, SetExpr, Spanned, TableFactor, Value,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::EngineError;
use crate::logical;
use crate::session::Session;
use crate::sql::statements::Statement;
use crate::statements::describe::source::{derived, usual_alias};
use crate::statements::run::{self, Rows, Temporary, as_tree};
use crate::statements::syntax::merge::{BY_NAME, BY_POSITION, DEFAULTS, ERROR, NOTHING, USING};
use crate::statements::tables::change::check_memory;
use crate::statements::tables::conflict::{assignments, merged, qualified, taken, with_values};
use crate::statements::tables::insert::{complete, default_of, existing, is_default, last, targets};
use crate::statements::tables::returning::{aliased, column, query_of};
use crate::statements::tables::table::{Definition, Found, ROW, Table, replace};
use crate::statements::tables::{checks, returning};
use crate::types::cast::cast;

/// Name of a column that is true in rows of the source.
const SOURCE: &str = "__source";

/// Name of a column of RETURNING.
const ACTION: &str = "merge_action";

/// A MERGE that waits for the rows of its query.
pub(crate) struct Merging {
    statement: Statement,
    found: Found,
    alias: Ident,
    actions: Vec<Action>,
    returning: Option<Vec<SelectItem>>,
    _target: Temporary,
}

/// The action of a clause, with the columns that it sets and the index of its first value in the query.
enum Action {
    Update(Vec<usize>, usize),
    Insert(Vec<usize>, usize),
    Delete,
    Nothing,
    /// The text of the clause.
    Error(String),
}

/// A MERGE that becomes a query.
struct Beginning<'a> {
    session: &'a Session,
    statement: &'a Statement,
    definition: &'a Definition,
    alias: Ident,
    source: Ident,
    of_source: TableFactor,
}

/// Returns the query of a MERGE, and the change that waits for its rows.
///
/// # Errors
/// Returns an error with its place if a name is unknown, or the rows of the table cannot change.
pub(crate) async fn begin(
    session: &Session,
    statement: &Statement,
    merge: &Merge,
) -> Result<(Box<Query>, Merging), EngineError> {
    let TableFactor::Table { name, alias, args: None, .. } = &merge.table else {
        return Err(statement.refuse(merge.table.span(), "MERGE INTO needs the name of a table"));
    };
    let found = existing(session, statement, name).await?;
    check_memory(statement, &found, name)?;
    let Some(table) = found.table() else {
        return Err(statement.refuse(name.span(), "the table is not one in memory"));
    };
    let alias = alias.as_ref().map_or_else(|| last(name), |alias| alias.name.clone());
    let target = Temporary::rows(&session.context, table.numbered()?)?;
    let own = match &merge.source {
        TableFactor::Table { name, alias, .. } => alias.clone().or_else(|| usual_alias(name)),
        TableFactor::Derived { alias, .. }
        | TableFactor::TableFunction { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::UNNEST { alias, .. } => alias.clone(),
        _ => None,
    };
    let beginning = Beginning {
        session,
        statement,
        definition: &table.definition,
        source: own.map_or_else(|| Ident::new("__merged"), |alias| alias.name),
        of_source: merge.source.clone(),
        alias,
    };
    let (query, actions) = beginning.query(&target.name, merge).await?;
    let returning = match &merge.output {
        None => None,
        Some(OutputClause::Returning { select_items, .. }) => Some(without_action(select_items)),
        Some(_) => {
            return Err(statement.refuse(merge.on.span(), "OUTPUT is not supported; use RETURNING"));
        }
    };
    let alias = beginning.alias.clone();
    let merging = Merging { statement: statement.clone(), found, alias, actions, returning, _target: target };
    Ok((query, merging))
}

/// Returns the items, of which `*` leaves out the action.
fn without_action(items: &[SelectItem]) -> Vec<SelectItem> {
    let mut items = items.to_vec();
    for item in &mut items {
        if let SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) = item {
            let action = ExcludeSelectItem::Single(ObjectName::from(vec![Ident::new(ACTION)]));
            options.opt_exclude.get_or_insert(action);
        }
    }
    items
}

impl Beginning<'_> {
    async fn query(&self, target: &str, merge: &Merge) -> Result<(Box<Query>, Vec<Action>), EngineError> {
        let mut values = Vec::new();
        let mut clauses = Vec::new();
        let mut actions = Vec::new();
        for clause in &merge.clauses {
            let condition = self.condition(clause);
            let first = values.len() + 2;
            let (action, of_clause) = self.action(clause, first).await?;
            for value in of_clause {
                let value = case(vec![(condition.clone(), value)]);
                values.push(aliased(value, &format!("__value_{}", values.len())));
            }
            let number = Value::Number(actions.len().to_string(), false).with_empty_span();
            clauses.push((condition, Expr::Value(number)));
            actions.push(action);
        }
        if clauses.is_empty() {
            return Err(self
                .statement
                .refuse(merge.on.span(), "MERGE needs WHEN … THEN after its condition"));
        }
        let clause = case(clauses);
        // Marks the rows of the source.
        let mut marked = run::query(&format!("SELECT *, true AS {SOURCE} FROM t"))?;
        if let SetExpr::Select(select) = marked.body.as_mut() {
            select.from[0].relation = self.of_source.clone();
        }
        let source_alias = usual_alias(&ObjectName::from(vec![self.source.clone()]));
        let join = Join {
            relation: derived(marked, source_alias),
            global: false,
            join_operator: JoinOperator::FullOuter(JoinConstraint::On(self.on(&merge.on))),
        };
        let query = query_of(target, &self.alias, |select| {
            select.projection =
                vec![aliased(column(&self.alias, ROW), ROW), aliased(clause.clone(), "__clause")];
            select.projection.extend(values);
            if let Some(from) = select.from.first_mut() {
                from.joins.push(join);
            }
            select.selection = Some(Expr::IsNotNull(Box::new(clause)));
        })?;
        Ok((query, actions))
    }

    /// Returns the condition of the join; `USING (a)` is equality of the columns.
    fn on(&self, on: &Expr) -> Expr {
        if let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = on
            && name.to_string() == USING
        {
            let equal = list.args.iter().map(|name| {
                let name = name.to_string();
                binary(column(&self.alias, &name), BinaryOperator::Eq, column(&self.source, &name))
            });
            return equal.reduce(|a, b| binary(a, BinaryOperator::And, b)).unwrap_or_else(|| on.clone());
        }
        Expr::Nested(Box::new(on.clone()))
    }

    /// Returns the condition for a pair of rows to meet a clause.
    fn condition(&self, clause: &MergeClause) -> Expr {
        let row = Box::new(column(&self.alias, ROW));
        let source = Box::new(column(&self.source, SOURCE));
        let (condition, predicate) = match clause.clause_kind {
            MergeClauseKind::Matched => (
                binary(Expr::IsNotNull(row), BinaryOperator::And, Expr::IsNotNull(source)),
                clause.predicate.clone(),
            ),
            MergeClauseKind::NotMatched | MergeClauseKind::NotMatchedByTarget => {
                (Expr::IsNull(row), clause.predicate.as_ref().map(|on| qualified(on, &self.source)))
            }
            MergeClauseKind::NotMatchedBySource => {
                (Expr::IsNull(source), clause.predicate.as_ref().map(|on| qualified(on, &self.alias)))
            }
        };
        match predicate {
            Some(predicate) => binary(condition, BinaryOperator::And, Expr::Nested(Box::new(predicate))),
            None => condition,
        }
    }

    /// Returns the action of a clause, and its values, of which the first is column `first` of the query.
    async fn action(&self, clause: &MergeClause, first: usize) -> Result<(Action, Vec<Expr>), EngineError> {
        match &clause.action {
            MergeAction::Delete { .. } => Ok((Action::Delete, Vec::new())),
            MergeAction::Update(update) => {
                if let Some(condition) = update.update_predicate.as_ref().or(update.delete_predicate.as_ref())
                {
                    let message =
                        "WHERE of UPDATE in MERGE is not supported; write WHEN MATCHED AND … THEN UPDATE";
                    return Err(self.statement.refuse(condition.span(), message));
                }
                let marker = update.assignments.first().map(|one| one.target.to_string());
                match marker.as_deref() {
                    Some(NOTHING) => return Ok((Action::Nothing, Vec::new())),
                    Some(ERROR) => return Ok((error(clause), Vec::new())),
                    Some(marker @ (BY_NAME | BY_POSITION)) => {
                        let (columns, values) = self.all(marker == BY_NAME, clause.when_token.0.span).await?;
                        return Ok((Action::Update(columns, first), values));
                    }
                    _ => {}
                }
                let set = assignments(self.statement, self.definition, &update.assignments)?;
                let (columns, values): (Vec<_>, Vec<_>) = set.into_iter().unzip();
                let by_source = clause.clause_kind == MergeClauseKind::NotMatchedBySource;
                let values = values.into_iter().map(|value| match by_source {
                    true => qualified(&value, &self.alias),
                    false => value,
                });
                Ok((Action::Update(columns, first), values.collect()))
            }
            MergeAction::Insert(insert) => self.insert(clause, insert, first).await,
        }
    }

    async fn insert(
        &self,
        clause: &MergeClause,
        insert: &MergeInsertExpr,
        first: usize,
    ) -> Result<(Action, Vec<Expr>), EngineError> {
        if let Some(condition) = &insert.insert_predicate {
            let message =
                "WHERE of INSERT in MERGE is not supported; write WHEN NOT MATCHED AND … THEN INSERT";
            return Err(self.statement.refuse(condition.span(), message));
        }
        let marker = insert.columns.first().map(ObjectName::to_string);
        match (&insert.kind, marker.as_deref()) {
            (_, Some(NOTHING)) => Ok((Action::Nothing, Vec::new())),
            (_, Some(ERROR)) => Ok((error(clause), Vec::new())),
            (_, Some(DEFAULTS)) => Ok((Action::Insert(Vec::new(), first), Vec::new())),
            (MergeInsertKind::Row, marker) => {
                let (columns, values) = self.all(marker == Some(BY_NAME), clause.when_token.0.span).await?;
                Ok((Action::Insert(columns, first), values))
            }
            (MergeInsertKind::Values(values), _) => {
                let columns = targets(self.statement, self.definition, &insert.columns)?;
                let [row] = &values.rows[..] else {
                    let message = "INSERT in MERGE needs one row of VALUES";
                    return Err(self.statement.refuse(insert.kind_token.0.span, message));
                };
                if row.len() != columns.len() {
                    let message = format!(
                        "cannot insert into {}: it has {} columns here, but {} values are given; list the columns: \
                         INSERT (…) VALUES (…)",
                        self.alias.value,
                        columns.len(),
                        row.len()
                    );
                    return Err(self.statement.refuse(insert.kind_token.0.span, &message));
                }
                let value = |(value, column): (&Expr, &usize)| match is_default(value) {
                    true => default_of(self.definition, *column),
                    false => qualified(value, &self.source),
                };
                let values = row.iter().zip(&columns).map(value).collect();
                Ok((Action::Insert(columns, first), values))
            }
        }
    }

    /// Returns the columns that all columns of the source fill, by name or by position, and these.
    async fn all(&self, by_name: bool, span: Span) -> Result<(Vec<usize>, Vec<Expr>), EngineError> {
        let mut query = run::query("SELECT * FROM t")?;
        if let SetExpr::Select(select) = query.body.as_mut() {
            select.from[0].relation = self.of_source.clone();
        }
        let statement = self.statement.with_tree(as_tree(query));
        let state = self.session.context.state();
        let (plan, _) = logical::plan(&state, &statement, &Arc::default()).await?;
        let names: Vec<String> = plan.schema().fields().iter().map(|field| field.name().clone()).collect();
        let columns = if by_name {
            let column = |name: &String| ObjectName::from(vec![Ident::with_quote('"', name)]);
            let names: Vec<ObjectName> = names.iter().map(column).collect();
            targets(self.statement, self.definition, &names)?
        } else {
            targets(self.statement, self.definition, &[])?
        };
        if columns.len() != names.len() {
            let message = format!(
                "cannot merge into {}: it has {} columns, but the source has {}; list the columns, or write BY NAME",
                self.alias.value,
                columns.len(),
                names.len()
            );
            return Err(self.statement.refuse(span, &message));
        }
        Ok((columns, names.iter().map(|name| column(&self.source, name)).collect()))
    }
}

fn error(clause: &MergeClause) -> Action {
    let and = clause.predicate.as_ref().map_or(String::new(), |predicate| format!(" AND {predicate}"));
    Action::Error(format!("WHEN {}{and} THEN ERROR", clause.clause_kind))
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

fn case(conditions: Vec<(Expr, Expr)>) -> Expr {
    let token = datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken::empty;
    let conditions = conditions.into_iter().map(|(condition, result)| CaseWhen { condition, result });
    Expr::Case {
        case_token: token(),
        end_token: token(),
        operand: None,
        conditions: conditions.collect(),
        else_result: None,
    }
}

/// The rows that a MERGE changes.
#[derive(Default)]
struct Changes {
    /// The action of each row that changes and the row of the query with its values; the last one wins.
    updates: BTreeMap<u64, (usize, u64)>,
    deletes: BTreeSet<u64>,
    /// The rows of the query by action.
    inserts: BTreeMap<usize, Vec<u64>>,
    count: usize,
}

impl Merging {
    /// Changes the rows of the table.
    ///
    /// # Errors
    /// Returns an error that names the value if a row violates a constraint; then no row is changed.
    pub(crate) async fn finish(self, session: &Session, rows: Rows) -> Result<Rows, EngineError> {
        let Some(table) = self.found.table() else { return Ok(run::nothing()) };
        let (schema, batches) = rows;
        let query = concat_batches(&schema, &batches).map_err(DataFusionError::from)?;
        let changes = self.sorted(&query)?;
        let all = table.all()?;
        let ids: Vec<u64> = changes.deletes.iter().copied().collect();
        let deleted = taken(&all, &ids)?;
        let (ids, changed) = self.changed(session, table, &all, &query, &changes).await?;
        let inserted = self.inserted(session, table, &query, &changes).await?;
        let (context, definition, name) = (&session.context, &table.definition, &self.alias.value);
        checks::rows(context, &self.statement, name, definition, &changed).await?;
        checks::rows(context, &self.statement, name, definition, &inserted).await?;
        let merged = merged(&all, &ids, &changed)?;
        let kept: Vec<bool> = (0..all.num_rows() as u64).map(|row| !changes.deletes.contains(&row)).collect();
        let kept = filter_record_batch(&merged, &kept.into()).map_err(DataFusionError::from)?;
        let after = Table::new(definition.clone(), vec![kept])?.with_rows(inserted.clone())?;
        checks::unique(name, definition, &after.all()?)?;
        replace(context, &self.found, after).await?;
        if self.returning.is_none() {
            return run::count(changes.count);
        }
        let parts = [("UPDATE", changed), ("DELETE", deleted), ("INSERT", inserted)];
        let rows = with_actions(&parts)?;
        returning::result(context, &self.statement, rows, &self.alias, self.returning).await
    }

    fn sorted(&self, query: &RecordBatch) -> Result<Changes, EngineError> {
        let (ids, clauses) =
            (query.column(0).as_primitive::<UInt64Type>(), query.column(1).as_primitive::<Int64Type>());
        let mut changes = Changes::default();
        for at in 0..query.num_rows() {
            let clause = usize::try_from(clauses.value(at)).unwrap_or(usize::MAX);
            match self.actions.get(clause) {
                None | Some(Action::Nothing) => continue,
                Some(Action::Error(text)) => {
                    let message = format!("cannot merge: a row meets {text}; no row was changed");
                    return Err(EngineError::Failed(message));
                }
                Some(Action::Delete) => {
                    changes.deletes.insert(ids.value(at));
                }
                Some(Action::Update(..)) => {
                    changes.updates.insert(ids.value(at), (clause, at as u64));
                }
                Some(Action::Insert(..)) => changes.inserts.entry(clause).or_default().push(at as u64),
            }
            changes.count += 1;
        }
        let Changes { updates, deletes, .. } = &mut changes;
        updates.retain(|id, _| !deletes.contains(id));
        Ok(changes)
    }

    /// Returns the numbers of the rows that change, and their new values.
    async fn changed(
        &self,
        session: &Session,
        table: &Table,
        all: &RecordBatch,
        query: &RecordBatch,
        changes: &Changes,
    ) -> Result<(Vec<u64>, RecordBatch), EngineError> {
        let (mut numbers, mut parts) = (Vec::new(), Vec::new());
        for (clause, action) in self.actions.iter().enumerate() {
            let Action::Update(columns, first) = action else { continue };
            let of_clause = changes.updates.iter().filter(|(_, (other, _))| *other == clause);
            let (ids, at): (Vec<u64>, Vec<u64>) = of_clause.map(|(id, (_, at))| (*id, *at)).unzip();
            let values = taken(query, &at)?;
            let values = &values.columns()[*first..*first + columns.len()];
            let before = taken(all, &ids)?;
            let definition = &table.definition;
            parts.push(
                with_values(&session.context, &self.statement, definition, &before, columns, values).await?,
            );
            numbers.extend(ids);
        }
        let changed = concat_batches(&table.definition.schema(), &parts).map_err(DataFusionError::from)?;
        Ok((numbers, changed))
    }

    async fn inserted(
        &self,
        session: &Session,
        table: &Table,
        query: &RecordBatch,
        changes: &Changes,
    ) -> Result<RecordBatch, EngineError> {
        let definition = &table.definition;
        let mut parts = Vec::new();
        for (clause, at) in &changes.inserts {
            let Some(Action::Insert(columns, first)) = self.actions.get(*clause) else { continue };
            let values = taken(query, at)?;
            let mut given: Vec<Option<ArrayRef>> = vec![None; definition.columns.len()];
            for (column, values) in columns.iter().zip(&values.columns()[*first..]) {
                let of = &definition.columns[*column];
                given[*column] = Some(cast(values, &of.data_type, &of.name)?);
            }
            parts.push(complete(&session.context, &self.statement, definition, given, at.len()).await?);
        }
        Ok(concat_batches(&definition.schema(), &parts).map_err(DataFusionError::from)?)
    }
}

/// Returns the rows with a column of their actions.
fn with_actions(parts: &[(&str, RecordBatch)]) -> Result<RecordBatch, DataFusionError> {
    let schema = parts[0].1.schema();
    let rows = concat_batches(&schema, parts.iter().map(|(_, rows)| rows))?;
    let actions = parts.iter().flat_map(|(action, rows)| std::iter::repeat_n(*action, rows.num_rows()));
    let actions: ArrayRef = Arc::new(StringArray::from(actions.collect::<Vec<&str>>()));
    let action = Arc::new(Field::new(ACTION, DataType::Utf8, false));
    let fields: Vec<_> = std::iter::once(action).chain(schema.fields().iter().cloned()).collect();
    let columns = std::iter::once(actions).chain(rows.columns().iter().cloned()).collect();
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}
