//! Names of stages and the text of `EXPLAIN` and `EXPLAIN ANALYZE`.

use std::fmt::Write;

use datafusion::physical_plan::ExecutionPlanProperties;
use pellucid_trace::{Column, Operator, Phase, StageIx, Trace};

use crate::execute::stage::ReadyStage;
use crate::plan::cut::{Node, Output, StagePlan};
use crate::plan::operators::{detail, is_split, short};
use crate::scan::Need;
use crate::scan::text;

/// The names of a stage's operators, for its trace.
pub(crate) struct Names {
    /// The stage's operators, outermost first.
    pub name: String,
    /// The operators that are not split into monotasks.
    pub not_split: Vec<String>,
}

/// Returns the names of stage `index`.
pub(crate) fn names(plan: &StagePlan, index: usize) -> Names {
    let mut names = Vec::new();
    let mut not_split = Vec::new();
    let whole = plan.stage(index).whole;
    plan.visit(index, &mut |node| {
        if plan.cut(node, index).is_some() {
            return false;
        }
        let name = short(node);
        if whole || !is_split(node) {
            not_split.push(name.clone());
        }
        if names.last() != Some(&name) {
            names.push(name);
        }
        true
    });
    not_split.dedup();
    Names { name: names.join(", "), not_split }
}

/// Formats a count with its noun in singular or plural.
fn counted(n: usize, thing: &str) -> String {
    if n == 1 { format!("1 {thing}") } else { format!("{n} {thing}s") }
}

/// The description of a stage.
pub(crate) struct Description {
    /// Its multitasks and monotasks, and the stages that it waits for.
    pub head: String,
    /// Its nodes, as planned.
    pub nodes: String,
}

/// Describes stage `index`.
pub(crate) fn stage(plan: &StagePlan, index: usize, ready: &ReadyStage) -> Description {
    let stage = &plan.stages[index];
    let mut out = String::new();
    let reads: Vec<&Need> = ready
        .reads
        .iter()
        .flatten()
        .flat_map(|(scan, task)| &scan.tasks[*task].needs)
        .filter(|n| !n.ranges.is_empty())
        .collect();
    let bytes: u64 = reads.iter().map(|n| n.bytes()).sum();
    let _ = write!(out, "{}", counted(ready.reads.len(), "multitask"));
    if !ready.builds.is_empty() {
        let _ = write!(out, ", {} for tables of joins", ready.builds.len());
    }
    out.push_str(": ");
    if !reads.is_empty() {
        let _ = write!(out, "{} ({:.1} MB) → ", counted(reads.len(), "read"), bytes as f64 / 1e6);
    }
    let _ = write!(out, "{} → ", counted(ready.reads.len(), "compute"));
    let _ = match &stage.output {
        Output::Divide(planned) => {
            let division = stage.output.division(ready.exchange.partitions());
            write!(out, "exchange, {}", division.as_ref().unwrap_or(planned))
        }
        Output::Keep if index + 1 == plan.stages.len() => {
            write!(out, "result")
        }
        Output::Keep => write!(out, "exchange, same partitions"),
        Output::Gather { fetch: None } => {
            write!(out, "exchange, 1 partition")
        }
        Output::Gather { fetch: Some(n) } => {
            write!(out, "exchange, 1 partition, {n} rows")
        }
        Output::Scalar(..) => write!(out, "scalar"),
    };
    if !stage.after.is_empty() {
        let after: Vec<String> = stage.after.iter().map(ToString::to_string).collect();
        let _ = write!(out, "\nafter stage {}", after.join(", "));
    }
    for filter in &stage.fills {
        let keys: Vec<String> = filter.on.iter().map(|(_, probe)| probe.to_string()).collect();
        let _ = write!(out, "\nbuild side keys prune and filter {}", keys.join(", "));
    }
    if stage.whole {
        out.push_str("\nnot split: runs whole in one multitask");
    }
    let mut nodes = String::new();
    tree(plan, index, &stage.root, 0, &mut nodes);
    Description { head: out, nodes }
}

fn tree(plan: &StagePlan, index: usize, node: &Node, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    if let Some(stage) = plan.cut(node, index) {
        let n = node.output_partitioning().partition_count();
        let planned = counted(n, "planned partition");
        let _ = writeln!(out, "{indent}exchange from stage {stage} ({planned})");
        return;
    }
    if let Some(input) = plan.skipped(node).filter(|_| !plan.stages[index].whole) {
        return tree(plan, index, input, depth, out);
    }
    let detail = detail(node).unwrap_or_default();
    let _ = match text::file_scan(node) {
        Some(scan) => {
            let files: usize = scan.file_groups.iter().map(|g| g.len()).sum();
            writeln!(out, "{indent}{}: {}, {detail}", short(node), counted(files, "planned file range"))
        }
        None if detail.is_empty() => writeln!(out, "{indent}{}", node.name()),
        None => writeln!(out, "{indent}{}: {detail}", node.name()),
    };
    for child in node.children() {
        tree(plan, index, child, depth + 1, out);
    }
}

/// Returns the stages of a trace, each with its monotasks and its operators as they were measured. A stage follows those
/// that it waits for.
pub fn measured_plan(trace: &Trace) -> String {
    let mut out = String::new();
    for (index, stage) in (0..).zip(&trace.stages) {
        let multitasks = trace.multitasks.iter().filter(|multitask| multitask.stage == index).count();
        let _ = writeln!(out, "stage {index}: {} ({})", stage.name, counted(multitasks, "multitask"));
        for part in [Some(measured(trace, index)), operators(trace, index)].into_iter().flatten() {
            for line in part.lines() {
                let _ = writeln!(out, "{line}");
            }
        }
    }
    out
}

