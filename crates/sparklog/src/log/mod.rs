//! The state of one application's log while its events are read.
//!
//! [`Log`] takes events and keeps what a trace needs: the application, executors, jobs, stages and SQL
//! executions, and tasks in packed form. References are resolved as far as the order of the log allows.
//! Times remain Unix times until [`build`] determines the origin.
//!
//! Real logs violate their own format: tasks end after their stage, stages appear without their job, events
//! are truncated. A referenced but unknown item is therefore created with the data at hand, and
//! inconsistencies are counted and reported once.

pub mod build;
mod concurrency;
mod kept;
mod measured;
mod plans;
mod query_operators;
mod redact;
mod warnings;

use std::collections::{BTreeMap, HashMap};

use pellucid_trace::PipelinedTasks;

use crate::event::application::{ApplicationStart, ExecutorEvent, Settings};
use crate::event::execution::{DriverMetrics, Execution};
use crate::event::job::{EndEvent, JobStart, StageInfo};
use crate::event::task::TaskEnd;
use crate::event::time::ns;
use crate::event::{self, Content, Event};
use crate::json::unescaped;
use crate::text;
use concurrency::ConcurrencyHistory;
use kept::Kept;
use measured::measured;
use plans::Plans;
use query_operators::QueryOperators;
use warnings::Warnings;

/// Maximum number of event names that are counted separately.
const MAX_NAMES: usize = 300;
/// Maximum number of settings.
const MAX_SETTINGS: usize = 10_000;
/// Maximum length of a setting's value.
const MAX_SETTING_CHARS: usize = 1000;

/// The contents of a log so far.
#[derive(Debug, Default)]
pub struct Log {
    start: ApplicationStart,
    ended_ms: Option<u64>,
    version: Option<String>,
    databricks: bool,
    settings: BTreeMap<String, String>,
    events: HashMap<Vec<u8>, u64>,
    executors: Vec<Executor>,
    executor_by_id: HashMap<Vec<u8>, u32>,
    /// Cores for each task, by resource profile.
    profiles: HashMap<u64, f64>,
    jobs: Vec<Job>,
    job_by_id: HashMap<u64, usize>,
    /// Jobs that have not ended, with their stages.
    active: Vec<(usize, Vec<u64>)>,
    /// The job that collects all stages whose job has no recorded start.
    orphan_job: Option<usize>,
    stages: Vec<Stage>,
    stage_by_id: HashMap<(u64, u64), u32>,
    /// The RDD of each planned stage, whether the stage ran or its output already existed.
    rdd_of_stage: HashMap<u64, u64>,
    /// The stage of the last task, cached since consecutive tasks usually share a stage.
    last_stage: Option<((u64, u64), u32)>,
    executions: Vec<SqlExecution>,
    execution_by_id: HashMap<u64, usize>,
    plans: Plans,
    query_operators: QueryOperators,
    tasks: PipelinedTasks,
    concurrencies: ConcurrencyHistory,
    /// End of the last task, used for tasks without times.
    latest_ms: Option<u64>,
    kept: Kept,
    pub warnings: Warnings,
    task_ends: u64,
    task_starts: u64,
}

/// An executor.
#[derive(Debug, Default)]
pub struct Executor {
    pub id: String,
    pub host: Option<String>,
    /// Cores that Spark was configured to use.
    pub cores: Option<u64>,
    /// Cores of the machine, as reported by the plugin.
    pub machine_cores: Option<u32>,
    pub profile: u64,
    pub added_ms: Option<u64>,
    pub removed_ms: Option<u64>,
    pub removed_why: Option<String>,
}

/// A job.
#[derive(Debug, Default)]
pub struct Job {
    pub id: Option<u64>,
    pub name: String,
    pub execution: Option<u64>,
    pub submitted_ms: Option<u64>,
    pub end: Option<EndEvent>,
}

/// An attempt of a stage.
#[derive(Debug, Default)]
pub struct Stage {
    pub id: u64,
    pub attempt: u64,
    pub job: usize,
    pub name: String,
    pub operators: Option<String>,
    pub call_site: Option<String>,
    pub parents: Vec<u64>,
    pub rdd: Option<u64>,
    pub tasks: Option<u64>,
    pub submitted_ms: Option<u64>,
    pub first_launch_ms: Option<u64>,
    pub end: Option<EndEvent>,
    /// True if the input bytes of its tasks are unreliable.
    pub distrust_input: bool,
}

