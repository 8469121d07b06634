//! A complete trace in memory: entities by index, events by kind.
//!
//! Analyses read this type. It holds every record: about a hundred bytes per
//! monotask, and half as much per pipelined task. A trace of ten million events
//! takes a gigabyte; [`Reader`](crate::Reader) streams records instead.

use crate::error::TraceError;
use crate::packed::PipelinedTasks;
use crate::record::*;

/// A complete trace in memory. An entity's index is its position in its vector.
/// Events are in file order, which is not chronological.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trace {
    /// First record; `None` only until it is pushed.
    pub header: Option<Header>,
    /// Machines by [`MachineIx`].
    pub machines: Vec<Machine>,
    /// Resources by [`ResourceIx`].
    pub resources: Vec<Resource>,
    /// The program that submitted the jobs, if recorded.
    pub application: Option<Application>,
    /// Queries by [`QueryIx`].
    pub queries: Vec<Query>,
    /// Jobs by [`JobIx`].
    pub jobs: Vec<Job>,
    /// Stages by [`StageIx`].
    pub stages: Vec<Stage>,
    /// Multitasks by [`MultitaskIx`].
    pub multitasks: Vec<Multitask>,
    /// Monotasks.
    pub monotasks: Vec<Monotask>,
    /// Work of operators.
    pub operators: Vec<Operator>,
    /// Operators of queries, with their engine's own metrics.
    pub query_operators: Vec<QueryOperator>,
    /// Sampled call stacks.
    pub stacks: Vec<Stack>,
    /// Pipelined tasks, packed for sequential reads.
    pub pipelined_tasks: PipelinedTasks,
    /// Sampled tasks.
    pub sampled_tasks: Vec<SampledTask>,
    /// Data sent between workers.
    pub exchanges: Vec<Exchange>,
    /// Storage operations.
    pub storage_operations: Vec<StorageOperation>,
    /// Utilisation samples.
    pub utilization_samples: Vec<UtilizationSample>,
    /// Changes of resources' concurrency.
    pub concurrency_changes: Vec<ConcurrencyChange>,
    /// Ends of stages.
    pub stage_ends: Vec<StageEnd>,
    /// Ends of jobs.
    pub job_ends: Vec<JobEnd>,
    /// Ends of queries.
    pub query_ends: Vec<QueryEnd>,
    /// Last record; `None` if the trace is incomplete.
    pub end: Option<End>,
    /// Cause of an incomplete trace (`cut after block 12, record 48000, of 1000 bytes`); `None` if complete.
    pub truncated: Option<String>,
    /// Messages about skipped or unusual records.
    pub warnings: Vec<String>,
    /// Bytes of the file that were read or written; 0 if the trace was never a file.
    pub bytes: u64,
}

impl Trace {
    /// Adds a record.
    ///
    /// # Errors
    /// Returns [`TraceError::Invalid`], and leaves the trace unchanged, if the record
    /// refers to an unregistered entity, is a second header, or follows the end.
    pub fn push(&mut self, record: Record) -> Result<(), TraceError> {
        self.admits(&record)?;
        match record {
            Record::Header(r) => self.header = Some(r),
            Record::Machine(r) => self.machines.push(r),
            Record::Resource(r) => self.resources.push(r),
            Record::Query(r) => self.queries.push(r),
            Record::Job(r) => self.jobs.push(r),
            Record::Stage(r) => self.stages.push(r),
            Record::Multitask(r) => self.multitasks.push(r),
            Record::Monotask(r) => self.monotasks.push(r),
            Record::Operator(r) => self.operators.push(r),
            Record::QueryOperator(r) => self.query_operators.push(r),
            Record::Stack(r) => self.stacks.push(r),
            Record::PipelinedTask(r) => self.pipelined_tasks.push(&r),
            Record::SampledTask(r) => self.sampled_tasks.push(r),
            Record::Exchange(r) => self.exchanges.push(r),
            Record::StorageOperation(r) => self.storage_operations.push(r),
            Record::UtilizationSample(r) => self.utilization_samples.push(r),
            Record::ConcurrencyChange(r) => self.concurrency_changes.push(r),
            Record::StageEnd(r) => self.stage_ends.push(r),
            Record::JobEnd(r) => self.job_ends.push(r),
            Record::QueryEnd(r) => self.query_ends.push(r),
            Record::Application(r) => self.application = Some(*r),
            Record::End(r) => self.end = Some(r),
        }
        Ok(())
    }

    /// Returns the number of records including the header and excluding the end, as in [`End::records`].
    pub fn records(&self) -> u64 {
        let lengths = [
            usize::from(self.header.is_some()),
            self.machines.len(),
            self.resources.len(),
            usize::from(self.application.is_some()),
            self.queries.len(),
            self.jobs.len(),
            self.stages.len(),
            self.multitasks.len(),
            self.monotasks.len(),
            self.operators.len(),
            self.query_operators.len(),
            self.stacks.len(),
            self.pipelined_tasks.len(),
            self.sampled_tasks.len(),
            self.exchanges.len(),
            self.storage_operations.len(),
            self.utilization_samples.len(),
            self.concurrency_changes.len(),
            self.stage_ends.len(),
            self.job_ends.len(),
            self.query_ends.len(),
        ];
        lengths.iter().map(|n| *n as u64).sum()
    }

