//! Analysis of a job: its modelled time, its bottleneck, and its bytes and core time.

use std::collections::BTreeMap;

use pellucid_trace::{Phase, Trace, kind, union_ns};

use super::capacity::Capacity;
use super::demand::{Demand, Demands, brings_in, service};
use super::ideal::{self, KindTime, Loads};
use super::operators;
use super::spans::{Cuts, Limits, Members, explained, members};
use super::steps::steps;
use crate::analysis::{CoreTime, Intensity, JobAnalysis, Next, Spilled, WallClock};
use crate::index::{Ix, JobIx, ResourceIx, StageIx, Table};
use crate::numbers::{ms, ratio};

/// The model of a job.
#[derive(Debug, Default)]
pub(crate) struct JobModel<'t> {
    pub members: Members<'t>,
    /// The time of each kind over the whole job.
    pub times: BTreeMap<&'t str, KindTime>,
    pub limits: Limits<'t>,
    /// By span: the demand by resource and stage, to attribute the limit.
    pub shares: Vec<BTreeMap<(ResourceIx, StageIx), f64>>,
}

impl<'t> JobModel<'t> {
    /// Sums a job's demands. Empty for a job without monotasks.
    pub fn of(
        trace: &'t Trace,
        demands: &Demands,
        capacities: &Table<ResourceIx, Capacity>,
        job: JobIx,
    ) -> JobModel<'t> {
        let Some(cuts) = Cuts::of(demands, job) else { return JobModel::default() };
        let mut loads = vec![Loads::default(); cuts.spans()];
        let mut shares = vec![BTreeMap::new(); cuts.spans()];
        let mut total = Loads::default();
        for demand in demands.of_job(job) {
            total.add(demand);
            for part in cuts.parts(demand) {
                let amount = loads[part.span].add_within(demand, part.from_ns, part.until_ns);
                *shares[part.span].entry((demand.resource, demand.stage)).or_insert(0.0) += amount;
            }
        }
        let members = members(trace, demands, |ix| total.contains(ix));
        let limits = |times: &BTreeMap<&'t str, KindTime>| -> BTreeMap<&'t str, f64> {
            times.iter().map(|(kind, time)| (*kind, time.limit_ns)).collect()
        };
        let times = ideal::kind_times(&total, &members, capacities);
        let spans = loads.iter().map(|loads| limits(&ideal::kind_times(loads, &members, capacities)));
        let limits = Limits { spans: spans.collect(), whole: limits(&times) };
        JobModel { members, times, limits, shares }
    }
}

/// Analyzes one job.
pub(crate) fn analyze(
    trace: &Trace,
    demands: &Demands,
    model: &JobModel,
    last_seen: Option<u64>,
    ix: JobIx,
) -> JobAnalysis {
    let job = &trace.jobs[ix.at()];
    let end = demands.job_end(ix);
    let until = |at: u64| ms(at.saturating_sub(job.submitted_ns) as f64);
    let duration_ms = end.map(|e| until(e.ended_ns));
    let used = || demands.of_job(ix);
    let modelled_ms = (!model.times.is_empty()).then(|| ms(model.limits.modelled_ns(&[])));
    // A job without a duration keeps its bottleneck.
    let limited = duration_ms.zip(modelled_ms).is_none_or(|(whole, modelled)| explained(modelled, whole));
    let bottleneck = model.limits.bottleneck(&[]).filter(|_| limited);
    let next = bottleneck.and_then(|gone| model.limits.bottleneck(&[gone]));
    JobAnalysis {
        id: ix.at(),
        name: job.name.clone(),
        duration_ms,
        observed_ms: last_seen.map(until),
        outcome: end.map(|e| e.outcome),
        error: end.and_then(|e| e.error.clone()),
        rows: end.and_then(|e| e.rows),
        modelled_ms,
        stages: demands.stages_of(ix).iter().map(|stage| stage.at()).collect(),
        bottleneck: bottleneck.map(|kind| ideal::bottleneck(trace, kind, &model.times[kind])),
        next: next.map(|kind| Next { kind: kind.to_owned(), ideal_ms: ms(model.times[kind].ideal_ns) }),
        steps: end.and_then(|end| steps(trace, demands, ix, end.ended_ns)),
        kinds: ideal::kind_uses(trace, demands, &model.times, used(), duration_ms),
        read_bytes: moved(demands, used(), brings_in),
        cached_bytes: cached(demands, used()),
        written_bytes: moved(demands, used(), |phase| matches!(phase, Phase::Spill | Phase::Write)),
        memory_high_water_bytes: end.and_then(|e| e.memory_high_water_bytes),
        peak: end.and_then(|e| e.peak.clone()),
        spill: end.and_then(|e| e.spill).map(|spill| Spilled {
            write_bytes: spill.write_bytes,
            read_bytes: spill.read_bytes,
            cached_bytes: spill.cached_bytes,
            ms: ms(spill.service_ns as f64),
            core_ms: ms(spill.core_ns as f64),
            sufficient_memory_bytes: spill.sufficient_memory_bytes,
        }),
        core: job_core_time(trace, demands, ix),
        intensity: intensity(trace, demands, ix),
        source_id: job.id,
        ..JobAnalysis::default()
    }
}

