//! Runs the workers of an iterative job in Spark tasks.
//!
//! A process runs `hosting.py`, which runs one barrier stage with one task per worker. Each task starts this
//! command as a worker. The controller runs in this process, on the machine of Spark's driver. Spark only passes
//! the invitation to the workers. If a worker or an executor is lost, Spark stops the other workers and restarts
//! all of them, and the job resumes from its latest snapshot.

use super::python::Python;
use super::session;
use crate::console::Console;
use crate::failure::Failure;
use crate::interrupt;
use crate::start::Program;
use pellucid_iterate::{Cluster, Invitation, JobControl, JobError};
use serde_json::{Value, json};
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::process::{ChildStdin, ChildStdout};
use std::thread::JoinHandle;
use tempfile::TempDir;

/// The Python program, embedded like `session.py`.
const PROGRAM: &str = include_str!("hosting.py");

/// The resources requested from Spark.
#[derive(Debug)]
pub struct HostingRequest<'a> {
    /// `None` uses the master of the user's Spark settings, or else all cores of this machine.
    pub master: Option<&'a str>,
    /// Spark properties by key.
    pub conf: &'a [(String, String)],
    /// Number of concurrent tasks, one per worker; `None` uses as many as fit.
    pub workers: Option<u32>,
    /// Threads per worker, which are the cores of its task.
    pub threads: u32,
}

/// A Spark session that hosts workers.
pub struct Hosting {
    /// Number of concurrent tasks, one per worker.
    pub workers: u32,
    /// Address of Spark's driver as seen by executors.
    host: String,
    group: libc::pid_t,
    input: ChildStdin,
    listener: JoinHandle<()>,
    // Keeps the session's files until it ends.
    _folder: TempDir,
}

