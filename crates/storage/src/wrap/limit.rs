//! At most so many calls at once.

use std::sync::Arc;

use async_trait::async_trait;
use object_store::Result;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Around, Call};

/// Lets at most so many calls run at once; a read runs until its body ends.
#[derive(Debug)]
pub struct Limit(Arc<Semaphore>);

impl Limit {
    /// At most `calls` at once, at least one.
    pub fn new(calls: u32) -> Self {
        Limit(Arc::new(Semaphore::new(calls.max(1) as usize)))
    }
}

#[async_trait]
impl Around for Limit {
    type Pass = OwnedSemaphorePermit;

    async fn enter(&self, _call: Call) -> Result<OwnedSemaphorePermit> {
        Arc::clone(&self.0)
            .acquire_owned()
            .await
            .map_err(|closed| object_store::Error::Generic { store: "limit", source: Box::new(closed) })
    }
}
