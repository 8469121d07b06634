//! A recorded job under changes: other resources, other work, and the assumptions made.
//!
//! Both predictors start from here. The simulated one runs the changed [`Recorded`]; the analytic one
//! uses the [`Terms`], the same changes as factors on ideal times. A key that the trace does not support
//! is rejected, with the keys that it does.

use std::collections::BTreeSet;

use pellucid_trace::{Phase, kind};

use super::curve::Curve;
use super::operators::exchanges;
use super::recorded::{Mono, Recorded};
use super::rework::{self, Requests};
use super::rows::Reach;
use super::service::{Service, core_curve};
use crate::index::{MachineIx, ResourceIx, Table};
use crate::whatif::{Amount, Change, Changes, InputFrom, Needs, Storage, WhatIfError, is_part, of_monotasks};

/// Assumed time for a core to copy a byte from memory, in nanoseconds; the trace does not show it.
const COPY_NS_PER_BYTE: f64 = 0.25;

/// Changes as factors on ideal times.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    /// Rate of each resource after the changes, relative to before.
    pub faster: Table<ResourceIx, f64>,
    /// Resources that take no time.
    pub free: Table<ResourceIx, bool>,
    /// Disks per machine if changed; bytes are then spread evenly over them.
    pub disks: Option<usize>,
    /// Reads and fetches of input are removed.
    pub no_input: bool,
    /// Decoding is removed.
    pub no_decode: bool,
    /// Factor on the work.
    pub scale: f64,
    /// Machines after the changes, relative to before.
    pub machines: f64,
    /// Factor on the bytes that cross links between machines.
    pub crossing: f64,
    /// The storage that input and output move to.
    pub storage: Option<OtherStorage>,
}

/// A store or disk that a job's input and output move to.
#[derive(Debug, Clone)]
pub(crate) struct OtherStorage {
    /// The first machine's connection to it.
    pub resource: ResourceIx,
    pub name: String,
    pub kind: &'static str,
    /// Bytes per nanosecond and machine.
    pub read: f64,
    pub write: f64,
}

/// Uncertainty of a probe: a store may differ by this much at another time, or with other objects.
const PROBE_UNCERTAINTY: f64 = 0.1;

/// A recorded job under changes.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub recorded: Recorded,
    pub terms: Terms,
    /// In words.
    pub assumptions: Vec<String>,
    /// Uncertainty of the assumptions, as shares of the prediction: faster and slower.
    pub uncertainty: (f64, f64),
    pub reach: Reach,
    /// True if the changes depend on their reach.
    pub reaches: bool,
}

impl Scenario {
    /// Returns the terms of the unchanged job.
    pub fn terms(recorded: &Recorded) -> Terms {
        let resources = recorded.services.len();
        Terms {
            faster: Table::filled(resources, 1.0),
            free: Table::filled(resources, false),
            disks: None,
            no_input: false,
            no_decode: false,
            scale: 1.0,
            machines: 1.0,
            crossing: 1.0,
            storage: None,
        }
    }

    /// Applies changes to the job.
    ///
    /// # Errors
    /// Returns an error for a change that the trace does not support; the message names those it does.
    pub fn of(recorded: &Recorded, changes: &Changes, reach: Reach) -> Result<Scenario, WhatIfError> {
        let mut scenario = Scenario {
            recorded: recorded.clone(),
            terms: Scenario::terms(recorded),
            assumptions: Vec::new(),
            uncertainty: (0.0, 0.0),
            reach,
            reaches: false,
        };
        for setting in changes.settings() {
            scenario.apply(&setting.key, &setting.change)?;
        }
        Ok(scenario)
    }

