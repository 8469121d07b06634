//! Demands: the amount, resource and time of each monotask's work.
//!
//! The rest of this crate sums demands. Two rules are applied here:
//!
//! * **Units.** `cpu` and `slots` are measured in service time, all other kinds in bytes. For cores under
//!   a quota it is core time, since a monotask's service there includes the time for which the kernel
//!   throttled its thread. Of a monotask's two byte counts the kernel's (`device_bytes`) takes
//!   precedence, since it is what the device did. A resource for which the kernel counted no bytes at all
//!   (some network and overlay file systems) is not counted by it, so the requested bytes are used. The
//!   bytes of a failed monotask are unknown without the kernel's count, and are left out.
//! * **Links.** A store's bytes cross its link, so a monotask on a store is a demand on the link too. The
//!   two cannot be separated if the link carries only one store and its capacity was neither set nor
//!   probed: such a link is *opaque* and is left out of every maximum.

use std::collections::BTreeSet;
use std::ops::Range;

use pellucid_trace::{JobEnd, Monotask, Phase, Resource, StageEnd, Trace, kind};

use crate::index::{Ix, JobIx, MonotaskIx, ResourceIx, StageIx, Table};

/// A demand on one resource, spread evenly over its service time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Demand {
    pub stage: StageIx,
    pub resource: ResourceIx,
    pub monotask: MonotaskIx,
    /// False for the demand of a store's bytes on the link that they cross.
    pub own: bool,
    pub start_ns: u64,
    pub end_ns: u64,
    /// Service time in nanoseconds (core time under a quota), or bytes: see [`in_time`].
    pub amount: f64,
    /// True if any resource of its kind could have served it.
    pub movable: bool,
}

impl Demand {
    /// Returns the part of the demand between two times. A demand without service time counts fully, so
    /// the caller must ask for it only once.
    pub fn within(&self, from_ns: u64, to_ns: u64) -> f64 {
        let service = self.end_ns - self.start_ns;
        if service == 0 {
            return self.amount;
        }
        let start = self.start_ns.max(from_ns);
        let end = self.end_ns.min(to_ns);
        self.amount * end.saturating_sub(start) as f64 / service as f64
    }
}

/// All demands of a trace; those of a stage are contiguous.
#[derive(Debug, Default)]
pub(crate) struct Demands<'a> {
    monotasks: &'a [Monotask],
    pub all: Vec<Demand>,
    stages: Table<StageIx, Range<usize>>,
    /// The stages of each job. They are indexed, as are the ends, because a stream may have thousands of
    /// jobs.
    stages_of: Table<JobIx, Vec<StageIx>>,
    job_ends: Table<JobIx, Option<&'a JobEnd>>,
    stage_ends: Table<StageIx, Option<&'a StageEnd>>,
    /// Number of monotasks that refer to missing records.
    pub skipped: u64,
    /// True if the bytes of some monotask are unknown.
    pub unmeasured: Table<ResourceIx, bool>,
    /// True for a link that cannot be separated from its only store, or with nothing but byte counts.
    pub opaque: Table<ResourceIx, bool>,
    /// True if measured in service time.
    pub timed: Table<ResourceIx, bool>,
    /// True for the cores of a machine.
    cores: Table<ResourceIx, bool>,
    /// Resources and directions (true: in) that the kernel counts.
    counted: BTreeSet<(ResourceIx, bool)>,
}

/// Returns true for kinds whose capacity is a number of slots, not a rate.
pub(crate) fn in_time(kind: &str) -> bool {
    matches!(kind, kind::CPU | kind::SLOTS)
}

/// Returns true for cores under a quota.
pub(crate) fn under_quota(on: &Resource) -> bool {
    on.kind == kind::CPU && on.capacity_from.as_deref() == Some("quota")
}

/// Returns the core time of a monotask on cores under a quota; `None` on others, or if it was not
/// measured.
pub(crate) fn core_time(on: &Resource, m: &Monotask) -> Option<f64> {
    m.cpu_ns.filter(|_| under_quota(on)).map(|ns| ns as f64)
}

/// Returns the start and end of a monotask's service.
pub(crate) fn service(m: &Monotask) -> (u64, u64) {
    let start = m.queued_ns.saturating_add(m.queue_ns);
    (start, start.saturating_add(m.service_ns))
}

/// Returns true for phases that bring bytes in.
pub(crate) fn brings_in(phase: Phase) -> bool {
    matches!(phase, Phase::Read | Phase::Fetch)
}

impl<'a> Demands<'a> {
    /// Reads all demands of a trace.
    pub fn of(trace: &'a Trace) -> Self {
        let resources = trace.resources.len();
        let mut demands = Demands {
            monotasks: &trace.monotasks,
            unmeasured: Table::filled(resources, false),
            opaque: opaque(trace),
            timed: trace.resources.iter().map(|r| in_time(&r.kind)).collect(),
            cores: trace.resources.iter().map(|r| r.kind == kind::CPU).collect(),
            stages_of: Table::filled(trace.jobs.len(), Vec::new()),
            job_ends: Table::filled(trace.jobs.len(), None),
            stage_ends: Table::filled(trace.stages.len(), None),
            ..Demands::default()
        };
        for (ix, stage) in (0..).map(StageIx).zip(&trace.stages) {
            demands.stages_of.get_mut(JobIx(stage.job)).into_iter().for_each(|of_job| of_job.push(ix));
        }
        // The first of several ends counts.
        for end in trace.job_ends.iter().rev() {
            demands.job_ends.get_mut(JobIx(end.job)).into_iter().for_each(|of_job| *of_job = Some(end));
        }
        for end in trace.stage_ends.iter().rev() {
            let of_stage = demands.stage_ends.get_mut(StageIx(end.stage));
            of_stage.into_iter().for_each(|of_stage| *of_stage = Some(end));
        }
        demands.counted = counted(trace);
        for (ix, monotask) in (0..).map(MonotaskIx).zip(&trace.monotasks) {
            if demands.add(trace, ix, monotask).is_none() {
                demands.skipped += 1;
            }
        }
        demands.all.sort_by_key(|d| (d.stage, d.start_ns));
        demands.stages = demands
            .stage_ends
            .indices()
            .map(|s| {
                let from = demands.all.partition_point(|d| d.stage < s);
                from..demands.all.partition_point(|d| d.stage <= s)
            })
            .collect();
        demands
    }

