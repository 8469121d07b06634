//! A Spark session: a process that runs `session.py`.
//!
//! The request goes over the process's standard input, since it may hold credentials.
//! The process has its own process group, so that this program forwards Ctrl-C to it exactly once.
//! When the process exits, the standard input of its JVM closes, and the JVM exits too. Spark's
//! output goes to a file, which is used only if the process exits unexpectedly.

use super::python::Python;
use super::{plugin, rows};
use crate::console::Console;
use crate::execute::Executed;
use crate::failure::Failure;
use crate::output::write_whole;
use crate::{inputs, interrupt, temporary};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use pellucid_engine::QueryResult;
use pellucid_trace::Trace;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The Python program, embedded so that only the binary has to be installed.
const PROGRAM: [(&str, &str); 8] = [
    ("session.py", include_str!("session.py")),
    ("files.py", include_str!("files.py")),
    ("refused.py", include_str!("refused.py")),
    ("dialect.py", include_str!("dialect.py")),
    ("functions.py", include_str!("functions.py")),
    ("calls.py", include_str!("calls.py")),
    ("kinds.py", include_str!("kinds.py")),
    ("statements.py", include_str!("statements.py")),
];

/// Timeout for the JVM to exit after its Python process.
const JVM_EXIT_TIMEOUT: Duration = Duration::from_secs(20);

/// The statements to run and their configuration.
#[derive(Debug)]
pub struct Request<'a> {
    /// `None` uses the master of the user's Spark settings, or else all cores of this machine.
    pub master: Option<&'a str>,
    /// Spark properties by key.
    pub conf: &'a [(String, String)],
    /// Table names and paths.
    pub tables: &'a [(String, String)],
    /// Statements to run in order, in one session, with the lines on which they start.
    pub statements: &'a [(String, u64)],
    /// True if the engine can parse the statements. Statements that only Spark can parse run unchanged.
    pub ours: bool,
}

/// The result of a statement that succeeded.
#[derive(Debug)]
pub struct StatementResult {
    /// Columns; empty for a statement without a result.
    pub schema: SchemaRef,
    /// Rows.
    pub batches: Vec<RecordBatch>,
    /// Start and end in Unix time.
    pub between_ms: (f64, f64),
}

/// The result of a session.
#[derive(Debug)]
pub struct SessionResult {
    /// Results of the statements that succeeded.
    pub results: Vec<StatementResult>,
    /// The failure that ended the session, if any.
    pub failure: Option<Failure>,
    /// Trace of the whole session; `None` if it left no event log.
    pub trace: Option<Trace>,
    folder: TempDir,
}

impl SessionResult {
    /// Copies the event log to a file.
    ///
    /// # Errors
    /// Returns an error if the session left no event log, or if the file cannot be written.
    pub fn keep_log(&self, at: &Path) -> Result<(), Failure> {
        let failed = |error| Failure::file("write", at.display(), &error);
        let entries = fs::read_dir(log_folder(self.folder.path())).map_err(failed)?;
        let hidden = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with('.');
        let log = entries.flatten().find(|entry| !hidden(entry)).map(|entry| entry.path());
        let log = log
            .ok_or_else(|| Failure::Failed("cannot write the trace: Spark left no event log".to_string()))?;
        let mut log = File::open(log).map_err(failed)?;
        write_whole(at, |out| io::copy(&mut log, out).map(drop))
    }

    /// Converts the results for printing, with the analyses of their jobs. `trace` is the path of the kept
    /// trace.
    pub fn executed(self, trace: Option<&Path>) -> Vec<Executed> {
        let analysis = self.trace.as_ref().map(|trace| (trace, pellucid_model::analyze(trace)));
        let executed = |one: StatementResult| {
            let job = analysis.as_ref().and_then(|(trace, analysis)| {
                let query = query_of(trace, one.between_ms)?;
                pellucid_model::query(trace, analysis, query)
            });
            let result = QueryResult {
                schema: one.schema,
                batches: one.batches,
                trace: Trace::default(),
                trace_failure: None,
            };
            Executed { result, job, warnings: Vec::new(), trace_path: trace.map(Path::to_path_buf) }
        };
        self.results.into_iter().map(executed).collect()
    }
}

/// Returns the last query of a trace that was submitted in a span of Unix time.
fn query_of(trace: &Trace, (begin_ms, end_ms): (f64, f64)) -> Option<usize> {
    let origin_ms = trace.header.as_ref()?.origin_unix_ns as f64 / 1e6;
    // The log has a resolution of one millisecond.
    let span = (begin_ms - 1.0)..=(end_ms + 1.0);
    trace.queries.iter().rposition(|query| {
        query.root.is_none() && span.contains(&(origin_ms + query.submitted_ns as f64 / 1e6))
    })
}

/// Returns the folder of Spark's event log within a session's folder.
pub(super) fn log_folder(folder: &Path) -> PathBuf {
    folder.join("log")
}

/// Creates a folder for a session, and one in it for its event log.
pub(super) fn folder() -> Result<TempDir, Failure> {
    let folder = temporary::folder("pellucid-spark-")?;
    let log = log_folder(folder.path());
    fs::create_dir(&log).map_err(|error| Failure::file("create", log.display(), &error))?;
    Ok(folder)
}

