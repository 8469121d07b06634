//! Comparison of two runs: which stages changed, which resource explains it, and whether the change
//! exceeds noise.
//!
//! # What is compared
//!
//! Jobs are matched by name, in order. If each run has a single job, the two are matched whatever their
//! names, and [`Comparison::different_queries`] tells if those differ. Stages within a pair of jobs are
//! matched by name and position (the longest common subsequence of their names). A stage's change is the
//! change of its duration. It is explained by the change in the use of each kind: core time over cores,
//! or the time during which a disk, link or store served. This covers both more bytes and a slower disk,
//! and the text tells which. For tasks that use several resources at once (Spark's), it is the parts of
//! their time, scaled from the tasks to the stage.
//!
//! # When it is noise
//!
//! Two single runs do not show the spread between runs, so it is estimated from within them. [`noise`]
//! has the derivation, and `docs/compare.md` the measurement behind its constants. The verdict is `same
//! within noise` exactly where the 90 % interval of the difference contains zero.
//!
//! # Limits
//!
//! A job without a recorded end has no duration and cannot be compared. Intended differences between two
//! runs (another scale, other data) are reported like any other change.

mod matching;
mod noise;

use std::collections::BTreeMap;

use pellucid_trace::{Outcome, Trace};
use serde::Serialize;

use crate::analysis::{Analysis, JobAnalysis, StageAnalysis};
use crate::analyze::analyze;
use crate::monotasks::demand::in_time;
use crate::numbers::{ms, ratio};
use noise::{Side, Work};

/// The result of a comparison, as plain data.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Time of the matched jobs of both runs.
    pub duration_ms: (f64, f64),
    /// Second minus first.
    pub change: Change,
    /// Matched stages in the order of the first run, with the stages of only one run at their position.
    pub stages: Vec<StageChange>,
    /// Caveats about the result, in words.
    pub notes: Vec<String>,
    /// True if each run has one job and they are different queries, so that the difference is not
    /// meaningful.
    pub different_queries: bool,
}

/// A difference, second minus first, with its 90 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// The difference.
    pub ms: f64,
    /// Lower end of the interval.
    pub low_ms: f64,
    /// Upper end of the interval.
    pub high_ms: f64,
}

/// The meaning of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The whole interval is below zero.
    Faster,
    /// The whole interval is above zero.
    Slower,
    /// The interval contains zero.
    #[serde(rename = "same within noise")]
    SameWithinNoise,
}

impl Change {
    /// Returns faster or slower only if the interval excludes zero.
    pub fn verdict(&self) -> Verdict {
        match (self.low_ms, self.high_ms) {
            (low, _) if low > 0.0 => Verdict::Slower,
            (_, high) if high < 0.0 => Verdict::Faster,
            _ => Verdict::SameWithinNoise,
        }
    }
}

/// A stage in both runs, or in only one.
#[derive(Debug, Clone, PartialEq)]
pub struct StageChange {
    /// Index in the first trace.
    pub a: Option<usize>,
    /// Index in the second trace.
    pub b: Option<usize>,
    /// The engine's stage numbers in both.
    pub source_ids: (Option<u64>, Option<u64>),
    /// Its name; the second run's if they differ.
    pub name: String,
    /// Durations in both.
    pub duration_ms: (Option<f64>, Option<f64>),
    /// `None` for a stage in only one run, or without an end.
    pub change: Option<Change>,
    /// Change in the use of each kind; `None` if a run did not measure it.
    pub explained_by: BTreeMap<String, Option<f64>>,
    /// The reason, with figures; empty where nothing changed beyond noise.
    pub why: String,
}

/// Returns true if the job's duration is meaningful: failed and cancelled jobs end early.
fn succeeded(job: &JobAnalysis) -> bool {
    job.duration_ms.is_some() && job.outcome == Some(Outcome::Ok)
}

