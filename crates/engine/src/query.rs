//! One statement from its text to its rows and its trace.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use datafusion::arrow::array::StringArray;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::DataFusionError;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::physical_plan::parquet::metadata::DFParquetMetadata;
use datafusion::execution::TaskContext;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use datafusion::parquet::file::metadata::PageIndexPolicy;
use futures::{StreamExt, TryStreamExt};
use object_store::ObjectMeta;
use pellucid_runtime::{Job, Progress};
use pellucid_trace::{Recorder, RecorderOptions, StageIx, Trace, TraceError};

use crate::cut::{self, Node, StagePlan};
use crate::exchange::{Exchange, Ledger};
use crate::execute::{Execution, JobLedger, Open, Parts};
use crate::output::Outputs;
use crate::parquet::{Metadata, ParquetScan};
use crate::scan::Source;
use crate::session::Session;
use crate::stage::Builder;
use crate::stores::{JobIo, JobStores, in_store, planned};
use crate::{EngineError, Input, QueryResult, explain, input, logical, paths, tables};

/// How long the end of a cancelled query waits for its trace's end. Most work stops within 100 ms;
/// an operator that puts nothing out, or a store that does not answer while planning, may not.
const TRACE_END: Duration = Duration::from_secs(1);

/// Footers and page indexes read at once.
const METADATA_AT_ONCE: usize = 16;

/// A statement that runs.
pub struct Query {
    job: Job,
    cancel: CancelHandle,
    ended: Receiver<Result<QueryResult, EngineError>>,
    early: Mutex<Option<Result<QueryResult, EngineError>>>,
    /// Closed when the query's thread has ended, for one that keeps its trace.
    traced: Option<Receiver<()>>,
}

/// Cancels a query; outlives it.
#[derive(Clone)]
pub struct CancelHandle {
    job: Job,
    outputs: Arc<Outputs>,
    ended: SyncSender<Result<QueryResult, EngineError>>,
}

impl CancelHandle {
    /// Cancels the query: [`Query::wait`] returns at once, or when a trace that is kept has its end; what
    /// runs stops within 100 ms, and what it had written is gone when this returns.
    pub fn cancel(&self) {
        self.job.cancel();
        self.outputs.discard();
        // Full where the query has ended by itself.
        let _ = self.ended.try_send(Err(EngineError::Cancelled));
    }
}

impl Query {
    pub(crate) fn start(
        session: Arc<Session>,
        sql: &str,
        trace: Option<PathBuf>,
    ) -> Result<Self, EngineError> {
        // What DataFusion remembers of folders has no end: since the last statement files came and went.
        if let Some(listings) = session.context.runtime_env().cache_manager.get_list_files_cache() {
            listings.clear();
        }
        load(&session, sql)?;
        let (tracing, traced) = sync_channel(0);
        let traced = trace.is_some().then_some(traced);
        let recorder = Recorder::start(RecorderOptions {
            producer: "engine".to_string(),
            producer_version: env!("CARGO_PKG_VERSION").to_string(),
            labels: session.labels(),
            path: trace,
            keep: true,
        })
        .map_err(|e| EngineError::Failed(e.to_string()))?;
        let job = session.runtime.begin(sql, recorder.clone());
        // Two places: what the query ends with, and a cancellation that came before it.
        let (sender, ended) = sync_channel(2);
        let outputs = Arc::new(Outputs::new(session.runtime.clone(), session.tokio.handle().clone()));
        let cancel = CancelHandle { job: job.clone(), outputs: Arc::clone(&outputs), ended: sender.clone() };
        let query = Self { job: job.clone(), cancel, ended, early: Mutex::new(None), traced };
        let sql = sql.to_string();
        std::thread::Builder::new()
            .name("query".to_string())
            .spawn(move || {
                // Dropped at the thread's end.
                let _tracing: SyncSender<()> = tracing;
                let io = session.stores.begin(job.clone(), session.runtime.clone());
                let running = Running { session, job, outputs, io };
                let ended = catch_unwind(AssertUnwindSafe(|| running.run(&sql, &recorder)));
                let ended = ended.unwrap_or_else(|panic| Err(running.defect(panic.as_ref(), &recorder)));
                // Nobody may wait any more.
                let _ = sender.try_send(ended);
            })
            .map_err(|e| EngineError::Failed(format!("cannot start a thread: {e}")))?;
        Ok(query)
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        self.job.progress()
    }

    /// What cancels it.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }

