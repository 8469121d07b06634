//! Changes to the work of a recorded job: the placement of bytes, the division into multitasks, removed
//! parts.

use std::collections::BTreeSet;
use std::sync::Arc;

use pellucid_trace::{Phase, kind};

use super::recorded::{Mono, Recorded, Submission, Task};
use super::service::Service;
use crate::index::{Ix, MachineIx, MultitaskIx, ResourceIx, StageIx, Table};
use crate::whatif::Amount;

/// Maximum multitasks that are simulated one by one; more are bundled.
const MAX_TASKS: usize = 60_000;
/// Minimum bundles of a stage; with fewer its multitasks are simulated one by one.
const MIN_BUNDLES: usize = 500;

/// Spreads the bytes of each machine's disks evenly over `wanted` disks like its first.
pub(crate) fn spread_over_disks(
    recorded: &mut Recorded,
    machines: &BTreeSet<MachineIx>,
    used: &[ResourceIx],
    wanted: usize,
) {
    for machine in machines {
        let of_machine = used.iter().copied();
        let mut disks: Vec<ResourceIx> =
            of_machine.filter(|ix| recorded.services[*ix].machine == *machine).collect();
        while disks.len() < wanted {
            let mut service = recorded.services[disks[0]].clone();
            service.name = format!("{} ({})", service.name, disks.len() + 1);
            disks.push(recorded.services.push(service));
        }
        disks.truncate(wanted);
        // Each goes to the least loaded disk: in round robin, large ones could meet on one disk.
        let mut work: Vec<f64> = vec![0.0; wanted];
        for task in Arc::make_mut(&mut recorded.tasks).iter_mut().filter(|t| t.machine == *machine) {
            let on_disk = task.monotasks.iter_mut();
            for monotask in on_disk.filter(|m| recorded.services[m.resource].kind == kind::DISK) {
                let least = (0..wanted).min_by(|a, b| work[*a].total_cmp(&work[*b])).unwrap_or(0);
                work[least] += monotask.work;
                monotask.resource = disks[least];
            }
        }
    }
}

/// Divides stages after exchanges into another number of multitasks. Returns how many stages changed.
pub(crate) fn partitions(recorded: &mut Recorded, amount: Amount) -> usize {
    let mut changed = 0;
    let by_stage = by_stage(recorded);
    let mut tasks = Table::default();
    for (stage, of_stage) in by_stage.rows() {
        let exchanged = !recorded.stages[stage].after.is_empty();
        let reads = of_stage.iter().any(|t| t.monotasks.iter().any(|m| brings_in(m.phase)));
        let parts = of_stage.len();
        if !exchanged || reads || parts < 2 || any_submitted_by_others(of_stage) {
            tasks.push(of_stage.clone());
            continue;
        }
        let wanted = amount.of(Some(parts as f64)).unwrap_or(parts as f64).round().clamp(1.0, 1e6);
        tasks.push(divide(of_stage, wanted as usize));
        changed += 1;
    }
    replace_tasks(recorded, tasks);
    changed
}

/// Divides one stage into another number of multitasks. Returns false if that is not possible.
pub(crate) fn multitasks(recorded: &mut Recorded, stage: StageIx, amount: Amount) -> bool {
    let mut tasks = by_stage(recorded);
    let of_stage = &mut tasks[stage];
    if of_stage.is_empty() || any_submitted_by_others(of_stage) {
        return false;
    }
    let parts = of_stage.len() as f64;
    let wanted = amount.of(Some(parts)).unwrap_or(parts).round().clamp(1.0, 1e6);
    *of_stage = divide(of_stage, wanted as usize);
    replace_tasks(recorded, tasks);
    true
}

