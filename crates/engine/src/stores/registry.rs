//! The engine's stores, by scheme and authority.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use datafusion::common::{DataFusionError, Result as DfResult};
use datafusion::execution::object_store::ObjectStoreRegistry;
use object_store::ObjectStore;
use pellucid_runtime::{Job, Runtime};
use pellucid_storage::Watch;
use pellucid_storage::errors::MappedErrors;
use url::Url;

use crate::sync::lock;

use super::engine_store::EngineStore;
use super::job_io::JobIo;
use super::planning;
use super::store_name::StoreName;

/// The stores of an engine, by scheme and authority; each is opened on first use.
#[derive(Default)]
pub(crate) struct Stores {
    open: Mutex<HashMap<String, Arc<dyn ObjectStore>>>,
    /// Running jobs, which record failed attempts at the stores that they use.
    jobs: Arc<Mutex<Vec<Weak<JobIo>>>>,
}

impl fmt::Debug for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stores")
    }
}

impl Stores {
    /// Creates the shared state of a new job's stores.
    pub(crate) fn begin(&self, job: Job, runtime: Runtime) -> Arc<JobIo> {
        let io = Arc::new(JobIo::new(job, runtime));
        let mut jobs = lock(&self.jobs);
        jobs.retain(|job| job.strong_count() > 0);
        jobs.push(Arc::downgrade(&io));
        io
    }

    /// Returns a callback that reports failed attempts at `store` to the running jobs.
    fn watch(&self, store: String) -> Watch {
        let jobs = Arc::clone(&self.jobs);
        Arc::new(move |failed| {
            let jobs = lock(&jobs);
            jobs.iter().filter_map(Weak::upgrade).for_each(|job| job.record_failure(&store, &failed));
        })
    }

    /// Returns the store of `url`, opening it on first use.
    pub(crate) fn get(&self, url: &Url) -> DfResult<Arc<dyn ObjectStore>> {
        let name = pellucid_storage::name(url);
        planning::use_store(&name);
        let mut open = lock(&self.open);
        if let Some(store) = open.get(&name) {
            return Ok(Arc::clone(store));
        }
        let store = pellucid_storage::open_watched(url, self.watch(name.clone()));
        let store = store.map_err(|e| DataFusionError::External(Box::new(e)))?;
        let store: Arc<dyn ObjectStore> = match url.scheme() {
            // Local errors already name the path.
            "file" => Arc::new(EngineStore { name: None, inner: store }),
            _ => {
                let inner = MappedErrors::new(store, StoreName(name.clone()));
                Arc::new(EngineStore { name: Some(name.clone()), inner })
            }
        };
        open.insert(name, Arc::clone(&store));
        Ok(store)
    }
}

impl ObjectStoreRegistry for Stores {
    fn register_store(&self, url: &Url, store: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        let mut open = lock(&self.open);
        open.insert(pellucid_storage::name(url), store)
    }

    fn get_store(&self, url: &Url) -> DfResult<Arc<dyn ObjectStore>> {
        self.get(url)
    }
}