    /// Waits for its end for at most `timeout`; true once it has ended.
    pub fn ended_within(&self, timeout: Duration) -> bool {
        let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        if early.is_some() {
            return true;
        }
        match self.ended.recv_timeout(timeout) {
            Ok(ended) => {
                *early = Some(ended);
                true
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => true,
        }
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// What is wrong with the statement, what went wrong on the way, a trace that could not be
    /// written, a cancellation.
    pub fn wait(self) -> Result<QueryResult, EngineError> {
        let early = self.early.into_inner().unwrap_or_else(PoisonError::into_inner);
        let lost = |_| Err(EngineError::Failed("the query's thread ended without a word".to_string()));
        let ended = early.unwrap_or_else(|| self.ended.recv().unwrap_or_else(lost));
        if let (Err(EngineError::Cancelled), Some(traced)) = (&ended, self.traced) {
            // Closed or too late: either way the query has been cancelled.
            let _ = traced.recv_timeout(TRACE_END);
        }
        ended
    }
}

/// Brings the statement's tables into memory where the options say so. What is wrong with the
/// statement, the job will say.
fn load(session: &Session, sql: &str) -> Result<(), EngineError> {
    let state = session.context.state();
    let query = |logical: LogicalPlan| match logical {
        LogicalPlan::Ddl(_) | LogicalPlan::Statement(_) => None,
        LogicalPlan::Explain(e) => Some((*e.plan).clone()),
        LogicalPlan::Analyze(a) => Some((*a.input).clone()),
        query => Some(query),
    };
    session.tokio.block_on(async {
        if session.options.input == Input::Storage {
            return Ok(());
        }
        let Some(logical) = logical::plan(&state, sql).await.ok().and_then(query) else { return Ok(()) };
        match session.options.input {
            Input::Storage => Ok(()),
            Input::Memory => Ok(input::cache(&state.create_physical_plan(&logical).await?)?),
            Input::MemoryDecoded => Ok(session.decoded.load(&state, &logical).await?),
        }
    })
}

/// What a plan asks for.
enum Asked {
    /// Its rows.
    Rows,
    /// Its stages.
    Stages,
    /// Its stages, with what running them took.
    Measured,
    /// Its rows, as a table in memory of this name.
    Table(Box<datafusion::logical_expr::CreateMemoryTable>),
}

struct Planned {
    state: SessionState,
    plan: Node,
    asked: Asked,
    metadata: Metadata,
}

struct Running {
    session: Arc<Session>,
    job: Job,
    outputs: Arc<Outputs>,
    io: Arc<JobIo>,
}

impl Running {
    fn run(&self, sql: &str, recorder: &Recorder) -> Result<QueryResult, EngineError> {
        let outcome = self.steps(sql).map_err(|error| {
            let state = self.session.context.state();
            logical::named(&state, sql, error)
        });
        if let Err(error) = &outcome {
            // Where the job itself failed this says nothing new.
            self.job.fail(error.to_string().into());
        }
        // Whatever happened, nothing of the job runs any more when its trace is closed.
        let _ = self.job.wait();
        let trace = recorder.finish();
        let (schema, batches, asked) = outcome?;
        let (trace, trace_failure) = match trace {
            // The rows are there, and stay.
            Err(TraceError::NotWritten { path, source, kept }) => {
                (*kept, Some(TraceError::NotWritten { path, source, kept: Box::default() }.to_string()))
            }
            trace => (trace.map_err(|e| EngineError::Failed(e.to_string()))?, None),
        };
        let (schema, batches) = match asked {
            Some(stages) => explained(&stages, &trace)?,
            None => (schema, batches),
        };
        Ok(QueryResult { schema, batches, trace, trace_failure })
    }

    /// Ends a job whose planning panicked.
    fn defect(&self, panic: &(dyn std::any::Any + Send), recorder: &Recorder) -> EngineError {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no words");
        let words =
            format!("this query met a defect ({text}); please report it with the query and its files");
        self.job.fail(words.clone().into());
        let _ = self.job.wait();
        // The words say more than a trace that could not be written.
        let _ = recorder.finish();
        EngineError::Failed(words)
    }

    /// Plans and runs. The third part: the stages' descriptions, for `EXPLAIN`, and whether
    /// they are to be shown with what the trace measured.
    fn steps(&self, sql: &str) -> Result<Steps, EngineError> {
        let planned = self.session.tokio.block_on(planned(Arc::clone(&self.io), self.plan(sql)))?;
        if self.job.is_cancelled() {
            return Err(EngineError::Cancelled);
        }
        let schema = planned.plan.schema();
        let stages = cut::cut(&planned.plan)?;
        let context = self.context(&planned.state);
        let described = match planned.asked {
            Asked::Stages | Asked::Measured => Some(self.describe(&stages, &planned.metadata, &context)?),
            Asked::Rows | Asked::Table(_) => None,
        };
        if matches!(planned.asked, Asked::Stages) {
            self.job.succeed();
            return Ok((schema, Vec::new(), described.map(|stages| Explained { stages, ran: Vec::new() })));
        }
        let (batches, ran) = self.execute(stages, planned.metadata, context)?;
        if let Asked::Table(table) = planned.asked {
            self.keep(*table, &schema, batches)?;
            return Ok((Arc::new(Schema::empty()), Vec::new(), None));
        }
        Ok((schema, batches, described.map(|stages| Explained { stages, ran })))
    }

    /// The rows, and each stage's number in the trace.
    fn execute(
        &self,
        stages: StagePlan,
        metadata: Metadata,
        context: Arc<TaskContext>,
    ) -> Result<(Vec<RecordBatch>, Vec<Option<StageIx>>), EngineError> {
        let execution = Execution::new(Parts {
            runtime: self.session.runtime.clone(),
            job: self.job.clone(),
            plan: stages,
            context,
            metadata,
            io: Arc::clone(&self.io),
            outputs: Arc::clone(&self.outputs),
            open: self.open(),
            at_least: self.at_least(),
        });
        if let Err(error) = execution.start() {
            self.job.fail(Box::new(error));
        }
        let ended = self.job.wait();
        if ended.is_err() {
            self.outputs.discard();
        }
        ended?;
        Ok((execution.result(), execution.numbers()))
    }

    /// Multitasks that a scan is divided into at least: enough that every core has several, or as
    /// many as an exchange was asked to have, so that a job can be divided alike on any cores.
    fn at_least(&self) -> usize {
        let options = &self.session.options;
        options.partitions.unwrap_or(options.cores * 4).max(4)
    }

    async fn plan(&self, sql: &str) -> Result<Planned, EngineError> {
        let context = &self.session.context;
        let state = context.state();
        let logical = logical::plan(&state, sql).await?;
        let (logical, asked) = match logical {
            LogicalPlan::Explain(e) if !e.verbose => ((*e.plan).clone(), Asked::Stages),
            LogicalPlan::Analyze(a) => ((*a.input).clone(), Asked::Measured),
            LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(c))
                if !matches!(*c.input, LogicalPlan::EmptyRelation(_)) =>
            {
                ((*c.input).clone(), Asked::Table(Box::new(c)))
            }
            LogicalPlan::Ddl(_) | LogicalPlan::Statement(_) => {
                let frame = context.execute_logical_plan(logical).await?;
                (frame.into_parts().1, Asked::Rows)
            }
            LogicalPlan::Copy(mut copy) => {
                let place = std::mem::take(&mut copy.output_url);
                copy.output_url = paths::target(&place)?;
                if !copy.partition_by.is_empty() || paths::is_folder(&copy.output_url)? {
                    tables::check_empty(&state, &place, &copy.output_url).await?;
                }
                (LogicalPlan::Copy(copy), Asked::Rows)
            }
            query => (query, Asked::Rows),
        };
        let logical = match self.session.options.input {
            Input::MemoryDecoded => self.session.decoded.instead(logical)?,
            Input::Storage | Input::Memory => logical,
        };
        // Settings may have changed with the statement.
        let state = context.state();
        let plan = state.create_physical_plan(&logical).await?;
        let metadata = metadata(&state, &plan).await?;
        Ok(Planned { state, plan, asked, metadata })
    }

    /// What the job's operators see: its own stores, joins that do not wait for each other.
    fn context(&self, state: &SessionState) -> Arc<TaskContext> {
        let mut env = state.runtime_env().as_ref().clone();
        env.object_store_registry = Arc::new(JobStores {
            stores: Arc::clone(&self.session.stores),
            io: Arc::clone(&self.io),
            outputs: Arc::clone(&self.outputs),
        });
        let mut config = state.config().clone();
        // A join would wait for reports of partitions whose multitasks have not been admitted.
        config.options_mut().optimizer.enable_join_dynamic_filter_pushdown = false;
        Arc::new(TaskContext::from(state).with_session_config(config).with_runtime(Arc::new(env)))
    }

    fn open(&self) -> Open {
        let (session, io) = (Arc::clone(&self.session), Arc::clone(&self.io));
        Box::new(move |config: &FileScanConfig, file: &PartitionedFile| {
            let url: &url::Url = config.object_store_url.as_ref();
            if url.scheme() == "file" {
                let path = pellucid_storage::LocalStore::default().path(file.path())?;
                return Ok(Source::Local(session.runtime.open(&path).map_err(DataFusionError::External)?));
            }
            let name = pellucid_storage::name(url);
            io.asks(&name);
            Ok(Source::Remote {
                store: session.stores.get(url)?,
                path: file.path().clone(),
                resource: session.runtime.store(&name, None),
                pacer: session.runtime.network_pacer(),
                tokio: session.tokio.handle().clone(),
            })
        })
    }

    /// Every stage in words, its multitasks as they would be if no build side knew anything.
    fn describe(
        &self,
        plan: &StagePlan,
        metadata: &Metadata,
        context: &Arc<TaskContext>,
    ) -> Result<Vec<String>, EngineError> {
        let ledger: Arc<dyn Ledger> = Arc::new(JobLedger::new(self.job.clone(), context));
        let planned: Vec<Mutex<Option<Arc<Exchange>>>> =
            plan.stages.iter().map(|_| Mutex::default()).collect();
        let open = self.open();
        let builder = Builder {
            plan,
            metadata,
            io: &self.io,
            ledger: &ledger,
            exchanges: &|stage| planned[stage].lock().unwrap_or_else(PoisonError::into_inner).clone(),
            open: &open,
            at_least: self.at_least(),
        };
        let describe = |index: usize| {
            let ready = builder.ready(index)?;
            *planned[index].lock().unwrap_or_else(PoisonError::into_inner) =
                Some(Arc::clone(&ready.exchange));
            Ok(explain::stage(plan, index, &ready))
        };
        (0..plan.stages.len()).map(describe).collect::<Result<_, DataFusionError>>().map_err(Into::into)
    }

    /// Keeps rows as a table (`CREATE TABLE … AS SELECT`).
    fn keep(
        &self,
        mut table: datafusion::logical_expr::CreateMemoryTable,
        schema: &SchemaRef,
        batches: Vec<RecordBatch>,
    ) -> Result<(), EngineError> {
        let rows = datafusion::datasource::MemTable::try_new(Arc::clone(schema), vec![batches])?;
        let source = datafusion::datasource::provider_as_source(Arc::new(rows));
        let scan = datafusion::logical_expr::LogicalPlanBuilder::scan(table.name.clone(), source, None)?;
        // Constraints, OR REPLACE and IF NOT EXISTS are DataFusion's to know.
        table.input = Arc::new(scan.build()?);
        let plan = LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(table));
        self.session.tokio.block_on(self.session.context.execute_logical_plan(plan))?;
        Ok(())
    }
}

