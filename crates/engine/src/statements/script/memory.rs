//! A memory pool whose limit `SET memory_limit` changes.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool, MemoryReservation};

/// Memory of operators and exchanges.
#[derive(Debug)]
pub(crate) struct Pool {
    /// `usize::MAX` if unlimited.
    limit: AtomicUsize,
    used: AtomicUsize,
}

impl Pool {
    pub(crate) fn new(limit: Option<u64>) -> Self {
        let limit = limit.map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        Self { limit: AtomicUsize::new(limit), used: AtomicUsize::new(0) }
    }

    /// Changes the limit for later reservations.
    pub(crate) fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn limit(&self) -> Option<usize> {
        Some(self.limit.load(Ordering::Relaxed)).filter(|limit| *limit != usize::MAX)
    }
}

impl MemoryPool for Pool {
    fn name(&self) -> &str {
        "limited"
    }

    fn grow(&self, _: &MemoryReservation, additional: usize) {
        self.used.fetch_add(additional, Ordering::Relaxed);
    }

    fn shrink(&self, _: &MemoryReservation, shrink: usize) {
        self.used.fetch_sub(shrink, Ordering::Relaxed);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let limit = self.limit.load(Ordering::Relaxed);
        let grown = |used: usize| used.checked_add(additional).filter(|used| *used <= limit);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown) {
            Ok(_) => Ok(()),
            Err(used) => Err(DataFusionError::ResourcesExhausted(format!(
                "an operator needs {additional} bytes more than its {}, and {} of {limit} are left",
                reservation.size(),
                limit.saturating_sub(used)
            ))),
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
        use datafusion::execution::memory_pool::MemoryConsumer;
        let pool = std::sync::Arc::new(Pool::new(None));
        let of_pool: std::sync::Arc<dyn MemoryPool> = pool.clone();
        let reservation = MemoryConsumer::new("test").register(&of_pool);
        assert!(reservation.try_grow(1000).is_ok());
        pool.set_limit(1500);
        assert!(reservation.try_grow(1000).is_err() && reservation.try_grow(500).is_ok());
    }
}
