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

/// Disks are told apart by device number; whether one spins is not known, and
/// those that do are rare where this runs.
pub(crate) fn device_of(path: &Path) -> io::Result<Device> {
    let number = fs::metadata(path)?.dev();
    Ok(Device { name: format!("dev{number:x}"), spinning: false, counters: None })
}

/// Pages of `range` that are in memory.
pub(crate) fn resident_pages(file: &fs::File, range: &Range<u64>) -> io::Result<ResidentPages> {
    posix::mincore_pages(file, range)
}

/// No read-ahead: a read moves the bytes that it asks for.
pub(crate) fn advise_random(file: &fs::File) {
    #[cfg(target_os = "macos")]
    // SAFETY: a flag of an open file. It is advice; a refusal changes no result.
    unsafe {
        libc::fcntl(file.as_raw_fd(), libc::F_RDAHEAD, 0);
    }
    #[cfg(not(target_os = "macos"))]
    let _ = file;
}

/// Opens past the page cache.
pub(crate) fn open_direct(path: &Path) -> io::Result<fs::File> {
    let file = fs::File::open(path)?;
    #[cfg(target_os = "macos")]
    // SAFETY: a flag of an open file.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_NOCACHE, 1) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}

/// Pushes a range of what was written to the device: left to the flush at the end.
pub(crate) fn flush_range(_file: &fs::File, _range: &Range<u64>) -> io::Result<()> {
    Ok(())
}

/// What the calling thread has moved to and from devices: not counted here.
pub(crate) fn thread_device_bytes() -> Option<DeviceBytes> {
    None
}

/// What a disk has moved since the machine started: not counted here.
pub(crate) fn disk_bytes(_counters: &Path) -> Option<DeviceBytes> {
    None
}

/// Where the machine's links are counted: nowhere here.
pub(crate) fn link_counters() -> Vec<PathBuf> {
    Vec::new()
}

/// What an interface has received and sent since the machine started: not counted here.
pub(crate) fn link_bytes(_counters: &Path) -> Option<DeviceBytes> {
    None
}

/// Core time used by everyone since the machine started: not asked here.
pub(crate) fn machine_busy_ns() -> Option<u64> {
    None
}

/// Most memory that the process ever held.
pub(crate) fn memory_high_water_bytes() -> Option<u64> {
    // SAFETY: all zero is a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid place for the answer.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) } != 0 {
        return None;
    }
    let unit = if cfg!(target_os = "macos") { 1 } else { 1024 };
    u64::try_from(usage.ru_maxrss).ok().map(|m| m * unit)
}

/// Memory that the process holds now: not asked here.
pub(crate) fn memory_bytes() -> Option<u64> {
    None
}
