//! BEGIN, COMMIT and ROLLBACK.
//!
//! Tables are immutable, so a transaction remembers those of its start, and ROLLBACK puts them back. Files that
//! COPY has written stay. After an error, a transaction accepts ROLLBACK only.

use std::sync::Arc;

use datafusion::common::TableReference;

use crate::EngineError;
use crate::session::Session;
use crate::sql::statements::Statement;
use crate::statements::script::state::Transaction;
use crate::sync::lock;

/// Starts a transaction.
///
/// # Errors
/// Returns an error if one has started.
pub(crate) async fn begin(session: &Session, statement: &Statement) -> Result<(), EngineError> {
    if session.statements.transaction().is_some() {
        let message = "cannot BEGIN: a transaction has started already; COMMIT or ROLLBACK it first";
        return Err(statement.refuse(statement.span(), message));
    }
    let tables = tables(session).await?;
    let transaction = Transaction {
        tables,
        names: session.statements.names().clone(),
        sequences: lock(&session.statements.sequences).clone(),
        failed: false,
    };
    *session.statements.transaction() = Some(transaction);
    Ok(())
}

/// Keeps the changes of a transaction; takes them back if it has failed.
///
/// # Errors
/// Returns an error if there is none.
pub(crate) async fn commit(session: &Session, statement: &Statement) -> Result<(), EngineError> {
    if session.statements.transaction().as_ref().is_some_and(|t| t.failed) {
        return rollback(session, statement).await;
    }
    match session.statements.transaction().take() {
        Some(_) => Ok(()),
        None => Err(none(statement, "COMMIT")),
    }
}

/// Takes back the changes of a transaction.
///
/// # Errors
/// Returns an error if there is none.
pub(crate) async fn rollback(session: &Session, statement: &Statement) -> Result<(), EngineError> {
    let Some(before) = session.statements.transaction().take() else {
        return Err(none(statement, "ROLLBACK"));
    };
    for (reference, _) in tables(session).await? {
        session.context.deregister_table(reference)?;
    }
    for (reference, table) in before.tables {
        session.context.register_table(reference, table)?;
    }
    *session.statements.names() = before.names;
    *lock(&session.statements.sequences) = before.sequences;
    Ok(())
}

fn none(statement: &Statement, word: &str) -> EngineError {
    let message = format!("cannot {word}: no transaction has started; BEGIN one first");
    statement.refuse(statement.span(), &message)
}

/// Refuses all statements of a failed transaction but its end.
///
/// # Errors
/// Returns an error if the transaction has failed.
pub(crate) fn check(session: &Session, statement: &Statement) -> Result<(), EngineError> {
    let failed = session.statements.transaction().as_ref().is_some_and(|t| t.failed);
    if failed && !["ROLLBACK", "ABORT", "COMMIT", "END"].contains(&statement.keyword()) {
        let message = "cannot run the statement: an earlier one of its transaction failed; ROLLBACK first";
        return Err(statement.refuse(statement.span(), message));
    }
    Ok(())
}

/// Returns all tables of the user.
async fn tables(
    session: &Session,
) -> Result<Vec<(TableReference, Arc<dyn datafusion::catalog::TableProvider>)>, EngineError> {
    let catalogs = Arc::clone(session.context.state().catalog_list());
    let mut found = Vec::new();
    for catalog_name in catalogs.catalog_names() {
        let Some(catalog) = catalogs.catalog(&catalog_name) else { continue };
        for schema_name in catalog.schema_names().into_iter().filter(|name| name != "information_schema") {
            let Some(schema) = catalog.schema(&schema_name) else { continue };
            for name in schema.table_names() {
                if let Some(table) = schema.table(&name).await? {
                    found
                        .push((TableReference::full(catalog_name.clone(), schema_name.clone(), name), table));
                }
            }
        }
    }
    Ok(found)
}
