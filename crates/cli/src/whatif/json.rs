//! Builds the `pellucid.whatif/1` document.

use pellucid_model::Bottleneck;
use pellucid_model::whatif::{Baseline, Changes, Point, Prediction, Single};
use serde_json::{Map, Value, json};

use super::Answer;

/// Returns the document without its `format` key.
pub fn document(answer: &Answer) -> Map<String, Value> {
    let whatif = &answer.whatif;
    Map::from_iter([
        ("set".to_string(), map(&whatif.changes)),
        ("baseline".to_string(), baseline(&whatif.baseline)),
        ("prediction".to_string(), prediction(&whatif.prediction)),
        ("bottleneck_before".to_string(), bottleneck(whatif.bottleneck_before.as_ref())),
        ("bottleneck_after".to_string(), bottleneck(whatif.bottleneck_after.as_ref())),
        ("assumptions".to_string(), json!(whatif.assumptions)),
        ("sweep".to_string(), answer.sweep.as_ref().map_or(Value::Null, |(_, points)| sweep(points))),
        ("singles".to_string(), answer.singles.as_ref().map_or(Value::Null, |all| singles(all))),
    ])
}

/// Returns the settings as an object. Repeated keys (`no`) become arrays.
fn map(changes: &Changes) -> Value {
    let mut set = Map::new();
    for setting in changes.settings() {
        let value = Value::from(setting.value.as_str());
        match set.get_mut(&setting.key) {
            Some(Value::Array(all)) => all.push(value),
            Some(one) => *one = json!([one.take(), value]),
            None => {
                set.insert(setting.key.clone(), value);
            }
        }
    }
    Value::Object(set)
}

fn baseline(baseline: &Baseline) -> Value {
    json!({
        "measured_ms": baseline.measured_ms,
        "modelled_ms": baseline.modelled_ms,
        "simulated_ms": baseline.simulated_ms,
        "replay_error": baseline.replay_error(),
    })
}

fn prediction(prediction: &Prediction) -> Value {
    json!({
        "duration_ms": prediction.duration_ms,
        "low_ms": prediction.low_ms,
        "high_ms": prediction.high_ms,
        "by": prediction.by.word(),
        "because": prediction.because,
        "simulated_ms": prediction.simulated_ms,
        "analytic_ms": prediction.analytic_ms,
    })
}

fn bottleneck(bottleneck: Option<&Bottleneck>) -> Value {
    bottleneck.map_or(Value::Null, |b| json!({"kind": b.kind, "name": b.name}))
}

fn sweep(points: &[Point]) -> Value {
    let one = |point: &Point| {
        json!({
            "value": point.value,
            "duration_ms": point.prediction.duration_ms,
            "low_ms": point.prediction.low_ms,
            "high_ms": point.prediction.high_ms,
            "bottleneck": bottleneck(point.bottleneck.as_ref()),
        })
    };
    points.iter().map(one).collect()
}

fn singles(singles: &[Single]) -> Value {
    let one = |single: &Single| {
        json!({
            "set": map(&single.changes),
            "bound": single.changes.is_bound(),
            "duration_ms": single.prediction.duration_ms,
            "low_ms": single.prediction.low_ms,
            "high_ms": single.prediction.high_ms,
            "bottleneck": bottleneck(single.bottleneck.as_ref()),
        })
    };
    singles.iter().map(one).collect()
}
