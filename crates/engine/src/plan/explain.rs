//! Names of stages and the text of `EXPLAIN` and `EXPLAIN ANALYZE`.

use std::fmt::Write;

use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::{DisplayFormatType, ExecutionPlan, ExecutionPlanProperties};
use pellucid_trace::{Phase, StageIx, Trace};

use crate::execute::stage::{ReadyStage, is_split};
use crate::plan::cut::{Node, Output, StagePlan, key};
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
    let whole = plan.stages[index].whole;
    let mut add = |node: &Node, _: usize| {
        let name = short(node);
        if whole || !is_split(node) {
            not_split.push(name.clone());
        }
        if names.last() != Some(&name) {
            names.push(name);
        }
    };
    visit(plan, index, &plan.stages[index].root, 0, &mut add);
    not_split.dedup();
    Names { name: names.join(", "), not_split }
}

/// Calls `f` for every node that belongs to stage `index`, with its depth.
fn visit(plan: &StagePlan, index: usize, node: &Node, depth: usize, f: &mut dyn FnMut(&Node, usize)) {
    let whole = plan.stages[index].whole;
    if !whole && plan.cuts.get(&key(node)).is_some_and(|c| c.stage != index) {
        return;
    }
    f(node, depth);
    for child in node.children() {
        visit(plan, index, child, depth + 1, f);
    }
}

/// Returns a short name of a node.
fn short(node: &Node) -> String {
    if let Some(scan) = text::file_scan(node) {
        let first = scan.file_groups.iter().flat_map(|g| g.iter()).next();
        let count: usize = scan.file_groups.iter().map(|g| g.len()).sum();
        let file = first.and_then(|f| f.path().filename().map(str::to_string)).unwrap_or_default();
        return match count {
            0 | 1 => format!("Scan {file}"),
            _ => format!("Scan {file} …"),
        };
    }
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        return format!("Aggregate {:?}", aggregate.mode());
    }
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        return format!("HashJoin {}", join.join_type());
    }
    node.name().trim_end_matches("Exec").to_string()
}

/// Formats a count with its noun in singular or plural.
fn counted(n: usize, thing: &str) -> String {
    if n == 1 { format!("1 {thing}") } else { format!("{n} {thing}s") }
}

/// Displays a node on one line, as DataFusion prints it.
struct Line<'a>(&'a dyn ExecutionPlan);

impl std::fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt_as(DisplayFormatType::Default, f)
    }
}

/// Describes stage `index`: its multitasks, monotasks and operators.
pub(crate) fn stage(plan: &StagePlan, index: usize, ready: &ReadyStage) -> String {
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
    let _ = write!(out, "{}: ", counted(ready.reads.len(), "multitask"));
    if !reads.is_empty() {
        let _ = write!(out, "{} ({:.1} MB) → ", counted(reads.len(), "read"), bytes as f64 / 1e6);
    }
    let _ = write!(out, "{} → ", counted(ready.reads.len(), "compute"));
    let _ = match &stage.output {
        Output::Divide(p) => write!(out, "exchange, {p}"),
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
    tree(plan, index, &stage.root, 0, &mut out);
    out
}

fn tree(plan: &StagePlan, index: usize, node: &Node, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    let cut = plan.cuts.get(&key(node)).filter(|c| c.stage != index && !plan.stages[index].whole);
    if let Some(cut) = cut {
        let n = node.output_partitioning().partition_count();
        let _ =
            write!(out, "\n{indent}exchange from stage {} ({})", cut.stage, counted(n, "planned partition"));
        return;
    }
    match text::file_scan(node) {
        // DataFusion's file groups are not how the scan is divided, and their list is long.
        Some(scan) => {
            let line = Line(node.as_ref()).to_string();
            let rest = line.split_once("projection=").map_or("", |(_, rest)| rest);
            let files: usize = scan.file_groups.iter().map(|g| g.len()).sum();
            let files = counted(files, "planned file range");
            let _ = write!(out, "\n{indent}{}: {files}, projection={rest}", short(node));
        }
        None => {
            let _ = write!(out, "\n{indent}{}", Line(node.as_ref()));
        }
    }
    for child in node.children() {
        tree(plan, index, child, depth + 1, out);
    }
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
