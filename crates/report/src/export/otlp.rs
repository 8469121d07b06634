//! Export as OpenTelemetry spans in OTLP/JSON, the format of the collector's file receiver.
//!
//! Each job becomes a trace. A job's span contains those of its stages, a stage's span those of its
//! multitasks and pipelined tasks, and a multitask's span those of its monotasks. Measurements are attributes
//! named `pellucid.…`. A span needs an end, so jobs and stages without a recorded end are omitted, with all
//! their descendants. Identifiers derive from the trace's origin and the record's index, so exporting a trace
//! twice gives the same spans. Sampled tasks and counters are not exported.
//!
//! Protobuf maps to JSON by OTLP's rules: identifiers in hexadecimal, 64-bit integers as strings.

use std::io::{self, Write};

use pellucid_trace::{Outcome, Trace};
use serde_json::{Value, json};

/// The kind of record behind a span. Its value is the first byte of the span's identifier.
#[derive(Clone, Copy)]
enum RecordKind {
    Job = 1,
    Stage,
    Multitask,
    Monotask,
    PipelinedTask,
}

fn span_id(kind: RecordKind, index: usize) -> String {
    format!("{:02x}{:014x}", kind as u8, index)
}

/// A span to be written.
struct Span {
    kind: RecordKind,
    index: usize,
    job: usize,
    parent: Option<String>,
    name: String,
    from_ns: u64,
    to_ns: u64,
    attributes: Vec<Value>,
    outcome: Outcome,
    error: Option<String>,
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

fn number(key: &str, value: u64) -> Value {
    // OTLP's integers are signed.
    json!({"key": key, "value": {"intValue": value.min(i64::MAX as u64).to_string()}})
}

/// Returns an attribute for each number that was measured.
fn numbers<const N: usize>(all: [(&str, Option<u64>); N]) -> impl Iterator<Item = Value> {
    all.into_iter().filter_map(|(key, value)| value.map(|v| number(&format!("pellucid.{key}"), v)))
}

/// Writes a trace as one OTLP/JSON document.
///
/// # Errors
/// Returns errors of `out`.
pub fn otlp(trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
    let origin = trace.header.as_ref().map_or(0, |h| h.origin_unix_ns);
    let mut ended = vec![None; trace.stages.len()];
    for end in &trace.stage_ends {
        ended.get_mut(end.stage as usize).into_iter().for_each(|e| *e = Some(end));
    }
    let mut job_ended = vec![None; trace.jobs.len()];
    for end in &trace.job_ends {
        job_ended.get_mut(end.job as usize).into_iter().for_each(|e| *e = Some(end));
    }
    let whole = |stage: usize| {
        let job = trace.stages.get(stage).map(|s| s.job as usize)?;
        (ended[stage].is_some() && job_ended.get(job)?.is_some()).then_some(job)
    };
    let service = trace.application.as_ref().map_or("pellucid", |a| a.engine.as_str());
    let version = trace.header.as_ref().map_or("", |h| h.producer_version.as_str());
    let mut writer = Writer { out, origin, first: true };
    write!(writer.out, "{{\"resourceSpans\":[")?;
    writer.begin(&[text("service.name", service)], version)?;
    for (ix, (job, end)) in trace.jobs.iter().zip(&job_ended).enumerate() {
        let Some(end) = end else { continue };
        let attributes =
            numbers([("rows", end.rows), ("memory_high_water_bytes", end.memory_high_water_bytes)]);
        let attributes = [text("db.query.text", &job.name)].into_iter().chain(attributes).collect();
        let (from_ns, to_ns, error) = (job.submitted_ns, end.ended_ns, end.error.clone());
        let (outcome, name) = (end.outcome, format!("job {ix}"));
        writer.span(Span {
            kind: RecordKind::Job,
            index: ix,
            job: ix,
            parent: None,
            name,
            from_ns,
            to_ns,
            attributes,
            outcome,
            error,
        })?;
    }
    for (ix, stage) in trace.stages.iter().enumerate() {
        let (Some(job), Some(end)) = (whole(ix), ended[ix]) else { continue };
        let after = stage.after.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let attributes = numbers([("stage", Some(ix as u64)), ("attempt", Some(stage.attempt.into()))]);
        let attributes =
            attributes.chain([text("pellucid.operators", &stage.name), text("pellucid.after", &after)]);
        writer.span(Span {
            kind: RecordKind::Stage,
            index: ix,
            job,
            parent: Some(span_id(RecordKind::Job, job)),
            name: format!("stage {ix}"),
            from_ns: stage.submitted_ns,
            to_ns: end.ended_ns,
            attributes: attributes.collect(),
            outcome: end.outcome,
            error: end.error.clone(),
        })?;
    }
    multitasks(trace, &whole, &mut writer)?;
    writer.end()?;
    for (machine, named) in trace.machines.iter().enumerate() {
        writer.begin(&[text("service.name", service), text("host.name", &named.name)], version)?;
        monotasks(trace, machine, &whole, &mut writer)?;
        pipelined_tasks(trace, machine, &whole, &mut writer)?;
        writer.end()?;
    }
    writeln!(writer.out, "]}}")
}

type Whole<'w> = dyn Fn(usize) -> Option<usize> + 'w;

fn multitasks(trace: &Trace, whole: &Whole, writer: &mut Writer) -> io::Result<()> {
    // Traces do not record the end of a multitask: it ends with its last monotask.
    let mut ends = vec![None; trace.multitasks.len()];
    for m in &trace.monotasks {
        ends.get_mut(m.multitask as usize).into_iter().for_each(|end| *end = (*end).max(Some(m.ended_ns())));
    }
    for (ix, (multitask, end)) in trace.multitasks.iter().zip(ends).enumerate() {
        let (Some(job), Some(end)) = (whole(multitask.stage as usize), end) else { continue };
        writer.span(Span {
            kind: RecordKind::Multitask,
            index: ix,
            job,
            parent: Some(span_id(RecordKind::Stage, multitask.stage as usize)),
            name: "multitask".into(),
            from_ns: multitask.admitted_ns,
            to_ns: end,
            attributes: numbers([
                ("stage", Some(multitask.stage.into())),
                ("partition", Some(multitask.partition.into())),
                ("memory_bytes", multitask.memory_bytes),
            ])
            .collect(),
            outcome: Outcome::Ok,
            error: None,
        })?;
    }
    Ok(())
}

fn monotasks(trace: &Trace, machine: usize, whole: &Whole, writer: &mut Writer) -> io::Result<()> {
    for (ix, m) in trace.monotasks.iter().enumerate() {
        let resource = trace.resources.get(m.resource as usize).filter(|r| r.machine as usize == machine);
        let multitask = trace.multitasks.get(m.multitask as usize);
        let (Some(resource), Some(multitask)) = (resource, multitask) else { continue };
        let Some(job) = whole(multitask.stage as usize) else { continue };
        let attributes = numbers([
            ("queue_ns", Some(m.queue_ns)),
            ("service_ns", Some(m.service_ns)),
            ("bytes", m.bytes),
            ("device_bytes", m.device_bytes),
            ("cached_bytes", m.cached_bytes),
            ("cpu_ns", m.cpu_ns),
            ("decode_ns", m.decode_ns),
            ("operator_ns", m.operator_ns),
            ("encode_ns", m.encode_ns),
            ("not_split_ns", m.not_split_ns),
            ("rows", m.rows),
        ]);
        let named = [text("pellucid.resource", &resource.name), text("pellucid.kind", &resource.kind)];
        writer.span(Span {
            kind: RecordKind::Monotask,
            index: ix,
            job,
            parent: Some(span_id(RecordKind::Multitask, m.multitask as usize)),
            name: format!("{:?}", m.phase).to_lowercase(),
            from_ns: m.started_ns(),
            to_ns: m.ended_ns(),
            attributes: attributes.chain(named).collect(),
            outcome: m.outcome,
            error: None,
        })?;
    }
    Ok(())
}

fn pipelined_tasks(trace: &Trace, machine: usize, whole: &Whole, writer: &mut Writer) -> io::Result<()> {
    for (ix, task) in trace.pipelined_tasks.iter().enumerate() {
        let resource = trace.resources.get(task.resource as usize).filter(|r| r.machine as usize == machine);
        let (Some(resource), Some(job)) = (resource, whole(task.stage as usize)) else { continue };
        let attributes = numbers([
            ("stage", Some(task.stage.into())),
            ("partition", Some(task.partition.into())),
            ("attempt", Some(task.attempt.into())),
            ("cpu_ns", task.cpu_ns),
            ("input_bytes", task.input_bytes),
            ("output_bytes", task.output_bytes),
            ("shuffle_remote_bytes", task.shuffle_remote_bytes),
            ("shuffle_local_bytes", task.shuffle_local_bytes),
            ("shuffle_write_bytes", task.shuffle_write_bytes),
            ("spill_bytes", task.spill_bytes),
        ]);
        writer.span(Span {
            kind: RecordKind::PipelinedTask,
            index: ix,
            job,
            parent: Some(span_id(RecordKind::Stage, task.stage as usize)),
            name: "task".into(),
            from_ns: task.launched_ns,
            to_ns: task.ended_ns(),
            attributes: attributes.chain([text("pellucid.resource", &resource.name)]).collect(),
            outcome: task.outcome,
            error: task.error.clone(),
        })?;
    }
    Ok(())
}

/// A streaming writer of spans; the document is never held in memory.
struct Writer<'w> {
    out: &'w mut dyn Write,
    origin: u64,
    /// True if the next element is the first of its array, which needs no comma.
    first: bool,
}

