//! Prints and writes the results of each application, and encodes them as JSON.

use crate::failure::Failure;
use arrow::array::{ArrayRef, Float64Array, StringArray, UInt32Array, UInt64Array};
use pellucid_iterate::Outcome;
use pellucid_iterate_apps::applications::Finished;
use pellucid_iterate_apps::applications::kmeans::Clusters;
use pellucid_iterate_apps::applications::logistic_regression::Model;
use pellucid_iterate_apps::applications::pagerank::Ranks;
use pellucid_iterate_apps::input::results;
use pellucid_report::escaped;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

/// Rows per written batch.
const BATCH: usize = 1 << 20;
/// Number of vertices shown.
const TOP: usize = 10;

/// A result that the command can show.
pub trait Printable {
    /// Prints the result as text, with at most `max_lines` coefficients, centers or vertices.
    fn print(&self, out: &mut dyn Write, max_lines: usize) -> io::Result<()>;
    /// Returns the `result` of the document.
    fn json(&self) -> Value;
    /// Writes the result as Parquet.
    fn write(&self, path: &Path) -> Result<(), Failure>;
}

impl Printable for Model {
    fn print(&self, out: &mut dyn Write, max_lines: usize) -> io::Result<()> {
        let features: Vec<_> = self.features.iter().map(|name| escaped(name)).collect();
        let width = features.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(11);
        writeln!(out, "{:width$}  {:>24}", "feature", "coefficient")?;
        writeln!(out, "{:width$}  {:>24}", "(intercept)", self.intercept)?;
        for (name, coefficient) in features.iter().zip(&self.coefficients).take(max_lines) {
            writeln!(out, "{name:width$}  {coefficient:>24}")?;
        }
        rest(out, self.features.len(), max_lines)
    }

    fn json(&self) -> Value {
        json!({
            "features": self.features,
            "coefficients": self.coefficients,
            "intercept": self.intercept,
            "loss": self.loss,
        })
    }

    fn write(&self, path: &Path) -> Result<(), Failure> {
        let names = self.features.iter().map(String::as_str).chain(["(intercept)"]);
        let names = StringArray::from_iter_values(names);
        let values = self.coefficients.iter().copied().chain([self.intercept]).collect::<Float64Array>();
        let columns: Vec<(&'static str, ArrayRef)> =
            vec![("feature", Arc::new(names)), ("coefficient", Arc::new(values))];
        Ok(results::write(path, std::iter::once(columns))?)
    }
}

impl Printable for Clusters {
    fn print(&self, out: &mut dyn Write, max_lines: usize) -> io::Result<()> {
        let mut counts = vec![0_u64; self.centers.len()];
        for center in &self.assignments {
            counts[*center as usize] += 1;
        }
        writeln!(out, "center  rows  {}", escaped(&self.features.join("  ")))?;
        for (number, (center, count)) in self.centers.iter().zip(counts).enumerate().take(max_lines) {
            let values: Vec<String> = center.iter().map(f64::to_string).collect();
            writeln!(out, "{number}  {count}  {}", values.join("  "))?;
        }
        rest(out, self.centers.len(), max_lines)?;
        writeln!(out, "inertia {}", self.inertia)
    }

    fn json(&self) -> Value {
        json!({"features": self.features, "centers": self.centers, "inertia": self.inertia})
    }

    fn write(&self, path: &Path) -> Result<(), Failure> {
        let batches = self.assignments.chunks(BATCH).enumerate().map(|(number, centers)| {
            let first = (number * BATCH) as u64;
            let rows = (first..first + centers.len() as u64).collect::<UInt64Array>();
            let centers = UInt32Array::from(centers.to_vec());
            vec![("row", Arc::new(rows) as ArrayRef), ("center", Arc::new(centers) as ArrayRef)]
        });
        Ok(results::write(path, batches)?)
    }
}

impl Printable for Ranks {
    fn print(&self, out: &mut dyn Write, max_lines: usize) -> io::Result<()> {
        writeln!(out, "{:>20}  {:>24}", "vertex", "rank")?;
        for (vertex, rank) in self.top(TOP.min(max_lines)) {
            writeln!(out, "{vertex:>20}  {rank:>24}")?;
        }
        rest(out, self.vertices.len(), TOP.min(max_lines))
    }

