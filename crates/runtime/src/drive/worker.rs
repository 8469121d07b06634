//! Worker threads, each of which serves one resource, one monotask at a time.
//!
//! A thread measures each monotask (service time, core time, the bytes that the kernel counted for the
//! thread), records it in the job's trace, and reports it to the scheduler.

use std::io;
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use pellucid_scheduler::{Completion, MonotaskId};
use pellucid_trace as trace;
use pellucid_trace::guard::{drop_guarded, guarded};

use crate::drive::driver::{Shared, State};
use crate::drive::entry::{Ticket, take_apart};
use crate::platform::{self, DeviceBytes};
use crate::stacks::SampledThread;
use crate::state::{Ending, JobInner};
use crate::{Done, Error, ResourceHandle};

/// Stack size. Queries may nest thousands of operators, and unused stack costs only address space.
const STACK_BYTES: usize = 256 << 20;

/// Starts one more thread for a lane.
pub(crate) fn spawn(shared: &Arc<Shared>, state: &mut State, lane: usize) -> io::Result<()> {
    let its = &mut state.lanes[lane];
    let resource = its.resource.clone();
    let name = resource.thread_name(its.threads);
    let of = Arc::clone(shared);
    let thread = std::thread::Builder::new()
        .name(name)
        .stack_size(STACK_BYTES)
        .spawn(move || serve(&of, &resource))?;
    its.threads += 1;
    its.idle += 1;
    state.threads.push(thread);
    Ok(())
}

/// Not inlined, since sampled stacks begin with it.
#[inline(never)]
fn serve(shared: &Arc<Shared>, resource: &ResourceHandle) {
    let base = 0_u8;
    let computes = resource.kind() == trace::kind::CPU;
    let stacks = if computes { shared.stacks.thread(&raw const base) } else { None };
    let mut state = shared.lock();
    let wake = Arc::clone(&state.lanes[resource.index()].wake);
    state.lanes[resource.index()].idle -= 1;
    loop {
        if let Some(ticket) = state.lanes[resource.index()].ready.pop_front() {
            drop(state);
            state = shared.drain(run(shared, resource, stacks.as_ref(), ticket), Some(resource.0.id));
        } else if state.closing {
            return;
        } else {
            state.lanes[resource.index()].idle += 1;
            state = wake.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
            state.lanes[resource.index()].idle -= 1;
        }
    }
}

/// The measurements of a closure.
struct Measured {
    started: Instant,
    ended: Instant,
    cpu_ns: Option<u64>,
    device: Option<DeviceBytes>,
}

fn measure<T>(on_disk: bool, f: impl FnOnce() -> T) -> (T, Measured) {
    let device = on_disk.then(platform::thread_device_bytes).flatten();
    let cpu = platform::thread_cpu_ns();
    let started = Instant::now();
    let result = f();
    let ended = Instant::now();
    let cpu_ns = platform::thread_cpu_ns().zip(cpu).map(|(after, before)| after - before);
    let device = device.and_then(|before| {
        let after = platform::thread_device_bytes()?;
        Some(DeviceBytes {
            read: after.read.saturating_sub(before.read),
            written: after.written.saturating_sub(before.written),
        })
    });
    (result, Measured { started, ended, cpu_ns, device })
}

fn run<'a>(
    shared: &'a Arc<Shared>,
    resource: &ResourceHandle,
    stacks: Option<&SampledThread>,
    ticket: Ticket,
) -> MutexGuard<'a, State> {
    let Ticket { id, job, stage, run, queued, mut record } = ticket;
    if job.is_stopped() {
        drop_guarded(run);
        let mut state = shared.lock();
        state.scheduler.fail(shared.now(), id);
        return state;
    }
    let context = job.context();
    let on_disk = resource.kind() == trace::kind::DISK;
    stacks.into_iter().for_each(SampledThread::begin);
    let (result, measured) = measure(on_disk, || guarded(|| run(&context)));
    stacks.into_iter().for_each(|thread| thread.end(stage, &job.stacks));
    let stopped = job.is_stopped();
    fill(&mut record, &job.recorder, queued, &measured, &result, stopped);
    job.recorder.monotask(record);
    let split = result.and_then(|done| {
        job.moved(&record);
        guarded(|| take_apart(&job, done.then))
    });
    let (then, slots) = match split {
        Ok(then) => then,
        Err(error) => return fail(shared, &job, id, error),
    };
    let completion = Completion { bytes: record.bytes.unwrap_or(0), then };
    let mut state = shared.lock();
    if let Err(invalid) = state.scheduler.complete(shared.now(), id, completion) {
        drop(state);
        drop_guarded(slots);
        return fail(shared, &job, id, invalid.into());
    }
    if let Some(entry) = state.multitasks.get_mut(&id.multitask) {
        entry.completed(id.index, slots, Instant::now());
    }
    state
}

/// Fails a monotask and, unless the job was stopped before, its job.
fn fail<'a>(shared: &'a Arc<Shared>, job: &JobInner, id: MonotaskId, error: Error) -> MutexGuard<'a, State> {
    let mut state = shared.lock();
    state.set_ending(job, Ending::Failed(error));
    state.scheduler.fail(shared.now(), id);
    state
}

fn fill(
    record: &mut trace::Monotask,
    recorder: &trace::Recorder,
    queued: Instant,
    measured: &Measured,
    result: &Result<Done, Error>,
    stopped: bool,
) {
    let (queued_ns, started_ns) = (recorder.at(queued), recorder.at(measured.started));
    record.queued_ns = queued_ns;
    record.queue_ns = started_ns.saturating_sub(queued_ns);
    record.service_ns = recorder.at(measured.ended).saturating_sub(started_ns);
    record.cpu_ns = measured.cpu_ns;
    let device = measured.device.map(|d| match record.phase {
        trace::Phase::Spill | trace::Phase::Write => d.written,
        trace::Phase::Read | trace::Phase::Fetch | trace::Phase::Compute => d.read,
    });
    match result {
        Ok(done) => {
            record.bytes = done.bytes.or(record.bytes);
            record.device_bytes = done.device_bytes.or(device);
            record.cached_bytes = done.cached_bytes;
            record.decode_ns = done.decode_ns;
            record.operator_ns = done.operator_ns;
            record.encode_ns = done.encode_ns;
            record.not_split_ns = done.not_split_ns;
            record.rows = done.rows;
        }
        Err(_) => {
            record.device_bytes = device;
            record.outcome = if stopped { trace::Outcome::Cancelled } else { trace::Outcome::Failed };
        }
    }
}
