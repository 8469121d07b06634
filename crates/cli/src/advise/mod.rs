//! `pellucid advise`: changes to a query's tables that would make it faster, each measured on a sample of the table and
//! predicted from the query's trace.

mod candidate;
mod plan;
mod table;
mod text;

use crate::analyze;
use crate::console::Console;
use crate::failure::Failure;
use crate::sql::parse_table;
use candidate::{Advised, advised};
use pellucid_engine::{Engine, EngineOptions, PlannedScan, Statement};
use pellucid_model::whatif::{WhatIfModel, residuals};
use pellucid_trace::{Trace, kind};
use serde_json::json;
use std::path::PathBuf;
use table::Table;

/// Arguments of `advise`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command plans the query of the trace again, reads a sample of its Parquet tables, and measures what another \
compression or order of their rows changes. It lists changes whose whole interval is faster than the query was, \
each with the command that makes it.

Example:
  pellucid sql -f query.sql --trace query.trace
  pellucid advise query.trace
  pellucid rewrite lineitem.parquet --like sort:lineitem:l_shipdate -o sorted")]
pub struct Arguments {
    /// A trace that `pellucid sql --trace` wrote
    #[arg(value_name = "TRACE")]
    input: PathBuf,
    /// Register files as a table, as they were for the query
    #[arg(long = "table", value_name = "NAME=PATH", value_parser = parse_table)]
    tables: Vec<(String, String)>,
}

/// Runs the command.
pub fn run(arguments: &Arguments, console: &Console) -> Result<(), Failure> {
    let trace = analyze::read(&arguments.input)?;
    let scans = scans(&trace, &arguments.tables)?;
    let table = residuals(None);
    let model = WhatIfModel::of(&trace, &table)?;
    let mut notes = Vec::new();
    let mut all: Vec<Advised> = Vec::new();
    let tables = Table::of(scans, &mut notes)?;
    let mut bar = console.progress();
    for (done, table) in tables.iter().enumerate() {
        bar.set(done as u64, tables.len() as u64, &format!("sampling {}", table.name));
        all.extend(advised(table, &trace, &model, &mut notes)?);
    }
    drop(bar);
    all.extend(plan::advised(&trace, &model)?);
    all.sort_by(|a, b| a.prediction.duration_ms.total_cmp(&b.prediction.duration_ms));
    let measured_ms = model.baseline().measured_ms;
    if console.json {
        let advice: Vec<_> = all.iter().map(|advised| advised.document(measured_ms)).collect();
        let document = json!({"measured_ms": measured_ms, "advice": advice, "notes": notes});
        return console.print_document("pellucid.advice/1", &document);
    }
    console.print(|out| out.write_all(text::page(&all, measured_ms).as_bytes()))?;
    notes.iter().for_each(|note| console.note(note));
    Ok(())
}

/// Plans the query of a trace again, and returns its scans.
///
/// # Errors
/// Returns an error if the trace is not that of one query, or its query is planned differently now.
fn scans(trace: &Trace, tables: &[(String, String)]) -> Result<Vec<PlannedScan>, Failure> {
    let wrong = |why: &str| Err(Failure::Failed(format!("cannot advise: {why}")));
    if trace.header.as_ref().is_none_or(|header| header.producer != "engine") || trace.operators.is_empty() {
        return wrong("the trace has no operators of Pellucid's SQL; record one with `pellucid sql --trace`");
    }
    let [job] = &trace.jobs[..] else {
        return wrong("the trace is not that of one query; record one with `pellucid sql --trace`");
    };
    let statement = Statement::parse_all(&job.name).ok().and_then(|mut all| all.pop());
    let Some(statement) = statement else {
        return wrong("the trace does not have the query's text; use one that is not redacted");
    };
    // Threads, because the number of partitions follows from them.
    let threads = trace.resources.iter().find(|resource| resource.kind == kind::CPU);
    let usual = EngineOptions::default();
    let cores = threads.and_then(|cores| cores.concurrency).map_or(usual.cores, |cores| cores as usize);
    let engine = Engine::new(EngineOptions { cores, ..usual })?;
    for (name, path) in tables {
        engine.register_table(name, path)?;
    }
    // Stages that did not run have no operators, and took no time.
    let mut scans = engine.scans(&statement)?;
    let name = |scan: &PlannedScan| {
        let operator = trace.operators.iter().find(|operator| operator.operator == scan.operator);
        operator.map(|operator| operator.name.as_str())
    };
    if scans.iter().any(|scan| name(scan).is_some_and(|name| name != scan.name)) {
        return wrong("the query is planned differently now; record its trace again, with the same tables");
    }
    scans.retain(|scan| name(scan).is_some());
    Ok(scans)
}
