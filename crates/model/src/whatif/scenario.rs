//! A recorded job under changes: other resources, other work, and what that assumes.
//!
//! Both predictors start from here. The simulated one runs the changed
//! [`Recorded`]; the analytic one takes the [`Terms`], the same changes as factors on
//! ideal times. A key that the trace cannot answer is refused with one that it can.

use std::collections::BTreeSet;

use pellucid_trace::kind;

use super::changes::{Amount, Change, Changes, InputFrom, Storage, is_part};
use super::curve::Curve;
use super::recorded::Recorded;
use super::rework::Requests;
use super::service::{Service, core_curve};
use super::{Refused, rework};

/// Assumed of what a core takes for a byte out of memory, in nanoseconds: the trace does not show it.
const COPY_NS_PER_BYTE: f64 = 0.25;

/// The changes as factors on ideal times.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    /// Rate of each resource after the changes over its rate before.
    pub faster: Vec<f64>,
    /// Resources that take no time.
    pub free: Vec<bool>,
    /// Disks of each machine, where that changes: bytes are spread evenly over them.
    pub disks: Option<usize>,
    /// Reads and fetches of input are gone.
    pub no_input: bool,
    /// Decoding is gone.
    pub no_decode: bool,
    /// Times the work.
    pub scale: f64,
    /// Machines after over machines before.
    pub machines: f64,
    /// Times the bytes that cross links between machines.
    pub crossing: f64,
    /// Where input and output are instead.
    pub elsewhere: Option<Elsewhere>,
}

/// A store, or a disk, that a job's input comes from and its output goes to instead.
#[derive(Debug, Clone)]
pub(crate) struct Elsewhere {
    /// Its place among the services.
    pub resource: usize,
    pub name: String,
    pub kind: &'static str,
    /// Bytes per nanosecond of one machine.
    pub read: f64,
    pub write: f64,
}

/// What a store does in another minute, or with other objects than the probe's, may differ by this much.
const PROBE_DOUBT: f64 = 0.1;

/// A recorded job under changes.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub recorded: Recorded,
    pub terms: Terms,
    /// In words.
    pub assumptions: Vec<String>,
    /// How far assumptions may be off, as shares of the prediction: faster and slower.
    pub doubt: (f64, f64),
}

impl Scenario {
    /// The terms of a job as it was.
    pub fn terms(recorded: &Recorded) -> Terms {
        let resources = recorded.services.len();
        Terms {
            faster: vec![1.0; resources],
            free: vec![false; resources],
            disks: None,
            no_input: false,
            no_decode: false,
            scale: 1.0,
            machines: 1.0,
            crossing: 1.0,
            elsewhere: None,
        }
    }

    /// The job under changes.
    ///
    /// # Errors
    /// A change that the trace cannot answer, with what it can.
    pub fn of(recorded: &Recorded, changes: &Changes) -> Result<Scenario, Refused> {
        let mut scenario = Scenario {
            recorded: recorded.clone(),
            terms: Scenario::terms(recorded),
            assumptions: Vec::new(),
            doubt: (0.0, 0.0),
        };
        for setting in changes.settings() {
            scenario.apply(&setting.key, &setting.change)?;
        }
        Ok(scenario)
    }

    fn apply(&mut self, key: &str, change: &Change) -> Result<(), Refused> {
        match change {
            Change::Cores(amount) => self.cores(*amount),
            Change::Disks(amount) => self.disks(*amount),
            Change::DiskRate(name, amount) => self.rate("disk.rate", kind::DISK, name.as_deref(), *amount),
            Change::NetworkRate(amount) => self.rate("network.rate", kind::NETWORK, None, *amount),
            Change::StoreRate(amount) => self.rate("store.rate", kind::STORE, None, *amount),
            Change::Concurrency(kind, amount) => self.concurrency(kind, *amount),
            Change::Partitions(amount) => self.partitions(*amount),
            Change::Machines(amount) => self.machines(key, *amount),
            Change::Executors(_) | Change::ExecutorCores(_) | Change::IdleTimeout(_) => {
                Err(self.instead("executors belong to Spark, and this trace is of one that has none"))
            }
            Change::Input(from) => self.input(*from),
            Change::InputScale(factor) => self.scale(*factor),
            Change::Storage(storage) => self.storage(storage),
            Change::No(what) => self.no(what),
        }
    }

