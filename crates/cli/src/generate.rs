//! `pellucid generate`: generates benchmark data as Parquet, one file per table.

use crate::console::Console;
use crate::failure::Failure;
use crate::interrupt;
use pellucid_benchmarks::{Benchmark, Request, Table, WriteError, Written};
use pellucid_model::units::{grouped, size_in_full};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Arguments of `generate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each table becomes DIR/<table>.parquet, with Snappy compression, row groups of about 122,880 rows (about \
16 MiB for tables with long rows: sort, documents), and a page index. The files depend only on the scale, \
not on the machine or the number of cores. Other files in DIR are left untouched.

Example:
  pellucid generate tpch --scale 0.1 data/tpch
  pellucid generate sort --values 50 --scale 0.5 data/sort50
  pellucid sql \"SELECT count(*) FROM 'data/tpch/lineitem.parquet'\"")]
pub struct Arguments {
    /// Benchmark to generate
    #[arg(value_enum)]
    benchmark: Benchmark,
    /// Output directory; created if missing
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Scale factor; 1 is about 1 GB as text (bdb: 2 GB), and 300 to 400 MB as Parquet for TPC-H
    /// and TPC-DS
    #[arg(long, default_value_t = 1.0, value_parser = parse_scale)]
    scale: f64,
    /// Values per key of `sort`; fewer values mean more keys to sort [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    values: Option<u32>,
    /// Generate only these tables, for example rankings,uservisits [default: all]
    #[arg(long, value_name = "TABLE,…", value_delimiter = ',')]
    tables: Vec<String>,
    /// Number of threads [default: all cores]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    cores: Option<u16>,
    /// Replace existing tables in DIR
    #[arg(long)]
    force: bool,
}

impl Arguments {
    /// Returns the values per key of `sort`; the default is the paper's CPU-bound case.
    fn values(&self) -> u32 {
        self.values.unwrap_or(10)
    }

    /// Returns the requested tables. An unknown name is an error that lists the valid ones.
    fn tables(&self) -> Result<Vec<Table>, Failure> {
        let all = self.benchmark.tables(self.scale, self.values());
        if all.is_empty() {
            return Err(Failure::Usage(format!(
                "cannot generate {}: this build does not include its generator; rebuild with \
                 `--features pellucid-cli/all`",
                self.benchmark.name()
            )));
        }
        let names: Vec<_> = all.iter().map(|table| table.name).collect();
        match self.tables.iter().find(|name| !names.contains(&name.as_str())) {
            Some(unknown) => Err(Failure::Usage(format!(
                "unknown table {unknown} in --tables: {} has {}",
                self.benchmark.name(),
                names.join(", ")
            ))),
            None if self.tables.is_empty() => Ok(all),
            None => Ok(all.into_iter().filter(|table| self.tables.iter().any(|n| n == table.name)).collect()),
        }
    }
}

/// Parses a scale factor. The generators are not defined below 0.001 (empty tables) or
/// above 100,000.
pub fn parse_scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if (0.001..=100_000.0).contains(&scale) => Ok(scale),
        _ => Err("expected a number from 0.001 to 100000, for example 1 or 0.1".to_string()),
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments, console: &Console) -> Result<(), Failure> {
    let directory = &arguments.directory;
    if arguments.values.is_some() && arguments.benchmark != Benchmark::Sort {
        return Err(Failure::Usage(format!(
            "cannot use --values with {}: it applies to `generate sort` only; remove it",
            arguments.benchmark.name()
        )));
    }
    let started = Instant::now();
    let workers = arguments.cores.map_or_else(all_cores, usize::from);
    let tables = arguments.tables()?;
    let written = generate(arguments.benchmark, &tables, directory, workers, arguments.force, console)?;
    let (rows, bytes) =
        written.iter().fold((0, 0), |(rows, bytes), file| (rows + file.rows, bytes + file.bytes));
    if console.json {
        let document = document(arguments, &written, started.elapsed());
        console.print_document("pellucid.generated/1", &document)?;
    } else {
        console.print(|out| {
            for file in &written {
                let rows = grouped(file.rows);
                writeln!(out, "{:>14} rows {:>9}  {}", rows, size_in_full(file.bytes), file.path.display())?;
            }
            Ok(())
        })?;
    }
    console.note(&format!(
        "{} tables, {} rows, {} in {:.1} s · {}",
        written.len(),
        grouped(rows),
        size_in_full(bytes),
        started.elapsed().as_secs_f64(),
        directory.display()
    ));
    Ok(())
}

/// Returns the number of cores that this process may use.
pub fn all_cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get())
}

/// Generates tables of a benchmark into a directory, with a progress bar.
pub fn generate(
    benchmark: Benchmark,
    tables: &[Table],
    directory: &Path,
    workers: usize,
    force: bool,
    console: &Console,
) -> Result<Vec<Written>, Failure> {
    fs::create_dir_all(directory)
        .map_err(|e| Failure::file("create the directory", directory.display(), &e))?;
    let existing =
        tables.iter().map(|table| directory.join(format!("{}.parquet", table.name))).find(|p| p.exists());
    if let (Some(path), false) = (existing, force) {
        return Err(Failure::Usage(format!(
            "cannot write {}: it already exists; choose another directory, or replace it with --force",
            path.display()
        )));
    }
    let total: u64 = tables.iter().map(|table| table.rows).sum();
    benchmark.prepare();
    let cancelled = Arc::new(AtomicBool::new(false));
    let _guard = interrupt::on_interrupt({
        let cancelled = cancelled.clone();
        move || cancelled.store(true, Ordering::Relaxed)
    });
    let progress = Mutex::new((console.progress(), 0));
    let on_rows = |rows| {
        let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.1 += rows;
        let (bar, done) = &mut *progress;
        bar.set(*done, total, &format!("{} of {} rows", grouped(*done), grouped(total)));
    };
    let request = Request { tables, directory, workers, cancelled: &cancelled, on_rows: &on_rows };
    pellucid_benchmarks::write(&request).map_err(failure)
}

fn failure(error: WriteError) -> Failure {
    match error {
        WriteError::Cancelled => Failure::Interrupted,
        WriteError::Io { path, source } => Failure::file("write", path.display(), &source),
        WriteError::Busy { path } => Failure::Failed(format!(
            "cannot write to {}: another process is writing tables there; wait for it, or choose another \
             directory",
            path.display()
        )),
        WriteError::Encode { table, source } => {
            Failure::Failed(format!("cannot encode table {table} as Parquet: {source}"))
        }
        WriteError::Panicked => {
            Failure::Failed("a generator panicked; please report it with the message above".to_string())
        }
    }
}

fn document(arguments: &Arguments, written: &[Written], duration: Duration) -> Value {
    let tables: Vec<Value> = written
        .iter()
        .map(|file| json!({"name": file.table, "path": file.path, "rows": file.rows, "bytes": file.bytes}))
        .collect();
    let mut document = json!({
        "benchmark": arguments.benchmark.name(),
        "scale": arguments.scale,
        "duration_ms": duration.as_secs_f64() * 1e3,
        "tables": tables,
    });
    if arguments.benchmark == Benchmark::Sort {
        document["values"] = json!(arguments.values());
    }
    document
}
