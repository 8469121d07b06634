//! The state of one application's log while its events are read.
//!
//! [`Log`] takes lines and keeps what a trace needs: the application, executors, jobs, stages and SQL
//! executions, and tasks in packed form. References are resolved as far as the order of the log allows.
//! Times remain Unix times until [`Log::finish`] determines the origin.
//!
//! Real logs violate their own format: tasks end after their stage, stages appear without their job, events
//! are truncated. A referenced but unknown item is therefore created with the data at hand, and
//! inconsistencies are counted and reported once.

pub mod build;
pub mod kept;
pub mod plan;
pub mod redact;
pub mod warnings;

use std::collections::{BTreeMap, HashMap};

use pellucid_trace::{PipelinedTasks, Trace};

use crate::event::plugin::ConcurrencyHistory;
use crate::event::task::{self, TaskEnd, ns};
use crate::event::{self, ApplicationStart, EndEvent, Execution, ExecutorEvent, StageInfo};
use crate::json::{Malformed, Scanner};
use crate::log::kept::Kept;
use crate::log::plan::Plans;
use crate::log::warnings::Warnings;
use crate::text;

/// Maximum number of event names that are counted separately.
const MAX_NAMES: usize = 300;
/// Maximum number of settings.
const MAX_SETTINGS: usize = 10_000;
/// Maximum length of a setting's value.
const MAX_SETTING_CHARS: usize = 1000;

/// The contents of a log so far.
#[derive(Debug, Default)]
pub struct Log {
    pub(crate) start: ApplicationStart,
    pub(crate) ended_ms: Option<u64>,
    pub(crate) version: Option<String>,
    pub(crate) databricks: bool,
    pub(crate) settings: BTreeMap<String, String>,
    pub(crate) events: HashMap<Vec<u8>, u64>,
    pub(crate) executors: Vec<Executor>,
    executor_by_id: HashMap<Vec<u8>, u32>,
    /// Cores for each task, by resource profile.
    pub(crate) profiles: HashMap<u64, f64>,
    pub(crate) jobs: Vec<Job>,
    job_by_id: HashMap<u64, usize>,
    /// Jobs that have not ended, with their stages.
    active: Vec<(usize, Vec<u64>)>,
    /// The job that collects all stages whose job has no recorded start.
    orphan_job: Option<usize>,
    pub(crate) stages: Vec<Stage>,
    stage_by_id: HashMap<(u64, u64), u32>,
    /// The RDD of each planned stage, whether the stage ran or its output already existed.
    pub(crate) rdd_of_stage: HashMap<u64, u64>,
    /// The stage of the last task, cached since consecutive tasks usually share a stage.
    last_stage: Option<((u64, u64), u32)>,
    pub(crate) executions: Vec<SqlExecution>,
    execution_by_id: HashMap<u64, usize>,
    plans: Plans,
    pub(crate) tasks: PipelinedTasks,
    pub(crate) concurrencies: ConcurrencyHistory,
    /// End of the last task, used for tasks without times.
    latest_ms: Option<u64>,
    kept: Kept,
    pub(crate) warnings: Warnings,
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
    /// Reads a line. `number` is its number in the file, for warnings.
    pub fn line(&mut self, line: &[u8], number: u64) {
        if line.trim_ascii().is_empty() {
            return;
        }
        if let Err(error) = self.event(line) {
            self.warnings.malformed(number, error.offset, line.len());
        }
    }

    /// Reads the last line, which has no terminator. Returns false if the line is truncated.
    pub fn last_line(&mut self, line: &[u8]) -> bool {
        line.trim_ascii().is_empty() || self.event(line).is_ok()
    }

    /// Returns whether the log contains any Spark event.
    pub fn is_event_log(&self) -> bool {
        self.task_ends > 0 || self.task_starts > 0 || self.events.keys().any(|name| event::is_spark(name))
    }

    /// Returns the estimated memory of the contents.
    pub fn memory_bytes(&self) -> u64 {
        (self.kept.bytes() + self.plans.memory_bytes()) as u64
    }

