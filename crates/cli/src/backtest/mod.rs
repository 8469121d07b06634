//! `pellucid backtest`: compares predictions with measurements.
//!
//! A manifest names pairs of recorded traces; `--causal` measures new pairs. Intervals are
//! based on the residuals of the manifest's other queries if there are enough of them, and
//! otherwise on the residuals that ship with this version.

mod causal;
mod manifest;
mod text;

use crate::console::Console;
use crate::engine_options::EngineArguments;
use crate::failure::Failure;
use crate::output;
use pellucid_model::backtest::{Scored, score};
use pellucid_model::units::parse_share;
use pellucid_model::whatif::residual_table;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Arguments of `backtest`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A manifest names pairs of traces (docs/backtest.md). --causal needs neither a manifest, nor root, nor other \
hardware: it runs the query, predicts its time with fewer cores and with a slower disk or link, runs it \
with these changes, and prints predicted and measured times side by side. The options of `pellucid sql` \
configure the baseline. Reads bypass the page cache, so that the disk is used. The query should take at \
least 0.2 s.

Example:
  pellucid backtest bench/results/backtest/manifest.json --max-error 11%
  pellucid backtest --causal \"SELECT count(*) FROM 'lineitem.parquet'\"")]
pub struct Arguments {
    /// Manifest with pairs of traces
    #[arg(value_name = "MANIFEST", required_unless_present = "causal", conflicts_with = "causal")]
    manifest: Option<PathBuf>,
    /// Fail if the error of any case is larger than this share, for example 10% or 0.1
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    max_error: Option<f64>,
    /// Write the prediction errors to FILE, for the intervals of later versions
    #[arg(long, value_name = "FILE", conflicts_with = "causal")]
    residuals: Option<PathBuf>,
    /// Run this query while slowing one resource at a time by known factors
    #[arg(long, value_name = "QUERY")]
    causal: Option<String>,
    /// Interleaved runs of each configuration
    #[arg(long, value_name = "N", default_value_t = 5, requires = "causal", value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// Register files as a table, for example sales='data/sales/*.parquet'
    #[arg(long = "table", value_name = "NAME=PATH", requires = "causal", value_parser = crate::sql::parse_table)]
    tables: Vec<(String, String)>,
    #[command(flatten)]
    engine: EngineArguments,
}

/// Runs the command.
pub fn run(arguments: &Arguments, console: &Console) -> Result<(), Failure> {
    let (cases, warnings) = match (&arguments.causal, &arguments.manifest) {
        (Some(query), _) => causal::run(query, arguments, console)?,
        (None, Some(path)) => {
            if let Some(option) = arguments.engine.given() {
                return Err(Failure::Usage(format!(
                    "cannot use {option} with a manifest, which runs no query; remove it, or use \
                     --causal QUERY"
                )));
            }
            output::check_outputs(&[("--residuals", arguments.residuals.as_deref())], [path.as_path()])?;
            let (cases, residuals) = manifest::run(path, console)?;
            if let Some(file) = &arguments.residuals {
                output::write_whole(file, |out| out.write_all(residual_table(&residuals).as_bytes()))?;
            }
            (cases, Vec::new())
        }
        (None, None) => return Err(Failure::Usage("expected a manifest or --causal QUERY".to_string())),
    };
    let printed = if console.json {
        console.print_document("pellucid.backtest/1", &document(&cases))
    } else {
        let text = text::table(&cases, console.width(), console.color_stdout());
        console.print_styled(|out| out.write_all(text.as_bytes()))
    };
    for warning in &warnings {
        console.warn(warning);
    }
    // A closed pipe must not hide a failed gate.
    gate(&cases, arguments.max_error).and(printed)
}

/// Fails if the error of a case that is not void exceeds the limit.
fn gate(cases: &[Scored], max_error: Option<f64>) -> Result<(), Failure> {
    let Some(max_error) = max_error else { return Ok(()) };
    let over = cases.iter().filter(|c| c.void.is_none() && c.error() > max_error);
    match over.max_by(|a, b| a.error().total_cmp(&b.error())) {
        None => Ok(()),
        Some(worst) => Err(Failure::Failed(format!(
            "the prediction of {} is off by {:.1} %, more than the {:.1} % allowed",
            worst.name,
            worst.error() * 100.0,
            max_error * 100.0
        ))),
    }
}

/// Returns the `pellucid.backtest/1` document.
fn document(cases: &[Scored]) -> Value {
    let score = score(cases);
    let score = score.as_ref();
    json!({
        "cases": cases.iter().map(case).collect::<Vec<_>>(),
        "median_error": score.map(|s| s.median_error),
        "worst_error": score.map(|s| s.worst_error),
        "coverage": score.map(|s| s.coverage),
        "median_half_width": score.map(|s| s.median_half_width),
        "counts": score.map(|s| {
            json!({"cases": s.cases, "queries": s.queries, "kernel": s.kernel, "changing": s.changing,
                   "moving": s.moving, "balanced": s.balanced})
        }),
    })
}

fn case(case: &Scored) -> Value {
    json!({
        "name": case.name,
        "query": case.query,
        "set": case.set.iter().cloned().collect::<BTreeMap<_, _>>(),
        "emulation": case.emulation,
        "baseline_ms": case.baseline_ms,
        "baseline_spread": case.baseline_spread,
        "measured_ms": case.measured_ms,
        "measured_spread": case.measured_spread,
        "predicted_ms": case.prediction.duration_ms,
        "low_ms": case.prediction.low_ms,
        "high_ms": case.prediction.high_ms,
        "by": case.prediction.by,
        "simulated_ms": case.prediction.simulated_ms,
        "analytic_ms": case.prediction.analytic_ms,
        "replay_error": case.replay_error,
        "error": case.error(),
        "inside": case.inside(),
        "bottleneck_before": case.bottleneck_before,
        "bottleneck_after": case.bottleneck_after,
        "bottleneck_measured": case.bottleneck_measured,
        "balanced": case.balanced,
        "void": case.void,
    })
}
