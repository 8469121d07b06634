//! Selection of the predictor, and the 90 % interval.
//!
//! `docs/predictions.md` derives both. In short: the simulation is used unless it fails to reproduce the
//! measured job and ideal times are closer. A prediction's *scale* estimates its difficulty. It combines
//! the replay error, a tenth of the disagreement between the predictors, a fifth of the spread of service
//! times, and a minimum. Backtests of other queries show how many scales predictions were off: nine in
//! ten stayed within `factor` scales, and this prediction's interval has that half-width (a split
//! conformal interval). The uncertainty of assumptions widens it.

use super::answer::{Baseline, By, Prediction};
use super::basis::Estimate;
use super::tasks::Tasks;
use crate::numbers::ratio;

/// The tables shipped with this version; `pellucid backtest --residuals` writes them.
const TABLES: [&str; 2] = [include_str!("residuals.tsv"), include_str!("../pipelined/residuals.tsv")];
/// The first line of a table.
pub const RESIDUALS_HEADER: &str = "tasks\tquery\tfingerprint\tscale\tlog_error";
/// Minimum part of every scale: no job takes exactly the same time twice.
const MIN_SCALE: f64 = 0.01;
/// Maximum half-width of the interval, as a logarithm: a hundredfold carries no information.
const MAX_HALF_WIDTH: f64 = 4.6;
/// Replay error above which something happened that the simulation does not model.
const MAX_REPLAY_ERROR: f64 = 0.05;
/// The factor where there are too few residuals to estimate it.
const ASSUMED_FACTOR: f64 = 3.0;
/// Minimum residuals of other queries for which the nine-in-ten bound is one of them.
const MIN_RESIDUALS: usize = 9;

/// The error of one backtest.
#[derive(Debug, Clone, PartialEq)]
pub struct Residual {
    /// The kind of tasks of the trace.
    pub tasks: Tasks,
    /// Name of the query.
    pub query: String,
    /// Hash of the query's text: see [`fingerprint`].
    pub fingerprint: u64,
    /// Estimated difficulty of the prediction.
    pub scale: f64,
    /// ln(measured ÷ predicted).
    pub log_error: f64,
}

/// The errors of backtests.
pub type Residuals = Vec<Residual>;

/// Parses the residuals of a table, or those shipped with this version. Skips lines that do not parse.
pub fn residuals(table: Option<&str>) -> Residuals {
    let tables = table.map_or(TABLES.to_vec(), |table| vec![table]);
    let lines = tables.into_iter().flat_map(str::lines);
    lines
        .filter_map(|line| {
            let mut fields = line.split('\t');
            let name = fields.next()?;
            let tasks = Tasks::ALL.into_iter().find(|tasks| tasks.name() == name)?;
            let query = fields.next()?.to_string();
            let fingerprint = u64::from_str_radix(fields.next()?, 16).ok()?;
            let scale = fields.next()?.parse().ok().filter(|s: &f64| s.is_finite() && *s > 0.0)?;
            let log_error = fields.next()?.parse().ok().filter(|e: &f64| e.is_finite())?;
            Some(Residual { tasks, query, fingerprint, scale, log_error })
        })
        .collect()
}

/// Formats residuals as a table for [`residuals`].
pub fn residual_table(residuals: &[Residual]) -> String {
    let mut table = format!("{RESIDUALS_HEADER}\n");
    for r in residuals {
        let (tasks, query, fingerprint) = (r.tasks.name(), &r.query, r.fingerprint);
        table += &format!("{tasks}\t{query}\t{fingerprint:016x}\t{:.5}\t{:.5}\n", r.scale, r.log_error);
    }
    table
}

/// Hashes query texts, ignoring spacing and case (FNV-1a).
pub fn fingerprint<'a>(names: impl Iterator<Item = &'a str>) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for name in names {
        for word in name.split_whitespace() {
            for byte in word.bytes().map(|b| b.to_ascii_lowercase()).chain([b' ']) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }
    hash
}

/// Input to the choice of predictor and the interval of one trace.
#[derive(Debug, Clone)]
pub(crate) struct Evidence {
    pub baseline: Baseline,
    /// Relative spread of the job's service times: see [`super::Basis::spread`].
    pub spread: f64,
    /// Number of scales that nine in ten backtests of other queries stayed within.
    pub factor: f64,
    /// Number of backtests behind `factor`.
    pub backtests: usize,
}

