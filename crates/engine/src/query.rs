//! Runs one statement, from its text to its rows and its trace.

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
use datafusion::execution::TaskContext;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::LogicalPlan;
use futures::{StreamExt, TryStreamExt};
use object_store::ObjectMeta;
use pellucid_runtime::{Job, Progress};
use pellucid_trace::{Recorder, RecorderOptions, StageIx, Trace, TraceError};

use crate::error::panic_message;
use crate::execute::memory::usage::Usage;
use crate::execute::output::Outputs;
use crate::execute::{Execution, ExecutionParams, OpenFn};
use crate::logical;
use crate::logical::labels::Labels;
use crate::plan::cut::{self, Node, StagePlan};
use crate::plan::explain::{self, Description};
use crate::plan::scans::{self, PlannedScan};
use crate::queries::pivot::values::Values;
use crate::scan::Source;
use crate::scan::footer::footer;
use crate::scan::parquet::{Metadata, ParquetScan};
use crate::session::Session;
use crate::sql::stack::{cannot_start, thread_builder, with_large_stack};
use crate::sql::statements::Statement;
use crate::statements::{self, Begun};
use crate::stores::{JobIo, JobStores, in_store, with_planning_job};
use crate::sync::lock;
use crate::tables::input;
use crate::tables::{paths, streams};
use crate::types::places;
use crate::{EngineError, Input, QueryResult, tables};

/// Time that a cancelled query waits for the end of its trace. Most work stops within 100 ms, except
/// an operator that emits no batches and a store that does not answer while planning.
const TRACE_END_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of concurrent reads of footers and page indexes.
const METADATA_CONCURRENCY: usize = 16;

/// A running statement.
pub struct Query {
    job: Job,
    cancel: CancelHandle,
    outcome: Receiver<Result<QueryResult, EngineError>>,
    /// The outcome, if [`Query::ended_within`] has received it already.
    received: Mutex<Option<Result<QueryResult, EngineError>>>,
    /// Closed when the query's thread exits; `None` if the query writes no trace file.
    traced: Option<Receiver<()>>,
}

/// A handle that cancels a query. It may outlive the query.
#[derive(Clone)]
pub struct CancelHandle {
    job: Job,
    outputs: Arc<Outputs>,
    outcome: SyncSender<Result<QueryResult, EngineError>>,
}

impl CancelHandle {
    /// Cancels the query and removes its partial output before it returns. Running work stops within
    /// 100 ms. [`Query::wait`] returns at once, or within 1 s if there is a trace file to complete.
    pub fn cancel(&self) {
        self.job.cancel();
        self.outputs.discard();
        // The channel is full if the query has ended on its own.
        let _ = self.outcome.try_send(Err(EngineError::Cancelled));
    }
}

impl Query {
    pub(crate) fn start(
        session: Arc<Session>,
        statement: Statement,
        trace: Option<PathBuf>,
    ) -> Result<Self, EngineError> {
        // DataFusion's listing cache never expires, and files may have changed since the last statement.
        if let Some(listings) = session.context.runtime_env().cache_manager.get_list_files_cache() {
            listings.clear();
        }
        if session.options.input != Input::Storage {
            with_large_stack(|| load(&session, &statement))?;
        }
        let (tracing, traced) = sync_channel(0);
        let traced = trace.is_some().then_some(traced);
        let recorder = Recorder::start(RecorderOptions {
            producer: "engine".to_string(),
            producer_version: env!("CARGO_PKG_VERSION").to_string(),
            labels: session.labels(),
            path: trace.clone(),
            keep: true,
        })?;
        let job = session.runtime.begin(statement.sql(), recorder.clone());
        // Capacity 2: the query's outcome, and a cancellation that precedes it.
        let (sender, outcome) = sync_channel(2);
        let tokio = session.tokio.handle().clone();
        let outputs = Arc::new(Outputs::new(session.runtime.clone(), tokio, trace));
        let cancel =
            CancelHandle { job: job.clone(), outputs: Arc::clone(&outputs), outcome: sender.clone() };
        let query = Self { job: job.clone(), cancel, outcome, received: Mutex::new(None), traced };
        thread_builder("query")
            .spawn(move || {
                // Dropped when the thread exits, which closes `traced`.
                let _tracing: SyncSender<()> = tracing;
                let io = session.stores.begin(job.clone(), session.runtime.clone());
                let usage = Arc::new(Usage::default());
                let of_job = Arc::clone(&usage);
                job.set_memory(move || (of_job.peak(), of_job.spill()));
                let running = Running { session, job, usage, outputs, io };
                let caught = catch_unwind(AssertUnwindSafe(|| running.run(&statement, &recorder)));
                let outcome = caught.unwrap_or_else(|panic| Err(running.on_panic(panic.as_ref(), &recorder)));
                // The receiver may be gone already.
                let _ = sender.try_send(outcome);
            })
            .map_err(|e| cannot_start(&e))?;
        Ok(query)
    }

