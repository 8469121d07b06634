//! A whole trace in memory: entities by index, events by kind.
//!
//! This is what analyses take. It holds every record: about a hundred bytes a
//! monotask, half as much a pipelined task. A trace of ten million events needs
//! a gigabyte; whoever needs less of it streams with [`Reader`](crate::Reader).

use std::io::Read;
use std::path::Path;

use crate::TraceError;
use crate::packed::PipelinedTasks;
use crate::reader::Reader;
use crate::record::*;

/// A whole trace in memory. An entity's index is its place in its vector; events
/// are in the order of the file, which is not the order of time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trace {
    /// First record; `None` only before it was pushed.
    pub header: Option<Header>,
    /// Machines by [`MachineIx`].
    pub machines: Vec<Machine>,
    /// Resources by [`ResourceIx`].
    pub resources: Vec<Resource>,
    /// The program that the jobs belong to, where there is one.
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
    /// Pipelined tasks, packed; read in order.
    pub pipelined_tasks: PipelinedTasks,
    /// Sampled tasks.
    pub sampled_tasks: Vec<SampledTask>,
    /// What workers sent to each other.
    pub exchanges: Vec<Exchange>,
    /// Storage operations.
    pub storage_operations: Vec<StorageOperation>,
    /// Utilisation samples.
    pub utilization_samples: Vec<UtilizationSample>,
    /// Changes of how much a resource runs at once.
    pub concurrency_changes: Vec<ConcurrencyChange>,
    /// Ends of stages.
    pub stage_ends: Vec<StageEnd>,
    /// Ends of jobs.
    pub job_ends: Vec<JobEnd>,
    /// Ends of queries.
    pub query_ends: Vec<QueryEnd>,
    /// Last record; `None` when the trace is not whole.
    pub end: Option<End>,
    /// Why the trace is not whole (`cut in block 12, after record 48000`); `None`: whole.
    pub truncated: Option<String>,
    /// What the reader skipped or found odd, in words.
    pub warnings: Vec<String>,
    /// Bytes of the file that were read or written; 0 for a trace that was never a file.
    pub bytes: u64,
}

impl Trace {
    /// Reads the file at `path`; one that is cut is read as far as it is whole.
    ///
    /// # Errors
    /// When it cannot be read, is no trace, has a newer major version, or holds a malformed line.
    pub fn read(path: &Path) -> Result<Trace, TraceError> {
        Trace::collect(Reader::open(path)?)
    }

    /// As [`Trace::read`], from anything.
    ///
    /// # Errors
    /// As [`Trace::read`].
    pub fn from_reader(reader: impl Read + Send) -> Result<Trace, TraceError> {
        Trace::collect(Reader::new(reader)?)
    }

    fn collect<R: Read + Send>(mut reader: Reader<R>) -> Result<Trace, TraceError> {
        let mut trace = Trace::default();
        while let Some(record) = reader.next() {
            trace.push(record?).map_err(|e| reader.malformed(e))?;
        }
        trace.truncated = reader.truncated().map(str::to_owned);
        trace.warnings.extend_from_slice(reader.warnings());
        trace.bytes = reader.bytes();
        Ok(trace)
    }

    /// Adds a record.
    ///
    /// # Errors
    /// [`TraceError::Invalid`] when it refers to what was not registered, is a
    /// second header, or follows the end. The trace is as before then.
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

    /// Records so far, the header included, the end not: what [`End::records`] says.
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
            return invalid("a record after the end".into());
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
                invalid("a second header; two traces in one file?".into())
            }
            Record::Application(_) if self.application.is_some() => {
                invalid("a second application; two traces in one file?".into())
            }
            _ => registered.admits(record),
        }
    }
}

/// How many entities of each kind were registered: all that it takes to tell
/// whether a record's indices are valid.
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
    /// Whether every index in `record` was registered before it.
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
            Record::JobEnd(r) => known("job", r.job, self.jobs),
            Record::QueryEnd(r) => known("query", r.query, self.queries),
        }
    }

    /// Counts `record` and returns its index, if it registers an entity; else 0.
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
    invalid(format!("{what} {index} is not registered ({registered} are)"))
}

fn invalid(why: String) -> Result<(), TraceError> {
    Err(TraceError::Invalid { why })
}

/// Total length of the union of intervals: their beginnings and ends, in nanoseconds.
pub fn union_ns(mut intervals: Vec<(u64, u64)>) -> u64 {
    intervals.sort_unstable();
    let (mut total, mut reached) = (0, 0);
    for (start, end) in intervals {
        total += end.saturating_sub(start.max(reached));
        reached = reached.max(end);
    }
    total
}
