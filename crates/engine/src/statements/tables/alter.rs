//! ALTER TABLE and DROP.

use datafusion::arrow::array::{ArrayRef, new_null_array};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::DataFusionError;
use datafusion::datasource::TableType;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::{
    AlterColumnOperation, AlterTable, AlterTableOperation, Expr, Ident, ObjectName, ObjectType,
    RenameTableNameKind, Spanned, TableConstraint,
};

use crate::EngineError;
use crate::logical;
use crate::logical::nearest::hint;
use crate::session::Session;
use crate::sql::statements::Statement;
use crate::statements::tables::change::check_memory;
use crate::statements::tables::create::{definition, table_constraint};
use crate::statements::tables::insert::{existing, last};
use crate::statements::tables::table::{Definition, Table, find, put, renamed, replace};
use crate::statements::tables::{checks, insert};
use crate::types::cast::cast;

/// Changes a table's name, columns or constraints.
///
/// # Errors
/// Returns an error with its place if a name is unknown, or the rows do not fit.
pub(crate) async fn alter(
    session: &Session,
    statement: &Statement,
    alter: &AlterTable,
) -> Result<(), EngineError> {
    let state = session.context.state();
    if alter.if_exists && find(&state, &alter.name).await?.is_none() {
        return Ok(());
    }
    for operation in &alter.operations {
        let found = existing(session, statement, &alter.name).await?;
        if let AlterTableOperation::RenameTable { table_name } = operation {
            let (RenameTableNameKind::As(name) | RenameTableNameKind::To(name)) = table_name;
            rename(session, statement, &alter.name, name).await?;
            continue;
        }
        check_memory(statement, &found, &alter.name)?;
        let Some(table) = found.table() else { continue };
        let changing = Changing { context: &session.context, statement, table, name: &alter.name };
        let changed = changing.apply(operation).await?;
        replace(&session.context, &found, changed).await?;
    }
    Ok(())
}

async fn rename(
    session: &Session,
    statement: &Statement,
    from: &ObjectName,
    to: &ObjectName,
) -> Result<(), EngineError> {
    let found = existing(session, statement, from).await?;
    let state = session.context.state();
    let to_name = last(to);
    if let Some(other) = find(&state, to).await?
        && other.reference != found.reference
    {
        let message = format!("cannot rename {from} to {to}: {to} exists; DROP it first");
        return Err(statement.refuse(to.span(), &message));
    }
    session.context.deregister_table(found.reference.clone())?;
    put(&session.context, &renamed(&found.reference, &to_name.value), found.provider)?;
    Ok(())
}

/// A table whose columns or constraints change.
struct Changing<'a> {
    context: &'a SessionContext,
    statement: &'a Statement,
    table: &'a Table,
    name: &'a ObjectName,
}

