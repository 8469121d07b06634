//! One Spark session: a process that runs `session.py`, from its request to its event log.
//!
//! The process has a group of its own, so that Ctrl-C reaches it through us, once; ending it closes
//! the standard input of its JVM, which ends that too. What Spark prints goes to a file that nobody
//! sees unless the process ends without a word.

use super::python::Python;
use super::{plugin, rows};
use crate::console::Console;
use crate::execute::Executed;
use crate::failure::Failure;
use crate::output::write_whole;
use crate::{inputs, interrupt};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use pellucid_engine::QueryResult;
use pellucid_trace::Trace;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Embedded, so that the binary is all that is installed.
const PROGRAM: [(&str, &str); 7] = [
    ("session.py", include_str!("session.py")),
    ("files.py", include_str!("files.py")),
    ("refused.py", include_str!("refused.py")),
    ("dialect.py", include_str!("dialect.py")),
    ("functions.py", include_str!("functions.py")),
    ("calls.py", include_str!("calls.py")),
    ("kinds.py", include_str!("kinds.py")),
];

/// How long the JVM may take to end after its Python.
const PATIENCE: Duration = Duration::from_secs(20);

/// What to run, and how.
#[derive(Debug)]
pub struct Request<'a> {
    /// `None`: what the user's Spark settings say, else all cores of this machine.
    pub master: Option<&'a str>,
    /// Spark's settings, by key.
    pub conf: &'a [(String, String)],
    /// Names and paths.
    pub tables: &'a [(String, String)],
    /// In order, all in one session.
    pub statements: &'a [String],
    /// Whether the engine can read them; what only Spark reads runs as it is.
    pub ours: bool,
}

/// One statement that ended well.
#[derive(Debug)]
pub struct Answer {
    /// Columns; none for a statement without a result.
    pub schema: SchemaRef,
    /// Rows.
    pub batches: Vec<RecordBatch>,
    /// When it ran, in Unix time.
    pub between_ms: (f64, f64),
}

/// How a session ended.
#[derive(Debug)]
pub struct Ran {
    /// The statements that ended well.
    pub answers: Vec<Answer>,
    /// Why the next one did not.
    pub failure: Option<Failure>,
    /// What the whole session did; `None` where it left no event log.
    pub trace: Option<Trace>,
    folder: TempDir,
}

impl Ran {
    /// Keeps the event log as a file.
    ///
    /// # Errors
    /// When there is none, or it cannot be written.
    pub fn keep_log(&self, at: &Path) -> Result<(), Failure> {
        let failed = |error| Failure::file("write", at.display(), &error);
        let entries = fs::read_dir(log_folder(self.folder.path())).map_err(failed)?;
        let hidden = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with('.');
        let log = entries.flatten().find(|entry| !hidden(entry)).map(|entry| entry.path());
        let log =
            log.ok_or_else(|| Failure::Failed("Spark left no event log, so there is no trace".to_string()))?;
        let mut log = File::open(log).map_err(failed)?;
        write_whole(at, |out| io::copy(&mut log, out).map(drop))
    }

    /// The answers with what their jobs did, for whoever prints them; `trace` says where that was kept.
    pub fn answered(self, trace: Option<&Path>) -> Vec<Executed> {
        let analysis = self.trace.as_ref().map(|trace| (trace, pellucid_model::analyze(trace)));
        let executed = |answer: Answer| {
            let job = analysis.as_ref().and_then(|(trace, analysis)| {
                let query = query_of(trace, answer.between_ms)?;
                pellucid_model::query(trace, analysis, query)
            });
            let result = QueryResult {
                schema: answer.schema,
                batches: answer.batches,
                trace: Trace::default(),
                trace_failure: None,
            };
            Executed { result, job, warnings: Vec::new(), trace_path: trace.map(Path::to_path_buf) }
        };
        self.answers.into_iter().map(executed).collect()
    }
}

/// The last query of a trace that was submitted in this span of Unix time.
fn query_of(trace: &Trace, (begin_ms, end_ms): (f64, f64)) -> Option<usize> {
    let origin_ms = trace.header.as_ref()?.origin_unix_ns as f64 / 1e6;
    // The log counts whole milliseconds.
    let span = (begin_ms - 1.0)..=(end_ms + 1.0);
    trace.queries.iter().rposition(|query| {
        query.root.is_none() && span.contains(&(origin_ms + query.submitted_ns as f64 / 1e6))
    })
}

/// Where Spark's event log goes, within a session's folder.
pub(super) fn log_folder(folder: &Path) -> PathBuf {
    folder.join("log")
}

/// A folder for a session, with one in it for its log.
pub(super) fn folder() -> Result<TempDir, Failure> {
    let folder = tempfile::Builder::new()
        .prefix("pellucid-spark-")
        .tempdir()
        .map_err(|error| Failure::file("make a folder in", std::env::temp_dir().display(), &error))?;
    interrupt::temporary(folder.path());
    let log = log_folder(folder.path());
    fs::create_dir(&log).map_err(|error| Failure::file("make", log.display(), &error))?;
    Ok(folder)
}

