//! The JSON documents of an analysis (`pellucid.analysis/1`) and of a comparison, described in `docs/json.md`.
//!
//! Every document has every key, so readers need not handle missing keys: `null` means not measured, and an
//! empty list means that nothing was found. Blocked times, stragglers, bounds, replay and advice apply to
//! pipelined tasks only; for monotasks, which record what they waited for, their keys are `null`.
//!
//! The model's results serialize themselves. This module adds the maps that the document arranges by measure
//! and then by kind, the keys of absent values, and sums over stages.

use std::collections::BTreeMap;
use std::io::{self, Write};

use pellucid_model::{
    Analysis, BlockedTime, BlockedTimes, Comparison, JobAnalysis, KindUse, StageAnalysis, Stragglers, spread,
};
use pellucid_trace::{Application, Trace};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Kinds that every map by kind has.
const KINDS: [&str; 3] = ["cpu", "disk", "network"];
const BOUNDS: [&str; 4] = ["no_disk", "no_network", "no_gc", "no_stragglers"];
const STRAGGLER_CAUSES: [&str; 11] = [
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
    rounded(json!({
        "format": "pellucid.analysis/1",
        "source": source,
        "resources": a.resources,
        "wall_clock_ms": a.wall_clock,
        "jobs": a.jobs.iter().map(Job::of).collect::<Vec<_>>(),
        "stages": a.stages.iter().map(Stage::of).collect::<Vec<_>>(),
        "bounds": with_keys(&BOUNDS, &a.bounds),
        "causes": a.causes,
        "replay": {
            "measured_ms": a.replay.map(|r| r.measured_ms),
            "simulated_ms": a.replay.map(|r| r.simulated_ms),
            "error": a.replay.map(|r| r.error),
            "weak": a.replay.map(|r| r.weak()),
        },
        "advice": a.advice,
        "application_ms": application_ms(a),
        "task_time_ms": task_time_ms(a),
        "parts": parts_json(a),
        "stragglers": stragglers_json(a),
        "idle": a.idle,
        "concurrency": a.tuning,
        "notes": a.notes,
        "recording": a.recording,
    }))
}

/// Writes a document as a single line. `format` is the first key, so that the beginning of a document
/// identifies it; the other keys are in alphabetical order.
///
/// # Errors
/// Returns errors of the writer.
pub fn write_document(out: &mut dyn Write, format: &str, document: &Value) -> io::Result<()> {
    write!(out, "{{\"format\":{}", json!(format))?;
    for (key, value) in document.as_object().into_iter().flatten().filter(|(key, _)| *key != "format") {
        write!(out, ",{}:", json!(key))?;
        serde_json::to_writer(&mut *out, value)?;
    }
    out.write_all(b"}\n")
}

/// Returns one job, as in `jobs` of an analysis and in `job` of a query's result.
pub fn job_json(job: &JobAnalysis) -> Value {
    rounded(json!(Job::of(job)))
}

/// Returns the document `pellucid.comparison/1`. `a` and `b` name the inputs.
pub fn comparison_json(c: &Comparison, a: &str, b: &str) -> Value {
    let stages = c.stages.iter().map(|stage| {
        json!({
            "a": stage.a,
            "b": stage.b,
            "source_ids": stage.source_ids,
            "name": stage.name,
            "duration_ms": {"a": stage.duration_ms.0, "b": stage.duration_ms.1},
            "change_ms": stage.change.map(|c| c.ms),
            "low_ms": stage.change.map(|c| c.low_ms),
            "high_ms": stage.change.map(|c| c.high_ms),
            "verdict": stage.change.map(|c| c.verdict()),
            "explained_by": stage.explained_by,
            "why": stage.why,
        })
    });
    rounded(json!({
        "format": "pellucid.comparison/1",
        "a": a,
        "b": b,
        "duration_ms": {"a": c.duration_ms.0, "b": c.duration_ms.1},
        "change_ms": c.change.ms,
        "low_ms": c.change.low_ms,
        "high_ms": c.change.high_ms,
        "stages": stages.collect::<Vec<_>>(),
        "verdict": c.change.verdict(),
        "notes": c.notes,
    }))
}

/// Returns percentiles of each bound's improvement over the jobs of several analyses.
pub fn spreads_json(analyses: &[Analysis]) -> Value {
    rounded(with_keys(&BOUNDS, BOUNDS.map(|bound| (bound, spread(analyses, bound)))))
}

#[derive(Serialize)]
struct Job<'a> {
    #[serde(flatten)]
    job: &'a JobAnalysis,
    #[serde(flatten)]
    kinds: ByKind,
    #[serde(flatten)]
    blocked: Blocked,
    bounds: Value,
}

impl Job<'_> {
    fn of(job: &JobAnalysis) -> Job<'_> {
        let (kinds, blocked) = (ByKind::of(&job.kinds), Blocked::of(job.blocked));
        Job { job, kinds, blocked, bounds: with_keys(&BOUNDS, &job.bounds) }
    }
}

#[derive(Serialize)]
struct Stage<'a> {
    #[serde(flatten)]
    stage: &'a StageAnalysis,
    #[serde(flatten)]
    kinds: ByKind,
    #[serde(flatten)]
    blocked: Blocked,
    stragglers: Value,
}