    /// Converts the log to a trace.
    pub fn finish(mut self) -> Trace {
        for (name, count) in
            [("SparkListenerTaskEnd", self.task_ends), ("SparkListenerTaskStart", self.task_starts)]
        {
            if count > 0 {
                self.events.insert(name.into(), count);
            }
        }
        build::trace(self)
    }

    /// Reads an event. On failure, the log is unchanged.
    fn event(&mut self, line: &[u8]) -> Result<(), Malformed> {
        let Some(name) = event::name(line)? else {
            self.warnings.no_event += 1;
            return Ok(());
        };
        let mut scanner = Scanner::new(line);
        let short = event::short(&name);
        match short {
            b"SparkListenerTaskEnd" => {
                let task = task::task_end(&mut scanner)?;
                whole(&mut scanner)?;
                self.task_ends += 1;
                self.task_end(task);
                return Ok(());
            }
            b"SparkListenerTaskStart" => {
                scanner.skip()?;
                whole(&mut scanner)?;
                self.task_starts += 1;
                return Ok(());
            }
            _ => self.other_event(short, &mut scanner)?,
        }
        if let Some(count) = self.events.get_mut(short) {
            *count += 1;
        } else if self.events.len() < MAX_NAMES {
            self.kept.item(short.len());
            self.events.insert(short.to_vec(), 1);
        } else {
            *self.events.entry(b"other".to_vec()).or_default() += 1;
        }
        Ok(())
    }

    /// Reads any event but those of tasks.
    fn other_event(&mut self, name: &[u8], scanner: &mut Scanner<'_>) -> Result<(), Malformed> {
        match name {
            b"SparkListenerLogStart" => {
                self.version = event::field(scanner, b"Spark Version")?.or(self.version.take())
            }
            b"DBCEventLoggingListenerMetadata" => {
                self.databricks = true;
                self.version = event::field(scanner, b"Spark Version")?.or(self.version.take());
            }
            b"SparkListenerApplicationStart" => {
                let start = event::application_start(scanner)?;
                whole(scanner)?;
                self.application_start(start);
            }
            b"SparkListenerApplicationEnd" => self.ended_ms = event::timestamp(scanner)?.or(self.ended_ms),
            b"SparkListenerEnvironmentUpdate" => {
                let mut found = Vec::new();
                event::environment(scanner, |key, value| found.push((key, value)))?;
                self.add_settings(found);
            }
            b"SparkListenerResourceProfileAdded" => {
                if let (Some(id), Some(cpus)) = event::resource_profile(scanner)? {
                    self.profiles.insert(id, cpus);
                }
            }
            b"SparkListenerExecutorAdded" | b"SparkListenerBlockManagerAdded" => {
                let event = event::executor(scanner)?;
                whole(scanner)?;
                self.executor_added(event, name == b"SparkListenerExecutorAdded");
            }
            b"SparkListenerExecutorRemoved" | b"SparkListenerBlockManagerRemoved" => {
                let event = event::executor(scanner)?;
                whole(scanner)?;
                self.executor_removed(event);
            }
            b"SparkListenerJobStart" => {
                let job = event::job_start(scanner)?;
                whole(scanner)?;
                self.job_start(job);
            }
            b"SparkListenerJobEnd" => {
                let end = event::job_end(scanner)?;
                whole(scanner)?;
                self.job_end(end);
            }
            b"SparkListenerStageSubmitted" | b"SparkListenerStageCompleted" => {
                let stage = event::stage(scanner)?;
                whole(scanner)?;
                self.stage(stage, name == b"SparkListenerStageCompleted");
            }
            b"SparkListenerSQLExecutionStart" | b"SparkListenerSQLAdaptiveExecutionUpdate" => {
                let execution = event::execution(scanner)?;
                whole(scanner)?;
                self.execution(execution, name == b"SparkListenerSQLExecutionStart")?;
            }
            b"SparkListenerSQLExecutionEnd" => {
                let end = event::execution_end(scanner)?;
                whole(scanner)?;
                self.execution_end(end);
            }
            _ => {
                scanner.skip()?;
                whole(scanner)?;
            }
        }
        Ok(())
    }

    fn application_start(&mut self, start: ApplicationStart) {
        if self.start.at_ms.is_some() && self.start.id != start.id {
            self.warnings.add("the log contains several applications; they are read as one");
        } else {
            self.start = start;
        }
    }

