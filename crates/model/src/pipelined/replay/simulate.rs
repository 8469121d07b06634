//! Replays the job on a virtual clock: the recorded tasks on the recorded slots (blocked-time-nsdi15
//! §2.3.2).
//!
//! The paper replays "based only on the number of slots". It compares the simulated time without
//! something to the simulated unchanged time, so that simulation errors cancel in the ratio. Here slots
//! come and go as recorded, stages wait for their parents, several jobs share slots, and the gaps of
//! [`Schedule`] are replayed. A free slot takes the runnable task that was launched first. That is the
//! recorded order, whatever policy produced it.
//!
//! Where a changed schedule uses other slots than the recorded ones (more executors), [`Slots::Open`]
//! lets every stage use every slot, and [`DynamicAllocation`] adds and removes executors.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use pellucid_trace::union_ns;

use super::allocation::{DynamicAllocation, Executors};
use super::schedule::{Arrival, FIRST, Lane, Schedule, StagePlace};
use crate::index::{ExecutorIx, Ix, JobIx, SlotIx, StageIx, Table, TaskIx};
use crate::numbers::ms;

/// The slots that a stage's tasks may use.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Slots<'a> {
    /// The slots that they used.
    Recorded,
    /// All of these slots.
    Open(&'a Table<SlotIx, Arrival>),
}

/// Differences from the recorded run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change<'a> {
    /// Duration of each task, by index.
    pub durations_ns: &'a [u64],
    /// True if slots take as long to start a task as recorded, false if they take no time.
    pub gaps: bool,
    /// The available slots.
    pub slots: Slots<'a>,
    /// The allocation of executors; with [`Slots::Open`] only.
    pub idle: Option<&'a DynamicAllocation>,
}

impl<'a> Change<'a> {
    /// Changes the durations only.
    pub fn of(durations_ns: &'a [u64]) -> Change<'a> {
        Change { durations_ns, gaps: true, slots: Slots::Recorded, idle: None }
    }
}

/// The times of a replay.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    /// Submission and end by job; `None` if they are unknown.
    pub jobs: Table<JobIx, Option<(u64, u64)>>,
    /// Submission and end by stage.
    pub stages: Table<StageIx, Option<(u64, u64)>>,
    /// Number of jobs that ended.
    pub ended: usize,
    /// Total time that slots were present until the last job ended; with [`DynamicAllocation`] only.
    pub held_ns: u64,
}

impl Replayed {
    /// Returns the time in which at least one job ran.
    pub fn jobs_ms(&self) -> f64 {
        ms(union_ns(self.jobs.iter().flatten().copied().collect()) as f64)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    JobSubmitted(JobIx),
    StageSubmitted(StageIx),
    SlotAdded(SlotIx),
    SlotRemoved(SlotIx),
    /// A task ended and its slot is free. Most do both at once, and one event costs half as much as two.
    Ended(TaskIx, SlotIx),
    SlotFreed(SlotIx),
    TaskEnded(TaskIx),
    Repeat(TaskIx),
    CheckIdle(ExecutorIx),
    StageEnded(StageIx),
    JobEnded(JobIx),
}

#[derive(Debug, Clone, Default)]
struct StageState {
    waits_for: usize,
    needed: usize,
    /// Position in the stage's tasks up to which all first attempts were launched.
    next: usize,
    /// Repeated attempts that may start.
    repeats: BTreeSet<TaskIx>,
    launched: usize,
    started: Vec<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SlotState {
    Away,
    Free,
    Busy,
    /// Its executor is removed when the running task ends.
    Leaving,
}

struct Replay<'a> {
    schedule: &'a Schedule,
    change: Change<'a>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    seen: u64,
    stages: Table<StageIx, StageState>,
    active: Vec<StageIx>,
    slots: Table<SlotIx, SlotState>,
    jobs_needed: Table<JobIx, usize>,
    /// Number of jobs that will end.
    jobs_known: usize,
    stages_of: Table<JobIx, Vec<StageIx>>,
    followers: Table<JobIx, Vec<JobIx>>,
    children: Table<StageIx, Vec<StageIx>>,
    additions: Table<JobIx, Vec<(SlotIx, u64)>>,
    removals: Table<JobIx, Vec<(SlotIx, u64)>>,
    executors: Executors<'a>,
    out: Replayed,
}

/// Runs the schedule under a change.
pub(crate) fn replay(schedule: &Schedule, change: Change<'_>) -> Replayed {
    let mut replay = Replay::of(schedule, change);
    replay.run();
    let last = replay.out.jobs.iter().flatten().map(|(_, ended)| *ended).max().unwrap_or(0);
    replay.executors.finish(last);
    Replayed { held_ns: replay.executors.held_ns, ..replay.out }
}

impl<'a> Replay<'a> {
    fn of(schedule: &'a Schedule, change: Change<'a>) -> Replay<'a> {
        let (jobs, stages) = (schedule.jobs.len(), schedule.stages.len());
        let mut replay = Replay {
            schedule,
            change,
            events: BinaryHeap::new(),
            seen: 0,
            stages: Table::filled(stages, StageState::default()),
            active: Vec::new(),
            slots: Table::default(),
            jobs_needed: Table::filled(jobs, 0),
            jobs_known: schedule.jobs.iter().flatten().count(),
            stages_of: Table::filled(jobs, Vec::new()),
            followers: Table::filled(jobs, Vec::new()),
            children: Table::filled(stages, Vec::new()),
            additions: Table::filled(jobs, Vec::new()),
            removals: Table::filled(jobs, Vec::new()),
            executors: Executors::of(change.idle),
            out: Replayed {
                jobs: Table::filled(jobs, None),
                stages: Table::filled(stages, None),
                ..Replayed::default()
            },
        };
        replay.link_slots();
        for (ix, stage) in schedule.stages.rows() {
            let Some(stage) = stage else { continue };
            let state = &mut replay.stages[ix];
            (state.waits_for, state.needed) = (stage.after.len(), stage.needed);
            state.started = vec![false; stage.lanes.len()];
            stage.after.iter().for_each(|parent| replay.children[*parent].push(ix));
            replay.stages_of.get_mut(stage.job).into_iter().for_each(|of| of.push(ix));
        }
        for (ix, job) in schedule.jobs.rows() {
            let Some(job) = job else { continue };
            replay.jobs_needed[ix] = job.needed;
            match job.after {
                Some((before, _)) => replay.followers[before].push(ix),
                None => replay.push(job.submitted_ns, Event::JobSubmitted(ix)),
            }
        }
        replay
    }

