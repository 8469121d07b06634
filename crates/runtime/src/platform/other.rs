//! The fallback for Unixes other than Linux (macOS).

use std::fs;
use std::io;
use std::ops::Range;
#[cfg(target_os = "macos")]
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::posix;
use super::{Device, DeviceBytes, ResidentPages};

/// Returns the device of a path, named by its device number. It never counts as spinning, since spinning
/// disks cannot be detected here and are rare on these systems.
pub(crate) fn device_of(path: &Path) -> io::Result<Device> {
    let number = fs::metadata(path)?.dev();
    Ok(Device { name: format!("dev{number:x}"), spinning: false, counters: None })
}

/// Returns the number of pages of `range` that are in memory.
pub(crate) fn resident_pages(file: &fs::File, range: &Range<u64>) -> io::Result<ResidentPages> {
    posix::mincore_pages(file, range)
}

/// Disables read-ahead. Errors are ignored, since they affect only performance.
pub(crate) fn advise_random(file: &fs::File) {
    #[cfg(target_os = "macos")]
    // SAFETY: sets a flag of an open file.
    unsafe {
        libc::fcntl(file.as_raw_fd(), libc::F_RDAHEAD, 0);
    }
    #[cfg(not(target_os = "macos"))]
    let _ = file;
}

/// Opens a file for reads that bypass the page cache.
pub(crate) fn open_direct(path: &Path) -> io::Result<fs::File> {
    let file = fs::File::open(path)?;
    #[cfg(target_os = "macos")]
    // SAFETY: sets a flag of an open file.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_NOCACHE, 1) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}

/// Does nothing: the final flush writes everything.
pub(crate) fn flush_range(_file: &fs::File, _range: &Range<u64>) -> io::Result<()> {
    Ok(())
}

/// Returns `None`: device bytes of threads are not measured here.
pub(crate) fn thread_device_bytes() -> Option<DeviceBytes> {
    None
}

/// Returns `None`: bytes of disks are not measured here.
pub(crate) fn disk_bytes(_counters: &Path) -> Option<DeviceBytes> {
    None
}

/// Returns no counters: bytes of network interfaces are not measured here.
pub(crate) fn link_counters() -> Vec<PathBuf> {
    Vec::new()
}

/// Returns `None`: bytes of network interfaces are not measured here.
pub(crate) fn link_bytes(_counters: &Path) -> Option<DeviceBytes> {
    None
}

/// Returns `None`: core time of all processes is not measured here.
pub(crate) fn machine_busy_ns() -> Option<u64> {
    None
}

/// Returns the peak memory of the process.
pub(crate) fn memory_high_water_bytes() -> Option<u64> {
    // SAFETY: all zeros are a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for writes.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) } != 0 {
        return None;
    }
    let unit = if cfg!(target_os = "macos") { 1 } else { 1024 };
    u64::try_from(usage.ru_maxrss).ok().map(|m| m * unit)
}

/// Returns `None`: current memory is not measured here.
pub(crate) fn memory_bytes() -> Option<u64> {
    None
}
