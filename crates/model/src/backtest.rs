//! Predictions against what was measured: the manifest that says which traces are a
//! pair, and the score.
//!
//! A case is a question (`set`) about a baseline, and the measured answer. Both are
//! repeated: the prediction is made from the baseline repeat of median duration, and
//! what it is compared with is the median of the target's repeats. `docs/backtest.md`
//! specifies the manifest. Reading files is the command line's business.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::whatif::{Prediction, Residual, Tasks, median};

/// `format` of a manifest.
pub const MANIFEST_FORMAT: &str = "pellucid.manifest/1";

/// A manifest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`MANIFEST_FORMAT`].
    pub format: String,
    /// Where it was measured, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The cases.
    pub cases: Vec<Case>,
}

/// How a configuration came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Emulation {
    /// Limits of the kernel: throttled disks, quota or pinned cores, shaped links.
    Kernel,
    /// Paces inside the engine, which predictor and engine share.
    EnginePaced,
    /// The machine as it is, or fewer threads on it.
    #[default]
    None,
}

/// One what-if and its measured answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Unique name.
    pub name: String,
    /// The query that it is about: intervals use the residuals of other queries only.
    pub query: String,
    /// What is different, as `--set` takes it: key to value. An empty map asks for
    /// the job itself, run once more.
    pub set: BTreeMap<String, String>,
    /// Traces of the baseline, one a repeat; paths from the manifest's folder.
    pub baseline: Vec<String>,
    /// Traces of the target, one a repeat.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measured: Vec<String>,
    /// Durations of the target, where its traces were not kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measured_ms: Vec<f64>,
    /// How the target's configuration came about.
    #[serde(default)]
    pub emulation: Emulation,
    /// Why the case does not count (calibration off, busy machine); it is listed, not scored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub void: Option<String>,
    /// Whatever a reader should know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A case with its prediction.
#[derive(Debug, Clone, PartialEq)]
pub struct Scored {
    /// Name of the case.
    pub name: String,
    /// Name of its query.
    pub query: String,
    /// What was different, as `--set` takes it.
    pub set: Vec<(String, String)>,
    /// How the target's configuration came about.
    pub emulation: Emulation,
    /// Median of the baseline's repeats.
    pub baseline_ms: f64,
    /// (Longest − shortest) ÷ median of the baseline's repeats.
    pub baseline_spread: f64,
    /// Median of the target's repeats.
    pub measured_ms: f64,
    /// (Longest − shortest) ÷ median of the target's repeats.
    pub measured_spread: f64,
    /// What was predicted, by which predictor.
    pub prediction: Prediction,
    /// How hard it seemed: see [`Residual::scale`].
    pub scale: f64,
    /// Replay error of the baseline.
    pub replay_error: Option<f64>,
    /// Kind that limited the baseline.
    pub bottleneck_before: Option<String>,
    /// Kind that was predicted to limit the target.
    pub bottleneck_after: Option<String>,
    /// Kind that limited the target, where its traces were kept.
    pub bottleneck_measured: Option<String>,
    /// Two kinds' ideal times in the target lie within 20 % of each other; `None`: not known.
    pub balanced: Option<bool>,
    /// Why it does not count.
    pub void: Option<String>,
}

impl Scored {
    /// |predicted − measured| ÷ measured.
    pub fn error(&self) -> f64 {
        (self.prediction.duration_ms - self.measured_ms).abs() / self.measured_ms
    }

    /// The measured time is inside the interval.
    pub fn inside(&self) -> bool {
        (self.prediction.low_ms..=self.prediction.high_ms).contains(&self.measured_ms)
    }

    /// Half of the interval over the prediction.
    pub fn half_width(&self) -> f64 {
        (self.prediction.high_ms - self.prediction.low_ms) / 2.0 / self.prediction.duration_ms
    }

    /// It took over 1.3 times as long as the baseline, or as much less.
    pub fn changes_much(&self) -> bool {
        let ratio = self.measured_ms / self.baseline_ms;
        !(1.0 / 1.3..=1.3).contains(&ratio)
    }