impl Writer<'_> {
    fn comma(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.first, false) { Ok(()) } else { self.out.write_all(b",\n") }
    }

    fn begin(&mut self, attributes: &[Value], version: &str) -> io::Result<()> {
        self.comma()?;
        self.first = true;
        let (resource, scope) =
            (json!({"attributes": attributes}), json!({"name": "pellucid", "version": version}));
        write!(self.out, "{{\"resource\":{resource},\"scopeSpans\":[{{\"scope\":{scope},\"spans\":[")
    }

    fn end(&mut self) -> io::Result<()> {
        self.first = false;
        write!(self.out, "]}}]}}")
    }

    fn span(&mut self, span: Span) -> io::Result<()> {
        self.comma()?;
        let at = |ns: u64| self.origin.saturating_add(ns).to_string();
        let status = match span.outcome {
            Outcome::Ok => json!({"code": 1}),
            _ => {
                json!({"code": 2, "message": span.error.unwrap_or(format!("{:?}", span.outcome).to_lowercase())})
            }
        };
        let mut document = json!({
            // The origin keeps the traces of different runs apart.
            "traceId": format!("{:016x}{:016x}", self.origin, span.job + 1),
            "spanId": span_id(span.kind, span.index),
            "name": span.name,
            "kind": 1,
            "startTimeUnixNano": at(span.from_ns),
            "endTimeUnixNano": at(span.to_ns.max(span.from_ns)),
            "attributes": span.attributes,
            "status": status,
        });
        if let Some(parent) = span.parent {
            document["parentSpanId"] = parent.into();
        }
        serde_json::to_writer(&mut *self.out, &document)?;
        Ok(())
    }
}
