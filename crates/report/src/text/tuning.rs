//! The concurrency that the plugin chose for each executor over time, as text.

use pellucid_model::{Analysis, Tuning};

use super::page::clean;

/// Maximum number of stages in the line; the JSON document has all of them.
const MAX_STAGES: usize = 4;
/// Maximum number of executors of a stage in the line.
const MAX_EXECUTORS: usize = 3;

/// Returns a line such as `Tasks at once: stage 3: 2, 4, 8, 4 (executor 1), 2, 4 (executor 2)`, with the
/// stages in descending order of changes.
pub(crate) fn line(a: &Analysis) -> Option<String> {
    let mut stages: Vec<(usize, Vec<&Tuning>)> = Vec::new();
    for tuned in &a.tuning {
        match stages.last_mut().filter(|(stage, _)| *stage == tuned.stage) {
            Some((_, of_stage)) => of_stage.push(tuned),
            None => stages.push((tuned.stage, vec![tuned])),
        }
    }
    stages.sort_by_key(|(_, of_stage)| std::cmp::Reverse(of_stage.iter().map(|t| t.steps.len()).max()));
    let more = stages.len().saturating_sub(MAX_STAGES);
    let named: Vec<String> = stages.iter().take(MAX_STAGES).map(|(_, of_stage)| stage(of_stage)).collect();
    let more = if more > 0 { format!("; {more} more") } else { String::new() };
    (!named.is_empty()).then(|| format!("Tasks at once: {}{more}", named.join("; ")))
}

fn stage(of_stage: &[&Tuning]) -> String {
    let id = of_stage.first().map_or(0, |tuned| tuned.source_id.unwrap_or(tuned.stage as u64));
    let steps = |tuned: &Tuning| {
        let steps: Vec<String> = tuned.steps.iter().map(|step| step.concurrency.to_string()).collect();
        steps.join(", ")
    };
    if let [only] = of_stage {
        return format!("stage {id}: {}", steps(only));
    }
    let shown = of_stage.iter().take(MAX_EXECUTORS);
    let mut shown: Vec<String> =
        shown.map(|tuned| format!("{} ({})", steps(tuned), clean(&tuned.executor))).collect();
    if of_stage.len() > MAX_EXECUTORS {
        shown.push("…".to_owned());
    }
    format!("stage {id}: {}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pellucid_model::TuningStep;

    fn tuned(stage: usize, executor: &str, chosen: &[u32]) -> Tuning {
        let steps = chosen.iter().map(|n| TuningStep { at_ms: 0.0, concurrency: *n, reason: None }).collect();
        Tuning { stage, source_id: Some(stage as u64 + 10), executor: executor.into(), steps }
    }

    #[test]
    fn line_sorts_stages_by_number_of_changes() {
        assert_eq!(line(&Analysis::default()), None);
        let tuning = vec![
            tuned(0, "executor 1", &[4]),
            tuned(1, "executor 1", &[2, 4, 8, 4]),
            tuned(1, "executor 2", &[2, 4]),
        ];
        let a = Analysis { tuning, ..Analysis::default() };
        let expected = "Tasks at once: stage 11: 2, 4, 8, 4 (executor 1), 2, 4 (executor 2); stage 10: 4";
        assert_eq!(line(&a).as_deref(), Some(expected));
    }

    #[test]
    fn line_names_at_most_four_stages() {
        let tuning = (0..9).map(|stage| tuned(stage, "executor 1", &[2])).collect();
        let a = Analysis { tuning, ..Analysis::default() };
        assert!(line(&a).is_some_and(|line| line.ends_with("; 5 more")));
    }
}
