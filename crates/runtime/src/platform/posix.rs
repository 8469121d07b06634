//! Functions that are the same on every Unix: core time, the host name, and residency by `mincore`.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use super::ResidentPages;

/// Returns the core time of the calling thread in nanoseconds.
pub fn thread_cpu_ns() -> Option<u64> {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the core time of the whole process.
pub(crate) fn process_cpu_ns() -> Option<u64> {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> Option<u64> {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is valid for writes.
    if unsafe { libc::clock_gettime(clock, &raw mut t) } != 0 {
        return None;
    }
    let (s, ns) = (u64::try_from(t.tv_sec).ok()?, u64::try_from(t.tv_nsec).ok()?);
    Some(s * 1_000_000_000 + ns)
}

/// Returns the host name, or `localhost` if there is none.
pub(crate) fn machine_name() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the pointer and the length describe `name`.
    let failed = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) } != 0;
    let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    if failed || end == 0 {
        return "localhost".to_string();
    }
    String::from_utf8_lossy(&name[..end]).into_owned()
}

/// Returns the size of a memory page.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: passes no pointers.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096).max(512)
}

/// Returns the memory of this machine.
pub(crate) fn machine_memory_bytes() -> Option<u64> {
    // SAFETY: passes no pointers.
    let pages = u64::try_from(unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) }).ok()?;
    pages.checked_mul(page_bytes())
}

/// Returns the number of pages of `range` that are in memory, by `mincore` on a mapping of it.
///
/// Returns `None` for a file of another user: the kernel reports all its pages as resident unless the caller
/// may write it, to hide what others read.
pub(crate) fn mincore_pages(file: &fs::File, range: &Range<u64>) -> io::Result<ResidentPages> {
    if range.start >= range.end {
        return Ok(Some(0));
    }
    let metadata = file.metadata()?;
    // SAFETY: passes no pointers.
    let me = unsafe { libc::geteuid() };
    if me != 0 && metadata.uid() != me {
        return Ok(None);
    }
    let page = page_bytes();
    let whole = crate::io::ranges::align(range, page);
    let (Ok(len), Ok(offset)) =
        (usize::try_from(whole.end - whole.start), libc::off_t::try_from(whole.start))
    else {
        return Ok(None);
    };
    let mut pages = vec![0u8; len.div_ceil(usize::try_from(page).unwrap_or(4096))];
    // SAFETY: creates a read-only shared mapping at an address that the kernel chooses. No byte of it is
    // read, so it does not matter if the file shrinks.
    let start = unsafe {
        libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), offset)
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `start` is mapped for `len` bytes, and `pages` has one byte per page.
    let (failed, error) = unsafe {
        let failed = libc::mincore(start, len, pages.as_mut_ptr().cast()) != 0;
        let error = io::Error::last_os_error();
        libc::munmap(start, len);
        (failed, error)
    };
    if failed {
        return Err(error);
    }
    Ok(Some(pages.iter().filter(|p| **p & 1 == 1).count() as u64))
}
