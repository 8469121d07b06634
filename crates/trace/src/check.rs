//! The invariants of the format, checked on a whole trace.
//!
//! The reader and [`Trace::push`] already refuse what would make a trace
//! meaningless (an index that is not registered). What is checked here needs the
//! records side by side: times in order, parts within their whole, nothing above
//! a resource's concurrency. A broken invariant is a defect of the producer, not
//! of the job; producers run this in their tests, `analyze` prints what it says.
//!
//! Times are compared exactly: all come from one monotonic clock. Core time
//! comes from another one and gets a tolerance.

use std::collections::HashMap;
use std::fmt::Display;

use crate::record::*;
use crate::trace::Registered;
use crate::{Trace, kind};

/// Cases reported of one invariant; the rest are counted.
const CASES: usize = 5;

/// Broken invariants, with few cases of each.
#[derive(Default)]
struct Broken {
    words: Vec<String>,
    cases: HashMap<&'static str, usize>,
}

impl Broken {
    /// Reports that `what` breaks `invariant`, unless `holds`.
    fn unless<W: Display>(&mut self, holds: bool, invariant: &'static str, what: impl Fn() -> W) {
        if holds {
            return;
        }
        let cases = self.cases.entry(invariant).or_default();
        *cases += 1;
        if *cases <= CASES {
            self.words.push(format!("{}: {invariant}", what()));
        }
    }

    fn into_words(mut self) -> Vec<String> {
        let mut more: Vec<_> = self.cases.into_iter().filter(|c| c.1 > CASES).collect();
        more.sort();
        let more = more.into_iter().map(|(invariant, cases)| {
            let rest = cases - CASES;
            format!("{rest} more of: {invariant}")
        });
        self.words.extend(more);
        self.words
    }
}

impl Trace {
    /// Every invariant of `docs/trace-format.md` that is broken, in words; empty: sound.
    pub fn check(&self) -> Vec<String> {
        let mut broken = Broken::default();
        self.check_indices(&mut broken);
        if !broken.words.is_empty() {
            return broken.into_words(); // the rest looks entities up
        }
        self.check_whole(&mut broken);
        self.check_resources(&mut broken);
        self.check_stages(&mut broken);
        self.check_queries(&mut broken);
        self.check_multitasks(&mut broken);
        self.check_monotasks(&mut broken);
        self.check_order(&mut broken);
        self.check_concurrency(&mut broken);
        self.check_other_events(&mut broken);
        broken.into_words()
    }

    /// [`Trace::push`] guards them; the fields are public, so it can be gone round.
    fn check_indices(&self, broken: &mut Broken) {
        let mut again = Registered::default();
        let mut see = |record: Record| {
            let fits = again.admits(&record);
            broken.unless(fits.is_ok(), "every index is registered before", || {
                fits.as_ref().err().map_or(String::new(), |e| e.to_string())
            });
            again.count(&record);
        };
        self.machines.iter().for_each(|r| see(Record::Machine(r.clone())));
        self.resources.iter().for_each(|r| see(Record::Resource(r.clone())));
        self.queries.iter().for_each(|r| see(Record::Query(r.clone())));
        self.jobs.iter().for_each(|r| see(Record::Job(r.clone())));
        self.stages.iter().for_each(|r| see(Record::Stage(r.clone())));
        self.multitasks.iter().for_each(|r| see(Record::Multitask(r.clone())));
        self.monotasks.iter().for_each(|r| see(Record::Monotask(*r)));
        self.pipelined_tasks.iter().for_each(|r| see(Record::PipelinedTask(Box::new(r))));
        self.sampled_tasks.iter().for_each(|r| see(Record::SampledTask(*r)));
        self.exchanges.iter().for_each(|r| see(Record::Exchange(*r)));
        self.storage_operations.iter().for_each(|r| see(Record::StorageOperation(r.clone())));
        self.utilization_samples.iter().for_each(|r| see(Record::UtilizationSample(*r)));
        self.stage_ends.iter().for_each(|r| see(Record::StageEnd(r.clone())));
        self.job_ends.iter().for_each(|r| see(Record::JobEnd(r.clone())));
        self.query_ends.iter().for_each(|r| see(Record::QueryEnd(r.clone())));
        self.concurrency_changes.iter().for_each(|r| see(Record::ConcurrencyChange(r.clone())));
    }