    fn link_slots(&mut self) {
        let jobs = self.schedule.jobs.iter().flatten();
        let first = jobs.map(|job| job.submitted_ns).min().unwrap_or(0);
        let recorded: Table<SlotIx, Arrival>;
        let added = match self.change.slots {
            Slots::Open(added) => added,
            Slots::Recorded => {
                recorded = self.schedule.slots.iter().map(|s| s.added).collect();
                for (ix, slot) in self.schedule.slots.rows() {
                    if let Some((job, after)) = slot.removed {
                        self.removals[job].push((ix, after));
                    }
                }
                &recorded
            }
        };
        for (ix, added) in added.rows() {
            self.slots.push(if added.is_some() { SlotState::Away } else { SlotState::Free });
            match added {
                Some((job, after)) => self.additions[*job].push((ix, *after)),
                None => {
                    let idle = self.executors.arrive(first, ix);
                    idle.into_iter().for_each(|(at, executor)| self.push(at, Event::CheckIdle(executor)));
                }
            }
        }
    }

    fn push(&mut self, at: u64, event: Event) {
        self.seen += 1;
        self.events.push(Reverse((at, self.seen, event)));
    }

    fn run(&mut self) {
        let mut now = 0;
        let mut restored_at = None;
        loop {
            while let Some(Reverse((at, _, event))) = self.events.pop() {
                now = now.max(at);
                self.handle(now, event);
            }
            // Removed executors may leave tasks that no slot can run. Bring them back once per stall.
            let gone: Vec<SlotIx> =
                self.slots.indices().filter(|slot| self.slots[*slot] == SlotState::Away).collect();
            let launched: usize = self.stages.iter().map(|stage| stage.launched).sum();
            if self.active.is_empty() || gone.is_empty() || restored_at.replace(launched) == Some(launched) {
                break;
            }
            gone.into_iter().for_each(|slot| self.handle(now, Event::SlotAdded(slot)));
        }
    }

    fn handle(&mut self, now: u64, event: Event) {
        match event {
            Event::JobSubmitted(job) => self.job_submitted(now, job),
            Event::StageSubmitted(stage) => self.stage_submitted(now, stage),
            Event::SlotAdded(slot) => {
                if self.slots[slot] == SlotState::Away {
                    self.slots[slot] = SlotState::Free;
                    let idle = self.executors.arrive(now, slot);
                    self.offer(now, slot);
                    idle.into_iter().for_each(|(at, executor)| self.push(at, Event::CheckIdle(executor)));
                }
            }
            Event::SlotRemoved(slot) => {
                let state = &mut self.slots[slot];
                *state = if *state == SlotState::Busy { SlotState::Leaving } else { SlotState::Away };
            }
            // The end comes first: the task's next attempt may take its slot.
            Event::Ended(task, slot) => {
                self.task_ended(now, task);
                self.slot_freed(now, slot);
            }
            Event::SlotFreed(slot) => self.slot_freed(now, slot),
            Event::TaskEnded(task) => self.task_ended(now, task),
            Event::Repeat(task) => self.repeat(now, task),
            // After the last job no executor needs to be removed.
            Event::CheckIdle(_) if self.out.ended == self.jobs_known => {}
            Event::CheckIdle(executor) => {
                for slot in self.executors.remove_if_idle(now, executor) {
                    self.slots[slot] = SlotState::Away;
                }
            }
            Event::StageEnded(stage) => self.stage_ended(now, stage),
            Event::JobEnded(job) => self.job_ended(now, job),
        }
    }

