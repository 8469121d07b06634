//! Tasks with faster or slower disks.
//!
//! A disk that several tasks read from is not waited for by each alone. The kernel reads ahead while they
//! compute, so a disk that is always busy sets their pace: at twice its rate they take half as long, or as
//! long as they compute, whichever is longer. How busy the disk is follows from the waits: it is idle only
//! while none of the concurrent tasks waits. The prediction interpolates between the two laws by that
//! share ([`paced_ms`]). Where the log gives the machine's number of cores (the plugin's does), its tasks
//! compute no faster than those allow: see [`stretched`].

use std::collections::BTreeMap;

use super::contention::stretched;
use crate::index::{Ix, MachineIx, ResourceIx, StageIx};
use crate::numbers::ratio;
use crate::pipelined::blocked::{Without, overhead_ms};
use crate::pipelined::replay::bounds::Replays;
use crate::pipelined::task::{Part, Task};

/// Tasks that run side by side: their stage and machine.
type Group = (StageIx, MachineIx);

/// The durations of a task with other disks, in milliseconds.
pub(super) struct OtherDisks {
    /// If the change has its smallest effect.
    pub least: f64,
    /// If it has its largest.
    pub most: f64,
    pub likely: f64,
}

/// Returns the duration of each task with disks of `factor` times the rate, `None` for tasks that never
/// wait for disks; and whether some share the cores of a machine whose number is known.
pub(super) fn durations_ms(r: &Replays, factor: f64) -> (Vec<Option<OtherDisks>>, bool) {
    let beside = concurrent_tasks(r);
    let shared = shared(r, &beside, factor);
    let duration = |task: &Task| {
        let (sure, most) = Without::Disk.blocked_ms(task)?;
        let whole = task.duration_ms();
        let group = group(r, task);
        let readers = beside.get(&group).copied().unwrap_or(1);
        let apart = |wait: f64| whole - wait * (1.0 - 1.0 / factor);
        let stretch = |wait: f64, [computing, waits]: [f64; 2]| (whole - wait) * computing + wait * waits;
        let [least, most, likely] = match shared.get(&group) {
            Some([if_sure, if_most]) => {
                let likely = stretch(most, *if_most);
                [stretch(sure, *if_sure), likely, likely]
            }
            // Nothing is read ahead for writes.
            None if task.part(Part::Input).is_none() => [apart(sure), apart(most), apart(most)],
            None => {
                let [most, likely] = paced_ms(whole, overhead_ms(task), most, readers, factor);
                [apart(sure), most, likely]
            }
        };
        Some(OtherDisks { least, most, likely })
    };
    (r.tasks.all.iter().map(duration).collect(), !shared.is_empty())
}

fn group(r: &Replays, task: &Task) -> Group {
    (task.stage, machine(r, task.resource))
}

fn machine(r: &Replays, resource: ResourceIx) -> MachineIx {
    MachineIx(r.trace.resources[resource.at()].machine)
}

/// Returns how computing and waits stretch for a stage's tasks on machines whose cores are known: for
/// the certain waits, and for the longest possible ones.
fn shared(r: &Replays, beside: &BTreeMap<Group, usize>, factor: f64) -> BTreeMap<Group, [[f64; 2]; 2]> {
    let mut sums: BTreeMap<Group, (usize, [f64; 3])> = BTreeMap::new();
    for task in &r.tasks.all {
        let group = group(r, task);
        if cores(r, group).is_none() {
            continue;
        }
        let (sure, most) = Without::Disk.blocked_ms(task).unwrap_or_default();
        let (tasks, times) = sums.entry(group).or_default();
        *tasks += 1;
        times.iter_mut().zip([task.duration_ms(), sure, most]).for_each(|(sum, ms)| *sum += ms);
    }
    let both = |(group, (tasks, [whole, sure, most])): (Group, (usize, [f64; 3]))| {
        let cores = cores(r, group)? as usize;
        let at_once = beside.get(&group).copied().unwrap_or(1).min(tasks);
        let stretch = |wait: f64| stretched(at_once, cores, ratio(wait, whole).unwrap_or(0.0), factor);
        Some((group, [stretch(sure), stretch(most)]))
    };
    sums.into_iter().filter_map(both).collect()
}

/// Returns the cores of a group's machine, if the log gives them.
fn cores(r: &Replays, (_, machine): Group) -> Option<u32> {
    r.trace.machines.get(machine.at())?.cores
}

/// Returns each stage's slots on each machine: tasks that run side by side on its disks.
fn concurrent_tasks(r: &Replays) -> BTreeMap<Group, usize> {
    let schedule = &r.schedule;
    let mut beside = BTreeMap::new();
    for (stage, place) in schedule.stages.rows() {
        for lane in place.iter().flat_map(|place| &place.lanes) {
            let machine = machine(r, schedule.slots[lane.slot].resource);
            *beside.entry((stage, machine)).or_insert(0) += 1;
        }
    }
    beside
}

/// Returns how long a task of `whole` ms takes with disks of `factor` times the rate: if the disk is
/// always busy, and the likely time with this many `readers`, itself included. The task waited `most` ms
/// for the disk and had `fixed` ms of overhead.
fn paced_ms(whole: f64, fixed: f64, most: f64, readers: usize, factor: f64) -> [f64; 2] {
    let apart = whole - most * (1.0 - 1.0 / factor);
    let body = (whole - fixed).max(0.0);
    let together = whole - body + (body / factor).max(body - most);
    let waits = (most / whole.max(1e-6)).clamp(0.0, 1.0);
    let busy = 1.0 - (1.0 - waits).powi(readers.clamp(1, 1000) as i32);
    [together, busy * together + (1.0 - busy) * apart]
}