    /// First and last record, and that nothing between is missing.
    fn check_whole(&self, broken: &mut Broken) {
        let trace = || "trace";
        broken.unless(self.header.is_some(), "begins with a header", trace);
        if let Some(end) = &self.end
            && self.warnings.is_empty()
        {
            let (says, has) = (end.records, self.records());
            broken.unless(says == has, "the end counts all records before it", || {
                format!("end says {says}, there are {has}")
            });
        }
    }

    fn check_resources(&self, broken: &mut Broken) {
        for (ix, resource) in self.resources.iter().enumerate() {
            let what = || format!("resource {ix} ({})", resource.name);
            let capacity = resource.capacity;
            broken.unless(capacity.is_none_or(|c| c.is_finite() && c > 0.0), "a capacity is over zero", what);
            broken.unless(
                capacity.is_none() || resource.capacity_from.is_some(),
                "a capacity says where it is known from",
                what,
            );
            broken.unless(resource.concurrency != Some(0), "a concurrency is at least 1", what);
            broken.unless(
                resource
                    .concurrency_min
                    .is_none_or(|least| least >= 1 && resource.concurrency.is_none_or(|most| least <= most)),
                "the least concurrency is from 1 to the most",
                what,
            );
            let (added, removed) = (resource.added_ns, resource.removed_ns);
            broken.unless(
                removed.is_none_or(|removed| added.unwrap_or(0) <= removed),
                "a resource goes after it came",
                what,
            );
            let link = resource.link.map(|link| &self.resources[link as usize]);
            broken.unless(
                link.is_none_or(|link| link.kind == kind::NETWORK),
                "a link is a resource of kind `network`",
                what,
            );
        }
    }

    /// Stages and jobs: where they belong, and that each ends at most once.
    fn check_stages(&self, broken: &mut Broken) {
        for (ix, stage) in self.stages.iter().enumerate() {
            let what = || format!("stage {ix}");
            let submitted_ns = |job: JobIx| self.jobs[job as usize].submitted_ns;
            let before = |after: &StageIx| {
                let job = self.stages[*after as usize].job;
                job == stage.job || submitted_ns(job) <= submitted_ns(stage.job)
            };
            broken.unless(
                stage.after.iter().all(before),
                "a stage comes after stages of its own job or of one submitted before",
                what,
            );
            broken.unless(
                self.jobs[stage.job as usize].submitted_ns <= stage.submitted_ns,
                "a stage is submitted no sooner than its job",
                what,
            );
        }
        let mut ended = vec![false; self.stages.len()];
        for end in &self.stage_ends {
            let ix = end.stage as usize;
            let what = || format!("stage {ix}");
            let first = !std::mem::replace(&mut ended[ix], true);
            broken.unless(first, "a stage ends once", what);
            broken.unless(
                self.stages[ix].submitted_ns <= end.ended_ns,
                "a stage ends after it is submitted",
                what,
            );
            broken.unless(
                end.error.is_none() || !end.outcome.is_ok(),
                "a stage that ended well has no error",
                what,
            );
        }
        let mut job_ended = vec![false; self.jobs.len()];
        for end in &self.job_ends {
            let ix = end.job as usize;
            let what = || format!("job {ix}");
            let first = !std::mem::replace(&mut job_ended[ix], true);
            broken.unless(first, "a job ends once", what);
            broken.unless(
                self.jobs[ix].submitted_ns <= end.ended_ns,
                "a job ends after it is submitted",
                what,
            );
            broken.unless(
                end.error.is_none() || !end.outcome.is_ok(),
                "a job that ended well has no error",
                what,
            );
        }
    }

    /// The application and its queries.
    fn check_queries(&self, broken: &mut Broken) {
        if let Some(application) = &self.application {
            let (started, ended) = (application.started_ns, application.ended_ns);
            broken.unless(
                ended.is_none_or(|ended| started.unwrap_or(0) <= ended),
                "an application ends after it started",
                || "application",
            );
        }
        let mut ended = vec![false; self.queries.len()];
        for end in &self.query_ends {
            let ix = end.query as usize;
            let what = || format!("query {ix}");
            let first = !std::mem::replace(&mut ended[ix], true);
            broken.unless(first, "a query ends once", what);
            broken.unless(
                self.queries[ix].submitted_ns <= end.ended_ns,
                "a query ends after it is submitted",
                what,
            );
            broken.unless(
                end.error.is_none() || !end.outcome.is_ok(),
                "a query that ended well has no error",
                what,
            );
        }
    }