    /// Resources of a kind.
    fn of_kind(&self, kind: &str) -> Vec<usize> {
        let services = self.recorded.services.iter().enumerate();
        services.filter(|(_, s)| s.kind == kind).map(|(ix, _)| ix).collect()
    }

    /// A refusal that ends in what this trace can answer.
    fn instead(&self, why: &str) -> Refused {
        let has = |kind: &str| self.recorded.services.iter().any(|s| s.kind == kind);
        let (disk, network, store) = (has(kind::DISK), has(kind::NETWORK), has(kind::STORE));
        let divided = rework::partitions(&mut self.recorded.clone(), Amount::Times(1.0)) > 0;
        let keys = [
            (has(kind::CPU), "cores"),
            (disk, "disks, disk.rate, disk.NAME.rate"),
            (network, "network.rate"),
            (store, "store.rate"),
            (true, "concurrency.KIND"),
            (divided, "partitions"),
            (self.recorded.machines > 1, "machines"),
            (true, "input, input.scale, storage, no"),
        ];
        let keys: Vec<&str> = keys.iter().filter(|(answered, _)| *answered).map(|(_, key)| *key).collect();
        Refused::Usage(format!("{why}; this trace can answer {}", keys.join(", ")))
    }

    fn assume(&mut self, words: String) {
        if !self.assumptions.contains(&words) {
            self.assumptions.push(words);
        }
    }

    fn cores(&mut self, amount: Amount) -> Result<(), Refused> {
        let of_kind = self.of_kind(kind::CPU);
        if of_kind.is_empty() {
            return Err(Refused::Usage("cores: this trace has none".into()));
        }
        let mut driver = 1.0;
        for ix in of_kind {
            let service = &mut self.recorded.services[ix];
            let before = service.capacity.rate.unwrap_or_else(|| f64::from(service.at_once));
            let cores = amount.of(Some(before)).unwrap_or(before);
            self.terms.faster[ix] *= cores / before;
            // What is short passes a quota unhindered, unless computing has used it up: more cores help the driver,
            // and a quota that there was none of does not hinder it.
            driver = if before < 1.0 { before / cores.min(1.0) } else { 1.0 };
            service.at_once = cores.ceil().max(1.0) as u32;
            service.curve = core_curve(cores, service.slowdown.unwrap_or(0.0));
            service.capacity.rate = Some(cores);
            let unknown = service.slowdown.is_none() && cores != before;
            if unknown {
                self.assume(
                    "busy cores do not slow each other: the trace does not show by how much they do".into(),
                );
                // Two cores of one socket lost up to this much to each other when it was tried.
                let doubt = 0.04;
                if cores < before { self.doubt.0 += doubt } else { self.doubt.1 += doubt }
            }
        }
        if driver != 1.0 {
            rework::driver(&mut self.recorded, driver);
            self.assume(
                "the driver's own work takes as much less time as its thread gets more of a core".into(),
            );
        }
        self.assume("the job is divided into the same multitasks on any number of cores".into());
        Ok(())
    }

    fn rate(&mut self, key: &str, kind: &str, name: Option<&str>, amount: Amount) -> Result<(), Refused> {
        let mut of_kind = self.of_kind(kind);
        if of_kind.is_empty() {
            return Err(self.instead(&format!("{key}: this trace has no {kind}")));
        }
        if let Some(name) = name {
            let names: Vec<String> =
                of_kind.iter().map(|ix| self.recorded.services[*ix].name.clone()).collect();
            of_kind.retain(|ix| self.recorded.services[*ix].name == name);
            if of_kind.is_empty() {
                return Err(Refused::Usage(format!(
                    "disk.{name}.rate: this trace has no disk {name}; it has {}",
                    names.join(", ")
                )));
            }
        }
        for ix in of_kind {
            self.one_rate(key, ix, amount)?;
        }
        Ok(())
    }

