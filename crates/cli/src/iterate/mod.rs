//! `pellucid iterate`: runs logistic regression, k-means and PageRank.
//!
//! Reads the data, runs the job with a progress line, and prints or writes the result. `results` formats
//! the result of each application.

mod data;
mod results;
mod running;

use crate::console::Console;
use crate::failure::Failure;
use crate::interrupt;
use crate::spark::Hosting;
use clap::{Args, Subcommand, ValueEnum};
use data::Data;
use pellucid_iterate::{
    Cluster, Invitation, JobControl, JobError, Outcome, Plan, Progress, RunOptions, WorkerSettings,
};
use pellucid_iterate_apps::applications::logistic_regression::Algorithm;
use pellucid_iterate_apps::applications::{ApplicationError, Finished, Job};
use pellucid_iterate_apps::applications::{kmeans, logistic_regression, pagerank};
use pellucid_iterate_apps::input::{InputError, Table, edges};
use pellucid_model::units::grouped;
use results::{Cost, Printable};
use running::{Running, start};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Timeout for Spark to start, or restart, executors and tasks.
const SPARK_START_TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum number of coefficients or centers shown on a terminal.
const MAX_SCREEN_LINES: usize = 30;

/// Arguments of `iterate`.
#[derive(Debug, Args)]
#[command(after_help = "\
DATA is a Parquet, CSV or TSV file, a folder of them, or a pattern ('data/*.csv'). Graphs are edge lists: \
text (one `source destination` pair per line), CSV or Parquet. Data at a URL (s3://, swift://, hdfs://) is \
first downloaded to TMPDIR. Results are bit-identical for any number of --workers.

Several machines: run the same command on each of them, with the same data. Start the controller with \
--processes N --listen HOST:PORT and a secret in PELLUCID_ITERATE_SECRET (`openssl rand -hex 32` makes one). \
Start worker I (from 0 to N-1) with the same secret, PELLUCID_ITERATE_CONTROLLER=HOST:PORT and \
PELLUCID_ITERATE_RANK=I. Workers listen on the address from which they reach the controller. \
With --encrypt, on all of them, connections are encrypted (TLS 1.3); without, they are authenticated only.

Spark: --on spark=MASTER runs --processes N workers as the tasks of one barrier stage, each with --workers \
threads. The tasks read the data from the same path or URL. If an executor is lost, Spark restarts all \
workers, and the job resumes from its latest snapshot (--snapshot must name a place that all of them can \
reach).

Example:
  pellucid iterate logistic-regression clicks.parquet --label clicked
  pellucid iterate kmeans points.csv --k 10 -o assignments.parquet
  pellucid iterate pagerank graph.el -o ranks.parquet
  pellucid iterate kmeans s3://lake/points --k 10 \\
      --on spark=spark://host:7077 --processes 8 --snapshot s3://lake/snap")]
pub struct Arguments {
    #[command(subcommand)]
    application: Application,
}

#[derive(Debug, Subcommand)]
enum Application {
    /// Fit a linear classifier to labelled rows
    LogisticRegression(Regression),
    /// Assign rows to clusters
    Kmeans(Clustering),
    /// Rank the vertices of a graph by their incoming edges
    Pagerank(Ranking),
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pellucid iterate logistic-regression clicks.parquet --label clicked")]
struct Regression {
    /// Table with labels and features
    #[arg(value_name = "DATA")]
    data: PathBuf,
    /// Label column; values are 0 and 1, -1 and 1, or false and true
    #[arg(long, value_name = "COL")]
    label: String,
    /// Feature columns [default: all other numeric columns]
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    features: Option<Vec<String>>,
    /// Weight of the L2 penalty ½·l2·‖w‖², added to the summed loss (scikit-learn's C is 1 ÷ l2)
    #[arg(long, default_value_t = 1.0)]
    l2: f64,
    /// Optimisation algorithm
    #[arg(long, value_enum, default_value = "lbfgs")]
    solver: Solver,
    /// Step size of the gd solver [default: a step that guarantees convergence]
    #[arg(long)]
    step: Option<f64>,
    /// Stop when no component of the mean gradient exceeds this
    #[arg(long, default_value_t = 1e-6)]
    tolerance: f64,
    #[command(flatten)]
    running: Running,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Solver {
    /// Limited-memory quasi-Newton
    Lbfgs,
    /// Gradient descent
    Gd,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pellucid iterate kmeans points.csv --k 10 -o assignments.parquet")]
struct Clustering {
    /// Table of rows to cluster
    #[arg(value_name = "DATA")]
    data: PathBuf,
    /// Number of clusters [default: the number of rows of the --init file]
    #[arg(long, value_name = "N")]
    k: Option<usize>,
    /// Initial centers: k-means++, or a table with the same columns
    #[arg(long, value_name = "k-means++|FILE", default_value = "k-means++")]
    init: String,
    /// Random seed of k-means++ [default: 0]
    #[arg(long)]
    seed: Option<u64>,
    /// Columns to use [default: all numeric columns]
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    features: Option<Vec<String>>,
    /// Stop when the total movement of the centers, relative to the data's variance, is below this
    #[arg(long, default_value_t = 1e-4)]
    tolerance: f64,
    #[command(flatten)]
    running: Running,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  pellucid iterate pagerank graph.el --iterations 30 -o ranks.parquet")]
struct Ranking {
    /// Edge list
    #[arg(value_name = "DATA")]
    data: PathBuf,
    /// Use the vertices 0 to N-1 [default: the vertices that have edges]
    #[arg(long, value_name = "N")]
    vertices: Option<u64>,
    /// Damping factor: the share of a rank that follows the edges
    #[arg(long, default_value_t = 0.85)]
    damping: f64,
    /// Stop when the absolute changes of all ranks sum to no more than this
    #[arg(long, default_value_t = 1e-6)]
    tolerance: f64,
    #[command(flatten)]
    running: Running,
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Self {
        match error {
            InputError::Usage(message) => Failure::Usage(message),
            InputError::Failed(message) => Failure::Failed(message),
        }
    }
}

impl From<ApplicationError> for Failure {
    fn from(error: ApplicationError) -> Self {
        match error {
            ApplicationError::Input(error) => error.into(),
            ApplicationError::Program(error) => Failure::Usage(error.to_string()),
        }
    }
}

impl From<JobError> for Failure {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Cancelled => Failure::Interrupted,
            other => Failure::Failed(other.to_string()),
        }
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments, console: &Console) -> Result<(), Failure> {
    match &arguments.application {
        Application::LogisticRegression(regression) => {
            regression.running.check(&[&regression.data])?;
            let data = Data::of(&regression.data)?;
            let ran = regression.job(&data.path).and_then(|job| execute(job, &regression.running, console));
            ran.map_err(|failure| data.named(failure))
        }
        Application::Kmeans(clustering) => {
            clustering.running.check(&[&clustering.data, Path::new(&clustering.init)])?;
            let data = Data::of(&clustering.data)?;
            let ran = clustering.job(&data.path).and_then(|job| execute(job, &clustering.running, console));
            ran.map_err(|failure| data.named(failure))
        }
        Application::Pagerank(ranking) => {
            ranking.running.check(&[&ranking.data])?;
            let data = Data::of(&ranking.data)?;
            let ran = ranking.job(&data.path).and_then(|job| execute(job, &ranking.running, console));
            ran.map_err(|failure| data.named(failure))
        }
    }
}

impl Regression {
    fn job(&self, data: &Path) -> Result<Job<logistic_regression::Model>, Failure> {
        let algorithm = match (self.solver, self.step) {
            (Solver::Lbfgs, None) => Algorithm::Lbfgs,
            (Solver::Gd, step) => Algorithm::GradientDescent { step },
            (Solver::Lbfgs, Some(_)) => {
                return Err(Failure::Usage(
                    "cannot use --step with --solver lbfgs, which chooses its own steps; use --solver gd"
                        .to_string(),
                ));
            }
        };
        let options = logistic_regression::Options {
            label: self.label.clone(),
            features: self.features.clone(),
            l2: self.l2,
            algorithm,
            tolerance: self.tolerance,
            iterations: self.running.iterations,
            precision: self.running.precision(),
            partitions: self.running.partitions,
        };
        Ok(logistic_regression::job(Arc::new(Table::open(data)?), &options)?)
    }
}

impl Clustering {
    fn job(&self, data: &Path) -> Result<Job<kmeans::Clusters>, Failure> {
        let init = if self.init == "k-means++" {
            let k = self.k.ok_or_else(|| {
                Failure::Usage("the number of centers is missing; set it with --k N".to_string())
            })?;
            kmeans::Init::PlusPlus { k, seed: self.seed.unwrap_or(0) }
        } else {
            if self.seed.is_some() {
                return Err(Failure::Usage(
                    "cannot use --seed with the centers of an --init file; remove one of them".into(),
                ));
            }
            let given = Table::open(Path::new(&self.init))?;
            if let Some(k) = self.k.filter(|k| *k != given.rows()) {
                return Err(Failure::Usage(format!(
                    "--k {k} does not match {}, which has {} centers; remove --k",
                    self.init,
                    given.rows()
                )));
            }
            kmeans::Init::Given(Arc::new(given))
        };
        let options = kmeans::Options {
            features: self.features.clone(),
            init,
            tolerance: self.tolerance,
            iterations: self.running.iterations,
            precision: self.running.precision(),
            partitions: self.running.partitions,
        };
        Ok(kmeans::job(Arc::new(Table::open(data)?), &options)?)
    }
}

impl Ranking {
    fn job(&self, data: &Path) -> Result<Job<pagerank::Ranks>, Failure> {
        let options = pagerank::Options {
            damping: self.damping,
            tolerance: self.tolerance,
            iterations: self.running.iterations,
            precision: self.running.precision(),
            partitions: self.running.partitions,
        };
        Ok(pagerank::job(edges::read(data, self.vertices)?, &options)?)
    }
}

/// Runs a job and prints its result and summary.
fn execute<R: Printable>(job: Job<R>, running: &Running, console: &Console) -> Result<(), Failure> {
    if interrupt::requested() {
        return Err(Failure::Interrupted);
    }
    if let Some((mut invitation, rank)) = Invitation::from_environment().map_err(Failure::Usage)? {
        invitation.encrypted |= running.encrypt;
        return work(job.plan, &invitation, rank, running, console);
    }
    let memory = running.bandwidths()?;
    let own = memory.iter().find(|measured| measured.threads == running.all_threads());
    let summary = RunSummary {
        progress: job.progress,
        partitions: job.partitions,
        bytes: job.bytes_per_iteration,
        bandwidth: own.map(|measured| measured.bytes_per_s),
    };
    let preparations = job.preparations;
    let snapshots = running.snapshots()?;
    let control = JobControl::default();
    let mut hosting = running.hosting(&control, console)?;
    // Start the recorder last, since it overwrites an existing trace.
    let recorder = running.recorder().inspect_err(|_| {
        if let Some(hosting) = hosting.take() {
            hosting.end(false);
        }
    })?;
    let threads = hosting
        .as_ref()
        .map_or(running.all_threads(), |hosting| hosting.workers as usize * running.threads());
    let cancelled = control.clone();
    let guard = interrupt::on_interrupt(move || cancelled.cancel());
    let mut line = Line::new(&job, running.iterations, console);
    let options = RunOptions {
        threads: running.threads(),
        snapshots,
        recorder: recorder.clone(),
        memory,
        control: Some(control),
        progress: Some(Box::new(move |now| line.show(now))),
        ..RunOptions::default()
    };
    let ran = run_plan(job.plan.clone(), running, hosting, options, console);
    // A failed job keeps its trace, which shows how far it got. If only the trace fails, the result is still
    // printed.
    let kept = recorder.map_or(Ok(()), |recorder| recorder.finish().map(drop));
    let kept = kept.map_err(|error| Failure::Failed(error.to_string()));
    // Ctrl-C may end the workers before the controller handles it; report the interruption, not their loss.
    let outcome =
        ran.map_err(|failure| if interrupt::requested() { Failure::Interrupted } else { failure })?;
    drop(guard);
    if let Some(iteration) = outcome.resumed_at {
        console.note(&format!("resumed from the snapshot of iteration {}", grouped(iteration)));
    }
    let cost = Cost::of(&outcome, preparations, threads);
    let finished = job.finish(&outcome)?;
    if let Some(path) = &running.output {
        finished.result.write(path)?;
        console.note(&format!("written to {}", path.display()));
    }
    let printed = if console.json {
        let document = results::document(&finished, &outcome, cost, summary.memory(cost));
        console.print_document("pellucid.iterate/1", &document)
    } else {
        let max_lines = if console.display_limits(None).is_some() { MAX_SCREEN_LINES } else { usize::MAX };
        let printed = console.print(|out| finished.result.print(out, max_lines));
        console.note(&summary.line(&finished, &outcome, cost));
        printed
    };
    kept.and(printed)
}

/// Runs as a worker of a job that another process controls.
fn work(
    plan: Arc<Plan>,
    invitation: &Invitation,
    rank: u32,
    running: &Running,
    console: &Console,
) -> Result<(), Failure> {
    let snapshots = running.snapshots()?;
    let settings = WorkerSettings {
        rank,
        threads: running.threads(),
        snapshots,
        traced: running.trace.is_some(),
        ..WorkerSettings::default()
    };
    if running.on.is_some() {
        // `hosting.py` waits for this line; errors in the data have been reported by now.
        console.print(|out| writeln!(out, "ready"))?;
    }
    Ok(pellucid_iterate::work(plan, invitation, &settings)?)
}

/// Runs a plan in this process, in processes that it starts or waits for, or in Spark tasks.
fn run_plan(
    plan: Arc<Plan>,
    running: &Running,
    hosting: Option<Hosting>,
    options: RunOptions,
    console: &Console,
) -> Result<Outcome, Failure> {
    if let Some(mut hosting) = hosting {
        console.note(&format!("{} workers in Spark tasks", hosting.workers));
        let options = RunOptions { wait_limit: SPARK_START_TIMEOUT, ..options };
        let cluster = Cluster { encrypted: running.encrypt, ..hosting.cluster() };
        let ran = pellucid_iterate::control(plan, &cluster, options, |invitation| {
            hosting.invite(invitation).map(|()| Vec::new())
        });
        hosting.end(ran.is_ok());
        return Ok(ran?);
    }
    let Some(count) = running.processes else { return Ok(pellucid_iterate::run(plan, options)?) };
    let cluster = running.cluster(count)?;
    Ok(pellucid_iterate::control(plan, &cluster, options, |invitation| {
        if running.listen.is_none() {
            return start(count, invitation);
        }
        console.note(&format!("waiting for {count} workers at {}", invitation.controller));
        Ok(Vec::new())
    })?)
}

/// Properties of the job that its summary reports.
struct RunSummary {
    progress: &'static str,
    partitions: u32,
    bytes: u64,
    /// Memory bandwidth in bytes per second, if measured.
    bandwidth: Option<f64>,
}

impl RunSummary {
    /// Returns the bandwidth, and the share of it that the iterations reach.
    fn memory(&self, cost: Option<Cost>) -> Option<(f64, Option<f64>)> {
        let share = |bandwidth: f64| cost.map(|cost| self.bytes as f64 / (cost.median_ms / 1e3) / bandwidth);
        self.bandwidth.map(|bandwidth| (bandwidth, share(bandwidth)))
    }

    /// Returns the summary line:
    /// `12 iterations on 8 partitions, converged · loss 0.103 · 8.4 ms each · 38.2 GB/s · 1,204 tasks/s`.
    fn line<R>(&self, finished: &Finished<R>, outcome: &Outcome, cost: Option<Cost>) -> String {
        let end = if finished.converged { "converged" } else { "not converged (--iterations, --tolerance)" };
        let mut parts =
            vec![format!("{} iterations on {} partitions, {end}", finished.iterations, self.partitions)];
        if let Some(value) = outcome.observed.get(self.progress) {
            parts.push(format!("{} {value:.6e}", self.progress));
        }
        if let Some(cost) = cost {
            parts.push(format!("{:.3} ms each", cost.median_ms));
            let share = self.memory(Some(cost)).and_then(|(_, share)| share);
            let share = share
                .map_or(String::new(), |share| format!(", {:.0} % of the memory bandwidth", share * 100.0));
            parts.push(format!("{:.1} GB/s{share}", self.bytes as f64 / cost.median_ms / 1e6));
            parts.push(format!("{} tasks/s", grouped(cost.tasks_per_s as u64)));
        }
        parts.join(" · ")
    }
}

/// The progress line: iteration, loss or residual, tasks per second, balance.
struct Line {
    bar: crate::console::Progress,
    name: &'static str,
    preparations: u64,
    max_iterations: u64,
    last: (Instant, u64),
}

impl Line {
    fn new<R>(job: &Job<R>, max_iterations: u64, console: &Console) -> Self {
        let bar = console.progress();
        let last = (Instant::now(), 0);
        Line { bar, name: job.progress, preparations: job.preparations, max_iterations, last }
    }

    fn show(&mut self, now: &Progress) {
        let iteration = now.iteration.saturating_sub(self.preparations);
        let limit = grouped(self.max_iterations);
        let mut parts = vec![format!("iteration {} of at most {limit}", grouped(iteration))];
        if let Some(value) = now.observed.get(self.name) {
            parts.push(format!("{} {value:.6e}", self.name));
        }
        let seconds = self.last.0.elapsed().as_secs_f64();
        let tasks = now.tasks.saturating_sub(self.last.1);
        if seconds > 0.0 {
            parts.push(format!("{} tasks/s", grouped((tasks as f64 / seconds) as u64)));
        }
        if let Some(balance) = now.balance {
            parts.push(format!("balance {:.0} %", balance * 100.0));
        }
        self.last = (Instant::now(), now.tasks);
        self.bar.set(iteration, self.max_iterations, &parts.join(" · "));
    }
}