/// Lists the operators of stage `index` of a trace as a tree, with their core time, planned and actual rows, and time for
/// each row of input. `None` if the trace has none of them.
pub(crate) fn operators(trace: &Trace, index: StageIx) -> Option<String> {
    let of_stage: Vec<&Operator> = trace.operators.iter().filter(|o| o.stage == index).collect();
    let is_input = |of: &Operator| of_stage.iter().any(|o| o.inputs.contains(&of.operator));
    let mut out =
        format!("{:>10} {:>14} {:>14}  {:>9}  operator", "core ms", "planned rows", "rows out", "ns/row");
    for root in of_stage.iter().rev().filter(|o| !is_input(o)) {
        measured_tree(&of_stage, root, 0, &mut out);
    }
    if of_stage.iter().any(|operator| operator.is_misestimate()) {
        out.push_str(
            "\n! misestimate: 4 times as many rows as planned or a quarter of them, of 10,000 or more",
        );
    }
    if of_stage.iter().any(|operator| !operator.expressions.is_empty()) {
        out.push_str("\n≈ estimated from some of the batches");
    }
    (!of_stage.is_empty()).then_some(out)
}

fn measured_tree(of_stage: &[&Operator], operator: &Operator, depth: usize, out: &mut String) {
    let inputs: Vec<&Operator> =
        of_stage.iter().copied().filter(|o| operator.inputs.contains(&o.operator)).collect();
    // A scan has no input but its own rows.
    let rows = if operator.inputs.is_empty() { operator.rows } else { operator.rows_in(of_stage) };
    let per_row = rows.filter(|rows| *rows > 0).map(|rows| operator.cpu_ns as f64 / rows as f64);
    let count = |rows: Option<u64>| rows.map_or(String::new(), |rows| rows.to_string());
    let _ = write!(
        out,
        "\n{:>10.1} {:>14} {:>14}{} {:>9}  {}{}",
        operator.cpu_ns as f64 / 1e6,
        count(operator.planned_rows.filter(|_| operator.rows.is_some())),
        count(operator.rows),
        if operator.is_misestimate() { '!' } else { ' ' },
        per_row.map_or(String::new(), |ns| format!("{ns:.1}")),
        "  ".repeat(depth),
        operator.name,
    );
    if let Some(from) = operator.from {
        let _ = write!(out, " from stage {from}");
    }
    if let Some(detail) = &operator.detail {
        let _ = write!(out, ": {detail}");
    }
    if !operator.columns.is_empty() {
        let _ = write!(out, "\n{:37}{}{}", "", "  ".repeat(depth + 1), columns(operator));
    }
    if !operator.expressions.is_empty() {
        let _ = write!(out, "\n{:37}{}{}", "", "  ".repeat(depth + 1), expressions(operator));
    }
    for input in inputs {
        measured_tree(of_stage, input, depth + 1, out);
    }
}

/// Lists the columns that a scan decodes, most expensive first, with their core time and bytes in the file.
fn columns(scan: &Operator) -> String {
    let mut columns: Vec<&Column> = scan.columns.iter().collect();
    columns.sort_by_key(|column| std::cmp::Reverse(column.cpu_ns));
    let each = columns.into_iter().map(|column| {
        let (ms, mb) = (column.cpu_ns as f64 / 1e6, column.encoded_bytes as f64 / 1e6);
        format!("{} {ms:.1} ms of {mb:.1} MB", column.name)
    });
    format!("decodes {}", each.collect::<Vec<_>>().join(", "))
}

/// Lists the most expensive expressions of an operator, with their core time.
fn expressions(of: &Operator) -> String {
    let each =
        of.expressions.iter().map(|expr| format!("{} ≈ {:.1} ms", expr.text, expr.cpu_ns as f64 / 1e6));
    format!("evaluates {}", each.collect::<Vec<_>>().join(", "))
}

/// Summarizes stage `index` of a trace: monotasks, time and bytes by phase.
pub(crate) fn measured(trace: &Trace, index: StageIx) -> String {
    let stage_of = |m: u32| trace.multitasks.get(m as usize).map(|t| t.stage);
    let of_stage: Vec<_> = trace.monotasks.iter().filter(|m| stage_of(m.multitask) == Some(index)).collect();
    let mut lines = Vec::new();
    for phase in [Phase::Read, Phase::Fetch, Phase::Compute, Phase::Spill, Phase::Write] {
        let all: Vec<_> = of_stage.iter().filter(|m| m.phase == phase).collect();
        if all.is_empty() {
            continue;
        }
        let sum =
            |f: fn(&pellucid_trace::Monotask) -> Option<u64>| all.iter().filter_map(|m| f(m)).sum::<u64>();
        let ms = |ns: u64| ns as f64 / 1e6;
        let mut line = format!(
            "  {} {:?} monotasks: queue {:.1} ms, service {:.1} ms",
            all.len(),
            phase,
            ms(all.iter().map(|m| m.queue_ns).sum()),
            ms(all.iter().map(|m| m.service_ns).sum()),
        );
        if phase == Phase::Compute {
            let _ = write!(
                line,
                " (decode {:.1}, operators {:.1}, encode {:.1}, not split {:.1}), {} rows out",
                ms(sum(|m| m.decode_ns)),
                ms(sum(|m| m.operator_ns)),
                ms(sum(|m| m.encode_ns)),
                ms(sum(|m| m.not_split_ns)),
                sum(|m| m.rows),
            );
        } else {
            let _ = write!(line, ", {:.1} MB", sum(|m| m.bytes) as f64 / 1e6);
        }
        lines.push(line);
    }
    lines.join("\n")
}