    fn one_rate(&mut self, key: &str, ix: usize, amount: Amount) -> Result<(), Refused> {
        let stores = self.recorded.services.iter().any(|s| s.link == Some(ix as u32));
        let used = self.terms.faster.len() > ix && self.uses(ix);
        let service = &mut self.recorded.services[ix];
        let known = service.capacity.rate.filter(|_| !service.own_pace).map(|rate| rate * 1e9);
        let shows = !service.own_pace && used && service.curve.is_known();
        let per_s = known.or(shows.then_some(service.curve.most * 1e9));
        let Some(rate) = amount.of(per_s) else {
            let way_out = if stores { "give it absolute, or say store.rate" } else { "give it absolute" };
            return Err(Refused::Usage(format!(
                "{key}: the trace does not say how fast {} is, so a relative rate means nothing; {way_out}",
                service.name
            )));
        };
        let name = service.name.clone();
        let factor = match per_s {
            Some(before) => rate / before,
            None if service.own_pace => {
                return Err(Refused::Usage(format!(
                    "{key}: the bytes on {name} were not measured, so only a relative rate means anything, \
                     for example {key}=x2"
                )));
            }
            None => 1.0,
        };
        if per_s.is_some() {
            service.curve = service.curve.times(factor);
        } else {
            service.curve = Curve::level(rate / 1e9);
        }
        let seen = known.is_none() || !matches!(service.capacity.from.as_deref(), Some("set" | "probed"));
        service.capacity.rate = Some(rate / 1e9);
        self.terms.faster[ix] *= factor;
        if let (Some(before), true, Amount::Absolute(_)) = (per_s, seen && used, amount) {
            self.assume(format!(
                "{name} gave {:.0} MB/s as it was: what the trace shows, nobody set or probed it",
                before / 1e6
            ));
        }
        if factor > 1.0 {
            self.assume(format!("whatever is behind {name} keeps up with its new rate"));
        }
        Ok(())
    }

    /// Whether some monotask runs on a resource, or crosses it.
    fn uses(&self, ix: usize) -> bool {
        let on = |resource: u32| {
            resource as usize == ix || self.recorded.services[resource as usize].link == Some(ix as u32)
        };
        self.recorded.tasks.iter().any(|t| t.monotasks.iter().any(|m| on(m.resource)))
    }

    fn concurrency(&mut self, kind: &str, amount: Amount) -> Result<(), Refused> {
        if kind == kind::CPU {
            return self.cores(amount);
        }
        let of_kind = self.of_kind(kind);
        if of_kind.is_empty() {
            let kinds: BTreeSet<&str> = self.recorded.services.iter().map(|s| s.kind.as_str()).collect();
            let kinds: Vec<&str> = kinds.into_iter().collect();
            return Err(Refused::Usage(format!(
                "concurrency.{kind}: this trace has no resource of that kind; it has {}",
                kinds.join(", ")
            )));
        }
        for ix in of_kind {
            let service = &mut self.recorded.services[ix];
            let n = amount.of(Some(f64::from(service.at_once))).unwrap_or(1.0).round().max(1.0);
            service.at_once = n as u32;
            service.adapts = false;
            if service.capacity.from.as_deref() != Some("set") {
                let name = service.name.clone();
                self.assume(format!(
                    "{name} gives {n:.0} at once what the trace shows for the nearest numbers that it ran"
                ));
                self.doubt = (self.doubt.0 + 0.02, self.doubt.1 + 0.02);
            }
        }
        Ok(())
    }

