//! Blocks of single activities, for the zoomed-in timeline.
//!
//! A resource's activities are sorted by start, assigned to rows, and split into blocks of some thousands.
//! Each block is compressed separately, so that the page unpacks only the blocks in view. A column holds one
//! unsigned LEB128 number for each activity; starts are delta-encoded. A tick is a whole number of
//! nanoseconds, chosen so that the whole trace fits 31 bits, which is finer than any screen.

use crate::activity::{Activity, rows};

/// Maximum number of activities in a block.
const BLOCK_LEN: usize = 16384;

/// Returns the length of a tick for a trace of the given length.
pub(crate) fn tick_ns(length_ns: u64) -> u64 {
    (length_ns >> 31) + 1
}

/// A block of one resource's activities.
#[derive(Debug)]
pub(crate) struct Block {
    /// First start, in ticks.
    pub from: u64,
    /// Last end, in ticks.
    pub to: u64,
    pub count: usize,
    /// Eight columns, one after another: start, service, wait, row, phase (plus 32 if the activity failed or
    /// was cancelled), and stage, partition and bytes, each plus 1; 0 means unknown.
    pub columns: Vec<u8>,
}

/// Splits one resource's activities into blocks. Also returns the number of rows to draw them in.
pub(crate) fn blocks(mut activities: Vec<Activity>, from_ns: u64, tick_ns: u64) -> (Vec<Block>, usize) {
    activities.sort_by_key(|a| (a.start_ns, a.end_ns));
    let rows = rows(&activities);
    let row_count = rows.iter().max().map_or(0, |row| row + 1);
    let chunks = activities.chunks(BLOCK_LEN).zip(rows.chunks(BLOCK_LEN));
    (chunks.map(|(activities, rows)| block(activities, rows, from_ns, tick_ns)).collect(), row_count)
}

fn block(activities: &[Activity], rows: &[usize], from_ns: u64, tick_ns: u64) -> Block {
    let tick = |at: u64| at.saturating_sub(from_ns) / tick_ns;
    let mut columns = Vec::with_capacity(activities.len() * 12);
    let mut put = |value: &mut dyn FnMut(usize, &Activity) -> u64| {
        for (ix, activity) in activities.iter().enumerate() {
            leb128(&mut columns, value(ix, activity));
        }
    };
    let mut last = 0;
    put(&mut |_, a| {
        let start = tick(a.start_ns);
        start - std::mem::replace(&mut last, start)
    });
    put(&mut |_, a| tick(a.end_ns) - tick(a.start_ns));
    put(&mut |_, a| tick(a.start_ns) - tick(a.queued_ns));
    put(&mut |ix, _| rows[ix] as u64);
    put(&mut |_, a| u64::from(a.phase) + if a.outcome.is_ok() { 0 } else { 32 });
    put(&mut |_, a| a.stage.map_or(0, |stage| u64::from(stage) + 1));
    put(&mut |_, a| a.partition.map_or(0, |partition| u64::from(partition) + 1));
    put(&mut |_, a| a.bytes.map_or(0, |bytes| bytes.saturating_add(1)));
    Block {
        from: activities.first().map_or(0, |a| tick(a.start_ns)),
        to: activities.iter().map(|a| tick(a.end_ns)).max().unwrap_or(0),
        count: activities.len(),
        columns,
    }
}

fn leb128(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use pellucid_trace::Outcome;

    fn activity(start_ns: u64, end_ns: u64) -> Activity {
        let (resource, phase, queued_ns, weight) = (0, 2, start_ns.saturating_sub(5), 1.0);
        let (stage, partition, bytes, outcome) = (Some(3), None, Some(200), Outcome::Failed);
        Activity { resource, phase, queued_ns, start_ns, end_ns, weight, stage, partition, bytes, outcome }
    }

    #[test]
    fn columns_encode_every_activity() {
        let (blocks, rows) = blocks(vec![activity(1300, 1400), activity(1000, 1010)], 1000, 2);
        assert_eq!((blocks.len(), rows), (1, 1));
        let block = &blocks[0];
        assert_eq!((block.from, block.to, block.count), (0, 200, 2));
        // One slice for each column. 150 ticks and 200 + 1 bytes take two bytes each.
        let expect: [&[u8]; 8] =
            [&[0, 150, 1], &[5, 50], &[0, 3], &[0, 0], &[34, 34], &[4, 4], &[0, 0], &[201, 1, 201, 1]];
        assert_eq!(block.columns, expect.concat());
    }

    #[test]
    fn longest_trace_fits_31_bits() {
        for length in [0, 1, 1 << 31, (1 << 31) - 1, u64::MAX] {
            assert!(length / tick_ns(length) < 1 << 31, "{length}");
        }
    }
}
