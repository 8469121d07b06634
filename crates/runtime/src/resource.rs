//! Resources of the runtime, with name, kind, capacity and pacer.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use pellucid_scheduler::ResourceId;

use crate::io::chunks::ChunkSize;
use crate::io::pacer::Pacer;
use crate::platform::DeviceBytes;

/// A resource for which monotasks can be queued; cheap to clone.
#[derive(Clone)]
pub struct ResourceHandle(pub(crate) Arc<Info>);

/// The properties of a resource.
pub(crate) struct Info {
    pub id: ResourceId,
    pub name: String,
    /// One of `pellucid_trace::kind`.
    pub kind: &'static str,
    pub capacity: Option<f64>,
    pub capacity_from: Option<&'static str>,
    /// Maximum number of concurrent monotasks.
    pub concurrency: u32,
    /// Minimum of an adaptive concurrency.
    pub concurrency_min: Option<u32>,
    /// The link of a store.
    pub link: Option<ResourceHandle>,
    /// Pacer of the resource, if a rate was set.
    pub pacer: Option<Arc<Pacer>>,
    /// Adaptive size of transfers.
    pub chunk_size: ChunkSize,
    /// The kernel's counters of the device.
    pub counters: DeviceCounters,
}

/// Kernel counters of a device's bytes: those of a disk, or of all interfaces of the machine's link.
#[derive(Debug, Default)]
pub(crate) struct DeviceCounters {
    paths: Vec<PathBuf>,
    read: Option<fn(&Path) -> Option<DeviceBytes>>,
    /// Counts at creation, for jobs that have begun before the device was registered.
    first: Option<(Instant, DeviceBytes)>,
}

impl DeviceCounters {
    /// Creates counters that `read` gets from each of `paths`.
    pub fn new(paths: Vec<PathBuf>, read: fn(&Path) -> Option<DeviceBytes>) -> DeviceCounters {
        let mut counters = DeviceCounters { paths, read: Some(read), first: None };
        counters.first = counters.now().map(|bytes| (Instant::now(), bytes));
        counters
    }

    /// Returns the current sum of the counters; `None` if there are none.
    pub fn now(&self) -> Option<DeviceBytes> {
        let read = self.read?;
        let each = self.paths.iter().map(|path| read(path));
        each.reduce(|sum, one| {
            let (sum, one) = (sum?, one?);
            Some(DeviceBytes { read: sum.read + one.read, written: sum.written + one.written })
        })?
    }

    /// Returns the counts at creation, if that was after `at`.
    pub fn first_after(&self, at: Instant) -> Option<(Instant, DeviceBytes)> {
        self.first.filter(|(first, _)| *first > at)
    }
}

impl ResourceHandle {
    /// Returns the name: `cores`, a device name such as `nvme0n1`, or a URL such as `s3://bucket`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the kind, one of `pellucid_trace::kind`.
    pub fn kind(&self) -> &str {
        self.0.kind
    }

    /// Returns the maximum number of concurrent monotasks.
    pub fn concurrency(&self) -> u32 {
        self.0.concurrency
    }

    /// Returns the capacity that was set or counted: cores, or bytes per second.
    pub fn capacity(&self) -> Option<f64> {
        self.0.capacity
    }

    /// Returns the resource's index in the scheduler, from 0 in order of registration.
    pub(crate) fn index(&self) -> usize {
        self.0.id.0 as usize
    }

    /// Returns the name of its `i`th thread. Linux keeps 15 bytes of a thread name, so the resource's name
    /// is cut to leave room for kind and number.
    pub(crate) fn thread_name(&self, i: usize) -> String {
        if self.0.kind == pellucid_trace::kind::CPU {
            return format!("core-{i}");
        }
        let number = format!("-{i}");
        let room = 15usize.saturating_sub(self.0.kind.len() + 1 + number.len());
        let name: String = self.0.name.chars().filter(char::is_ascii_graphic).take(room).collect();
        format!("{}-{name}{number}", self.0.kind)
    }
}

impl PartialEq for ResourceHandle {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ResourceHandle {}

impl std::fmt::Debug for ResourceHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.0.kind, self.0.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(kind: &'static str, name: &str, i: usize) -> String {
        let info = Info {
            id: ResourceId(0),
            name: name.to_string(),
            kind,
            capacity: None,
            capacity_from: None,
            concurrency: 1,
            concurrency_min: None,
            link: None,
            pacer: None,
            chunk_size: ChunkSize::default(),
            counters: DeviceCounters::default(),
        };
        ResourceHandle(Arc::new(info)).thread_name(i)
    }

    #[test]
    fn thread_names_fit_in_15_bytes() {
        assert_eq!(name("cpu", "cores", 3), "core-3");
        assert_eq!(name("disk", "vda", 0), "disk-vda-0");
        assert_eq!(name("disk", "nvme0n1", 7), "disk-nvme0n1-7");
        assert_eq!(name("store", "s3://warehouse", 63), "store-s3://w-63");
        assert_eq!(name("store", "s3://\u{e9}t\u{e9}", 1), "store-s3://t-1");
    }
}