    fn disks(&mut self, amount: Amount) -> Result<(), Refused> {
        let of_kind = self.of_kind(kind::DISK);
        if of_kind.is_empty() {
            return Err(self.instead("disks: this trace has no disk"));
        }
        let used: Vec<usize> = of_kind.into_iter().filter(|ix| self.uses(*ix)).collect();
        if used.is_empty() {
            self.assume(
                "nothing was read from a disk or written to one, so more of them change nothing".into(),
            );
            return Ok(());
        }
        let machines: BTreeSet<u32> = used.iter().map(|ix| self.recorded.services[*ix].machine).collect();
        let each = used.len() as f64 / machines.len() as f64;
        let wanted = amount.of(Some(each)).unwrap_or(each).round().max(1.0) as usize;
        if wanted > 1024 {
            return Err(Refused::Usage(format!(
                "disks={wanted}: more than 1024 disks a machine are not simulated"
            )));
        }
        rework::spread_over_disks(&mut self.recorded, &machines, &used, wanted);
        self.terms.faster.resize(self.recorded.services.len(), 1.0);
        self.terms.free.resize(self.recorded.services.len(), false);
        self.terms.disks = Some(wanted);
        self.assume(format!("bytes lie evenly on {wanted} disks a machine, each like {}", {
            &self.recorded.services[used[0]].name
        }));
        Ok(())
    }

    fn partitions(&mut self, amount: Amount) -> Result<(), Refused> {
        if rework::partitions(&mut self.recorded, amount) == 0 {
            return Err(
                self.instead("partitions: no stage of this trace comes after an exchange in several parts")
            );
        }
        self.assume(
            "the same work is divided into other parts, each with the overhead of the recorded ones".into(),
        );
        self.doubt = (self.doubt.0 + 0.03, self.doubt.1 + 0.03);
        Ok(())
    }

    fn machines(&mut self, key: &str, amount: Amount) -> Result<(), Refused> {
        if self.recorded.machines < 2 {
            return Err(self.instead(&format!(
                "{key}: this trace is of one machine, which says nothing about a network; ask for cores"
            )));
        }
        let before = f64::from(self.recorded.machines);
        let after = amount.of(Some(before)).unwrap_or(before).round().max(1.0);
        if after > 1000.0 {
            return Err(Refused::Usage(format!("{key}={after}: more than 1000 are not simulated")));
        }
        // Without locality, (N − 1) ÷ N of all bytes are on another machine (§6.4).
        let crossing = (1.0 - 1.0 / after) / (1.0 - 1.0 / before);
        rework::machines(&mut self.recorded, after as u32, crossing);
        self.terms.faster.resize(self.recorded.services.len(), 1.0);
        self.terms.free.resize(self.recorded.services.len(), false);
        self.terms.machines *= after / before;
        self.terms.crossing *= crossing;
        self.assume(format!(
            "multitasks go to machines in turn, and {:.0} % of what is exchanged crosses the network",
            (1.0 - 1.0 / after) * 100.0
        ));
        Ok(())
    }

    fn input(&mut self, from: InputFrom) -> Result<(), Refused> {
        let phases = self.recorded.tasks.iter().flat_map(|t| &t.monotasks).map(|m| m.phase);
        if phases.clone().any(|p| p == pellucid_trace::Phase::Spill) {
            self.assume(
                "all that was read is input: the trace does not tell it from what was spilled".into(),
            );
        }
        let decoded = from == InputFrom::MemoryDecoded;
        let decodes = self.recorded.tasks.iter().flat_map(|t| &t.monotasks).any(|m| m.decode > 0.0);
        if decoded && !decodes {
            return Err(Refused::Usage(
                "input=memory-decoded: this trace does not say how long decoding took; it can answer input=memory".into(),
            ));
        }
        let copied = rework::input_in_memory(&mut self.recorded, decoded, COPY_NS_PER_BYTE);
        self.terms.no_input = true;
        self.terms.no_decode |= decoded;
        if decoded {
            self.assume("tables in memory are divided into the same multitasks as their files".into());
        }
        if copied > 0.0 {
            let what = if decoded {
                "gets its input, as many bytes as were read,"
            } else {
                "copies what it decodes"
            };
            self.assume(format!("a core {what} out of memory at {:.0} GB/s", 1.0 / COPY_NS_PER_BYTE));
        }
        Ok(())
    }

