//! The work of decoding columns, on the thread that decodes them.
//!
//! Reading a thread's clock of core time takes half a microsecond, too long for every column of every batch. Columns are
//! therefore timed by the wall clock, which is read twenty times as fast, and share the core time of the call that
//! decoded their batch. Preemption during a call only changes how this one call is shared.

use std::cell::RefCell;

/// The work of decoding one column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ColumnWork {
    /// Core time. Until [`settle`], wall-clock time.
    pub ns: u64,
    /// Bytes in the file.
    pub encoded_bytes: u64,
    /// Bytes in memory.
    pub decoded_bytes: u64,
}

thread_local! {
    /// By column, since the last [`settle`].
    static PENDING: RefCell<Vec<ColumnWork>> = RefCell::default();
}

/// Adds work on a column.
pub(crate) fn add(column: usize, work: ColumnWork) {
    PENDING.with_borrow_mut(|pending| add_to(pending, column, work));
}

/// Moves the work since the last call to `total`. Its time is at most `core_ns`, the core time of this call.
pub(crate) fn settle(total: &mut Vec<ColumnWork>, core_ns: u64) {
    PENDING.with_borrow_mut(|pending| {
        let wall_ns: u64 = pending.iter().map(|work| work.ns).sum();
        for (column, work) in pending.iter_mut().enumerate() {
            let mut work = std::mem::take(work);
            if wall_ns > core_ns {
                work.ns = share(work.ns, core_ns, wall_ns);
            }
            add_to(total, column, work);
        }
    });
}

/// Returns `value * part / whole`, or 0 if `whole` is.
pub(crate) fn share(value: u64, part: u64, whole: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(part);
    scaled.checked_div(u128::from(whole)).map_or(0, |scaled| u64::try_from(scaled).unwrap_or(u64::MAX))
}

/// Drops work that an error has left.
pub(crate) fn reset() {
    PENDING.take();
}

/// Adds the work on all columns.
pub(crate) fn add_all(total: &mut Vec<ColumnWork>, more: &[ColumnWork]) {
    more.iter().enumerate().for_each(|(column, work)| add_to(total, column, *work));
}

fn add_to(total: &mut Vec<ColumnWork>, column: usize, work: ColumnWork) {
    if total.len() <= column {
        total.resize(column + 1, ColumnWork::default());
    }
    total[column].ns += work.ns;
    total[column].encoded_bytes += work.encoded_bytes;
    total[column].decoded_bytes += work.decoded_bytes;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(ns: u64, bytes: u64) -> ColumnWork {
        ColumnWork { ns, encoded_bytes: bytes, decoded_bytes: 2 * bytes }
    }

    #[test]
    fn columns_share_the_core_time_of_a_call() {
        reset();
        let mut total = Vec::new();
        add(2, work(30, 1));
        add(0, work(10, 2));
        settle(&mut total, 100);
        assert_eq!(total, [work(10, 2), work(0, 0), work(30, 1)], "the rest of a call is in no column");
        add(0, work(300, 5));
        add(2, work(100, 0));
        settle(&mut total, 40);
        assert_eq!(total, [work(40, 7), work(0, 0), work(40, 1)], "the thread was preempted for 360 ns");
        settle(&mut total, 40);
        add(1, work(9, 9));
        reset();
        settle(&mut total, 40);
        assert_eq!(total, [work(40, 7), work(0, 0), work(40, 1)]);
        add_all(&mut total, &[work(1, 1), work(2, 2), work(3, 3), work(4, 4)]);
        assert_eq!(total, [work(41, 8), work(2, 2), work(43, 4), work(4, 4)]);
    }
}