    fn apply(&mut self, key: &str, change: &Change) -> Result<(), WhatIfError> {
        match change {
            Change::Cores(amount) => self.cores(*amount),
            Change::Disks(amount) => self.disks(*amount),
            Change::DiskRate(name, amount) => self.rate("disk.rate", kind::DISK, name.as_deref(), *amount),
            Change::NetworkRate(amount) => self.rate("network.rate", kind::NETWORK, None, *amount),
            Change::StoreRate(amount) => self.rate("store.rate", kind::STORE, None, *amount),
            Change::Concurrency(kind, amount) => self.concurrency(kind, *amount),
            Change::Memory(amount) => self.memory(*amount),
            Change::Partitions(amount) => self.partitions(*amount),
            Change::Machines(amount) => self.machines(key, *amount),
            Change::Executors(_) | Change::ExecutorCores(_) | Change::IdleTimeout(_) => {
                Err(self.unsupported("executors belong to Spark; this trace has none"))
            }
            Change::Input(from) => self.input(*from),
            Change::InputScale(factor) => self.scale(*factor),
            Change::OperatorTime(number, factor) => self.operator_time(number, *factor),
            Change::OperatorBytes(number, factor) => self.operator_bytes(number, *factor),
            Change::OperatorMultitasks(number, amount) => self.operator_multitasks(number, *amount),
            Change::DecodeTime(factor) => self.decode_time(*factor),
            Change::Rows(number, factor) => self.rows(number, *factor),
            Change::NoExchange(number) => self.no_exchange(number),
            Change::Columns(table, kept) => self.columns(table, kept),
            Change::Storage(storage) => self.storage(storage),
            Change::No(what) => self.remove(what),
        }
    }

    /// Returns the resources of a kind.
    fn of_kind(&self, kind: &str) -> Vec<ResourceIx> {
        let services = self.recorded.services.rows();
        services.filter(|(_, s)| s.kind == kind).map(|(ix, _)| ix).collect()
    }

    /// Builds an error that ends with the keys this trace supports.
    pub(super) fn unsupported(&self, why: &str) -> WhatIfError {
        let has = |kind: &str| self.recorded.services.iter().any(|s| s.kind == kind);
        let divided = rework::partitions(&mut self.recorded.clone(), Amount::Times(1.0)) > 0;
        let there = |needs: Needs| match needs {
            Needs::Cores => has(kind::CPU),
            Needs::Disk => has(kind::DISK),
            Needs::Network => has(kind::NETWORK),
            Needs::Store => has(kind::STORE),
            Needs::Exchange => divided,
            Needs::Machines => self.recorded.machines > 1,
            Needs::Operators => !self.recorded.operators.is_empty(),
            Needs::ExchangeOperators => exchanges(&self.recorded.operators).next().is_some(),
            Needs::Decoding => self.decodes(),
            Needs::Columns => self.recorded.operators.iter().any(|o| !o.columns.is_empty()),
            Needs::Anything => true,
        };
        let keys = of_monotasks(there);
        WhatIfError::Usage(format!("{why}; this trace can answer {}", keys.join(", ")))
    }

    /// Extends the terms to resources that were added.
    fn add_terms(&mut self) {
        let resources = self.recorded.services.len();
        self.terms.faster.resize(resources, 1.0);
        self.terms.free.resize(resources, false);
    }

    pub(super) fn assume(&mut self, words: String) {
        if !self.assumptions.contains(&words) {
            self.assumptions.push(words);
        }
    }

    fn cores(&mut self, amount: Amount) -> Result<(), WhatIfError> {
        let of_kind = self.of_kind(kind::CPU);
        if of_kind.is_empty() {
            return Err(WhatIfError::Usage("cores: this trace has no cores".into()));
        }
        let mut driver = 1.0;
        for ix in of_kind {
            let service = &mut self.recorded.services[ix];
            let before = service.capacity.rate.unwrap_or_else(|| f64::from(service.max_concurrency));
            let cores = amount.of(Some(before)).unwrap_or(before);
            self.terms.faster[ix] *= cores / before;
            // Short work passes a quota unhindered unless computing has used it up. More cores therefore
            // help the driver, while a new quota does not slow it.
            driver = if before < 1.0 { before / cores.min(1.0) } else { 1.0 };
            service.max_concurrency = cores.ceil().max(1.0) as u32;
            service.curve = core_curve(cores, service.slowdown.unwrap_or(0.0));
            service.capacity.rate = Some(cores);
            let unknown = service.slowdown.is_none() && cores != before;
            if unknown {
                self.assume(
                    "busy cores do not slow each other: the trace does not show whether they do".into(),
                );
                // Measured: two cores of one socket slowed each other by up to this share.
                let uncertainty = 0.04;
                if cores < before {
                    self.uncertainty.0 += uncertainty
                } else {
                    self.uncertainty.1 += uncertainty
                }
            }
        }
        if driver != 1.0 {
            rework::scale_driver(&mut self.recorded, driver);
            self.assume("the driver's work speeds up with its thread's share of a core".into());
        }
        self.assume("the job has the same multitasks on any number of cores".into());
        Ok(())
    }