    fn job_submitted(&mut self, now: u64, job: JobIx) {
        let Some(place) = &self.schedule.jobs[job] else { return };
        self.out.jobs[job] = Some((now, now));
        for (slot, after) in std::mem::take(&mut self.additions[job]) {
            self.push(now + after, Event::SlotAdded(slot));
        }
        for (slot, after) in std::mem::take(&mut self.removals[job]) {
            self.push(now + after, Event::SlotRemoved(slot));
        }
        if place.needed == 0 {
            self.push(now + place.tail_ns, Event::JobEnded(job));
        }
        for stage in std::mem::take(&mut self.stages_of[job]) {
            let Some(of_stage) = &self.schedule.stages[stage] else { continue };
            if of_stage.after.is_empty() {
                self.push(now + of_stage.gap_ns, Event::StageSubmitted(stage));
            }
        }
    }

    fn stage_submitted(&mut self, now: u64, stage: StageIx) {
        let Some(place) = &self.schedule.stages[stage] else { return };
        self.out.stages[stage] = Some((now, now));
        if place.needed == 0 {
            self.push(now + place.tail_ns, Event::StageEnded(stage));
        }
        if self.schedule.by_stage[stage].is_empty() {
            return;
        }
        self.active.push(stage);
        let mut order: Vec<(u64, SlotIx)> = match self.change.slots {
            Slots::Recorded => place.lanes.iter().map(|lane| (lane.first_gap_ns, lane.slot)).collect(),
            Slots::Open(slots) => slots.indices().map(|slot| (0, slot)).collect(),
        };
        order.sort_unstable();
        for (_, slot) in order {
            if self.slots[slot] == SlotState::Free && !self.offer(now, slot) {
                break;
            }
        }
        let waiting = self.schedule.by_stage[stage].len() - self.stages[stage].launched;
        let requested = self.executors.request(now, waiting);
        if let Some((at, slots)) = requested {
            slots.into_iter().for_each(|slot| self.push(at, Event::SlotAdded(slot)));
        }
    }

    /// Starts a task on a free slot; returns false if it has none to run.
    fn offer(&mut self, now: u64, slot: SlotIx) -> bool {
        let mut best: Option<(TaskIx, StageIx, usize)> = None;
        for stage in &self.active {
            let Some(place) = &self.schedule.stages[*stage] else { continue };
            let Some(lane) = self.lane(place, slot) else { continue };
            let Some(task) = self.candidate(*stage) else { continue };
            if best.is_none_or(|(first, ..)| task < first) {
                best = Some((task, *stage, lane));
            }
        }
        let Some((task, stage, lane)) = best else { return false };
        self.launch(now, slot, stage, task, lane);
        true
    }

    /// Returns the slot's lane in the stage.
    fn lane(&self, place: &StagePlace, slot: SlotIx) -> Option<usize> {
        match self.change.slots {
            Slots::Recorded => place.lanes.binary_search_by_key(&slot, |lane: &Lane| lane.slot).ok(),
            Slots::Open(_) => Some(usize::MAX),
        }
    }

    /// Returns the stage's next task.
    fn candidate(&self, stage: StageIx) -> Option<TaskIx> {
        let state = &self.stages[stage];
        let first = self.schedule.by_stage[stage].get(state.next).copied();
        first.into_iter().chain(state.repeats.first().copied()).min()
    }

