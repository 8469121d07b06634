//! An interceptor that counts calls, bytes and failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use async_trait::async_trait;
use futures::StreamExt;
use object_store::{GetResult, Result};
use pellucid_storage::body::map_body;
use pellucid_trace::Operation;

use crate::wrap::{Call, Interceptor};

/// The operations, in the order of [`Count`].
const OPERATIONS: [Operation; 8] = [
    Operation::Read,
    Operation::Write,
    Operation::List,
    Operation::Head,
    Operation::Rename,
    Operation::Copy,
    Operation::Delete,
    Operation::Commit,
];

/// Counters of calls, bytes and failures.
#[derive(Debug, Default)]
pub struct Count {
    calls: [AtomicU64; 8],
    failed: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

impl Count {
    /// Returns the number of calls of a kind, including failed ones.
    pub fn calls(&self, operation: Operation) -> u64 {
        self.calls[index(operation)].load(Relaxed)
    }

    /// Returns the number of calls that failed before or during their response.
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    /// Returns the number of body bytes received.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Relaxed)
    }

    /// Returns the number of bytes sent by successful calls.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Relaxed)
    }
}

fn index(operation: Operation) -> usize {
    OPERATIONS.iter().position(|o| *o == operation).unwrap_or(0)
}

#[async_trait]
impl Interceptor for Count {
    type State = u64;

    async fn enter(&self, call: Call) -> Result<u64> {
        self.calls[index(call.operation)].fetch_add(1, Relaxed);
        Ok(call.sent_bytes)
    }

    async fn leave(&self, sent_bytes: u64, outcome: Result<()>) -> Result<()> {
        match outcome {
            Ok(()) => self.written_bytes.fetch_add(sent_bytes, Relaxed),
            Err(_) => self.failed.fetch_add(1, Relaxed),
        };
        outcome
    }

    fn answer(self: Arc<Self>, _state: u64, result: GetResult) -> GetResult {
        map_body(result, |body| {
            body.inspect(move |piece| {
                match piece {
                    Ok(bytes) => self.read_bytes.fetch_add(bytes.len() as u64, Relaxed),
                    Err(_) => self.failed.fetch_add(1, Relaxed),
                };
            })
            .boxed()
        })
    }
}
