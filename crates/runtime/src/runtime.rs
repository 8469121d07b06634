//! The runtime with its options, resources and jobs.
//!
//! A resource is registered on first use: a disk by a file on it, a store by its name. Its threads and
//! the state of its adaptive controller last until the last clone of the runtime is dropped, which
//! cancels running jobs and joins the threads.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pellucid_scheduler::controller::GAIN;
use pellucid_scheduler::{Concurrency, ResourceSpec};
use pellucid_trace::{Recorder, kind};

use crate::drive::driver::{Live, Shared};
use crate::drive::sampler;
use crate::drive::worker;
use crate::io::chunks::ChunkSize;
use crate::io::file::{File, IoMode, Version};
use crate::io::pacer::Pacer;
use crate::io::scratch::Scratch;
use crate::platform::{self, Device};
use crate::resource::{DeviceCounters, Info};
use crate::stacks::StackSampling;
use crate::state::{Ending, JobInner};
use crate::{Error, Job, ResourceHandle, quota};

/// Initial adaptive concurrency.
const ADAPTIVE_MIN: u32 = 2;
/// Maximum concurrency of flash disks.
const FLASH_MAX: u32 = 8;
/// Maximum concurrency of stores.
const STORE_MAX: u32 = 64;
/// Maximum number of multitasks that fetch concurrently (papers/monotasks-sosp17 §3.3).
const FETCHING_MULTITASKS: u32 = 4;
/// Name of the machine's network link.
const LINK: &str = "network";

/// Options for creating a [`Runtime`].
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of compute threads.
    pub cores: usize,
    /// True if the user chose `cores`. The trace then records `set`, even if it is the machine's number.
    pub cores_set: bool,
    /// Memory budget of multitasks and exchanges; `None` for no limit.
    pub memory_bytes: Option<u64>,
    /// Called again and again while the process takes more than half of the budget and a job runs.
    pub on_pressure: Option<fn()>,
    /// Read mode for files.
    pub io: IoMode,
    /// Rate limits in bytes per second, each for the disk that holds the path.
    pub disk_rates: Vec<(PathBuf, u64)>,
    /// Rate limit of the machine's network link, in bytes per second.
    pub network_rate: Option<u64>,
    /// Fixed numbers of concurrent monotasks, by kind of resource (`cpu`, `disk`, `store`).
    pub concurrency: Vec<(String, u32)>,
    /// Samples the call stacks of compute threads, if the system allows it; see [`Runtime::no_stacks`].
    pub stacks: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            cores: machine_cores(),
            cores_set: false,
            memory_bytes: None,
            on_pressure: None,
            io: IoMode::Cached,
            disk_rates: Vec::new(),
            network_rate: None,
            concurrency: Vec::new(),
            stacks: false,
        }
    }
}

/// Returns the number of cores that this process may use.
fn machine_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A runtime that executes jobs on this machine. Clones share the same runtime.
#[derive(Clone)]
pub struct Runtime(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    options: Options,
    cores: ResourceHandle,
    registry: Mutex<Registry>,
    /// Pacer of the link, if a rate was set.
    network_pacer: Option<Arc<Pacer>>,
}

/// Resources and files that are registered so far.
#[derive(Default)]
struct Registry {
    disks: HashMap<String, ResourceHandle>,
    stores: HashMap<String, ResourceHandle>,
    link: Option<ResourceHandle>,
    files: HashMap<PathBuf, Weak<File>>,
    labels: Vec<String>,
}

impl Runtime {
    /// Creates a runtime and starts the threads of the cores.
    ///
    /// # Errors
    /// Returns an error if an option is invalid (no core, an unknown kind, a rate of 0, a missing path) or
    /// a thread cannot be started.
    pub fn new(options: Options) -> Result<Runtime, Error> {
        validate(&options)?;
        let cores = fixed(&options, kind::CPU)
            .unwrap_or(u32::try_from(options.cores).map_err(|_| "too many cores; use fewer than 2^32")?);
        let shared = Shared::new(options.memory_bytes, StackSampling::new(options.stacks));
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
            counters: DeviceCounters::default(),
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
        let pressure = inner.options.memory_bytes.map(|bytes| bytes / 2).zip(inner.options.on_pressure);
        sampler::spawn(&inner.shared, pressure).map_err(failed)?;
        let mut registry = inner.registry();
        let available = machine_cores();
        if cores as usize > available {
            let plural = if available == 1 { "" } else { "s" };
            registry.labels.push(format!("{cores} compute threads on {available} core{plural}"));
        }
        if inner.options.io == IoMode::Direct {
            registry.labels.push("page cache bypassed (direct I/O)".to_string());
        }
        if let Some(rate) = inner.options.network_rate {
            registry.labels.push(pacing_label(LINK, rate));
        }
        drop(registry);
        for (path, rate) in &inner.options.disk_rates {
            let device = inner.device_of(path)?;
            inner.disk(device, Some(*rate))?;
        }
        Ok(())
    }

