//! Logical plans of statements, and errors that show the place in the statement.

pub(crate) mod candidates;
mod context;
pub(crate) mod labels;
mod locate;
mod messages;
mod names;
pub(crate) mod nearest;

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, SchemaError};
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::ColumnDef;
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::EngineError;
use crate::functions;
use crate::lakes;
use crate::logical::context::Context;
use crate::logical::labels::Labels;
use crate::queries::columns::{self, Held};
use crate::queries::pivot::values::Values;
use crate::queries::{self, aliases, planned};
use crate::sql::statements::Statement;
use crate::sql::{place, tree};
use crate::tables::{self, StandIn};
use crate::types::syntax;

/// Plans a statement. A table name that is not registered may match a registered one in another case, or
/// name a folder. A column may be written in another case.
///
/// # Errors
/// Returns an error with its place in the statement.
pub(crate) async fn plan(
    state: &SessionState,
    statement: &Statement,
    values: &Arc<Values>,
) -> Result<(LogicalPlan, Labels), EngineError> {
    let mut context = Context::new(state, values);
    let (mut tree, mut labels, held) = match prepared(state, statement) {
        Ok(prepared) => prepared,
        Err(error) => return Err(explain(&context, statement.tree(), statement, error)),
    };
    let error = match resolved(&mut context, &mut tree, &mut labels, &held).await {
        Ok(plan) => match has_columns(&plan) {
            Ok(()) => {
                labels::of_unnest(&tree, plan.schema(), &mut labels);
                return Ok((plan, labels));
            }
            Err(error) => error,
        },
        Err(error) => error,
    };
    Err(explain(&context, &tree, statement, error))
}

/// Returns the tree to plan, the names of its columns in the result, and the items that wait for columns.
fn prepared(state: &SessionState, statement: &Statement) -> Result<(Tree, Labels, Held), DataFusionError> {
    let mut tree = statement.tree().clone();
    lakes::call::replace(&mut tree);
    let held = queries::rewrite(&mut tree)?;
    names::keep_case(&mut tree);
    let labels = labels::apply(&mut tree);
    functions::expand(&mut tree, state)?;
    Ok((tree, labels, held))
}

/// Plans a tree, and replaces names in it that are not found, also in the names of its columns.
async fn resolved(
    context: &mut Context<'_>,
    tree: &mut Tree,
    labels: &mut Labels,
    held: &Held,
) -> Result<LogicalPlan, DataFusionError> {
    syntax::apply(tree)?;
    let mut renamed = HashSet::new();
    loop {
        context.open_files(tree).await?;
        context.resolve(tree).await?;
        let error = match context.plan(tree.clone()) {
            Ok(plan) => {
                let names = query(&plan).schema().fields().iter().map(|field| field.name().as_str());
                if labels::of_fields(tree, names) {
                    labels.extend(labels::apply(tree));
                    continue;
                }
                return planned::rewrite(plan);
            }
            Err(error) => error,
        };
        if columns::restore(tree, held, &error)? {
            // Labels show the items as they were typed, so these cannot be expanded before they are put back.
            labels.extend(labels::apply(tree));
            queries::order(tree);
            functions::expand(tree, context.state())?;
            syntax::apply(tree)?;
            continue;
        }
        let other = names::unnested(tree, &error).or_else(|| names::other_case(&error, &context.columns()));
        if let Some((from, to)) = other {
            // A name is replaced everywhere, unless it has the other case somewhere else.
            let only = renamed.contains(&(to.clone(), from.clone(), None)).then(|| place::of(&error));
            let only = only.flatten().map(|span| span.start);
            if renamed.insert((from.clone(), to.clone(), only))
                && names::rename_columns(tree, &from, &to, only)
            {
                labels.values_mut().filter(|label| **label == from).for_each(|label| label.clone_from(&to));
                continue;
            }
        }
        if names::names_field(tree, &error) {
            labels.extend(labels::apply(tree));
            continue;
        }
        if names::unnest_struct(tree, &error) {
            // The column that it names may be in another case.
            renamed.clear();
            continue;
        }
        if aliases::replace(tree, &error)? {
            continue;
        }
        let Some(StandIn { name, table, quoted }) = tables::stand_in(context.state(), &error) else {
            return Err(error);
        };
        if !tree::rename(tree, &name, &table, quoted) {
            return Err(error);
        }
    }
}

/// Returns the types of columns as declared.
///
/// # Errors
/// Returns an error for an unknown type.
pub(crate) fn column_types(
    state: &SessionState,
    columns: &[ColumnDef],
) -> Result<Vec<DataType>, DataFusionError> {
    let schema = Context::new(state, &Arc::default()).schema(columns.to_vec())?;
    Ok(schema.fields().iter().map(|field| field.data_type().clone()).collect())
}

