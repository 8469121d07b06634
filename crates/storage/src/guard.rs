//! The wrapper that every remote store gets.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use object_store::ObjectStore;

use crate::clock::Live;
use crate::errors::{MappedErrors, Secrets};
use crate::failed_attempt::{FailedAttempt, Watch};
use crate::retry::{Limits, Retrying};

/// Wraps a remote store so that every answer is correct or an error, and errors contain no secrets.
pub fn guarded(
    store: Arc<dyn ObjectStore>,
    limits: Limits,
    secrets: Secrets,
    watch: Watch,
) -> Arc<dyn ObjectStore> {
    let seed = RandomState::new().hash_one(0);
    let watch = without_secrets(watch, secrets.clone());
    let retrying = Retrying::watched(store, Arc::new(Live::default()), limits, seed, watch);
    MappedErrors::new(retrying, secrets)
}

/// Wraps `watch` to receive errors without credentials.
pub(crate) fn without_secrets(watch: Watch, secrets: Secrets) -> Watch {
    Arc::new(move |failed| watch(FailedAttempt { error: secrets.hide(&failed.error), ..failed }))
}
