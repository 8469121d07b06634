//! `pellucid backtest`: predictions against what was measured.
//!
//! With a manifest, the pairs of traces that it names; with `--causal`, pairs that are
//! measured there and then. Intervals rest on the residuals of the manifest's other
//! queries, where those are enough, else on those that come with this version.

mod causal;
mod manifest;
mod text;

use crate::console::Console;
use crate::engine_options::EngineArguments;
use crate::failure::Failure;
use crate::output;
use pellucid_model::backtest::{Scored, score};
use pellucid_model::whatif::residual_table;
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// Arguments of `backtest`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A manifest names pairs of traces (docs/backtest.md). --causal needs none, no root and no other
hardware: it runs the query, predicts what fewer cores and a slower disk or link would make of it,
runs it so, and prints predicted beside measured. The options of `pellucid sql` say how it runs as
it is; files are read past the page cache, so that the disk matters. The query should take 0.2 s or more.

Example:
  pellucid backtest bench/results/backtest/manifest.json --max-error 11%
  pellucid backtest --causal \"SELECT sum(l_quantity) FROM 'data/tpch/lineitem.parquet'\"")]
pub struct Arguments {
    /// Pairs of traces
    #[arg(value_name = "MANIFEST", required_unless_present = "causal", conflicts_with = "causal")]
    manifest: Option<PathBuf>,
    /// Fail where an error is larger
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    max_error: Option<f64>,
    /// Write how far predictions were off, for the intervals of later versions
    #[arg(long, value_name = "FILE", conflicts_with = "causal")]
    residuals: Option<PathBuf>,
    /// Slow one resource after the other by known factors while this query runs
    #[arg(long, value_name = "QUERY")]
    causal: Option<String>,
    /// Runs of each configuration, interleaved
    #[arg(long, value_name = "N", default_value_t = 5, requires = "causal", value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// Give files a table's name, for example sales='data/sales/*.parquet'
    #[arg(long = "table", value_name = "NAME=PATH", requires = "causal", value_parser = crate::sql::parse_table)]
    tables: Vec<(String, String)>,
    #[command(flatten)]
    engine: EngineArguments,
}

/// Reads `10%` or `0.1`.
fn parse_share(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(percent) => (percent.trim(), 100.0),
        None => (text, 1.0),
    };
    match number.parse::<f64>() {
        // `--fail-slower 10` of `compare` means 10 %: who writes that here does not mean ten times as long.
        Ok(share) if share >= 1.0 && unit == 1.0 => {
            Err(format!("{text} of what? Write {text}%, or a share below 1"))
        }
        Ok(share) if share > 0.0 && share.is_finite() => Ok(share / unit),
        _ => Err("it is a share over 0, for example 10% or 0.1".to_string()),
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments, console: &Console) -> Result<(), Failure> {
    let (cases, warnings) = match (&arguments.causal, &arguments.manifest) {
        (Some(query), _) => causal::run(query, arguments, console)?,
        (None, Some(path)) => {
            if let Some(option) = arguments.engine.given() {
                return Err(Failure::Usage(format!(
                    "{option} says how a query runs, and a manifest runs none; leave it out, or use --causal QUERY"
                )));
            }
            let (cases, residuals) = manifest::run(path, console)?;
            if let Some(file) = &arguments.residuals {
                output::write_whole(file, |out| out.write_all(residual_table(&residuals).as_bytes()))?;
            }
            (cases, Vec::new())
        }
        (None, None) => return Err(Failure::Usage("give a manifest, or --causal QUERY".to_string())),
    };
    let shown = if console.json {
        console.print(|out| output::write_document(out, "pellucid.backtest/1", &document(&cases)))
    } else {
        let text = text::table(&cases, console.width(), console.color_stdout());
        console.print(|out| out.write_all(text.as_bytes()))
    };
    for warning in &warnings {
        console.warn(warning);
    }
    // Whoever reads no further still learns how it ended.
    gate(&cases, arguments.max_error).and(shown)
}

/// Fails where a case that counts is off by more.
fn gate(cases: &[Scored], max_error: Option<f64>) -> Result<(), Failure> {
    let Some(most) = max_error else { return Ok(()) };
    let over = cases.iter().filter(|c| c.void.is_none() && c.error() > most);
    match over.max_by(|a, b| a.error().total_cmp(&b.error())) {
        None => Ok(()),
        Some(worst) => Err(Failure::Failed(format!(
            "{} is off by {:.1} %, more than {:.1} %",
            worst.name,
            worst.error() * 100.0,
            most * 100.0
        ))),
    }
}

/// The `pellucid.backtest/1` document, without its format.
fn document(cases: &[Scored]) -> Map<String, Value> {
    let score = score(cases);
    let of = |value: fn(&pellucid_model::backtest::Score) -> Value| score.as_ref().map_or(Value::Null, value);
    Map::from_iter([
        ("cases".to_string(), cases.iter().map(case).collect()),
        ("median_error".to_string(), of(|s| s.median_error.into())),
        ("worst_error".to_string(), of(|s| s.worst_error.into())),
        ("coverage".to_string(), of(|s| s.coverage.into())),
        ("median_half_width".to_string(), of(|s| s.median_half_width.into())),
        (
            "counts".to_string(),
            of(|s| {
                json!({"cases": s.cases, "queries": s.queries, "kernel": s.kernel, "changing": s.changing,
                       "moving": s.moving, "balanced": s.balanced})
            }),
        ),
    ])
}

fn case(case: &Scored) -> Value {
    json!({
        "name": case.name,
        "query": case.query,
        "set": case.set.iter().map(|(k, v)| (k.clone(), Value::from(v.as_str()))).collect::<Map<_, _>>(),
        "emulation": case.emulation,
        "baseline_ms": case.baseline_ms,
        "baseline_spread": case.baseline_spread,
        "measured_ms": case.measured_ms,
        "measured_spread": case.measured_spread,
        "predicted_ms": case.prediction.duration_ms,
        "low_ms": case.prediction.low_ms,
        "high_ms": case.prediction.high_ms,
        "by": case.prediction.by.word(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_percentage_or_a_fraction() {
        assert_eq!(parse_share("10%"), Ok(0.1));
        assert_eq!(parse_share("0.25"), Ok(0.25));
        for text in ["", "%", "0%", "-1%", "ten", "inf", "10", "1"] {
            assert!(parse_share(text).is_err(), "{text}");
        }
    }
}
