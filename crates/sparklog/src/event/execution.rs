//! Events of SQL executions.

use crate::event::application::{Settings, settings};
use crate::event::job::EndEvent;
use crate::event::plan::Plan;
use crate::event::time::time;
use crate::json::{Malformed, Scanner, fields};

/// The start of an SQL execution, or a change of its plan.
#[derive(Debug, Default)]
pub struct Execution {
    pub id: Option<u64>,
    pub root: Option<u64>,
    pub description: Option<String>,
    pub at_ms: Option<u64>,
    /// The plan; empty if the event has none, or no id.
    pub plan: Plan,
    pub sql_settings: Settings,
}

/// Reads the start of an SQL execution, or an adaptive change of its plan.
pub fn execution(scanner: &mut Scanner<'_>) -> Result<Execution, Malformed> {
    let mut execution = Execution::default();
    let mut plan = None;
    fields!(scanner.object, value {
        b"executionId" => execution.id = value.number()?,
        b"rootExecutionId" => execution.root = value.number()?,
        b"description" => execution.description = value.string()?,
        b"time" => execution.at_ms = time(value)?,
        b"sparkPlanInfo" => plan = Some(value.raw()?),
        b"modifiedConfigs" => settings(value, &mut execution.sql_settings)?,
    });
    if let Some(plan) = plan.filter(|_| execution.id.is_some()) {
        execution.plan = Plan::read(plan)?;
    }
    Ok(execution)
}

/// Reads the end of an SQL execution.
pub fn execution_end(scanner: &mut Scanner<'_>) -> Result<EndEvent, Malformed> {
    let mut end = EndEvent::default();
    fields!(scanner.object, value {
        b"executionId" => end.id = value.number()?,
        b"time" => end.at_ms = time(value)?,
        b"errorMessage" => end.error = value.string()?.filter(|message| !message.is_empty()),
    });
    end.failed = end.error.is_some();
    Ok(end)
}
