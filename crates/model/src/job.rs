//! A job: its spans, its modelled time, and what limits it.
//!
//! A span is the time between two neighbouring instants at which some stage of
//! the job begins or ends its service; the crate's head says why spans are summed
//! instead of stages.

use std::collections::BTreeMap;

use pellucid_trace::{Phase, Trace, kind, union_ns};

use crate::analysis::{CoreTime, Intensity, JobAnalysis, Next, WallClock};
use crate::capacity::Capacity;
use crate::demand::{Demand, Demands, brings_in, service};
use crate::ideal::{self, KindTime, Loads, Members};
use crate::steps::steps;
use crate::{ms, ratio};

/// Part of the modelled time below which two kinds count as equally worth
/// removing. Without it, a kind that matters for a hundredth of the job would
/// be its bottleneck whenever two large ones balance.
pub(crate) const TIE: f64 = 0.02;

/// Part of a job's time that ideal times have to explain before a resource is said to limit it.
/// Below it, the job mostly did something else than use resources.
const EXPLAINED: f64 = 0.5;

/// Whether ideal times of `modelled` explain enough of a time for a resource to be what limits.
pub(crate) fn explained(modelled: f64, time: f64) -> bool {
    modelled >= EXPLAINED * time
}

/// Stretch of time during which the same stages were served.
#[derive(Debug, Clone, Default)]
pub(crate) struct Span {
    pub times: BTreeMap<String, KindTime>,
    /// Demand by resource and stage, to say whose the limit is.
    pub shares: BTreeMap<(usize, usize), f64>,
}

impl Span {
    /// The kind with the largest limit among those that are not taken away, with its limit.
    pub fn limit(&self, without: &[&str]) -> Option<(&str, f64)> {
        let left = self.times.iter().filter(|(k, _)| !without.contains(&k.as_str()));
        left.map(|(k, t)| (k.as_str(), t.limit_ns)).max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// What the model holds of a job.
#[derive(Debug, Default)]
pub(crate) struct JobModel {
    pub members: Members,
    pub spans: Vec<Span>,
    pub times: BTreeMap<String, KindTime>,
}

impl JobModel {
    /// Adds up a job's demands. Empty for a job without monotasks.
    pub fn of(trace: &Trace, demands: &Demands, capacities: &[Capacity], job: usize) -> JobModel {
        let cuts = cuts(demands, job);
        let Some(last) = cuts.len().checked_sub(1) else { return JobModel::default() };
        let mut loads = vec![Loads::default(); last.max(1)];
        let mut shares = vec![BTreeMap::new(); loads.len()];
        let mut total = Loads::default();
        for demand in demands.of_job(job) {
            total.add(demand);
            let first =
                cuts.partition_point(|c| *c <= demand.start_ns).saturating_sub(1).min(loads.len() - 1);
            for span in first..loads.len() {
                if span > first && cuts[span] >= demand.end_ns {
                    break;
                }
                let until = cuts.get(span + 1).copied().unwrap_or(demand.end_ns);
                let amount = loads[span].add_within(demand, cuts[span], until);
                *shares[span].entry((demand.resource, demand.stage)).or_insert(0.0) += amount;
            }
        }
        let members = ideal::members(trace, demands, &total);
        let spans = loads.iter().zip(shares);
        JobModel {
            spans: spans
                .map(|(loads, shares)| Span { times: ideal::kind_times(loads, &members, capacities), shares })
                .collect(),
            times: ideal::kind_times(&total, &members, capacities),
            members,
        }
    }

    /// The modelled time with some kinds taken away (§6.5: excluded from the maximum).
    pub fn modelled_ns(&self, without: &[&str]) -> f64 {
        self.spans.iter().filter_map(|span| span.limit(without)).map(|(_, ns)| ns).sum()
    }

    /// The kind whose removal lowers the modelled time most, with some already gone.
    /// Among equals, the one with the largest limit.
    pub fn bottleneck(&self, without: &[&str]) -> Option<&str> {
        let modelled = self.modelled_ns(without);
        let kinds = self.times.iter().filter(|(k, t)| t.limit_ns > 0.0 && !without.contains(&k.as_str()));
        let savings: Vec<(&str, f64, f64)> = kinds
            .map(|(kind, time)| {
                let gone = [without, &[kind.as_str()]].concat();
                (kind.as_str(), modelled - self.modelled_ns(&gone), time.limit_ns)
            })
            .collect();
        let most = savings.iter().map(|(_, saving, _)| *saving).fold(0.0, f64::max);
        let equal = savings.iter().filter(|(_, saving, _)| *saving >= most - TIE * modelled);
        equal.max_by(|a, b| a.2.total_cmp(&b.2)).map(|(kind, ..)| *kind)
    }
}

/// Instants at which a stage of the job begins or ends its service, in order.
pub(crate) fn cuts(demands: &Demands, job: usize) -> Vec<u64> {
    let stages = demands.stages_of(job).iter();
    let mut cuts: Vec<u64> = stages
        .filter_map(|stage| {
            let of_stage = demands.of_stage(*stage);
            let end = of_stage.iter().map(|d| d.end_ns).max()?;
            Some([of_stage.first()?.start_ns, end])
        })
        .flatten()
        .collect();
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

/// Everything that is said of one job.
pub(crate) fn analyze(
    trace: &Trace,
    demands: &Demands,
    model: &JobModel,
    last_seen: Option<u64>,
    ix: usize,
) -> JobAnalysis {
    let job = &trace.jobs[ix];
    let end = demands.job_end(ix);
    let until = |at: u64| ms(at.saturating_sub(job.submitted_ns) as f64);
    let duration_ms = end.map(|e| until(e.ended_ns));
    let used = || demands.of_job(ix);
    let modelled_ms = (!model.times.is_empty()).then(|| ms(model.modelled_ns(&[])));
    // Not denied while the job has no duration.
    let limited = duration_ms.zip(modelled_ms).is_none_or(|(whole, modelled)| explained(modelled, whole));
    let bottleneck = model.bottleneck(&[]).filter(|_| limited);
    let next = bottleneck.and_then(|gone| model.bottleneck(&[gone]));
    JobAnalysis {
        id: ix,
        name: job.name.clone(),
        duration_ms,
        observed_ms: last_seen.map(until),
        outcome: end.map(|e| e.outcome),
        error: end.and_then(|e| e.error.clone()),
        rows: end.and_then(|e| e.rows),
        modelled_ms,
        stages: demands.stages_of(ix).to_vec(),
        bottleneck: bottleneck.map(|kind| ideal::bottleneck(trace, kind, &model.times[kind])),
        next: next.map(|kind| Next { kind: kind.to_owned(), ideal_ms: ms(model.times[kind].ideal_ns) }),
        steps: end.and_then(|end| steps(trace, demands, ix, end.ended_ns)),
        kinds: ideal::kind_uses(trace, demands, &model.times, used(), duration_ms),
        read_bytes: moved(demands, used(), brings_in),
        cached_bytes: cached(demands, used()),
        written_bytes: moved(demands, used(), |phase| matches!(phase, Phase::Spill | Phase::Write)),
        memory_high_water_bytes: end.and_then(|e| e.memory_high_water_bytes),
        core: core_time(demands, used()),
        intensity: intensity(trace, demands, ix),
        source_id: job.id,
        ..JobAnalysis::default()
    }
}

/// The last instant at which something of a job was recorded, by the job's index.
pub(crate) fn last_seen(trace: &Trace, demands: &Demands) -> Vec<Option<u64>> {
    let mut last = vec![None; trace.jobs.len()];
    let job_of = |stage: usize| trace.stages.get(stage).map(|s| s.job as usize);
    let ends = trace.job_ends.iter().map(|e| (Some(e.job as usize), e.ended_ns));
    let stages = trace.stage_ends.iter().map(|e| (job_of(e.stage as usize), e.ended_ns));
    let work = demands.all.iter().map(|d| (job_of(d.stage), d.end_ns));
    let tasks = trace.pipelined_tasks.iter();
    let tasks = tasks.map(|t| (job_of(t.stage as usize), t.launched_ns.saturating_add(t.duration_ns)));
    for (job, at) in ends.chain(stages).chain(work).chain(tasks) {
        if let Some(seen) = job.and_then(|job| last.get_mut(job)) {
            *seen = (*seen).max(Some(at));
        }
    }
    last
}

/// Cuts the time from the trace's origin to the last that it saw into jobs and the rest.
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

/// Bytes that monotasks of some phases moved over disks, links and stores.
/// `None` where the trace has no such resource or a monotask does not say.
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

/// Input bytes that the page cache held; compute monotasks say so.
fn cached<'d>(demands: &Demands, used: impl Iterator<Item = &'d Demand>) -> Option<u64> {
    sum_of(used.filter(|d| demands.on_cores(d)).map(|d| demands.monotask(d).cached_bytes))
}

/// Sum of what was measured; `None` where nothing was.
fn sum_of(values: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    values.flatten().fold(None, |sum: Option<u64>, v| Some(sum.unwrap_or(0).saturating_add(v)))
}

/// How core time divides; a share is of all core time, and `None` where no monotask says.
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
    }
}

