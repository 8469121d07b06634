//! A job's core time by operator.

use std::collections::BTreeMap;

use pellucid_trace::{Column, Expression, Operator, Phase, Trace};

use super::demand::{Demand, Demands};
use crate::analysis::{ColumnTime, ExchangeRead, ExpressionTime, OperatorTime};
use crate::index::{Ix, JobIx, StageIx};
use crate::numbers::ms;

/// Returns the core time of each operator of a job, most expensive first, and what is left of each stage's, so that all
/// sum to the core time of the job's compute monotasks. `None` if the trace has no operators of the job.
pub(crate) fn core_time(trace: &Trace, demands: &Demands, job: JobIx) -> Option<Vec<OperatorTime>> {
    let of_job = |o: &&Operator| trace.stages.get(o.stage as usize).is_some_and(|s| JobIx(s.job) == job);
    let operators: Vec<&Operator> = trace.operators.iter().filter(of_job).collect();
    if operators.is_empty() {
        return None;
    }
    let mut by_stage: BTreeMap<StageIx, Vec<&Operator>> = BTreeMap::new();
    for operator in &operators {
        by_stage.entry(StageIx(operator.stage)).or_default().push(operator);
    }
    let mut reserved: BTreeMap<StageIx, Vec<Option<u64>>> =
        by_stage.keys().map(|stage| (*stage, Vec::new())).collect();
    for task in &trace.multitasks {
        reserved.entry(StageIx(task.stage)).and_modify(|of_stage| of_stage.push(task.memory_bytes));
    }
    let time_of = |of: &&Operator| {
        let stage = StageIx(of.stage);
        time(of, &by_stage[&stage], &reserved[&stage])
    };
    let mut times: Vec<OperatorTime> = operators.iter().map(time_of).collect();
    for &stage in demands.stages_of(job) {
        let on_cores = demands.of_stage(stage).iter().filter(|d| computes(demands, d));
        let whole: Option<u64> = on_cores.map(|d| demands.monotask(d).cpu_ns).sum();
        let known: u64 = by_stage.get(&stage).map_or(0, |of_stage| of_stage.iter().map(|o| o.cpu_ns).sum());
        // A stage that did not end has no operators, and its core time is all rest.
        let Some(rest) = whole.and_then(|whole| whole.checked_sub(known)).filter(|rest| *rest > 0) else {
            continue;
        };
        times.push(OperatorTime {
            stage: stage.at(),
            operator: None,
            name: "rest".into(),
            part: "rest",
            core_ms: ms(rest as f64),
            rows_in: None,
            rows_out: None,
            planned_rows: None,
            columns: None,
            expressions: Vec::new(),
            exchange_read: None,
        });
    }
    times.sort_by(|a, b| b.core_ms.total_cmp(&a.core_ms));
    Some(times)
}

fn computes(demands: &Demands, demand: &Demand) -> bool {
    demands.on_cores(demand) && demands.monotask(demand).phase == Phase::Compute
}

fn time(of: &Operator, of_stage: &[&Operator], reserved: &[Option<u64>]) -> OperatorTime {
    OperatorTime {
        stage: of.stage as usize,
        operator: Some(of.operator),
        name: of.name.clone(),
        part: of.part.name(),
        core_ms: ms(of.cpu_ns as f64),
        rows_in: of.rows_in(of_stage),
        rows_out: of.rows,
        planned_rows: of.planned_rows,
        columns: columns(of),
        expressions: expressions(of),
        exchange_read: exchange_read(of, of_stage, reserved),
    }
}

/// Returns how much of an exchange each multitask of a stage read. A multitask reserves the bytes of all that it reads, so
/// these are known for a stage that reads one exchange and nothing else, to its end: one whose reservations add up to the
/// bytes that this exchange returned.
fn exchange_read(of: &Operator, of_stage: &[&Operator], reserved: &[Option<u64>]) -> Option<ExchangeRead> {
    of.from?;
    let bytes = of.bytes?;
    if of_stage.iter().filter(|o| o.from.is_some()).count() > 1 {
        return None;
    }
    // A single multitask may read several partitions, and reserves only the first.
    let by_task = match reserved {
        [_] => vec![bytes],
        several => several.iter().copied().collect::<Option<Vec<u64>>>()?,
    };
    ExchangeRead::of(&by_task).filter(|read| read.bytes == bytes)
}

/// Returns the columns of a scan, most expensive first.
fn columns(of: &Operator) -> Option<Vec<ColumnTime>> {
    let time = |column: &Column| ColumnTime {
        name: column.name.clone(),
        core_ms: ms(column.cpu_ns as f64),
        bytes: column.encoded_bytes,
    };
    let mut columns: Vec<ColumnTime> = of.columns.iter().map(time).collect();
    columns.sort_by(|a, b| b.core_ms.total_cmp(&a.core_ms));
    (!columns.is_empty()).then_some(columns)
}

/// Returns the expressions of an operator, most expensive first.
fn expressions(of: &Operator) -> Vec<ExpressionTime> {
    let time = |of: &Expression| ExpressionTime { text: of.text.clone(), core_ms: ms(of.cpu_ns as f64) };
    let mut expressions: Vec<ExpressionTime> = of.expressions.iter().map(time).collect();
    expressions.sort_by(|a, b| b.core_ms.total_cmp(&a.core_ms));
    expressions
}