/// Compares two runs; `b` is the later one.
///
/// # Errors
/// Returns an error message if no job is in both traces and succeeded in both.
pub fn compare(a: &Trace, b: &Trace) -> Result<Comparison, String> {
    let (sides, analyses) = ((Side::of(a), Side::of(b)), (analyze(a), analyze(b)));
    let names = |trace: &Trace| trace.jobs.iter().map(|job| job.name.clone()).collect::<Vec<_>>();
    let mut notes = Vec::new();
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    for pair in matching::matched(&names(a), &names(b)) {
        let (Some(x), Some(y)) = pair else { continue };
        if succeeded(&analyses.0.jobs[x]) && succeeded(&analyses.1.jobs[y]) {
            pairs.push((x, y));
        } else {
            notes.push(format!("job {x} of the first run did not succeed in both runs and is left out"));
        }
    }
    let mut different_queries = false;
    if pairs.is_empty() && a.jobs.len() == 1 && b.jobs.len() == 1 {
        let texts_differ = a.jobs[0].name != b.jobs[0].name;
        if texts_differ {
            notes.push("the jobs have different texts; they are compared anyway".into());
        }
        different_queries = texts_differ && !same_code(a, b);
        let ended = |analysis: &Analysis| succeeded(&analysis.jobs[0]);
        pairs.extend((ended(&analyses.0) && ended(&analyses.1)).then_some((0, 0)));
    }
    if pairs.is_empty() {
        return Err("nothing to compare: no job succeeded in both traces; \
                    record the same query twice with `pellucid sql --trace`"
            .into());
    }
    let left_out = (a.jobs.len() + b.jobs.len()).saturating_sub(2 * pairs.len());
    if left_out > 0 {
        notes.push(format!("{left_out} jobs are in only one run or did not succeed, and are left out"));
    }
    let mut comparison = Comparison {
        duration_ms: (0.0, 0.0),
        change: Change { ms: 0.0, low_ms: 0.0, high_ms: 0.0 },
        stages: Vec::new(),
        notes,
        different_queries,
    };
    let mut variance = 0.0;
    for (x, y) in pairs {
        let durations = (analyses.0.jobs[x].duration_ms, analyses.1.jobs[y].duration_ms);
        let (before, after) = (durations.0.unwrap_or(0.0), durations.1.unwrap_or(0.0));
        comparison.duration_ms.0 += before;
        comparison.duration_ms.1 += after;
        let (stages, of_stages) = stages((&analyses.0, &sides.0, x), (&analyses.1, &sides.1, y));
        variance += of_stages + noise::between_runs(before, after);
        comparison.stages.extend(stages);
    }
    comparison.change = noise::interval(comparison.duration_ms.1 - comparison.duration_ms.0, variance);
    Ok(comparison)
}

/// Returns true if both are Spark jobs of the same code. Their names contain line numbers (`count at
/// Main.scala:41`), which may shift.
fn same_code(a: &Trace, b: &Trace) -> bool {
    let of_spark = a.application.is_some() && b.application.is_some();
    let without_line = |trace: &Trace| {
        let name = &trace.jobs[0].name;
        let line = name.rsplit_once(':').filter(|(_, line)| line.bytes().all(|b| b.is_ascii_digit()));
        line.map_or(name.clone(), |(code, _)| code.to_owned())
    };
    of_spark && without_line(a) == without_line(b)
}

type OfJob<'r> = (&'r Analysis, &'r Side, usize);

/// Returns the changes of the stages of a pair of jobs, and the variance that the stages contribute to
/// the job, in ms².
fn stages(a: OfJob, b: OfJob) -> (Vec<StageChange>, f64) {
    let of = |(analysis, _, job): &OfJob| analysis.jobs[*job].stages.clone();
    let (first, second) = (of(&a), of(&b));
    let name = |(analysis, _, _): &OfJob, ix: &usize| analysis.stages[*ix].name.clone();
    let names: (Vec<_>, Vec<_>) =
        (first.iter().map(|ix| name(&a, ix)).collect(), second.iter().map(|ix| name(&b, ix)).collect());
    let mut variance = 0.0;
    let changes = matching::matched(&names.0, &names.1).into_iter().map(|(x, y)| {
        let x = x.map(|x| (&a.0.stages[first[x]], &a.1.stages[first[x]]));
        let y = y.map(|y| (&b.0.stages[second[y]], &b.1.stages[second[y]]));
        let own = match (x, y) {
            (Some((_, x)), Some((_, y))) => noise::variance_of_pair(x, y),
            (Some((_, one)), None) | (None, Some((_, one))) => noise::variance_of_single(one),
            (None, None) => 0.0,
        };
        variance += own;
        stage(x, y, own)
    });
    let changes = changes.collect();
    (changes, variance)
}

type OneStage<'r> = Option<(&'r StageAnalysis, &'r BTreeMap<String, Work>)>;

fn stage(a: OneStage, b: OneStage, own_variance: f64) -> StageChange {
    let duration = |of: OneStage| of.and_then(|(stage, _)| stage.duration_ms);
    let change = duration(a).zip(duration(b)).map(|(before, after)| {
        noise::interval(after - before, own_variance + noise::between_runs(before, after))
    });
    let kinds = |of: OneStage| of.map(|(stage, _)| stage.kinds.keys().cloned().collect::<Vec<_>>());
    let mut all: Vec<String> = ["cpu", "disk", "network"].map(str::to_owned).to_vec();
    all.extend(kinds(a).into_iter().chain(kinds(b)).flatten());
    if [a, b].iter().flatten().any(|(stage, _)| stage.blocked.is_some()) {
        all.extend(PARTS.map(|(part, _)| part.to_owned()));
    }
    let explained_by = all.into_iter().map(|kind| {
        // A missing stage used nothing. A present stage that lacks the kind did not measure it.
        let of = |one: OneStage| {
            one.map_or(Some(0.0), |(stage, work)| match stage.blocked {
                Some(_) => part_ms(stage, &kind),
                None => used_ms(stage, work, &kind),
            })
        };
        let change = of(a).zip(of(b)).map(|(before, after)| after - before);
        (kind, change)
    });
    let explained_by: BTreeMap<String, Option<f64>> = explained_by.collect();
    let why = match change {
        Some(change) if change.verdict() != Verdict::SameWithinNoise => why(a, b, change.ms, &explained_by),
        _ => String::new(),
    };
    StageChange {
        a: a.map(|(stage, _)| stage.id),
        b: b.map(|(stage, _)| stage.id),
        source_ids: (a.and_then(|(stage, _)| stage.source_id), b.and_then(|(stage, _)| stage.source_id)),
        name: b.or(a).map(|(stage, _)| stage.name.clone()).unwrap_or_default(),
        duration_ms: (duration(a), duration(b)),
        change,
        explained_by,
        why,
    }
}

