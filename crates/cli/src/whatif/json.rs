//! Builds the `pellucid.whatif/1` document.

use pellucid_model::whatif::{Changes, Point, Single};
use serde_json::{Map, Value, json};

use super::answer::Answer;

/// Returns the document.
pub fn document(answer: &Answer) -> Value {
    let whatif = &answer.whatif;
    let baseline = &whatif.baseline;
    json!({
        "set": set(&whatif.changes),
        "baseline": {
            "measured_ms": baseline.measured_ms,
            "modelled_ms": baseline.modelled_ms,
            "simulated_ms": baseline.simulated_ms,
            "replay_error": baseline.replay_error(),
        },
        "prediction": whatif.prediction,
        "bottleneck_before": whatif.bottleneck_before,
        "bottleneck_after": whatif.bottleneck_after,
        "assumptions": whatif.assumptions,
        "sweep": answer.sweep.as_ref().map(|(_, points)| points.iter().map(point).collect::<Vec<_>>()),
        "singles": answer.singles.as_ref().map(|all| all.iter().map(single).collect::<Vec<_>>()),
    })
}

/// Returns the settings as an object. Repeated keys (`no`) become arrays.
fn set(changes: &Changes) -> Value {
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

fn point(point: &Point) -> Value {
    json!({
        "value": point.value,
        "duration_ms": point.prediction.duration_ms,
        "low_ms": point.prediction.low_ms,
        "high_ms": point.prediction.high_ms,
        "bottleneck": point.bottleneck,
    })
}

fn single(single: &Single) -> Value {
    json!({
        "set": set(&single.changes),
        "bound": single.changes.is_bound(),
        "duration_ms": single.prediction.duration_ms,
        "low_ms": single.prediction.low_ms,
        "high_ms": single.prediction.high_ms,
        "bottleneck": single.bottleneck,
        "assumptions": single.assumptions,
    })
}