    /// Returns the progress of the query.
    pub fn progress(&self) -> Progress {
        self.job.progress()
    }

    /// Returns a handle that cancels the query.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }

    /// Waits up to `timeout` for completion. Returns true if the query has ended.
    pub fn ended_within(&self, timeout: Duration) -> bool {
        let mut received = lock(&self.received);
        if received.is_some() {
            return true;
        }
        match self.outcome.recv_timeout(timeout) {
            Ok(outcome) => {
                *received = Some(outcome);
                true
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => true,
        }
    }

    /// Waits for completion and returns the result.
    ///
    /// # Errors
    /// Returns an error if the statement is invalid, fails or is cancelled, or its trace is incomplete.
    pub fn wait(self) -> Result<QueryResult, EngineError> {
        let received = self.received.into_inner().unwrap_or_else(PoisonError::into_inner);
        const EXITED: &str = "the query thread exited unexpectedly; please report it with the query";
        let exited = |_| Err(EngineError::Failed(EXITED.to_string()));
        let outcome = received.unwrap_or_else(|| self.outcome.recv().unwrap_or_else(exited));
        if let (Err(EngineError::Cancelled), Some(traced)) = (&outcome, self.traced) {
            // The outcome is the same whether the thread exits in time or not.
            let _ = traced.recv_timeout(TRACE_END_TIMEOUT);
        }
        outcome
    }
}

/// Loads the statement's tables into memory if [`Input`] asks for it. The job reports planning errors.
fn load(session: &Session, statement: &Statement) -> Result<(), EngineError> {
    let state = session.context.state();
    let query = |logical: LogicalPlan| match logical {
        LogicalPlan::Ddl(_) | LogicalPlan::Statement(_) => None,
        LogicalPlan::Explain(e) => Some((*e.plan).clone()),
        LogicalPlan::Analyze(a) => Some((*a.input).clone()),
        query => Some(query),
    };
    session.tokio.block_on(async {
        let Ok(statement) = statements::expanded(session, statement).await else { return Ok(()) };
        let planned = logical::plan(&state, &statement, &Arc::default()).await;
        let Some(logical) = planned.ok().and_then(|(logical, _)| query(logical)) else {
            return Ok(());
        };
        match session.options.input {
            Input::Storage => Ok(()),
            Input::Memory => Ok(input::cache(&state.create_physical_plan(&logical).await?)?),
            Input::MemoryDecoded => Ok(session.decoded.load(&state, &logical).await?),
        }
    })
}

/// The kind of a statement, which determines its result.
enum StatementKind {
    /// Returns rows.
    Query,
    /// Returns the stages without running them.
    Explain,
    /// Runs the stages and returns them with their measurements.
    ExplainAnalyze,
}

/// A planned statement.
struct PlannedStatement {
    state: SessionState,
    plan: Node,
    kind: StatementKind,
    metadata: Metadata,
    /// Names of columns that the result shows instead of those of the plan.
    labels: Labels,
}

/// A statement that its thread runs.
struct Running {
    session: Arc<Session>,
    job: Job,
    usage: Arc<Usage>,
    outputs: Arc<Outputs>,
    io: Arc<JobIo>,
}

impl Running {
    fn run(&self, statement: &Statement, recorder: &Recorder) -> Result<QueryResult, EngineError> {
        let outcome = self.steps(statement).map_err(|error| {
            let error = streams::named(&self.session.context.state(), error);
            places::mark(statement, error)
        });
        if let Err(error) = &outcome {
            self.session.statements.fail();
            // A no-op if the job itself has failed.
            self.job.fail(error.to_string().into());
        }
        // The trace may be closed only after all work of the job has stopped.
        let _ = self.job.wait();
        let trace = recorder.finish();
        let (schema, batches, explain) = outcome?;
        let (trace, trace_failure) = match trace {
            // The query succeeded: return its rows and report the failure beside them.
            Err(TraceError::NotWritten { path, source, kept }) => {
                (*kept, Some(TraceError::NotWritten { path, source, kept: Box::default() }.to_string()))
            }
            trace => (trace?, None),
        };
        let (schema, batches) = match explain {
            Some(stages) => explained(&stages, &trace)?,
            None => (schema, batches),
        };
        Ok(QueryResult { schema, batches, trace, trace_failure })
    }

