//! The analytic predictor (monotasks-sosp17 §6.1 and §6.2): the sum over spans of the largest ideal time.
//! A prediction scales the measured time by the sum after the change over the sum before.
//!
//! Changes only scale sums, so the sums are computed once and a prediction takes time linear in the
//! number of spans. Spans, members and the choice of the bottleneck are those of the analysis
//! ([`crate::monotasks::spans`]). The sums differ from its ideal times: they are kept apart by what a change can
//! remove or move, and use the rates of the simulation.

use std::collections::BTreeMap;

use pellucid_trace::{Monotask, Phase, Trace, kind, union_ns};

use super::scenario::{OtherStorage, Terms};
use crate::analysis::Bottleneck;
use crate::index::{Ix, JobIx, ResourceIx, Table};
use crate::monotasks::capacity::Capacity;
use crate::monotasks::demand::{Demand, Demands, brings_in};
use crate::monotasks::spans::{Cuts, Limits, Members, Part, members};
use crate::numbers::ratio;

/// Demands on one resource within a span, by the changes that affect them.
#[derive(Debug, Clone, Copy, Default)]
struct Load {
    /// Reads and fetches of input.
    input: f64,
    /// Decoding.
    decode: f64,
    /// Demands that any resource of the kind could have served.
    movable: f64,
    /// Writes of output.
    output: f64,
    /// The rest.
    fixed: f64,
}

/// A class of demand: a field of [`Load`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Input,
    Movable,
    Output,
    Fixed,
}

/// A resource as used by the sums.
#[derive(Debug, Clone)]
struct Resource<'t> {
    name: &'t str,
    /// Per nanosecond; 1 where busy time stands for ideal time.
    rate: f64,
}

/// All jobs of a trace as sums.
#[derive(Debug, Clone)]
pub(crate) struct Analytic<'t> {
    resources: Table<ResourceIx, Resource<'t>>,
    machines: f64,
    spans: Vec<Span>,
    members: Table<JobIx, Members<'t>>,
}

/// The demands of a job within one span.
#[derive(Debug, Clone, Default)]
struct Span {
    job: JobIx,
    loads: BTreeMap<ResourceIx, Load>,
    /// Bytes of input (including cached ones) and of output, wherever they are stored.
    input: f64,
    output: f64,
}

/// The limits under changes, and for each kind the resource that takes longest.
struct Changed<'k> {
    limits: Limits<'k>,
    /// The resource, and the largest limit of a span.
    largest: BTreeMap<&'k str, (ResourceIx, f64)>,
}

