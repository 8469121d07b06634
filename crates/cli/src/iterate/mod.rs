//! `pellucid iterate`: logistic regression, k-means and PageRank. Reads data, runs the job with a progress
//! line, prints or writes the result. What each prints is in `results`.

mod data;
mod results;
mod running;

use crate::console::Console;
use crate::failure::Failure;
use crate::interrupt;
use crate::spark::Hosting;
use crate::units::format_count;
use clap::{Args, Subcommand, ValueEnum};
use data::Data;
use pellucid_iterate::applications::logistic_regression::Algorithm;
use pellucid_iterate::applications::{ApplicationError, Finished, Job};
use pellucid_iterate::applications::{kmeans, logistic_regression, pagerank};
use pellucid_iterate::input::{InputError, Table, edges};
use pellucid_iterate::{
    Invitation, JobControl, JobError, Outcome, Plan, Progress, RunOptions, WorkerSettings,
};
use results::{Cost, Printable};
use running::{Running, start};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long Spark may take to start executors and tasks, again too.
const SPARK_LIMIT: Duration = Duration::from_secs(120);

/// Coefficients or centers that a screen shows.
const SCREEN_LINES: usize = 30;

/// Arguments of `iterate`.
#[derive(Debug, Args)]
#[command(after_help = "\
Data are Parquet, CSV or TSV files, a folder of them or a pattern ('data/*.csv'); graphs are edge lists: text \
(`source destination` on a line), CSV or Parquet. Those of a URL (s3://, swift://, hdfs://) are fetched into \
TMPDIR first. The answer does not depend on --workers, to the bit.

Over several machines: the same command on each, where the same data is. The controller's has --processes N \
--listen HOST:PORT and PELLUCID_ITERATE_SECRET=TEXT in its environment; each worker's has that, \
PELLUCID_ITERATE_CONTROLLER=HOST:PORT and PELLUCID_ITERATE_RANK=0 (1, …), and listens at the address that it \
has towards the controller. What they say to each other is authenticated, not encrypted.

On Spark: --on spark=MASTER runs --processes N workers in the tasks of one barrier stage, each with --workers \
threads. Data are read where the tasks run: by the same path, or by a URL. When an executor is lost Spark \
starts all workers again, and the job goes on from its newest snapshot (--snapshot, where all of them reach it).

Example:
  pellucid iterate logistic-regression clicks.parquet --label clicked
  pellucid iterate kmeans points.csv --k 10 -o assignments.parquet
  pellucid iterate pagerank graph.el -o ranks.parquet
  pellucid iterate kmeans s3://lake/points --k 10 \\
      --on spark=spark://host:7077 --processes 8 --snapshot s3://lake/kept")]
pub struct Arguments {
    #[command(subcommand)]
    application: Application,
}

#[derive(Debug, Subcommand)]
enum Application {
    /// Fit labels by a weighted sum of features
    LogisticRegression(Regression),
    /// Divide rows among centers
    Kmeans(Clustering),
    /// Rank the vertices of a graph by the edges that lead to them
    Pagerank(Ranking),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  pellucid iterate logistic-regression clicks.parquet --label clicked --features age,visits"
)]
struct Regression {
    /// Table to fit
    #[arg(value_name = "DATA")]
    data: PathBuf,
    /// Column of labels: 0 and 1, -1 and 1, or false and true
    #[arg(long, value_name = "COL")]
    label: String,
    /// Columns of features [default: all others that hold numbers]
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    features: Option<Vec<String>>,
    /// Weight of the penalty ½·l2·‖w‖² beside the summed loss (scikit-learn's C is 1 ÷ l2)
    #[arg(long, default_value_t = 1.0)]
    l2: f64,
    /// How the minimum is found
    #[arg(long, value_enum, default_value = "lbfgs")]
    solver: Solver,
    /// Step of the solver gd [default: one that surely converges]
    #[arg(long)]
    step: Option<f64>,
    /// Ends where no component of the mean gradient is larger
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
    /// Table of rows to divide
    #[arg(value_name = "DATA")]
    data: PathBuf,
    /// Centers [default: as many as the file of --init has]
    #[arg(long, value_name = "N")]
    k: Option<usize>,
    /// First centers: k-means++, or a table with the same columns
    #[arg(long, value_name = "k-means++|FILE", default_value = "k-means++")]
    init: String,
    /// Chooses the draws of k-means++ [default: 0]
    #[arg(long)]
    seed: Option<u64>,
    /// Columns [default: all that hold numbers]
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    features: Option<Vec<String>>,
    /// Ends where all centers together move less, relative to the data's variance
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
    /// The vertices are 0 to N-1 [default: those that have edges]
    #[arg(long, value_name = "N")]
    vertices: Option<u64>,
    /// Share of a rank that goes along edges
    #[arg(long, default_value_t = 0.85)]
    damping: f64,
    /// Ends where the absolute changes of all ranks sum up to no more
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
            regression.running.check()?;
            let data = Data::of(&regression.data)?;
            let ran = regression.job(&data.path).and_then(|job| execute(job, &regression.running, console));
            ran.map_err(|failure| data.named(failure))
        }
        Application::Kmeans(clustering) => {
            clustering.running.check()?;
            let data = Data::of(&clustering.data)?;
            let ran = clustering.job(&data.path).and_then(|job| execute(job, &clustering.running, console));
            ran.map_err(|failure| data.named(failure))
        }
        Application::Pagerank(ranking) => {
            ranking.running.check()?;
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
                return Err(Failure::Usage("--step is for --solver gd; lbfgs chooses its steps".to_string()));
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
            let k = self.k.ok_or_else(|| Failure::Usage("how many centers? Say --k N".to_string()))?;
            kmeans::Init::PlusPlus { k, seed: self.seed.unwrap_or(0) }
        } else {
            if self.seed.is_some() {
                return Err(Failure::Usage(
                    "--seed chooses the draws of k-means++, and --init gives the centers; leave one out"
                        .into(),
                ));
            }
            let given = Table::open(Path::new(&self.init))?;
            if let Some(k) = self.k.filter(|k| *k != given.rows()) {
                return Err(Failure::Usage(format!(
                    "--k {k} does not fit {}, which has {} centers; leave --k out",
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

/// Runs a job to its end, and tells.
fn execute<R: Printable>(job: Job<R>, running: &Running, console: &Console) -> Result<(), Failure> {
    if interrupt::requested() {
        return Err(Failure::Interrupted);
    }
    if let Some((invitation, rank)) = Invitation::from_environment().map_err(Failure::Usage)? {
        return work(job.plan, &invitation, rank, running, console);
    }
    let memory = running.bandwidths()?;
    let own = memory.iter().find(|measured| measured.threads == running.all_threads());
    let told = Told {
        progress: job.progress,
        partitions: job.partitions,
        bytes: job.bytes_per_iteration,
        bandwidth: own.map(|measured| measured.bytes_per_s),
    };
    let preparations = job.preparations;
    let snapshots = running.snapshots()?;
    let control = JobControl::default();
    let mut hosting = running.hosting(&control, console)?;
    // Last, since from here on its trace takes the place of one that may be there.
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
    let ran = run_there(job.plan.clone(), running, hosting, options, console);
    // A job that failed leaves its trace, too: it says how far it came. One whose trace cannot be kept has its result.
    let kept = recorder.map_or(Ok(()), |recorder| recorder.finish().map(drop));
    let kept = kept.map_err(|error| Failure::Failed(error.to_string()));
    // Workers that got the same Ctrl-C may be gone before the controller heard of it.
    let outcome =
        ran.map_err(|failure| if interrupt::requested() { Failure::Interrupted } else { failure })?;
    drop(guard);
    if let Some(iteration) = outcome.resumed_at {
        console.note(&format!("went on from iteration {} of a snapshot", format_count(iteration)));
    }
    let cost = Cost::of(&outcome, preparations, threads);
    let finished = job.finish(&outcome)?;
    if let Some(path) = &running.output {
        finished.result.write(path)?;
        console.note(&format!("written to {}", path.display()));
    }
    let shown = if console.json {
        let document = results::document(&finished, &outcome, cost, told.memory(cost));
        console.print(|out| crate::output::write_document(out, "pellucid.iterate/1", &document))
    } else {
        let most = if console.cut().is_some() { SCREEN_LINES } else { usize::MAX };
        let shown = console.print(|out| finished.result.print(out, most));
        console.note(&told.summary(&finished, &outcome, cost));
        shown
    };
    kept.and(shown)
}

/// Takes part in a job that another process controls.
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
        // Whoever hosts it waits for this: what is wrong with the data has come out by now.
        console.print(|out| writeln!(out, "ready"))?;
    }
    Ok(pellucid_iterate::work(plan, invitation, &settings)?)
}

/// Runs a plan: here, in processes that this one starts or waits for, or in Spark's tasks.
fn run_there(
    plan: Arc<Plan>,
    running: &Running,
    hosting: Option<Hosting>,
    options: RunOptions,
    console: &Console,
) -> Result<Outcome, Failure> {
    if let Some(mut hosting) = hosting {
        console.note(&format!("{} workers in tasks of Spark's", hosting.workers));
        let options = RunOptions { wait_limit: SPARK_LIMIT, ..options };
        let cluster = hosting.cluster();
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

/// What the summary says of the job itself.
struct Told {
    progress: &'static str,
    partitions: u32,
    bytes: u64,
    /// Bytes a second, where it was measured.
    bandwidth: Option<f64>,
}

impl Told {
    /// The bandwidth, and the share of it that iterations reach.
    fn memory(&self, cost: Option<Cost>) -> Option<(f64, Option<f64>)> {
        let share = |bandwidth: f64| cost.map(|cost| self.bytes as f64 / (cost.median_ms / 1e3) / bandwidth);
        self.bandwidth.map(|bandwidth| (bandwidth, share(bandwidth)))
    }

    /// `12 iterations on 8 partitions, converged · loss 0.103 · 8.4 ms each · 38.2 GB/s · 1,204 tasks/s`.
    fn summary<R>(&self, finished: &Finished<R>, outcome: &Outcome, cost: Option<Cost>) -> String {
        let end = if finished.converged { "converged" } else { "not converged (--iterations, --tolerance)" };
        let mut parts =
            vec![format!("{} iterations on {} partitions, {end}", finished.iterations, self.partitions)];
        if let Some(value) = outcome.observed.get(self.progress) {
            parts.push(format!("{} {value:.6e}", self.progress));
        }
        if let Some(cost) = cost {
            parts.push(format!("{:.3} ms each", cost.median_ms));
            let of = self.memory(Some(cost)).and_then(|(_, share)| share);
            let of = of.map_or(String::new(), |share| format!(", {:.0} % of the memory's", share * 100.0));
            parts.push(format!("{:.1} GB/s{of}", self.bytes as f64 / cost.median_ms / 1e6));
            parts.push(format!("{} tasks/s", format_count(cost.tasks_per_s as u64)));
        }
        parts.join(" · ")
    }
}

/// The progress line: iteration, loss or residual, tasks a second, balance.
struct Line {
    bar: crate::console::Progress,
    name: &'static str,
    preparations: u64,
    most: u64,
    last: (Instant, u64),
}

impl Line {
    fn new<R>(job: &Job<R>, most: u64, console: &Console) -> Self {
        let bar = console.progress();
        Line { bar, name: job.progress, preparations: job.preparations, most, last: (Instant::now(), 0) }
    }

    fn show(&mut self, now: &Progress) {
        let iteration = now.iteration.saturating_sub(self.preparations);
        let mut parts =
            vec![format!("iteration {} of at most {}", format_count(iteration), format_count(self.most))];
        if let Some(value) = now.observed.get(self.name) {
            parts.push(format!("{} {value:.6e}", self.name));
        }
        let seconds = self.last.0.elapsed().as_secs_f64();
        let tasks = now.tasks.saturating_sub(self.last.1);
        if seconds > 0.0 {
            parts.push(format!("{} tasks/s", format_count((tasks as f64 / seconds) as u64)));
        }
        if let Some(balance) = now.balance {
            parts.push(format!("balance {:.0} %", balance * 100.0));
        }
        self.last = (Instant::now(), now.tasks);
        self.bar.set(iteration, self.most, &parts.join(" · "));
    }
}
