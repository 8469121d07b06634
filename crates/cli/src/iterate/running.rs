//! Options that all iterative applications share.

use crate::console::Console;
use crate::failure::Failure;
use crate::output;
use crate::spark::{self, Hosting};
use crate::start::Program;
use clap::{Args, ValueEnum};
use pellucid_iterate::{Cluster, Invitation, JobControl, Snapshots};
use pellucid_iterate_apps::applications::Precision;
use pellucid_iterate_apps::input::{files, results};
use pellucid_iterate_apps::kernels::bandwidth::{self, Bandwidth};
use pellucid_trace::{Recorder, RecorderOptions};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::{fs, io};

/// Options of an iterative job.
#[derive(Debug, Args)]
pub struct Running {
    /// Threads per process [default: all cores, divided among processes; 1 on Spark]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub workers: Option<u16>,
    /// Number of worker processes, each with its own partitions [default: run in this process]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub processes: Option<u16>,
    /// Wait at this address for --processes workers started elsewhere, instead of starting them;
    /// see `iterate --help`
    #[arg(long, value_name = "HOST:PORT", requires = "processes")]
    pub listen: Option<String>,
    /// Encrypt the connections between the processes; all of them need this option
    #[arg(long)]
    pub encrypt: bool,
    /// Number of data partitions [default: chosen by data size]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub partitions: Option<u32>,
    /// Maximum number of passes over the data
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    pub iterations: u64,
    /// Precision of the data in memory
    #[arg(long, value_enum, default_value = "f64")]
    pub precision: PrecisionName,
    /// Write the result as Parquet: coefficients, assignments or ranks
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write the job's trace to FILE, for `pellucid analyze`
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Store snapshots in a folder or object store (s3://…), and resume from the latest one
    #[arg(long, value_name = "DIR|URL")]
    pub snapshot: Option<String>,
    /// Iterations between snapshots
    #[arg(long, value_name = "N", default_value_t = 10, requires = "snapshot", value_parser = clap::value_parser!(u32).range(1..))]
    pub snapshot_every: u32,
    /// Measure the memory bandwidth before the job, report the share that the job reaches, and
    /// add it to the trace
    #[arg(long)]
    pub bandwidth: bool,
    /// Run --processes workers (default: as many as fit) on Apache Spark; requires PySpark
    #[arg(long, value_name = "spark[=MASTER]", help_heading = "Spark")]
    pub on: Option<String>,
    /// Set a Spark property, for example spark.executor.memory=4g
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
    /// Returns the precision of the data in memory.
    pub fn precision(&self) -> Precision {
        match self.precision {
            PrecisionName::F64 => Precision::F64,
            PrecisionName::F32 => Precision::F32,
        }
    }

    /// Returns the number of threads per process.
    pub fn threads(&self) -> usize {
        if self.on.is_some() {
            return self.workers.map_or(1, usize::from);
        }
        let cores = crate::generate::all_cores() / self.processes.map_or(1, usize::from);
        self.workers.map_or(cores.max(1), usize::from)
    }

    /// Returns the number of threads of all processes on this machine.
    pub fn all_threads(&self) -> usize {
        self.threads() * self.processes.map_or(1, usize::from)
    }

    /// Starts the Spark session that hosts the workers, if `--on` was given.
    pub fn hosting(&self, control: &JobControl, console: &Console) -> Result<Option<Hosting>, Failure> {
        let Some(on) = &self.on else { return Ok(None) };
        let request = spark::HostingRequest {
            master: spark::master(on)?,
            conf: &self.conf,
            workers: self.processes.map(u32::from),
            threads: self.threads() as u32,
        };
        Hosting::start(&request, control.clone(), console).map(Some)
    }

    /// Returns the snapshot options.
    pub fn snapshots(&self) -> Result<Option<Snapshots>, Failure> {
        let Some(place) = &self.snapshot else { return Ok(None) };
        let url = if place.contains("://") {
            place.clone()
        } else {
            let path = std::path::absolute(place).map_err(|e| Failure::file("find", place, &e))?;
            // Escape the characters that are special in a URL.
            let path = path.display().to_string().replace('%', "%25").replace('?', "%3F").replace('#', "%23");
            format!("file://{path}")
        };
        let wrong = |e| {
            Failure::Usage(format!(
                "invalid --snapshot {}: {e}; pass a folder, or a URL such as s3://bucket/job",
                pellucid_storage::shown(place)
            ))
        };
        Ok(Some(Snapshots { place: url.parse().map_err(wrong)?, every_iterations: self.snapshot_every }))
    }

    /// Measures the memory bandwidth with the job's number of threads. For a trace, also measures it with 1
    /// thread up to all cores, which `whatif` uses. Measures before the job starts, so that the two do not
    /// compete for bandwidth.
    pub fn bandwidths(&self) -> Result<Vec<Bandwidth>, Failure> {
        /// Buffer size per thread, larger than any cache.
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
        found.map_err(|e| Failure::Failed(format!("cannot measure the memory bandwidth: {e}")))
    }

    /// Starts the recorder of the trace, if `--trace` was given.
    pub fn recorder(&self) -> Result<Option<Recorder>, Failure> {
        let Some(path) = &self.trace else { return Ok(None) };
        let options = RecorderOptions {
            producer: "iterate".to_string(),
            producer_version: env!("CARGO_PKG_VERSION").to_string(),
            path: Some(path.clone()),
            ..RecorderOptions::default()
        };
        Ok(Some(Recorder::start(options)?))
    }

    /// Returns how the controller and its worker processes connect.
    pub fn cluster(&self, workers: u16) -> Result<Cluster, Failure> {
        let mut cluster =
            Cluster { workers: u32::from(workers), encrypted: self.encrypt, ..Cluster::default() };
        if let Some(listen) = &self.listen {
            let secret = Invitation::secret_from_environment().map_err(Failure::Usage)?;
            cluster.secret = Some(secret.ok_or_else(|| {
                Failure::Usage(
                    "--listen needs the secret shared with the workers; set PELLUCID_ITERATE_SECRET to the \
                     output of `openssl rand -hex 32`"
                        .to_string(),
                )
            })?);
            cluster.bind.clone_from(listen);
        }
        Ok(cluster)
    }

    /// Rejects invalid options before the job reads `inputs`.
    pub fn check(&self, inputs: &[&Path]) -> Result<(), Failure> {
        if Invitation::from_environment().map_err(Failure::Usage)?.is_some() {
            // This process is a worker; its controller has checked the options.
            return Ok(());
        }
        if let Some(on) = &self.on {
            spark::master(on)?;
            if self.listen.is_some() {
                return Err(Failure::Usage(
                    "cannot use --listen with --on spark: the controller listens on the driver's address; \
                     remove --listen"
                        .to_string(),
                ));
            }
            if self.bandwidth {
                return Err(Failure::Usage(
                    "cannot use --bandwidth with --on spark: it measures this machine's memory, not the \
                     executors'; remove --bandwidth"
                        .to_string(),
                ));
            }
        }
        if self.encrypt && self.processes.is_none() && self.on.is_none() {
            return Err(Failure::Usage(
                "cannot use --encrypt in a job of one process, which has no connections; add --processes N or \
                 remove --encrypt"
                    .to_string(),
            ));
        }
        self.cluster(self.processes.unwrap_or(1))?;
        if let Some(output) = &self.output {
            results::check(output)?;
        }
        if let Some(trace) = &self.trace {
            output::check_local("--trace", trace)?;
            Recorder::check_path(trace)?;
        }
        let inputs = inputs.iter().flat_map(|path| files(path).unwrap_or_else(|_| vec![path.to_path_buf()]));
        let inputs: Vec<PathBuf> = inputs.collect();
        let outputs = [("-o", self.output.as_deref()), ("--trace", self.trace.as_deref())];
        output::check_outputs(&outputs, inputs.iter().map(PathBuf::as_path))?;
        self.check_snapshots()
    }

    /// Rejects a snapshot folder that cannot be created or written. The job may run for hours before the first
    /// snapshot would fail.
    fn check_snapshots(&self) -> Result<(), Failure> {
        let place = self.snapshots()?.map(|snapshots| snapshots.place);
        let local = place.filter(|place| place.scheme() == "file");
        let Some(folder) = local.and_then(|place| place.to_file_path().ok()) else { return Ok(()) };
        let written = fs::create_dir_all(&folder).and_then(|()| tempfile::tempfile_in(&folder));
        written.map(drop).map_err(|error| {
            Failure::Failed(format!(
                "cannot write snapshots to {}: {error}; pass a writable folder to --snapshot",
                folder.display()
            ))
        })
    }
}

/// Starts worker processes with the arguments of this process. Each reads the same data, builds the same
/// program, and finds the invitation in its environment.
pub fn start(count: u16, invitation: &Invitation) -> io::Result<Vec<Child>> {
    let one = |rank| {
        let mut command = Program::current().again()?;
        command.stdin(Stdio::null()).stdout(Stdio::null());
        invitation.put_into(&mut command, rank);
        command.spawn()
    };
    let mut children = Vec::new();
    for rank in 0..u32::from(count) {
        match one(rank) {
            Ok(child) => children.push(child),
            Err(error) => {
                for child in &mut children {
                    // The child may have exited already.
                    let _ = child.kill().and_then(|()| child.wait().map(drop));
                }
                return Err(error);
            }
        }
    }
    Ok(children)
}