/// Scales the input: more multitasks where it is read, larger ones elsewhere.
pub(crate) fn scale(recorded: &mut Recorded, factor: f64) {
    let by_stage = by_stage(recorded);
    let mut tasks = Table::default();
    for (stage, of_stage) in by_stage.rows() {
        let reads = |t: &Task| t.monotasks.iter().any(|m| brings_in(m.phase) || m.cached_bytes > 0.0);
        let first = recorded.stages[stage].after.is_empty() || of_stage.iter().any(reads);
        let count = (of_stage.len() as f64 * factor).round().max(1.0) as usize;
        let mut scaled = if first && !of_stage.is_empty() && !any_submitted_by_others(of_stage) {
            divide(of_stage, count)
        } else {
            of_stage.clone()
        };
        for task in &mut scaled {
            task.memory_bytes = (task.memory_bytes as f64 * factor) as u64;
            task.monotasks.iter_mut().for_each(|m| times(m, factor));
        }
        tasks.push(scaled);
    }
    replace_tasks(recorded, tasks);
}

/// Removes reads and fetches of input and, if `decoded`, its decoding. A core then copies it from memory
/// at `copy_ns` per byte: to decode it or, if it is already decoded, on first use, since operators
/// otherwise find decoded data in the core's caches. Returns the bytes that had been read.
pub(crate) fn input_in_memory(recorded: &mut Recorded, decoded: bool, copy_ns: f64) -> f64 {
    let mut copied = 0.0;
    let mut kept = Table::<MultitaskIx, _>::default();
    for task in Arc::make_mut(&mut recorded.tasks) {
        let input: Vec<bool> = task.monotasks.iter().map(|m| is_input(m, &recorded.services)).collect();
        if input.contains(&true) {
            remove_waits(task);
        }
        let bytes: f64 = task
            .monotasks
            .iter()
            .zip(&input)
            .filter(|(m, input)| **input && !recorded.services[m.resource].own_pace)
            .map(|(m, _)| m.work)
            .sum();
        let computes = task.monotasks.iter().filter(|m| m.phase == Phase::Compute).count().max(1) as f64;
        for monotask in task.monotasks.iter_mut().filter(|m| m.phase == Phase::Compute) {
            if decoded {
                monotask.work -= std::mem::take(&mut monotask.decode);
            } else {
                monotask.decode += bytes / computes * copy_ns;
            }
            monotask.work += bytes / computes * copy_ns;
            copied += bytes / computes;
        }
        kept.push(drop_monotasks(task, &input));
    }
    renumber_submitters(recorded, &kept);
    copied
}

/// Returns the work on each resource, and on each link what crosses it.
pub(crate) fn work(recorded: &Recorded) -> Table<ResourceIx, f64> {
    let mut work = Table::<ResourceIx, f64>::filled(recorded.services.len(), 0.0);
    for monotask in recorded.tasks.iter().flat_map(|task| &task.monotasks) {
        work[monotask.resource] += monotask.work;
        if let Some(link) = recorded.services[monotask.resource].link.and_then(|link| work.get_mut(link)) {
            *link += monotask.work;
        }
    }
    work
}

/// Multiplies the bytes that a stage reads.
pub(crate) fn scale_input(recorded: &mut Recorded, stage: StageIx, factor: f64) {
    let services = &recorded.services;
    for task in Arc::make_mut(&mut recorded.tasks).iter_mut().filter(|task| task.stage == stage) {
        for monotask in &mut task.monotasks {
            monotask.cached_bytes *= factor;
            if is_read(monotask, services) {
                monotask.work *= factor;
            }
        }
    }
}

/// Drops the monotasks of each multitask that `goes` is true for.
pub(crate) fn drop_each(recorded: &mut Recorded, goes: impl Fn(&Task, &Mono) -> bool) {
    let mut kept = Table::<MultitaskIx, _>::default();
    for task in Arc::make_mut(&mut recorded.tasks) {
        let gone: Vec<bool> = task.monotasks.iter().map(|monotask| goes(task, monotask)).collect();
        kept.push(drop_monotasks(task, &gone));
    }
    renumber_submitters(recorded, &kept);
}

/// Updates the indices of submitting monotasks after some were dropped.
fn renumber_submitters(recorded: &mut Recorded, kept: &Table<MultitaskIx, Vec<Option<u32>>>) {
    for task in Arc::make_mut(&mut recorded.tasks) {
        if let Submission::During { multitask, monotask, .. } = &mut task.submission
            && let Some(place) = kept[*multitask].get(*monotask as usize).copied().flatten()
        {
            *monotask = place;
        }
    }
}

