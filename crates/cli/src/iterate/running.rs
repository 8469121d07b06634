//! How an iterative job runs, whichever it is: the options that all of them have.

use crate::console::Console;
use crate::failure::Failure;
use crate::output;
use crate::spark::{self, Hosting};
use clap::{Args, ValueEnum};
use pellucid_iterate::applications::Precision;
use pellucid_iterate::kernels::bandwidth::{self, Bandwidth};
use pellucid_iterate::{Cluster, Invitation, JobControl, Snapshots};
use pellucid_trace::{Recorder, RecorderOptions};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::{fs, io};

/// How a job runs, whichever it is.
#[derive(Debug, Args)]
pub struct Running {
    /// Threads that compute, of each process [default: all cores, divided among processes; on Spark 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub workers: Option<u16>,
    /// Processes that compute, each with its own partitions [default: this one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub processes: Option<u16>,
    /// Listen here for --processes workers that others start, instead of starting them; see `iterate --help`
    #[arg(long, value_name = "HOST:PORT", requires = "processes")]
    pub listen: Option<String>,
    /// Partitions of the data [default: by its size]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub partitions: Option<u32>,
    /// Passes over the data, at most
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    pub iterations: u64,
    /// Precision of the data in memory
    #[arg(long, value_enum, default_value = "f64")]
    pub precision: PrecisionName,
    /// Write the result as Parquet: coefficients, assignments or ranks
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Keep the job's trace, for `pellucid analyze`
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Keep snapshots in a folder or object store (s3://…), and go on from the newest there is
    #[arg(long, value_name = "DIR|URL")]
    pub snapshot: Option<String>,
    /// Iterations between two snapshots
    #[arg(long, value_name = "N", default_value_t = 10, requires = "snapshot", value_parser = clap::value_parser!(u32).range(1..))]
    pub snapshot_every: u32,
    /// Measure the memory's bandwidth before the job, and say what share of it the job's passes reach; a
    /// trace then has it, too
    #[arg(long)]
    pub bandwidth: bool,
    /// Run the workers on Apache Spark, --processes of them (default: as many as fit), through a Python that has PySpark
    #[arg(long, value_name = "spark[=MASTER]", help_heading = "Spark")]
    pub on: Option<String>,
    /// One of Spark's settings, for example spark.executor.memory=4g
    #[arg(long = "conf", value_name = "KEY=VALUE", value_parser = spark::parse_setting, requires = "on", help_heading = "Spark")]
    pub conf: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum PrecisionName {
    F64,
    F32,
}

impl Running {
    /// Of the data in memory.
    pub fn precision(&self) -> Precision {
        match self.precision {
            PrecisionName::F64 => Precision::F64,
            PrecisionName::F32 => Precision::F32,
        }
    }

    /// Threads of one process.
    pub fn threads(&self) -> usize {
        if self.on.is_some() {
            return self.workers.map_or(1, usize::from);
        }
        let cores = crate::generate::all_cores() / self.processes.map_or(1, usize::from);
        self.workers.map_or(cores.max(1), usize::from)
    }

    /// Threads of all processes, on this machine.
    pub fn all_threads(&self) -> usize {
        self.threads() * self.processes.map_or(1, usize::from)
    }

    /// A Spark session that starts the workers, if that was asked for.
    pub fn hosting(&self, control: &JobControl, console: &Console) -> Result<Option<Hosting>, Failure> {
        let Some(on) = &self.on else { return Ok(None) };
        let wanted = spark::Wanted {
            master: spark::master(on)?,
            conf: &self.conf,
            workers: self.processes.map(u32::from),
            threads: self.threads() as u32,
        };
        Hosting::start(&wanted, control.clone(), console).map(Some)
    }

    /// Where snapshots go.
    pub fn snapshots(&self) -> Result<Option<Snapshots>, Failure> {
        let Some(place) = &self.snapshot else { return Ok(None) };
        let url = if place.contains("://") {
            place.clone()
        } else {
            let path = std::path::absolute(place).map_err(|e| Failure::file("find", place, &e))?;
            // What a URL would read otherwise.
            let path = path.display().to_string().replace('%', "%25").replace('?', "%3F").replace('#', "%23");
            format!("file://{path}")
        };
        let wrong = |e| {
            Failure::Usage(format!(
                "--snapshot {place}: {e}; give a folder, or a URL such as s3://bucket/job"
            ))
        };
        Ok(Some(Snapshots { place: url.parse().map_err(wrong)?, every_iterations: self.snapshot_every }))
    }

    /// How fast as many threads as the job has read memory, measured before it, since both would take it from
    /// each other; for a trace, also how fast one thread does, two, and so on to all cores, for `whatif`.
    pub fn bandwidths(&self) -> Result<Vec<Bandwidth>, Failure> {
        /// A thread's buffer: larger than any cache.
        const BYTES: usize = 512 << 20;
        if !self.bandwidth {
            return Ok(Vec::new());
        }
        let mut counts = BTreeSet::from([self.all_threads()]);
        if self.trace.is_some() {
            counts.extend(1..=crate::generate::all_cores());
        }
        let measured = counts.into_iter().map(|threads| bandwidth::measure(threads, BYTES, 6));
        let found: io::Result<Vec<Bandwidth>> = measured.collect();
        found.map_err(|e| Failure::Failed(format!("cannot measure the memory's bandwidth: {e}")))
    }

    /// The recorder of the trace that was asked for.
    pub fn recorder(&self) -> Result<Option<Recorder>, Failure> {
        let Some(path) = &self.trace else { return Ok(None) };
        let options = RecorderOptions {
            producer: "iterate".to_string(),
            producer_version: env!("CARGO_PKG_VERSION").to_string(),
            path: Some(path.clone()),
            ..RecorderOptions::default()
        };
        Recorder::start(options).map(Some).map_err(|e| Failure::Failed(e.to_string()))
    }

    /// How workers in other processes are found.
    pub fn cluster(&self, workers: u16) -> Result<Cluster, Failure> {
        let mut cluster = Cluster { workers: u32::from(workers), ..Cluster::default() };
        if let Some(listen) = &self.listen {
            cluster.secret = Some(Invitation::secret_from_environment().ok_or_else(|| {
                Failure::Usage(
                    "--listen needs PELLUCID_ITERATE_SECRET in the environment: a text that the workers have, too"
                        .to_string(),
                )
            })?);
            cluster.bind.clone_from(listen);
        }
        Ok(cluster)
    }

    /// Refuses what cannot be done, before anything is.
    pub fn check(&self) -> Result<(), Failure> {
        if Invitation::from_environment().map_err(Failure::Usage)?.is_some() {
            // A worker: its controller was asked.
            return Ok(());
        }
        if let Some(on) = &self.on {
            spark::master(on)?;
            if self.listen.is_some() {
                return Err(Failure::Usage(
                    "--listen: with --on spark the controller listens where Spark's driver is; leave it out"
                        .to_string(),
                ));
            }
            if self.bandwidth {
                return Err(Failure::Usage(
                    "--bandwidth measures this machine's memory, and with --on spark workers are elsewhere; leave it out"
                        .to_string(),
                ));
            }
        }
        self.cluster(self.processes.unwrap_or(1))?;
        if let Some(output) = &self.output {
            pellucid_iterate::input::results::check(output)?;
        }
        if let Some(trace) = &self.trace {
            output::check_local("--trace", trace)?;
        }
        self.check_snapshots()
    }

    /// Refuses a folder for snapshots that cannot be made or written: a job may run for hours before its first.
    fn check_snapshots(&self) -> Result<(), Failure> {
        let place = self.snapshots()?.map(|snapshots| snapshots.place);
        let local = place.filter(|place| place.scheme() == "file");
        let Some(folder) = local.and_then(|place| place.to_file_path().ok()) else { return Ok(()) };
        let written = fs::create_dir_all(&folder).and_then(|()| tempfile::tempfile_in(&folder));
        written.map(drop).map_err(|error| {
            Failure::Failed(format!(
                "cannot write snapshots to {}: {error}; give --snapshot a folder that you may write to",
                folder.display()
            ))
        })
    }
}

/// Starts processes with this one's own arguments: each reads the same data, builds the same program, and
/// finds the invitation in its environment.
pub fn start(count: u16, invitation: &Invitation) -> io::Result<Vec<Child>> {
    let program = std::env::current_exe()?;
    let one = |rank| {
        let mut command = Command::new(&program);
        command.args(std::env::args_os().skip(1)).stdin(Stdio::null()).stdout(Stdio::null());
        invitation.put_into(&mut command, rank);
        command.spawn()
    };
    let mut children = Vec::new();
    for rank in 0..u32::from(count) {
        match one(rank) {
            Ok(child) => children.push(child),
            Err(error) => {
                for child in &mut children {
                    // It may have ended by itself.
                    let _ = child.kill().and_then(|()| child.wait().map(drop));
                }
                return Err(error);
            }
        }
    }
    Ok(children)
}
