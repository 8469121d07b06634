//! Zeroed memory for partitions, aligned to cache lines, and on 2 MiB pages if the kernel allows them.
//!
//! At memory bandwidth, a kernel touches a new 4 KiB page every few hundred nanoseconds; 2 MiB pages avoid the
//! page table walks. A separate mapping per partition is also returned to the system immediately when the
//! partition leaves. Small partitions use ordinary pages.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::{io, mem};

/// Size of a huge page on x86-64; on other machines only an alignment.
const HUGE_BYTES: usize = 2 << 20;

/// Types for which any bytes, including all zeros, are a valid value, and that contain no pointer or padding.
///
/// # Safety
/// The implementor must guarantee these properties.
pub unsafe trait Plain: Copy + Send + Sync + 'static {}

// SAFETY: numbers without padding; every bit pattern is a value.
unsafe impl Plain for f64 {}
// SAFETY: as above.
unsafe impl Plain for f32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}

/// A slice of `len` values in a private mapping, initially zero and unmapped on drop.
#[derive(Debug)]
pub struct Pages<T: Plain> {
    start: NonNull<T>,
    len: usize,
    /// The mapping. In a large one, the values start at the first multiple of the huge page size.
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
    /// If the kernel has no memory, with the requested size.
    pub fn zeroed(len: usize) -> io::Result<Self> {
        let refuse = |why: String| io::Error::new(io::ErrorKind::OutOfMemory, why);
        let too_large =
            || refuse(format!("cannot allocate {len} values: the size exceeds the address space"));
        let bytes = len.checked_mul(mem::size_of::<T>()).ok_or_else(too_large)?;
        let huge = bytes >= HUGE_BYTES;
        let mapped_bytes =
            if huge { bytes.checked_add(HUGE_BYTES).ok_or_else(too_large)? } else { bytes.max(1) };
        // SAFETY: a new anonymous mapping at an address chosen by the kernel.
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
            return Err(refuse(format!("cannot allocate a partition of {bytes} bytes: {cause}")));
        };
        let before = if huge { mapped.as_ptr().align_offset(HUGE_BYTES) } else { 0 };
        // SAFETY: `before` is below `HUGE_BYTES`, by which the mapping is longer than the values.
        let start = unsafe { mapped.add(before) };
        #[cfg(target_os = "linux")]
        if huge {
            // SAFETY: within the mapping. This is only advice and may fail.
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
        // SAFETY: exactly the mapping made by `zeroed`; no borrows remain.
        unsafe { libc::munmap(self.mapped.as_ptr().cast(), self.mapped_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_any_length_is_zero_and_aligned() -> io::Result<()> {
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
    fn allocations_beyond_memory_fail() {
        assert!(Pages::<u64>::zeroed(usize::MAX).is_err());
        assert!(Pages::<u64>::zeroed(usize::MAX / 16).is_err());
    }
}