    /// Returns the cores of this machine as a resource.
    pub fn cores(&self) -> ResourceHandle {
        self.0.cores.clone()
    }

    /// Returns the physical disk of a path. If the path does not exist, that of its nearest existing
    /// parent.
    ///
    /// # Errors
    /// Returns an error if neither the path nor any parent can be accessed.
    pub fn disk_of(&self, path: &Path) -> Result<ResourceHandle, Error> {
        let device = self.0.device_of(path)?;
        self.0.disk(device, None)
    }

    /// Returns a store by its name (`s3://bucket`), and registers it on first use with its capacity `rate`
    /// in bytes per second, if set. A registered store keeps its rate. The store's link is registered with
    /// it as a resource of kind `network`. The code that moves the bytes must pace them, see
    /// [`Runtime::network_pacer`].
    pub fn store(&self, name: &str, rate: Option<u64>) -> ResourceHandle {
        let inner = &self.0;
        let mut registry = inner.registry();
        if let Some(store) = registry.stores.get(name) {
            return store.clone();
        }
        let link = registry.link.get_or_insert_with(|| inner.add_link()).clone();
        let (concurrency, max) = inner.adaptive(kind::STORE, STORE_MAX);
        let spec = ResourceSpec { concurrency, multitasks_at_once: Some(FETCHING_MULTITASKS) };
        let store = inner.shared.add_resource(spec, |id| Info {
            id,
            name: name.to_string(),
            kind: kind::STORE,
            capacity: rate.map(|r| r as f64),
            capacity_from: rate.map(|_| "set"),
            concurrency: max,
            concurrency_min: min_concurrency(concurrency),
            link: Some(link),
            pacer: None,
            chunk_size: ChunkSize::default(),
            counters: DeviceCounters::default(),
        });
        registry.stores.insert(name.to_string(), store.clone());
        store
    }

    /// Returns the pacer of the machine's link, which all stores share; `None` if no rate was set.
    pub fn network_pacer(&self) -> Option<Arc<Pacer>> {
        self.0.network_pacer.clone()
    }

    /// Opens a file for reads of ranges. Returns the same `File` again while it is open and the file has
    /// not changed (device, inode, length, modification time).
    ///
    /// # Errors
    /// Returns the error of the operating system with the path and a remedy.
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

    /// Creates a file without a name in `folder`, for data that does not fit into memory.
    ///
    /// # Errors
    /// Returns an error with the folder if it does not exist or is not writable.
    pub fn scratch(&self, folder: &Path) -> Result<Arc<Scratch>, Error> {
        Scratch::create(folder, self.disk_of(folder)?, Arc::clone(&self.0.shared.pool), self.0.options.io)
    }

    /// Begins a job. Registers this machine and the known resources in the job's trace; other resources
    /// follow on first use. Pacers drop their credit, so that earlier idle time does not speed up the job.
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

    /// Returns labels for a trace's header, one for each setting that makes times differ from those of the
    /// bare machine: paced resources, more compute threads than cores, direct I/O.
    pub fn labels(&self) -> Vec<String> {
        self.0.registry().labels.clone()
    }

    /// Returns the reason why call stacks are not sampled although the options ask for it. The threads start to sample
    /// on their own, so ask after a job.
    pub fn no_stacks(&self) -> Option<String> {
        self.0.shared.stacks.failure().map(str::to_string)
    }

    /// Returns the peak memory of this process.
    pub fn memory_high_water(&self) -> Option<u64> {
        platform::memory_high_water_bytes()
    }
}

/// Checks that options are valid.
fn validate(options: &Options) -> Result<(), Error> {
    if options.cores == 0 {
        return Err("invalid number of cores 0; use at least 1".into());
    }
    for (kind, n) in &options.concurrency {
        if ![kind::CPU, kind::DISK, kind::STORE].contains(&kind.as_str()) {
            return Err(format!("unknown kind of resource '{kind}'; use cpu, disk or store").into());
        }
        if *n == 0 {
            return Err(format!("invalid concurrency {kind}=0; use at least 1").into());
        }
    }
    let rates = options.disk_rates.iter().map(|(_, rate)| *rate).chain(options.network_rate);
    if rates.into_iter().any(|rate| rate == 0) {
        return Err("invalid rate of 0 bytes per second; use a positive rate".into());
    }
    Ok(())
}