/// Costs of requests to another storage.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Requests {
    /// A read's time to the first byte.
    pub first_byte_ns: u64,
    /// Work per byte written, in bytes read.
    pub work_per_byte_written: f64,
    /// A write's time before its bytes flow.
    pub written_after_ns: u64,
    /// Time to assemble an output from its parts: per output, and per byte.
    pub publish_ns: (f64, f64),
}

/// Moves input and output to resource `to` of each machine. Input that was in the page cache is read from
/// there too. A write of zero bytes publishes an output; outputs share the bytes equally. Returns the
/// number of cached bytes.
///
/// # Errors
/// Returns the name of a resource whose bytes were not measured.
pub(crate) fn on_storage(
    recorded: &mut Recorded,
    to: &[ResourceIx],
    requests: Requests,
) -> Result<f64, String> {
    let publish_ns = publish_ns(recorded, requests.publish_ns);
    let (services, tasks) = (&recorded.services, Arc::make_mut(&mut recorded.tasks));
    let mut all_cached = 0.0;
    let mut shifted = Table::<MultitaskIx, _>::filled(tasks.len(), false);
    for (task, shifted) in tasks.iter_mut().zip(&mut shifted) {
        let resource = to[task.machine.at().min(to.len() - 1)];
        let phase = if services[resource].kind == kind::STORE { Phase::Fetch } else { Phase::Read };
        let mut input = None;
        for (place, monotask) in task.monotasks.iter_mut().enumerate() {
            let service = &services[monotask.resource];
            let reads = is_input(monotask, services);
            let writes = monotask.phase == Phase::Write && !service.timed;
            if !(reads || writes) {
                continue;
            }
            if service.own_pace {
                return Err(service.name.clone());
            }
            monotask.resource = resource;
            monotask.lag_ns = match (reads, monotask.work > 0.0) {
                (true, _) => requests.first_byte_ns,
                (false, true) => requests.written_after_ns,
                (false, false) => publish_ns,
            };
            if reads {
                monotask.phase = phase;
                input.get_or_insert(place);
            } else {
                monotask.work *= requests.work_per_byte_written;
            }
        }
        let cached: f64 = task.monotasks.iter_mut().map(|m| std::mem::take(&mut m.cached_bytes)).sum();
        all_cached += cached;
        match input {
            Some(place) => task.monotasks[place].work += cached,
            None if cached > 0.0 => {
                *shifted = true;
                read_first(task, Mono { lag_ns: requests.first_byte_ns, ..read_of(resource, phase, cached) });
            }
            None => {}
        }
    }
    // Indices of submitting monotasks may have changed.
    for task in tasks {
        if let Submission::During { multitask, monotask, .. } = &mut task.submission {
            *monotask += u32::from(shifted.get(*multitask) == Some(&true));
        }
    }
    Ok(all_cached)
}

/// Returns the time to publish each output.
fn publish_ns(recorded: &Recorded, (each, of_a_byte): (f64, f64)) -> u64 {
    let writes = recorded.tasks.iter().flat_map(|t| &t.monotasks).filter(|m| m.phase == Phase::Write);
    let writes = writes.filter(|m| !recorded.services[m.resource].timed);
    let (outputs, bytes) = writes.fold((0.0, 0.0), |(outputs, bytes), m| match m.work > 0.0 {
        true => (outputs, bytes + m.work),
        false => (outputs + 1.0, bytes),
    });
    (each + of_a_byte * bytes / f64::max(outputs, 1.0)) as u64
}

fn read_of(resource: ResourceIx, phase: Phase, bytes: f64) -> Mono {
    Mono {
        resource,
        phase,
        work: bytes,
        decode: 0.0,
        waits: 0.0,
        cached_bytes: 0.0,
        lag_ns: 0,
        spills: false,
        after: Vec::new(),
    }
}

