//! From records to demands: what each monotask asked of which resource, and when.
//!
//! Everything else in this crate adds up demands. Two rules are settled here once:
//!
//! * **What counts.** `cpu` and `slots` are measured in service time (cores under a quota
//!   in core time, since a monotask's service there holds the time for which the kernel stopped its
//!   thread), all other kinds in bytes. Of a monotask's two byte counts the kernel's
//!   (`device_bytes`) goes first, since it is what the device did; but a
//!   resource for which the kernel counted nothing at all (some network and
//!   overlay file systems) is not one that it counts, and there the bytes asked for
//!   stand. What a failed monotask moved is not known without the kernel's count,
//!   and is left out.
//! * **Links.** A store's bytes cross its link, so a monotask on a store is
//!   a demand on the link too. Nothing tells the two apart when the
//!   link carries one store only and its capacity was neither set nor probed:
//!   such a link is *opaque* and is left out of every maximum.

use std::collections::BTreeSet;
use std::ops::Range;

use pellucid_trace::{JobEnd, Monotask, Phase, Resource, StageEnd, Trace, kind};

/// A demand on one resource, spread evenly over its service time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Demand {
    pub stage: usize,
    pub resource: usize,
    /// Index of the monotask that it comes from.
    pub monotask: usize,
    /// False for a store's bytes on the link that they cross.
    pub own: bool,
    pub start_ns: u64,
    pub end_ns: u64,
    /// Service time in nanoseconds (core time under a quota), or bytes: see [`in_time`].
    pub amount: f64,
    /// It could have gone to any resource of its kind.
    pub movable: bool,
}

impl Demand {
    /// Part of the demand that falls between two times. One without service
    /// time falls wherever its start does; the caller sees to that it is asked once.
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

/// All demands of a trace, those of a stage next to each other.
#[derive(Debug, Default)]
pub(crate) struct Demands<'a> {
    monotasks: &'a [Monotask],
    pub all: Vec<Demand>,
    stages: Vec<Range<usize>>,
    /// By job: the indices of its stages, and its end. A stream has as many jobs as an hour has seconds, so
    /// nothing looks for them one by one.
    stages_of: Vec<Vec<usize>>,
    job_ends: Vec<Option<&'a JobEnd>>,
    stage_ends: Vec<Option<&'a StageEnd>>,
    /// Monotasks that refer to what the trace does not hold.
    pub skipped: u64,
    /// By resource: some monotask does not say its bytes, so its bytes are not known.
    pub unmeasured: Vec<bool>,
    /// By resource: a link that cannot be told from its only store, or of which only bytes are known.
    pub opaque: Vec<bool>,
    /// By resource: measured in service time.
    pub timed: Vec<bool>,
    /// By resource: the cores of a machine.
    cores: Vec<bool>,
    /// Resources and directions that the kernel counts.
    counted: BTreeSet<(usize, bool)>,
}

/// True for kinds whose capacity is a number of places, not a rate.
pub(crate) fn in_time(kind: &str) -> bool {
    matches!(kind, kind::CPU | kind::SLOTS)
}

/// True for cores that a quota limits.
pub(crate) fn under_quota(on: &Resource) -> bool {
    on.kind == kind::CPU && on.capacity_from.as_deref() == Some("quota")
}

/// Core time of a monotask on cores that a quota limits; `None` on others, and where it was not measured.
pub(crate) fn core_time(on: &Resource, m: &Monotask) -> Option<f64> {
    m.cpu_ns.filter(|_| under_quota(on)).map(|ns| ns as f64)
}

/// When a monotask's service began and ended.
pub(crate) fn service(m: &Monotask) -> (u64, u64) {
    let start = m.queued_ns.saturating_add(m.queue_ns);
    (start, start.saturating_add(m.service_ns))
}

/// True for phases that bring bytes in.
pub(crate) fn brings_in(phase: Phase) -> bool {
    matches!(phase, Phase::Read | Phase::Fetch)
}

impl<'a> Demands<'a> {
    /// Reads all demands out of a trace.
    pub fn of(trace: &'a Trace) -> Self {
        let resources = trace.resources.len();
        let mut demands = Demands {
            monotasks: &trace.monotasks,
            unmeasured: vec![false; resources],
            opaque: opaque(trace),
            timed: trace.resources.iter().map(|r| in_time(&r.kind)).collect(),
            cores: trace.resources.iter().map(|r| r.kind == kind::CPU).collect(),
            stages_of: vec![Vec::new(); trace.jobs.len()],
            job_ends: vec![None; trace.jobs.len()],
            stage_ends: vec![None; trace.stages.len()],
            ..Demands::default()
        };
        for (ix, stage) in trace.stages.iter().enumerate() {
            demands.stages_of.get_mut(stage.job as usize).into_iter().for_each(|of_job| of_job.push(ix));
        }
        // The first of several counts.
        for end in trace.job_ends.iter().rev() {
            demands.job_ends.get_mut(end.job as usize).into_iter().for_each(|of_job| *of_job = Some(end));
        }
        for end in trace.stage_ends.iter().rev() {
            let of_stage = demands.stage_ends.get_mut(end.stage as usize);
            of_stage.into_iter().for_each(|of_stage| *of_stage = Some(end));
        }
        demands.counted = counted(trace);
        for (ix, monotask) in trace.monotasks.iter().enumerate() {
            if demands.add(trace, ix, monotask).is_none() {
                demands.skipped += 1;
            }
        }
        demands.all.sort_by_key(|d| (d.stage, d.start_ns));
        demands.stages = (0..trace.stages.len())
            .map(|s| {
                let from = demands.all.partition_point(|d| d.stage < s);
                from..demands.all.partition_point(|d| d.stage <= s)
            })
            .collect();
        demands
    }

