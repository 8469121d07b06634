//! Changes to the operators of a recorded job: their core time, the bytes that stages exchange, and exchanges that are
//! left out.
//!
//! A trace has an operator's core time for the whole stage. Each multitask of the stage has the same share of it, unless
//! all of it was in one.

use std::sync::Arc;

use pellucid_trace::{Part, Phase, kind};

use super::recorded::{Mono, Operator, Recorded, Task};
use super::rework;
use crate::index::{Ix, StageIx, Table};
use crate::numbers::ratio;

/// Changes of a stage's core time, as shares of it.
#[derive(Debug, Clone, Copy, Default)]
struct Less {
    /// In every multitask alike.
    even: f64,
    /// The part of `even` that decodes.
    decode: f64,
    /// In one multitask.
    once: f64,
}

/// Multiplies the core time of each operator, by its position.
pub(crate) fn scale_times(recorded: &mut Recorded, factor: impl Fn(usize) -> f64) {
    let mut less = Table::<StageIx, Less>::filled(recorded.stages.len(), Less::default());
    for (ix, operator) in recorded.operators.iter().enumerate() {
        let share = operator.share * (1.0 - factor(ix));
        let of_stage = &mut less[operator.stage];
        match operator.once {
            true => of_stage.once += share,
            false => of_stage.even += share,
        }
        if operator.part == Part::Decode && !operator.once {
            of_stage.decode += share;
        }
    }
    change_stages(recorded, factor, |stage, computes| take(computes, less[stage]));
}

/// Multiplies the core time of decoding.
pub(crate) fn decode_time(recorded: &mut Recorded, factor: f64) {
    let decodes: Vec<bool> = recorded.operators.iter().map(|o| o.part == Part::Decode).collect();
    change_stages(
        recorded,
        |ix| if decodes[ix] { factor } else { 1.0 },
        |_, computes| {
            for monotask in computes {
                let less = monotask.decode * (1.0 - factor);
                shorten(monotask, less, less);
            }
        },
    );
}

/// Changes the compute monotasks of each stage, and with them the operators' shares of its core time.
fn change_stages(
    recorded: &mut Recorded,
    factor: impl Fn(usize) -> f64,
    change: impl Fn(StageIx, Vec<&mut Mono>),
) {
    let before = core_work(recorded);
    let mut computes: Table<StageIx, Vec<&mut Mono>> = recorded.stages.iter().map(|_| Vec::new()).collect();
    for task in Arc::make_mut(&mut recorded.tasks) {
        computes[task.stage].extend(task.monotasks.iter_mut().filter(|m| m.phase == Phase::Compute));
    }
    (0..).map(StageIx).zip(computes).for_each(|(stage, computes)| change(stage, computes));
    let after = core_work(recorded);
    for (ix, operator) in Arc::make_mut(&mut recorded.operators).iter_mut().enumerate() {
        let grown = ratio(before[operator.stage], after[operator.stage]).unwrap_or(1.0);
        operator.share *= factor(ix) * grown;
    }
}

/// Takes away shares of a stage's core time.
fn take(mut computes: Vec<&mut Mono>, less: Less) {
    let whole: f64 = computes.iter().map(|m| m.work).sum();
    let longest = (0..computes.len()).max_by(|a, b| computes[*a].work.total_cmp(&computes[*b].work));
    for monotask in &mut computes {
        let (work, decode) = (monotask.work * less.even, monotask.work * less.decode);
        shorten(monotask, work, decode);
    }
    // All of it was in one of them, which is the longest if it matters.
    if let Some(longest) = longest.filter(|_| less.once != 0.0) {
        shorten(computes[longest], less.once * whole, 0.0);
    }
}

/// Takes work from a compute monotask, and the part of it that decodes.
fn shorten(monotask: &mut Mono, less: f64, less_decode: f64) {
    let work = (monotask.work - less).max(0.0);
    monotask.waits *= ratio(work, monotask.work).unwrap_or(0.0);
    monotask.work = work;
    monotask.decode = (monotask.decode - less_decode).clamp(0.0, work);
}

