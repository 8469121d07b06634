//! Events of SQL executions.

use crate::event::application::{Settings, settings};
use crate::event::job::EndEvent;
use crate::event::plan::Plan;
use crate::event::time::time;
use crate::json::{Malformed, Scanner, fields};

/// The start of an SQL execution, or a change of its plan.
#[derive(Debug, Default)]
pub struct Execution<'a> {
    pub id: Option<u64>,
    pub root: Option<u64>,
    pub description: Option<String>,
    pub at_ms: Option<u64>,
    /// The plan; empty if the event has none, or no id.
    pub plan: Plan<'a>,
    pub sql_settings: Settings,
}

/// Reads the start of an SQL execution, or an adaptive change of its plan.
pub fn execution<'a>(scanner: &mut Scanner<'a>) -> Result<Execution<'a>, Malformed> {
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

/// Metrics that the driver counted itself: the execution, and the value of each accumulator.
#[derive(Debug, Default)]
pub struct DriverMetrics {
    pub id: Option<u64>,
    pub values: Vec<(u64, u64)>,
}

/// Reads metrics that the driver counted itself.
pub fn driver_metrics(scanner: &mut Scanner<'_>) -> Result<DriverMetrics, Malformed> {
    let mut metrics = DriverMetrics::default();
    fields!(scanner.object, value {
        b"executionId" => metrics.id = value.number()?,
        b"accumUpdates" => value.array_or_skip(|update| {
            let mut numbers = Vec::with_capacity(2);
            update.array_or_skip(|number| {
                numbers.push(number.number()?);
                Ok(())
            })?;
            if let [Some(accumulator), Some(value)] = numbers[..] {
                metrics.values.push((accumulator, value));
            }
            Ok(())
        })?,
    });
    Ok(metrics)
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