    /// Ends a job whose planning panicked.
    fn on_panic(&self, panic: &(dyn std::any::Any + Send), recorder: &Recorder) -> EngineError {
        let text = panic_message(panic);
        let message = format!("internal error: {text}; please report it with the query and its files");
        self.job.fail(message.clone().into());
        let _ = self.job.wait();
        // The panic matters more than an error of the trace file.
        let _ = recorder.finish();
        EngineError::Failed(message)
    }

    /// Plans and runs the statement. The last part of the result is set for `EXPLAIN` only.
    fn steps(&self, statement: &Statement) -> Result<Steps, EngineError> {
        let beginning = with_planning_job(Arc::clone(&self.io), statements::begin(&self.session, statement));
        let (statement, finish) = match self.session.tokio.block_on(beginning)? {
            Begun::Run(statement, finish) => (statement, finish),
            Begun::Done((schema, batches)) => {
                self.job.succeed();
                return Ok((schema, batches, None));
            }
        };
        let values = Arc::default();
        let planned = loop {
            let planning = with_planning_job(Arc::clone(&self.io), plan(&self.session, &statement, &values));
            match self.session.tokio.block_on(planning) {
                Ok(planned) => break planned,
                Err(error) => self.find_values(&values, error)?,
            }
        };
        if self.job.is_cancelled() {
            return Err(EngineError::Cancelled);
        }
        let schema = planned.plan.schema();
        let context = self.context(&planned.state);
        let execution = self.execution(cut::cut(&planned.plan)?, planned.metadata, context, None);
        let described = match planned.kind {
            StatementKind::Explain | StatementKind::ExplainAnalyze => Some(execution.describe()?),
            StatementKind::Query => None,
        };
        if matches!(planned.kind, StatementKind::Explain) {
            self.job.succeed();
            return Ok((schema, Vec::new(), described.map(|stages| Explained { stages, ran: Vec::new() })));
        }
        let (batches, ran) = self.execute(execution)?;
        if let Some(finish) = finish {
            let (schema, batches) =
                self.session.tokio.block_on(finish.apply(&self.session, (schema, batches)))?;
            return Ok((schema, batches, None));
        }
        let (schema, batches) = labelled(schema, batches, &planned.labels)?;
        Ok((schema, batches, described.map(|stages| Explained { stages, ran })))
    }

    /// Runs the query whose values are needed to plan the statement, as the first stages of the job.
    ///
    /// # Errors
    /// Returns `error`, with which planning ended, if no values are needed.
    fn find_values(&self, values: &Arc<Values>, error: EngineError) -> Result<(), EngineError> {
        let Some(query) = values.wanted() else { return Err(error) };
        let state = self.session.context.state();
        let planning = with_planning_job(Arc::clone(&self.io), async {
            let plan = state.create_physical_plan(&query).await?;
            let metadata = metadata(&state, &plan).await?;
            Ok::<_, DataFusionError>((plan, metadata))
        });
        let (plan, metadata) = self.session.tokio.block_on(planning)?;
        let (ended, batches) = sync_channel(1);
        let execution = self.execution(cut::cut(&plan)?, metadata, self.context(&state), Some(ended));
        if let Err(error) = execution.start() {
            self.job.fail(Box::new(error));
        }
        drop(execution);
        match batches.recv() {
            Ok(batches) => Ok(values.insert(&query, &batches)?),
            // The job failed or was cancelled.
            Err(_) => self.job.wait().map_err(EngineError::from).and(Err(EngineError::Cancelled)),
        }
    }