/// An SQL execution.
#[derive(Debug, Default)]
pub struct SqlExecution {
    pub id: u64,
    pub name: String,
    pub root: Option<u64>,
    pub submitted_ms: Option<u64>,
    pub local_parquet: bool,
    pub end: Option<EndEvent>,
}

impl Log {
    /// Returns whether the log contains any Spark event.
    pub fn is_event_log(&self) -> bool {
        self.task_ends > 0 || self.task_starts > 0 || self.events.keys().any(|name| event::is_spark(name))
    }

    /// Returns the estimated memory of the contents.
    pub fn memory_bytes(&self) -> u64 {
        (self.kept.bytes() + self.plans.memory_bytes() + self.query_operators.memory_bytes()) as u64
    }

    /// Adds an event.
    pub fn apply(&mut self, event: Event<'_>) {
        match event.content {
            Content::TaskEnd(task) => {
                self.task_ends += 1;
                return self.task_end(task);
            }
            Content::TaskStart => {
                self.task_starts += 1;
                return;
            }
            Content::LogStart { version, databricks } => {
                self.databricks |= databricks;
                self.version = version.or(self.version.take());
            }
            Content::ApplicationStart(start) => self.application_start(start),
            Content::ApplicationEnd { at_ms } => self.ended_ms = at_ms.or(self.ended_ms),
            Content::Environment(settings) => self.add_settings(settings),
            Content::ResourceProfile { id, cpus } => self.profiles.extend(id.zip(cpus)),
            Content::ExecutorAdded(executor) => self.executor_added(executor),
            // The driver's own block manager runs no tasks.
            Content::BlockManagerAdded(manager) if matches!(&manager.id[..], b"driver" | b"<driver>") => {}
            Content::BlockManagerAdded(manager) => self.executor_added(manager),
            Content::ExecutorRemoved(executor) => self.executor_removed(executor),
            Content::JobStart(job) => self.job_start(job),
            Content::JobEnd(end) => self.job_end(end),
            Content::StageSubmitted(stage) => self.stage(stage, false),
            Content::StageCompleted(stage) => self.stage(stage, true),
            Content::ExecutionStart(execution) => self.execution(execution, true),
            Content::PlanChange(execution) => self.execution(execution, false),
            Content::DriverMetrics(metrics) => self.driver_metrics(metrics),
            Content::ExecutionEnd(end) => self.execution_end(end),
            Content::Other => {}
        }
        self.count(event::short(&event.name));
    }

    /// Counts an event by its short name.
    fn count(&mut self, name: &[u8]) {
        if let Some(count) = self.events.get_mut(name) {
            *count += 1;
        } else if self.events.len() < MAX_NAMES {
            self.kept.item(name.len());
            self.events.insert(name.to_vec(), 1);
        } else {
            *self.events.entry(b"other".to_vec()).or_default() += 1;
        }
    }

    fn application_start(&mut self, start: ApplicationStart) {
        if self.start.at_ms.is_some() && self.start.id != start.id {
            self.warnings.add("the log contains several applications; they are read as one");
        } else {
            self.start = start;
        }
    }

    fn add_settings(&mut self, settings: Settings) {
        for (key, value) in settings {
            if self.settings.len() < MAX_SETTINGS || self.settings.contains_key(&key) {
                self.kept.item(key.len() + value.len().min(MAX_SETTING_CHARS));
                self.settings.insert(key, text::clipped(&value, MAX_SETTING_CHARS));
            }
        }
    }

    /// Returns the executor with this id, which still has its escapes.
    fn executor_of(&mut self, id: &[u8]) -> u32 {
        if let Some(known) = self.executor_by_id.get(id) {
            return *known;
        }
        let ix = self.executors.len() as u32;
        self.kept.item(2 * id.len());
        self.executor_by_id.insert(id.to_vec(), ix);
        let id = unescaped(id).trim_matches(['<', '>']).to_owned();
        self.executors.push(Executor { id, ..Executor::default() });
        ix
    }

    fn executor_added(&mut self, event: ExecutorEvent) {
        let ix = self.executor_of(&event.id);
        let executor = &mut self.executors[ix as usize];
        executor.host = event.host.or(executor.host.take());
        executor.cores = event.cores.filter(|cores| *cores > 0).or(executor.cores);
        executor.profile = event.profile.unwrap_or(executor.profile);
        // Executor and block manager are added at about the same time; either event may be missing.
        executor.added_ms = match (executor.added_ms, event.at_ms) {
            (Some(known), Some(at)) => Some(known.min(at)),
            (known, at) => known.or(at),
        };
    }

