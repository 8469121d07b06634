//! Runs one statement to completion, with progress and Ctrl-C handling, and prints its result and the summary line.
//! `sql`, the prompt, `demo` and `backtest --causal` use it.

use crate::console::Console;
use crate::failure::Failure;
use crate::interrupt;
use crate::output::{self, DisplayLimits, Format};
use pellucid_engine::{Engine, EngineError, Progress, QueryResult, Statement};
use pellucid_model::JobAnalysis;
use pellucid_model::units::size_in_full;
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Columns of the statement's text in the summary of a statement without a result.
const STATEMENT_COLUMNS: usize = 72;

/// Interval between updates of the progress bar.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// The outcome of a statement that succeeded.
pub struct Executed {
    /// Rows and trace.
    pub result: QueryResult,
    /// Analysis of its job; `None` for a statement without a job (`CREATE VIEW`).
    pub job: Option<JobAnalysis>,
    /// Caveats of the analysis.
    pub warnings: Vec<String>,
    /// Path of the trace file.
    pub trace_path: Option<PathBuf>,
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Syntax(message) | EngineError::Usage(message) => Failure::Usage(message),
            EngineError::Failed(message) => Failure::Failed(message),
            EngineError::Cancelled => Failure::Interrupted,
        }
    }
}

/// Runs a statement and writes its trace to `trace`, if given.
pub fn execute(
    engine: &Engine,
    statement: Statement,
    trace: Option<&Path>,
    console: &Console,
) -> Result<Executed, Failure> {
    if interrupt::requested() {
        return Err(Failure::Interrupted);
    }
    let query = engine.start(statement, trace.map(Path::to_path_buf))?;
    let handle = query.cancel_handle();
    let guard = interrupt::on_interrupt(move || handle.cancel());
    let mut bar = console.progress();
    while !query.ended_within(PROGRESS_INTERVAL) {
        let progress = query.progress();
        bar.set(progress.multitasks_done, progress.multitasks_submitted, &describe(&progress));
    }
    let result = query.wait();
    drop((guard, bar));
    let result = result?;
    let mut analysis = pellucid_model::analyze(&result.trace);
    let (job, warnings) = (analysis.jobs.pop(), analysis.warnings);
    Ok(Executed { result, job, warnings, trace_path: trace.map(Path::to_path_buf) })
}

/// Joins the lines of a statement.
pub fn one_line(statement: &str) -> String {
    statement.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn describe(progress: &Progress) -> String {
    format!(
        "{} of {} multitasks · {} read, {} cached",
        progress.multitasks_done,
        progress.multitasks_submitted,
        size_in_full(progress.read_bytes),
        size_in_full(progress.cached_bytes)
    )
}

impl Executed {
    /// Returns the number of rows, for a statement with a result.
    pub fn rows(&self) -> Option<u64> {
        (!self.result.schema.fields().is_empty()).then(|| output::row_count(&self.result.batches))
    }

    /// Returns the summary line: rows, time, bottleneck, and the next bottleneck. `None` for
    /// a statement without a job (`CREATE VIEW`).
    pub fn summary(&self, rows: Option<u64>) -> Option<String> {
        self.job.as_ref().map(|job| pellucid_report::summary_line(job, rows))
    }

    /// Prints the result of a statement and its summary; with `--json`, returns the document instead.
    pub fn show(
        &self,
        statement: &str,
        format: Format,
        limits: Option<DisplayLimits>,
        console: &Console,
    ) -> Result<Option<Value>, Failure> {
        let document = if console.json {
            Some(self.document()?)
        } else {
            let result = &self.result;
            // A statement without a result (CREATE VIEW) prints nothing on standard output.
            if result.schema.fields().is_empty() {
                let statement = pellucid_report::fit(&one_line(statement), STATEMENT_COLUMNS);
                console.note(&format!("done: {statement}"));
                return Ok(None);
            }
            console
                .print(|out| output::write_result(out, format, &result.schema, &result.batches, limits))?;
            None
        };
        self.print_summary(self.rows(), console);
        Ok(document)
    }

    /// Prints the summary line and the warnings.
    pub fn print_summary(&self, rows: Option<u64>, console: &Console) {
        if let Some(summary) = self.summary(rows) {
            console.note(&summary);
        }
        for warning in &self.warnings {
            console.warn(warning);
        }
    }

    /// Returns the `pellucid.result/1` document without its `format` key.
    pub fn document(&self) -> Result<Value, Failure> {
        let document = output::result_document(&self.result.schema, &self.result.batches);
        let mut document = document.map_err(|error: io::Error| {
            Failure::Failed(format!("cannot print a value of the result: {error}; cast it to text"))
        })?;
        document["job"] = json!(self.job.as_ref().map(pellucid_report::job_json));
        document["trace"] = json!(self.trace_path);
        Ok(document)
    }
}