impl Changing<'_> {
    async fn apply(&self, operation: &AlterTableOperation) -> Result<Table, EngineError> {
        let mut made = self.table.definition.clone();
        let mut columns: Vec<ArrayRef> = self.table.all()?.columns().to_vec();
        match operation {
            AlterTableOperation::AddColumn { if_not_exists, column_def, column_position: None, .. } => {
                if made.position(&column_def.name.value).is_none() {
                    return self.add(column_def).await;
                }
                if !if_not_exists {
                    let message = format!("cannot add column {}: it exists", column_def.name.value);
                    return Err(self.statement.refuse(column_def.name.span, &message));
                }
            }
            AlterTableOperation::DropColumn { column_names, if_exists, .. } => {
                for name in column_names {
                    if *if_exists && made.position(&name.value).is_none() {
                        continue;
                    }
                    let at = self.position(&made, name)?;
                    self.check_unused(&made, at, name)?;
                    if made.columns.len() == 1 {
                        return Err(self
                            .statement
                            .refuse(name.span, "cannot drop the only column of a table; DROP TABLE it"));
                    }
                    made.columns.remove(at);
                    columns.remove(at);
                    for index in made.keys.iter_mut().flat_map(|key| &mut key.columns) {
                        *index -= usize::from(*index > at);
                    }
                }
            }
            AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
                let at = self.position(&made, old_column_name)?;
                if made.position(&new_column_name.value).is_some_and(|other| other != at) {
                    let message =
                        format!("cannot rename {old_column_name}: the table has a column {new_column_name}");
                    return Err(self.statement.refuse(new_column_name.span, &message));
                }
                if uses(&made, &made.columns[at].name) {
                    let message = format!(
                        "cannot rename {old_column_name}: a CHECK or a generated column uses it; create the table anew"
                    );
                    return Err(self.statement.refuse(old_column_name.span, &message));
                }
                made.columns[at].name.clone_from(&new_column_name.value);
            }
            AlterTableOperation::AlterColumn { column_name, op } => {
                let at = self.position(&made, column_name)?;
                self.column(&mut made, &mut columns, at, column_name, op).await?;
            }
            AlterTableOperation::AddConstraint { constraint, .. } => {
                if !matches!(constraint, TableConstraint::PrimaryKey(_)) {
                    return Err(self.other(operation));
                }
                let names = made.names();
                table_constraint(self.statement, constraint, &names, &mut made)?;
                for index in made.keys.iter().filter(|key| key.primary).flat_map(|key| &key.columns) {
                    made.columns[*index].not_null = true;
                }
            }
            _ => return Err(self.other(operation)),
        }
        self.table_of(made, columns)
    }

    fn other(&self, operation: &AlterTableOperation) -> EngineError {
        let message = format!("ALTER TABLE … {operation} is not supported; create the table anew");
        self.statement.refuse(self.name.span(), &message)
    }

    /// Returns the table of these columns, whose rows fulfil the constraints.
    fn table_of(&self, made: Definition, columns: Vec<ArrayRef>) -> Result<Table, EngineError> {
        let name = last(self.name).value;
        checks::not_null(&name, &made, &columns)?;
        let rows = RecordBatch::try_new(made.schema(), columns).map_err(DataFusionError::from)?;
        checks::unique(&name, &made, &rows)?;
        Ok(Table::new(made, vec![rows])?)
    }

    fn position(&self, made: &Definition, name: &Ident) -> Result<usize, EngineError> {
        made.position(&name.value).ok_or_else(|| {
            let hint = hint(&name.value, made.names(), "the columns are");
            self.statement.refuse(name.span, &format!("cannot find column {}; {hint}", name.value))
        })
    }

    fn check_unused(&self, made: &Definition, at: usize, name: &Ident) -> Result<(), EngineError> {
        let in_key = made.keys.iter().any(|key| key.columns.contains(&at));
        if in_key || uses(made, &made.columns[at].name) {
            let message = format!(
                "cannot drop column {name}: a key, a CHECK or a generated column uses it; create the table anew"
            );
            return Err(self.statement.refuse(name.span, &message));
        }
        Ok(())
    }

    async fn add(&self, column: &datafusion::sql::sqlparser::ast::ColumnDef) -> Result<Table, EngineError> {
        let state = self.context.state();
        let added = definition(&state, self.statement, std::slice::from_ref(column), &[])?;
        if !added.keys.is_empty()
            || !added.checks.is_empty()
            || added.columns.iter().any(|c| c.generated.is_some())
        {
            let message =
                "a column that is added cannot have a key, a CHECK or an expression; create the table anew";
            return Err(self.statement.refuse(column.name.span, message));
        }
        let mut made = self.table.definition.clone();
        let rows = self.table.all()?;
        let count = rows.num_rows();
        let given: Vec<Option<ArrayRef>> = vec![None];
        let mut nullable = added.clone();
        nullable.columns[0].not_null = false;
        let values = insert::complete(self.context, self.statement, &nullable, given, count).await?;
        made.columns.extend(added.columns);
        let mut columns = rows.columns().to_vec();
        columns.push(values.column(0).clone());
        self.table_of(made, columns)
    }

    async fn column(
        &self,
        made: &mut Definition,
        columns: &mut [ArrayRef],
        at: usize,
        name: &Ident,
        operation: &AlterColumnOperation,
    ) -> Result<(), EngineError> {
        match operation {
            AlterColumnOperation::SetNotNull => made.columns[at].not_null = true,
            AlterColumnOperation::DropNotNull => {
                if made.keys.iter().any(|key| key.primary && key.columns.contains(&at)) {
                    let message = format!("cannot drop NOT NULL of column {name}: it is in the PRIMARY KEY");
                    return Err(self.statement.refuse(name.span, &message));
                }
                made.columns[at].not_null = false;
            }
            AlterColumnOperation::SetDefault { value } => made.columns[at].default = Some(value.clone()),
            AlterColumnOperation::DropDefault => made.columns[at].default = None,
            AlterColumnOperation::SetDataType { data_type, using, .. } => {
                if made.columns[at].generated.is_some() || uses(made, &made.columns[at].name) {
                    let message = format!(
                        "cannot change the type of {name}: a CHECK or a generated column uses it; create the table anew"
                    );
                    return Err(self.statement.refuse(name.span, &message));
                }
                let column = datafusion::sql::sqlparser::ast::ColumnDef {
                    name: name.clone(),
                    data_type: data_type.clone(),
                    options: Vec::new(),
                };
                let types = logical::column_types(&self.context.state(), std::slice::from_ref(&column));
                let types =
                    types.map_err(|e| self.statement.refuse(name.span, &EngineError::from(e).to_string()))?;
                let Some(to) = types.into_iter().next() else { return Ok(()) };
                let values = match using {
                    Some(expr) => self.using(expr).await?,
                    None => columns[at].clone(),
                };
                columns[at] = cast(&values, &to, &name.value)?;
                made.columns[at].data_type = to;
            }
            AlterColumnOperation::AddGenerated { .. } => {
                let message = format!(
                    "an IDENTITY column is not supported; use DEFAULT nextval('sequence') for {name}"
                );
                return Err(self.statement.refuse(name.span, &message));
            }
        }
        Ok(())
    }

    async fn using(&self, expr: &Expr) -> Result<ArrayRef, EngineError> {
        let rows = self.table.all()?;
        let expr = crate::statements::tables::create::bound(expr, &self.table.definition.names());
        let values = checks::evaluated(self.context, self.statement, &rows, &[&expr]).await?;
        Ok(values
            .into_iter()
            .next()
            .unwrap_or_else(|| new_null_array(&datafusion::arrow::datatypes::DataType::Null, 0)))
    }
}