/// Returns the fixed concurrency of a kind; the last option wins.
fn fixed(options: &Options, kind: &str) -> Option<u32> {
    options.concurrency.iter().rev().find(|(k, _)| k == kind).map(|(_, n)| *n)
}

/// Returns the minimum of an adaptive concurrency.
fn min_concurrency(concurrency: Concurrency) -> Option<u32> {
    match concurrency {
        Concurrency::Fixed(_) => None,
        Concurrency::Adaptive { min, .. } => Some(min),
    }
}

fn pacing_label(name: &str, rate: u64) -> String {
    format!("{name} paced at {} MB/s inside the engine", rate as f64 / 1e6)
}

impl Inner {
    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the device of a path or of its nearest existing parent.
    fn device_of(&self, path: &Path) -> Result<Device, Error> {
        let mut at = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        loop {
            match platform::device_of(at) {
                Ok(device) => return Ok(device),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => match at.parent() {
                    Some(parent) if parent.as_os_str().is_empty() => at = Path::new("."),
                    Some(parent) => at = parent,
                    None => {
                        let path = path.display();
                        return Err(format!("cannot find the disk of {path}: {e}; check the path").into());
                    }
                },
                Err(e) => {
                    return Err(format!("cannot find the disk of {}: {e}", path.display()).into());
                }
            }
        }
    }

    /// Returns the resource of a device, and registers it on first use.
    fn disk(&self, device: Device, rate: Option<u64>) -> Result<ResourceHandle, Error> {
        let mut registry = self.registry();
        if let Some(disk) = registry.disks.get(&device.name) {
            if rate.is_some_and(|r| disk.0.capacity != Some(r as f64)) {
                return Err(format!(
                    "cannot set two different rates for disk {}: its partitions share one queue; set one rate",
                    device.name
                )
                .into());
            }
            return Ok(disk.clone());
        }
        let (concurrency, max) = if device.spinning {
            let n = fixed(&self.options, kind::DISK).unwrap_or(1);
            (Concurrency::Fixed(n), n)
        } else {
            self.adaptive(kind::DISK, FLASH_MAX)
        };
        if let Some(rate) = rate {
            registry.labels.push(pacing_label(&format!("disk {}", device.name), rate));
        }
        let spec = ResourceSpec { concurrency, multitasks_at_once: None };
        let disk = self.shared.add_resource(spec, |id| Info {
            id,
            name: device.name.clone(),
            kind: kind::DISK,
            capacity: rate.map(|r| r as f64),
            capacity_from: rate.map(|_| "set"),
            concurrency: max,
            concurrency_min: min_concurrency(concurrency),
            link: None,
            pacer: rate.map(|r| Arc::new(Pacer::new(r))),
            chunk_size: ChunkSize::default(),
            counters: DeviceCounters::new(device.counters.into_iter().collect(), platform::disk_bytes),
        });
        registry.disks.insert(device.name, disk.clone());
        Ok(disk)
    }

    /// Returns the concurrency of a kind and its maximum: fixed if set, otherwise adaptive up to `max`.
    fn adaptive(&self, kind: &str, max: u32) -> (Concurrency, u32) {
        match fixed(&self.options, kind) {
            Some(n) => (Concurrency::Fixed(n), n),
            None => (Concurrency::Adaptive { min: ADAPTIVE_MIN, max, gain: GAIN }, max),
        }
    }

    fn add_link(&self) -> ResourceHandle {
        let rate = self.options.network_rate;
        let (concurrency, max) = self.adaptive(kind::STORE, STORE_MAX);
        let spec = ResourceSpec { concurrency, multitasks_at_once: Some(FETCHING_MULTITASKS) };
        self.shared.add_resource(spec, |id| Info {
            id,
            name: LINK.to_string(),
            kind: kind::NETWORK,
            capacity: rate.map(|r| r as f64),
            capacity_from: rate.map(|_| "set"),
            concurrency: max,
            concurrency_min: min_concurrency(concurrency),
            link: None,
            pacer: self.network_pacer.clone(),
            chunk_size: ChunkSize::default(),
            counters: DeviceCounters::new(platform::link_counters(), platform::link_bytes),
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
        // Set only after all jobs are stopped: a running job may still need a thread that would exit.
        state.closing = true;
        for lane in &state.lanes {
            lane.wake.notify_all();
        }
        self.shared.sampler.notify_all();
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        // If a multitask held the last clone, this runs on one of the threads.
        let me = std::thread::current().id();
        for thread in threads.into_iter().filter(|t| t.thread().id() != me) {
            let _ = thread.join(); // a thread that panicked has ended as well
        }
    }
}
