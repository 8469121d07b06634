//! The runtime as a whole: its options, its resources, its jobs.
//!
//! Resources come into being when they are first named: a disk by a file on it, a
//! store by its name. They stay, with their threads and with what the adaptive
//! controller learned, until the last clone of the runtime is dropped; that
//! cancels the jobs that still run and waits for the threads.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pellucid_scheduler::{Concurrency, Policy, ResourceSpec};
use pellucid_trace::{Recorder, kind};

use crate::chunks::ChunkSize;
use crate::driver::{Live, Shared};
use crate::file::{File, Version};
use crate::job::{Ending, JobInner};
use crate::pacer::Pacer;
use crate::platform::{self, Device};
use crate::resource::{Counted, Info};
use crate::{Error, Job, ResourceHandle, quota, sampler, worker};

/// Where adaptive concurrency starts.
const ADAPTIVE_MIN: u32 = 2;
/// Most monotasks at once on flash.
const FLASH_MAX: u32 = 8;
/// Most monotasks at once on a store.
const STORE_MAX: u32 = 64;
/// Fetches of at most this many multitasks at once (papers/monotasks-sosp17 §3.3).
const FETCHING_MULTITASKS: u32 = 4;
/// Name of the machine's link.
const LINK: &str = "network";

/// How files are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IoMode {
    /// Through the page cache, which keeps what was read.
    #[default]
    Cached,
    /// Past it: every read comes from the device.
    Direct,
}

/// How a runtime is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// Threads that compute.
    pub cores: usize,
    /// Someone chose that number: the trace says `set`, also where the machine has as many.
    pub cores_set: bool,
    /// Budget of what multitasks and exchanges hold; `None`: no limit.
    pub memory_bytes: Option<u64>,
    /// How files are read.
    pub io: IoMode,
    /// Paces the disk that a path is on, in bytes per second.
    pub disk_rates: Vec<(PathBuf, u64)>,
    /// Paces the machine's link, in bytes per second.
    pub network_rate: Option<u64>,
    /// Fixes how many monotasks each resource of a kind (`cpu`, `disk`, `store`)
    /// runs at once.
    pub concurrency: Vec<(String, u32)>,
    /// When more at once pays, where that is tuned.
    pub policy: Policy,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            cores: machine_cores(),
            cores_set: false,
            memory_bytes: None,
            io: IoMode::Cached,
            disk_rates: Vec::new(),
            network_rate: None,
            concurrency: Vec::new(),
            policy: Policy::default(),
        }
    }
}

/// Cores that this process may use.
fn machine_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Runs jobs on this machine. Clones are of the same runtime.
#[derive(Clone)]
pub struct Runtime(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    options: Options,
    cores: ResourceHandle,
    registry: Mutex<Registry>,
    /// Made with the runtime where the link is paced.
    network_pacer: Option<Arc<Pacer>>,
}

/// What was named so far.
#[derive(Default)]
struct Registry {
    disks: HashMap<String, ResourceHandle>,
    stores: HashMap<String, ResourceHandle>,
    link: Option<ResourceHandle>,
    files: HashMap<PathBuf, Weak<File>>,
    labels: Vec<String>,
}

