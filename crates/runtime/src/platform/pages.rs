//! Anonymous memory straight from the kernel, page-aligned and zero.
//!
//! Buffers for reads are large and live long in a pool; an allocator would clear
//! memory that a read overwrites at once, or align it by touching it. Pages that
//! were never touched cost nothing, and unmapping gives all of them back.

use std::io;
use std::ptr::NonNull;

/// A private mapping of `len` bytes, unmapped on drop.
pub(crate) struct Pages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is owned by this value alone; nothing else points into it.
unsafe impl Send for Pages {}
// SAFETY: shared access is read-only (`as_slice`).
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps `len` bytes, at least one.
    ///
    /// # Errors
    /// Where the kernel has no room for it.
    pub(crate) fn map(len: usize) -> io::Result<Pages> {
        let len = len.max(1);
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANON,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        match NonNull::new(start.cast::<u8>()) {
            Some(start) => Ok(Pages { start, len }),
            None => Err(io::Error::other("mapped at address zero")),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: mapped, readable and initialised (zero) for `len` bytes.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, writable, and borrowed exclusively through `self`.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: exactly what `map` mapped, and nothing borrows it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
