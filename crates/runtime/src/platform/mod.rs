//! What the operating systems do differently, and nothing else.
//!
//! `linux` asks the kernel all that Pellucid wants to know. `other` is for any
//! other Unix (macOS): it runs the same queries, and says `None` where nothing
//! tells it; what is in memory it asks of `mincore`, disks it tells apart by
//! device number. Both offer the same functions; in tests both are compiled, and
//! held to the same expectations as far as they can be.

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
pub(crate) use posix::{machine_name, page_bytes, process_cpu_ns, thread_cpu_ns};

/// The physical device that a path is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Device {
    /// As the operating system names it; the file system's type, where there is
    /// no device behind it (`tmpfs`).
    pub name: String,
    /// True for one head that seeks: such a disk runs one monotask at once.
    pub spinning: bool,
    /// Where the kernel counts its sectors.
    pub counters: Option<PathBuf>,
}

/// Bytes that the kernel counted: of a thread, a disk, or a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DeviceBytes {
    pub read: u64,
    pub written: u64,
}

/// How many of a range's pages are in memory; `None`: the system does not say.
pub(crate) type ResidentPages = Option<u64>;
