//! How a change of the rows that an operator emits reaches the operators above it.
//!
//! Each operator gets two factors: on its core time, which follows the rows that it takes, and on the rows that it emits.
//! The first is a rule for each kind of operator; the second is known only where the recorded numbers of rows bound it.
//! Where they do not, [`Reach`] chooses between its bounds and the likely value.

use std::collections::BTreeMap;

use pellucid_trace::Part;

use super::operators::exchanges;
use super::recorded::{Operator, Recorded};
use crate::index::{StageIx, Table};
use crate::numbers::ratio;

/// Difference between bounds that makes an operator's rows unknown.
const KNOWN: f64 = 0.02;

/// The extent of a change where the trace leaves it open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// As little as the recorded numbers of rows allow.
    Least,
    Likely,
    /// In proportion.
    Most,
}

/// Factors on the work of an operator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Factor {
    pub time: f64,
    pub rows: f64,
}

const SAME: Factor = Factor { time: 1.0, rows: 1.0 };

/// The rows that flow between operators, by their positions.
pub(crate) struct Flow<'r> {
    operators: &'r [Operator],
    inputs: Vec<Vec<usize>>,
    /// Rows that each emits or, for one that emits none, takes.
    rows: Vec<Option<f64>>,
    /// For each key filter, the outputs of stages that it is made from.
    keys: BTreeMap<usize, Vec<usize>>,
    /// For each probe side, whether a key filter drops the rows that match nothing.
    filtered: Vec<bool>,
    /// Multitasks of each stage.
    tasks: Table<StageIx, usize>,
}