/// Demands relative to each other (blocked-time-nsdi15 §3.4).
fn intensity(trace: &Trace, demands: &Demands, job: usize) -> Intensity {
    let core_s = demands.core_ns(demands.of_job(job)) / 1e9;
    let on = |name: &str| {
        let of_kind = |ix: usize| trace.resources[ix].kind == name;
        let known = (0..trace.resources.len()).any(|ix| of_kind(ix) && !demands.unmeasured[ix]);
        let used = demands.of_job(job).filter(|d| of_kind(d.resource));
        known.then(|| used.map(|d| d.amount).sum::<f64>())
    };
    // What was spilled is read back by the same phase as input: they cannot be told apart.
    let spilled = demands.of_job(job).any(|d| demands.monotask(d).phase == Phase::Spill);
    let input = moved(demands, demands.of_job(job), brings_in).filter(|_| !spilled);
    let cached = cached(demands, demands.of_job(job)).unwrap_or(0);
    let input = input.map(|read| read as f64 + cached as f64);
    let output = moved(demands, demands.of_job(job), |phase| phase == Phase::Write);
    Intensity {
        disk_mb_per_cpu_s: on(kind::DISK).and_then(|bytes| ratio(bytes / 1e6, core_s)),
        network_mbit_per_cpu_s: on(kind::NETWORK).and_then(|bytes| ratio(bytes * 8.0 / 1e6, core_s)),
        shuffle_over_input: None,
        // An answer that goes to the client is not written, and is not measured in bytes.
        output_over_input: output.filter(|o| *o > 0).zip(input).and_then(|(o, i)| ratio(o as f64, i)),
    }
}
