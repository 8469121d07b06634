//! The JSON document of an analysis, `pellucid.analysis/1`, described in `docs/json.md`.
//!
//! Every document has every key, so readers need not handle missing keys: `null` means not measured, and an
//! empty list means that nothing was found. Blocked times, stragglers, bounds, replay and advice apply to
//! pipelined tasks only; for monotasks, which record what they waited for, their keys are `null`.

use std::collections::BTreeMap;

use pellucid_model::{
    Advice, Analysis, BlockedTime, BlockedTimes, Bottleneck, Bound, Cause, CoreTime, JobAnalysis, KindUse,
    Skew, Spread, StageAnalysis, Stragglers,
};
use pellucid_trace::{Application, Trace};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::tuning::tuning_json;

/// The source of an analysis.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Source {
    /// `pellucid-trace` or `spark-event-log`.
    pub kind: String,
    /// Path of the file, if any.
    pub path: Option<String>,
    /// Name of the application.
    pub application: Option<String>,
    /// Engine that ran the jobs.
    pub engine: Option<String>,
    /// Version of the engine.
    pub engine_version: Option<String>,
    /// False if the source was truncated.
    pub complete: bool,
    /// Size of the file.
    pub bytes: Option<u64>,
    /// Number of multitasks, or of TaskEnd events.
    pub tasks: u64,
    /// Number of stages; each attempt counts.
    pub stages: u64,
    /// Number of jobs.
    pub jobs: u64,
    /// Number of SQL executions; each of the engine's own jobs counts as one.
    pub sql_executions: Option<u64>,
    /// Warnings from reading the source.
    pub warnings: Vec<String>,
}

impl Source {
    /// Describes the source of a trace, which was read from `path` or never was in a file. For an event log,
    /// the application's own data is used.
    pub fn of_trace(trace: &Trace, path: Option<&str>) -> Source {
        match &trace.application {
            Some(application) => Source::of_log(trace, application, path),
            None => Source::of_jobs(trace, path),
        }
    }

    /// Describes an event log. Counts are of the log's events, some of which the trace may not contain.
    fn of_log(trace: &Trace, application: &Application, path: Option<&str>) -> Source {
        let events = |name: &str| application.events_named(&format!("SparkListener{name}"));
        Source {
            kind: "spark-event-log".into(),
            application: application.name.clone().or(application.id.clone()),
            engine: Some(application.engine.clone()),
            engine_version: application.engine_version.clone(),
            complete: trace.truncated.is_none(),
            tasks: events("TaskEnd"),
            stages: events("StageCompleted"),
            jobs: events("JobStart"),
            sql_executions: Some(events("SQLExecutionStart")),
            ..Source::of_jobs(trace, path)
        }
    }

    fn of_jobs(trace: &Trace, path: Option<&str>) -> Source {
        let header = trace.header.as_ref();
        let by_engine = header.is_some_and(|h| h.producer == "engine");
        let producer = header.map(|h| if by_engine { "pellucid" } else { h.producer.as_str() });
        Source {
            kind: "pellucid-trace".into(),
            path: path.map(str::to_owned),
            application: None,
            engine: producer.map(str::to_owned),
            engine_version: header.map(|h| h.producer_version.clone()),
            complete: trace.end.is_some() && trace.truncated.is_none(),
            bytes: (trace.bytes > 0).then_some(trace.bytes),
            tasks: (trace.multitasks.len() + trace.pipelined_tasks.len()) as u64,
            stages: trace.stages.len() as u64,
            jobs: trace.jobs.len() as u64,
            sql_executions: by_engine.then_some(trace.jobs.len() as u64),
            warnings: trace.truncated.iter().chain(&trace.warnings).cloned().collect(),
        }
    }
}

