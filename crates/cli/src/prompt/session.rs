//! A session: runs statements and dot commands, and keeps the last query's trace.

use super::catalog::Catalog;
use super::commands::{self, Command};
use super::words::as_written;
use super::{Options, files, lexer};
use crate::console::Console;
use crate::execute::{Executed, execute, one_line};
use crate::failure::Failure;
use crate::output::{DisplayLimits, Format};
use crate::{analyze, report, script, temporary, whatif};
use clap::ValueEnum;
use pellucid_engine::Statement;
use pellucid_model::units::time;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Columns of the text of the last query.
const QUERY_COLUMNS: usize = 66;

/// The state of a session.
pub struct Session<'a> {
    catalog: Arc<Catalog>,
    console: &'a Console,
    format: Format,
    max_rows: Option<usize>,
    timer: bool,
    /// Holds the traces. Removed at the end of the session.
    folder: TempDir,
    /// Number of statements that were run.
    statements: u64,
    last: Option<LastQuery>,
}

/// The last query that succeeded.
struct LastQuery {
    sql: String,
    trace: PathBuf,
}

impl<'a> Session<'a> {
    /// Creates a session.
    ///
    /// # Errors
    /// Returns an error if no folder for traces can be created.
    pub fn new(catalog: Arc<Catalog>, options: &Options, console: &'a Console) -> Result<Self, Failure> {
        Ok(Session {
            catalog,
            console,
            format: options.format,
            max_rows: options.max_rows,
            timer: false,
            folder: temporary::folder("pellucid-prompt-")?,
            statements: 0,
            last: None,
        })
    }

