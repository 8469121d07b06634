//! Predicts the cases of a manifest and compares them with measurements.

use crate::analyze;
use crate::console::Console;
use crate::failure::Failure;
use pellucid_model::backtest::{Case, MANIFEST_FORMAT, Manifest, Scored, balanced, middle, repeats};
use pellucid_model::measured_ms;
use pellucid_model::units::parse_rate;
use pellucid_model::whatif::{Changes, Residual, WhatIfModel, residuals};
use pellucid_trace::Trace;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Reads a manifest and scores its cases. Returns the scores and the residuals.
///
/// # Errors
/// Returns an error if the manifest or a trace cannot be read, or if a case is incomplete. Errors in a case
/// name it.
pub fn run(path: &Path, console: &Console) -> Result<(Vec<Scored>, Vec<Residual>), Failure> {
    let manifest = read(path)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut bar = console.progress();
    let mut scored = Vec::new();
    let total = manifest.cases.len() as u64;
    for (done, case) in (0..).zip(&manifest.cases) {
        bar.set(done, total, &case.name);
        let measured = Measured::of(case, folder).map_err(|f| in_case(case, f))?;
        let (one, residual) = measured.score(case, &residuals(None)).map_err(|f| in_case(case, f))?;
        scored.push((one, residual, measured));
    }
    // Score each case again, with an interval based on the other queries of this manifest.
    let all: Vec<Residual> =
        scored.iter().filter(|(s, ..)| s.void.is_none()).map(|(_, residual, _)| residual.clone()).collect();
    let mut cases = Vec::new();
    for (case, (before, _, measured)) in manifest.cases.iter().zip(&scored) {
        let others: Vec<Residual> = all.iter().filter(|r| r.query != case.query).cloned().collect();
        let known = residuals(None);
        let enough = others.len() >= known.len().max(20);
        let (one, _) = measured.score(case, if enough { &others } else { &known })?;
        debug_assert!(one.prediction.duration_ms == before.prediction.duration_ms);
        cases.push(one);
    }
    Ok((cases, all))
}

fn in_case(case: &Case, failure: Failure) -> Failure {
    match failure {
        Failure::Usage(message) => Failure::Usage(format!("case `{}`: {message}", case.name)),
        Failure::Failed(message) => Failure::Failed(format!("case `{}`: {message}", case.name)),
        other => other,
    }
}

fn read(path: &Path) -> Result<Manifest, Failure> {
    let text = fs::read_to_string(path).map_err(|e| Failure::file("read", path.display(), &e))?;
    let invalid = |why: String| {
        Failure::Failed(format!("invalid manifest {}: {why}; see docs/backtest.md", path.display()))
    };
    let manifest: Manifest = serde_json::from_str(&text).map_err(|e| invalid(e.to_string()))?;
    if manifest.format != MANIFEST_FORMAT {
        return Err(invalid(format!("its format is `{}`, not `{MANIFEST_FORMAT}`", manifest.format)));
    }
    let mut names = BTreeSet::new();
    if let Some(duplicate) = manifest.cases.iter().find(|c| !names.insert(&c.name)) {
        return Err(invalid(format!("two cases are named `{}`", duplicate.name)));
    }
    if manifest.cases.is_empty() {
        return Err(invalid("it has no cases".to_string()));
    }
    Ok(manifest)
}

/// The measurements of one case.
struct Measured {
    /// The repeat with the median duration.
    baseline: Trace,
    baseline_ms: (f64, f64),
    target_ms: (f64, f64),
    /// Bottleneck of the target, and whether two kinds of resource were nearly equal.
    target: Option<(Option<String>, Option<bool>)>,
}

impl Measured {
    fn of(case: &Case, folder: &Path) -> Result<Measured, Failure> {
        let (mut baselines, times) = traces(&case.baseline, folder)?;
        let none = |key: &str| Failure::Failed(format!("`{key}` has no run with a measurable duration"));
        let baseline_ms = repeats(&times).ok_or_else(|| none("baseline"))?;
        let baseline = baselines.swap_remove(middle(&times).unwrap_or(0));
        let (targets, mut target_times) = traces(&case.measured, folder)?;
        let target = middle(&target_times).map(|at| limits(&targets[at]));
        target_times.extend(&case.measured_ms);
        let target_ms = repeats(&target_times).ok_or_else(|| none("measured"))?;
        Ok(Measured { baseline, baseline_ms, target_ms, target })
    }

    fn score(&self, case: &Case, residuals: &[Residual]) -> Result<(Scored, Residual), Failure> {
        let settings: Vec<String> = case.set.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let changes = Changes::parse(&settings, parse_rate)?;
        let model = WhatIfModel::of(&self.baseline, residuals)?;
        let answer = model.predict(&changes)?;
        let (bottleneck_measured, balanced) = self.target.clone().unwrap_or_default();
        let scored = Scored {
            name: case.name.clone(),
            query: case.query.clone(),
            set: case.set.clone().into_iter().collect(),
            emulation: case.emulation,
            baseline_ms: self.baseline_ms.0,
            baseline_spread: self.baseline_ms.1,
            measured_ms: self.target_ms.0,
            measured_spread: self.target_ms.1,
            scale: model.scale(&answer.prediction),
            prediction: answer.prediction,
            replay_error: answer.baseline.replay_error(),
            bottleneck_before: answer.bottleneck_before.map(|b| b.kind),
            bottleneck_after: answer.bottleneck_after.map(|b| b.kind),
            bottleneck_measured,
            balanced,
            void: case.void.clone(),
        };
        let residual = scored.residual(model.fingerprint());
        Ok((scored, residual))
    }
}

fn traces(paths: &[String], folder: &Path) -> Result<(Vec<Trace>, Vec<f64>), Failure> {
    let mut traces = Vec::new();
    let mut times = Vec::new();
    for path in paths {
        let path = folder.join(path);
        let trace = analyze::read(&path)?;
        let time = measured_ms(&trace)
            .map_err(|refused| Failure::Failed(format!("{}: {}", path.display(), refused.message())))?;
        traces.push(trace);
        times.push(time);
    }
    Ok((traces, times))
}

/// Returns the bottleneck of a measured job, and whether the ideal times of two kinds were nearly equal.
pub fn limits(trace: &Trace) -> (Option<String>, Option<bool>) {
    let analysis = pellucid_model::analyze(trace);
    let Some(job) = analysis.jobs.last() else { return (None, None) };
    (job.bottleneck.as_ref().map(|b| b.kind.clone()), balanced(job.kinds.values().map(|k| k.ideal_ms)))
}
