//! CREATE TABLE, with columns and constraints or with the rows of a query.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::Field;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::DataFusionError;
use datafusion::execution::context::SessionState;
use datafusion::sql::sqlparser::ast::{
    ColumnDef, ColumnOption, CreateTable, DataType as SqlType, Expr, Ident, IndexColumn, Spanned,
    TableConstraint, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::EngineError;
use crate::logical;
use crate::session::Session;
use crate::sql::dialect::Pellucid;
use crate::sql::statements::Statement;
use crate::statements::run::{self, Rows};
use crate::statements::tables::table::{Check, Column, Definition, Found, Key, Table, find, put, reference};
use crate::types::cast::cast;
use crate::types::names::{TEXT_KIND, text_kind};

/// A table that is created once its rows are known.
pub(crate) struct Creation {
    table: CreateTable,
    definition: Definition,
}

/// Creates a table without rows, or returns the creation that waits for its query's rows.
///
/// # Errors
/// Returns an error with its place if the table exists, or has a constraint that cannot be enforced.
pub(crate) async fn begin(
    session: &Session,
    statement: &Statement,
    table: CreateTable,
) -> Result<Option<Creation>, EngineError> {
    let state = session.context.state();
    check_clauses(statement, &table)?;
    let span = table.name.span();
    if let Some(existing) = find(&state, &table.name).await? {
        if table.if_not_exists {
            return Ok(None);
        }
        if !table.or_replace {
            let message = format!(
                "cannot create table {}: it exists; use CREATE OR REPLACE TABLE, or DROP it",
                table.name
            );
            return Err(statement.refuse(span, &message));
        }
        if existing.provider.table_type() == datafusion::datasource::TableType::View {
            let message = format!("cannot replace {}: it is a view; DROP VIEW it first", table.name);
            return Err(statement.refuse(span, &message));
        }
    }
    let mut definition = definition(&state, statement, &table.columns, &table.constraints)?;
    definition.temporary = table.temporary;
    let creation = Creation { table, definition };
    if creation.table.query.is_some() {
        return Ok(Some(creation));
    }
    if creation.definition.columns.is_empty() {
        return Err(statement.refuse(span, "a table needs columns; list them, or write AS SELECT …"));
    }
    creation.put(session, Vec::new()).await?;
    Ok(None)
}

impl Creation {
    /// Creates the table with the rows of its query.
    ///
    /// # Errors
    /// Returns an error if the rows do not fit the declared columns.
    pub(crate) async fn finish(mut self, session: &Session, rows: Rows) -> Result<Rows, EngineError> {
        let (schema, batches) = rows;
        let declared = std::mem::take(&mut self.definition.columns);
        if !declared.is_empty() && declared.len() != schema.fields().len() {
            return Err(EngineError::Usage(format!(
                "cannot create table {}: it declares {} columns, and the query has {}",
                self.table.name,
                declared.len(),
                schema.fields().len()
            )));
        }
        let column = |(at, field): (usize, &Arc<Field>)| match declared.get(at) {
            Some(column) => column.clone(),
            None => Column {
                name: field.name().clone(),
                data_type: field.data_type().clone(),
                not_null: false,
                default: None,
                generated: None,
                rules: stored_as_text(field),
            },
        };
        self.definition.columns = schema.fields().iter().enumerate().map(column).collect();
        let target = self.definition.schema();
        let mut fitted = Vec::new();
        for batch in batches {
            let columns = self.definition.columns.iter().zip(batch.columns());
            let columns =
                columns.map(|(c, values)| cast(values, &c.data_type, &c.name)).collect::<Result<_, _>>()?;
            fitted.push(RecordBatch::try_new(Arc::clone(&target), columns).map_err(DataFusionError::from)?);
        }
        self.put(session, fitted).await?;
        Ok(run::nothing())
    }

    async fn put(self, session: &Session, batches: Vec<RecordBatch>) -> Result<(), EngineError> {
        let existing = find(&session.context.state(), &self.table.name).await?;
        let reference = match existing {
            Some(Found { reference, .. }) => reference,
            // A name of one part keeps its case.
            None => match &self.table.name.0[..] {
                [part] => match part.as_ident() {
                    Some(ident) => datafusion::common::TableReference::bare(ident.value.clone()),
                    None => reference(&self.table.name)?,
                },
                _ => reference(&self.table.name)?,
            },
        };
        put(&session.context, &reference, Arc::new(Table::new(self.definition, batches)?))?;
        Ok(())
    }
}

/// Returns the type of a query's column that is stored as text, such as UUID or an ENUM.
fn stored_as_text(field: &Field) -> Option<SqlType> {
    let kind = field.metadata().get(TEXT_KIND)?;
    Parser::new(&Pellucid).try_with_sql(kind).ok()?.parse_data_type().ok()
}

/// Refuses clauses of other engines, which would be ignored.
fn check_clauses(statement: &Statement, table: &CreateTable) -> Result<(), EngineError> {
    let clause = [
        (table.like.is_some(), "LIKE"),
        (table.clone.is_some(), "CLONE"),
        (table.partition_by.is_some(), "PARTITION BY"),
        (table.cluster_by.is_some(), "CLUSTER BY"),
        (table.clustered_by.is_some(), "CLUSTERED BY"),
        (table.order_by.is_some(), "ORDER BY"),
        (table.primary_key.is_some(), "PRIMARY KEY after the columns"),
        (table.location.is_some(), "LOCATION"),
        (table.file_format.is_some(), "STORED AS without EXTERNAL"),
        (table.on_commit.is_some(), "ON COMMIT"),
        (table.inherits.is_some(), "INHERITS"),
        (table.comment.is_some(), "COMMENT"),
        (!table.table_options.to_string().is_empty(), "an option of the table"),
        (table.on_cluster.is_some(), "ON CLUSTER"),
    ];
    match clause.iter().find(|(given, _)| *given) {
        Some((_, name)) => {
            let message = format!("{name} of CREATE TABLE {} is not supported; remove it", table.name);
            Err(statement.refuse(table.name.span(), &message))
        }
        None => Ok(()),
    }
}

/// Reads declared columns and constraints.
///
/// # Errors
/// Returns an error with its place for an unknown type or a constraint that cannot be enforced.
pub(crate) fn definition(
    state: &SessionState,
    statement: &Statement,
    columns: &[ColumnDef],
    constraints: &[TableConstraint],
) -> Result<Definition, EngineError> {
    let mut made = Definition::default();
    let types = logical::column_types(state, columns).map_err(|error| {
        statement.refuse(
            columns.first().map_or(Span::empty(), |c| c.name.span),
            &EngineError::from(error).to_string(),
        )
    })?;
    let names: Vec<String> = columns.iter().map(|c| c.name.value.clone()).collect();
    for (index, (column, data_type)) in columns.iter().zip(types).enumerate() {
        if made.position(&column.name.value).is_some() {
            let message =
                format!("cannot create the table: it has two columns {}; rename one", column.name.value);
            return Err(statement.refuse(column.name.span, &message));
        }
        let name = column.name.value.clone();
        let rules = text_kind(&column.data_type).map(|_| column.data_type.clone());
        let mut one = Column { name, data_type, not_null: false, default: None, generated: None, rules };
        for option in &column.options {
            let of_option = Options { statement, column, names: &names, index };
            of_option.apply(&option.option, option.name.as_ref(), &mut one, &mut made)?;
        }
        made.columns.push(one);
    }
    for constraint in constraints {
        table_constraint(statement, constraint, &names, &mut made)?;
    }
    for key in &made.keys {
        if key.primary {
            for index in &key.columns {
                made.columns[*index].not_null = true;
            }
        }
    }
    Ok(made)
}

/// The options of one column.
struct Options<'a> {
    statement: &'a Statement,
    column: &'a ColumnDef,
    names: &'a [String],
    index: usize,
}