/// Returns the time of each job's last record.
pub(crate) fn last_seen(trace: &Trace, demands: &Demands) -> Table<JobIx, Option<u64>> {
    let mut last = Table::filled(trace.jobs.len(), None);
    let job_of = |stage: StageIx| trace.stages.get(stage.at()).map(|s| JobIx(s.job));
    let ends = trace.job_ends.iter().map(|e| (Some(JobIx(e.job)), e.ended_ns));
    let stages = trace.stage_ends.iter().map(|e| (job_of(StageIx(e.stage)), e.ended_ns));
    let work = demands.all.iter().map(|d| (job_of(d.stage), d.end_ns));
    let tasks = trace.pipelined_tasks.iter();
    let tasks = tasks.map(|t| (job_of(StageIx(t.stage)), t.launched_ns.saturating_add(t.duration_ns)));
    for (job, at) in ends.chain(stages).chain(work).chain(tasks) {
        if let Some(seen) = job.and_then(|job| last.get_mut(job)) {
            *seen = (*seen).max(Some(at));
        }
    }
    last
}

/// Divides the time from the trace's origin to its last record into jobs and the rest.
pub(crate) fn wall_clock(trace: &Trace, last_seen: &[Option<u64>]) -> WallClock {
    let jobs = trace.jobs.iter().zip(last_seen);
    let jobs: Vec<(u64, u64)> =
        jobs.map(|(job, seen)| (job.submitted_ns, seen.unwrap_or(job.submitted_ns))).collect();
    let samples = trace.utilization_samples.iter().map(|s| s.at_ns);
    let work = trace.monotasks.iter().map(|m| service(m).1);
    let Some(last) = jobs.iter().map(|(_, end)| *end).chain(samples).chain(work).max() else {
        return WallClock::default();
    };
    let in_jobs = union_ns(jobs);
    WallClock {
        jobs_ms: Some(ms(in_jobs as f64)),
        driver_only_ms: Some(ms(last.saturating_sub(in_jobs) as f64)),
        waiting_for_executors_ms: None,
    }
}

/// Returns the bytes that monotasks of some phases moved over disks, links and stores. `None` if the
/// trace has no such resource, or if some bytes were not measured.
fn moved<'d>(
    demands: &Demands,
    used: impl Iterator<Item = &'d Demand>,
    phases: impl Fn(Phase) -> bool,
) -> Option<u64> {
    let mut used = used.peekable();
    let measured = used.peek().is_some() && demands.timed.iter().any(|timed| !timed);
    let mut bytes = measured.then_some(0.0);
    for demand in used.filter(|d| d.own && !demands.timed[d.resource]) {
        if phases(demands.monotask(demand).phase) {
            bytes = bytes.filter(|_| !demands.unmeasured[demand.resource]).map(|b| b + demand.amount);
        }
    }
    bytes.map(|b| b as u64)
}