/// Returns the document `pellucid.analysis/1`. Numbers that are not finite become `null`.
///
/// The analysis' own warnings are appended to `source.warnings`, without duplicates.
pub fn analysis_json(a: &Analysis, mut source: Source) -> Value {
    for warning in &a.warnings {
        if !source.warnings.iter().any(|known| warning.contains(known.as_str())) {
            source.warnings.push(warning.clone());
        }
    }
    json!({
        "format": "pellucid.analysis/1",
        "source": source,
        "resources": a.resources.iter().map(|r| json!({
            "name": r.name,
            "kind": r.kind,
            "machine": r.machine,
            "capacity": number(r.capacity),
            "capacity_from": r.capacity_from,
            "ideal_ms": number(r.ideal_ms),
        })).collect::<Vec<_>>(),
        "wall_clock_ms": {
            "jobs": number(a.wall_clock.jobs_ms),
            "driver_only": number(a.wall_clock.driver_only_ms),
            "waiting_for_executors": number(a.wall_clock.waiting_for_executors_ms),
        },
        "jobs": a.jobs.iter().map(job_json).collect::<Vec<_>>(),
        "stages": a.stages.iter().map(stage_json).collect::<Vec<_>>(),
        "bounds": bounds_json(&a.bounds),
        "causes": a.causes.iter().map(cause_json).collect::<Vec<_>>(),
        "replay": a.replay.map_or_else(|| nulls(&["measured_ms", "simulated_ms", "error", "weak"]), |r| json!({
            "measured_ms": number(Some(r.measured_ms)),
            "simulated_ms": number(Some(r.simulated_ms)),
            "error": number(Some(r.error)),
            "weak": r.weak(),
        })),
        "advice": a.advice.iter().map(advice_json).collect::<Vec<_>>(),
        "application_ms": number(application_ms(a)),
        "task_time_ms": number(task_time_ms(a)),
        "parts": parts_json(a),
        "stragglers": stragglers_json(a),
        "idle": a.idle.map(|idle| json!({
            "slot_ms": number(Some(idle.slot_ms)),
            "idle_ms": number(Some(idle.idle_ms)),
            "idle_without_job_ms": number(Some(idle.idle_without_job_ms)),
        })),
        "concurrency": tuning_json(a),
        "notes": a.notes,
        "recording": {
            "recording_ms": number(a.recording.recording_ms),
            "writer_ms": number(a.recording.writer_ms),
            "share": number(a.recording.share),
        },
    })
}