impl<'r> Flow<'r> {
    pub fn of(recorded: &'r Recorded) -> Flow<'r> {
        let operators = &recorded.operators[..];
        let mut by_number: BTreeMap<(StageIx, u32), usize> = BTreeMap::new();
        let mut outputs: BTreeMap<StageIx, usize> = BTreeMap::new();
        let mut inputs: Vec<Vec<usize>> = Vec::with_capacity(operators.len());
        for (ix, operator) in operators.iter().enumerate() {
            let stage = operator.stage;
            // Only operators before it, so that a damaged trace has no circle.
            let own = operator.inputs.iter().filter_map(|number| by_number.get(&(stage, *number)).copied());
            let read = operator.from.and_then(|from| outputs.get(&from).copied());
            inputs.push(own.chain(read).collect());
            by_number.insert((stage, operator.number), ix);
            outputs.insert(stage, ix);
        }
        let mut rows: Vec<Option<f64>> = Vec::with_capacity(operators.len());
        for (operator, inputs) in operators.iter().zip(&inputs) {
            let taken = inputs.iter().map(|ix| rows[*ix]).sum::<Option<f64>>();
            rows.push(operator.rows.or(taken.filter(|_| !inputs.is_empty())));
        }
        let mut tasks = Table::filled(recorded.stages.len(), 0);
        recorded.tasks.iter().for_each(|task| tasks[task.stage] += 1);
        let filtered = vec![false; operators.len()];
        let mut flow = Flow { operators, inputs, rows, keys: BTreeMap::new(), filtered, tasks };
        flow.find_key_filters(recorded);
        flow
    }

    /// Finds the filters that build sides fill with their keys: below the probe side, in stages that wait for the one
    /// that is the build side.
    fn find_key_filters(&mut self, recorded: &Recorded) {
        for probe in 0..self.operators.len() {
            let [build, side] = self.inputs[probe][..] else { continue };
            if kind(&self.operators[probe].name) != "HashJoin" {
                continue;
            }
            let [built] = self.inputs[build][..] else { continue };
            let (Some(from), [output]) = (self.operators[built].from, &self.inputs[built][..]) else {
                continue;
            };
            let output = *output;
            let mut seen = vec![false; probe];
            let mut open = vec![side];
            while let Some(ix) = open.pop() {
                if std::mem::replace(&mut seen[ix], true) {
                    continue;
                }
                let operator = &self.operators[ix];
                let waits = recorded.stages[operator.stage].after.contains(&from) && output < ix;
                if waits && kind(&operator.name) == "KeyFilter" {
                    self.keys.entry(ix).or_default().push(output);
                    self.filtered[probe] = true;
                }
                // Keys pass joins on their probe side.
                let joins = operator.name.ends_with(" probe");
                open.extend(self.inputs[ix].iter().skip(usize::from(joins)));
            }
        }
    }

    /// Returns the factors of all operators if one emits `factor` times its rows.
    pub fn factors(&self, changed: usize, factor: f64, reach: Reach) -> Vec<Factor> {
        let mut factors = vec![SAME; self.operators.len()];
        for ix in 0..factors.len() {
            let mut of = self.factor(ix, &factors, reach);
            if ix == changed {
                of.rows *= factor;
            }
            factors[ix] = of;
        }
        factors
    }

    /// Returns the operators whose rows are the first that the trace does not tell.
    pub fn unknown(&self, changed: usize, factor: f64) -> Vec<usize> {
        let [least, most] = [Reach::Least, Reach::Most].map(|reach| self.factors(changed, factor, reach));
        let differs = |ix: usize| (least[ix].rows - most[ix].rows).abs() > KNOWN * most[ix].rows.max(1.0);
        let read = |ix: usize| {
            // Nothing reads the rows of the last stage's output.
            self.inputs.iter().any(|inputs| inputs.contains(&ix))
        };
        let first = |ix: usize| differs(ix) && !self.inputs[ix].iter().any(|input| differs(*input));
        (0..self.operators.len()).filter(|ix| first(*ix) && read(*ix)).collect()
    }

    fn factor(&self, ix: usize, factors: &[Factor], reach: Reach) -> Factor {
        let (operator, inputs) = (&self.operators[ix], &self.inputs[ix]);
        if inputs.is_empty() {
            return SAME;
        }
        let (out, takes) = (self.rows[ix], self.taken(inputs, factors));
        let given = Given { factor: takes.1, taken: takes.0, out, reach };
        let in_proportion = Factor { time: given.factor, rows: given.limited() };
        match kind(&operator.name) {
            _ if operator.name.ends_with(" build") => Factor { time: given.factor, rows: given.factor },
            "HashJoin" | "NestedLoopJoin" | "CrossJoin" if inputs.len() == 2 => {
                self.probe(ix, factors, given)
            }
            "SortMergeJoin" => {
                let both = inputs.iter().map(|input| factors[*input].rows).product();
                Factor { rows: given.some(both), ..in_proportion }
            }
            "Aggregate" => {
                // A row of a new group takes longer than one of a known group.
                Factor { time: given.per_row(given.factor, given.groups()), rows: given.groups() }
            }
            "Filter" => Factor { rows: given.some(given.factor), ..in_proportion },
            "KeyFilter" => {
                let keys = self.keys.get(&ix).into_iter().flatten().map(|built| factors[*built].rows);
                let keys: f64 = if reach == Reach::Least { 1.0 } else { keys.product() };
                Factor { rows: (given.some(given.factor) * keys).min(given.at_most()), ..in_proportion }
            }
            "Sort" | "PartialSort" if !given.is_limit() => {
                Factor { time: given.sorting(self.tasks[operator.stage]), ..in_proportion }
            }
            "Sort"
            | "PartialSort"
            | "SortExec(TopK)"
            | "PartitionedTopK"
            | "SortPreservingMerge"
            | "GlobalLimit"
            | "LocalLimit"
            | "CoalescePartitions"
            | "CoalesceBatches"
            | "Cooperative"
            | "DataSink"
            | "Exchange"
            | "Interleave"
            | "Projection"
            | "Repartition"
            | "Union"
            | "BoundedWindowAgg"
            | "WindowAgg" => in_proportion,
            _ if operator.part == Part::Encode => in_proportion,
            // The rows of any other operator are as many as now, or in proportion at most.
            _ if reach == Reach::Most => Factor { rows: given.factor, ..in_proportion },
            _ => Factor { rows: 1.0, ..in_proportion },
        }
    }

    /// Returns the rows that are taken from inputs, and the factor on them.
    fn taken(&self, inputs: &[usize], factors: &[Factor]) -> (Option<f64>, f64) {
        let rows = inputs.iter().map(|ix| self.rows[*ix]).sum::<Option<f64>>();
        let weight = |ix: usize| rows.and(self.rows[ix]).filter(|_| rows > Some(0.0)).unwrap_or(1.0);
        let all: f64 = inputs.iter().map(|ix| weight(*ix)).sum();
        let changed: f64 = inputs.iter().map(|ix| weight(*ix) * factors[*ix].rows).sum();
        (rows, ratio(changed, all).unwrap_or(1.0))
    }

    /// Returns the factors of a join's probe side. `given` is of both sides.
    fn probe(&self, ix: usize, factors: &[Factor], given: Given) -> Factor {
        let [build, side] = [0, 1].map(|place| self.inputs[ix][place]);
        let (built, probed) = (factors[build].rows, factors[side].rows);
        let name = &self.operators[ix].name;
        let probes = Given { factor: probed, taken: self.rows[side], ..given };
        if kind(name) != "HashJoin" {
            // Each row meets each of the other side.
            let rows = if kind(name) == "CrossJoin" { built * probed } else { probes.some(built * probed) };
            return Factor { time: built * probed, rows };
        }
        // With a key filter, the probe side follows the build side already.
        let alone = if self.filtered[ix] { ratio(probed, built).unwrap_or(1.0) } else { probed };
        let rows = match name.split(' ').nth(1) {
            // Unmatched rows are kept.
            Some("Left" | "LeftAnti" | "LeftMark") => built,
            Some("Right" | "RightAnti" | "RightMark") => probed,
            Some("Full") => given.factor,
            // A row of the build side is emitted once, however often it matches.
            Some("LeftSemi") => probes.some(built * Given { factor: alone, ..probes }.groups()),
            _ => probes.some(built * alone),
        };
        // Each row is looked up, and each match is copied.
        Factor { time: probes.per_row(probed, rows), rows }
    }
}

/// Evidence on the rows that an operator would emit: those that it takes and emits now.
#[derive(Debug, Clone, Copy)]
struct Given {
    /// On the rows that it takes.
    factor: f64,
    taken: Option<f64>,
    out: Option<f64>,
    reach: Reach,
}

impl Given {
    /// Returns true if the operator emits fewer rows than it takes.
    fn is_limit(self) -> bool {
        // Rows under changes are not whole numbers.
        self.taken.zip(self.out).is_some_and(|(taken, out)| out < taken * (1.0 - 1e-9))
    }