/// Returns the input bytes served by the page cache, as recorded by compute monotasks.
fn cached<'d>(demands: &Demands, used: impl Iterator<Item = &'d Demand>) -> Option<u64> {
    sum_of(used.filter(|d| demands.on_cores(d)).map(|d| demands.monotask(d).cached_bytes))
}

/// Sums measured values; `None` if there are none.
fn sum_of(values: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    values.flatten().fold(None, |sum: Option<u64>, v| Some(sum.unwrap_or(0).saturating_add(v)))
}

/// Divides a job's core time, also by operator if the trace has operators. Then it is that of the threads' clock, which
/// they are measured by.
fn job_core_time(trace: &Trace, demands: &Demands, ix: JobIx) -> CoreTime {
    let mut core = core_time(demands, demands.of_job(ix));
    if let (Some(times), Some(service_ms)) = (operators::core_time(trace, demands, ix), core.total_ms) {
        let total_ms: f64 = times.iter().map(|time| time.core_ms).sum();
        let shares = [
            &mut core.decode_share,
            &mut core.operator_share,
            &mut core.encode_share,
            &mut core.not_split_share,
        ];
        shares.into_iter().for_each(|share| *share = share.and_then(|s| ratio(s * service_ms, total_ms)));
        (core.total_ms, core.operators) = (Some(total_ms), Some(times));
    }
    core
}

/// Divides core time; each share is of all core time, and `None` if no monotask recorded it.
pub(crate) fn core_time<'d>(demands: &Demands, used: impl Iterator<Item = &'d Demand>) -> CoreTime {
    let monotasks: Vec<_> = used.filter(|d| demands.on_cores(d)).map(|d| demands.monotask(d)).collect();
    let total = monotasks.iter().map(|m| m.service_ns as f64).sum::<f64>();
    let share = |part: fn(&pellucid_trace::Monotask) -> Option<u64>| {
        ratio(sum_of(monotasks.iter().map(|m| part(m)))? as f64, total)
    };
    CoreTime {
        total_ms: (!monotasks.is_empty()).then(|| ms(total)),
        decode_share: share(|m| m.decode_ns),
        operator_share: share(|m| m.operator_ns),
        encode_share: share(|m| m.encode_ns),
        not_split_share: share(|m| m.not_split_ns),
        operators: None,
    }
}

/// Returns the job's demands relative to each other (blocked-time-nsdi15 §3.4).
fn intensity(trace: &Trace, demands: &Demands, job: JobIx) -> Intensity {
    let core_s = demands.core_ns(demands.of_job(job)) / 1e9;
    let on = |name: &str| {
        let of_kind = |ix: ResourceIx| trace.resources[ix.at()].kind == name;
        let known = demands.unmeasured.rows().any(|(ix, unmeasured)| of_kind(ix) && !unmeasured);
        let used = demands.of_job(job).filter(|d| of_kind(d.resource));
        known.then(|| used.map(|d| d.amount).sum::<f64>())
    };
    // Spilled data is read back in the same phase as input, so the two cannot be separated.
    let spilled = demands.of_job(job).any(|d| demands.monotask(d).phase == Phase::Spill);
    let input = moved(demands, demands.of_job(job), brings_in).filter(|_| !spilled);
    let cached = cached(demands, demands.of_job(job)).unwrap_or(0);
    let input = input.map(|read| read as f64 + cached as f64);
    let output = moved(demands, demands.of_job(job), |phase| phase == Phase::Write);
    Intensity {
        disk_mb_per_cpu_s: on(kind::DISK).and_then(|bytes| ratio(bytes / 1e6, core_s)),
        network_mbit_per_cpu_s: on(kind::NETWORK).and_then(|bytes| ratio(bytes * 8.0 / 1e6, core_s)),
        shuffle_over_input: None,
        // A result sent to the client is not written, and its bytes are not measured.
        output_over_input: output.filter(|o| *o > 0).zip(input).and_then(|(o, i)| ratio(o as f64, i)),
    }
}
