//! The span model: a job's time as the sum over spans of the largest limit.
//!
//! A span is the time between two consecutive instants at which some stage of the job starts or ends its
//! service. The crate documentation explains why spans are summed and not stages. The analysis and the
//! analytic prediction differ in how they compute the limit of a kind within a span; cutting a job into
//! spans, summing the maxima and choosing the bottleneck are the same, and are done here.

use std::collections::BTreeMap;

use pellucid_trace::Trace;

use super::demand::{Demand, Demands};
use crate::index::{JobIx, ResourceIx};

/// Share of the modelled time within which the savings of two kinds count as equal. Otherwise a kind that
/// matters for a hundredth of the job would be its bottleneck whenever two large ones balance.
const TIE: f64 = 0.02;

/// Share of a job's time that ideal times must explain for a resource to limit it. Below it, the job
/// mostly did not use resources.
const EXPLAINED: f64 = 0.5;

/// Returns true if ideal times of `modelled` explain enough of a time for a resource to be its limit.
pub(crate) fn explained(modelled: f64, time: f64) -> bool {
    modelled >= EXPLAINED * time
}

/// The instants at which a stage of a job starts or ends its service, ascending. Not empty.
pub(crate) struct Cuts(Vec<u64>);

/// A part of a demand within one span.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub span: usize,
    /// Start and end of the span.
    pub from_ns: u64,
    pub until_ns: u64,
}

impl Cuts {
    /// Cuts a job into spans; `None` for a job without demands.
    pub fn of(demands: &Demands, job: JobIx) -> Option<Cuts> {
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
        (!cuts.is_empty()).then_some(Cuts(cuts))
    }

    /// Returns the number of spans: at least one, which has no length if all demands are instants.
    pub fn spans(&self) -> usize {
        (self.0.len() - 1).max(1)
    }

    /// Divides a demand over the spans that it overlaps. An instant is within one span.
    pub fn parts(&self, demand: &Demand) -> impl Iterator<Item = Part> {
        let (cuts, start_ns, end_ns) = (&self.0, demand.start_ns, demand.end_ns);
        let first = cuts.partition_point(|c| *c <= start_ns).saturating_sub(1).min(self.spans() - 1);
        let overlaps = move |span: &usize| *span == first || cuts[*span] < end_ns;
        (first..self.spans()).take_while(overlaps).map(move |span| Part {
            span,
            from_ns: cuts[span],
            until_ns: cuts.get(span + 1).copied().unwrap_or(end_ns),
        })
    }
}

/// The resources that a kind's capacity is summed over, by kind.
///
/// Computing can run on any core, so all cores count, used or not. Bytes are fixed to a disk: a disk that
/// holds none of the job's bytes could not have helped, and does not count. A registered kind that the
/// job did not use is present without members: its use was measured as zero.
pub(crate) type Members<'t> = BTreeMap<&'t str, Vec<ResourceIx>>;

/// Returns the members for a job that used some resources.
pub(crate) fn members<'t>(
    trace: &'t Trace,
    demands: &Demands,
    used: impl Fn(ResourceIx) -> bool,
) -> Members<'t> {
    let mut members = Members::new();
    for (ix, resource) in demands.opaque.indices().zip(&trace.resources) {
        if demands.opaque[ix] {
            continue;
        }
        let of_kind = members.entry(resource.kind.as_str()).or_default();
        if demands.timed[ix] || used(ix) {
            of_kind.push(ix);
        }
    }
    members
}

/// The limits of each kind, by span, in nanoseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Limits<'k> {
    pub spans: Vec<BTreeMap<&'k str, f64>>,
    /// The limit of each kind over all spans. Kinds with a limit of 0 are not bottlenecks; the largest limit
    /// decides among equal savings.
    pub whole: BTreeMap<&'k str, f64>,
}

/// Returns the kind with the largest limit, except for those in `without`, and its limit.
pub(crate) fn largest<'k>(span: &BTreeMap<&'k str, f64>, without: &[&str]) -> Option<(&'k str, f64)> {
    let left = span.iter().filter(|(kind, _)| !without.contains(*kind));
    left.map(|(kind, ns)| (*kind, *ns)).max_by(|a, b| a.1.total_cmp(&b.1))
}

impl<'k> Limits<'k> {
    /// Returns the modelled time without some kinds (§6.5: excluded from the maximum).
    pub fn modelled_ns(&self, without: &[&str]) -> f64 {
        self.spans.iter().filter_map(|span| largest(span, without)).map(|(_, ns)| ns).sum()
    }

    /// Returns the kind whose removal lowers the modelled time most, with those in `without` already
    /// removed. Among equals, returns the one with the largest limit.
    pub fn bottleneck(&self, without: &[&str]) -> Option<&'k str> {
        let modelled = self.modelled_ns(without);
        let kinds = self.whole.iter().filter(|(kind, ns)| **ns > 0.0 && !without.contains(*kind));
        let savings: Vec<(&str, f64, f64)> = kinds
            .map(|(kind, ns)| (*kind, modelled - self.modelled_ns(&[without, &[*kind]].concat()), *ns))
            .collect();
        let most = savings.iter().map(|(_, saving, _)| *saving).fold(0.0, f64::max);
        let equal = savings.iter().filter(|(_, saving, _)| *saving >= most - TIE * modelled);
        equal.max_by(|a, b| a.2.total_cmp(&b.2)).map(|(kind, ..)| *kind)
    }
}
