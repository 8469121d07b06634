//! The causes of a job's time: its duration divided into parts.
//!
//! Each span of the model is attributed to its kind with the largest limit; the rest of the measured
//! duration is unexplained. The causes of a job with an end therefore sum to its duration, unless it ran
//! faster than modelled. The gain from removing a kind is a separate question, which the evidence
//! answers: of two balanced kinds each may limit for long while removing either alone gains little.

use std::collections::BTreeMap;

use pellucid_trace::{Outcome, Phase, Trace, kind, union_ns};

use super::demand::Demands;
use super::job::JobModel;
use super::spans::largest;
use crate::analysis::{Cause, JobAnalysis};
use crate::index::{Ix, JobIx, StageIx};
use crate::numbers::ms;

/// Minimum share of the job for a part to be named.
const MIN_SHARE: f64 = 0.01;

/// Returns the causes of one job's time, unordered.
pub(crate) fn causes(trace: &Trace, demands: &Demands, model: &JobModel, job: &JobAnalysis) -> Vec<Cause> {
    let mut out = Vec::new();
    if job.outcome == Some(Outcome::Failed) {
        out.push(Cause {
            job: job.id,
            cause: "failure".into(),
            stage: None,
            ms: job.duration_ms.unwrap_or(0.0),
            at_most: false,
            evidence: job
                .error
                .clone()
                .unwrap_or_else(|| "the job failed; the reason was not recorded".into()),
        });
    }
    let whole = job.duration_ms.or(job.modelled_ms).unwrap_or(0.0);
    out.extend(by_kind(trace, demands, model, job));
    out.extend(unexplained(trace, demands, job));
    out.retain(|cause| cause.cause == "failure" || (cause.ms > 0.0 && cause.ms >= MIN_SHARE * whole));
    out
}

fn by_kind(trace: &Trace, demands: &Demands, model: &JobModel, job: &JobAnalysis) -> Vec<Cause> {
    let mut limited: BTreeMap<&str, (f64, BTreeMap<StageIx, f64>)> = BTreeMap::new();
    for (span, shares) in model.limits.spans.iter().zip(&model.shares) {
        let Some((kind, ns)) = largest(span, &[]).filter(|(_, ns)| *ns > 0.0) else { continue };
        let (total, by_stage) = limited.entry(kind).or_default();
        *total += ns;
        let shares = shares.iter().filter(|((ix, _), _)| trace.resources[ix.at()].kind == kind);
        let demand: f64 = shares.clone().map(|(_, amount)| amount).sum();
        for ((_, stage), amount) in shares.filter(|_| demand > 0.0) {
            *by_stage.entry(*stage).or_insert(0.0) += ns * amount / demand;
        }
    }
    let modelled = model.limits.modelled_ns(&[]);
    let causes = limited.into_iter().map(|(kind, (ns, by_stage))| {
        let most = by_stage.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let saving = modelled - model.limits.modelled_ns(&[kind]);
        Cause {
            job: job.id,
            cause: name(trace, demands, JobIx::new(job.id), kind),
            stage: most.filter(|(_, of_it)| *of_it > ns / 2.0).map(|(stage, _)| stage.at()),
            ms: ms(ns),
            at_most: job.kinds[kind].from_busy_time,
            evidence: evidence(job, kind, ms(saving)),
        }
    });
    causes.collect()
}

/// Returns the name of a kind as a cause: `disk input` for a disk that mostly read input, `spill` for one that mostly moved
/// what did not fit into memory. Without a count of what was read back, a spill leaves the name as it is.
fn name(trace: &Trace, demands: &Demands, job: JobIx, kind: &str) -> String {
    if kind != kind::DISK {
        return kind.to_owned();
    }
    let of_job = trace.job_ends.iter().find(|end| end.job as usize == job.at());
    let spill = of_job.and_then(|end| end.spill);
    let (mut read, mut written, mut spilled) = (0.0, 0.0, false);
    for demand in demands.of_job(job).filter(|d| trace.resources[d.resource.at()].kind == kind) {
        match demands.monotask(demand).phase {
            Phase::Read => read += demand.amount,
            Phase::Spill => spilled = true,
            _ => written += demand.amount,
        }
    }
    let moved = spill.map_or(0.0, |spill| (spill.write_bytes + spill.read_bytes) as f64);
    let read_back = spill.map_or(0.0, |spill| spill.read_bytes as f64);
    if moved > read - read_back + written {
        "spill".into()
    } else if read - read_back > written && (!spilled || spill.is_some()) {
        "disk input".into()
    } else {
        kind.to_owned()
    }
}

fn evidence(job: &JobAnalysis, kind: &str, saving_ms: f64) -> String {
    let used = &job.kinds[kind];
    let mut text = format!("{kind}: ideal time {:.0} ms", used.ideal_ms);
    if let Some(utilization) = used.utilization {
        text += &format!(", in use {:.0} % of the job", utilization * 100.0);
    }
    if let (Some(largest), true) = (&used.largest, used.limit_ms > 1.05 * used.ideal_ms) {
        text += &format!("; {largest} alone needs {:.0} ms for the bytes stored on it", used.largest_ms);
    }
    if used.from_busy_time {
        text += "; its capacity is unknown, so this is its busy time";
    }
    if let Some(modelled) = job.modelled_ms {
        text += &format!("; without it the modelled time falls by {saving_ms:.0} of {modelled:.0} ms");
    }
    text
}

/// Returns the part of the duration beyond the modelled time.
fn unexplained(trace: &Trace, demands: &Demands, job: &JobAnalysis) -> Option<Cause> {
    let (duration, modelled) = (job.duration_ms?, job.modelled_ms?);
    let submitted = trace.jobs[job.id].submitted_ns;
    let service: Vec<(u64, u64)> =
        demands.of_job(JobIx::new(job.id)).map(|d| (d.start_ns, d.end_ns)).collect();
    let first = service.iter().map(|(start, _)| *start).min()?;
    let before = ms(first.saturating_sub(submitted) as f64);
    let idle = (duration - ms(union_ns(service) as f64) - before).max(0.0);
    Some(Cause {
        job: job.id,
        cause: "unexplained".into(),
        stage: None,
        ms: duration - modelled,
        at_most: false,
        evidence: format!(
            "beyond the ideal times: {before:.0} ms before the first monotask ran, {idle:.0} ms later without a \
             running monotask, the rest while no resource was saturated"
        ),
    })
}
