//! SQL over files, run as monotasks: DataFusion plans, Pellucid executes.
//!
//! A query is planned by DataFusion, cut into stages at its exchanges ([`cut`]), and run by
//! [`pellucid_runtime`]: each stage as multitasks, each multitask as monotasks that use one
//! resource each ([`execute`]). What a query did is in its trace.
//!
//! ```no_run
//! use pellucid_engine::{Engine, EngineOptions};
//!
//! let engine = Engine::new(EngineOptions::default())?;
//! let result = engine.start("SELECT count(*) FROM 'lineitem.parquet'", None)?.wait()?;
//! assert_eq!(result.batches[0].num_rows(), 1);
//! # Ok::<(), pellucid_engine::EngineError>(())
//! ```
//!
//! Only this crate names DataFusion. It holds no thread of its own but two that plan.

mod cut;
mod dynamic_filter;
mod error;
mod error_context;
mod exchange;
mod execute;
mod explain;
mod formats;
mod from_first;
mod input;
mod logical;
mod output;
mod parquet;
mod paths;
mod prune;
mod pushdown;
mod query;
mod scan;
mod session;
mod sink;
mod stage;
mod statements;
mod stores;
mod tables;
mod text;
mod timing;

use std::path::PathBuf;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use pellucid_trace::Trace;

pub use error::EngineError;
pub use pellucid_runtime::{IoMode, Policy, Progress};
pub use query::{CancelHandle, Query};

use session::Session;

/// Where tables are when the measured job starts; for experiments (monotasks-sosp17 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Input {
    /// On their disk or store.
    #[default]
    Storage,
    /// In memory, as the bytes of their files.
    Memory,
    /// In memory, decoded.
    MemoryDecoded,
}

/// How an engine is set up.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Threads that compute.
    pub cores: usize,
    /// Someone chose that number: the trace says so.
    pub cores_set: bool,
    /// Partitions after an exchange, and multitasks of a scan at least; default: four a core.
    pub partitions: Option<usize>,
    /// Memory for operators, exchanges and what is read ahead of them; default: no limit.
    pub memory_bytes: Option<u64>,
    /// How files are read.
    pub io: IoMode,
    /// Paces the disk that a path is on, in bytes per second.
    pub disk_rates: Vec<(PathBuf, u64)>,
    /// Paces the machine's link, in bytes per second.
    pub network_rate: Option<u64>,
    /// Fixes how many monotasks each resource of a kind runs at once.
    pub concurrency: Vec<(String, u32)>,
    /// Where exchanges that memory has no room for would go; spilling is not built yet, so
    /// that none may be named.
    pub spill_dirs: Vec<PathBuf>,
    /// Where tables are when the measured job starts.
    pub input: Input,
    /// When more at once pays, where that is tuned.
    pub policy: Policy,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cores_set: false,
            partitions: None,
            memory_bytes: None,
            io: IoMode::default(),
            disk_rates: Vec::new(),
            network_rate: None,
            concurrency: Vec::new(),
            spill_dirs: Vec::new(),
            input: Input::default(),
            policy: Policy::default(),
        }
    }
}

/// What a query gave.
#[derive(Debug)]
pub struct QueryResult {
    /// Columns; none for a statement without a result.
    pub schema: SchemaRef,
    /// Rows.
    pub batches: Vec<RecordBatch>,
    /// What the job did.
    pub trace: Trace,
    /// Why the file that was asked for does not hold all of the trace.
    pub trace_failure: Option<String>,
}

/// Runs SQL. Tables, views and settings last as long as the engine; several queries may run
/// at once, each with its own trace.
#[derive(Clone)]
pub struct Engine(Arc<Session>);

impl Engine {
    /// An engine with its threads.
    ///
    /// # Errors
    /// Options that cannot be.
    pub fn new(options: EngineOptions) -> Result<Engine, EngineError> {
        Ok(Engine(Arc::new(Session::new(options)?)))
    }

    /// Makes the files at `path` (a file, a folder, a glob, `s3://…`) a table.
    ///
    /// # Errors
    /// Nothing there, nothing that can be read.
    pub fn register_table(&self, name: &str, path: &str) -> Result<(), EngineError> {
        self.0.register_table(name, path)
    }

    /// Begins one statement. Its trace is also kept at `trace` as it goes, if given.
    ///
    /// # Errors
    /// A trace file that cannot be written. What is wrong with the statement, [`Query::wait`] says.
    pub fn start(&self, sql: &str, trace: Option<PathBuf>) -> Result<Query, EngineError> {
        Query::start(Arc::clone(&self.0), sql, trace)
    }

    /// The statements of `sql`, without the semicolons between them.
    ///
    /// # Errors
    /// Text that cannot be divided into words of SQL.
    pub fn split_statements(sql: &str) -> Result<Vec<String>, EngineError> {
        statements::split(sql)
    }
}
