//! Logical plans of statements, and error messages that need the statement.

use datafusion::common::DataFusionError;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use datafusion::sql::parser::Statement;

use crate::EngineError;
use crate::sql::tree;
use crate::tables::{self, StandIn};

/// Plans a statement. A table name that is not registered may match a registered one in another
/// case, or name a folder.
pub(crate) async fn plan(
    state: &SessionState,
    statement: &Statement,
) -> Result<LogicalPlan, DataFusionError> {
    let mut statement = statement.clone();
    loop {
        let error = match state.statement_to_plan(statement.clone()).await {
            Ok(plan) => return columns(&plan).map(|()| plan),
            Err(error) => error,
        };
        let Some(StandIn { name, table, quoted }) = tables::stand_in(state, &error) else {
            return Err(tables::suggest_tables(state, error));
        };
        if !tree::rename(&mut statement, &name, &table, quoted) {
            return Err(tables::suggest_tables(state, error));
        }
    }
}

/// Refuses a query without columns (`SELECT FROM t`), which has nothing to show.
fn columns(plan: &LogicalPlan) -> Result<(), DataFusionError> {
    let query = match plan {
        LogicalPlan::Explain(e) => &e.plan,
        LogicalPlan::Analyze(a) => &a.input,
        LogicalPlan::Copy(c) => &c.input,
        LogicalPlan::Ddl(DdlStatement::CreateView(v)) => &v.input,
        LogicalPlan::Ddl(_) | LogicalPlan::Statement(_) => return Ok(()),
        query => query,
    };
    if query.schema().fields().is_empty() {
        let message = "the query has no columns; list columns after SELECT, or write SELECT *";
        return Err(DataFusionError::Plan(message.to_string()));
    }
    Ok(())
}

/// Adds the divisions in the statement to a division-by-zero error, which itself names none.
pub(crate) fn name_division(statement: &Statement, error: EngineError) -> EngineError {
    let by_zero = matches!(&error, EngineError::Failed(message) if message.ends_with("Divide by zero error"));
    if !by_zero {
        return error;
    }
    let divisions = tree::divisions(statement);
    let place = match &divisions[..] {
        [] => "the query".to_string(),
        [one] => one.clone(),
        several => format!("one of {}", several.join(", ")),
    };
    EngineError::Failed(format!(
        "cannot compute {place}: division by zero; divide by nullif(…, 0) to get NULL instead"
    ))
}