/// Columns, rows, and what `EXPLAIN` shows instead of them.
type Steps = (SchemaRef, Vec<RecordBatch>, Option<Explained>);

struct Explained {
    stages: Vec<String>,
    /// The trace's numbers of those that ran.
    ran: Vec<Option<StageIx>>,
}

/// The rows of `EXPLAIN`: one a line of a stage; what was measured stands below its first.
fn explained(explained: &Explained, trace: &Trace) -> Result<(SchemaRef, Vec<RecordBatch>), EngineError> {
    let mut numbers = Vec::new();
    let mut lines = Vec::new();
    for (index, stage) in explained.stages.iter().enumerate() {
        let ran = explained.ran.get(index).copied().flatten();
        let measured = ran.map_or_else(String::new, |ix| explain::measured(trace, ix));
        let all = stage.lines().take(1).chain(measured.lines()).chain(stage.lines().skip(1));
        for line in all {
            numbers.push(index.to_string());
            lines.push(line.to_string());
        }
    }
    let fields = [("stage", numbers), ("plan", lines)];
    let schema = Arc::new(Schema::new(
        fields.iter().map(|(n, _)| Field::new(*n, DataType::Utf8, false)).collect::<Vec<_>>(),
    ));
    let columns = fields.into_iter().map(|(_, c)| Arc::new(StringArray::from(c)) as _).collect();
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).map_err(DataFusionError::from)?;
    Ok((schema, vec![batch]))
}

