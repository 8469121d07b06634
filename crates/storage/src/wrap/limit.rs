//! An interceptor that limits concurrency.

use std::sync::Arc;

use async_trait::async_trait;
use object_store::Result;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Call, Interceptor};

/// A limit of concurrent calls; a read counts until its body ends.
#[derive(Debug)]
pub struct Limit(Arc<Semaphore>);

impl Limit {
    /// Creates a limit of `calls` concurrent calls, at least one.
    pub fn new(calls: u32) -> Self {
        Limit(Arc::new(Semaphore::new(calls.max(1) as usize)))
    }
}

#[async_trait]
impl Interceptor for Limit {
    type State = OwnedSemaphorePermit;

    async fn enter(&self, _call: Call) -> Result<OwnedSemaphorePermit> {
        Arc::clone(&self.0)
            .acquire_owned()
            .await
            .map_err(|closed| object_store::Error::Generic { store: "limit", source: Box::new(closed) })
    }
}