    fn execution(
        &self,
        stages: StagePlan,
        metadata: Metadata,
        context: Arc<TaskContext>,
        ended: Option<SyncSender<Vec<RecordBatch>>>,
    ) -> Arc<Execution> {
        Execution::new(ExecutionParams {
            runtime: self.session.runtime.clone(),
            job: self.job.clone(),
            usage: Arc::clone(&self.usage),
            plan: stages,
            context,
            metadata,
            io: Arc::clone(&self.io),
            outputs: Arc::clone(&self.outputs),
            open: self.open(),
            min_partitions: self.min_partitions(),
            folders: Arc::clone(&self.session.folders),
            slow_operator: self.session.options.slow_operator,
            ended,
        })
    }

    /// Runs the stages. Returns the rows, and each stage's index in the trace.
    fn execute(
        &self,
        execution: Arc<Execution>,
    ) -> Result<(Vec<RecordBatch>, Vec<Option<StageIx>>), EngineError> {
        if let Err(error) = execution.start() {
            self.job.fail(Box::new(error));
        }
        let outcome = self.job.wait();
        if outcome.is_err() {
            self.outputs.discard();
        }
        outcome?;
        Ok((execution.result(), execution.trace_indices()))
    }

    /// Returns the minimum number of multitasks of a scan: several per core, or the number of
    /// partitions from the options, so that a job can be divided alike on any number of cores.
    fn min_partitions(&self) -> usize {
        let options = &self.session.options;
        options.partitions.unwrap_or(options.cores * 4).max(4)
    }

    /// Creates the context of the job's operators, with the job's own stores.
    fn context(&self, state: &SessionState) -> Arc<TaskContext> {
        let mut env = state.runtime_env().as_ref().clone();
        env.object_store_registry = Arc::new(JobStores {
            stores: Arc::clone(&self.session.stores),
            io: Arc::clone(&self.io),
            outputs: Arc::clone(&self.outputs),
        });
        let mut config = state.config().clone();
        // With it, a join waits for all partitions, whose multitasks may not have been admitted.
        config.options_mut().optimizer.enable_join_dynamic_filter_pushdown = false;
        Arc::new(TaskContext::from(state).with_session_config(config).with_runtime(Arc::new(env)))
    }

