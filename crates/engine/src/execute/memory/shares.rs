//! How a job divides its memory budget.

use pellucid_trace::HeldMemory;

/// Maximum bytes of a block's batches.
const BLOCK_BYTES: u64 = 1 << 20;
/// Maximum bytes of a partition that a multitask reads at once.
const AHEAD_BYTES: u64 = 4 << 20;
/// Output of a multitask that may grow before it is reserved.
const STEP_BYTES: u64 = 32 << 20;

/// The parts of a budget.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shares {
    budget: u64,
    /// Maximum number of multitasks that can compute, and one that uses a disk.
    multitasks: u64,
    /// Maximum bytes of all exchanges.
    pub exchanges: u64,
    /// Maximum bytes of the build sides whose tables a stage keeps.
    pub tables: u64,
    /// Maximum bytes of a build side's keys that stay in memory while its rows are on disk.
    pub keys: u64,
    /// Maximum bytes of an exchange's partition that a multitask works on.
    pub partition: u64,
    /// Output of a multitask that may grow before it is reserved.
    pub step: u64,
    /// Maximum bytes of a block's batches.
    pub block: u64,
    /// Maximum bytes of blocks that a multitask reads at once.
    ahead: u64,
}

impl Shares {
    /// Divides a budget: two fifths for exchanges, a fifth for tables, and a quarter for the multitasks that run at once,
    /// whose operators need up to twice the memory of their input.
    pub(crate) fn of(budget: u64, cores: u32) -> Self {
        let multitasks = u64::from(cores) + 1;
        Self {
            budget,
            multitasks,
            exchanges: budget / 5 * HeldMemory::EXCHANGE_FIFTHS,
            tables: budget / 5,
            keys: budget / 20,
            partition: budget / 8 / multitasks,
            step: (budget / 64).min(STEP_BYTES),
            block: (budget / 2048).clamp(16 << 10, BLOCK_BYTES),
            ahead: budget / 16,
        }
    }

    /// Returns the maximum bytes of all exchanges beside multitasks that need `bytes` each: what exchanges hold must not leave
    /// cores or disks without work.
    pub(crate) fn exchanges_beside(&self, bytes: u64) -> u64 {
        HeldMemory::exchange_limit(self.budget, self.multitasks, bytes)
    }

    /// Returns the maximum bytes that a multitask reads at once of each of the partitions that it reads.
    pub(crate) fn ahead_bytes(&self, partitions: usize) -> u64 {
        AHEAD_BYTES.min(self.ahead / partitions as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchanges_leave_room_for_multitasks() {
        let shares = Shares::of(160, 2);
        // Small ones, three of which fit beside the share; as many as fit; and one that takes all.
        for (bytes, room) in [(0, 64), (32, 64), (48, 16), (60, 40), (100, 60), (160, 10)] {
            assert_eq!(shares.exchanges_beside(bytes), room, "{bytes}");
        }
        assert_eq!(Shares::of(u64::MAX, 2).exchanges_beside(1 << 40), u64::MAX / 5 * 2);
    }
}