    /// Returns the factor on the time of an operator that works on each row that it takes, and on each that it emits,
    /// given the factors on both.
    fn per_row(self, on_taken: f64, on_out: f64) -> f64 {
        let both = self.taken.zip(self.out);
        let time = both.and_then(|(taken, out)| ratio(taken * on_taken + out * on_out, taken + out));
        time.unwrap_or(on_taken)
    }

    /// Returns the factor on the rows of an operator that emits all, or up to a limit.
    fn limited(self) -> f64 {
        if self.is_limit() { self.at_least().min(1.0) } else { self.factor }
    }

    /// Returns the smallest change of the rows emitted. If fewer rows are taken, all that are left may be emitted.
    fn at_least(self) -> f64 {
        if self.factor >= 1.0 { 1.0 } else { self.at_most().clamp(self.factor, 1.0) }
    }

    /// Returns the largest change of the rows emitted, if each row is emitted at most once.
    fn at_most(self) -> f64 {
        let all = self.taken.zip(self.out).and_then(|(taken, out)| ratio(self.factor * taken, out));
        all.unwrap_or(f64::INFINITY)
    }

    /// Returns the factor on the rows of an operator that emits some of them: `independent`, unless those that are gone
    /// are the others.
    fn some(self, independent: f64) -> f64 {
        if self.reach == Reach::Least { self.at_least() } else { independent }
    }

    /// Returns the factor on the number of groups, as if each row were of a group at random: with `x` rows a group, a
    /// share of 1 − e⁻ˣ of all groups has rows.
    fn groups(self) -> f64 {
        match (self.reach, self.taken.zip(self.out)) {
            (Reach::Most, _) => self.factor,
            (Reach::Likely, Some((taken, out))) if taken > 0.0 && out > 0.0 => {
                let x = rows_per_group(out / taken);
                ratio(-(-x * self.factor).exp_m1(), -(-x).exp_m1()).unwrap_or(self.factor)
            }
            _ => self.at_least(),
        }
    }