impl Evidence {
    pub fn of(
        baseline: Baseline,
        spread: f64,
        (tasks, fingerprint): (Tasks, u64),
        residuals: &[Residual],
    ) -> Evidence {
        let others = residuals.iter().filter(|r| r.tasks == tasks && r.fingerprint != fingerprint);
        let mut scales: Vec<f64> = others.map(|r| r.log_error.abs() / r.scale.max(MIN_SCALE)).collect();
        scales.sort_by(f64::total_cmp);
        let backtests = scales.len();
        // The rank of a nine-in-ten bound among n + 1 values, of which this prediction is one.
        let place = ((backtests as f64 + 1.0) * 0.9).ceil() as usize;
        let factor = match scales.get(place.wrapping_sub(1)) {
            Some(factor) if backtests >= MIN_RESIDUALS => *factor,
            _ => ASSUMED_FACTOR.max(scales.last().copied().unwrap_or(0.0)),
        };
        Evidence { baseline, spread, factor, backtests }
    }

    /// Returns the prediction for an estimate; `None` if neither predictor has one.
    pub fn prediction(&self, estimate: &Estimate) -> Option<Prediction> {
        let measured = self.baseline.measured_ms;
        let scaled = |changed: Option<f64>, before: Option<f64>| Some(measured * ratio(changed?, before?)?);
        let simulated_ms = scaled(estimate.simulated_ms, self.baseline.simulated_ms);
        let analytic_ms = scaled(estimate.analytic_ms, self.baseline.modelled_ms);
        let (by, because) = self.choice(simulated_ms, analytic_ms)?;
        let duration_ms = match by {
            By::Simulated => simulated_ms?,
            By::Analytic => analytic_ms?,
        };
        let half = self.factor * self.scale(by, simulated_ms, analytic_ms);
        let below = (half.powi(2) + estimate.uncertainty.0.powi(2)).sqrt().min(MAX_HALF_WIDTH);
        let above = (half.powi(2) + estimate.uncertainty.1.powi(2)).sqrt().min(MAX_HALF_WIDTH);
        Some(Prediction {
            duration_ms,
            low_ms: duration_ms * (-below).exp(),
            high_ms: duration_ms * above.exp(),
            by,
            because,
            analytic_ms,
            simulated_ms,
        })
    }

    /// Returns the scale of a prediction: see the module documentation.
    pub fn scale(&self, by: By, simulated_ms: Option<f64>, analytic_ms: Option<f64>) -> f64 {
        let apart =
            simulated_ms.zip(analytic_ms).and_then(|(s, a)| ratio(s, a)).map_or(0.1, |r| r.ln().abs());
        let missed = match by {
            By::Simulated => self.baseline.replay_error(),
            By::Analytic => self.unexplained(),
        };
        let parts = [MIN_SCALE, missed.unwrap_or(0.1), apart / 10.0, self.spread / 5.0];
        parts.iter().map(|p| p.powi(2)).sum::<f64>().sqrt()
    }

    /// Returns the share of the measured time that ideal times do not explain.
    fn unexplained(&self) -> Option<f64> {
        ratio((self.baseline.measured_ms - self.baseline.modelled_ms?).abs(), self.baseline.measured_ms)
    }

    /// Chooses the simulation, unless it misses the measured job by much and ideal times are closer.
    fn choice(&self, simulated: Option<f64>, analytic: Option<f64>) -> Option<(By, String)> {
        let replay = self.baseline.replay_error().filter(|_| simulated.is_some());
        let rest = self.unexplained().filter(|_| analytic.is_some());
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        match (replay, rest) {
            (Some(replay), Some(rest)) if replay > MAX_REPLAY_ERROR && rest < replay => Some((
                By::Analytic,
                format!(
                    "the simulation is {} off the measured job, ideal times {}",
                    percent(replay),
                    percent(rest)
                ),
            )),
            (Some(replay), _) => Some((
                By::Simulated,
                format!("the simulation reproduces the measured job within {}", percent(replay)),
            )),
            (None, Some(rest)) => Some((
                By::Analytic,
                format!("the job cannot be simulated; ideal times are {} off", percent(rest)),
            )),
            (None, None) => None,
        }
    }
}