    /// Another kind limits it than the baseline.
    pub fn moves_bottleneck(&self) -> bool {
        let after = self.bottleneck_measured.as_ref().or(self.bottleneck_after.as_ref());
        let before = self.bottleneck_before.as_ref();
        after.is_some() && before.is_some() && after != before
    }

    /// What it says about other queries' predictions: see [`crate::whatif::WhatIfModel::fingerprint`].
    pub fn residual(&self, (tasks, fingerprint): (Tasks, u64)) -> Residual {
        Residual {
            tasks,
            query: self.query.clone(),
            fingerprint,
            scale: self.scale,
            log_error: (self.measured_ms / self.prediction.duration_ms).ln(),
        }
    }
}

/// All cases that count, together.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    /// Cases that count.
    pub cases: usize,
    /// Different queries among them.
    pub queries: usize,
    /// On kernel-throttled disks, quota or pinned cores, shaped links.
    pub kernel: usize,
    /// That took over 1.3 times as long, or as much less.
    pub changing: usize,
    /// That moved the bottleneck.
    pub moving: usize,
    /// In which two kinds' ideal times lie within 20 % of each other.
    pub balanced: usize,
    /// Middle error.
    pub median_error: f64,
    /// Largest error.
    pub worst_error: f64,
    /// Share of cases inside their interval.
    pub coverage: f64,
    /// Middle half-width of the intervals, over the prediction.
    pub median_half_width: f64,
}

/// Scores the cases that are not void; `None` without any.
pub fn score(cases: &[Scored]) -> Option<Score> {
    let counted: Vec<&Scored> = cases.iter().filter(|c| c.void.is_none()).collect();
    if counted.is_empty() {
        return None;
    }
    let count = |what: fn(&Scored) -> bool| counted.iter().filter(|c| what(c)).count();
    let values = |what: fn(&Scored) -> f64| counted.iter().map(|c| what(c)).collect::<Vec<f64>>();
    let mut queries: Vec<&str> = counted.iter().map(|c| c.query.as_str()).collect();
    queries.sort_unstable();
    queries.dedup();
    Some(Score {
        cases: counted.len(),
        queries: queries.len(),
        kernel: count(|c| c.emulation == Emulation::Kernel),
        changing: count(Scored::changes_much),
        moving: count(Scored::moves_bottleneck),
        balanced: count(|c| c.balanced == Some(true)),
        median_error: median(&mut values(Scored::error)),
        worst_error: values(Scored::error).into_iter().fold(0.0, f64::max),
        coverage: count(Scored::inside) as f64 / counted.len() as f64,
        median_half_width: median(&mut values(Scored::half_width)),
    })
}

/// Median of repeats, and (longest − shortest) ÷ median; `None` without any, or where
/// one is no time.
pub fn repeats(times_ms: &[f64]) -> Option<(f64, f64)> {
    let mut times = times_ms.to_vec();
    if times.is_empty() || times.iter().any(|t| !t.is_finite() || *t <= 0.0) {
        return None;
    }
    let middle = median(&mut times);
    Some((middle, (times[times.len() - 1] - times[0]) / middle))
}

/// The place of the repeat whose time is the median, or the one before it among two.
pub fn middle(times_ms: &[f64]) -> Option<usize> {
    let mut order: Vec<usize> = (0..times_ms.len()).collect();
    order.sort_by(|a, b| times_ms[*a].total_cmp(&times_ms[*b]));
    order.get(times_ms.len().checked_sub(1)? / 2).copied()
}

/// Whether the two largest ideal times of kinds lie within 20 % of each other.
pub fn balanced(ideal_ms: impl Iterator<Item = f64>) -> Option<bool> {
    let mut ideal: Vec<f64> = ideal_ms.filter(|ms| *ms > 0.0).collect();
    ideal.sort_by(|a, b| b.total_cmp(a));
    let largest = ideal.first()?;
    Some(ideal.get(1).is_some_and(|second| second / largest >= 0.8))
}