/// Runs the statements.
///
/// # Errors
/// When no session could be had, or Ctrl-C ended it; what failed within it is in [`Ran`].
pub fn run(request: &Request, console: &Console) -> Result<Ran, Failure> {
    let python = Python::find()?;
    let jar = plugin::jar().and_then(|jar| plugin::location(&jar));
    if let Err(failure) = &jar {
        let why = failure.message().unwrap_or_default();
        console.note(&format!(
            "Spark runs without Pellucid's plugin, so waits for disks are only bounded: {why}"
        ));
    }
    let folder = folder()?;
    let failed = |error| Failure::file("write to", folder.path().display(), &error);
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
    fs::write(folder.path().join("request.json"), document.to_string()).map_err(failed)?;
    let mut child = start(&python, folder.path(), "session.py", Stdio::null())?;
    let (answers, failure) = follow(&mut child, folder.path(), console)?;
    let trace = inputs::read_one(&log_folder(folder.path())).ok();
    Ok(Ran { answers, failure, trace, folder })
}

/// Starts a program of a session's folder, in a process group of its own, on the request that is there.
pub(super) fn start(python: &Python, folder: &Path, program: &str, stdin: Stdio) -> Result<Child, Failure> {
    let failed = |error| Failure::file("write to", folder.display(), &error);
    PROGRAM.iter().try_for_each(|(name, text)| fs::write(folder.join(name), text)).map_err(failed)?;
    let said = File::create(folder.join("said")).map_err(failed)?;
    let mut command = python.command();
    command.arg("-B").arg(folder.join(program)).arg(folder.join("request.json"));
    command.stdin(stdin).stdout(Stdio::piped()).stderr(said).process_group(0);
    command.spawn().map_err(|error| Failure::Failed(format!("Python could not be started: {error}")))
}

/// Listens to the process until it ends.
fn follow(
    child: &mut Child,
    folder: &Path,
    console: &Console,
) -> Result<(Vec<Answer>, Option<Failure>), Failure> {
    let group = child.id() as libc::pid_t;
    let guard = interrupt::on_interrupt(move || {
        // SAFETY: a signal to the group of a child that is waited for below, so its number is still its own.
        unsafe { libc::killpg(group, libc::SIGTERM) };
    });
    let (mut answers, mut failure) = (Vec::new(), None);
    let mut bar = console.progress();
    let lines = child.stdout.take().map(|out| BufReader::new(out).lines());
    for line in lines.into_iter().flatten().map_while(Result::ok) {
        let Ok(said) = serde_json::from_str::<Value>(&line) else { continue };
        let words = |key: &str| said[key].as_str().map(str::to_string);
        if let Some(progress) = said.get("progress") {
            let number = |key: &str| progress[key].as_u64().unwrap_or(0);
            let message = format!("{} of {} tasks, on Spark", number("done"), number("total"));
            bar.set(number("done"), number("total"), &message);
        } else if let Some(done) = said.get("done") {
            match answer(done) {
                Ok(answer) => answers.push(answer),
                Err(unread) => failure = failure.or(Some(unread)),
            }
        } else if let Some(refused) = words("refused") {
            failure = Some(Failure::Usage(refused));
        } else if let Some(failed) = words("failed") {
            failure = Some(Failure::Failed(failed));
        } else if let Some(warning) = words("warning") {
            console.warn(&warning);
        } else if let Some(note) = words("note") {
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
        failure = Some(Failure::Failed(last_words(status, folder)));
    }
    Ok((answers, failure))
}

/// How a session ended that did not say why.
pub(super) fn last_words(status: std::io::Result<ExitStatus>, folder: &Path) -> String {
    let ended = status.map_or_else(|error| error.to_string(), |status| status.to_string());
    let said = fs::read_to_string(folder.join("said")).unwrap_or_default();
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    format!("Spark's Python ended ({ended}): {last}")
}

/// Waits for the JVM and what it started, which end by themselves once Python has; and ends what does not.
pub(super) fn end(group: libc::pid_t) {
    let until = Instant::now() + PATIENCE;
    // SAFETY: asks whether the group, which was made for our child, still has members.
    while unsafe { libc::killpg(group, 0) } == 0 {
        if Instant::now() > until {
            // SAFETY: as above; it had members a moment ago, so its number is still its own.
            unsafe { libc::killpg(group, libc::SIGKILL) };
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn answer(done: &Value) -> Result<Answer, Failure> {
    let schema = rows::schema(done["schema"].as_array().map_or(&[], Vec::as_slice));
    let path = Path::new(done["rows"].as_str().unwrap_or_default());
    let batches = rows::read(path, &schema).map_err(|error| {
        Failure::Failed(format!("a value of Spark's answer cannot be read: {error}; cast it to text"))
    })?;
    let time = |key: &str| done[key].as_f64().unwrap_or(0.0);
    Ok(Answer { schema, batches, between_ms: (time("begin_ms"), time("end_ms")) })
}
