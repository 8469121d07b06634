//! Bodies that resume where they stopped, from the same version of the object.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use futures::StreamExt;
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore, Result};
use pellucid_trace::Operation;

use super::attempts::{Attempts, failed};
use crate::body::Body;
use crate::clock::timeout;

/// The start time of the response that the client is reading a body from.
///
/// The client resumes an interrupted body without reporting it. A retry puts one of these into
/// the options of each body, and the client attaches it to every request for that body. A request that
/// follows a response is therefore known to resume the body.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResponseStart(Arc<Mutex<Option<Instant>>>);

impl ResponseStart {
    /// Replaces the time and returns the previous one.
    pub fn replace(&self, started: Option<Instant>) -> Option<Instant> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), started)
    }
}

/// Opens a body; a response with another range than the requested one is an error.
pub(super) async fn open(
    store: &dyn ObjectStore,
    location: &Path,
    mut options: GetOptions,
) -> Result<GetResult> {
    options.extensions.insert(ResponseStart::default());
    let asked = options.range.clone();
    let result = store.get_opts(location, options).await?;
    let expected = match asked {
        Some(range) => range.as_range(result.meta.size).map_err(failed)?,
        None => 0..result.meta.size,
    };
    if result.range != expected {
        return Err(failed(format!("requested bytes {expected:?} but received {:?}", result.range)));
    }
    Ok(result)
}

/// Returns true if two responses describe the same version of an object. Compares modification times if
/// the store has no version identifiers (HDFS).
pub(crate) fn same_version(a: &ObjectMeta, b: &ObjectMeta) -> bool {
    let named = a.e_tag.is_some() || b.e_tag.is_some();
    a.e_tag == b.e_tag && a.size == b.size && (named || a.last_modified == b.last_modified)
}

/// A body that is being read.
pub(super) struct Reading {
    pub attempts: Arc<Attempts>,
    pub location: Path,
    pub options: GetOptions,
    /// Metadata of the version at the start of the body.
    pub meta: ObjectMeta,
    /// Offset of the next byte.
    pub at: u64,
    /// End of the requested range.
    pub end: u64,
    pub body: Option<Body>,
    pub attempt: u32,
}

impl Reading {
    /// Returns the next chunk; `None` at the end of the range.
    pub async fn next(&mut self) -> Result<Option<bytes::Bytes>> {
        loop {
            let started = Instant::now();
            let error = match self.chunk().await {
                Ok(Some(chunk)) if self.at + chunk.len() as u64 > self.end => {
                    return Err(failed("the response is longer than the requested range"));
                }
                Ok(Some(chunk)) => {
                    self.at += chunk.len() as u64;
                    return Ok(Some(chunk));
                }
                Ok(None) if self.at == self.end => return Ok(None),
                Ok(None) => failed(format!("the response ended {} bytes early", self.end - self.at)),
                Err(error) => error,
            };
            self.body = None;
            self.attempts.wait(Operation::Read, started, self.attempt, error).await?;
            self.attempt += 1;
        }
    }

    async fn chunk(&mut self) -> Result<Option<bytes::Bytes>> {
        if self.body.is_none() {
            let options = GetOptions {
                range: Some(GetRange::Bounded(self.at..self.end)),
                // Requests the same version, if the store has version identifiers.
                if_match: self.meta.e_tag.clone().or(self.options.if_match.clone()),
                ..self.options.clone()
            };
            let result =
                self.attempts.with_timeout(0, open(&*self.attempts.inner, &self.location, options)).await?;
            if !same_version(&result.meta, &self.meta) {
                let path = self.location.to_string();
                return Err(Error::Precondition {
                    path,
                    source: "the object changed while it was being read".into(),
                });
            }
            self.body = Some(result.into_stream());
        }
        let Some(body) = &mut self.body else { return Ok(None) };
        let ns = self.attempts.limits.chunk_timeout_ns;
        match timeout(&*self.attempts.clock, ns, body.next()).await {
            Some(chunk) => chunk.transpose(),
            None => Err(failed(format!("no data received within {} s", ns / 1_000_000_000))),
        }
    }
}
