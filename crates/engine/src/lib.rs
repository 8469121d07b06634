//! SQL over files, executed as monotasks: DataFusion plans, Pellucid executes.
//!
//! DataFusion plans a query. The plan is cut into stages at its exchanges ([`plan::cut`]), and
//! [`pellucid_runtime`] runs each stage as multitasks, and each multitask as monotasks that use
//! one resource each ([`execute`]). The query's trace records all of them.
//!
//! ```no_run
//! use pellucid_engine::{Engine, EngineOptions};
//!
//! let engine = Engine::new(EngineOptions::default())?;
//! let result = engine.start("SELECT count(*) FROM 'lineitem.parquet'".parse()?, None)?.wait()?;
//! assert_eq!(result.batches[0].num_rows(), 1);
//! # Ok::<(), pellucid_engine::EngineError>(())
//! ```
//!
//! A statement goes through the folders in this order: [`sql`] (its text), [`statements`] (other than queries), [`logical`] (its names), [`tables`]
//! (the files that it names), [`plan`] (its stages), [`scan`] (the bytes that they read), [`execute`]. [`stores`] counts the
//! requests of all of them; [`query`] calls them one after the other.
//!
//! Only this crate names DataFusion. Its own threads are two that plan, one for each query, and one
//! that parses, or drops a statement that nests deep.

mod calendar;
mod error;
mod execute;
mod functions;
mod lakes;
mod logical;
mod plan;
mod queries;
mod query;
mod scan;
mod session;
mod sql;
mod statements;
mod stores;
mod sync;
mod tables;
mod types;

use std::path::PathBuf;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use pellucid_trace::Trace;

pub use error::EngineError;
pub use pellucid_runtime::{IoMode, Progress};
pub use plan::explain::measured_plan;
pub use plan::scans::PlannedScan;
pub use query::{CancelHandle, Query};
pub use sql::statements::Statement;

use session::Session;

/// The location of tables when the measured job starts; for experiments (monotasks-sosp17 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Input {
    /// On disk or in an object store.
    #[default]
    Storage,
    /// In memory, as the bytes of their files.
    Memory,
    /// In memory, decoded.
    MemoryDecoded,
}

/// Options for creating an [`Engine`].
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Number of compute threads.
    pub cores: usize,
    /// True if the user chose `cores`, which the trace records.
    pub cores_set: bool,
    /// Partitions after an exchange, and the minimum number of multitasks of a scan; default: four per core.
    pub partitions: Option<usize>,
    /// Memory for operators, exchanges and input that is read ahead; default: no limit.
    pub memory_bytes: Option<u64>,
    /// Called again and again while the process takes more than half of `memory_bytes` and a query runs.
    pub on_pressure: Option<fn()>,
    /// Read mode for local files.
    pub io: IoMode,
    /// Rate limits in bytes per second, each for the disk that holds the path.
    pub disk_rates: Vec<(PathBuf, u64)>,
    /// Rate limit of the machine's network link, in bytes per second.
    pub network_rate: Option<u64>,
    /// Fixed numbers of concurrent monotasks, by kind of resource.
    pub concurrency: Vec<(String, u32)>,
    /// The number of an operator, and a factor of 1 or more on its core time, to test what-ifs: its core is kept busy.
    pub slow_operator: Option<(u32, f64)>,
    /// Folders for what does not fit into `memory_bytes`, best one on each disk; default: the system's folder for temporary
    /// files.
    pub spill_dirs: Vec<PathBuf>,
    /// Location of tables when the measured job starts.
    pub input: Input,
    /// Samples the call stacks of compute threads; see [`Engine::no_stacks`].
    pub stacks: bool,
    /// True if the statements are read from standard input, which then cannot be a table.
    pub stdin_taken: bool,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cores_set: false,
            partitions: None,
            memory_bytes: None,
            on_pressure: None,
            io: IoMode::default(),
            disk_rates: Vec::new(),
            network_rate: None,
            concurrency: Vec::new(),
            slow_operator: None,
            spill_dirs: Vec::new(),
            input: Input::default(),
            stacks: false,
            stdin_taken: false,
        }
    }
}

/// The result of a query.
#[derive(Debug)]
pub struct QueryResult {
    /// Columns of the result; empty for a statement that returns no rows.
    pub schema: SchemaRef,
    /// Rows of the result.
    pub batches: Vec<RecordBatch>,
    /// Trace of the job.
    pub trace: Trace,
    /// Error message if the trace file could not be written in full.
    pub trace_failure: Option<String>,
}

/// A SQL engine. Tables, views and settings last as long as the engine. Queries may run
/// concurrently, each with its own trace. Clones share the same engine.
#[derive(Clone)]
pub struct Engine(Arc<Session>);

impl Engine {
    /// Creates an engine and starts its threads.
    ///
    /// # Errors
    /// Returns an error if an option is invalid or a thread cannot be started.
    pub fn new(options: EngineOptions) -> Result<Engine, EngineError> {
        Ok(Engine(Arc::new(Session::new(options)?)))
    }

    /// Registers the files at `path` (a file, a folder, a glob, `s3://…`) as a table.
    ///
    /// # Errors
    /// Returns an error if no file matches or the files cannot be read as one table.
    pub fn register_table(&self, name: &str, path: &str) -> Result<(), EngineError> {
        self.0.register_table(name, path)
    }

    /// Registers the files at `path` as a table that is opened when a statement first names it; at once if they are not local.
    ///
    /// # Errors
    /// Returns an error if no file matches.
    pub fn declare_table(&self, name: &str, path: &str) -> Result<(), EngineError> {
        self.0.declare_table(name, path)
    }

    /// Returns the names of all functions, in alphabetical order.
    pub fn functions(&self) -> Vec<String> {
        logical::candidates::function_names(&self.0.context.state())
    }

    /// Plans a query and returns its scans of Parquet files, without running it.
    ///
    /// # Errors
    /// Returns an error if the statement is not a query, is invalid, or its files cannot be read.
    pub fn scans(&self, statement: &Statement) -> Result<Vec<PlannedScan>, EngineError> {
        if !statement.is_query() {
            let keyword = statement.keyword();
            return Err(EngineError::Usage(format!(
                "cannot advise on {keyword}: it is not a query; take the trace of a query"
            )));
        }
        query::scans(&self.0, statement)
    }

    /// Returns the reason why call stacks are not sampled although [`EngineOptions::stacks`] asks for it; known after a
    /// query.
    pub fn no_stacks(&self) -> Option<String> {
        self.0.runtime.no_stacks()
    }

    /// Starts one statement. If `trace` is given, the trace is also written to that file while the
    /// statement runs.
    ///
    /// # Errors
    /// Returns an error if the trace file cannot be created, or if [`EngineOptions::input`] asks for
    /// tables in memory and they cannot be loaded. [`Query::wait`] returns errors of the statement.
    pub fn start(&self, statement: Statement, trace: Option<PathBuf>) -> Result<Query, EngineError> {
        Query::start(Arc::clone(&self.0), statement, trace)
    }
}
