//! The driver's state of multitasks and monotasks.
//!
//! The scheduler keeps only what its decisions need. Closures and trace records of monotasks are kept
//! here. As in the scheduler, a monotask is queued once all monotasks in its `after` have ended.

use std::sync::Arc;
use std::time::Instant;

use pellucid_scheduler::{MonotaskId, MonotaskSpec, Phase};
use pellucid_trace as trace;

use crate::multitask::Run;
use crate::state::JobInner;
use crate::{Error, Monotask, Multitask};

/// A monotask that the scheduler has started and that waits for a thread.
pub(crate) struct Ticket {
    pub id: MonotaskId,
    pub job: Arc<JobInner>,
    pub stage: trace::StageIx,
    pub run: Run,
    pub queued: Instant,
    /// Trace record, filled in as far as known.
    pub record: trace::Monotask,
}

/// A multitask from its submission to its end.
pub(crate) struct Entry {
    pub job: Arc<JobInner>,
    pub stage: trace::StageIx,
    pub partition: u32,
    pub memory_bytes: u64,
    /// `None` while `plan` runs.
    pub body: Option<Box<dyn Multitask>>,
    ix: trace::MultitaskIx,
    slots: Vec<Slot>,
}

/// A monotask of an entry.
pub(crate) struct Slot {
    run: Option<Run>,
    after: Vec<u32>,
    /// Time at which all monotasks in `after` had ended.
    queued: Option<Instant>,
    done: bool,
    resource: trace::ResourceIx,
    phase: trace::Phase,
    bytes: u64,
}

impl Entry {
    pub fn new(
        job: &Arc<JobInner>,
        stage: trace::StageIx,
        partition: u32,
        memory_bytes: u64,
        body: Box<dyn Multitask>,
    ) -> Entry {
        let (job, body, slots) = (Arc::clone(job), Some(body), Vec::new());
        Entry { job, stage, partition, memory_bytes, body, ix: 0, slots }
    }

    /// Sets the planned monotasks and the trace's index of the multitask.
    pub fn expanded(&mut self, ix: trace::MultitaskIx, slots: Vec<Slot>, now: Instant) {
        self.ix = ix;
        self.slots = slots;
        self.queue(now);
    }

    /// Returns the ticket of a monotask that the scheduler starts.
    pub fn ticket(&mut self, id: MonotaskId) -> Option<Ticket> {
        let slot = self.slots.get_mut(id.index as usize)?;
        let run = slot.run.take()?;
        let record = trace::Monotask {
            multitask: self.ix,
            resource: slot.resource,
            phase: slot.phase,
            queued_ns: 0,
            queue_ns: 0,
            service_ns: 0,
            bytes: (slot.bytes > 0).then_some(slot.bytes),
            device_bytes: None,
            cached_bytes: None,
            cpu_ns: None,
            decode_ns: None,
            operator_ns: None,
            encode_ns: None,
            not_split_ns: None,
            rows: None,
            outcome: trace::Outcome::Ok,
        };
        let queued = slot.queued.unwrap_or_else(Instant::now);
        Some(Ticket { id, job: Arc::clone(&self.job), stage: self.stage, run, queued, record })
    }

    /// Sets the queue time of monotasks whose dependencies have ended.
    fn queue(&mut self, now: Instant) {
        for i in 0..self.slots.len() {
            let slot = &self.slots[i];
            let ended = |a: &u32| self.slots.get(*a as usize).is_some_and(|s| s.done);
            if slot.queued.is_none() && slot.after.iter().all(ended) {
                self.slots[i].queued = Some(now);
            }
        }
    }

    /// Marks a monotask as ended and adds the monotasks that it returned.
    pub fn completed(&mut self, index: u32, then: Vec<Slot>, now: Instant) {
        if let Some(slot) = self.slots.get_mut(index as usize) {
            slot.done = true;
        }
        self.slots.extend(then);
        self.queue(now);
    }
}

/// Splits monotasks into the scheduler's specification and the driver's state.
///
/// # Errors
/// Returns an error if a phase does not match its resource: a core would block on I/O, or a disk
/// thread would compute, and the trace would be wrong.
pub(crate) fn take_apart(
    job: &JobInner,
    planned: Vec<Monotask>,
) -> Result<(Vec<MonotaskSpec>, Vec<Slot>), Error> {
    let one = |m: Monotask| {
        if (m.phase == Phase::Compute) != (m.resource.kind() == trace::kind::CPU) {
            return Err(format!(
                "a {:?} monotask was planned on {}: the compute phase runs on cores only, other phases never",
                m.phase,
                m.resource.name()
            )
            .into());
        }
        let spec = MonotaskSpec {
            resource: m.resource.0.id,
            phase: m.phase,
            after: m.after.clone(),
            bytes: m.bytes,
        };
        let slot = Slot {
            run: Some(m.run),
            after: m.after,
            queued: None,
            done: false,
            resource: job.resource_ix(&m.resource),
            phase: trace_phase(m.phase),
            bytes: m.bytes,
        };
        Ok((spec, slot))
    };
    Ok(planned.into_iter().map(one).collect::<Result<Vec<_>, Error>>()?.into_iter().unzip())
}

fn trace_phase(phase: Phase) -> trace::Phase {
    match phase {
        Phase::Read => trace::Phase::Read,
        Phase::Fetch => trace::Phase::Fetch,
        Phase::Compute => trace::Phase::Compute,
        Phase::Spill => trace::Phase::Spill,
        Phase::Write => trace::Phase::Write,
    }
}