    fn json(&self) -> Value {
        let top: Vec<Value> =
            self.top(TOP).into_iter().map(|(vertex, rank)| json!({"vertex": vertex, "rank": rank})).collect();
        json!({"top": top, "sum": self.ranks.iter().sum::<f64>(), "vertices": self.vertices.len()})
    }

    fn write(&self, path: &Path) -> Result<(), Failure> {
        let batches = self.vertices.chunks(BATCH).zip(self.ranks.chunks(BATCH)).map(|(vertices, ranks)| {
            let (vertices, ranks) =
                (UInt64Array::from(vertices.to_vec()), Float64Array::from(ranks.to_vec()));
            vec![("vertex", Arc::new(vertices) as ArrayRef), ("rank", Arc::new(ranks) as ArrayRef)]
        });
        Ok(results::write(path, batches)?)
    }
}

fn rest(out: &mut dyn Write, all: usize, shown: usize) -> io::Result<()> {
    match all.checked_sub(shown) {
        Some(more @ 1..) => writeln!(out, "… {more} more; -o FILE.parquet writes all"),
        _ => Ok(()),
    }
}

/// Timing of a job's iterations.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// Median duration of an iteration.
    pub median_ms: f64,
    /// 99th percentile of the duration of an iteration.
    pub p99_ms: f64,
    /// Tasks per second over all iterations.
    pub tasks_per_s: f64,
    /// Share of the threads' time spent outside tasks: spawning, waiting, idle.
    pub outside_tasks: Option<f64>,
}

impl Cost {
    /// Computes the timing, without the first `preparations` iterations. Returns `None` if no iteration was
    /// timed.
    pub fn of(outcome: &Outcome, preparations: u64, threads: usize) -> Option<Cost> {
        let all_ns = outcome.iterations_ns.iter().sum::<u64>() as f64;
        let skipped = usize::try_from(preparations).unwrap_or(usize::MAX);
        let mut times_ns = outcome.iterations_ns.get(skipped..).unwrap_or_default().to_vec();
        times_ns.sort_unstable();
        let last = times_ns.len().checked_sub(1)?;
        let at = |share: f64| times_ns[(last as f64 * share).round() as usize] as f64 / 1e6;
        let outside = |busy_ns: u64| (1.0 - busy_ns as f64 / (all_ns * threads as f64)).max(0.0);
        // Timing starts at the first signal, which ends the first iteration.
        let timed = outcome.iterations_ns.len() as f64 / (outcome.iterations_ns.len() + 1) as f64;
        let tasks = outcome.iterating.map_or(outcome.tasks as f64 * timed, |(_, tasks)| tasks as f64);
        Some(Cost {
            median_ms: at(0.5),
            p99_ms: at(0.99),
            tasks_per_s: tasks / (all_ns / 1e9),
            // After a worker is lost, the number of threads no longer holds.
            outside_tasks: outcome
                .iterating
                .filter(|_| outcome.recoveries == 0)
                .map(|(busy_ns, _)| outside(busy_ns)),
        })
    }
}

/// Returns the `pellucid.iterate/1` document without its `format` key. `memory` is the bandwidth in bytes per
/// second, and the share of it that the iterations reach.
pub fn document<R: Printable>(
    finished: &Finished<R>,
    outcome: &Outcome,
    cost: Option<Cost>,
    memory: Option<(f64, Option<f64>)>,
) -> Value {
    json!({
        "iterations": finished.iterations,
        "converged": finished.converged,
        "iteration_ms": {"median": cost.map(|cost| cost.median_ms), "p99": cost.map(|cost| cost.p99_ms)},
        "recoveries": outcome.recoveries,
        "tasks": outcome.tasks,
        "tasks_per_s": cost.map(|cost| cost.tasks_per_s),
        "scheduler_share": cost.and_then(|cost| cost.outside_tasks),
        "memory_bandwidth": {
            "bytes_per_s": memory.map(|memory| memory.0),
            "share": memory.and_then(|memory| memory.1),
        },
        "result": finished.result.json(),
    })
}