    fn open(&self) -> OpenFn {
        let (session, io) = (Arc::clone(&self.session), Arc::clone(&self.io));
        Box::new(move |config: &FileScanConfig, file: &PartitionedFile| {
            let url: &url::Url = config.object_store_url.as_ref();
            if url.scheme() == "file" {
                let path = pellucid_storage::LocalStore::default().path(file.path())?;
                return Ok(Source::Local(session.runtime.open(&path).map_err(DataFusionError::External)?));
            }
            let name = pellucid_storage::name(url);
            io.use_store(&name);
            Ok(Source::Remote {
                store: session.stores.get(url)?,
                path: file.path().clone(),
                resource: session.runtime.store(&name, None),
                pacer: session.runtime.network_pacer(),
                tokio: session.tokio.handle().clone(),
            })
        })
    }
}

/// Plans a statement.
async fn plan(
    session: &Session,
    statement: &Statement,
    values: &Arc<Values>,
) -> Result<PlannedStatement, EngineError> {
    let context = &session.context;
    let state = context.state();
    let (logical, labels) = logical::plan(&state, statement, values).await?;
    let (logical, kind) = match logical {
        LogicalPlan::Explain(e) if !e.verbose => ((*e.plan).clone(), StatementKind::Explain),
        LogicalPlan::Analyze(a) => ((*a.input).clone(), StatementKind::ExplainAnalyze),
        LogicalPlan::Ddl(_) | LogicalPlan::Statement(_) => {
            let frame = context.execute_logical_plan(logical).await?;
            (frame.into_parts().1, StatementKind::Query)
        }
        LogicalPlan::Copy(mut copy) => {
            let place = std::mem::take(&mut copy.output_url);
            copy.output_url = paths::target(&place)?;
            if !copy.partition_by.is_empty() || paths::is_folder(&copy.output_url)? {
                tables::check_empty(&state, &place, &copy.output_url).await?;
            }
            (LogicalPlan::Copy(copy), StatementKind::Query)
        }
        query => (query, StatementKind::Query),
    };
    let logical = match session.options.input {
        Input::MemoryDecoded => session.decoded.replace_tables(logical)?,
        Input::Storage | Input::Memory => logical,
    };
    // The statement itself may have changed settings.
    let state = context.state();
    let plan = match state.create_physical_plan(&logical).await {
        Ok(plan) => plan,
        Err(error) => return Err(logical::explain_physical(&state, statement, values, error).await),
    };
    let metadata = metadata(&state, &plan).await?;
    Ok(PlannedStatement { state, plan, kind, metadata, labels })
}

/// Returns the Parquet scans of a query, as it would be executed.
///
/// # Errors
/// Returns an error if the query is invalid or its files cannot be read.
pub(crate) fn scans(session: &Session, statement: &Statement) -> Result<Vec<PlannedScan>, EngineError> {
    with_large_stack(|| {
        let planned = session.tokio.block_on(async {
            let statement = statements::expanded(session, statement).await?;
            plan(session, &statement, &Arc::default()).await
        })?;
        Ok(scans::of(&cut::cut(&planned.plan)?))
    })
}

/// Renames the columns of a result to those to show.
fn labelled(
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    labels: &Labels,
) -> Result<(SchemaRef, Vec<RecordBatch>), EngineError> {
    if labels.is_empty() {
        return Ok((schema, batches));
    }
    let field = |field: &Arc<Field>| match labels.get(field.name()) {
        Some(label) => Arc::new(field.as_ref().clone().with_name(label)),
        None => Arc::clone(field),
    };
    let fields: Vec<_> = schema.fields().iter().map(field).collect();
    let schema = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
    let renamed = |batch: RecordBatch| RecordBatch::try_new(Arc::clone(&schema), batch.columns().to_vec());
    let batches =
        batches.into_iter().map(renamed).collect::<Result<_, _>>().map_err(DataFusionError::from)?;
    Ok((schema, batches))
}

/// Columns, rows, and the stages that `EXPLAIN` shows instead of them.
type Steps = (SchemaRef, Vec<RecordBatch>, Option<Explained>);

/// Stages to show for `EXPLAIN`.
struct Explained {
    stages: Vec<Description>,
    /// Indices in the trace; `None` for a stage that did not run.
    ran: Vec<Option<StageIx>>,
}

/// Returns the rows of `EXPLAIN`, one per line of a stage. Measurements follow a stage's first line.
fn explained(explained: &Explained, trace: &Trace) -> Result<(SchemaRef, Vec<RecordBatch>), EngineError> {
    let mut numbers = Vec::new();
    let mut lines = Vec::new();
    for (index, stage) in explained.stages.iter().enumerate() {
        let ran = explained.ran.get(index).copied().flatten();
        let measured = ran.map_or_else(String::new, |ix| explain::measured(trace, ix));
        let operators = ran.and_then(|ix| explain::operators(trace, ix));
        let tree = operators.as_ref().unwrap_or(&stage.nodes);
        let (first, notes) = stage.head.split_once('\n').unwrap_or((&stage.head, ""));
        for line in first.lines().chain(measured.lines()).chain(notes.lines()).chain(tree.lines()) {
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

/// Returns the metadata of all Parquet files of a plan, from the session's cache or the files.
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
                let metadata = footer(store.as_ref(), &meta, cache).await?;
                Ok((name, metadata))
            }
        })
        .buffer_unordered(METADATA_CONCURRENCY)
        .try_collect()
        .await
}