    fn scale(&mut self, factor: f64) -> Result<(), Refused> {
        let tasks = self.recorded.tasks.len() as f64 * factor;
        if tasks > 20e6 {
            return Err(Refused::Usage(format!(
                "input.scale={factor}: that would be {tasks:.0} multitasks; too many"
            )));
        }
        rework::scale(&mut self.recorded, factor);
        self.terms.scale *= factor;
        self.assume("all work grows in proportion to the input".into());
        self.doubt = (self.doubt.0 + 0.05, self.doubt.1 + 0.05);
        Ok(())
    }

    fn storage(&mut self, storage: &Storage) -> Result<(), Refused> {
        let points = storage.read.iter().map(|(n, rate)| (f64::from(*n), rate / 1e9));
        let curve = Curve::through(points.collect());
        let writes = self.recorded.tasks.iter().flat_map(|t| &t.monotasks);
        let writes = writes.filter(|m| m.phase == pellucid_trace::Phase::Write).count() > 0;
        let Some(write) = storage.write_bytes_per_s.or((!writes).then_some(curve.most * 1e9)) else {
            return Err(Refused::Failed(format!(
                "{}: this job writes, and writing was not measured; probe again with more time",
                storage.name
            )));
        };
        let reads = rework::has_input(&self.recorded);
        let kind = if storage.is_disk { kind::DISK } else { kind::STORE };
        let first = self.recorded.services.len();
        for machine in 0..self.recorded.machines {
            let probed = Service::probed(&storage.name, kind, machine, curve.clone(), storage.at_once);
            self.recorded.services.push(probed);
        }
        let to: Vec<u32> = (first..self.recorded.services.len()).map(|ix| ix as u32).collect();
        let publish_ns = storage.publish_ns.unwrap_or((0.0, 0.0));
        let requests = Requests {
            first_byte_ns: storage.first_byte_ns,
            work_per_byte_written: curve.most * 1e9 / write,
            // Of uploads whole ones were timed, waits and all.
            written_after_ns: if storage.publish_ns.is_some() { 0 } else { storage.first_byte_ns },
            publish_ns,
        };
        let cached = rework::on_storage(&mut self.recorded, &to, requests);
        let cached = cached.map_err(|name| {
            Refused::Usage(format!(
                "storage: the bytes on {name} were not measured, so that nothing says what another store would have to move"
            ))
        })?;
        self.terms.faster.resize(self.recorded.services.len(), 1.0);
        self.terms.free.resize(self.recorded.services.len(), false);
        let (name, read, write) = (storage.name.clone(), curve.most, 1.0 / (1e9 / write + publish_ns.1));
        self.terms.elsewhere = Some(Elsewhere { resource: first, name, kind, read, write });
        self.assume(format!(
            "input comes from {} and output goes there, as fast as they did when it was probed",
            storage.name
        ));
        if storage.read_just_written && reads {
            self.assume(
                "the probe read back what it had just written: input that the store has to bring from its disks may \
                 come slower (`storage probe --read`)"
                    .into(),
            );
        }
        if cached >= 1e6 {
            self.assume(format!("{:.0} MB that the page cache held are read from there, too", cached / 1e6));
        }
        self.doubt = (self.doubt.0 + PROBE_DOUBT, self.doubt.1 + PROBE_DOUBT);
        Ok(())
    }

    fn no(&mut self, what: &str) -> Result<(), Refused> {
        let of_kind = self.of_kind(what);
        if of_kind.is_empty() {
            let kinds: BTreeSet<&str> = self.recorded.services.iter().map(|s| s.kind.as_str()).collect();
            let kinds: Vec<String> = kinds.iter().map(|k| format!("no={k}")).collect();
            let why = if is_part(what) {
                format!("no={what} is for Spark's logs, whose tasks say it")
            } else {
                format!("no={what}: this trace has no resource of that kind")
            };
            return Err(Refused::Usage(format!("{why}; this trace can answer {}", kinds.join(", "))));
        }
        for ix in of_kind {
            self.terms.free[ix] = true;
        }
        rework::read_for_free(&mut self.recorded, &self.terms.free);
        Ok(())
    }
}
