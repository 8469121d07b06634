//! Checks the invariants of the format on a complete trace.
//!
//! The reader and [`Trace::push`] already reject records that would make a trace
//! meaningless (an unregistered index). The checks here compare records with each
//! other: times are in order, parts are within their whole, and a resource's
//! concurrency is not exceeded. A violation is a defect of the producer, not of
//! the job; producers run these checks in their tests, and `analyze --check`
//! prints violations.
//!
//! Times are compared exactly, since all come from one monotonic clock. Core time
//! comes from another clock and gets a tolerance.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;

use crate::record::*;
use crate::trace::{Registered, Trace};

/// Maximum number of violations reported per invariant; the rest are counted.
const MAX_CASES: usize = 5;

/// A collection of violations, with few cases per invariant.
#[derive(Default)]
struct Violations {
    messages: Vec<String>,
    cases: HashMap<&'static str, usize>,
}

impl Violations {
    /// Reports that `what` violates `invariant`, unless `holds`.
    fn unless<W: Display>(&mut self, holds: bool, invariant: &'static str, what: impl Fn() -> W) {
        if holds {
            return;
        }
        let cases = self.cases.entry(invariant).or_default();
        *cases += 1;
        if *cases <= MAX_CASES {
            self.messages.push(format!("{}: {invariant}", what()));
        }
    }

    fn into_messages(mut self) -> Vec<String> {
        let mut more: Vec<_> = self.cases.into_iter().filter(|c| c.1 > MAX_CASES).collect();
        more.sort();
        let more = more.into_iter().map(|(invariant, cases)| {
            let rest = cases - MAX_CASES;
            format!("{rest} more violations of: {invariant}")
        });
        self.messages.extend(more);
        self.messages
    }
}

impl Trace {
    /// Returns a message for each violation of the invariants in `docs/trace-format.md`; empty for a
    /// valid trace.
    pub fn check(&self) -> Vec<String> {
        let mut violations = Violations::default();
        self.check_indices(&mut violations);
        if !violations.messages.is_empty() {
            return violations.into_messages(); // the other checks look up entities by index
        }
        self.check_whole(&mut violations);
        self.check_resources(&mut violations);
        self.check_stages(&mut violations);
        self.check_queries(&mut violations);
        self.check_multitasks(&mut violations);
        self.check_monotasks(&mut violations);
        self.check_operators(&mut violations);
        self.check_query_operators(&mut violations);
        self.check_stacks(&mut violations);
        self.check_order(&mut violations);
        self.check_concurrency(&mut violations);
        self.check_other_events(&mut violations);
        violations.into_messages()
    }

