//! Workers of an iterative job in Spark's tasks: a process that runs `hosting.py`, which asks Spark for as many tasks
//! at once as there are workers, and in each starts this command as one.
//!
//! The controller is here, where Spark's driver is; Spark carries nothing between the two but the invitation. When a
//! worker or an executor is lost, Spark ends the others and starts all anew, and the job goes on from its snapshot.

use super::python::Python;
use super::session;
use crate::console::Console;
use crate::failure::Failure;
use crate::interrupt;
use pellucid_iterate::{Cluster, Invitation, JobControl, JobError};
use serde_json::{Value, json};
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::thread::JoinHandle;
use tempfile::TempDir;

/// Embedded, as `session.py` is.
const PROGRAM: &str = include_str!("hosting.py");

/// What Spark is asked for.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// `None`: what the user's Spark settings say, else all cores of this machine.
    pub master: Option<&'a str>,
    /// Spark's settings, by key.
    pub conf: &'a [(String, String)],
    /// Tasks at once, one a worker; `None`: as many as fit.
    pub workers: Option<u32>,
    /// Threads of a worker, which are the cores of its task.
    pub threads: u32,
}

/// A session that is ready to start workers, or has.
pub struct Hosting {
    /// Tasks at once, one a worker.
    pub workers: u32,
    /// Where Spark's driver is, as executors know it.
    host: String,
    group: libc::pid_t,
    input: ChildStdin,
    listener: JoinHandle<()>,
    // Its files are there for as long as the session is.
    _folder: TempDir,
}

impl Hosting {
    /// Starts a session; workers start once they are invited. When Spark gives up, `control` ends the job.
    ///
    /// # Errors
    /// When no session could be had, or Ctrl-C ended it.
    pub fn start(wanted: &Wanted, control: JobControl, console: &Console) -> Result<Hosting, Failure> {
        let python = Python::find()?;
        let folder = session::folder()?;
        let failed = |error| Failure::file("write to", folder.path().display(), &error);
        let document = request(wanted, &folder)?;
        fs::write(folder.path().join("request.json"), document.to_string()).map_err(failed)?;
        fs::write(folder.path().join("hosting.py"), PROGRAM).map_err(failed)?;
        let mut child = session::start(&python, folder.path(), "hosting.py", Stdio::piped())?;
        let group = child.id() as libc::pid_t;
        let guard = interrupt::on_interrupt(move || terminate(group));
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::Failed("Spark's Python was started without pipes".to_string()));
        };
        let mut lines = BufReader::new(output);
        let said = listen(&mut lines, console, "ready");
        drop(guard);
        let Some(ready) = said.ready else {
            let status = child.wait();
            session::end(group);
            return Err(match said.failure {
                _ if interrupt::requested() => Failure::Interrupted,
                Some(failure) => failure,
                None => Failure::Failed(session::last_words(status, folder.path())),
            });
        };
        let place = folder.path().to_path_buf();
        let console = *console;
        let listener = std::thread::spawn(move || {
            let said = listen(&mut lines, &console, "done");
            let status = child.wait();
            let cause = match (said.ready, said.failure) {
                (Some(_), _) => return,
                (None, Some(failure)) => failure.message().unwrap_or_default().to_string(),
                (None, None) => session::last_words(status, &place),
            };
            control.fail(JobError::Connection { peer: "Spark".to_string(), cause });
        });
        Ok(Hosting {
            workers: ready["workers"].as_u64().and_then(|workers| workers.try_into().ok()).unwrap_or(0),
            host: ready["host"].as_str().unwrap_or("127.0.0.1").to_string(),
            group,
            input,
            listener,
            _folder: folder,
        })
    }

    /// Where the controller has to listen, and for how many.
    pub fn cluster(&self) -> Cluster {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        Cluster { workers: self.workers, bind: format!("{host}:0"), restarts: true, ..Cluster::default() }
    }

    /// Lets Spark start the workers.
    ///
    /// # Errors
    /// When the session has ended.
    pub fn invite(&mut self, invitation: &Invitation) -> io::Result<()> {
        let told = json!({"controller": invitation.controller, "secret": invitation.secret});
        writeln!(self.input, "{told}").and_then(|()| self.input.flush())
    }

    /// Ends the session. `well`: the job has, so that tasks end by themselves.
    pub fn end(self, well: bool) {
        if !well {
            terminate(self.group);
        }
        drop(self.input);
        // It waits for the process; what it tells, nobody asks for any more.
        let _ = self.listener.join();
        session::end(self.group);
    }
}

fn terminate(group: libc::pid_t) {
    // SAFETY: a signal to the group that was made for our child; where all of it has ended, nobody gets it.
    unsafe { libc::killpg(group, libc::SIGTERM) };
}

fn request(wanted: &Wanted, folder: &TempDir) -> Result<Value, Failure> {
    let no_text =
        || Failure::Usage("--on spark: an argument is no UTF-8, and cannot be handed to Spark".to_string());
    let arguments = std::env::args_os().skip(1).map(|argument| argument.into_string().map_err(|_| no_text()));
    let program = std::env::current_exe().map_err(|error| Failure::file("find", "this program", &error))?;
    let here = std::env::current_dir().map_err(|error| Failure::file("find", "this folder", &error))?;
    // Spark asks so often whether there are enough slots before it gives up: half a minute, not ten.
    let asked = [("interval", "2s"), ("maxFailures", "15")].map(|(key, value)| {
        (format!("spark.scheduler.barrier.maxConcurrentTasksCheck.{key}"), value.to_string())
    });
    Ok(json!({
        "name": "pellucid iterate",
        "master": wanted.master,
        "conf": asked.iter().chain(wanted.conf).collect::<Vec<_>>(),
        // Barrier stages do not run where executors come and go.
        "needed": {"spark.task.cpus": wanted.threads.to_string(), "spark.dynamicAllocation.enabled": "false"},
        "workers": wanted.workers,
        "threads": wanted.threads,
        "arguments": arguments.collect::<Result<Vec<_>, _>>()?,
        "program": program.to_str().ok_or_else(no_text)?,
        "cwd": here.to_str().ok_or_else(no_text)?,
        "folder": folder.path().display().to_string(),
        "log_folder": session::log_folder(folder.path()).display().to_string(),
        "jar": null,
    }))
}

/// What a session said until it said what was waited for, or ended.
#[derive(Default)]
struct Said {
    ready: Option<Value>,
    failure: Option<Failure>,
}

fn listen(lines: &mut BufReader<ChildStdout>, console: &Console, key: &str) -> Said {
    let mut said = Said::default();
    for line in lines.lines().map_while(Result::ok) {
        let Ok(document) = serde_json::from_str::<Value>(&line) else { continue };
        let words = |key: &str| document[key].as_str().map(str::to_string);
        if let Some(found) = document.get(key) {
            said.ready = Some(found.clone());
            return said;
        }
        if let Some(refused) = words("refused") {
            said.failure = Some(Failure::Usage(refused));
        } else if let Some(failed) = words("failed") {
            said.failure = Some(Failure::Failed(failed));
        } else if let Some(warning) = words("warning") {
            console.warn(&warning);
        }
    }
    said
}