/// Inserts a read before everything else in a multitask.
fn read_first(task: &mut Task, read: Mono) {
    for monotask in &mut task.monotasks {
        monotask.after.iter_mut().for_each(|place| *place += 1);
        if monotask.after.is_empty() {
            monotask.after.push(0);
        }
    }
    task.monotasks.insert(0, read);
}

/// Scales the driver's time (planning, waking, ending), since its thread gets another share of a core.
/// Time between jobs belongs to the user's program.
pub(crate) fn scale_driver(recorded: &mut Recorded, factor: f64) {
    let times = |ns: &mut u64| *ns = (*ns as f64 * factor) as u64;
    recorded.jobs.iter_mut().for_each(|job| times(&mut job.tail_ns));
    recorded.stages.iter_mut().for_each(|stage| times(&mut stage.gap_ns));
    for task in Arc::make_mut(&mut recorded.tasks) {
        times(&mut task.plan_ns);
        if let Submission::WithStage(ns) | Submission::AfterStage(ns) = &mut task.submission {
            times(ns);
        }
        task.monotasks.iter_mut().for_each(|monotask| times(&mut monotask.lag_ns));
    }
}

/// Removes the disturbance of cores by reads from resources that take no time.
pub(crate) fn read_for_free(recorded: &mut Recorded, free: &Table<ResourceIx, bool>) {
    for task in Arc::make_mut(&mut recorded.tasks) {
        let services = &recorded.services;
        let reads = |m: &Mono| free[m.resource] && is_read(m, services);
        if task.monotasks.iter().any(reads) {
            remove_waits(task);
        }
    }
}

/// Removes the waits for a core from a multitask's computing.
fn remove_waits(task: &mut Task) {
    for monotask in task.monotasks.iter_mut().filter(|m| m.phase == Phase::Compute && m.work > 0.0) {
        let runs = 1.0 - monotask.waits / monotask.work;
        monotask.work *= runs;
        monotask.decode *= runs;
        monotask.waits = 0.0;
    }
}

/// Drops monotasks, passing their dependencies on to those that depend on them. Returns the new indices
/// of the others.
fn drop_monotasks(task: &mut Task, drop: &[bool]) -> Vec<Option<u32>> {
    let mut places: Vec<Option<u32>> = Vec::with_capacity(drop.len());
    let mut count = 0;
    for gone in drop {
        places.push((!gone).then_some(count));
        count += u32::from(!gone);
    }
    if count as usize == drop.len() {
        return places;
    }
    // Dependencies are earlier monotasks, so theirs are settled already.
    let mut settled: Vec<Vec<u32>> = Vec::with_capacity(drop.len());
    for monotask in &task.monotasks {
        let mut after: Vec<u32> = Vec::new();
        for before in &monotask.after {
            match places[*before as usize] {
                Some(place) => after.push(place),
                None => after.extend_from_slice(&settled[*before as usize]),
            }
        }
        after.sort_unstable();
        after.dedup();
        settled.push(after);
    }
    let monotasks = std::mem::take(&mut task.monotasks).into_iter().zip(settled).zip(drop);
    task.monotasks = monotasks
        .filter(|(_, gone)| !**gone)
        .map(|((monotask, after), _)| Mono { after, ..monotask })
        .collect();
    places
}