    fn executor_removed(&mut self, event: ExecutorEvent) {
        let Some(ix) = self.executor_by_id.get(&event.id[..]) else { return };
        let executor = &mut self.executors[*ix as usize];
        executor.removed_ms = executor.removed_ms.or(event.at_ms);
        let why = event.why.map(|why| text::first_line_clipped(&why));
        executor.removed_why = executor.removed_why.take().or(why);
    }

    fn job_start(&mut self, job: JobStart) {
        self.add_settings(job.sql_settings);
        self.kept.item(size_of_val(&job.stages[..]) + 3 * size_of_val(&job.rdds[..]));
        self.rdd_of_stage.extend(job.rdds);
        let ix = self.jobs.len();
        self.job_by_id.extend(job.id.map(|id| (id, ix)));
        self.jobs.push(Job {
            id: job.id,
            name: self.kept.name(job.description.or(job.name), &mut self.warnings),
            execution: job.execution,
            submitted_ms: job.submitted_ms,
            end: None,
        });
        self.active.push((ix, job.stages));
    }

    fn job_end(&mut self, end: EndEvent) {
        let Some(ix) = end.id.and_then(|id| self.job_by_id.get(&id)).copied() else {
            self.warnings.unknown_jobs += 1;
            return;
        };
        self.active.retain(|(active, _)| *active != ix);
        let error = end.error.map(|error| text::first_line_clipped(&error));
        self.jobs[ix].end = Some(EndEvent { error, ..end });
    }

    /// Returns the job of a stage: the first active job that needs it.
    fn job_of(&mut self, stage: u64) -> usize {
        let needs = |(_, stages): &&(usize, Vec<u64>)| stages.binary_search(&stage).is_ok();
        if let Some((job, _)) = self.active.iter().find(needs) {
            return *job;
        }
        // Events may be late, so the job of an earlier attempt is the next candidate.
        let earlier = self.stages.iter().rev().take(1000).find(|s| s.id == stage).map(|s| s.job);
        if let Some(job) = earlier {
            return job;
        }
        *self.orphan_job.get_or_insert_with(|| {
            self.jobs.push(Job { name: "jobs without a recorded start".into(), ..Job::default() });
            self.jobs.len() - 1
        })
    }

    fn stage_of(&mut self, id: u64, attempt: u64) -> u32 {
        if let Some((last, ix)) = self.last_stage
            && last == (id, attempt)
        {
            return ix;
        }
        let known = self.stage_by_id.get(&(id, attempt)).copied();
        let ix = known.unwrap_or_else(|| {
            let job = self.job_of(id);
            let ix = self.stages.len() as u32;
            self.stages.push(Stage { id, attempt, job, name: format!("stage {id}"), ..Stage::default() });
            self.stage_by_id.insert((id, attempt), ix);
            ix
        });
        self.last_stage = Some(((id, attempt), ix));
        ix
    }

    fn stage(&mut self, info: StageInfo, completed: bool) {
        let Some(id) = info.id else {
            self.warnings.no_id += 1;
            return;
        };
        let ix = self.stage_of(id, info.attempt.unwrap_or(0)) as usize;
        let execution = self.jobs[self.stages[ix].job].execution;
        let execution =
            execution.and_then(|id| self.execution_by_id.get(&id)).map(|ix| &self.executions[*ix]);
        let distrust = execution.is_some_and(|execution| execution.local_parquet) && self.reads_vectored();
        let operators =
            self.plans.operators_of(info.accumulators.iter().map(|(accumulator, _)| *accumulator));
        let (action, place) = text::action_and_place(&info.name);
        let place =
            place.filter(|place| !text::is_internal(place)).or_else(|| text::user_frame(&info.details));
        let of_query = || {
            let (_, place) = text::action_and_place(&execution?.name);
            place.filter(|place| !text::is_internal(place))
        };
        let call_site = place.or_else(of_query).map(str::to_owned);
        for &(accumulator, total) in &info.accumulators {
            let Some((execution, total)) = self.plans.execution_of(accumulator).zip(total) else { continue };
            self.query_operators.counted(execution, accumulator, total, Some(ix as u32));
        }
        self.kept.item(info.name.len() + size_of_val(&info.parents[..]));
        let stage = &mut self.stages[ix];
        stage.distrust_input |= distrust;
        stage.name = action.to_owned();
        stage.operators = operators.or(stage.operators.take());
        stage.call_site = call_site.or(stage.call_site.take());
        stage.parents = info.parents;
        stage.rdd = info.rdd.or(stage.rdd);
        stage.tasks = info.tasks.or(stage.tasks);
        stage.submitted_ms = info.submitted_ms.or(stage.submitted_ms);
        if completed {
            let error = info.failure.filter(|why| !why.is_empty());
            let error = error.map(|why| text::first_line_clipped(&why));
            stage.end = Some(EndEvent { id: None, at_ms: info.completed_ms, failed: error.is_some(), error });
        }
    }