impl Hosting {
    /// Starts a session, which starts workers when it receives an invitation. If Spark fails, the job fails
    /// through `control`.
    ///
    /// # Errors
    /// Returns an error if no session can be started, or after Ctrl-C.
    pub fn start(
        requested: &HostingRequest,
        control: JobControl,
        console: &Console,
    ) -> Result<Hosting, Failure> {
        let python = Python::find()?;
        let folder = session::folder()?;
        let document = request(requested, &folder)?;
        fs::write(folder.path().join("hosting.py"), PROGRAM)
            .map_err(|error| Failure::file("write to", folder.path().display(), &error))?;
        let mut child = session::start(&python, folder.path(), "hosting.py")?;
        let group = child.id() as libc::pid_t;
        let guard = interrupt::on_interrupt(move || terminate(group));
        let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::Failed("cannot reach Spark's Python process: it has no pipes".to_string()));
        };
        // If the process has exited, its output and status give the reason.
        let _ = session::send(&mut input, &document);
        let mut lines = BufReader::new(output);
        let replies = listen(&mut lines, console, "ready");
        drop(guard);
        let Some(ready) = replies.awaited else {
            let status = child.wait();
            session::end(group);
            return Err(match replies.failure {
                _ if interrupt::requested() => Failure::Interrupted,
                Some(failure) => failure,
                None => Failure::Failed(session::exit_message(status, folder.path())),
            });
        };
        let folder_path = folder.path().to_path_buf();
        let console = *console;
        let listener = std::thread::spawn(move || {
            let replies = listen(&mut lines, &console, "done");
            let status = child.wait();
            let cause = match (replies.awaited, replies.failure) {
                (Some(_), _) => return,
                (None, Some(failure)) => failure.message().unwrap_or_default().to_string(),
                (None, None) => session::exit_message(status, &folder_path),
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

    /// Returns the address on which the controller listens, and the number of workers.
    pub fn cluster(&self) -> Cluster {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        Cluster { workers: self.workers, bind: format!("{host}:0"), restarts: true, ..Cluster::default() }
    }

    /// Sends the invitation, upon which Spark starts the workers.
    ///
    /// # Errors
    /// Returns an error if the session has ended.
    pub fn invite(&mut self, invitation: &Invitation) -> io::Result<()> {
        let message = json!({"controller": invitation.controller, "secret": invitation.secret});
        session::send(&mut self.input, &message)
    }

    /// Ends the session. After a successful job, tasks exit by themselves; otherwise they are terminated.
    pub fn end(self, succeeded: bool) {
        if !succeeded {
            terminate(self.group);
        }
        drop(self.input);
        // The listener waits for the process; its result does not matter here.
        let _ = self.listener.join();
        session::end(self.group);
    }
}

fn terminate(group: libc::pid_t) {
    // SAFETY: signals the group that was created for our child; the call fails if the group has exited.
    unsafe { libc::killpg(group, libc::SIGTERM) };
}

fn request(requested: &HostingRequest, folder: &TempDir) -> Result<Value, Failure> {
    let not_utf8 = || {
        Failure::Usage("cannot use --on spark: an argument or path is not valid UTF-8; rename it".to_string())
    };
    let program = Program::current();
    let arguments =
        program.arguments().iter().map(|argument| argument.clone().into_string().map_err(|_| not_utf8()));
    let file = program.file().map_err(|error| Failure::file("find", "this program", &error))?;
    let here = std::env::current_dir().map_err(|error| Failure::file("find", "this folder", &error))?;
    // Spark checks for enough slots every 2 s, 15 times, so it gives up after 30 s instead of 10 min.
    let slot_checks = [("interval", "2s"), ("maxFailures", "15")].map(|(key, value)| {
        (format!("spark.scheduler.barrier.maxConcurrentTasksCheck.{key}"), value.to_string())
    });
    Ok(json!({
        "name": "pellucid iterate",
        "master": requested.master,
        "conf": slot_checks.iter().chain(requested.conf).collect::<Vec<_>>(),
        // Spark does not run barrier stages with dynamic allocation.
        "needed": {"spark.task.cpus": requested.threads.to_string(), "spark.dynamicAllocation.enabled": "false"},
        "workers": requested.workers,
        "threads": requested.threads,
        "arguments": without_conf(arguments.collect::<Result<_, _>>()?),
        "program": file.to_str().ok_or_else(not_utf8)?,
        "cwd": here.to_str().ok_or_else(not_utf8)?,
        "folder": folder.path().display().to_string(),
        "log_folder": session::log_folder(folder.path()).display().to_string(),
        "jar": null,
    }))
}

/// Returns the arguments without Spark properties. Workers do not need them, and every user of an executor's
/// machine can read a process's arguments.
fn without_conf(arguments: Vec<String>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--conf" => drop(arguments.next()),
            "--" => {
                kept.push(argument);
                kept.extend(arguments.by_ref());
            }
            _ if argument.starts_with("--conf=") => {}
            _ => kept.push(argument),
        }
    }
    kept
}

/// Messages of a session, up to the awaited one or the end of its output.
#[derive(Default)]
struct Replies {
    awaited: Option<Value>,
    failure: Option<Failure>,
}

/// Reads messages until one has the given key.
fn listen(lines: &mut BufReader<ChildStdout>, console: &Console, key: &str) -> Replies {
    let mut replies = Replies::default();
    for line in lines.lines().map_while(Result::ok) {
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        let text = |key: &str| message[key].as_str().map(str::to_string);
        if let Some(found) = message.get(key) {
            replies.awaited = Some(found.clone());
            return replies;
        }
        if let Some(refused) = text("refused") {
            replies.failure = Some(Failure::Usage(refused));
        } else if let Some(failed) = text("failed") {
            replies.failure = Some(Failure::Failed(failed));
        } else if let Some(warning) = text("warning") {
            console.warn(&warning);
        }
    }
    replies
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_get_no_spark_properties() {
        let kept = |text: &str| without_conf(text.split(' ').map(str::to_string).collect()).join(" ");
        for (given, expected) in [
            ("iterate kmeans x --conf spark.a=secret --k 3", "iterate kmeans x --k 3"),
            ("iterate --conf=spark.a=secret x --conf spark.b=secret", "iterate x"),
            ("iterate --conf spark.a=1 -- --conf x", "iterate -- --conf x"),
        ] {
            assert_eq!(kept(given), expected);
        }
    }
}