    /// Returns the factor on the time of sorting, n log n in each multitask.
    fn sorting(self, tasks: usize) -> f64 {
        let log = |rows: f64| (rows / tasks.max(1) as f64).max(2.0).ln();
        let logs = self.taken.and_then(|taken| ratio(log(taken * self.factor), log(taken)));
        self.factor * logs.unwrap_or(1.0)
    }
}

/// Returns the rows per group, of all groups that could have rows, if `share` is the number of groups that have rows
/// over the number of rows: the x for which (1 − e⁻ˣ) ÷ x is `share`. It is 0 if each row has a group of its own.
fn rows_per_group(share: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0 / share);
    for _ in 0..60 {
        let x: f64 = (low + high) / 2.0;
        match -(-x).exp_m1() / x > share {
            true => low = x,
            false => high = x,
        }
    }
    if share < 1.0 { low } else { 0.0 }
}

/// Returns the kind of operator that a name begins with.
fn kind(name: &str) -> &str {
    name.split(' ').next().unwrap_or(name)
}

/// Returns the factors on the bytes that each stage takes from exchanges, and on those that it puts out.
pub(crate) fn bytes(recorded: &Recorded, factors: &[Factor]) -> Table<StageIx, (f64, f64)> {
    let operators = &recorded.operators;
    let mut bytes = Table::filled(recorded.stages.len(), (1.0, 1.0));
    let mut taken: Table<StageIx, (f64, f64)> = Table::filled(recorded.stages.len(), (0.0, 0.0));
    for ix in exchanges(operators) {
        let weight = operators[ix].bytes.or(operators[ix].rows).unwrap_or(1.0);
        let (now, then) = &mut taken[operators[ix].stage];
        *now += weight;
        // It copies what it takes.
        *then += weight * factors[ix].time;
    }
    for (stage, (now, then)) in taken.rows() {
        bytes[stage].0 = ratio(*then, *now).unwrap_or(1.0);
    }
    for (operator, factor) in operators.iter().zip(factors).filter(|(o, _)| o.part == Part::Encode) {
        bytes[operator.stage].1 = factor.time;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(factor: f64, taken: f64, out: f64, reach: Reach) -> Given {
        Given { factor, taken: Some(taken), out: Some(out), reach }
    }

    #[test]
    fn groups_are_lost_only_if_they_have_few_rows() {
        // A thousand rows for each group: half of the rows have all of the groups.
        assert!((given(0.5, 1e6, 1e3, Reach::Likely).groups() - 1.0).abs() < 1e-9);
        // Each row has a group of its own.
        assert!((given(0.5, 1e6, 1e6, Reach::Likely).groups() - 0.5).abs() < 1e-9);
        // 1000 groups with rows of 1000 ÷ (1 − e⁻²) = 1156.5, for 2313 rows; with half, 1 − e⁻¹ of them.
        let rows = 1000.0 / (1.0 - (-2.0_f64).exp()) * 2.0;
        let expected = (1.0 - (-1.0_f64).exp()) / (1.0 - (-2.0_f64).exp());
        assert!((given(0.5, rows, 1000.0, Reach::Likely).groups() - expected).abs() < 1e-9);
    }

    #[test]
    fn bounds_follow_from_the_rows_that_are_left() {
        // Of 100 rows 80 pass. If 50 are left, at least 0 and at most 50 of them pass.
        assert_eq!(given(0.5, 100.0, 80.0, Reach::Least).some(0.5), 0.625);
        assert_eq!(given(0.5, 100.0, 80.0, Reach::Likely).some(0.5), 0.5);
        assert_eq!(given(0.5, 100.0, 10.0, Reach::Least).some(0.5), 1.0);
        assert_eq!(given(2.0, 100.0, 80.0, Reach::Least).some(2.0), 1.0);
        // A limit of ten rows, with five left.
        assert_eq!(given(0.05, 100.0, 10.0, Reach::Likely).limited(), 0.5);
        assert_eq!(given(2.0, 100.0, 10.0, Reach::Likely).limited(), 1.0);
    }

    #[test]
    fn sorting_takes_n_log_n() {
        // Two multitasks of 1024 rows each, then of 512.
        let factor = given(0.5, 2048.0, 2048.0, Reach::Likely).sorting(2);
        assert!((factor - 0.5 * 9.0 / 10.0).abs() < 1e-9, "{factor}");
    }
}