/// Returns the work of each stage's compute monotasks.
fn core_work(recorded: &Recorded) -> Table<StageIx, f64> {
    let mut work = Table::filled(recorded.stages.len(), 0.0);
    for task in recorded.tasks.iter() {
        let computes = task.monotasks.iter().filter(|m| m.phase == Phase::Compute);
        work[task.stage] += computes.map(|m| m.work).sum::<f64>();
    }
    work
}

/// Multiplies the rows and bytes that each operator emits, by its position.
pub(crate) fn scale_rows(recorded: &mut Recorded, factor: impl Fn(usize) -> f64) {
    for (ix, operator) in Arc::make_mut(&mut recorded.operators).iter_mut().enumerate() {
        operator.rows = operator.rows.map(|rows| rows * factor(ix));
        operator.bytes = operator.bytes.map(|bytes| bytes * factor(ix));
    }
}

/// Multiplies the bytes that each stage takes from exchanges, and those that it puts out.
pub(crate) fn scale_bytes(recorded: &mut Recorded, factors: &Table<StageIx, (f64, f64)>) {
    // A stage that scans nothing reads only what other stages have put out.
    let mut scans = Table::<StageIx, bool>::filled(recorded.stages.len(), false);
    recorded.operators.iter().for_each(|o| scans[o.stage] |= o.part == Part::Decode);
    let services = &recorded.services;
    let factor = |task: &Task, m: &Mono| {
        let (taken, put) = factors[task.stage];
        match m.phase {
            Phase::Fetch | Phase::Read
                if services[m.resource].kind == kind::NETWORK || !scans[task.stage] =>
            {
                taken
            }
            Phase::Spill | Phase::Write => put,
            _ => 1.0,
        }
    };
    for task in Arc::make_mut(&mut recorded.tasks) {
        let of_each: Vec<f64> = task.monotasks.iter().map(|m| factor(task, m)).collect();
        task.monotasks.iter_mut().zip(of_each).for_each(|(m, factor)| rework::times(m, factor));
    }
}

/// Returns the positions of the operators that read exchanges.
pub(crate) fn exchanges(operators: &[Operator]) -> impl Iterator<Item = usize> {
    (0..operators.len()).filter(|ix| operators[*ix].from.is_some() && !operators[*ix].left_out)
}

/// An exchange between two stages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exchange {
    /// Position of the operator that reads it.
    pub reader: usize,
    /// The stages that write and read it.
    pub from: StageIx,
    pub to: StageIx,
    /// True if nothing else reads the output of `from`.
    pub sole: bool,
}

impl Exchange {
    /// Returns the exchange that an operator reads.
    pub fn read_by(operators: &[Operator], reader: usize) -> Option<Exchange> {
        let from = operators[reader].from?;
        let sole = exchanges(operators).filter(|ix| operators[*ix].from == Some(from)).count() == 1;
        Some(Exchange { reader, from, to: operators[reader].stage, sole })
    }

    /// Leaves out partitioning, encoding, transfer and decoding.
    pub fn leave_out(self, recorded: &mut Recorded) {
        let Exchange { reader, from, to, sole } = self;
        let operators = Arc::clone(&recorded.operators);
        let writes = |ix: usize| sole && operators[ix].stage == from && operators[ix].part == Part::Encode;
        scale_times(recorded, |ix| if ix == reader || writes(ix) { 0.0 } else { 1.0 });
        let taken = |ix: usize| operators[ix].bytes.or(operators[ix].rows).unwrap_or(1.0);
        let all: f64 = exchanges(&operators).filter(|ix| operators[*ix].stage == to).map(taken).sum();
        let mut factors = Table::filled(recorded.stages.len(), (1.0, 1.0));
        factors[to].0 = 1.0 - ratio(taken(reader), all).unwrap_or(1.0);
        factors[from].1 = if sole { 0.0 } else { 1.0 };
        scale_bytes(recorded, &factors);
        Arc::make_mut(&mut recorded.operators)[reader].left_out = true;
        // Moving nothing takes no request.
        let idle = |m: &Mono| m.phase != Phase::Compute && m.work == 0.0;
        rework::drop_each(recorded, |task, m| {
            idle(m) && (task.stage == to && factors[to].0 == 0.0 || task.stage == from && sole)
        });
    }