impl Runtime {
    /// Starts the threads of the cores.
    ///
    /// # Errors
    /// Options that cannot be (no core, an unknown kind, a rate of 0, a path that
    /// is not there), or a system that gives no thread.
    pub fn new(options: Options) -> Result<Runtime, Error> {
        check(&options)?;
        let cores = fixed(&options, kind::CPU)
            .unwrap_or(u32::try_from(options.cores).map_err(|_| "more cores than can be")?);
        let shared = Shared::new(options.memory_bytes);
        let quota = quota::cores().filter(|quota| *quota < f64::from(cores));
        let set = options.cores_set || cores as usize != machine_cores();
        let from = if set { "set" } else { "counted" };
        let spec = ResourceSpec { concurrency: Concurrency::Fixed(cores), multitasks_at_once: None };
        let handle = shared.add_resource(spec, |id| Info {
            id,
            name: "cores".to_string(),
            kind: kind::CPU,
            capacity: Some(quota.unwrap_or(f64::from(cores))),
            capacity_from: Some(if quota.is_some() { "quota" } else { from }),
            concurrency: cores,
            concurrency_min: None,
            link: None,
            pacer: None,
            chunk_size: ChunkSize::default(),
            counted: Counted::default(),
        });
        let network_pacer = options.network_rate.map(|rate| Arc::new(Pacer::new(rate)));
        let runtime = Runtime(Arc::new(Inner {
            shared,
            options,
            cores: handle,
            registry: Mutex::default(),
            network_pacer,
        }));
        runtime.start(cores)?;
        Ok(runtime)
    }

    fn start(&self, cores: u32) -> Result<(), Error> {
        let inner = &self.0;
        let failed = |e: std::io::Error| {
            format!("cannot start a thread: {e}; raise the limit (ulimit -u) or use fewer cores")
        };
        for _ in 0..cores {
            let mut state = inner.shared.lock();
            worker::spawn(&inner.shared, &mut state, inner.cores.index()).map_err(failed)?;
        }
        sampler::spawn(&inner.shared).map_err(failed)?;
        let mut registry = inner.registry();
        let there_are = machine_cores();
        if cores as usize > there_are {
            let plural = if there_are == 1 { "" } else { "s" };
            registry.labels.push(format!("{cores} compute threads on {there_are} core{plural}"));
        }
        if inner.options.io == IoMode::Direct {
            registry.labels.push("page cache bypassed (direct I/O)".to_string());
        }
        if let Some(rate) = inner.options.network_rate {
            registry.labels.push(label(LINK, rate));
        }
        drop(registry);
        for (path, rate) in &inner.options.disk_rates {
            let device = inner.device_of(path)?;
            inner.disk(device, Some(*rate))?;
        }
        Ok(())
    }

    /// The cores.
    pub fn cores(&self) -> ResourceHandle {
        self.0.cores.clone()
    }

    /// The physical disk that a path is on, or would be on.
    ///
    /// # Errors
    /// Where neither the path nor any folder above it can be looked at.
    pub fn disk_of(&self, path: &Path) -> Result<ResourceHandle, Error> {
        let device = self.0.device_of(path)?;
        self.0.disk(device, None)
    }

    /// A store, by its name (`s3://bucket`); `rate`: its capacity in bytes per
    /// second, if set. A store that is known keeps the rate that it has. Its link
    /// becomes a resource of kind `network` with it; what runs on the store is
    /// paced by whoever moves the bytes, see [`Runtime::network_pacer`].
    pub fn store(&self, name: &str, rate: Option<u64>) -> ResourceHandle {
        let inner = &self.0;
        let mut registry = inner.registry();
        if let Some(store) = registry.stores.get(name) {
            return store.clone();
        }
        let link = registry.link.get_or_insert_with(|| inner.add_link()).clone();
        let (concurrency, most) = inner.adaptive(kind::STORE, STORE_MAX);
        let spec = ResourceSpec { concurrency, multitasks_at_once: Some(FETCHING_MULTITASKS) };
        let store = inner.shared.add_resource(spec, |id| Info {
            id,
            name: name.to_string(),
            kind: kind::STORE,
            capacity: rate.map(|r| r as f64),
            capacity_from: rate.map(|_| "set"),
            concurrency: most,
            concurrency_min: least(concurrency),
            link: Some(link),
            pacer: None,
            chunk_size: ChunkSize::default(),
            counted: Counted::default(),
        });
        registry.stores.insert(name.to_string(), store.clone());
        store
    }

    /// What paces the machine's link, where a rate was set: one for all stores.
    pub fn network_pacer(&self) -> Option<Arc<Pacer>> {
        self.0.network_pacer.clone()
    }