    fn check_multitasks(&self, broken: &mut Broken) {
        for (ix, multitask) in self.multitasks.iter().enumerate() {
            let submitted_ns = self.stages[multitask.stage as usize].submitted_ns;
            broken.unless(
                submitted_ns <= multitask.admitted_ns,
                "a multitask is admitted no sooner than its stage is submitted",
                || format!("multitask {ix}"),
            );
        }
    }

    /// Each monotask by itself.
    fn check_monotasks(&self, broken: &mut Broken) {
        for monotask in &self.monotasks {
            let what = || self.named(monotask);
            let compute = monotask.phase == Phase::Compute;
            let service_ns = monotask.service_ns;
            let sum = monotask.queued_ns.checked_add(monotask.queue_ns);
            broken.unless(sum.and_then(|s| s.checked_add(service_ns)).is_some(), "a time fits 64 bits", what);
            broken.unless(
                self.multitasks[monotask.multitask as usize].admitted_ns <= monotask.queued_ns,
                "a monotask is queued no sooner than its multitask is admitted",
                what,
            );
            let moves = [kind::DISK, kind::NETWORK, kind::STORE];
            let resource_kind = self.resources[monotask.resource as usize].kind.as_str();
            broken.unless(
                !(compute && moves.contains(&resource_kind) || !compute && resource_kind == kind::CPU),
                "the compute phase runs on cores, the others do not",
                what,
            );
            let parts = [monotask.decode_ns, monotask.operator_ns, monotask.encode_ns, monotask.not_split_ns];
            broken.unless(
                compute || parts.iter().all(Option::is_none) && monotask.cached_bytes.is_none(),
                "only the compute phase has parts and cached bytes",
                what,
            );
            let total = parts[..3].iter().flatten();
            broken.unless(
                total.fold(0, |sum: u64, part| sum.saturating_add(*part)) <= service_ns
                    && monotask.not_split_ns.is_none_or(|ns| ns <= service_ns),
                "the parts are within the service time",
                what,
            );
            let tolerance_ns = 1_000_000 + service_ns / 100;
            broken.unless(
                monotask.cpu_ns.is_none_or(|ns| ns <= service_ns.saturating_add(tolerance_ns)),
                "core time is within service time (and 1 % and 1 ms)",
                what,
            );
            broken.unless(
                !compute || monotask.device_bytes.unwrap_or(0) == 0,
                "a core moves no bytes of a device",
                what,
            );
        }
    }

    /// Events against the ends of their stages and jobs. Only where both ended
    /// well: what runs on after a failure, a cancellation or a limit is no defect.
    fn check_order(&self, broken: &mut Broken) {
        let mut stage_ended: Vec<Option<u64>> = vec![None; self.stages.len()];
        for end in self.stage_ends.iter().filter(|end| end.outcome.is_ok()) {
            stage_ended[end.stage as usize] = Some(end.ended_ns);
        }
        for monotask in self.monotasks.iter().filter(|m| m.outcome.is_ok()) {
            let stage_ix = self.multitasks[monotask.multitask as usize].stage as usize;
            broken.unless(
                stage_ended[stage_ix].is_none_or(|ended| monotask.ended_ns() <= ended),
                "a monotask ends no later than its stage",
                || self.named(monotask),
            );
        }
        for (ix, multitask) in self.multitasks.iter().enumerate() {
            let after = &self.stages[multitask.stage as usize].after;
            let last_ended = after.iter().filter_map(|a| stage_ended[*a as usize]).max();
            broken.unless(
                last_ended.is_none_or(|ended| ended <= multitask.admitted_ns),
                "a multitask is admitted once the stages that its own comes after have ended",
                || format!("multitask {ix}"),
            );
        }
        for end in self.job_ends.iter().filter(|end| end.outcome.is_ok()) {
            for (ix, stage) in self.stages.iter().enumerate() {
                broken.unless(
                    stage.job != end.job || stage_ended[ix].is_none_or(|ns| ns <= end.ended_ns),
                    "a stage ends no later than its job",
                    || format!("stage {ix}"),
                );
            }
        }
    }

