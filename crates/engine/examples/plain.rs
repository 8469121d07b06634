//! Runs queries on plain DataFusion or, with `--monotasks`, on Pellucid's engine.
//!
//! Both use the same DataFusion version, build flags and allocator, so that a comparison shows only
//! the effect of the execution.
//!
//! `plain [--monotasks] DIR` runs queries over the tables `DIR/*.parquet`. Each line of standard input
//! is the path of a file with one query. For each query it writes one line of JSON:
//! `{"ms": …, "rows": …}` or `{"error": …}`. Plain DataFusion runs with its default settings and one
//! partition per core.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use pellucid_engine::{Engine, EngineOptions};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay`, which the crate does not define; it precedes `use_numa_nodes`.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = libmimalloc_sys::mi_option_use_numa_nodes - 1;

type Error = Box<dyn std::error::Error>;

enum Runner {
    Plain { tokio: tokio::runtime::Runtime, context: SessionContext },
    Monotasks(Engine),
}

impl Runner {
    fn new(monotasks: bool, folder: &Path) -> Result<Self, Error> {
        let tables = tables(folder)?;
        if monotasks {
            let engine = Engine::new(EngineOptions::default())?;
            for (name, path) in tables {
                engine.register_table(&name, &path)?;
            }
            return Ok(Self::Monotasks(engine));
        }
        let cores = std::thread::available_parallelism()?.get();
        let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(cores).enable_all().build()?;
        let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(cores));
        for (name, path) in tables {
            tokio.block_on(context.register_parquet(&name, &path, ParquetReadOptions::default()))?;
        }
        Ok(Self::Plain { tokio, context })
    }

    /// Collects the result in memory and returns its number of rows.
    fn rows(&self, sql: &str) -> Result<usize, Error> {
        let sql = sql.trim().trim_end_matches(';');
        match self {
            Self::Plain { tokio, context } => {
                let context = context.clone();
                let sql = sql.to_string();
                let job = tokio.spawn(async move { context.sql(&sql).await?.collect().await });
                Ok(tokio.block_on(job)??.iter().map(|b| b.num_rows()).sum())
            }
            Self::Monotasks(engine) => {
                let result = engine.start(sql.parse()?, None)?.wait()?;
                Ok(result.batches.iter().map(|b| b.num_rows()).sum())
            }
        }
    }
}

/// Returns the name and path of each table in a folder.
fn tables(folder: &Path) -> Result<Vec<(String, String)>, Error> {
    let mut tables = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path: PathBuf = entry?.path();
        let known = path.extension().is_some_and(|e| e == "parquet");
        if let (true, Some(name), Some(whole)) =
            (known, path.file_stem().and_then(|s| s.to_str()), path.to_str())
        {
            tables.push((name.to_string(), whole.to_string()));
        }
    }
    Ok(tables)
}

fn escaped(text: &str) -> String {
    text.chars()
        .flat_map(|c| match c {
            '"' | '\\' => vec!['\\', c],
            c if c.is_control() => vec![' '],
            c => vec![c],
        })
        .collect()
}

fn main() -> Result<(), Error> {
    // Keep freed memory for reuse, and use no huge pages, as the command does.
    // SAFETY: sets options of the allocator and the kernel before any other thread runs.
    unsafe {
        libmimalloc_sys::mi_option_set(PURGE_DELAY, -1);
        #[cfg(target_os = "linux")]
        libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
    }
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let monotasks = arguments.first().is_some_and(|a| a == "--monotasks");
    if monotasks {
        arguments.remove(0);
    }
    let [folder] = arguments.as_slice() else { return Err("usage: plain [--monotasks] DIR".into()) };
    let runner = Runner::new(monotasks, Path::new(folder))?;
    let mut out = std::io::stdout();
    for line in std::io::stdin().lock().lines() {
        let sql = std::fs::read_to_string(line?.trim())?;
        let start = Instant::now();
        match runner.rows(&sql) {
            Ok(rows) => {
                writeln!(out, "{{\"ms\": {:.3}, \"rows\": {rows}}}", start.elapsed().as_secs_f64() * 1e3)?;
            }
            Err(e) => writeln!(out, "{{\"error\": \"{}\"}}", escaped(&e.to_string()))?,
        }
        out.flush()?;
    }
    Ok(())
}