    /// Opens a file for reads by range. One that is open already and has not
    /// changed (device, inode, length, time of change) is the same `File`.
    ///
    /// # Errors
    /// What the system says, with the path and a way out.
    pub fn open(&self, path: &Path) -> Result<Arc<File>, Error> {
        let inner = &self.0;
        let known = inner.registry().files.get(path).and_then(Weak::upgrade);
        let version = Version::of(path)?;
        if let Some(known) = known.filter(|f| f.version() == version) {
            return Ok(known);
        }
        let disk = self.disk_of(path)?;
        let file = File::open(path, disk, inner.options.io, Arc::clone(&inner.shared.pool))?;
        let mut registry = inner.registry();
        if registry.files.len().is_power_of_two() {
            registry.files.retain(|_, f| f.strong_count() > 0);
        }
        registry.files.insert(path.to_path_buf(), Arc::downgrade(&file));
        Ok(file)
    }

    /// Begins a job, with its own trace, in which it registers this machine and
    /// the resources known so far; others follow when they are first used. What is
    /// paced lets nothing through faster for having been idle before.
    pub fn begin(&self, name: &str, recorder: Recorder) -> Job {
        let shared = &self.0.shared;
        let mut state = shared.lock();
        let id = state.scheduler.add_job(shared.now());
        let resources: Vec<_> = state.lanes.iter().map(|l| l.resource.clone()).collect();
        drop(state);
        resources.iter().filter_map(|r| r.0.pacer.as_ref()).for_each(|pacer| pacer.drop_credit());
        let job = JobInner::new(id, name, recorder, self.0.options.memory_bytes, &resources);
        let live = Live { job: Arc::clone(&job), multitasks: 0, ending: None };
        shared.lock().jobs.insert(id, live);
        shared.sampler.notify_all();
        Job::new(job, Arc::clone(shared))
    }

    /// What makes times of this runtime not those of the bare machine, in words,
    /// for a trace's header: which resources are paced, whether more cores are used than there are,
    /// whether the cache is bypassed.
    pub fn labels(&self) -> Vec<String> {
        self.0.registry().labels.clone()
    }

    /// Most memory that this process ever held.
    pub fn memory_high_water(&self) -> Option<u64> {
        platform::memory_high_water_bytes()
    }
}

/// Refuses options that cannot be.
fn check(options: &Options) -> Result<(), Error> {
    if options.cores == 0 {
        return Err("0 cores cannot compute: use at least 1".into());
    }
    for (of, n) in &options.concurrency {
        if ![kind::CPU, kind::DISK, kind::STORE].contains(&of.as_str()) {
            return Err(
                format!("concurrency of '{of}': no such kind of resource; use cpu, disk or store").into()
            );
        }
        if *n == 0 {
            return Err(format!("concurrency {of}=0 would run nothing: use at least 1").into());
        }
    }
    let rates = options.disk_rates.iter().map(|(_, rate)| *rate).chain(options.network_rate);
    if rates.into_iter().any(|rate| rate == 0) {
        return Err("a rate of 0 bytes per second would move nothing".into());
    }
    Ok(())
}

/// What was fixed for a kind; the last word counts.
fn fixed(options: &Options, kind: &str) -> Option<u32> {
    options.concurrency.iter().rev().find(|(k, _)| k == kind).map(|(_, n)| *n)
}

/// Where a climb starts, for a concurrency that is tuned.
fn least(concurrency: Concurrency) -> Option<u32> {
    match concurrency {
        Concurrency::Fixed(_) => None,
        Concurrency::Adaptive { min, .. } => Some(min),
    }
}

fn label(name: &str, rate: u64) -> String {
    format!("{name} paced at {} MB/s inside the engine", rate as f64 / 1e6)
}

