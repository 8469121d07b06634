//! A resource as the runtime knows it: name, kind, capacity, pacer.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use pellucid_scheduler::ResourceId;

use crate::chunks::ChunkSize;
use crate::pacer::Pacer;
use crate::platform::DeviceBytes;

/// A resource that monotasks can be queued at; cheap to clone.
#[derive(Clone)]
pub struct ResourceHandle(pub(crate) Arc<Info>);

/// What is known of a resource.
pub(crate) struct Info {
    pub id: ResourceId,
    pub name: String,
    /// One of `pellucid_trace::kind`.
    pub kind: &'static str,
    pub capacity: Option<f64>,
    pub capacity_from: Option<&'static str>,
    /// Most monotasks at once.
    pub concurrency: u32,
    /// Where that is tuned, the least.
    pub concurrency_min: Option<u32>,
    /// The link that a store's bytes cross.
    pub link: Option<ResourceHandle>,
    /// Paces what runs on it, where a rate was set.
    pub pacer: Option<Arc<Pacer>>,
    /// What was learned of how much to move at a time.
    pub chunk_size: ChunkSize,
    /// What the kernel counts of it.
    pub counted: Counted,
}

/// Bytes of a device that the kernel counts: a disk, or all interfaces of the machine's link.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    counters: Vec<PathBuf>,
    count: Option<fn(&Path) -> Option<DeviceBytes>>,
    /// What had been counted when this was made: a job meets a device after it has begun.
    first: Option<(Instant, DeviceBytes)>,
}

impl Counted {
    /// By these counters, each read by `count`.
    pub fn by(counters: Vec<PathBuf>, count: fn(&Path) -> Option<DeviceBytes>) -> Counted {
        let mut counted = Counted { counters, count: Some(count), first: None };
        counted.first = counted.now().map(|bytes| (Instant::now(), bytes));
        counted
    }

    /// All of it so far; `None` where that is not counted.
    pub fn now(&self) -> Option<DeviceBytes> {
        let count = self.count?;
        let each = self.counters.iter().map(|counters| count(counters));
        each.reduce(|sum, one| {
            let (sum, one) = (sum?, one?);
            Some(DeviceBytes { read: sum.read + one.read, written: sum.written + one.written })
        })?
    }

    /// What had been counted when the device became known, if that was after an instant.
    pub fn first_after(&self, at: Instant) -> Option<(Instant, DeviceBytes)> {
        self.first.filter(|(first, _)| *first > at)
    }
}

impl ResourceHandle {
    /// Name as the machine knows it: `cores`, `nvme0n1`, `s3://bucket`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// One of `pellucid_trace::kind`.
    pub fn kind(&self) -> &str {
        self.0.kind
    }

    /// The most monotasks that it ever runs at once.
    pub fn concurrency(&self) -> u32 {
        self.0.concurrency
    }

    /// Capacity that was set or counted: cores, or bytes per second.
    pub fn capacity(&self) -> Option<f64> {
        self.0.capacity
    }

    /// The resource's index in the scheduler, from 0 in order of registration.
    pub(crate) fn index(&self) -> usize {
        self.0.id.0 as usize
    }

    /// Name of its `i`th thread, in the 15 bytes that Linux keeps of it: where
    /// it is too long, the resource's name gives way, so that kind and number stay.
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
            counted: Counted::default(),
        };
        ResourceHandle(Arc::new(info)).thread_name(i)
    }

    #[test]
    fn thread_names_fit_what_linux_keeps() {
        assert_eq!(name("cpu", "cores", 3), "core-3");
        assert_eq!(name("disk", "vda", 0), "disk-vda-0");
        assert_eq!(name("disk", "nvme0n1", 7), "disk-nvme0n1-7");
        assert_eq!(name("store", "s3://warehouse", 63), "store-s3://w-63");
        assert_eq!(name("store", "s3://\u{e9}t\u{e9}", 1), "store-s3://t-1");
    }
}
