//! What lasts from query to query: the runtime, the tables, the open stores.

use std::sync::Arc;

use datafusion::catalog::{DynamicFileCatalog, UrlTableFactory};
use datafusion::common::TableReference;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool, UnboundedMemoryPool};
use datafusion::execution::object_store::ObjectStoreRegistry;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use pellucid_runtime::Runtime;

use crate::input::Decoded;
use crate::stores::Stores;
use crate::tables::{self, PathTables};
use crate::{EngineError, EngineOptions, Input};

/// Hash partitions a core: two, eight and sixteen in all were slower on two cores (facts on
/// DataFusion, "Sizes and memory").
const PARTITIONS_A_CORE: usize = 4;

pub(crate) struct Session {
    pub options: EngineOptions,
    pub runtime: Runtime,
    pub context: SessionContext,
    pub stores: Arc<Stores>,
    /// Tables that `--input memory-decoded` keeps.
    pub decoded: Decoded,
    /// Runs planning and the clients of remote stores.
    pub tokio: tokio::runtime::Runtime,
}

fn failed(error: impl std::fmt::Display) -> EngineError {
    EngineError::Failed(error.to_string())
}

impl Session {
    pub(crate) fn new(options: EngineOptions) -> Result<Self, EngineError> {
        if !options.spill_dirs.is_empty() {
            return Err(EngineError::Usage(
                "spilling is not built yet: leave --spill-dir out and let queries have the memory that they need"
                    .to_string(),
            ));
        }
        let runtime = Runtime::new(pellucid_runtime::Options {
            cores: options.cores,
            cores_set: options.cores_set,
            memory_bytes: options.memory_bytes,
            io: options.io,
            disk_rates: options.disk_rates.clone(),
            network_rate: options.network_rate,
            concurrency: options.concurrency.clone(),
            policy: options.policy,
        })
        .map_err(|e| EngineError::Usage(e.to_string()))?;
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("plan")
            .enable_all()
            .build()
            .map_err(failed)?;
        let stores = Arc::new(Stores::default());
        let context = context(&options, &stores).map_err(EngineError::from)?;
        Ok(Self { options, runtime, context, stores, decoded: Decoded::default(), tokio })
    }

    /// What makes times of this session not those of the bare machine, in words.
    pub(crate) fn labels(&self) -> Vec<String> {
        let mut labels = self.runtime.labels();
        labels.extend(match self.options.input {
            Input::Storage => None,
            Input::Memory => Some("tables read into the page cache before the job".to_string()),
            Input::MemoryDecoded => Some("tables decoded into memory before the job".to_string()),
        });
        labels
    }

    pub(crate) fn register_table(&self, name: &str, path: &str) -> Result<(), EngineError> {
        let table = self.tokio.block_on(tables::listing(&self.context.state(), path))?;
        // As SQL would write the name: in lower case unless it is quoted.
        let name = match name.strip_prefix('"').and_then(|n| n.strip_suffix('"')) {
            Some(quoted) => quoted.to_string(),
            None => name.to_lowercase(),
        };
        self.context.register_table(TableReference::bare(name), table)?;
        Ok(())
    }
}

fn context(options: &EngineOptions, stores: &Arc<Stores>) -> datafusion::common::Result<SessionContext> {
    let pool: Arc<dyn MemoryPool> = match options.memory_bytes {
        Some(bytes) => Arc::new(GreedyMemoryPool::new(usize::try_from(bytes).unwrap_or(usize::MAX))),
        None => Arc::new(UnboundedMemoryPool::default()),
    };
    let env = RuntimeEnvBuilder::new()
        .with_memory_pool(pool)
        // An operator that spilled would wait for a disk on a core.
        .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled))
        .with_object_store_registry(Arc::clone(stores) as Arc<dyn ObjectStoreRegistry>)
        .build_arc()?;
    let partitions = options.partitions.unwrap_or(options.cores.max(1) * PARTITIONS_A_CORE);
    let mut config = SessionConfig::new().with_target_partitions(partitions).with_information_schema(true);
    let o = config.options_mut();
    // A scan's multitasks decode what was read for them and nothing else.
    o.execution.enable_file_stream_work_stealing = false;
    o.execution.listing_table_ignore_subdirectory = false;
    o.execution.parquet.pushdown_filters = false;
    o.execution.parquet.bloom_filter_on_read = false;
    // Joins leave a place for what their build sides know; we fill it.
    o.optimizer.enable_join_dynamic_filter_pushdown = true;
    // Of an aggregate over an expression it forgets the minimum and maximum, and loses rows.
    o.optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    o.optimizer.repartition_file_min_size = 0;
    let plain = SessionContext::new_with_config_rt(config, env);
    let paths = Arc::new(PathTables::default());
    let catalogs = Arc::new(DynamicFileCatalog::new(
        Arc::clone(plain.state().catalog_list()),
        Arc::clone(&paths) as Arc<dyn UrlTableFactory>,
    ));
    let context: SessionContext = plain
        .into_state_builder()
        .with_catalog_list(catalogs)
        .with_physical_optimizer_rules(crate::pushdown::rules())
        .build()
        .into();
    let state = context.state_weak_ref();
    crate::formats::register(&context)?;
    // Nobody else sets it.
    let _ = paths.session.set(Box::new(move || state.upgrade().map(|s| s.read().clone())));
    Ok(context)
}
