//! The allocator of fuzz tests: counts the memory held by each thread and by all, and enforces the limit of a case.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

/// Memory that a case may add, all threads together.
const CASE_BYTES: i64 = 1 << 30;

struct Counting;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

static HELD_BY_ALL: AtomicI64 = AtomicI64::new(0);
static LIMIT: AtomicI64 = AtomicI64::new(i64::MAX);

fn count(change: i64) {
    let all = HELD_BY_ALL.fetch_add(change, Ordering::Relaxed) + change;
    // The limit is lifted first: printing may allocate.
    if change > 0 && all > LIMIT.load(Ordering::Relaxed) && LIMIT.swap(i64::MAX, Ordering::Relaxed) < i64::MAX
    {
        crate::guard::abort(format_args!("allocates {change} bytes, {all} in total: over 1 GiB more"));
    }
    // Thread-local storage is unavailable while a thread ends, when nothing is measured.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + change);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

// SAFETY: every call is forwarded unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller upholds the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: the caller upholds the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Sets the limit of a case that begins now.
pub(crate) fn limit_case() {
    LIMIT.store(HELD_BY_ALL.load(Ordering::Relaxed) + CASE_BYTES, Ordering::Relaxed);
}

/// Lifts the limit.
pub(crate) fn lift_limit() {
    LIMIT.store(i64::MAX, Ordering::Relaxed);
}

/// Runs `action`. Returns the peak of the memory that it adds on this thread, in bytes, and its result.
pub fn peak_memory<T>(action: impl FnOnce() -> T) -> (i64, T) {
    let before = HELD.get();
    PEAK.set(before);
    let result = action();
    (PEAK.get() - before, result)
}