/// Changes the machines. New ones have the resources of the present ones in turn, multitasks are assigned
/// in round robin, and network bytes are scaled by `crossing`.
pub(crate) fn machines(recorded: &mut Recorded, wanted: u32, crossing: f64) {
    let before = recorded.machines;
    let own = |machine: MachineIx| -> Vec<ResourceIx> {
        let of_machine = recorded.services.rows().filter(|(_, s)| s.machine == machine);
        of_machine.map(|(ix, _)| ix).collect()
    };
    let templates: Table<MachineIx, Vec<ResourceIx>> = recorded.machines().map(own).collect();
    let kept = templates.rows().filter(|(machine, _)| machine.0 < wanted);
    let mut by_machine: Table<MachineIx, Vec<ResourceIx>> = kept.map(|(_, own)| own.clone()).collect();
    for machine in before..wanted {
        let template_machine = MachineIx(machine % before);
        let template = &templates[template_machine];
        let first = recorded.services.len();
        for ix in template {
            let mut service = recorded.services[*ix].clone();
            service.machine = MachineIx(machine);
            let place = |link| template.iter().position(|t| *t == link).map(|p| ResourceIx::new(first + p));
            service.link = service.link.and_then(place);
            recorded.services.push(service);
        }
        by_machine.push((first..recorded.services.len()).map(ResourceIx::new).collect());
        let memory = recorded.memory_bytes.get(template_machine).copied().flatten();
        recorded.memory_bytes.push(memory);
    }
    let turns = (0..wanted).map(MachineIx).cycle();
    for (task, to) in Arc::make_mut(&mut recorded.tasks).iter_mut().zip(turns) {
        let from = std::mem::replace(&mut task.machine, to);
        for monotask in &mut task.monotasks {
            let service = &recorded.services[monotask.resource];
            if service.kind == kind::NETWORK {
                times(monotask, crossing);
            }
            let of_kind = |ix: &&ResourceIx| recorded.services[**ix].kind == service.kind;
            let ordinal = templates[from].iter().filter(of_kind).position(|ix| *ix == monotask.resource);
            let there: Vec<ResourceIx> = by_machine[to].iter().filter(of_kind).copied().collect();
            if let (Some(ordinal), false) = (ordinal, there.is_empty()) {
                monotask.resource = there[ordinal % there.len()];
            }
        }
    }
    recorded.machines = wanted;
}

/// Returns true if anything is read from a disk or store, or was in the page cache.
pub(crate) fn has_input(recorded: &Recorded) -> bool {
    let mut monotasks = recorded.tasks.iter().flat_map(|t| &t.monotasks);
    monotasks.any(|m| m.cached_bytes > 0.0 || is_input(m, &recorded.services))
}

/// Returns true for reads of input: fetches from a store are input, fetches from another machine are exchanges.
pub(crate) fn is_input(monotask: &Mono, services: &Table<ResourceIx, Service>) -> bool {
    is_read(monotask, services) && !monotask.spills
}

/// Returns true for reads of input, or of what was spilled.
fn is_read(monotask: &Mono, services: &Table<ResourceIx, Service>) -> bool {
    let stored = || services[monotask.resource].kind == kind::STORE;
    monotask.phase == Phase::Read || (monotask.phase == Phase::Fetch && stored())
}

/// Bundles neighbouring multitasks of large stages if there are more than [`MAX_TASKS`] in all. With so
/// many, the difference in concurrency is not visible, and a million monotasks are simulated in a second.
pub(crate) fn bundle(recorded: &mut Recorded) {
    let each = recorded.tasks.len().div_ceil(MAX_TASKS);
    if each < 2 {
        return;
    }
    let mut by_stage: Table<StageIx, Vec<Task>> = recorded.stages.iter().map(|_| Vec::new()).collect();
    let tasks = Arc::make_mut(&mut recorded.tasks);
    for task in std::mem::take(tasks) {
        by_stage[task.stage].push(task);
    }
    if by_stage.iter().any(|tasks| any_submitted_by_others(tasks)) {
        // Submitters are identified by index, so such jobs are not bundled.
        tasks.extend(by_stage.into_iter().flatten());
        return;
    }
    for of_stage in by_stage {
        let whole = of_stage.len() < each * MIN_BUNDLES;
        let mut last: Option<(Task, usize)> = None;
        for task in of_stage {
            match &mut last {
                Some((bundle, of)) if !whole && *of < each && alike(bundle, &task) => {
                    add(bundle, &task);
                    *of += 1;
                }
                _ => tasks.extend(last.replace((task, 1)).map(|(bundle, _)| bundle)),
            }
        }
        tasks.extend(last.map(|(bundle, _)| bundle));
    }
}

/// Returns true if both have the same monotasks on the same resources in the same order.
fn alike(a: &Task, b: &Task) -> bool {
    let same = |(a, b): (&Mono, &Mono)| a.resource == b.resource && a.phase == b.phase && a.after == b.after;
    a.machine == b.machine
        && a.monotasks.len() == b.monotasks.len()
        && a.monotasks.iter().zip(&b.monotasks).all(same)
}

