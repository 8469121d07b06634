//! A statement's logical plan, and what the text of a statement says of its errors.

use datafusion::common::DataFusionError;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{DdlStatement, LogicalPlan};

use crate::tables::{self, StandIn};
use crate::{EngineError, statements};

/// The logical plan of a statement. A table that is not known by its exact name may be known in other
/// letters, or be a folder.
pub(crate) async fn plan(state: &SessionState, sql: &str) -> Result<LogicalPlan, DataFusionError> {
    let mut statement = statements::one(sql, &state.config().options().sql_parser)?;
    loop {
        let error = match state.statement_to_plan(statement.clone()).await {
            Ok(plan) => return columns(&plan).map(|()| plan),
            Err(error) => error,
        };
        let Some(StandIn { name, table, quoted }) = tables::stand_in(state, &error) else {
            return Err(tables::nearest(state, error));
        };
        if !statements::rename(&mut statement, &name, &table, quoted) {
            return Err(tables::nearest(state, error));
        }
    }
}

/// Refuses a query without columns (`SELECT FROM t`): nothing could be shown of it.
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
        let words = "the query has no columns; name some after SELECT, or write SELECT *";
        return Err(DataFusionError::Plan(words.to_string()));
    }
    Ok(())
}

/// Names the expressions that a division by zero may have come from: the error itself names none.
pub(crate) fn named(state: &SessionState, sql: &str, error: EngineError) -> EngineError {
    let by_zero = matches!(&error, EngineError::Failed(words) if words.ends_with("Divide by zero error"));
    let Some(statement) = statements::one(sql, &state.config().options().sql_parser).ok().filter(|_| by_zero)
    else {
        return error;
    };
    let divisions = statements::divisions(&statement);
    let place = match &divisions[..] {
        [] => "the query".to_string(),
        [one] => one.clone(),
        several => format!("one of {}", several.join(", ")),
    };
    EngineError::Failed(format!(
        "cannot compute {place}: division by zero; divide by nullif(…, 0) to get NULL instead"
    ))
}
