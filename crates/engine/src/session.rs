//! State that queries of one engine share: the runtime, the tables, the open stores.

use std::sync::Arc;

use datafusion::catalog::{DynamicFileCatalog, SchemaProvider, UrlTableFactory};
use datafusion::common::{TableReference, internal_datafusion_err};
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::execution::object_store::ObjectStoreRegistry;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use pellucid_runtime::Runtime;

use crate::execute::spill::Folders;
use crate::sql::stack::STACK_BYTES;
use crate::statements::describe::quantile;
use crate::statements::script::memory::Pool;
use crate::statements::script::state::State;
use crate::stores::Stores;
use crate::tables::input::DecodedTables;
use crate::tables::lazy::LazyTables;
use crate::tables::options::FileOptions;
use crate::tables::streams::{self, Streams};
use crate::tables::{self, PathTables};
use crate::{EngineError, EngineOptions, Input, functions};

/// Hash partitions per core. On two cores, both fewer and more partitions were slower.
const PARTITIONS_PER_CORE: usize = 4;

/// The catalog and the schema of tables without others in their names.
const CATALOG: &str = "memory";
const SCHEMA: &str = "main";

/// Estimated size up to which the build side of a join is not divided.
const COLLECTED_BYTES: usize = 4 << 20;

/// The shared state of an engine.
pub(crate) struct Session {
    pub options: EngineOptions,
    pub runtime: Runtime,
    pub context: SessionContext,
    lazy: Arc<LazyTables>,
    pub stores: Arc<Stores>,
    /// Tables in memory for [`Input::MemoryDecoded`].
    pub decoded: DecodedTables,
    /// Folders for what does not fit into memory.
    pub folders: Arc<Folders>,
    /// Variables, macros and the like of earlier statements.
    pub statements: State,
    /// Executor for planning and for the clients of remote stores.
    pub tokio: tokio::runtime::Runtime,
}

fn failed(error: impl std::fmt::Display) -> EngineError {
    EngineError::Failed(error.to_string())
}

impl Session {
    pub(crate) fn new(options: EngineOptions) -> Result<Self, EngineError> {
        for folder in &options.spill_dirs {
            tempfile::tempfile_in(folder).map_err(|error| {
                let folder = folder.display();
                EngineError::Usage(format!(
                    "cannot spill to {folder}: {error}; name a folder that exists and is writable"
                ))
            })?;
        }
        let spill_dirs = match options.spill_dirs.as_slice() {
            [] => vec![std::env::temp_dir()],
            named => named.to_vec(),
        };
        let runtime = Runtime::new(pellucid_runtime::Options {
            cores: options.cores,
            cores_set: options.cores_set,
            memory_bytes: options.memory_bytes,
            on_pressure: options.on_pressure,
            io: options.io,
            disk_rates: options.disk_rates.clone(),
            network_rate: options.network_rate,
            concurrency: options.concurrency.clone(),
            stacks: options.stacks,
        })
        .map_err(|e| EngineError::Usage(e.to_string()))?;
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("plan")
            .thread_stack_size(STACK_BYTES)
            .enable_all()
            .build()
            .map_err(failed)?;
        let stores = Arc::new(Stores::default());
        let (context, lazy) = context(&options, &stores).map_err(EngineError::from)?;
        let statements = State::default();
        statements.register(&context)?;
        let (decoded, folders) = (DecodedTables::default(), Folders::new(spill_dirs));
        Ok(Self { options, runtime, context, lazy, stores, decoded, folders, statements, tokio })
    }

    /// Returns labels for the trace: settings that make times differ from those of the bare machine.
    pub(crate) fn labels(&self) -> Vec<String> {
        let mut labels = self.runtime.labels();
        labels.extend(match self.options.input {
            Input::Storage => None,
            Input::Memory => Some("tables read into the page cache before the job".to_string()),
            Input::MemoryDecoded => Some("tables decoded into memory before the job".to_string()),
        });
        labels.extend(
            self.options
                .slow_operator
                .map(|(number, factor)| format!("operator {number} slowed to {factor} times its core time")),
        );
        labels
    }

    pub(crate) fn register_table(&self, name: &str, path: &str) -> Result<(), EngineError> {
        let (places, options) = ([path.to_string()], FileOptions::default());
        let table = self.tokio.block_on(tables::listing(&self.context.state(), &places, &options))?;
        self.context.register_table(TableReference::bare(table_name(name)), table)?;
        Ok(())
    }

    pub(crate) fn declare_table(&self, name: &str, path: &str) -> Result<(), EngineError> {
        // Remote files would be listed twice, and a pipe can be read once.
        if path.contains("://") || streams::is_stream(path) {
            return self.register_table(name, path);
        }
        self.tokio.block_on(tables::check(&self.context.state(), path))?;
        self.lazy.add(table_name(name), path.to_string())?;
        Ok(())
    }
}