    fn launch(&mut self, now: u64, slot: SlotIx, stage: StageIx, task: TaskIx, lane: usize) {
        let (schedule, change) = (self.schedule, self.change);
        let of_stage = &schedule.by_stage[stage];
        let (place, state) = (&schedule.tasks[task], &mut self.stages[stage]);
        if !state.repeats.remove(&task) {
            state.next += 1;
        }
        while of_stage.get(state.next).is_some_and(|task| schedule.retry_delays.contains_key(task)) {
            state.next += 1;
        }
        state.launched += 1;
        if state.launched == of_stage.len() {
            self.active.retain(|active| *active != stage);
        }
        let stage_place = schedule.stages[stage].as_ref();
        let first_on_lane =
            state.started.get_mut(lane).is_some_and(|started| !std::mem::replace(started, true));
        let gap = match (first_on_lane, stage_place) {
            _ if !change.gaps => 0,
            (true, Some(stage)) => stage.lanes[lane].first_gap_ns,
            (false, stage) if place.gap_ns == FIRST => stage.map_or(0, |stage| stage.usual_gap_ns),
            _ => place.gap_ns,
        };
        let started = now.saturating_add(gap);
        let ended = started.saturating_add(change.durations_ns[task.at()]);
        self.slots[slot] = SlotState::Busy;
        self.executors.task_started(slot);
        match u64::from(place.early_ns).min(ended - started) {
            0 => self.push(ended, Event::Ended(task, slot)),
            early => {
                self.push(ended, Event::TaskEnded(task));
                self.push(ended - early, Event::SlotFreed(slot));
            }
        }
        if let Some(repeat) = schedule.repeats.get(&task)
            && let Some(Some(beside)) = schedule.retry_delays.get(repeat)
        {
            self.push(started.saturating_add(*beside), Event::Repeat(*repeat));
        }
    }

    fn slot_freed(&mut self, now: u64, slot: SlotIx) {
        let leaving = self.slots[slot] == SlotState::Leaving;
        self.slots[slot] = if leaving { SlotState::Away } else { SlotState::Free };
        self.executors.task_ended(slot);
        if !leaving
            && !self.offer(now, slot)
            && let Some((at, executor)) = self.executors.slot_idle(now, slot)
        {
            self.push(at, Event::CheckIdle(executor));
        }
    }

    fn task_ended(&mut self, now: u64, task: TaskIx) {
        let schedule = self.schedule;
        let stage = schedule.stage_of(task);
        if let Some(place) = &schedule.stages[stage]
            && !schedule.unneeded.contains(&task)
        {
            let state = &mut self.stages[stage];
            state.needed = state.needed.saturating_sub(1);
            if state.needed == 0 {
                self.push(now + place.tail_ns, Event::StageEnded(stage));
            }
        }
        if let Some(repeat) = schedule.repeats.get(&task)
            && schedule.retry_delays.get(repeat).is_none_or(Option::is_none)
        {
            self.stages[stage].repeats.insert(*repeat);
        }
        self.offer_to_lanes(now, stage);
    }

    fn repeat(&mut self, now: u64, task: TaskIx) {
        let stage = self.schedule.stage_of(task);
        self.stages[stage].repeats.insert(task);
        self.offer_to_lanes(now, stage);
    }

    /// Starts repeated attempts on free slots.
    fn offer_to_lanes(&mut self, now: u64, stage: StageIx) {
        let Some(place) = &self.schedule.stages[stage] else { return };
        while !self.stages[stage].repeats.is_empty() {
            let free = |slot: &SlotIx| self.slots[*slot] == SlotState::Free;
            let slot = match self.change.slots {
                Slots::Recorded => place.lanes.iter().map(|lane| lane.slot).find(free),
                Slots::Open(slots) => slots.indices().find(free),
            };
            if !slot.is_some_and(|slot| self.offer(now, slot)) {
                return;
            }
        }
    }

    fn stage_ended(&mut self, now: u64, stage: StageIx) {
        let Some(place) = &self.schedule.stages[stage] else { return };
        if let Some((_, ended)) = &mut self.out.stages[stage] {
            *ended = now;
        }
        for child in std::mem::take(&mut self.children[stage]) {
            let state = &mut self.stages[child];
            state.waits_for = state.waits_for.saturating_sub(1);
            let gap = self.schedule.stages[child].as_ref().map_or(0, |c| c.gap_ns);
            if state.waits_for == 0 {
                self.push(now + gap, Event::StageSubmitted(child));
            }
        }
        let Some(Some(job)) = self.schedule.jobs.get(place.job) else { return };
        if place.ended_ns <= job.ended_ns {
            let needed = &mut self.jobs_needed[place.job];
            *needed = needed.saturating_sub(1);
            if *needed == 0 {
                self.push(now + job.tail_ns, Event::JobEnded(place.job));
            }
        }
    }

    fn job_ended(&mut self, now: u64, job: JobIx) {
        if let Some((_, ended)) = &mut self.out.jobs[job] {
            *ended = now;
            self.out.ended += 1;
        }
        for follower in std::mem::take(&mut self.followers[job]) {
            let after = self.schedule.jobs[follower].as_ref().and_then(|j| j.after);
            self.push(now + after.map_or(0, |(_, gap)| gap), Event::JobSubmitted(follower));
        }
    }
}
