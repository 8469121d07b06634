//! An interceptor that emulates a slow link: bytes in both directions share one rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures::StreamExt;
use object_store::{GetResult, Result};
use pellucid_storage::body::map_body;
use pellucid_storage::clock::Clock;

use crate::wrap::{Call, Interceptor};

/// A link with a rate and a latency.
#[derive(Debug)]
pub struct Pace {
    clock: Arc<dyn Clock>,
    bytes_per_s: f64,
    latency_ns: u64,
    /// Time at which the link has moved all requested bytes.
    free_ns: AtomicU64,
}

impl Pace {
    /// Creates a link with `bytes_per_s` (more than 0) for all calls together; each call first waits `latency_ns`.
    pub fn new(clock: Arc<dyn Clock>, bytes_per_s: f64, latency_ns: u64) -> Self {
        Pace { clock, bytes_per_s: bytes_per_s.max(1.0), latency_ns, free_ns: AtomicU64::new(0) }
    }

    /// Waits until the link has moved all earlier bytes and then `bytes`.
    async fn moved(&self, bytes: u64) {
        let takes = (bytes as f64 * 1e9 / self.bytes_per_s) as u64;
        let now = self.clock.now_ns();
        let advance = |free: u64| Some(free.max(now) + takes);
        let begins = self.free_ns.fetch_update(Ordering::SeqCst, Ordering::SeqCst, advance).unwrap_or(now);
        let ends = begins.max(now) + takes;
        if ends > now {
            self.clock.sleep(ends - now).await;
        }
    }
}

#[async_trait]
impl Interceptor for Pace {
    type State = ();

    async fn enter(&self, call: Call) -> Result<()> {
        self.clock.sleep(self.latency_ns).await;
        self.moved(call.sent_bytes).await;
        Ok(())
    }

    fn answer(self: Arc<Self>, _state: (), result: GetResult) -> GetResult {
        map_body(result, |body| {
            body.then(move |piece| {
                let pace = Arc::clone(&self);
                async move {
                    pace.moved(piece.as_ref().map_or(0, |p| p.len() as u64)).await;
                    piece
                }
            })
            .boxed()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Virtual;
    use crate::wrap::Wrapped;
    use object_store::memory::InMemory;
    use object_store::path::Path;
    use object_store::{ObjectStore, ObjectStoreExt};

    #[test]
    fn calls_share_one_rate() {
        let clock = Arc::new(Virtual::default());
        let pace = Pace::new(clock.clone(), 1e6, 1_000_000);
        let store: Arc<dyn ObjectStore> = Wrapped::new(Arc::new(InMemory::new()), pace);
        let at = Path::from("a");
        clock.run(store.put(&at, vec![7; 500_000].into())).unwrap().unwrap();
        assert_eq!(clock.now_ns(), 501_000_000);
        let read = || async { store.get(&at).await.unwrap().bytes().await.unwrap().len() };
        let both = clock.run(futures::future::join(read(), read())).unwrap();
        assert_eq!((both, clock.now_ns()), ((500_000, 500_000), 501_000_000 + 1_001_000_000));
    }
}
