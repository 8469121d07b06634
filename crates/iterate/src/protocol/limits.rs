//! Limits that all workers keep to, and that messages are checked against.

/// Maximum number of signals that the fastest bundle may be ahead of the slowest.
pub(crate) const WINDOW: u64 = 64;

/// Epochs between a worker's reports of its progress to the bundles that compute signals.
pub(crate) const EPOCH_REPORT_INTERVAL: u64 = 16;

/// Maximum lead of a bundle over another, including those that move. Larger than the window, so that a late signal
/// and an early one never share a slot.
pub(crate) const MAX_LEAD: u64 = 4 * WINDOW;

/// Maximum number of deferred gathers; beyond it, the walk waits.
pub(crate) const MAX_DEFERRED: usize = 8;

/// Epochs of real jobs are far below; signals store an epoch in 62 bits.
pub(crate) const MAX_EPOCH: u64 = 1 << 60;