/// Runs the statements in a new session.
///
/// # Errors
/// Returns an error if no session can be started, or after Ctrl-C. Failures within the session are in
/// [`SessionResult`].
pub fn run(request: &Request, console: &Console) -> Result<SessionResult, Failure> {
    let python = Python::find()?;
    let jar = plugin::jar().and_then(|jar| plugin::location(&jar));
    if let Err(failure) = &jar {
        let why = failure.message().unwrap_or_default();
        console.note(&format!(
            "running Spark without Pellucid's plugin, so disk waits are reported as upper bounds: {why}"
        ));
    }
    let folder = folder()?;
    let document = json!({
        "master": request.master,
        "conf": request.conf,
        "tables": request.tables,
        "statements": request.statements,
        "ours": request.ours,
        "folder": folder.path().display().to_string(),
        "log_folder": log_folder(folder.path()).display().to_string(),
        "jar": jar.ok(),
        "plugin": plugin::CLASS,
    });
    let mut child = start(&python, folder.path(), "session.py")?;
    let (results, failure) = follow(&mut child, &document, folder.path(), console)?;
    let trace = inputs::read_one(&log_folder(folder.path())).ok();
    Ok(SessionResult { results, failure, trace, folder })
}

/// Starts a Python program in its own process group. It reads its request from standard input.
pub(super) fn start(python: &Python, folder: &Path, program: &str) -> Result<Child, Failure> {
    let failed = |error| Failure::file("write to", folder.display(), &error);
    PROGRAM.iter().try_for_each(|(name, text)| fs::write(folder.join(name), text)).map_err(failed)?;
    let stderr = File::create(folder.join("stderr")).map_err(failed)?;
    let mut command = python.command();
    command.arg("-B").arg(folder.join(program));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr).process_group(0);
    command.spawn().map_err(|error| Failure::Failed(format!("cannot start Python: {error}")))
}

/// Sends a message to a Python program, as a line.
///
/// # Errors
/// Returns an error if the program has exited.
pub(super) fn send(input: &mut ChildStdin, message: &Value) -> io::Result<()> {
    input.write_all(format!("{message}\n").as_bytes())
}

/// Sends the request, and handles the messages of the process until it exits.
fn follow(
    child: &mut Child,
    request: &Value,
    folder: &Path,
    console: &Console,
) -> Result<(Vec<StatementResult>, Option<Failure>), Failure> {
    let group = child.id() as libc::pid_t;
    let guard = interrupt::on_interrupt(move || {
        // SAFETY: signals the group of a child that has not been waited for, so the number is not reused.
        unsafe { libc::killpg(group, libc::SIGTERM) };
    });
    if let Some(mut input) = child.stdin.take() {
        // If the process has exited, its output and status give the reason.
        let _ = send(&mut input, request);
    }
    let (mut results, mut failure) = (Vec::new(), None);
    let mut bar = console.progress();
    let lines = child.stdout.take().map(|out| BufReader::new(out).lines());
    for line in lines.into_iter().flatten().map_while(Result::ok) {
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        let text = |key: &str| message[key].as_str().map(str::to_string);
        if let Some(progress) = message.get("progress") {
            let number = |key: &str| progress[key].as_u64().unwrap_or(0);
            let label = format!("{} of {} tasks, on Spark", number("done"), number("total"));
            bar.set(number("done"), number("total"), &label);
        } else if let Some(done) = message.get("done") {
            match statement_result(done) {
                Ok(result) => results.push(result),
                Err(unreadable) => failure = failure.or(Some(unreadable)),
            }
        } else if let Some(refused) = text("refused") {
            failure = Some(Failure::Usage(refused));
        } else if let Some(failed) = text("failed") {
            failure = Some(Failure::Failed(failed));
        } else if let Some(warning) = text("warning") {
            console.warn(&warning);
        } else if let Some(note) = text("note") {
            console.note(&note);
        }
    }
    let status = child.wait();
    end(group);
    drop((guard, bar));
    if interrupt::requested() {
        return Err(Failure::Interrupted);
    }
    if failure.is_none() && !status.as_ref().is_ok_and(|status| status.success()) {
        failure = Some(Failure::Failed(exit_message(status, folder)));
    }
    Ok((results, failure))
}

/// Describes the exit of a session that reported no failure, with the last line of its standard error.
pub(super) fn exit_message(status: std::io::Result<ExitStatus>, folder: &Path) -> String {
    let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
    let stderr = fs::read_to_string(folder.join("stderr")).unwrap_or_default();
    let last = stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no output");
    format!("Spark's Python process exited unexpectedly ({status}): {last}")
}

/// Waits for the JVM and its children, which exit after Python does. Kills them after a timeout.
pub(super) fn end(group: libc::pid_t) {
    let until = Instant::now() + JVM_EXIT_TIMEOUT;
    // SAFETY: signal 0 only checks whether the group, which was created for our child, has members.
    while unsafe { libc::killpg(group, 0) } == 0 {
        if Instant::now() > until {
            // SAFETY: as above; the group just had members, so its number is not reused.
            unsafe { libc::killpg(group, libc::SIGKILL) };
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn statement_result(done: &Value) -> Result<StatementResult, Failure> {
    let schema = rows::schema(done["schema"].as_array().map_or(&[], Vec::as_slice));
    let path = Path::new(done["rows"].as_str().unwrap_or_default());
    let batches = rows::read(path, &schema).map_err(|error| {
        Failure::Failed(format!("cannot read a value of Spark's result: {error}; cast it to text"))
    })?;
    let time = |key: &str| done[key].as_f64().unwrap_or(0.0);
    Ok(StatementResult { schema, batches, between_ms: (time("begin_ms"), time("end_ms")) })
}