    /// Runs an input: a dot command, or statements. Breaks if the session is to end.
    ///
    /// # Errors
    /// Returns the error of the first statement that failed.
    pub fn run(&mut self, input: &str) -> Result<ControlFlow<()>, Failure> {
        if !lexer::is_command(input) {
            self.run_statements(input)?;
            return Ok(ControlFlow::Continue(()));
        }
        match commands::parse(input)? {
            Command::Exit => return Ok(ControlFlow::Break(())),
            Command::Help => self.console.print(|out| out.write_all(commands::help().as_bytes()))?,
            Command::Mode(Some(format)) => self.format = format,
            Command::Mode(None) => {
                let value = self.format.to_possible_value();
                let name = value.as_ref().map_or("", |value| value.get_name());
                self.console.print(|out| writeln!(out, "{name}"))?;
            }
            Command::Timer(Some(on)) => self.timer = on,
            Command::Timer(None) => {
                let state = if self.timer { "on" } else { "off" };
                self.console.print(|out| writeln!(out, "{state}"))?;
            }
            Command::Open(path) => self.open(&path)?,
            Command::Read(path) => {
                let text =
                    fs::read_to_string(&path).map_err(|error| Failure::file("read", path.display(), &error))?;
                self.run_statements(&text)?;
            }
            Command::Tables => self.list(
                "SELECT table_name AS name, lower(table_type) AS type FROM information_schema.tables ORDER BY 1",
            )?,
            Command::Schema(None) => self.list(
                "SELECT table_name, column_name, data_type FROM information_schema.columns \
                 ORDER BY table_name, ordinal_position",
            )?,
            Command::Schema(Some(table)) => self.list(&format!(
                "SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM {})",
                relation(&table)
            ))?,
            Command::Analyze => {
                let trace = self.last_trace()?;
                let arguments = analyze::Arguments { inputs: vec![trace], follow: false, check: false, redact: false };
                analyze::run(&arguments, self.console)?;
            }
            Command::Plan => {
                let plan = pellucid_engine::measured_plan(&analyze::read(&self.last_trace()?)?);
                let width = self.console.width();
                self.console.print(|out| {
                    plan.lines().try_for_each(|line| writeln!(out, "{}", pellucid_report::fit(line, width)))
                })?;
            }
            Command::WhatIf(settings) => {
                let (mut sweeps, set): (Vec<String>, Vec<String>) =
                    settings.into_iter().partition(|setting| setting.contains(".."));
                let (sweep, more) = (sweeps.pop(), sweeps.pop());
                if let Some(more) = more {
                    return Err(Failure::Usage(format!(
                        "cannot sweep {more} as well: one key can have a range; give the other one value"
                    )));
                }
                whatif::run(&whatif::Arguments { input: self.last_trace()?, set, sweep }, self.console)?;
            }
            Command::Report(output) => {
                report::run(&report::Arguments { input: self.last_trace()?, output, redact: false }, self.console)?;
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn run_statements(&mut self, text: &str) -> Result<(), Failure> {
        let statements = Statement::parse_all(text)?;
        let count = statements.len();
        for (number, statement) in (1..).zip(statements) {
            let place = (number, statement.line());
            self.run_statement(statement).map_err(|failure| script::located(failure, place, count))?;
        }
        Ok(())
    }

    /// Runs a statement, prints its result, and keeps its trace if it was a query.
    fn run_statement(&mut self, statement: Statement) -> Result<(), Failure> {
        let sql = statement.sql().to_string();
        self.statements += 1;
        let trace = self.folder.path().join(format!("query-{}.trace", self.statements));
        let began = Began::now();
        let executed = execute(self.catalog.engine()?, statement, Some(&trace), self.console);
        self.catalog.forget_names();
        // Not a statement like SET, which runs a job but shows no result.
        let is_query = executed.as_ref().is_ok_and(|ran| ran.job.is_some() && ran.rows().is_some());
        let dropped = match is_query {
            true => self.last.replace(LastQuery { sql: sql.clone(), trace }).map(|last| last.trace),
            false => Some(trace),
        };
        // The folder is removed later.
        let _ = dropped.map(fs::remove_file);
        let executed = executed?;
        executed.show(&sql, self.format, self.limits(), self.console)?;
        if let Some(why) = &executed.result.trace_failure {
            self.console.warn(why);
        }
        if self.timer {
            self.console.note(&began.elapsed());
        }
        Ok(())
    }

    fn limits(&self) -> Option<DisplayLimits> {
        let limits = self.console.display_limits(self.max_rows)?;
        Some(DisplayLimits { in_prompt: true, ..limits })
    }

    /// Prints the rows of a query of the prompt's own, which is not the last query.
    fn list(&self, sql: &str) -> Result<(), Failure> {
        let executed = execute(self.catalog.engine()?, sql.parse()?, None, self.console)?;
        if executed.rows() == Some(0) {
            self.console.note("no tables: .open PATH makes some; FROM 'file.parquet' needs none");
            return Ok(());
        }
        let Executed { result, .. } = &executed;
        // All rows: a list with a gap is of little use.
        let limits = self.limits().map(|limits| DisplayLimits { max_rows: usize::MAX, ..limits });
        self.console.print(|out| {
            crate::output::write_result(out, self.format, &result.schema, &result.batches, limits)
        })
    }

    /// Makes tables of a path, and says which ones.
    fn open(&self, path: &str) -> Result<(), Failure> {
        let engine = self.catalog.engine()?;
        let (mut opened, mut failed) = (Vec::new(), Vec::new());
        for (name, path) in files::tables(path)? {
            match engine.register_table(&name, &path) {
                Ok(()) => opened.push(name),
                Err(error) => failed.push(error),
            }
        }
        self.catalog.forget_names();
        if opened.is_empty()
            && let Some(error) = failed.pop()
        {
            return Err(error.into());
        }
        failed.iter().for_each(|error| self.console.warn(&error.to_string()));
        self.console.note(&format!("tables: {}", opened.join(", ")));
        Ok(())
    }

    /// Returns the trace of the last query, after a note with the query.
    fn last_trace(&self) -> Result<PathBuf, Failure> {
        let Some(last) = &self.last else {
            return Err(Failure::Usage(
                "cannot answer: no query has run in this session; run one first".to_string(),
            ));
        };
        self.console
            .note(&format!("last query: {}", pellucid_report::fit(&one_line(&last.sql), QUERY_COLUMNS)));
        Ok(last.trace.clone())
    }
}

/// Returns a table as SQL writes it: a path is in single quotes.
fn relation(table: &str) -> String {
    let is_path = table.contains(['/', '*']) || Path::new(table).is_file();
    match is_path {
        true => format!("'{}'", table.replace('\'', "''")),
        false => table.split('.').map(as_written).collect::<Vec<_>>().join("."),
    }
}

/// The times at which a statement began.
struct Began {
    wall: Instant,
    user: Duration,
    system: Duration,
}

impl Began {
    fn now() -> Self {
        let (user, system) = processor_times();
        Began { wall: Instant::now(), user, system }
    }

    fn elapsed(&self) -> String {
        let wall = self.wall.elapsed();
        let (user, system) = processor_times();
        let shown = |duration: Duration| time(duration.as_secs_f64() * 1e3);
        format!(
            "time: {} wall clock, {} user, {} system",
            shown(wall),
            shown(user.saturating_sub(self.user)),
            shown(system.saturating_sub(self.system))
        )
    }
}

/// Returns the processor time of the process so far, in user and system mode.
fn processor_times() -> (Duration, Duration) {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: getrusage fills the given structure or fails; all zeros are a valid structure.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let duration = |of: libc::timeval| {
        Duration::from_secs(u64::try_from(of.tv_sec).unwrap_or(0))
            + Duration::from_micros(u64::try_from(of.tv_usec).unwrap_or(0))
    };
    (duration(usage.ru_utime), duration(usage.ru_stime))
}

#[cfg(test)]
mod tests {
    use super::relation;

    #[test]
    fn paths_are_quoted_and_names_only_where_needed() {
        for (table, sql) in [
            ("sales", "sales"),
            ("main.sales", "main.sales"),
            ("my table", "\"my table\""),
            ("data/it's.csv", "'data/it''s.csv'"),
            ("*.csv", "'*.csv'"),
        ] {
            assert_eq!(relation(table), sql);
        }
    }
}