    /// Checks all indices. [`Trace::push`] does so, too, but callers can bypass it since the fields are
    /// public.
    fn check_indices(&self, violations: &mut Violations) {
        let mut again = Registered::default();
        let mut see = |record: Record| {
            let fits = again.admits(&record);
            violations.unless(fits.is_ok(), "every index is registered before its use", || {
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
        self.operators.iter().for_each(|r| see(Record::Operator(r.clone())));
        self.query_operators.iter().for_each(|r| see(Record::QueryOperator(r.clone())));
        self.stacks.iter().for_each(|r| see(Record::Stack(r.clone())));
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

    /// Checks the first and last record, and that no record between them is missing.
    fn check_whole(&self, violations: &mut Violations) {
        let trace = || "trace";
        violations.unless(self.header.is_some(), "begins with a header", trace);
        if let Some(end) = &self.end
            && self.warnings.is_empty()
        {
            let (says, has) = (end.records, self.records());
            violations.unless(says == has, "the end counts all records before it", || {
                format!("the end counts {says} records, the trace has {has}")
            });
        }
    }

    fn check_resources(&self, violations: &mut Violations) {
        for (ix, resource) in self.resources.iter().enumerate() {
            let what = || format!("resource {ix} ({})", resource.name);
            let capacity = resource.capacity;
            violations.unless(
                capacity.is_none_or(|c| c.is_finite() && c > 0.0),
                "a capacity is positive",
                what,
            );
            violations.unless(
                capacity.is_none() || resource.capacity_from.is_some(),
                "a capacity has a source (`capacity_from`)",
                what,
            );
            violations.unless(resource.concurrency != Some(0), "a concurrency is at least 1", what);
            violations.unless(
                resource
                    .concurrency_min
                    .is_none_or(|min| min >= 1 && resource.concurrency.is_none_or(|max| min <= max)),
                "`concurrency_min` is between 1 and `concurrency`",
                what,
            );
            let (added, removed) = (resource.added_ns, resource.removed_ns);
            violations.unless(
                removed.is_none_or(|removed| added.unwrap_or(0) <= removed),
                "a resource is removed after it was added",
                what,
            );
            let link = resource.link.map(|link| &self.resources[link as usize]);
            violations.unless(
                link.is_none_or(|link| link.kind == kind::NETWORK),
                "a link is a resource of kind `network`",
                what,
            );
        }
    }

    /// Checks the order of stages and jobs, and that each ends at most once.
    fn check_stages(&self, violations: &mut Violations) {
        for (ix, stage) in self.stages.iter().enumerate() {
            let what = || format!("stage {ix}");
            let submitted_ns = |job: JobIx| self.jobs[job as usize].submitted_ns;
            let before = |after: &StageIx| {
                let job = self.stages[*after as usize].job;
                job == stage.job || submitted_ns(job) <= submitted_ns(stage.job)
            };
            violations.unless(
                stage.after.iter().all(before),
                "a stage depends only on stages of the same job or an earlier one",
                what,
            );
            violations.unless(
                self.jobs[stage.job as usize].submitted_ns <= stage.submitted_ns,
                "a stage is not submitted before its job",
                what,
            );
        }
        let mut ended = vec![false; self.stages.len()];
        for end in &self.stage_ends {
            let ix = end.stage as usize;
            let what = || format!("stage {ix}");
            let first = !std::mem::replace(&mut ended[ix], true);
            violations.unless(first, "a stage ends once", what);
            violations.unless(
                self.stages[ix].submitted_ns <= end.ended_ns,
                "a stage ends after it is submitted",
                what,
            );
            violations.unless(
                end.error.is_none() || !end.outcome.is_ok(),
                "a successful stage has no error",
                what,
            );
        }
        let mut job_ended = vec![false; self.jobs.len()];
        for end in &self.job_ends {
            let ix = end.job as usize;
            let what = || format!("job {ix}");
            let first = !std::mem::replace(&mut job_ended[ix], true);
            violations.unless(first, "a job ends once", what);
            violations.unless(
                self.jobs[ix].submitted_ns <= end.ended_ns,
                "a job ends after it is submitted",
                what,
            );
            violations.unless(
                end.error.is_none() || !end.outcome.is_ok(),
                "a successful job has no error",
                what,
            );
            if let Some(peak) = &end.peak {
                let held: u64 = peak.held_by.iter().fold(0, |sum, held| sum.saturating_add(held.bytes));
                violations.unless(held <= peak.bytes, "what holds a peak is not more than it", what);
            }
        }
    }

    /// Checks the application and its queries.
    fn check_queries(&self, violations: &mut Violations) {
        if let Some(application) = &self.application {
            let (started, ended) = (application.started_ns, application.ended_ns);
            violations.unless(
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
            violations.unless(first, "a query ends once", what);
            violations.unless(
                self.queries[ix].submitted_ns <= end.ended_ns,
                "a query ends after it is submitted",
                what,
            );
            violations.unless(
                end.error.is_none() || !end.outcome.is_ok(),
                "a successful query has no error",
                what,
            );
        }
    }

    fn check_multitasks(&self, violations: &mut Violations) {
        for (ix, multitask) in self.multitasks.iter().enumerate() {
            let submitted_ns = self.stages[multitask.stage as usize].submitted_ns;
            violations.unless(
                submitted_ns <= multitask.admitted_ns,
                "a multitask is not admitted before its stage is submitted",
                || format!("multitask {ix}"),
            );
        }
    }

    /// Checks each monotask on its own.
    fn check_monotasks(&self, violations: &mut Violations) {
        for monotask in &self.monotasks {
            let what = || self.named(monotask);
            let compute = monotask.phase == Phase::Compute;
            let service_ns = monotask.service_ns;
            let sum = monotask.queued_ns.checked_add(monotask.queue_ns);
            violations.unless(
                sum.and_then(|s| s.checked_add(service_ns)).is_some(),
                "times fit into 64 bits",
                what,
            );
            violations.unless(
                self.multitasks[monotask.multitask as usize].admitted_ns <= monotask.queued_ns,
                "a monotask is not queued before its multitask is admitted",
                what,
            );
            let moves = [kind::DISK, kind::NETWORK, kind::STORE];
            let resource_kind = self.resources[monotask.resource as usize].kind.as_str();
            violations.unless(
                !(compute && moves.contains(&resource_kind) || !compute && resource_kind == kind::CPU),
                "the compute phase, and no other phase, runs on cores",
                what,
            );
            let parts = [monotask.decode_ns, monotask.operator_ns, monotask.encode_ns, monotask.not_split_ns];
            violations.unless(
                compute || parts.iter().all(Option::is_none) && monotask.cached_bytes.is_none(),
                "only the compute phase has parts and cached bytes",
                what,
            );
            let within_ns = service_ns.saturating_add(1_000_000 + service_ns / 100);
            let total = parts[..3].iter().flatten();
            violations.unless(
                total.fold(0, |sum: u64, part| sum.saturating_add(*part)) <= within_ns
                    && monotask.not_split_ns.is_none_or(|ns| ns <= within_ns),
                "the parts are within the service time (plus 1 % and 1 ms)",
                what,
            );
            violations.unless(
                monotask.cpu_ns.is_none_or(|ns| ns <= within_ns),
                "core time is within service time (plus 1 % and 1 ms)",
                what,
            );
            violations.unless(
                !compute || monotask.device_bytes.unwrap_or(0) == 0,
                "a compute monotask moves no device bytes",
                what,
            );
        }
    }

    /// Checks the operators of queries against each other.
    fn check_query_operators(&self, violations: &mut Violations) {
        let mut fragments: HashMap<(u32, u32), u32> = HashMap::new();
        for operator in &self.query_operators {
            let what =
                || format!("operator {} of query {} ({})", operator.operator, operator.query, operator.name);
            let fragment_of = |number: &u32| fragments.get(&(operator.query, *number)).copied();
            violations.unless(
                operator
                    .inputs
                    .iter()
                    .all(|input| fragment_of(input).is_some_and(|of| of <= operator.fragment)),
                "the inputs of a query's operator are before it, in no later fragment",
                what,
            );
            violations.unless(
                operator.within.is_none_or(|within| fragment_of(&within) == Some(operator.fragment)),
                "a query's operator is within one before it, in its fragment",
                what,
            );
            let first = fragments.insert((operator.query, operator.operator), operator.fragment).is_none();
            violations.unless(first, "an operator's number is unique in its query", what);
        }
    }

    /// Checks that stacks were sampled, in operators of their stage.
    fn check_stacks(&self, violations: &mut Violations) {
        let operators: HashSet<_> = self.operators.iter().map(|o| (o.stage, o.operator)).collect();
        // The operators of a stage that did not end are not recorded.
        let recorded: HashSet<StageIx> = self.operators.iter().map(|o| o.stage).collect();
        for stack in &self.stacks {
            let what = || format!("stack of stage {}", stack.stage);
            violations.unless(
                stack.count > 0 && !stack.frames.is_empty(),
                "a stack has a count and functions",
                what,
            );
            let known = |operator| operators.contains(&(stack.stage, operator));
            violations.unless(
                !recorded.contains(&stack.stage) || stack.operator.is_none_or(known),
                "the operator of a stack is one of its stage",
                what,
            );
        }
    }

    /// Checks operators against each other, and against the core time of their stage.
    fn check_operators(&self, violations: &mut Violations) {
        let mut stages: HashMap<(u32, u32), u32> = HashMap::new();
        let mut core_ns: HashMap<u32, u64> = HashMap::new();
        for operator in &self.operators {
            let what =
                || format!("operator {} of stage {} ({})", operator.operator, operator.stage, operator.name);
            let job = self.stages[operator.stage as usize].job;
            let known = |number: &u32| stages.get(&(job, *number)) == Some(&operator.stage);
            violations.unless(
                operator.inputs.iter().all(known),
                "an operator's inputs are operators of its stage before it",
                what,
            );
            violations.unless(
                operator.max_cpu_ns <= operator.cpu_ns,
                "the core time in one monotask is part of an operator's core time",
                what,
            );
            let of_columns = operator.columns.iter().map(|column| column.cpu_ns);
            let of_expressions = operator.expressions.iter().map(|expression| expression.cpu_ns);
            violations.unless(
                of_columns.chain(of_expressions).fold(0, u64::saturating_add) <= operator.cpu_ns,
                "the core time of columns and expressions is part of an operator's core time",
                what,
            );
            let first = stages.insert((job, operator.operator), operator.stage).is_none();
            violations.unless(first, "an operator's number is unique in its job", what);
            let sum = core_ns.entry(operator.stage).or_default();
            *sum = sum.saturating_add(operator.cpu_ns);
        }
        let mut computed: HashMap<u32, u64> = HashMap::new();
        for monotask in self.monotasks.iter().filter(|m| m.phase == Phase::Compute) {
            let stage = self.multitasks[monotask.multitask as usize].stage;
            // Without a measured core time there is nothing to compare with.
            let sum = computed.entry(stage).or_default();
            *sum = sum.saturating_add(monotask.cpu_ns.unwrap_or(u64::MAX));
        }
        for (stage, sum) in core_ns {
            let whole = computed.get(&stage).copied().unwrap_or(0);
            let tolerance_ns = 1_000_000 + whole / 100;
            violations.unless(
                sum <= whole.saturating_add(tolerance_ns),
                "operators use no more core time than their stage (plus 1 % and 1 ms)",
                || format!("stage {stage}"),
            );
        }
    }

    /// Checks events against the ends of their stages and jobs, if both succeeded:
    /// work may continue after a failure, a cancellation or a limit.
    fn check_order(&self, violations: &mut Violations) {
        let mut stage_ended: Vec<Option<u64>> = vec![None; self.stages.len()];
        for end in self.stage_ends.iter().filter(|end| end.outcome.is_ok()) {
            stage_ended[end.stage as usize] = Some(end.ended_ns);
        }
        for monotask in self.monotasks.iter().filter(|m| m.outcome.is_ok()) {
            let stage_ix = self.multitasks[monotask.multitask as usize].stage as usize;
            violations.unless(
                stage_ended[stage_ix].is_none_or(|ended| monotask.ended_ns() <= ended),
                "a monotask ends no later than its stage",
                || self.named(monotask),
            );
        }
        for (ix, multitask) in self.multitasks.iter().enumerate() {
            let after = &self.stages[multitask.stage as usize].after;
            let last_ended = after.iter().filter_map(|a| stage_ended[*a as usize]).max();
            violations.unless(
                last_ended.is_none_or(|ended| ended <= multitask.admitted_ns),
                "a multitask is admitted after the stages that its stage depends on have ended",
                || format!("multitask {ix}"),
            );
        }
        for end in self.job_ends.iter().filter(|end| end.outcome.is_ok()) {
            for (ix, stage) in self.stages.iter().enumerate() {
                violations.unless(
                    stage.job != end.job || stage_ended[ix].is_none_or(|ns| ns <= end.ended_ns),
                    "a stage ends no later than its job",
                    || format!("stage {ix}"),
                );
            }
        }
    }

    /// Checks that no more service intervals of a resource overlap than its concurrency allows.
    fn check_concurrency(&self, violations: &mut Violations) {
        let mut changes: Vec<Vec<(u64, i32)>> = vec![Vec::new(); self.resources.len()];
        for monotask in self.monotasks.iter().filter(|m| m.service_ns > 0) {
            let changes = &mut changes[monotask.resource as usize];
            changes.push((monotask.started_ns(), 1));
            changes.push((monotask.ended_ns(), -1));
        }
        for (ix, (resource, mut changes)) in self.resources.iter().zip(changes).enumerate() {
            let Some(limit) = resource.concurrency else {
                continue;
            };
            // At the same instant, ends sort before starts, so a slot is free for the next monotask.
            changes.sort_unstable();
            let mut running = 0_i64;
            for (at_ns, change) in changes {
                running += i64::from(change);
                violations.unless(
                    running <= i64::from(limit),
                    "a resource's concurrency is not exceeded",
                    || {
                        let name = &resource.name;
                        format!("resource {ix} ({name}), {running} of {limit} at {at_ns} ns")
                    },
                );
            }
        }
    }

    fn check_other_events(&self, violations: &mut Violations) {
        for (ix, task) in self.pipelined_tasks.iter().enumerate() {
            let what = || format!("pipelined task {ix}");
            violations.unless(
                self.stages[task.stage as usize].submitted_ns <= task.launched_ns,
                "a task is not launched before its stage is submitted",
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
            violations.unless(
                times.all(|ns| ns <= task.duration_ns),
                "the times of a task are within its duration",
                what,
            );
            violations.unless(
                (task.failure.is_none() && task.error.is_none()) || !task.outcome.is_ok(),
                "a successful task has no failure",
                what,
            );
        }
        for (ix, task) in self.sampled_tasks.iter().enumerate() {
            violations.unless(
                task.weight.is_finite() && task.weight >= 1.0,
                "a weight is at least 1",
                || format!("sampled task {ix}"),
            );
        }
        for (ix, exchange) in self.exchanges.iter().enumerate() {
            let what = || format!("exchange {ix}");
            violations.unless(exchange.messages > 0, "an exchange has at least one message", what);
            let link = self.resources.get(exchange.resource as usize);
            violations.unless(
                link.is_some_and(|link| link.kind == kind::NETWORK),
                "an exchange crosses a link",
                what,
            );
        }
        for (ix, operation) in self.storage_operations.iter().enumerate() {
            let what = || format!("storage operation {ix}");
            let first = operation.first_byte_ns;
            violations.unless(
                first.is_none_or(|ns| ns <= operation.duration_ns),
                "the first byte comes before the end",
                what,
            );
            violations.unless(
                operation.concurrency != Some(0),
                "an operation's concurrency includes itself",
                what,
            );
            violations.unless(
                operation.error.is_none() || !operation.outcome.is_ok(),
                "a successful operation has no error",
                what,
            );
        }
        for (ix, change) in self.concurrency_changes.iter().enumerate() {
            violations.unless(change.concurrency > 0, "a concurrency is at least 1", || {
                format!("concurrency change {ix}")
            });
        }
        for (ix, sample) in self.utilization_samples.iter().enumerate() {
            violations.unless(
                sample.interval_ns > 0 && sample.interval_ns <= sample.at_ns,
                "a sample's interval is positive and starts after the origin",
                || format!("utilization sample {ix}"),
            );
        }
    }

    /// Describes a monotask by the values that identify it in the file.
    fn named(&self, monotask: &Monotask) -> String {
        format!(
            "{:?} monotask of multitask {} on resource {}, queued at {} ns",
            monotask.phase, monotask.multitask, monotask.resource, monotask.queued_ns
        )
    }
}