    fn add(&mut self, trace: &Trace, ix: usize, m: &Monotask) -> Option<()> {
        let stage = trace.multitasks.get(m.multitask as usize)?.stage as usize;
        trace.jobs.get(trace.stages.get(stage)?.job as usize)?;
        let resource = m.resource as usize;
        let timed = *self.timed.get(resource)?;
        let (start_ns, end_ns) = service(m);
        let amount = if timed {
            core_time(&trace.resources[resource], m).unwrap_or((end_ns - start_ns) as f64)
        } else {
            let bytes = self.bytes(m);
            self.unmeasured[resource] |= bytes.is_none();
            bytes.unwrap_or(0.0)
        };
        let movable = timed || m.phase == Phase::Spill;
        let demand = Demand { stage, resource, monotask: ix, own: true, start_ns, end_ns, amount, movable };
        let link = trace.resources[resource].link.map(|link| link as usize);
        if let Some(link) =
            link.filter(|l| *l != resource && *l < self.timed.len() && !self.timed[*l] && !timed)
        {
            self.unmeasured[link] |= self.unmeasured[resource];
            self.all.push(Demand { resource: link, own: false, ..demand.clone() });
        }
        self.all.push(demand);
        Some(())
    }

    /// Bytes that a monotask moved; `None` where nothing says.
    pub fn bytes(&self, m: &Monotask) -> Option<f64> {
        let counted = self.counted.contains(&(m.resource as usize, brings_in(m.phase)));
        moved(m, counted).map(|bytes| bytes as f64)
    }

    /// Those of one stage, by start.
    pub fn of_stage(&self, stage: usize) -> &[Demand] {
        self.stages.get(stage).map_or(&[], |range| &self.all[range.clone()])
    }

    /// The monotask that a demand comes from.
    pub fn monotask(&self, demand: &Demand) -> &'a Monotask {
        &self.monotasks[demand.monotask]
    }

    /// Those of one job.
    pub fn of_job(&self, job: usize) -> impl Iterator<Item = &Demand> {
        self.stages_of(job).iter().flat_map(|stage| self.of_stage(*stage))
    }

    /// The indices of a job's stages.
    pub fn stages_of(&self, job: usize) -> &[usize] {
        self.stages_of.get(job).map_or(&[], Vec::as_slice)
    }

    /// A job's end, where it was recorded.
    pub fn job_end(&self, job: usize) -> Option<&'a JobEnd> {
        self.job_ends.get(job).copied().flatten()
    }

    /// A stage's end, where it was recorded.
    pub fn stage_end(&self, stage: usize) -> Option<&'a StageEnd> {
        self.stage_ends.get(stage).copied().flatten()
    }

    /// True where the demand is on the cores of a machine.
    pub fn on_cores(&self, demand: &Demand) -> bool {
        self.cores[demand.resource]
    }

    /// Service time on cores.
    pub fn core_ns<'d>(&self, demands: impl IntoIterator<Item = &'d Demand>) -> f64 {
        let cores = demands.into_iter().filter(|d| self.cores[d.resource]);
        cores.map(|d| d.amount).sum()
    }
}

/// Bytes that a monotask moved; `None` where nothing says.
fn moved(m: &Monotask, counted: bool) -> Option<u64> {
    match m.device_bytes {
        Some(bytes) if counted => Some(bytes),
        _ if m.outcome.is_ok() => m.bytes,
        _ => Some(0),
    }
}

/// Resources and directions for which the kernel counted at least one byte.
fn counted(trace: &Trace) -> BTreeSet<(usize, bool)> {
    let some = trace.monotasks.iter().filter(|m| m.device_bytes.is_some_and(|b| b > 0));
    some.map(|m| (m.resource as usize, brings_in(m.phase))).collect()
}

fn opaque(trace: &Trace) -> Vec<bool> {
    let used: BTreeSet<u32> = trace.monotasks.iter().map(|m| m.resource).collect();
    let mut stores = vec![0; trace.resources.len()];
    for (_, resource) in trace.resources.iter().enumerate().filter(|(ix, _)| used.contains(&(*ix as u32))) {
        if let Some(count) = resource.link.and_then(|link| stores.get_mut(link as usize)) {
            *count += 1;
        }
    }
    let known = |ix: usize| trace.resources[ix].capacity.is_some() || used.contains(&(ix as u32));
    // Of exchanges the bytes are known, and not when they were on their way.
    let sent: BTreeSet<u32> = trace.exchanges.iter().map(|sent| sent.resource).collect();
    let hidden = |(ix, stores): (usize, &i32)| (*stores == 1 || sent.contains(&(ix as u32))) && !known(ix);
    stores.iter().enumerate().map(hidden).collect()
}
