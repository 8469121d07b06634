//! The memory accounting of a job's exchanges.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use pellucid_runtime::Job;
use pellucid_trace::StageIx;

use crate::execute::memory::usage::{EXCHANGE, Usage};

/// Changes of exchange memory accumulate up to this size before the scheduler is updated.
const LEDGER_STEP_BYTES: i64 = 4 << 20;

/// The memory accounting and the state of the job that an exchange belongs to.
pub(crate) trait Ledger: Send + Sync {
    /// Returns true if the job's exchanges may take `bytes` more.
    fn has_room(&self, _bytes: u64) -> bool {
        true
    }
    /// Reserves `bytes` of the exchange that `stage` writes.
    ///
    /// # Errors
    /// Returns an error if the memory budget is exhausted.
    fn hold(&self, stage: StageIx, bytes: u64) -> Result<()>;
    /// Releases `bytes` of the exchange that `stage` writes.
    fn release(&self, stage: StageIx, bytes: u64);
    /// Returns true if the job has ended early, so that computing should stop.
    fn is_stopped(&self) -> bool;
}

/// Accounts for the memory of a job's exchanges, in DataFusion's memory pool and in the scheduler's
/// admission.
pub(crate) struct JobLedger {
    job: Job,
    reservation: MemoryReservation,
    usage: Arc<Usage>,
    /// Maximum bytes of exchanges that can spill.
    max_bytes: AtomicU64,
    /// Change that is not yet reported to the scheduler.
    unreported: AtomicI64,
}

impl JobLedger {
    pub(crate) fn new(job: Job, usage: Arc<Usage>, max_bytes: u64, context: &TaskContext) -> Self {
        let reservation = MemoryConsumer::new("exchange").register(context.memory_pool());
        Self { job, reservation, usage, max_bytes: AtomicU64::new(max_bytes), unreported: AtomicI64::new(0) }
    }

    /// Sets how many bytes the exchanges may take that can spill.
    pub(crate) fn limit(&self, bytes: u64) {
        self.max_bytes.store(bytes, Ordering::Relaxed);
    }

    fn change(&self, bytes: i64) {
        let unreported = self.unreported.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if unreported.abs() < LEDGER_STEP_BYTES {
            return;
        }
        match self.unreported.swap(0, Ordering::Relaxed) {
            held if held > 0 => self.job.hold(held.unsigned_abs()),
            freed => self.job.release(freed.unsigned_abs()),
        }
    }
}

impl Ledger for JobLedger {
    fn has_room(&self, bytes: u64) -> bool {
        bytes.saturating_add(self.reservation.size() as u64) <= self.max_bytes.load(Ordering::Relaxed)
    }

    fn hold(&self, stage: StageIx, bytes: u64) -> Result<()> {
        self.reservation.try_grow(bytes as usize)?;
        self.usage.grow(stage, EXCHANGE, bytes);
        self.change(bytes as i64);
        Ok(())
    }

    fn release(&self, stage: StageIx, bytes: u64) {
        self.reservation.shrink(bytes as usize);
        self.usage.shrink(stage, EXCHANGE, bytes);
        self.change(-(bytes as i64));
    }

    fn is_stopped(&self) -> bool {
        self.job.is_cancelled()
    }
}

/// Accounts for nothing.
#[cfg(test)]
pub(crate) struct Unlimited;

#[cfg(test)]
impl Ledger for Unlimited {
    fn hold(&self, _stage: StageIx, _bytes: u64) -> Result<()> {
        Ok(())
    }

    fn release(&self, _stage: StageIx, _bytes: u64) {}

    fn is_stopped(&self) -> bool {
        false
    }
}