    fn admits(&self, record: &Record) -> Result<(), TraceError> {
        if self.end.is_some() {
            return invalid("record after the end".into());
        }
        let registered = Registered {
            machines: self.machines.len(),
            resources: self.resources.len(),
            queries: self.queries.len(),
            jobs: self.jobs.len(),
            stages: self.stages.len(),
            multitasks: self.multitasks.len(),
        };
        match record {
            Record::Header(_) if self.header.is_some() => {
                invalid("second header; the file may contain two traces".into())
            }
            Record::Application(_) if self.application.is_some() => {
                invalid("second application; the file may contain two traces".into())
            }
            _ => registered.admits(record),
        }
    }
}

/// The number of registered entities of each kind, for validating indices.
#[derive(Debug, Clone, Default)]
pub(crate) struct Registered {
    pub machines: usize,
    pub resources: usize,
    pub queries: usize,
    pub jobs: usize,
    pub stages: usize,
    pub multitasks: usize,
}

impl Registered {
    /// Checks that every index in `record` is registered.
    pub fn admits(&self, record: &Record) -> Result<(), TraceError> {
        match record {
            Record::Header(_) | Record::Machine(_) | Record::Application(_) | Record::End(_) => Ok(()),
            Record::Resource(r) => {
                known("machine", r.machine, self.machines)?;
                r.link.map_or(Ok(()), |link| known("resource", link, self.resources))
            }
            Record::Query(r) => r.root.map_or(Ok(()), |root| known("query", root, self.queries)),
            Record::Job(r) => r.query.map_or(Ok(()), |query| known("query", query, self.queries)),
            Record::Stage(r) => {
                known("job", r.job, self.jobs)?;
                r.after.iter().try_for_each(|after| known("stage", *after, self.stages))
            }
            Record::Multitask(r) => known("stage", r.stage, self.stages),
            Record::Monotask(r) => {
                known("multitask", r.multitask, self.multitasks)?;
                known("resource", r.resource, self.resources)
            }
            Record::Operator(r) => {
                known("stage", r.stage, self.stages)?;
                r.from.map_or(Ok(()), |from| known("stage", from, self.stages))
            }
            Record::QueryOperator(r) => {
                known("query", r.query, self.queries)?;
                r.stage.map_or(Ok(()), |stage| known("stage", stage, self.stages))
            }
            Record::Stack(r) => known("stage", r.stage, self.stages),
            Record::PipelinedTask(r) => {
                known("stage", r.stage, self.stages)?;
                known("resource", r.resource, self.resources)
            }
            Record::SampledTask(r) => {
                known("stage", r.stage, self.stages)?;
                known("resource", r.resource, self.resources)
            }
            Record::Exchange(r) => {
                known("stage", r.stage, self.stages)?;
                known("resource", r.resource, self.resources)
            }
            Record::StorageOperation(r) => known("resource", r.resource, self.resources),
            Record::UtilizationSample(r) => known("resource", r.resource, self.resources),
            Record::ConcurrencyChange(r) => {
                known("resource", r.resource, self.resources)?;
                known("stage", r.stage, self.stages)
            }
            Record::StageEnd(r) => known("stage", r.stage, self.stages),
            Record::JobEnd(r) => {
                known("job", r.job, self.jobs)?;
                let Some(peak) = &r.peak else { return Ok(()) };
                known("stage", peak.stage, self.stages)?;
                peak.held_by.iter().try_for_each(|held| known("stage", held.stage, self.stages))
            }
            Record::QueryEnd(r) => known("query", r.query, self.queries),
        }
    }

    /// Counts `record` and returns its index if it registers an entity; otherwise returns 0.
    pub fn count(&mut self, record: &Record) -> u32 {
        let registered = match record {
            Record::Machine(_) => &mut self.machines,
            Record::Resource(_) => &mut self.resources,
            Record::Query(_) => &mut self.queries,
            Record::Job(_) => &mut self.jobs,
            Record::Stage(_) => &mut self.stages,
            Record::Multitask(_) => &mut self.multitasks,
            _ => return 0,
        };
        *registered += 1;
        (*registered - 1) as u32
    }
}

fn known(what: &str, index: u32, registered: usize) -> Result<(), TraceError> {
    if (index as usize) < registered {
        return Ok(());
    }
    invalid(format!("{what} {index} is not registered (the trace has {registered})"))
}

fn invalid(why: String) -> Result<(), TraceError> {
    Err(TraceError::Invalid { why })
}

/// Returns the total length of the union of intervals, given by their starts and ends in nanoseconds.
pub fn union_ns(mut intervals: Vec<(u64, u64)>) -> u64 {
    intervals.sort_unstable();
    let (mut total, mut reached) = (0, 0);
    for (start, end) in intervals {
        total += end.saturating_sub(start.max(reached));
        reached = reached.max(end);
    }
    total
}
