//! Memory for partitions: zero, aligned to cache lines, on 2 MiB pages where the kernel allows them.
//!
//! A kernel at the memory's speed touches a new 4 KiB page every few hundred nanoseconds; with 2 MiB
//! pages the walks through the page table are gone. A mapping of its own per partition also goes back
//! to the system at once when the partition leaves. Small partitions get ordinary pages.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::{io, mem};

/// Size of a huge page where they are the default; elsewhere no more than an alignment.
const HUGE_BYTES: usize = 2 << 20;

/// Types of which any bytes, and so all zeros, are a value, and that hold no pointer or padding.
///
/// # Safety
/// The implementor promises just that.
pub unsafe trait Plain: Copy + Send + Sync + 'static {}

// SAFETY: numbers without padding; every bit pattern is a value.
unsafe impl Plain for f64 {}
// SAFETY: as above.
unsafe impl Plain for f32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}

/// A slice of `len` values in a private mapping, zero at first, unmapped on drop.
#[derive(Debug)]
pub struct Pages<T: Plain> {
    start: NonNull<T>,
    len: usize,
    /// What was mapped; the values stand in it at the first multiple of a huge page where it is large.
    mapped: NonNull<u8>,
    mapped_bytes: usize,
}

// SAFETY: the mapping is owned by this value alone, and `T` is plain data.
unsafe impl<T: Plain> Send for Pages<T> {}
// SAFETY: shared access only reads.
unsafe impl<T: Plain> Sync for Pages<T> {}

impl<T: Plain> Pages<T> {
    /// Maps `len` zeros.
    ///
    /// # Errors
    /// Where the kernel has no room, with the size that was asked for.
    pub fn zeroed(len: usize) -> io::Result<Self> {
        let refuse = |why: String| io::Error::new(io::ErrorKind::OutOfMemory, why);
        let too_large = || refuse(format!("{len} values are more than an address space holds"));
        let bytes = len.checked_mul(mem::size_of::<T>()).ok_or_else(too_large)?;
        let huge = bytes >= HUGE_BYTES;
        let mapped_bytes =
            if huge { bytes.checked_add(HUGE_BYTES).ok_or_else(too_large)? } else { bytes.max(1) };
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        let mapped = NonNull::new(address.cast::<u8>()).filter(|_| address != libc::MAP_FAILED);
        let Some(mapped) = mapped else {
            let cause = io::Error::last_os_error();
            return Err(refuse(format!("no memory for a partition of {bytes} bytes: {cause}")));
        };
        let before = if huge { mapped.as_ptr().align_offset(HUGE_BYTES) } else { 0 };
        // SAFETY: `before` is below `HUGE_BYTES`, by which the mapping is longer than the values.
        let start = unsafe { mapped.add(before) };
        #[cfg(target_os = "linux")]
        if huge {
            // SAFETY: within the mapping; it is advice, and may be refused.
            unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        }
        Ok(Pages { start: start.cast(), len, mapped, mapped_bytes })
    }
}

impl<T: Plain> Deref for Pages<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: mapped, initialised (zero is a value of `T`), aligned to a page, `len` values long.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> DerefMut for Pages<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, writable, and borrowed exclusively through `self`.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain + PartialEq> PartialEq for Pages<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Plain> Drop for Pages<T> {
    fn drop(&mut self) {
        // SAFETY: exactly what `zeroed` mapped; nothing borrows it any more.
        unsafe { libc::munmap(self.mapped.as_ptr().cast(), self.mapped_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_length_is_whole_zero_and_aligned() -> io::Result<()> {
        for len in [0, 1, 511, HUGE_BYTES / 8 - 1, HUGE_BYTES / 8, HUGE_BYTES / 8 + 1, 3 * HUGE_BYTES / 8] {
            let mut pages = Pages::<u64>::zeroed(len)?;
            assert_eq!(pages.len(), len);
            assert!(pages.iter().all(|value| *value == 0));
            pages.fill(7);
            let aligned = pages.as_ptr().cast::<u8>().align_offset(HUGE_BYTES) == 0;
            assert!(aligned || len * 8 < HUGE_BYTES);
        }
        Ok(())
    }

    #[test]
    fn what_no_memory_holds_is_refused() {
        assert!(Pages::<u64>::zeroed(usize::MAX).is_err());
        assert!(Pages::<u64>::zeroed(usize::MAX / 16).is_err());
    }
}