impl Inner {
    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device under a path, or under the nearest folder above it that exists.
    fn device_of(&self, path: &Path) -> Result<Device, Error> {
        let mut at = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        loop {
            match platform::device_of(at) {
                Ok(device) => return Ok(device),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => match at.parent() {
                    Some(parent) if parent.as_os_str().is_empty() => at = Path::new("."),
                    Some(parent) => at = parent,
                    None => return Err(format!("cannot find the disk of {}: {e}", path.display()).into()),
                },
                Err(e) => {
                    return Err(format!("cannot find the disk of {}: {e}", path.display()).into());
                }
            }
        }
    }

    /// The resource of a device, registered when first asked for.
    fn disk(&self, device: Device, rate: Option<u64>) -> Result<ResourceHandle, Error> {
        let mut registry = self.registry();
        if let Some(disk) = registry.disks.get(&device.name) {
            if rate.is_some_and(|r| disk.0.capacity != Some(r as f64)) {
                return Err(format!(
                    "disk {} has two different rates: its partitions share one queue and one rate",
                    device.name
                )
                .into());
            }
            return Ok(disk.clone());
        }
        let (concurrency, most) = if device.spinning {
            let n = fixed(&self.options, kind::DISK).unwrap_or(1);
            (Concurrency::Fixed(n), n)
        } else {
            self.adaptive(kind::DISK, FLASH_MAX)
        };
        if let Some(rate) = rate {
            registry.labels.push(label(&format!("disk {}", device.name), rate));
        }
        let spec = ResourceSpec { concurrency, multitasks_at_once: None };
        let disk = self.shared.add_resource(spec, |id| Info {
            id,
            name: device.name.clone(),
            kind: kind::DISK,
            capacity: rate.map(|r| r as f64),
            capacity_from: rate.map(|_| "set"),
            concurrency: most,
            concurrency_min: least(concurrency),
            link: None,
            pacer: rate.map(|r| Arc::new(Pacer::new(r))),
            chunk_size: ChunkSize::default(),
            counted: Counted::by(device.counters.into_iter().collect(), platform::disk_bytes),
        });
        registry.disks.insert(device.name, disk.clone());
        Ok(disk)
    }

    /// Tuned up to `most`, unless it was fixed.
    fn adaptive(&self, kind: &str, most: u32) -> (Concurrency, u32) {
        match fixed(&self.options, kind) {
            Some(n) => (Concurrency::Fixed(n), n),
            None => {
                let policy = self.options.policy;
                (Concurrency::Adaptive { min: ADAPTIVE_MIN, max: most, policy }, most)
            }
        }
    }

    fn add_link(&self) -> ResourceHandle {
        let rate = self.options.network_rate;
        let (concurrency, most) = self.adaptive(kind::STORE, STORE_MAX);
        let spec = ResourceSpec { concurrency, multitasks_at_once: Some(FETCHING_MULTITASKS) };
        self.shared.add_resource(spec, |id| Info {
            id,
            name: LINK.to_string(),
            kind: kind::NETWORK,
            capacity: rate.map(|r| r as f64),
            capacity_from: rate.map(|_| "set"),
            concurrency: most,
            concurrency_min: least(concurrency),
            link: None,
            pacer: self.network_pacer.clone(),
            chunk_size: ChunkSize::default(),
            counted: Counted::by(platform::link_counters(), platform::link_bytes),
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let state = self.shared.lock();
        let jobs: Vec<Arc<JobInner>> = state.jobs.values().map(|l| Arc::clone(&l.job)).collect();
        drop(state);
        for job in jobs {
            self.shared.stop(&job, Ending::Cancelled);
        }
        let mut state = self.shared.lock();
        // Only now: a thread that finds nothing to do and goes is missed by what a job that is not yet stopped
        // begins.
        state.closing = true;
        for lane in &state.lanes {
            lane.wake.notify_all();
        }
        self.shared.sampler.notify_all();
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        // A body may have held the last clone: then this is one of the threads.
        let me = std::thread::current().id();
        for thread in threads.into_iter().filter(|t| t.thread().id() != me) {
            let _ = thread.join(); // a thread of ours that panicked has ended too
        }
    }
}
