//! Backtests: predictions compared with measurements. Defines the manifest of pairs of traces, and the
//! score.
//!
//! A case is a question (`set`) about a baseline, and the measured answer. Both are repeated: the
//! prediction starts from the baseline repeat of median duration, and is compared with the median of the
//! target's repeats. `docs/backtest.md` specifies the manifest. The command line reads the files.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::numbers::median;
use crate::whatif::{Prediction, Residual, Tasks};

/// The `format` of a manifest.
pub const MANIFEST_FORMAT: &str = "pellucid.manifest/1";

/// A list of cases.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`MANIFEST_FORMAT`].
    pub format: String,
    /// The machine of the measurements, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The cases.
    pub cases: Vec<Case>,
}

/// The way in which a configuration was produced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Emulation {
    /// Kernel limits: throttled disks, quota or pinned cores, shaped links.
    Kernel,
    /// Pacing inside the engine, which the predictor also models.
    EnginePaced,
    /// The machine itself, or fewer threads on it.
    #[default]
    None,
}

/// A what-if and its measured answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Unique name.
    pub name: String,
    /// Name of the query: intervals use residuals of other queries only.
    pub query: String,
    /// The changes, as key and value of `--set`. An empty map predicts another run of the same job.
    pub set: BTreeMap<String, String>,
    /// Traces of the baseline, one per repeat; paths are relative to the manifest's folder.
    pub baseline: Vec<String>,
    /// Traces of the target, one per repeat.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measured: Vec<String>,
    /// Durations of the target, if its traces were not kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measured_ms: Vec<f64>,
    /// The way in which the target's configuration was produced.
    #[serde(default)]
    pub emulation: Emulation,
    /// Reason to exclude the case (calibration off, busy machine); it is listed but not scored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub void: Option<String>,
    /// Remarks for readers.
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
    /// The changes, as key and value of `--set`.
    pub set: Vec<(String, String)>,
    /// The way in which the target's configuration was produced.
    pub emulation: Emulation,
    /// Median of the baseline's repeats.
    pub baseline_ms: f64,
    /// (Longest − shortest) ÷ median of the baseline's repeats.
    pub baseline_spread: f64,
    /// Median of the target's repeats.
    pub measured_ms: f64,
    /// (Longest − shortest) ÷ median of the target's repeats.
    pub measured_spread: f64,
    /// The prediction.
    pub prediction: Prediction,
    /// Estimated difficulty: see [`Residual::scale`].
    pub scale: f64,
    /// Replay error of the baseline.
    pub replay_error: Option<f64>,
    /// Kind that limited the baseline.
    pub bottleneck_before: Option<String>,
    /// Kind predicted to limit the target.
    pub bottleneck_after: Option<String>,
    /// Kind that limited the target, if its traces were kept.
    pub bottleneck_measured: Option<String>,
    /// True if the two largest ideal times of kinds in the target are within 20 % of each other; `None`
    /// if unknown.
    pub balanced: Option<bool>,
    /// Reason for exclusion.
    pub void: Option<String>,
}

impl Scored {
    /// Returns |predicted − measured| ÷ measured.
    pub fn error(&self) -> f64 {
        (self.prediction.duration_ms - self.measured_ms).abs() / self.measured_ms
    }

    /// Returns true if the measured time is inside the interval.
    pub fn inside(&self) -> bool {
        (self.prediction.low_ms..=self.prediction.high_ms).contains(&self.measured_ms)
    }

    /// Returns half of the interval's width over the prediction.
    pub fn half_width(&self) -> f64 {
        (self.prediction.high_ms - self.prediction.low_ms) / 2.0 / self.prediction.duration_ms
    }

    /// Returns true if the time changed by a factor of over 1.3, in either direction.
    pub fn changes_much(&self) -> bool {
        let ratio = self.measured_ms / self.baseline_ms;
        !(1.0 / 1.3..=1.3).contains(&ratio)
    }

    /// Returns true if the target and the baseline have different bottlenecks.
    pub fn moves_bottleneck(&self) -> bool {
        let after = self.bottleneck_measured.as_ref().or(self.bottleneck_after.as_ref());
        let before = self.bottleneck_before.as_ref();
        after.is_some() && before.is_some() && after != before
    }

    /// Returns the residual for other queries' intervals: see
    /// [`crate::whatif::WhatIfModel::fingerprint`].
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

/// The combined score of all cases that count.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    /// Number of cases that count.
    pub cases: usize,
    /// Number of different queries.
    pub queries: usize,
    /// Cases with kernel limits: throttled disks, quota or pinned cores, shaped links.
    pub kernel: usize,
    /// Cases whose time changed by a factor of over 1.3, in either direction.
    pub changing: usize,
    /// Cases that moved the bottleneck.
    pub moving: usize,
    /// Cases in which the two largest ideal times of kinds are within 20 % of each other.
    pub balanced: usize,
    /// Median error.
    pub median_error: f64,
    /// Largest error.
    pub worst_error: f64,
    /// Share of cases inside their interval.
    pub coverage: f64,
    /// Median half-width of the intervals, over the prediction.
    pub median_half_width: f64,
}

/// Scores the cases that are not void; `None` if there are none.
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
        median_error: median(values(Scored::error))?,
        worst_error: values(Scored::error).into_iter().fold(0.0, f64::max),
        coverage: count(Scored::inside) as f64 / counted.len() as f64,
        median_half_width: median(values(Scored::half_width))?,
    })
}

/// Returns the median of repeats and (longest − shortest) ÷ median; `None` without repeats, or if one is
/// not a valid time.
pub fn repeats(times_ms: &[f64]) -> Option<(f64, f64)> {
    if times_ms.iter().any(|t| !t.is_finite() || *t <= 0.0) {
        return None;
    }
    let middle = median(times_ms.to_vec())?;
    let longest = times_ms.iter().copied().fold(0.0, f64::max);
    let shortest = times_ms.iter().copied().fold(f64::INFINITY, f64::min);
    Some((middle, (longest - shortest) / middle))
}

/// Returns the index of the repeat with the median time (the lower one of an even number).
pub fn middle(times_ms: &[f64]) -> Option<usize> {
    let mut order: Vec<usize> = (0..times_ms.len()).collect();
    order.sort_by(|a, b| times_ms[*a].total_cmp(&times_ms[*b]));
    order.get(times_ms.len().checked_sub(1)? / 2).copied()
}

/// Returns true if the two largest ideal times are within 20 % of each other.
pub fn balanced(ideal_ms: impl Iterator<Item = f64>) -> Option<bool> {
    let mut ideal: Vec<f64> = ideal_ms.filter(|ms| *ms > 0.0).collect();
    ideal.sort_by(|a, b| b.total_cmp(a));
    let largest = ideal.first()?;
    Some(ideal.get(1).is_some_and(|second| second / largest >= 0.8))
}