    /// How many service intervals of a resource overlap, against its concurrency.
    fn check_concurrency(&self, broken: &mut Broken) {
        let mut changes: Vec<Vec<(u64, i32)>> = vec![Vec::new(); self.resources.len()];
        for monotask in self.monotasks.iter().filter(|m| m.service_ns > 0) {
            let changes = &mut changes[monotask.resource as usize];
            changes.push((monotask.started_ns(), 1));
            changes.push((monotask.ended_ns(), -1));
        }
        for (ix, (resource, mut changes)) in self.resources.iter().zip(changes).enumerate() {
            let Some(most) = resource.concurrency else {
                continue;
            };
            // At the same instant ends come first: the place is free for the next.
            changes.sort_unstable();
            let mut running = 0_i64;
            for (at_ns, change) in changes {
                running += i64::from(change);
                broken.unless(
                    running <= i64::from(most),
                    "nothing runs above a resource's concurrency",
                    || {
                        let name = &resource.name;
                        format!("resource {ix} ({name}), {running} of {most} at {at_ns} ns")
                    },
                );
            }
        }
    }

    fn check_other_events(&self, broken: &mut Broken) {
        for (ix, task) in self.pipelined_tasks.iter().enumerate() {
            let what = || format!("pipelined task {ix}");
            broken.unless(
                self.stages[task.stage as usize].submitted_ns <= task.launched_ns,
                "a task is launched no sooner than its stage is submitted",
                what,
            );
            let blocked = [
                task.blocked_network,
                task.blocked_input,
                task.blocked_shuffle_read,
                task.blocked_shuffle_write,
                task.blocked_spill,
                task.blocked_output,
                task.gc,
                task.scheduler,
                task.deserialize,
            ];
            let ns_of = |blocked: &Blocked| match blocked {
                Blocked::MeasuredNs(ns) | Blocked::AtMostNs(ns) => *ns,
            };
            let parts = [
                task.run_ns,
                task.scan_ns,
                task.commit_ns,
                task.decode_ns,
                task.queue_ns,
                task.result_serialize_ns,
                task.getting_result_ns,
            ];
            let mut times = blocked.iter().flatten().map(ns_of).chain(parts.into_iter().flatten());
            broken.unless(
                times.all(|ns| ns <= task.duration_ns),
                "the times of a task are within its duration",
                what,
            );
            broken.unless(
                (task.failure.is_none() && task.error.is_none()) || !task.outcome.is_ok(),
                "a task that ended well has no failure",
                what,
            );
        }
        for (ix, task) in self.sampled_tasks.iter().enumerate() {
            broken.unless(task.weight.is_finite() && task.weight >= 1.0, "a weight is at least 1", || {
                format!("sampled task {ix}")
            });
        }
        for (ix, exchange) in self.exchanges.iter().enumerate() {
            let what = || format!("exchange {ix}");
            broken.unless(exchange.messages > 0, "an exchange is of one message or more", what);
            let link = self.resources.get(exchange.resource as usize);
            broken.unless(
                link.is_some_and(|link| link.kind == kind::NETWORK),
                "an exchange crosses a link",
                what,
            );
        }
        for (ix, operation) in self.storage_operations.iter().enumerate() {
            let what = || format!("storage operation {ix}");
            let first = operation.first_byte_ns;
            broken.unless(
                first.is_none_or(|ns| ns <= operation.duration_ns),
                "the first byte comes before the end",
                what,
            );
            broken.unless(operation.concurrency != Some(0), "an operation counts itself as running", what);
            broken.unless(
                operation.error.is_none() || !operation.outcome.is_ok(),
                "an operation that ended well has no error",
                what,
            );
        }
        for (ix, change) in self.concurrency_changes.iter().enumerate() {
            broken.unless(change.concurrency > 0, "a concurrency is at least 1", || {
                format!("concurrency change {ix}")
            });
        }
        for (ix, sample) in self.utilization_samples.iter().enumerate() {
            broken.unless(
                sample.interval_ns > 0 && sample.interval_ns <= sample.at_ns,
                "a sample's interval is over zero and begins after the origin",
                || format!("utilization sample {ix}"),
            );
        }
    }

    /// A monotask, as someone looks for it in the file.
    fn named(&self, monotask: &Monotask) -> String {
        format!(
            "{:?} monotask of multitask {} on resource {}, queued at {} ns",
            monotask.phase, monotask.multitask, monotask.resource, monotask.queued_ns
        )
    }
}
