//! A memory pool whose limit `SET memory_limit` changes.

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};

use crate::execute::memory::usage::{EXCHANGE, Holder};
use crate::sync::lock;

/// Memory of operators and exchanges.
#[derive(Debug)]
pub(crate) struct Pool {
    /// `usize::MAX` if unlimited.
    limit: AtomicUsize,
    used: AtomicUsize,
    /// Holders of reservations, by the number of their consumer.
    holders: Mutex<HashMap<usize, Holder>>,
}

impl Pool {
    pub(crate) fn new(limit: Option<u64>) -> Self {
        let limit = limit.map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        Self { limit: AtomicUsize::new(limit), used: AtomicUsize::new(0), holders: Mutex::default() }
    }

    /// Changes the limit for later reservations.
    pub(crate) fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Returns the holder of a reservation; `None` for exchanges.
    fn holder(&self, reservation: &MemoryReservation) -> Option<Holder> {
        let holders = lock(&self.holders);
        holders.get(&reservation.consumer().id()).cloned()
    }

    pub(crate) fn limit(&self) -> Option<usize> {
        Some(self.limit.load(Ordering::Relaxed)).filter(|limit| *limit != usize::MAX)
    }
}

impl MemoryPool for Pool {
    fn name(&self) -> &str {
        "limited"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        if let Some(holder) = Holder::current(consumer.name()) {
            lock(&self.holders).insert(consumer.id(), holder);
        }
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        lock(&self.holders).remove(&consumer.id());
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.used.fetch_add(additional, Ordering::Relaxed);
        self.holder(reservation).iter().for_each(|holder| holder.grow(additional));
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.used.fetch_sub(shrink, Ordering::Relaxed);
        self.holder(reservation).iter().for_each(|holder| holder.shrink(shrink));
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let limit = self.limit.load(Ordering::Relaxed);
        let grown = |used: usize| used.checked_add(additional).filter(|used| *used <= limit);
        let holder = self.holder(reservation);
        loop {
            let Err(used) = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown) else {
                holder.iter().for_each(|holder| holder.grow(additional));
                return Ok(());
            };
            let lacking = used.saturating_add(additional) - limit;
            // Exchanges put their own batches on disk.
            let made_room = holder.as_ref().map(|holder| holder.make_room(lacking)).transpose()?;
            if made_room != Some(true) {
                let mb = |bytes: usize| format!("{:.1} MB", bytes as f64 / 1e6);
                let purpose = holder.map_or(EXCHANGE.to_string(), |holder| holder.to_string());
                return Err(DataFusionError::ResourcesExhausted(format!(
                    "the query needs {} more for {purpose}, beside {}, and {} of {} are left; it takes at least {}",
                    mb(additional),
                    mb(reservation.size()),
                    mb(limit.saturating_sub(used)),
                    mb(limit),
                    mb(used.saturating_add(additional))
                )));
            }
        }
    }

    fn reserved(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.limit().map_or(MemoryLimit::Infinite, MemoryLimit::Finite)
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {:?} bytes", self.reserved(), self.limit())
    }
}

/// Parses a size such as `1GB` or `512 MiB`.
pub(crate) fn size(text: &str) -> Option<usize> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor: f64 = match unit.trim().to_lowercase().as_str() {
        "b" | "bytes" | "" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "t" | "tb" => 1e12,
        "kib" => 1024.0,
        "mib" => 1_048_576.0,
        "gib" => 1_073_741_824.0,
        "tib" => 1_099_511_627_776.0,
        _ => return None,
    };
    let bytes = number.parse::<f64>().ok()? * factor;
    (bytes.is_finite() && bytes >= 1.0).then_some(bytes as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(
            [size("1GB"), size("1.5 KiB"), size("10"), size("lots")],
            [Some(1_000_000_000), Some(1536), Some(10), None]
        );
    }

    #[test]
    fn limit_can_change() {
        let pool = std::sync::Arc::new(Pool::new(None));
        let of_pool: std::sync::Arc<dyn MemoryPool> = pool.clone();
        let reservation = MemoryConsumer::new("test").register(&of_pool);
        assert!(reservation.try_grow(1000).is_ok());
        pool.set_limit(1500);
        let error = reservation.try_grow(1_000_000).unwrap_err().to_string();
        assert!(
            error.contains("needs 1.0 MB more for exchange, beside 0.0 MB, and 0.0 MB of 0.0 MB are left; it takes at least 1.0 MB"),
            "{error}"
        );
        assert!(reservation.try_grow(500).is_ok());
    }
}
