//! Functions that differ between operating systems.
//!
//! `linux` measures everything. `other` supports other Unixes (macOS): queries run the same, but functions
//! return `None` for values that are not measured there. It uses `mincore` for residency, and device numbers
//! to distinguish disks. Both modules have the same functions. Test builds compile both and compare them
//! where possible.

use std::path::PathBuf;

mod pages;
mod posix;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(any(not(target_os = "linux"), test))]
#[cfg_attr(target_os = "linux", allow(dead_code))]
mod other;

#[cfg(target_os = "linux")]
pub(crate) use linux::*;
#[cfg(not(target_os = "linux"))]
pub(crate) use other::*;
pub(crate) use pages::Pages;
pub use posix::thread_cpu_ns;
pub(crate) use posix::{machine_memory_bytes, machine_name, page_bytes, process_cpu_ns};

/// The physical device of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Device {
    /// Name in the operating system, or the type of a file system without a device (`tmpfs`).
    pub name: String,
    /// True for a disk with a seeking head, which runs one monotask at a time.
    pub spinning: bool,
    /// Path of the kernel's sector counters.
    pub counters: Option<PathBuf>,
}

/// The kernel's byte counts of a thread, a disk, or a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DeviceBytes {
    pub read: u64,
    pub written: u64,
}

/// The number of a range's pages in memory; `None` if the system does not tell.
pub(crate) type ResidentPages = Option<u64>;