impl Options<'_> {
    fn apply(
        &self,
        option: &ColumnOption,
        name: Option<&Ident>,
        one: &mut Column,
        made: &mut Definition,
    ) -> Result<(), EngineError> {
        match option {
            ColumnOption::Null => {}
            ColumnOption::NotNull => one.not_null = true,
            ColumnOption::Default(expr) => one.default = Some(expr.clone()),
            ColumnOption::Check(check) => made
                .checks
                .push(Check { name: name.map(|n| n.value.clone()), expr: bound(&check.expr, self.names) }),
            ColumnOption::PrimaryKey(_) => {
                self.check_primary(made)?;
                made.keys.push(Key { columns: vec![self.index], primary: true });
            }
            ColumnOption::Unique(_) => made.keys.push(Key { columns: vec![self.index], primary: false }),
            ColumnOption::Generated { generation_expr: Some(expr), .. } => {
                one.generated = Some(bound(expr, self.names))
            }
            other => {
                let what = match other {
                    ColumnOption::ForeignKey(_) => "a foreign key (REFERENCES)".to_string(),
                    ColumnOption::Generated { .. } => "an IDENTITY column".to_string(),
                    other => other.to_string(),
                };
                let way = match other {
                    ColumnOption::Generated { .. } => "use DEFAULT nextval('sequence')",
                    _ => "rows would not be checked; remove it",
                };
                let message = format!("{what} of column {} is not supported; {way}", self.column.name);
                return Err(self.statement.refuse(self.column.name.span, &message));
            }
        }
        Ok(())
    }

    fn check_primary(&self, made: &Definition) -> Result<(), EngineError> {
        if made.keys.iter().any(|key| key.primary) {
            let message = "a table has one PRIMARY KEY; list its columns: PRIMARY KEY (a, b)";
            return Err(self.statement.refuse(self.column.name.span, message));
        }
        Ok(())
    }
}