impl<'t> Analytic<'t> {
    /// Sums a trace's demands.
    pub fn of(trace: &'t Trace, demands: &Demands, capacities: &Table<ResourceIx, Capacity>) -> Analytic<'t> {
        let resources = trace.resources.iter().zip(capacities);
        let mut analytic = Analytic {
            resources: resources
                .map(|(r, c)| Resource { name: &r.name, rate: c.rate.unwrap_or(1.0) })
                .collect(),
            machines: trace.machines.len().max(1) as f64,
            spans: Vec::new(),
            members: Table::default(),
        };
        for job in (0..trace.jobs.len()).map(JobIx::new) {
            analytic.add_job(trace, demands, capacities, job);
        }
        analytic
    }

    fn add_job(
        &mut self,
        trace: &'t Trace,
        demands: &Demands,
        capacities: &Table<ResourceIx, Capacity>,
        job: JobIx,
    ) {
        let Some(cuts) = Cuts::of(demands, job) else { return };
        let mut spans = vec![Span { job: JobIx::new(self.members.len()), ..Span::default() }; cuts.spans()];
        let mut busy: BTreeMap<(usize, ResourceIx, Class), Vec<(u64, u64)>> = BTreeMap::new();
        for demand in demands.of_job(job) {
            let monotask = demands.monotask(demand);
            let class = Class::of(trace, demand, monotask);
            let decode = monotask.decode_ns.filter(|_| demands.on_cores(demand)).unwrap_or(0) as f64;
            let decode = (decode / monotask.service_ns.max(1) as f64).min(1.0);
            for Part { span: ix, from_ns, until_ns } in cuts.parts(demand) {
                let span = &mut spans[ix];
                let amount = demand.within(from_ns, until_ns);
                match class {
                    Class::Input if demand.own => span.input += amount,
                    Class::Output if demand.own => span.output += amount,
                    _ if demands.on_cores(demand) => {
                        let share = ratio(amount, demand.amount).unwrap_or(1.0);
                        span.input += monotask.cached_bytes.unwrap_or(0) as f64 * share;
                    }
                    _ => {}
                }
                let load = span.loads.entry(demand.resource).or_default();
                if capacities[demand.resource].rate.is_none() {
                    let part = (demand.start_ns.max(from_ns), demand.end_ns.min(until_ns));
                    busy.entry((ix, demand.resource, class)).or_default().push(part);
                } else {
                    load.add(class, amount, decode);
                }
            }
        }
        for ((span, resource, class), parts) in busy {
            spans[span].loads.entry(resource).or_default().add(class, union_ns(parts) as f64, 0.0);
        }
        let mut members = members(trace, demands, |ix| spans.iter().any(|span| span.loads.contains_key(&ix)));
        members.retain(|_, of_kind| !of_kind.is_empty());
        self.members.push(members);
        self.spans.extend(spans);
    }

    /// Returns the modelled time under changes.
    pub fn modelled_ns(&self, terms: &Terms) -> f64 {
        self.changed(terms).limits.modelled_ns(&[])
    }

    /// Returns the share of the modelled time under changes for which the job waits only for cores.
    pub fn share_of_cores(&self, terms: &Terms) -> f64 {
        let limits = self.changed(terms).limits;
        1.0 - ratio(limits.modelled_ns(&[kind::CPU]), limits.modelled_ns(&[])).unwrap_or(1.0)
    }

    /// Returns the modelled time under changes, and the bottleneck, chosen as in the analysis.
    pub fn modelled(&self, terms: &Terms) -> (f64, Option<Bottleneck>) {
        let changed = self.changed(terms);
        let bottleneck = changed.limits.bottleneck(&[]).map(|kind| {
            let storage = terms.storage.as_ref().filter(|e| e.kind == kind);
            let name =
                storage.map_or_else(|| self.resources[changed.largest[kind].0].name, |e| e.name.as_str());
            Bottleneck { kind: kind.to_owned(), name: Some(name.to_owned()) }
        });
        (changed.limits.modelled_ns(&[]), bottleneck)
    }

    /// Applies changes to the limits of every span.
    fn changed<'k>(&'k self, terms: &Terms) -> Changed<'k> {
        let mut changed = Changed { limits: Limits::default(), largest: BTreeMap::new() };
        for span in &self.spans {
            let mut limits: BTreeMap<&str, f64> = BTreeMap::new();
            if let Some(e) = &terms.storage {
                let ns = self.storage_ns(e, span, terms);
                limits.insert(e.kind, ns);
                *changed.limits.whole.entry(e.kind).or_insert(0.0) += ns;
                changed.largest.entry(e.kind).or_insert((ResourceIx(0), 0.0));
            }
            for (&kind, members) in &self.members[span.job] {
                let (ns, largest) = self.limit_ns(span, kind, members, terms);
                let limit = limits.entry(kind).or_insert(0.0);
                *limit = limit.max(ns);
                *changed.limits.whole.entry(kind).or_insert(0.0) += ns;
                let longest = changed.largest.entry(kind).or_insert((largest, 0.0));
                if ns > longest.1 {
                    *longest = (largest, ns);
                }
            }
            changed.limits.spans.push(limits);
        }
        changed
    }

    /// Returns the time to move input and output at their new storage.
    fn storage_ns(&self, e: &OtherStorage, span: &Span, terms: &Terms) -> f64 {
        if terms.free[e.resource] {
            return 0.0;
        }
        let input = if terms.no_input { 0.0 } else { span.input };
        let faster = terms.faster[e.resource] * self.machines * terms.machines;
        (input / e.read + span.output / e.write) * terms.scale / faster
    }

    /// Returns a kind's limit within a span, and the resource that takes longest.
    fn limit_ns(&self, span: &Span, kind: &str, members: &[ResourceIx], terms: &Terms) -> (f64, ResourceIx) {
        let crossing = if kind == kind::NETWORK { terms.crossing } else { 1.0 };
        let (mut amount, mut rates, mut fixed_ns, mut largest) = (0.0, 0.0, 0.0, (-1.0, members[0]));
        for ix in members {
            let rate = self.resources[*ix].rate * terms.faster.get(*ix).copied().unwrap_or(1.0);
            rates += rate;
            let free = terms.free.get(*ix).copied().unwrap_or(false);
            let Some(load) = span.loads.get(ix).filter(|_| !free) else { continue };
            let (all, fixed) = load.under(terms);
            amount += all * crossing;
            fixed_ns = f64::max(fixed_ns, fixed * crossing / rate);
            if all / rate > largest.0 {
                largest = (all / rate, *ix);
            }
        }
        rates *= terms.machines;
        fixed_ns /= terms.machines;
        if let Some(disks) = terms.disks.filter(|_| kind == kind::DISK) {
            // The bytes then lie evenly on that many disks of the same kind.
            rates = rates / members.len() as f64 * disks as f64 * self.machines;
            fixed_ns = 0.0;
        }
        let ideal_ns = ratio(amount, rates).unwrap_or(0.0);
        (ideal_ns.max(fixed_ns), largest.1)
    }
}

impl Class {
    fn of(trace: &Trace, demand: &Demand, monotask: &Monotask) -> Class {
        let on = trace.resources.get(monotask.resource as usize);
        let is_store = on.is_some_and(|r| r.kind == kind::STORE);
        match monotask.phase {
            phase if brings_in(phase) && (phase == Phase::Read || is_store) => Class::Input,
            _ if demand.movable => Class::Movable,
            Phase::Write => Class::Output,
            _ => Class::Fixed,
        }
    }
}

impl Load {
    fn add(&mut self, class: Class, amount: f64, decode: f64) {
        self.decode += amount * decode;
        let rest = amount * (1.0 - decode);
        match class {
            Class::Input => self.input += rest,
            Class::Movable => self.movable += rest,
            Class::Output => self.output += rest,
            Class::Fixed => self.fixed += rest,
        }
    }

    /// Returns all of the load under changes, and the part that cannot move to another resource.
    fn under(&self, terms: &Terms) -> (f64, f64) {
        let storage = terms.storage.is_some();
        let input = if terms.no_input || storage { 0.0 } else { self.input };
        let output = if storage { 0.0 } else { self.output };
        let decode = if terms.no_decode { 0.0 } else { self.decode };
        let fixed = (input + output + self.fixed) * terms.scale;
        (fixed + (decode + self.movable) * terms.scale, fixed)
    }
}