/// Returns how long a stage used a kind: core time over cores; for other kinds, the time during which it
/// served. Bytes over capacity would hide a disk that became slower than its set capacity, which a
/// comparison should find.
fn used_ms(stage: &StageAnalysis, work: &BTreeMap<String, Work>, kind: &str) -> Option<f64> {
    let ideal_ms = stage.kinds.get(kind)?.ideal_ms;
    Some(if in_time(kind) { ideal_ms } else { work.get(kind).map_or(0.0, |work| ms(work.busy_ns)) })
}

/// Parts of pipelined tasks' time, with their names in text.
const PARTS: [(&str, &str); 7] = [
    ("cpu", "core time"),
    ("disk", "writing shuffle files and spills"),
    ("network", "waiting for shuffle data"),
    ("gc", "garbage collection"),
    ("scheduler", "starting tasks"),
    ("deserialize", "deserializing tasks"),
    ("other", "unexplained time: waits for input, or shared cores"),
];

/// Returns the part of a stage's duration that corresponds to a part of its tasks' time.
fn part_ms(stage: &StageAnalysis, part: &str) -> Option<f64> {
    let blocked = stage.blocked?;
    let time = match part {
        "cpu" => blocked.cpu,
        "disk" => blocked.disk,
        "network" => blocked.network,
        "gc" => blocked.gc,
        "scheduler" => blocked.scheduler,
        "deserialize" => blocked.deserialize,
        "other" => blocked.other,
        _ => return None,
    };
    Some(time.measured_ms? * ratio(stage.duration_ms?, stage.task_time_ms?)?)
}

/// Explains a stage's change by the kind with the largest change in the same direction, if it accounts
/// for at least a third, and tells whether it is more work or a slower resource.
fn why(a: OneStage, b: OneStage, change_ms: f64, explained_by: &BTreeMap<String, Option<f64>>) -> String {
    let along = explained_by.iter().filter_map(|(kind, ms)| Some((kind, (*ms)?)));
    let along = along.filter(|(_, ms)| ms * change_ms > 0.0 && ms.abs() >= change_ms.abs() / 3.0);
    let Some((kind, ms)) = along.max_by(|a, b| a.1.abs().total_cmp(&b.1.abs())) else {
        return "no resource explains it: the stage waited, or ran fewer tasks at once".into();
    };
    let direction = if ms > 0.0 { "more" } else { "less" };
    if let Some((_, words)) = PARTS.iter().find(|(part, _)| part == kind)
        && [a, b].iter().flatten().any(|(stage, _)| stage.blocked.is_some())
    {
        return format!("{:.0} ms {direction} {words}", ms.abs());
    }
    let mut text = format!("{:.0} ms {direction} on {kind}", ms.abs());
    let work = |of: OneStage| of.and_then(|(_, work)| work.get(kind)).cloned();
    let (Some(before), Some(after)) = (work(a), work(b)) else { return text };
    let times = |of: fn(&Work) -> f64| ratio(of(&after), of(&before));
    if let Some(bytes) = times(|w| w.bytes).filter(|_| kind != "cpu") {
        text += &format!(", over {} bytes", factor_text(bytes));
    }
    let rate = ratio(before.bytes, before.busy_ns).zip(ratio(after.bytes, after.busy_ns));
    if let Some((before, after)) = rate.filter(|_| kind != "cpu") {
        text += &format!(", at {:.0} instead of {:.0} MB/s", after * 1e3, before * 1e3);
    }
    if let Some(service) = times(|w| w.service_ns()).filter(|_| kind == "cpu") {
        text += &format!(": {} core time in {} monotasks", factor_text(service), after.count());
    }
    text
}

/// Formats a factor: `the same`, `1.8 times the`.
fn factor_text(factor: f64) -> String {
    if (factor - 1.0).abs() < 0.02 { "the same".into() } else { format!("{factor:.2} times the") }
}