    fn add_settings(&mut self, settings: Vec<(String, String)>) {
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
        let id = crate::json::unescaped(id).trim_matches(['<', '>']).to_owned();
        self.executors.push(Executor { id, ..Executor::default() });
        ix
    }

    fn executor_added(&mut self, event: ExecutorEvent, itself: bool) {
        // The driver's own block manager runs no tasks.
        if !itself && matches!(&event.id[..], b"driver" | b"<driver>") {
            return;
        }
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

    fn job_start(&mut self, job: event::JobStart) {
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
        let operators = self.plans.operators_of(info.accumulators.iter().copied());
        let (action, place) = text::action_and_place(&info.name);
        let place =
            place.filter(|place| !text::is_internal(place)).or_else(|| text::user_frame(&info.details));
        let of_query = || {
            let (_, place) = text::action_and_place(&execution?.name);
            place.filter(|place| !text::is_internal(place))
        };
        let call_site = place.or_else(of_query).map(str::to_owned);
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

    fn execution(&mut self, execution: Execution<'_>, starts: bool) -> Result<(), Malformed> {
        let Some(id) = execution.id else {
            self.warnings.no_id += 1;
            return Ok(());
        };
        let facts = execution.plan.map(|plan| self.plans.read(id, plan)).transpose()?.unwrap_or_default();
        if facts.too_deep {
            self.warnings.deep_plans += 1;
        }
        if starts {
            self.add_settings(execution.sql_settings);
            self.execution_by_id.insert(id, self.executions.len());
            self.executions.push(SqlExecution {
                id,
                name: self.kept.name(execution.description, &mut self.warnings),
                root: execution.root.filter(|root| *root != id),
                submitted_ms: execution.at_ms,
                local_parquet: facts.local_parquet,
                end: None,
            });
        } else if let Some(ix) = self.execution_by_id.get(&id) {
            self.executions[*ix].local_parquet |= facts.local_parquet;
        }
        Ok(())
    }

    fn execution_end(&mut self, end: EndEvent) {
        let Some(id) = end.id else { return };
        self.plans.ended(id);
        if let Some(ix) = self.execution_by_id.get(&id) {
            let error = end.error.map(|error| text::first_line_clipped(&error));
            self.executions[*ix].end = Some(EndEvent { error, ..end });
        }
    }

    fn task_end(&mut self, mut ended: TaskEnd<'_>) {
        let Some(stage_id) = ended.stage else {
            self.warnings.no_id += 1;
            return;
        };
        let stage = self.stage_of(stage_id, ended.stage_attempt.unwrap_or(0));
        let executor = self.executor_of(ended.executor);
        if self.executors[executor as usize].host.is_none() && !ended.host.is_empty() {
            self.executors[executor as usize].host = Some(crate::json::unescaped(ended.host).into_owned());
        }
        let cores = &mut self.executors[executor as usize].machine_cores;
        *cores = ended.plugin().cores().max(*cores);
        let known = &mut self.stages[stage as usize];
        if ended.launched_ms.or(ended.finished_ms).is_none() {
            ended.launched_ms = known.submitted_ms.or(self.latest_ms);
        }
        self.latest_ms = ended.finished_ms.or(self.latest_ms);
        let (mut task, contradictions) = ended.measured();
        let launched_ms = task.launched_ns / ns(1);
        known.first_launch_ms =
            Some(known.first_launch_ms.map_or(launched_ms, |first| first.min(launched_ms)));
        if known.distrust_input && task.input_bytes.is_some() && !ended.plugin().counted_input() {
            task.input_bytes = None;
            self.warnings.distrusted_inputs += 1;
        }
        (task.stage, task.resource) = (stage, executor);
        self.concurrencies.ended(&task, ended.plugin());
        self.warnings.add_contradictions(contradictions);
        self.kept.task();
        self.tasks.push(&task);
    }
}

/// Checks that nothing follows the object.
fn whole(scanner: &mut Scanner<'_>) -> Result<(), Malformed> {
    let offset = scanner.offset();
    if scanner.at_end() { Ok(()) } else { Err(Malformed { offset }) }
}