/// Adds a constraint of the table.
///
/// # Errors
/// Returns an error with its place if it cannot be enforced, or names an unknown column.
pub(crate) fn table_constraint(
    statement: &Statement,
    constraint: &TableConstraint,
    names: &[String],
    made: &mut Definition,
) -> Result<(), EngineError> {
    let (columns, primary) = match constraint {
        TableConstraint::Check(check) => {
            let name = check.name.as_ref().map(|n| n.value.clone());
            made.checks.push(Check { name, expr: bound(&check.expr, names) });
            return Ok(());
        }
        TableConstraint::PrimaryKey(key) => (&key.columns, true),
        TableConstraint::Unique(key) => (&key.columns, false),
        other => {
            let message = format!("{other} is not supported; rows would not be checked; remove it");
            return Err(statement.refuse(other.span(), &message));
        }
    };
    if primary && made.keys.iter().any(|key| key.primary) {
        return Err(statement.refuse(constraint.span(), "a table has one PRIMARY KEY; remove the other"));
    }
    let index = |column: &IndexColumn| {
        let name = column.column.expr.to_string();
        let name = name.trim_matches('"');
        let found = names.iter().position(|n| n.to_lowercase() == name.to_lowercase());
        found.ok_or_else(|| {
            let hint = logical::nearest::hint(name, names.to_vec(), "the columns are");
            statement.refuse(column.column.expr.span(), &format!("cannot find column {name}; {hint}"))
        })
    };
    let columns = columns.iter().map(index).collect::<Result<_, _>>()?;
    made.keys.push(Key { columns, primary });
    Ok(())
}

/// Returns an expression with the columns' own case.
pub(crate) fn bound(expr: &Expr, names: &[String]) -> Expr {
    struct Bind<'a>(&'a [String]);
    impl VisitorMut for Bind<'_> {
        type Break = std::convert::Infallible;

        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
            if let Expr::Identifier(name) = expr
                && let Some(column) = self.0.iter().find(|c| c.to_lowercase() == name.value.to_lowercase())
            {
                name.value.clone_from(column);
                name.quote_style = Some('"');
            }
            ControlFlow::Continue(())
        }
    }
    let mut expr = expr.clone();
    // `Break` is `Infallible`.
    let _ = expr.visit(&mut Bind(names));
    expr
}