impl Stage<'_> {
    fn of(stage: &StageAnalysis) -> Stage<'_> {
        let (kinds, blocked) = (ByKind::of(&stage.kinds), Blocked::of(stage.blocked));
        Stage { stage, kinds, blocked, stragglers: stage_stragglers_json(stage.stragglers.as_ref()) }
    }
}

/// The use of resources: maps by kind. `cpu`, `disk` and `network` are always present, other kinds if the
/// trace has them.
#[derive(Serialize)]
struct ByKind {
    ideal_ms: Value,
    limit_ms: Value,
    imbalance: Value,
    utilization: Value,
    queue_ms: Value,
    service_ms: Value,
}

impl ByKind {
    fn of(kinds: &BTreeMap<String, KindUse>) -> ByKind {
        let map = |value: fn(&KindUse) -> Option<f64>| {
            with_keys(&KINDS, kinds.iter().map(|(kind, used)| (kind, value(used))))
        };
        ByKind {
            ideal_ms: map(|k| Some(k.ideal_ms)),
            limit_ms: map(|k| Some(k.limit_ms)),
            imbalance: map(|k| k.imbalance),
            utilization: map(|k| k.utilization),
            queue_ms: map(|k| k.queue_ms),
            service_ms: map(|k| k.service_ms),
        }
    }
}

/// Blocked times, without the core time: their measured parts, and the bounds that exceed these.
#[derive(Serialize)]
struct Blocked {
    blocked_ms: Value,
    blocked_at_most_ms: Value,
}

impl Blocked {
    fn of(blocked: Option<BlockedTimes>) -> Blocked {
        let b = blocked.unwrap_or_default();
        let map = |value: fn(BlockedTime) -> Option<f64>| {
            json!({
                "disk": value(b.disk),
                "network": value(b.network),
                "gc": value(b.gc),
                "scheduler": value(b.scheduler),
                "deserialize": value(b.deserialize),
                "other": value(b.other),
            })
        };
        Blocked { blocked_ms: map(|time| time.measured_ms), blocked_at_most_ms: map(only_bounded) }
    }
}

/// Returns the bound of a time if it exceeds the measured part.
fn only_bounded(time: BlockedTime) -> Option<f64> {
    time.at_most_ms.filter(|bound| time.measured_ms.is_none_or(|measured| *bound > measured))
}

/// Returns a stage's stragglers. `None` if it has too few tasks to have any.
fn stage_stragglers_json(stragglers: Option<&Stragglers>) -> Value {
    let none = Stragglers::default();
    let found = stragglers.unwrap_or(&none);
    json!({
        "count": stragglers.map(|s| s.count),
        "denominator": stragglers.map(|s| s.denominator),
        "causes": with_keys(&STRAGGLER_CAUSES, &found.causes),
        "causes_at_most": found.at_most,
        "tasks": found.tasks,
    })
}

/// Returns the number of stragglers over all stages, and how many each cause explains.
fn stragglers_json(a: &Analysis) -> Value {
    let judged = a.stages.iter().filter_map(|s| s.stragglers.as_ref());
    let counts: Vec<u64> = judged.map(|s| s.count).collect();
    json!({
        "count": (!counts.is_empty()).then(|| counts.iter().sum::<u64>()),
        "causes": with_keys(&[], crate::text::pipelined::straggler_causes(a)),
    })
}

/// Returns the parts of the task time that the terminal shows as bars.
fn parts_json(a: &Analysis) -> Value {
    let whole = task_time_ms(a).unwrap_or(0.0);
    let parts = crate::text::pipelined::task_parts(a).into_iter();
    parts.map(|(name, ms)| json!({"part": name, "ms": ms, "share": ms / whole})).collect()
}

fn application_ms(a: &Analysis) -> Option<f64> {
    let wall = &a.wall_clock;
    Some(wall.jobs_ms? + wall.driver_only_ms? + wall.waiting_for_executors_ms.unwrap_or(0.0))
}

fn task_time_ms(a: &Analysis) -> Option<f64> {
    let times: Vec<f64> = a.stages.iter().filter_map(|s| s.task_time_ms).collect();
    (!times.is_empty()).then(|| times.iter().sum())
}

/// Returns an object of the entries, with `null` for each of `keys` that they lack.
fn with_keys<K: ToString, V: Serialize>(keys: &[&str], entries: impl IntoIterator<Item = (K, V)>) -> Value {
    let mut object: Map<String, Value> = keys.iter().map(|key| (key.to_string(), Value::Null)).collect();
    object.extend(entries.into_iter().map(|(key, value)| (key.to_string(), json!(value))));
    Value::Object(object)
}

/// Rounds every floating-point number to twelve significant digits, which removes the noise of sums.
fn rounded(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => number.as_f64().map(rounded_number).into(),
        Value::Array(values) => values.into_iter().map(rounded).collect(),
        Value::Object(object) => object.into_iter().map(|(key, value)| (key, rounded(value))).collect(),
        other => other,
    }
}

fn rounded_number(value: f64) -> f64 {
    // An empty sum is -0.0; adding 0.0 removes the sign.
    format!("{value:.11e}").parse().unwrap_or(value) + 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_and_never_negative_zero() {
        let empty: f64 = std::iter::empty::<f64>().sum();
        let value = json!({"sums": [empty, 0.1 + 0.2], "none": f64::NAN, "whole": u64::MAX});
        assert_eq!(
            rounded(value).to_string(),
            r#"{"none":null,"sums":[0.0,0.3],"whole":18446744073709551615}"#
        );
    }
}
