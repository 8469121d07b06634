//! Export to Perfetto's protobuf trace format.
//!
//! Each machine is a process and each resource a track of it. A resource has one child track for each row of
//! concurrent activities, since slices of a track must not overlap. Jobs and stages are tracks of a separate
//! process. Queue time, bytes and other measurements are debug annotations of slices; machine counters are
//! counter tracks. Names are interned, which keeps an event at about fifty bytes.
//!
//! Field numbers are those of Perfetto's `trace_packet.proto`, `track_event.proto`,
//! `track_descriptor.proto`, `debug_annotation.proto`, `interned_data.proto` and `clock_snapshot.proto`.

use std::io::{self, Write};

use pellucid_trace::{Trace, UtilizationSample};

use crate::activity::{Activity, PHASES, activities, rows};
use crate::words::{noun, resource};

/// Sequence of all packets; interned names are valid within a sequence.
const SEQUENCE: u64 = 1;
const CLEARED: u64 = 1;
const NEEDS_STATE: u64 = 2;
const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const COUNTER: u64 = 4;
const BOOTTIME: u64 = 6;
const REALTIME: u64 = 1;
/// Process id of jobs and stages; machines follow.
const DRIVER_PID: u64 = 1;
const ANNOTATIONS: [&str; 6] = ["stage", "partition", "queue_ns", "bytes", "outcome", "stands for"];

/// Writes a trace in Perfetto's format.
///
/// # Errors
/// Returns errors of `out`.
pub fn perfetto(trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
    let mut writer = Writer { out, next_track: 1 };
    writer.start(trace)?;
    let driver = writer.process(DRIVER_PID, "jobs and stages")?;
    writer.jobs(trace, driver)?;
    writer.stages(trace, driver)?;
    let mut by_resource: Vec<Vec<Activity>> = vec![Vec::new(); trace.resources.len()];
    activities(trace, |activity, _| by_resource[activity.resource as usize].push(activity));
    for (machine, named) in trace.machines.iter().enumerate() {
        let process = writer.process(DRIVER_PID + 1 + machine as u64, &named.name)?;
        let here = trace.resources.iter().enumerate().filter(|(_, r)| r.machine as usize == machine);
        for (ix, of) in here {
            let name =
                if of.name == of.kind { noun(&of.kind).into() } else { resource(&of.kind, Some(&of.name)) };
            let samples = trace.utilization_samples.iter().filter(|s| s.resource as usize == ix);
            let samples: Vec<&UtilizationSample> = samples.collect();
            writer.resource(process, &name, std::mem::take(&mut by_resource[ix]))?;
            writer.counters(process, &name, &samples)?;
        }
    }
    Ok(())
}

/// A protobuf message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    fn double(mut self, field: u64, value: f64) -> Self {
        self.varint(field << 3 | 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u64, value: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }

    fn text(self, field: u64, value: &str) -> Self {
        self.bytes(field, value.as_bytes())
    }

    fn message(self, field: u64, value: Message) -> Self {
        self.bytes(field, &value.0)
    }
}

struct Writer<'w> {
    out: &'w mut dyn Write,
    next_track: u64,
}