fn add(bundle: &mut Task, task: &Task) {
    bundle.plan_ns += task.plan_ns;
    bundle.memory_bytes = bundle.memory_bytes.max(task.memory_bytes);
    for (all, one) in bundle.monotasks.iter_mut().zip(&task.monotasks) {
        all.work += one.work;
        all.decode += one.decode;
        all.waits += one.waits;
        all.cached_bytes += one.cached_bytes;
        all.lag_ns += one.lag_ns;
    }
}

pub(crate) fn brings_in(phase: Phase) -> bool {
    matches!(phase, Phase::Read | Phase::Fetch)
}

/// Returns true if some are submitted by others, by index, so that their number cannot change.
fn any_submitted_by_others(tasks: &[Task]) -> bool {
    tasks.iter().any(submitted_by_others)
}

/// Returns true for a multitask that others submit.
pub(crate) fn submitted_by_others(task: &Task) -> bool {
    !matches!(task.submission, Submission::WithStage(_))
}

pub(crate) fn times(monotask: &mut Mono, factor: f64) {
    monotask.work *= factor;
    monotask.decode *= factor;
    monotask.waits *= factor;
    monotask.cached_bytes *= factor;
}

/// Returns the multitasks by stage.
pub(crate) fn by_stage(recorded: &Recorded) -> Table<StageIx, Vec<Task>> {
    let mut by_stage = Table::<StageIx, Vec<Task>>::filled(recorded.stages.len(), Vec::new());
    for task in recorded.tasks.iter() {
        by_stage[task.stage].push(task.clone());
    }
    by_stage
}

/// Replaces all multitasks, stage by stage, and updates the indices of submitters.
pub(crate) fn replace_tasks(recorded: &mut Recorded, by_stage: Table<StageIx, Vec<Task>>) {
    let mut moved = Table::<MultitaskIx, _>::filled(recorded.tasks.len(), MultitaskIx(0));
    let mut at = 0;
    let mut kept = Table::<StageIx, Vec<MultitaskIx>>::filled(by_stage.len(), Vec::new());
    for (ix, task) in recorded.tasks.rows() {
        kept[task.stage].push(ix);
    }
    for (stage, tasks) in by_stage.rows() {
        for (place, ix) in kept[stage].iter().enumerate() {
            moved[*ix] = MultitaskIx::new(at + place);
        }
        at += tasks.len();
    }
    recorded.tasks = Arc::new(by_stage.into_iter().flatten().collect());
    for task in Arc::make_mut(&mut recorded.tasks) {
        if let Submission::During { multitask, .. } = &mut task.submission {
            *multitask = moved[*multitask];
        }
    }
}

/// Divides the work into `wanted` multitasks. Each takes its share of those at its position, so that
/// large ones stay large.
fn divide(tasks: &[Task], wanted: usize) -> Vec<Task> {
    let (n, m) = (tasks.len() as f64, wanted as f64);
    let total =
        |t: &Task| t.monotasks.iter().filter(|m| m.phase == Phase::Compute).map(|m| m.work).sum::<f64>();
    (0..wanted)
        .map(|j| {
            let (from, to) = (j as f64 * n / m, (j + 1) as f64 * n / m);
            let template = &tasks[(((from + to) / 2.0) as usize).min(tasks.len() - 1)];
            let mut work = 0.0;
            for (place, task) in tasks.iter().enumerate().take(to.ceil() as usize).skip(from as usize) {
                let overlap = to.min(place as f64 + 1.0) - from.max(place as f64);
                work += total(task) * overlap.max(0.0);
            }
            let own = total(template);
            // Without computing as a measure, each multitask is the same share of its template.
            let factor = if own > 0.0 { work / own } else { n / m };
            let mut task = template.clone();
            task.memory_bytes = (task.memory_bytes as f64 * factor) as u64;
            task.monotasks.iter_mut().for_each(|m| times(m, factor));
            task
        })
        .collect()
}
