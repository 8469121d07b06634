//! Advice on the query itself, from the operators of its trace: partitions, joins and aggregates.

use super::candidate::{Advised, LEAST_SAVING};
use crate::failure::Failure;
use pellucid_model::units::{grouped, parse_rate};
use pellucid_model::whatif::{Changes, WhatIfModel};
use pellucid_trace::{Operator, Trace};

/// Partitions of exchanges to try.
const PARTITIONS: [u32; 6] = [2, 4, 8, 16, 32, 64];

/// Returns the advice that the model predicts to be faster with the whole interval.
///
/// # Errors
/// Returns an error if the model refuses a setting of this module's making.
pub fn advised(trace: &Trace, model: &WhatIfModel<'_>) -> Result<Vec<Advised>, Failure> {
    let mut all = vec![];
    all.extend(partitions(model)?);
    for (build, probe) in joins(trace) {
        all.extend(larger_build(trace, build, probe, model)?);
    }
    all.extend(twice(trace, model)?);
    Ok(all)
}

/// Predicts settings; `None` if they do not help for certain, or the trace does not support them.
fn helps(
    (id, title, evidence, change): (String, String, String, String),
    set: &[String],
    model: &WhatIfModel<'_>,
) -> Result<Option<Advised>, Failure> {
    let set = Changes::parse(set, parse_rate)?;
    let Ok(whatif) = model.predict(&set) else { return Ok(None) };
    let (prediction, measured_ms) = (whatif.prediction, model.baseline().measured_ms);
    let helps =
        prediction.high_ms < measured_ms && prediction.duration_ms < measured_ms * (1.0 - LEAST_SAVING);
    Ok(helps.then_some(Advised { id, title, evidence, change, set, prediction }))
}

/// Returns the best number of partitions.
fn partitions(model: &WhatIfModel<'_>) -> Result<Option<Advised>, Failure> {
    let mut best: Option<Advised> = None;
    for number in PARTITIONS {
        let texts = (
            format!("partitions:{number}"),
            format!("divide the work after exchanges into {number} partitions"),
            "the work of each stage after an exchange, divided differently".to_string(),
            format!("run the query with --partitions {number}"),
        );
        let found = helps(texts, &[format!("partitions={number}")], model)?;
        if let Some(found) = found
            && best.as_ref().is_none_or(|best| found.prediction.duration_ms < best.prediction.duration_ms)
        {
            best = Some(found);
        }
    }
    Ok(best)
}

/// Returns the operators of both sides of each join.
fn joins(trace: &Trace) -> Vec<(&Operator, &Operator)> {
    let builds =
        trace.operators.iter().filter(|o| o.name.starts_with("HashJoin ") && o.name.ends_with(" build"));
    builds
        .filter_map(|build| {
            let probe = trace.operators.iter().find(|o| {
                o.stage == build.stage
                    && o.name.ends_with(" probe")
                    && o.inputs.first() == Some(&build.operator)
            });
            Some((build, probe?))
        })
        .collect()
}

/// Returns the rows of the operator with a number.
fn rows(trace: &Trace, number: Option<&u32>) -> Option<u64> {
    trace.operators.iter().find(|o| Some(&o.operator) == number)?.rows.filter(|rows| *rows > 0)
}

/// Predicts a join whose build side has more rows than its probe side with the sides exchanged: each row keeps the core
/// time of its side.
fn larger_build(
    trace: &Trace,
    build: &Operator,
    probe: &Operator,
    model: &WhatIfModel<'_>,
) -> Result<Option<Advised>, Failure> {
    let sides = rows(trace, build.inputs.first()).zip(rows(trace, probe.inputs.get(1)));
    let Some((built, probed)) = sides.filter(|(built, probed)| built > probed) else { return Ok(None) };
    let factor = probed as f64 / built as f64;
    let texts = (
        format!("build:{}", build.operator),
        "build the smaller side of a join".to_string(),
        format!(
            "operator {} ({}) builds {} rows and probes {}",
            build.operator,
            build.name,
            grouped(built),
            grouped(probed)
        ),
        "store the smaller side as a table first (CREATE TABLE … AS), so that its size is known".to_string(),
    );
    let set = [
        format!("operator.{}.time=x{:.3}", build.operator, factor.max(0.001)),
        format!("operator.{}.time=x{:.3}", probe.operator, (1.0 / factor).min(1e6)),
    ];
    helps(texts, &set, model)
}

/// Predicts a query without the second of two stages that compute the same aggregate.
fn twice(trace: &Trace, model: &WhatIfModel<'_>) -> Result<Vec<Advised>, Failure> {
    let of_stage = |stage: u32| trace.operators.iter().filter(move |o| o.stage == stage);
    // The output goes to another stage.
    let content = |stage: u32| -> Vec<(&str, Option<&str>)> {
        of_stage(stage)
            .filter(|o| o.name != "Partition")
            .map(|o| (o.name.as_str(), o.detail.as_deref()))
            .collect()
    };
    let is_whole = |stage: u32| of_stage(stage).all(|o| o.from.is_none());
    let mut all = Vec::new();
    let aggregates = trace.operators.iter().filter(|o| o.name == "Aggregate Partial" && is_whole(o.stage));
    for second in aggregates {
        let first =
            (0..second.stage).find(|stage| is_whole(*stage) && content(*stage) == content(second.stage));
        let Some(first) = first else { continue };
        let texts = (
            format!("twice:{}", second.operator),
            "compute an aggregate once that is computed twice".to_string(),
            format!("stages {first} and {} have the same operators", second.stage),
            "store the aggregate as a table first (CREATE TABLE … AS), and read it twice".to_string(),
        );
        let set: Vec<String> = of_stage(second.stage)
            .filter(|o| o.cpu_ns > 0)
            .map(|o| format!("operator.{}.time=x0.001", o.operator))
            .collect();
        all.extend(helps(texts, &set, model)?);
    }
    Ok(all)
}