    /// Returns whether this Spark uses vectored reads for Parquet. It does not count their bytes on a local
    /// file system.
    fn reads_vectored(&self) -> bool {
        let set = self.settings.get("spark.hadoop.parquet.hadoop.vectored.io.enabled");
        let major = self.version.as_deref().and_then(|version| version.split('.').next());
        let by_default = major.and_then(|major| major.parse::<u32>().ok()).is_some_and(|major| major >= 4);
        set.map_or(by_default, |set| set == "true")
    }

    fn execution(&mut self, execution: Execution<'_>, starts: bool) {
        let Some(id) = execution.id else {
            self.warnings.no_id += 1;
            return;
        };
        let plan = execution.plan;
        let local_parquet = plan.local_parquet;
        self.warnings.deep_plans += u64::from(plan.too_deep);
        self.plans.add(id, &plan.root);
        self.query_operators.plan(id, plan.text, execution.at_ms);
        if starts {
            self.add_settings(execution.sql_settings);
            self.execution_by_id.insert(id, self.executions.len());
            self.executions.push(SqlExecution {
                id,
                name: self.kept.name(execution.description, &mut self.warnings),
                root: execution.root.filter(|root| *root != id),
                submitted_ms: execution.at_ms,
                local_parquet,
                end: None,
            });
        } else if let Some(ix) = self.execution_by_id.get(&id) {
            self.executions[*ix].local_parquet |= local_parquet;
        }
    }

    fn execution_end(&mut self, end: EndEvent) {
        let Some(id) = end.id else { return };
        self.plans.ended(id);
        self.query_operators.ended(id, end.at_ms);
        if let Some(ix) = self.execution_by_id.get(&id) {
            let error = end.error.map(|error| text::first_line_clipped(&error));
            self.executions[*ix].end = Some(EndEvent { error, ..end });
        }
    }

    fn driver_metrics(&mut self, metrics: DriverMetrics) {
        let Some(id) = metrics.id else {
            self.warnings.no_id += 1;
            return;
        };
        metrics.values.into_iter().for_each(|(accumulator, value)| {
            self.query_operators.counted(id, accumulator, value, None);
        });
    }

    fn task_end(&mut self, mut ended: TaskEnd<'_>) {
        let Some(stage_id) = ended.stage else {
            self.warnings.no_id += 1;
            return;
        };
        let stage = self.stage_of(stage_id, ended.stage_attempt.unwrap_or(0));
        let executor = self.executor_of(ended.executor);
        if self.executors[executor as usize].host.is_none() && !ended.host.is_empty() {
            self.executors[executor as usize].host = Some(unescaped(ended.host).into_owned());
        }
        let cores = &mut self.executors[executor as usize].machine_cores;
        *cores = ended.accumulated.plugin.cores().max(*cores);
        let known = &mut self.stages[stage as usize];
        if ended.launched_ms.or(ended.finished_ms).is_none() {
            ended.launched_ms = known.submitted_ms.or(self.latest_ms);
        }
        self.latest_ms = ended.finished_ms.or(self.latest_ms);
        let (mut task, contradictions) = measured(&mut ended);
        let launched_ms = task.launched_ns / ns(1);
        known.first_launch_ms =
            Some(known.first_launch_ms.map_or(launched_ms, |first| first.min(launched_ms)));
        if known.distrust_input && task.input_bytes.is_some() && !ended.accumulated.plugin.counted_input() {
            task.input_bytes = None;
            self.warnings.distrusted_inputs += 1;
        }
        (task.stage, task.resource) = (stage, executor);
        self.concurrencies.ended(&task, &ended.accumulated.plugin);
        self.warnings.add_contradictions(contradictions);
        self.kept.task();
        self.tasks.push(&task);
    }
}