/// Refuses a query without columns (`SELECT FROM t`), which has nothing to show.
fn has_columns(plan: &LogicalPlan) -> Result<(), DataFusionError> {
    let query = query(plan);
    let has_none = query.schema().fields().is_empty();
    if has_none && !matches!(query, LogicalPlan::Ddl(_) | LogicalPlan::Statement(_)) {
        let message = "the query has no columns; list columns after SELECT, or write SELECT *";
        return Err(DataFusionError::Plan(message.to_string()));
    }
    Ok(())
}

/// Returns the plan of the query within a statement; that of the statement if it has none.
fn query(plan: &LogicalPlan) -> &LogicalPlan {
    match plan {
        LogicalPlan::Explain(e) => &e.plan,
        LogicalPlan::Analyze(a) => &a.input,
        LogicalPlan::Copy(c) => &c.input,
        LogicalPlan::Ddl(DdlStatement::CreateView(v)) => &v.input,
        other => other,
    }
}

/// Adds the place in the statement to an error of a plan that could not be optimized.
pub(crate) async fn explain_physical(
    state: &SessionState,
    statement: &Statement,
    values: &Arc<Values>,
    error: DataFusionError,
) -> EngineError {
    let mut context = Context::new(state, values);
    let Ok((mut tree, mut labels, held)) = prepared(state, statement) else {
        return explain(&context, statement.tree(), statement, error);
    };
    // It was planned before, so this finds the tables once more.
    let _ = resolved(&mut context, &mut tree, &mut labels, &held).await;
    explain(&context, &tree, statement, error)
}

/// Converts an error, with the nearest candidates for an unknown name and the place in the statement.
fn explain(context: &Context<'_>, tree: &Tree, statement: &Statement, error: DataFusionError) -> EngineError {
    let span = place::of(&error)
        .or_else(|| locate::find(context, tree, &error))
        .or_else(|| locate::subquery(tree, &error));
    let error = ambiguous(context, tree, error);
    let error = EngineError::from(candidates::rewrite(
        context.state(),
        tables::suggest_tables(context.state(), error),
    ));
    match (error, span) {
        (EngineError::Usage(message), Some(span)) => {
            let message = as_typed(statement.text(), span, message);
            EngineError::Usage(place::mark(statement.text(), span, &message))
        }
        (EngineError::Failed(message), None) => {
            EngineError::Failed(match locate::path(statement, &message) {
                Some(span) => place::mark(statement.text(), span, &message),
                None => message,
            })
        }
        (error, _) => error,
    }
}

/// Writes the unknown name of a message in the case in which it was typed.
fn as_typed(text: &str, span: Span, message: String) -> String {
    let typed = place::text(text, span).unwrap_or_default();
    let unknown = ["cannot find column ", "cannot find table ", "cannot find function "];
    let name = unknown.iter().find_map(|start| message.strip_prefix(start)).and_then(|rest| {
        let name = rest.get(..typed.len())?;
        (name.eq_ignore_ascii_case(typed) && rest[typed.len()..].starts_with([';', ':'])).then_some(name)
    });
    match name {
        Some(name) => message.replacen(name, typed, 1),
        None => message,
    }
}

/// Adds the tables that have an ambiguous column to its error: planned with another name, the statement has an
/// error that lists all columns.
fn ambiguous(context: &Context<'_>, tree: &Tree, error: DataFusionError) -> DataFusionError {
    const OTHER: &str = "__ambiguous";
    let DataFusionError::SchemaError(inner, _) = error.find_root() else { return error };
    let SchemaError::AmbiguousReference { field } = inner.as_ref() else { return error };
    let name = field.name.clone();
    let mut copy = tree.clone();
    names::rename_columns(&mut copy, &name, OTHER, place::of(&error).map(|span| span.start));
    let Err(other) = context.plan(copy) else { return error };
    let DataFusionError::SchemaError(inner, _) = other.find_root() else { return error };
    let SchemaError::FieldNotFound { field, valid_fields } = inner.as_ref() else { return error };
    let tables = valid_fields.iter().filter(|one| one.name == name).filter_map(|one| one.relation.as_ref());
    let names: Vec<String> = tables.map(|table| format!("{}.{name}", table.table())).collect();
    if field.name != OTHER || names.len() < 2 {
        return error;
    }
    DataFusionError::Plan(format!("column {name} is in more than one table; write {}", names.join(" or ")))
}