    fn rate(&mut self, key: &str, kind: &str, name: Option<&str>, amount: Amount) -> Result<(), WhatIfError> {
        let mut of_kind = self.of_kind(kind);
        if of_kind.is_empty() {
            return Err(self.unsupported(&format!("{key}: this trace has no {kind}")));
        }
        if let Some(name) = name {
            let names: Vec<String> =
                of_kind.iter().map(|ix| self.recorded.services[*ix].name.clone()).collect();
            of_kind.retain(|ix| self.recorded.services[*ix].name == name);
            if of_kind.is_empty() {
                return Err(WhatIfError::Usage(format!(
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

    fn one_rate(&mut self, key: &str, ix: ResourceIx, amount: Amount) -> Result<(), WhatIfError> {
        let stores = self.recorded.services.iter().any(|s| s.link == Some(ix));
        let used = self.terms.faster.get(ix).is_some() && self.uses(ix);
        let service = &mut self.recorded.services[ix];
        let known = service.capacity.rate.filter(|_| !service.own_pace).map(|rate| rate * 1e9);
        let shows = !service.own_pace && used && service.curve.is_known();
        let per_s = known.or(shows.then_some(service.curve.max * 1e9));
        let Some(rate) = amount.of(per_s) else {
            let way_out = if stores { "set an absolute rate, or store.rate" } else { "set an absolute rate" };
            return Err(WhatIfError::Usage(format!(
                "{key}: the trace does not say how fast {} is, so a relative rate is undefined; {way_out}",
                service.name
            )));
        };
        let name = service.name.clone();
        let factor = match per_s {
            Some(before) => rate / before,
            None if service.own_pace => {
                return Err(WhatIfError::Usage(format!(
                    "{key}: the bytes on {name} were not measured, so the rate must be relative, \
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
                "{name} has {:.0} MB/s now: observed in the trace, not set or probed",
                before / 1e6
            ));
        }
        if factor > 1.0 {
            self.assume(format!("everything behind {name} keeps up with its new rate"));
        }
        Ok(())
    }

    /// Returns true if some monotask runs on a resource, or crosses it.
    fn uses(&self, ix: ResourceIx) -> bool {
        let on = |resource| resource == ix || self.recorded.services[resource].link == Some(ix);
        self.recorded.tasks.iter().any(|t| t.monotasks.iter().any(|m| on(m.resource)))
    }

    fn concurrency(&mut self, kind: &str, amount: Amount) -> Result<(), WhatIfError> {
        if kind == kind::CPU {
            return self.cores(amount);
        }
        let of_kind = self.of_kind(kind);
        if of_kind.is_empty() {
            let kinds: BTreeSet<&str> = self.recorded.services.iter().map(|s| s.kind.as_str()).collect();
            let kinds: Vec<&str> = kinds.into_iter().collect();
            return Err(WhatIfError::Usage(format!(
                "concurrency.{kind}: this trace has no resource of that kind; it has {}",
                kinds.join(", ")
            )));
        }
        for ix in of_kind {
            let service = &mut self.recorded.services[ix];
            let n = amount.of(Some(f64::from(service.max_concurrency))).unwrap_or(1.0).round().max(1.0);
            service.max_concurrency = n as u32;
            service.adapts = false;
            if service.capacity.from.as_deref() != Some("set") {
                let name = service.name.clone();
                self.assume(format!(
                    "{name} serves {n:.0} at once at the rate observed for the nearest concurrency"
                ));
                self.uncertainty = (self.uncertainty.0 + 0.02, self.uncertainty.1 + 0.02);
            }
        }
        Ok(())
    }

    fn disks(&mut self, amount: Amount) -> Result<(), WhatIfError> {
        let of_kind = self.of_kind(kind::DISK);
        if of_kind.is_empty() {
            return Err(self.unsupported("disks: this trace has no disk"));
        }
        let used: Vec<ResourceIx> = of_kind.into_iter().filter(|ix| self.uses(*ix)).collect();
        if used.is_empty() {
            self.assume("no disk was read or written, so more disks change nothing".into());
            return Ok(());
        }
        let machines: BTreeSet<MachineIx> =
            used.iter().map(|ix| self.recorded.services[*ix].machine).collect();
        let each = used.len() as f64 / machines.len() as f64;
        let wanted = amount.of(Some(each)).unwrap_or(each).round().max(1.0) as usize;
        if wanted > 1024 {
            return Err(WhatIfError::Usage(format!(
                "disks={wanted}: expected at most 1024 disks per machine"
            )));
        }
        rework::spread_over_disks(&mut self.recorded, &machines, &used, wanted);
        self.add_terms();
        self.terms.disks = Some(wanted);
        self.assume(format!("bytes are spread evenly over {wanted} disks per machine, each like {}", {
            &self.recorded.services[used[0]].name
        }));
        Ok(())
    }

    fn partitions(&mut self, amount: Amount) -> Result<(), WhatIfError> {
        if rework::partitions(&mut self.recorded, amount) == 0 {
            return Err(self.unsupported(
                "partitions: this trace has no stage with several partitions after an exchange",
            ));
        }
        self.assume("the work is divided differently; each partition has the recorded overhead".into());
        self.uncertainty = (self.uncertainty.0 + 0.03, self.uncertainty.1 + 0.03);
        Ok(())
    }

    fn machines(&mut self, key: &str, amount: Amount) -> Result<(), WhatIfError> {
        if self.recorded.machines < 2 {
            return Err(self.unsupported(&format!(
                "{key}: this trace is of one machine, which says nothing about a network; set cores"
            )));
        }
        let before = f64::from(self.recorded.machines);
        let after = amount.of(Some(before)).unwrap_or(before).round().max(1.0);
        if after > 1000.0 {
            return Err(WhatIfError::Usage(format!("{key}={after}: expected at most 1000")));
        }
        // Without locality, a share of (N − 1) ÷ N of all bytes is on another machine (§6.4).
        let crossing = (1.0 - 1.0 / after) / (1.0 - 1.0 / before);
        rework::machines(&mut self.recorded, after as u32, crossing);
        self.add_terms();
        self.terms.machines *= after / before;
        self.terms.crossing *= crossing;
        self.assume(format!(
            "multitasks are assigned to machines in turn, and {:.0} % of exchanged bytes cross the network",
            (1.0 - 1.0 / after) * 100.0
        ));
        Ok(())
    }

    fn input(&mut self, from: InputFrom) -> Result<(), WhatIfError> {
        let unknown = |m: &Mono| m.phase == Phase::Spill && !m.spills;
        if self.recorded.tasks.iter().flat_map(|t| &t.monotasks).any(unknown) {
            self.assume("all bytes read count as input: the trace does not separate them from spills".into());
        }
        let decoded = from == InputFrom::MemoryDecoded;
        if decoded && !self.decodes() {
            return Err(WhatIfError::Usage(
                "input=memory-decoded: this trace does not say how long decoding took; use input=memory"
                    .into(),
            ));
        }
        let copied = rework::input_in_memory(&mut self.recorded, decoded, COPY_NS_PER_BYTE);
        self.terms.no_input = true;
        self.terms.no_decode |= decoded;
        if decoded {
            self.assume("tables in memory have the same multitasks as their files".into());
        }
        if copied > 0.0 {
            let what = if decoded {
                "copies its input, as many bytes as were read,"
            } else {
                "copies the input to decode"
            };
            self.assume(format!("a core {what} from memory at {:.0} GB/s", 1.0 / COPY_NS_PER_BYTE));
        }
        Ok(())
    }

    /// Returns true if the trace says how long decoding took.
    pub(super) fn decodes(&self) -> bool {
        self.recorded.tasks.iter().flat_map(|t| &t.monotasks).any(|m| m.decode > 0.0)
    }

    fn scale(&mut self, factor: f64) -> Result<(), WhatIfError> {
        let tasks = self.recorded.tasks.len() as f64 * factor;
        if tasks > 20e6 {
            return Err(WhatIfError::Usage(format!(
                "input.scale={factor}: expected at most 20 million multitasks, not {tasks:.0}"
            )));
        }
        rework::scale(&mut self.recorded, factor);
        self.terms.scale *= factor;
        self.assume("all work scales with the input".into());
        self.uncertainty = (self.uncertainty.0 + 0.05, self.uncertainty.1 + 0.05);
        Ok(())
    }

    fn storage(&mut self, storage: &Storage) -> Result<(), WhatIfError> {
        let points = storage.read.iter().map(|(n, rate)| (f64::from(*n), rate / 1e9));
        let curve = Curve::through(points.collect());
        let writes = self.recorded.tasks.iter().flat_map(|t| &t.monotasks);
        let writes = writes.filter(|m| m.phase == Phase::Write).count() > 0;
        let Some(write) = storage.write_bytes_per_s.or((!writes).then_some(curve.max * 1e9)) else {
            return Err(WhatIfError::Failed(format!(
                "cannot use {}: this job writes, and writing was not measured; probe again with more time",
                storage.name
            )));
        };
        let reads = rework::has_input(&self.recorded);
        let kind = if storage.is_disk { kind::DISK } else { kind::STORE };
        let machines = self.recorded.machines();
        let probed = |machine| Service::probed(&storage.name, kind, machine, curve.clone(), storage.at_once);
        let to: Vec<ResourceIx> =
            machines.map(|machine| self.recorded.services.push(probed(machine))).collect();
        let publish_ns = storage.publish_ns.unwrap_or((0.0, 0.0));
        let requests = Requests {
            first_byte_ns: storage.first_byte_ns,
            work_per_byte_written: curve.max * 1e9 / write,
            // Timed uploads include the wait before the first byte.
            written_after_ns: if storage.publish_ns.is_some() { 0 } else { storage.first_byte_ns },
            publish_ns,
        };
        let cached = rework::on_storage(&mut self.recorded, &to, requests);
        let cached = cached.map_err(|name| {
            WhatIfError::Usage(format!(
                "storage: the bytes on {name} were not measured, so it is unknown how many another store would move"
            ))
        })?;
        self.add_terms();
        let (name, read, write) = (storage.name.clone(), curve.max, 1.0 / (1e9 / write + publish_ns.1));
        self.terms.storage = Some(OtherStorage { resource: to[0], name, kind, read, write });
        self.assume(format!(
            "input comes from {} and output goes there, at the rates of its probe",
            storage.name
        ));
        if storage.read_just_written && reads {
            self.assume(
                "the probe read back what it had just written: input that the store reads from its disks may be slower \
                (`storage probe --read`)"
                    .into(),
            );
        }
        if cached >= 1e6 {
            self.assume(format!(
                "{:.0} MB that were in the page cache are read from there as well",
                cached / 1e6
            ));
        }
        self.uncertainty = (self.uncertainty.0 + PROBE_UNCERTAINTY, self.uncertainty.1 + PROBE_UNCERTAINTY);
        Ok(())
    }

    fn remove(&mut self, what: &str) -> Result<(), WhatIfError> {
        let of_kind = self.of_kind(what);
        if of_kind.is_empty() {
            let kinds: BTreeSet<&str> = self.recorded.services.iter().map(|s| s.kind.as_str()).collect();
            let kinds: Vec<String> = kinds.iter().map(|k| format!("no={k}")).collect();
            let why = if is_part(what) {
                format!("no={what} applies to Spark's event logs only")
            } else {
                format!("no={what}: this trace has no resource of that kind")
            };
            return Err(WhatIfError::Usage(format!("{why}; this trace can answer {}", kinds.join(", "))));
        }
        for ix in of_kind {
            self.terms.free[ix] = true;
        }
        rework::read_for_free(&mut self.recorded, &self.terms.free);
        Ok(())
    }
}