    /// Returns why the stages around the exchange cannot become one; `None` if they can.
    pub fn held_by(self, recorded: &Recorded) -> Option<&'static str> {
        let Exchange { reader, from, to, sole } = self;
        let stages = &recorded.stages;
        let mut tasks = Table::<StageIx, Vec<&Task>>::filled(stages.len(), Vec::new());
        recorded.tasks.iter().for_each(|task| tasks[task.stage].push(task));
        let waits =
            |stage: StageIx| stage != to && stages[stage].after.contains(&from) && !tasks[stage].is_empty();
        let leaves = recorded.operators.iter().enumerate().filter(|(ix, o)| {
            // Every stage that reads cached input has an operator that copies it.
            o.stage == to && o.inputs.is_empty() && o.name != "Input" && *ix != reader
        });
        let mut before = Table::filled(stages.len(), false);
        ancestors(recorded, from, &mut before);
        let computes = |task: &&Task| task.monotasks.iter().all(|m| m.phase == Phase::Compute);
        if !stages[to].after.contains(&from) {
            Some("the reading stage may run before the writing one ends")
        } else if !sole || stages.indices().any(waits) {
            Some("other stages wait for the writing one, too")
        } else if leaves.count() > 0 || stages[to].after.iter().any(|a| *a != from && !before[*a]) {
            Some("the reading stage has other inputs")
        } else if !tasks[to].iter().all(computes)
            || tasks[from].iter().chain(&tasks[to]).any(|task| rework::submitted_by_others(task))
        {
            Some("one of them writes its output")
        } else if !tasks[from].iter().any(|task| task.monotasks.iter().any(|m| m.phase == Phase::Compute)) {
            Some("the writing stage does not compute")
        } else {
            None
        }
    }

    /// Makes the stages around the exchange one: the multitasks of the first do the work of the second, each in
    /// proportion to its own.
    pub fn join_stages(self, recorded: &mut Recorded) {
        let Exchange { from, to, .. } = self;
        let work = core_work(recorded);
        let mut tasks = rework::by_stage(recorded);
        let moved = std::mem::take(&mut tasks[to]);
        let moved = || moved.iter().flat_map(|task| &task.monotasks);
        let (decode, waits): (f64, f64) =
            moved().fold((0.0, 0.0), |(decode, waits), m| (decode + m.decode, waits + m.waits));
        let computes = tasks[from].iter_mut().flat_map(|task| &mut task.monotasks);
        let computes: Vec<&mut Mono> = computes.filter(|m| m.phase == Phase::Compute).collect();
        let each = 1.0 / computes.len().max(1) as f64;
        for monotask in computes {
            let share = ratio(monotask.work, work[from]).unwrap_or(each);
            monotask.work += work[to] * share;
            monotask.decode += decode * share;
            monotask.waits += waits * share;
        }
        rework::replace_tasks(recorded, tasks);
        let both = work[from] + work[to];
        for operator in Arc::make_mut(&mut recorded.operators) {
            if operator.from == Some(to) {
                operator.from = Some(from);
            }
            if operator.stage == from || operator.stage == to {
                operator.share *= ratio(work[operator.stage], both).unwrap_or(0.0);
                operator.once &= operator.stage == from;
                operator.stage = from;
            }
        }
        // The empty stage remains, after the one that does its work, and holds nothing.
        recorded.stages[to].gap_ns = 0;
        for after in recorded.stages.iter_mut().map(|stage| &mut stage.after) {
            if after.contains(&to) {
                after.retain(|stage| *stage != to && *stage != from);
                after.push(from);
            }
        }
    }
}

/// Marks the stages that must end before a stage.
fn ancestors(recorded: &Recorded, stage: StageIx, marked: &mut Table<StageIx, bool>) {
    // Dependencies are earlier stages.
    marked[stage] = true;
    for ix in (0..=stage.at()).rev().map(StageIx::new) {
        if marked[ix] {
            recorded.stages[ix].after.iter().for_each(|before| marked[*before] = true);
        }
    }
}