/// The metadata of all Parquet files of a plan, read or found in the session's cache.
async fn metadata(state: &SessionState, plan: &Node) -> Result<Metadata, DataFusionError> {
    let mut wanted: Vec<(String, Arc<dyn object_store::ObjectStore>, ObjectMeta)> = Vec::new();
    plan.apply(|node| {
        if let Some(scan) = ParquetScan::of(node) {
            let url = &scan.config.object_store_url;
            let store = state.runtime_env().object_store(url)?;
            let files = scan.config.file_groups.iter().flat_map(|g| g.iter());
            wanted.extend(
                files.map(|f| (in_store(url.as_ref(), f.path()), Arc::clone(&store), f.object_meta.clone())),
            );
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    wanted.sort_by(|(a, ..), (b, ..)| a.cmp(b));
    wanted.dedup_by(|(a, ..), (b, ..)| a == b);
    let cache = state.runtime_env().cache_manager.get_file_metadata_cache();
    futures::stream::iter(wanted)
        .map(|(name, store, meta)| {
            let cache = Arc::clone(&cache);
            async move {
                let metadata = DFParquetMetadata::new(store.as_ref(), &meta)
                    .with_file_metadata_cache(Some(cache))
                    .with_page_index_policy(Some(PageIndexPolicy::Optional))
                    .fetch_metadata()
                    .await
                    .map_err(|e| e.context(format!("the metadata of {} cannot be read", meta.location)))?;
                Ok((name, metadata))
            }
        })
        .buffer_unordered(METADATA_AT_ONCE)
        .try_collect()
        .await
}
