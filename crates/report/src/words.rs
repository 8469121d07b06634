//! Names of resources, causes and capacities for people.

use pellucid_model::units::{count, size, time_of};
use pellucid_model::{KindUse, Steps};
use pellucid_trace::kind;

/// Formats a capacity and its source: `2 cores (counted)`, `50 MB/s (set)`.
pub(crate) fn capacity(kind: &str, capacity: Option<f64>, from: Option<&str>) -> String {
    let amount = match (capacity, kind) {
        (Some(c), kind::CPU) if (c - c.round()).abs() > 0.005 => {
            Some(format!("{} cores", (c * 100.0).round() / 100.0))
        }
        (Some(c), kind::CPU) => Some(count(c.round() as u64, "core")),
        (Some(c), kind::SLOTS) => Some(count(c.round() as u64, "slot")),
        (Some(c), _) => Some(format!("{}/s", size(c))),
        (None, _) => None,
    };
    match (amount, from) {
        (Some(amount), Some(from)) => format!("{amount} ({from})"),
        (Some(amount), None) => amount,
        (None, Some(from)) => format!("unknown ({from})"),
        (None, None) => "unknown".into(),
    }
}

/// Returns the noun for a kind of resource.
pub(crate) fn noun(kind: &str) -> &str {
    match kind {
        kind::CPU => "cores",
        kind::MEMORY_BANDWIDTH => "memory bandwidth",
        other => other,
    }
}

/// Returns the noun for a cause of an analysis.
pub fn cause(cause: &str) -> &str {
    match cause {
        kind::CPU => "computing",
        "gc" => "garbage collection",
        "straggler" => "stragglers",
        "unexplained" => "unexplained time",
        "failure" => "failed work",
        other => other,
    }
}

/// Describes a job that no resource limits: its longest steps, each with its share of the job's time.
pub(crate) fn not_limited(steps: Option<&Steps>, whole_ms: f64) -> String {
    let mut steps: Vec<_> = steps.iter().flat_map(|steps| steps.each()).filter(|(_, ms)| *ms > 0.0).collect();
    steps.sort_by(|a, b| b.1.total_cmp(&a.1));
    let word = |step: &str| match step {
        "admission" => "waiting for admission".to_owned(),
        // Monotasks ran, but no resource was saturated.
        "working" => "running".to_owned(),
        "pauses" => "idle between monotasks".to_owned(),
        step => step.to_owned(),
    };
    let longest = steps.first().map_or(0.0, |(_, ms)| *ms);
    let shown = steps.iter().take(if longest < whole_ms / 2.0 { 2 } else { 1 });
    let shown: Vec<String> =
        shown.map(|(step, ms)| format!("{} {}", word(step), time_of(*ms, whole_ms))).collect();
    match shown.is_empty() {
        true => "not limited by one resource".into(),
        false => format!("not limited by one resource: {}", shown.join(", ")),
    }
}

/// Truncates text to `max` characters, after a clause if possible, else after a word.
pub(crate) fn shortened(text: &str, max: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(max.saturating_sub(1)) else { return text.to_owned() };
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let fits = &text[..end];
    let clause = ["; ", ": ", ". ", ", ", " ("].iter().filter_map(|mark| fits.rfind(mark)).max();
    let at = clause.filter(|at| *at >= end / 4 * 3).or_else(|| fits.rfind(' ')).unwrap_or(end);
    format!("{}…", fits[..at].trim_end())
}

/// Names a resource by its kind, and by its name where that adds information.
pub(crate) fn resource(kind: &str, name: Option<&str>) -> String {
    match name {
        Some(name) if kind != kind::CPU && name != kind => format!("{} {name}", noun(kind)),
        _ => noun(kind).to_owned(),
    }
}

/// Returns the bottleneck within a kind and its time: the most loaded resource, or all of them if
/// they are evenly loaded.
pub(crate) fn limiting(kind: &str, used: &KindUse) -> (String, f64) {
    if used.resources > 1 && used.limit_ms <= 1.05 * used.ideal_ms {
        let all = match kind {
            kind::CPU => "cores".to_owned(),
            kind => count(used.resources as u64, noun(kind)),
        };
        return (all, used.ideal_ms);
    }
    (resource(kind, used.largest.as_deref()), used.limit_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlimited_job_names_its_longest_steps() {
        let steps = Steps { planning_ms: 1.2, working_ms: 0.5, starting_ms: 0.4, ..Steps::default() };
        assert_eq!(not_limited(Some(&steps), 2.1), "not limited by one resource: planning 1.2 of 2.1 ms");
        let even = Steps { planning_ms: 1.0, admission_ms: 0.9, working_ms: 0.6, ..Steps::default() };
        assert_eq!(
            not_limited(Some(&even), 2.5),
            "not limited by one resource: planning 1.0 of 2.5 ms, waiting for admission 900 µs of 2.5 ms"
        );
        assert_eq!(not_limited(None, 2.5), "not limited by one resource");
    }

    #[test]
    fn shortened_text_ends_after_a_clause_or_a_word() {
        assert_eq!(shortened("short", 5), "short");
        assert_eq!(shortened("core time was 6 s; another 18 s are not", 21), "core time was 6 s…");
        assert_eq!(shortened("Task 2 in stage 3.0 failed 4 times", 20), "Task 2 in stage…");
        assert_eq!(shortened("注文注文注文", 4), "注文注…");
    }

    #[test]
    fn capacity_keeps_fractions_of_a_core() {
        let cores = |n: f64| capacity(kind::CPU, Some(n), Some("quota"));
        assert_eq!(cores(2.0), "2 cores (quota)");
        assert_eq!(cores(1.0), "1 core (quota)");
        assert_eq!(cores(1.5), "1.5 cores (quota)");
        assert_eq!(cores(0.25), "0.25 cores (quota)");
    }
}