impl Writer<'_> {
    fn packet(&mut self, packet: Message) -> io::Result<()> {
        let packet = packet.number(10, SEQUENCE);
        self.out.write_all(&Message::default().message(1, packet).0)
    }

    /// Writes the clock snapshot and the interned names.
    fn start(&mut self, trace: &Trace) -> io::Result<()> {
        let origin = trace.header.as_ref().map_or(0, |h| h.origin_unix_ns);
        let clock = |id, at| Message::default().number(1, id).number(2, at);
        let clocks = Message::default().message(1, clock(BOOTTIME, 0)).message(1, clock(REALTIME, origin));
        self.packet(Message::default().number(8, 0).message(6, clocks))?;
        let mut names = Message::default();
        let named = |ix: usize, name: &str| Message::default().number(1, ix as u64 + 1).text(2, name);
        for (ix, (_, label)) in PHASES.iter().enumerate() {
            names = names.message(2, named(ix, label));
        }
        for (ix, name) in ANNOTATIONS.iter().enumerate() {
            names = names.message(3, named(ix, name));
        }
        self.packet(Message::default().number(8, 0).message(12, names).number(13, CLEARED))
    }

    fn track(&mut self, parent: Option<u64>, describe: impl FnOnce(Message) -> Message) -> io::Result<u64> {
        let uuid = self.next_track;
        self.next_track += 1;
        let track = Message::default().number(1, uuid);
        let track = match parent {
            Some(parent) => track.number(5, parent),
            None => track,
        };
        self.packet(Message::default().message(60, describe(track)))?;
        Ok(uuid)
    }

    fn process(&mut self, pid: u64, name: &str) -> io::Result<u64> {
        self.track(None, |track| track.message(3, Message::default().number(1, pid).text(6, name)))
    }

    fn event(&mut self, at_ns: u64, event: Message) -> io::Result<()> {
        self.packet(Message::default().number(8, at_ns).message(11, event).number(13, NEEDS_STATE))
    }

    fn slice(&mut self, track: u64, from_ns: u64, to_ns: u64, described: Message) -> io::Result<()> {
        self.event(from_ns, described.number(9, SLICE_BEGIN).number(11, track))?;
        self.event(to_ns, Message::default().number(9, SLICE_END).number(11, track))
    }

    /// Writes named spans, with as many tracks as concurrent spans need.
    fn spans(&mut self, process: u64, name: &str, mut spans: Vec<(u64, u64, String)>) -> io::Result<()> {
        spans.sort();
        let mut rows: Vec<(u64, u64)> = Vec::new();
        for (from, to, called) in spans {
            let row = match rows.iter().position(|(ended, _)| *ended <= from) {
                Some(row) => row,
                None => {
                    rows.push((0, self.track(Some(process), |track| track.text(2, name))?));
                    rows.len() - 1
                }
            };
            rows[row].0 = to;
            self.slice(rows[row].1, from, to, Message::default().text(23, &called))?;
        }
        Ok(())
    }

    fn jobs(&mut self, trace: &Trace, process: u64) -> io::Result<()> {
        let ends = trace.job_ends.iter().filter_map(|end| {
            let job = trace.jobs.get(end.job as usize)?;
            Some((job.submitted_ns, end.ended_ns.max(job.submitted_ns), job.name.clone()))
        });
        self.spans(process, "jobs", ends.collect())
    }

    fn stages(&mut self, trace: &Trace, process: u64) -> io::Result<()> {
        let ends = trace.stage_ends.iter().filter_map(|end| {
            let stage = trace.stages.get(end.stage as usize)?;
            let name = format!("{}: {}", end.stage, stage.name);
            Some((stage.submitted_ns, end.ended_ns.max(stage.submitted_ns), name))
        });
        self.spans(process, "stages", ends.collect())
    }

    fn resource(&mut self, process: u64, name: &str, mut all: Vec<Activity>) -> io::Result<()> {
        if all.is_empty() {
            return Ok(());
        }
        let parent = self.track(Some(process), |track| track.text(2, name))?;
        all.sort_by_key(|a| (a.start_ns, a.end_ns));
        let rows = rows(&all);
        let mut tracks: Vec<u64> = Vec::new();
        for (activity, row) in all.iter().zip(rows) {
            // Rows are numbered in order of first use.
            if row == tracks.len() {
                tracks.push(self.track(Some(parent), |track| track.text(2, &format!("{name} {row}")))?);
            }
            self.slice(tracks[row], activity.start_ns, activity.end_ns, annotated(activity))?;
        }
        Ok(())
    }

    fn counters(&mut self, process: u64, name: &str, samples: &[&UtilizationSample]) -> io::Result<()> {
        type Value = fn(&UtilizationSample) -> Option<u64>;
        let each: [(&str, &str, f64, Value); 4] = [
            ("busy, everyone", "cores", 1.0, |s| s.busy_ns),
            ("busy, this process", "cores", 1.0, |s| s.own_busy_ns),
            ("read", "bytes/s", 1e9, |s| s.read_bytes),
            ("written", "bytes/s", 1e9, |s| s.write_bytes),
        ];
        for (what, unit, scale, value) in each {
            if samples.iter().all(|s| value(s).is_none()) {
                continue;
            }
            let counter = Message::default().text(6, unit);
            let named = |track: Message| track.text(2, &format!("{name}: {what}")).message(8, counter);
            let track = self.track(Some(process), named)?;
            for sample in samples.iter().filter(|s| s.interval_ns > 0) {
                let Some(amount) = value(sample) else { continue };
                let rate = amount as f64 / sample.interval_ns as f64 * scale;
                let event = Message::default().number(9, COUNTER).number(11, track).double(44, rate);
                // A counter's value is valid from its timestamp on, so it is dated to the interval's start.
                self.event(sample.at_ns.saturating_sub(sample.interval_ns), event)?;
            }
        }
        Ok(())
    }
}

/// Returns the event of a slice, with its name and annotations.
fn annotated(activity: &Activity) -> Message {
    let mut event = Message::default().number(10, u64::from(activity.phase) + 1);
    let number = |ix: u64, value: u64| Message::default().number(1, ix).number(3, value);
    let numbers = [
        activity.stage.map(u64::from),
        activity.partition.map(u64::from),
        Some(activity.start_ns - activity.queued_ns.min(activity.start_ns)),
        activity.bytes,
    ];
    for (ix, value) in numbers.into_iter().enumerate() {
        if let Some(value) = value {
            event = event.message(4, number(ix as u64 + 1, value));
        }
    }
    if !activity.outcome.is_ok() {
        let outcome = format!("{:?}", activity.outcome).to_lowercase();
        event = event.message(4, Message::default().number(1, 5).text(6, &outcome));
    }
    if activity.weight != 1.0 {
        event = event.message(4, Message::default().number(1, 6).double(5, activity.weight));
    }
    event
}