/// Formats a document as a single line of text, with a line end. `format` is the first key, so that the
/// beginning of a document identifies it; the other keys are in alphabetical order.
pub fn document(value: &Value) -> String {
    let text = match value {
        Value::Object(map) => {
            let keys =
                map.iter().filter(|(key, _)| *key != "format").map(|(key, value)| (key.as_str(), value));
            let first = map.get_key_value("format").map(|(key, value)| (key.as_str(), value));
            let members = first.into_iter().chain(keys).map(|(key, value)| format!("{}:{value}", json!(key)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    };
    text + "\n"
}

/// Returns one job, as in `jobs` of an analysis and in `job` of a query's result.
pub fn job_json(job: &JobAnalysis) -> Value {
    json!({
        "id": job.id,
        "name": job.name,
        "duration_ms": number(job.duration_ms),
        "modelled_ms": number(job.modelled_ms),
        "stages": job.stages,
        "bottleneck": bottleneck(job.bottleneck.as_ref()),
        "next": job.next.as_ref().map(|n| json!({"kind": n.kind, "ideal_ms": number(Some(n.ideal_ms))})),
        "steps_ms": job.steps.map(|steps| steps.each().map(|(step, ms)| (step.to_owned(), number(Some(ms)))))
            .map(|steps| Value::Object(steps.into_iter().collect())),
        "ideal_ms": by_kind(&job.kinds, |k| Some(k.ideal_ms)),
        "intensity": {
            "disk_mb_per_cpu_s": number(job.intensity.disk_mb_per_cpu_s),
            "network_mbit_per_cpu_s": number(job.intensity.network_mbit_per_cpu_s),
            "shuffle_over_input": number(job.intensity.shuffle_over_input),
            "output_over_input": number(job.intensity.output_over_input),
        },
        "outcome": job.outcome,
        "error": job.error,
        "rows": job.rows,
        "observed_ms": number(job.observed_ms),
        "limit_ms": by_kind(&job.kinds, |k| Some(k.limit_ms)),
        "imbalance": by_kind(&job.kinds, |k| k.imbalance),
        "utilization": by_kind(&job.kinds, |k| k.utilization),
        "queue_ms": by_kind(&job.kinds, |k| k.queue_ms),
        "service_ms": by_kind(&job.kinds, |k| k.service_ms),
        "read_bytes": job.read_bytes,
        "cached_bytes": job.cached_bytes,
        "written_bytes": job.written_bytes,
        "memory_high_water_bytes": job.memory_high_water_bytes,
        "core": core_json(&job.core),
        "source_id": job.source_id,
        "blocked_ms": blocked_json(job.blocked.as_ref(), |time| time.measured_ms),
        "blocked_at_most_ms": blocked_json(job.blocked.as_ref(), only_bounded),
        "bounds": bounds_json(&job.bounds),
    })
}

fn stage_json(stage: &StageAnalysis) -> Value {
    json!({
        "id": stage.id,
        "attempt": stage.attempt,
        "name": stage.name,
        "call_site": stage.call_site,
        "tasks": stage.tasks,
        "failed_tasks": stage.failed_tasks,
        "duration_ms": number(stage.duration_ms),
        "task_time_ms": number(stage.task_time_ms),
        "ideal_ms": by_kind(&stage.kinds, |k| Some(k.ideal_ms)),
        "utilization": by_kind(&stage.kinds, |k| k.utilization),
        "queue_ms": by_kind(&stage.kinds, |k| k.queue_ms),
        "service_ms": by_kind(&stage.kinds, |k| k.service_ms),
        "bottleneck": bottleneck(stage.bottleneck.as_ref()),
        "blocked_ms": blocked_json(stage.blocked.as_ref(), |time| time.measured_ms),
        "blocked_at_most_ms": blocked_json(stage.blocked.as_ref(), only_bounded),
        "skew": skew_json(&stage.skew),
        "stragglers": stage_stragglers_json(stage.stragglers.as_ref()),
        "job": stage.job,
        "source_id": stage.source_id,
        "limit_ms": by_kind(&stage.kinds, |k| Some(k.limit_ms)),
        "imbalance": by_kind(&stage.kinds, |k| k.imbalance),
        "core": core_json(&stage.core),
        "not_split": stage.not_split,
    })
}

fn blocked_json(blocked: Option<&BlockedTimes>, value: impl Fn(BlockedTime) -> Option<f64>) -> Value {
    let of = |time: fn(&BlockedTimes) -> BlockedTime| number(blocked.and_then(|b| value(time(b))));
    json!({
        "disk": of(|b| b.disk),
        "network": of(|b| b.network),
        "gc": of(|b| b.gc),
        "scheduler": of(|b| b.scheduler),
        "deserialize": of(|b| b.deserialize),
        "other": of(|b| b.other),
    })
}

/// Returns the bound of a time if it exceeds the measured part.
fn only_bounded(time: BlockedTime) -> Option<f64> {
    time.at_most_ms.filter(|bound| time.measured_ms.is_none_or(|measured| *bound > measured))
}

fn skew_json(skew: &Skew) -> Value {
    json!({
        "input_bytes_max_over_median": number(skew.input_bytes_max_over_median),
        "output_bytes_max_over_median": number(skew.output_bytes_max_over_median),
        "duration_max_over_median": number(skew.duration_max_over_median),
        "partitions": skew.partitions.iter().map(|p| json!({
            "partition": p.partition,
            "share": number(Some(p.share)),
            "times_median": number(Some(p.times_median)),
            "duration_ms": number(Some(p.duration_ms)),
        })).collect::<Vec<_>>(),
    })
}

fn stage_stragglers_json(stragglers: Option<&Stragglers>) -> Value {
    const CAUSES: [&str; 11] = [
        "output_skew",
        "scheduler",
        "input_read",
        "shuffle_read",
        "shuffle_write",
        "output_write",
        "gc",
        "first_task",
        "failure",
        "slow_machine",
        "unexplained",
    ];
    let Some(s) = stragglers else {
        return json!({"count": null, "denominator": null, "causes": nulls(&CAUSES), "causes_at_most": {}, "tasks": []});
    };
    let causes = CAUSES.iter().map(|name| ((*name).to_owned(), json!(s.causes.get(name).copied().flatten())));
    json!({
        "count": s.count,
        "denominator": s.denominator.word(),
        "causes": Value::Object(causes.collect()),
        "causes_at_most": s.at_most,
        "tasks": s.tasks.iter().map(|t| json!({
            "partition": t.partition,
            "attempt": t.attempt,
            "executor": t.executor,
            "duration_ms": number(Some(t.duration_ms)),
            "times_median": number(Some(t.times_median)),
            "causes": t.causes,
        })).collect::<Vec<_>>(),
    })
}

/// Returns the number of stragglers over all stages, and how many each cause explains.
fn stragglers_json(a: &Analysis) -> Value {
    let judged = a.stages.iter().filter_map(|s| s.stragglers.as_ref());
    let counts: Vec<u64> = judged.map(|s| s.count).collect();
    let causes =
        crate::pipelined::straggler_causes(a).into_iter().map(|(name, n)| (name.to_owned(), json!(n)));
    json!({
        "count": (!counts.is_empty()).then(|| counts.iter().sum::<u64>()),
        "causes": Value::Object(causes.collect()),
    })
}

/// Returns the parts of the task time that the terminal shows as bars.
fn parts_json(a: &Analysis) -> Value {
    let whole = task_time_ms(a).unwrap_or(0.0);
    let parts = crate::pipelined::task_parts(a).into_iter();
    let parts = parts.map(|(name, ms)| {
        json!({
            "part": name,
            "ms": number(Some(ms)),
            "share": number(Some(ms / whole)),
        })
    });
    Value::Array(parts.collect())
}

fn application_ms(a: &Analysis) -> Option<f64> {
    let wall = &a.wall_clock;
    Some(wall.jobs_ms? + wall.driver_only_ms? + wall.waiting_for_executors_ms.unwrap_or(0.0))
}

fn task_time_ms(a: &Analysis) -> Option<f64> {
    let times: Vec<f64> = a.stages.iter().filter_map(|s| s.task_time_ms).collect();
    (!times.is_empty()).then(|| times.iter().sum())
}

fn bounds_json(bounds: &BTreeMap<&'static str, Bound>) -> Value {
    let of = |name: &str| {
        bounds.get(name).map(|b| {
            json!({
                "duration_ms": number(Some(b.duration_ms)),
                "low_ms": number(Some(b.low_ms)),
                "high_ms": number(Some(b.high_ms)),
                "improvement": number(Some(b.improvement)),
                "at_most": b.at_most,
            })
        })
    };
    json!({
        "no_disk": of("no_disk"),
        "no_network": of("no_network"),
        "no_gc": of("no_gc"),
        "no_stragglers": of("no_stragglers"),
    })
}

fn advice_json(advice: &Advice) -> Value {
    json!({
        "title": advice.title,
        "evidence": advice.evidence,
        "change": advice.change,
        "saves_ms": number(Some(advice.saves_ms)),
        "low_ms": number(Some(advice.low_ms)),
        "high_ms": number(Some(advice.high_ms)),
    })
}

/// Returns percentiles of each bound's improvement over the jobs of several analyses.
pub fn spreads_json(analyses: &[Analysis]) -> Value {
    let spread = |name: &str| {
        pellucid_model::spread(analyses, name).map(|s: Spread| {
            json!({
                "jobs": s.jobs,
                "p5": number(Some(s.p5)),
                "p25": number(Some(s.p25)),
                "p50": number(Some(s.p50)),
                "p75": number(Some(s.p75)),
                "p95": number(Some(s.p95)),
            })
        })
    };
    let bounds = ["no_disk", "no_network", "no_gc", "no_stragglers"];
    Value::Object(bounds.map(|name| (name.to_owned(), json!(spread(name)))).into_iter().collect())
}

fn cause_json(cause: &Cause) -> Value {
    json!({
        "cause": cause.cause,
        "stage": cause.stage,
        "ms": number(Some(cause.ms)),
        "at_most": cause.at_most,
        "evidence": cause.evidence,
        "job": cause.job,
    })
}

fn core_json(core: &CoreTime) -> Value {
    json!({
        "total_ms": number(core.total_ms),
        "decode_share": number(core.decode_share),
        "operator_share": number(core.operator_share),
        "encode_share": number(core.encode_share),
        "not_split_share": number(core.not_split_share),
    })
}

fn bottleneck(of: Option<&Bottleneck>) -> Value {
    of.map_or(Value::Null, |b| json!({"kind": b.kind, "name": b.name}))
}

/// Returns a map by kind. `cpu`, `disk` and `network` are always present, other kinds if the trace has them.
fn by_kind(kinds: &BTreeMap<String, KindUse>, value: impl Fn(&KindUse) -> Option<f64>) -> Value {
    let mut map: Map<String, Value> =
        ["cpu", "disk", "network"].map(|k| (k.to_owned(), Value::Null)).into_iter().collect();
    map.extend(kinds.iter().map(|(kind, used)| (kind.clone(), number(value(used)))));
    Value::Object(map)
}

fn nulls(keys: &[&str]) -> Value {
    Value::Object(keys.iter().map(|key| ((*key).to_owned(), Value::Null)).collect())
}

/// Rounds a number to twelve significant digits, which removes the noise of floating-point sums.
pub(crate) fn number(value: Option<f64>) -> Value {
    let rounded = value.filter(|v| v.is_finite()).and_then(|v| format!("{v:.11e}").parse::<f64>().ok());
    // An empty sum is -0.0; adding 0.0 removes the sign.
    rounded.map_or(Value::Null, |v| json!(v + 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_rounded_and_never_negative_zero() {
        assert_eq!(number(Some(std::iter::empty::<f64>().sum())).to_string(), "0.0");
        assert_eq!(number(Some(0.1 + 0.2)).to_string(), "0.3");
        assert_eq!(number(Some(f64::NAN)), Value::Null);
        assert_eq!(number(None), Value::Null);
    }
}