/// Returns true if a CHECK or a generated column uses a column.
fn uses(definition: &Definition, column: &str) -> bool {
    let quoted = crate::statements::run::name(column);
    let generated = definition.columns.iter().filter_map(|c| c.generated.as_ref());
    definition
        .checks
        .iter()
        .map(|check| &check.expr)
        .chain(generated)
        .any(|expr| expr.to_string().contains(&quoted))
}

/// Removes tables or views.
///
/// # Errors
/// Returns an error with its place if one does not exist, or is of another kind.
pub(crate) async fn drop(
    session: &Session,
    statement: &Statement,
    kind: ObjectType,
    names: &[ObjectName],
    if_exists: bool,
) -> Result<(), EngineError> {
    let state = session.context.state();
    for name in names {
        let Some(found) = find(&state, name).await? else {
            if if_exists {
                continue;
            }
            return existing(session, statement, name).await.map(|_| ());
        };
        let is_view = found.provider.table_type() == TableType::View;
        if is_view != (kind == ObjectType::View) {
            let (is, right) = if is_view { ("a view", "DROP VIEW") } else { ("a table", "DROP TABLE") };
            return Err(
                statement.refuse(name.span(), &format!("cannot drop {name}: it is {is}; use {right}"))
            );
        }
        session.context.deregister_table(found.reference.clone())?;
        session.statements.forget_view(&found.reference);
    }
    Ok(())
}