    fn add(&mut self, trace: &Trace, ix: MonotaskIx, m: &Monotask) -> Option<()> {
        let stage = StageIx(trace.multitasks.get(m.multitask as usize)?.stage);
        trace.jobs.get(trace.stages.get(stage.at())?.job as usize)?;
        let resource = ResourceIx(m.resource);
        let timed = *self.timed.get(resource)?;
        let (start_ns, end_ns) = service(m);
        let amount = if timed {
            core_time(&trace.resources[resource.at()], m).unwrap_or((end_ns - start_ns) as f64)
        } else {
            let bytes = self.bytes(m);
            self.unmeasured[resource] |= bytes.is_none();
            bytes.unwrap_or(0.0)
        };
        let movable = timed || m.phase == Phase::Spill;
        let demand = Demand { stage, resource, monotask: ix, own: true, start_ns, end_ns, amount, movable };
        let link = trace.resources[resource.at()].link.map(ResourceIx);
        let carries =
            |link: &ResourceIx| *link != resource && self.timed.get(*link) == Some(&false) && !timed;
        if let Some(link) = link.filter(carries) {
            self.unmeasured[link] |= self.unmeasured[resource];
            self.all.push(Demand { resource: link, own: false, ..demand.clone() });
        }
        self.all.push(demand);
        Some(())
    }

    /// Returns the bytes that a monotask moved; `None` if unknown.
    pub fn bytes(&self, m: &Monotask) -> Option<f64> {
        let counted = self.counted.contains(&(ResourceIx(m.resource), brings_in(m.phase)));
        moved(m, counted).map(|bytes| bytes as f64)
    }

    /// Returns the demands of one stage, by start.
    pub fn of_stage(&self, stage: StageIx) -> &[Demand] {
        self.stages.get(stage).map_or(&[], |range| &self.all[range.clone()])
    }

    /// Returns the monotask of a demand.
    pub fn monotask(&self, demand: &Demand) -> &'a Monotask {
        &self.monotasks[demand.monotask.at()]
    }

    /// Returns the demands of one job.
    pub fn of_job(&self, job: JobIx) -> impl Iterator<Item = &Demand> {
        self.stages_of(job).iter().flat_map(|stage| self.of_stage(*stage))
    }

    /// Returns the indices of a job's stages.
    pub fn stages_of(&self, job: JobIx) -> &[StageIx] {
        self.stages_of.get(job).map_or(&[], Vec::as_slice)
    }

    /// Returns a job's end, if it was recorded.
    pub fn job_end(&self, job: JobIx) -> Option<&'a JobEnd> {
        self.job_ends.get(job).copied().flatten()
    }

    /// Returns a stage's end, if it was recorded.
    pub fn stage_end(&self, stage: StageIx) -> Option<&'a StageEnd> {
        self.stage_ends.get(stage).copied().flatten()
    }

    /// Returns true if the demand is on the cores of a machine.
    pub fn on_cores(&self, demand: &Demand) -> bool {
        self.cores[demand.resource]
    }

    /// Returns the service time on cores.
    pub fn core_ns<'d>(&self, demands: impl IntoIterator<Item = &'d Demand>) -> f64 {
        let cores = demands.into_iter().filter(|d| self.cores[d.resource]);
        cores.map(|d| d.amount).sum()
    }
}

/// Returns the bytes that a monotask moved; `None` if unknown.
fn moved(m: &Monotask, counted: bool) -> Option<u64> {
    match m.device_bytes {
        Some(bytes) if counted => Some(bytes),
        _ if m.outcome.is_ok() => m.bytes,
        _ => Some(0),
    }
}

/// Returns the resources and directions for which the kernel counted at least one byte.
fn counted(trace: &Trace) -> BTreeSet<(ResourceIx, bool)> {
    let some = trace.monotasks.iter().filter(|m| m.device_bytes.is_some_and(|b| b > 0));
    some.map(|m| (ResourceIx(m.resource), brings_in(m.phase))).collect()
}

fn opaque(trace: &Trace) -> Table<ResourceIx, bool> {
    let used: BTreeSet<u32> = trace.monotasks.iter().map(|m| m.resource).collect();
    let mut stores: Table<ResourceIx, u32> = Table::filled(trace.resources.len(), 0);
    for (_, resource) in (0..).zip(&trace.resources).filter(|(ix, _)| used.contains(ix)) {
        if let Some(count) = resource.link.and_then(|link| stores.get_mut(ResourceIx(link))) {
            *count += 1;
        }
    }
    // For exchanges the bytes are known, but not the time of the transfer.
    let sent: BTreeSet<u32> = trace.exchanges.iter().map(|sent| sent.resource).collect();
    let is_opaque = |((ix, resource), stores): ((u32, &Resource), &u32)| {
        let known = resource.capacity.is_some() || used.contains(&ix);
        (*stores == 1 || sent.contains(&ix)) && !known
    };
    (0..).zip(&trace.resources).zip(&stores).map(is_opaque).collect()
}