/// Returns the name of a table as SQL has it, which folds names to lower case unless they are quoted.
fn table_name(name: &str) -> String {
    match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
        Some(quoted) => quoted.to_string(),
        None => name.to_lowercase(),
    }
}

/// Returns the context of all statements, and its schema of tables that need not be open.
fn context(
    options: &EngineOptions,
    stores: &Arc<Stores>,
) -> datafusion::common::Result<(SessionContext, Arc<LazyTables>)> {
    let pool: Arc<dyn MemoryPool> = Arc::new(Pool::new(options.memory_bytes));
    let env = RuntimeEnvBuilder::new()
        .with_memory_pool(pool)
        // A spilling operator would block a core on a disk.
        .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled))
        .with_object_store_registry(Arc::clone(stores) as Arc<dyn ObjectStoreRegistry>)
        .build_arc()?;
    let partitions = options.partitions.unwrap_or(options.cores.max(1) * PARTITIONS_PER_CORE);
    let mut config = SessionConfig::new()
        .with_target_partitions(partitions)
        .with_information_schema(true)
        .with_default_catalog_and_schema(CATALOG, SCHEMA)
        .with_extension(Arc::new(Streams::new(options.stdin_taken)));
    let o = config.options_mut();
    // A multitask may decode only the bytes that were read for it.
    o.execution.enable_file_stream_work_stealing = false;
    o.execution.listing_table_ignore_subdirectory = false;
    o.execution.parquet.pushdown_filters = false;
    o.execution.parquet.bloom_filter_on_read = false;
    // The two plans of a union with constant branches may differ in whether a column has nulls; that is not an error.
    o.execution.skip_physical_aggregate_schema_check = true;
    // Adds dynamic filters to joins, which `dynamic_filter` fills.
    o.optimizer.enable_join_dynamic_filter_pushdown = true;
    // For an aggregate over an expression, it loses the minimum and maximum, and so drops rows.
    o.optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    o.optimizer.repartition_file_min_size = 0;
    // Chooses the sides of joins by `plan::estimates`. One core builds a table that is collected.
    o.optimizer.use_statistics_registry = true;
    o.optimizer.hash_join_single_partition_threshold = COLLECTED_BYTES;
    // Like DuckDB, in both directions.
    o.sql_parser.default_null_ordering = "nulls_last".to_string();
    // As DuckDB keeps the order of a subquery, and LIMIT takes its first rows.
    o.sql_parser.enable_subquery_sort_elimination = false;
    // Errors show the place in the statement.
    o.sql_parser.collect_spans = true;
    let plain = SessionContext::new_with_config_rt(config, env);
    let paths = Arc::new(PathTables::default());
    let missing = || internal_datafusion_err!("the session has no tables");
    let catalog = plain.catalog(CATALOG).ok_or_else(missing)?;
    let opened = catalog.schema(SCHEMA).ok_or_else(missing)?;
    let lazy = Arc::new(LazyTables::new(opened, Arc::clone(&paths)));
    catalog.register_schema(SCHEMA, Arc::clone(&lazy) as Arc<dyn SchemaProvider>)?;
    let catalogs = Arc::new(DynamicFileCatalog::new(
        Arc::clone(plain.state().catalog_list()),
        Arc::clone(&paths) as Arc<dyn UrlTableFactory>,
    ));
    let planners: Vec<_> =
        functions::operators().into_iter().chain(plain.state().expr_planners().iter().cloned()).collect();
    let mut analyzer_rules = crate::types::rules::analyzer_rules();
    analyzer_rules.push(Arc::new(crate::plan::shared::equal::ShareEqual));
    let mut optimizer_rules = plain.state().optimizer().rules.clone();
    let moves_filters = optimizer_rules.iter().position(|rule| rule.name() == "push_down_filter");
    optimizer_rules.insert(moves_filters.unwrap_or(0), Arc::new(crate::plan::join_filters::ColumnsFirst));
    optimizer_rules.push(Arc::new(crate::plan::outer_joins::InnerOuterJoins));
    optimizer_rules.push(Arc::new(crate::plan::keys::ComputedKeys));
    let context: SessionContext = plain
        .into_state_builder()
        .with_expr_planners(planners)
        .with_catalog_list(catalogs)
        .with_analyzer_rules(analyzer_rules)
        .with_query_planner(Arc::new(crate::plan::shared::Planner))
        .with_optimizer_rules(optimizer_rules)
        .with_physical_optimizer_rules(crate::plan::pushdown::rules())
        .with_statistics_registry(crate::plan::estimates::registry())
        .build()
        .into();
    let state = context.state_weak_ref();
    crate::tables::formats::register(&context)?;
    context.register_udaf(crate::types::sum::function());
    context.register_udaf(crate::types::average::function());
    functions::register(&context);
    quantile::all().into_iter().for_each(|function| context.register_udaf(function));
    crate::queries::register(&context);
    // Set only here, so this cannot fail.
    let _ = paths.session.set(Box::new(move || state.upgrade().map(|s| s.read().clone())));
    Ok((context, lazy))
}
