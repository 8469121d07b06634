//! Samples the machine's own counters while jobs run.
//!
//! The samples validate the rest of a trace, and show what other processes used. Each job records the differences from its previous sample,
//! the last time when it ends.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pellucid_trace as trace;

use crate::ResourceHandle;
use crate::platform::{self, DeviceBytes};
use crate::state::JobInner;

/// Minimum length of a job's last interval. The machine counts core time in steps of 10 ms, so shorter
/// intervals are imprecise.
const LAST_INTERVAL_MIN: Duration = Duration::from_millis(50);

/// The counters at one instant; `moved` is indexed by the scheduler's resource id.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Counters {
    at: Instant,
    busy_ns: Option<u64>,
    own_busy_ns: Option<u64>,
    moved: Vec<Option<DeviceBytes>>,
    /// Of this process.
    pub memory_bytes: Option<u64>,
}

/// The sampling of one job.
#[derive(Default)]
pub(crate) struct Sampling(Mutex<SamplingState>);

#[derive(Default)]
struct SamplingState {
    last: Option<Counters>,
    memory_high_water_bytes: Option<u64>,
    ended: bool,
}

impl Counters {
    pub fn read(resources: &[ResourceHandle]) -> Counters {
        Counters {
            at: Instant::now(),
            busy_ns: platform::machine_busy_ns(),
            own_busy_ns: platform::process_cpu_ns(),
            moved: resources.iter().map(|r| r.0.counters.now()).collect(),
            memory_bytes: platform::memory_bytes(),
        }
    }

    /// Returns a resource's differences from `before`; `None` if it has no counters.
    fn since(
        &self,
        before: &Counters,
        resource: &ResourceHandle,
        ix: trace::ResourceIx,
        at_ns: u64,
    ) -> Option<trace::UtilizationSample> {
        let difference = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a.saturating_sub(b));
        let since = |then: Instant| u64::try_from((self.at - then).as_nanos()).unwrap_or(u64::MAX);
        let mut sample = trace::UtilizationSample {
            resource: ix,
            at_ns,
            interval_ns: since(before.at),
            busy_ns: None,
            own_busy_ns: None,
            read_bytes: None,
            write_bytes: None,
        };
        if resource.kind() == trace::kind::CPU {
            sample.busy_ns = difference(self.busy_ns, before.busy_ns);
            sample.own_busy_ns = difference(self.own_busy_ns, before.own_busy_ns);
            sample.busy_ns.or(sample.own_busy_ns)?;
        } else {
            let moved = |c: &Counters| c.moved.get(resource.index()).copied().flatten();
            // A device that was registered after `before` has counts from its registration.
            let last = moved(before).map(|bytes| (before.at, bytes));
            let (now, (at, then)) = (moved(self)?, last.or(resource.0.counters.first_after(before.at))?);
            sample.interval_ns = since(at);
            sample.read_bytes = Some(now.read.saturating_sub(then.read));
            sample.write_bytes = Some(now.written.saturating_sub(then.written));
        }
        Some(sample)
    }
}

impl Sampling {
    /// Records the differences from the previous sample, unless the job has ended.
    pub fn sample(&self, job: &JobInner, now: &Counters, resources: &[ResourceHandle]) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.ended {
            state.record(job, now.clone(), resources);
        }
    }

    /// Takes the last sample.
    pub fn end(&self, job: &JobInner, resources: &[ResourceHandle]) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.ended = true;
        if state.last.as_ref().is_some_and(|last| last.at.elapsed() >= LAST_INTERVAL_MIN) {
            state.record(job, Counters::read(resources), resources);
        }
    }

    pub fn memory_high_water_bytes(&self) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).memory_high_water_bytes
    }
}

impl SamplingState {
    fn record(&mut self, job: &JobInner, now: Counters, resources: &[ResourceHandle]) {
        self.memory_high_water_bytes = self.memory_high_water_bytes.max(now.memory_bytes);
        if let Some(last) = &self.last {
            let at_ns = job.recorder.at(now.at);
            for resource in resources {
                let ix = job.resource_ix(resource);
                if let Some(sample) = now.since(last, resource, ix, at_ns) {
                    job.recorder.record(trace::Record::UtilizationSample(sample));
                }
            }
        }
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pellucid_scheduler::{JobId, ResourceId};

    use super::*;
    use crate::io::chunks::ChunkSize;
    use crate::resource::{DeviceCounters, Info};

    fn resource(id: u32, kind: &'static str) -> ResourceHandle {
        device(id, kind, DeviceCounters::default())
    }

    fn device(id: u32, kind: &'static str, counters: DeviceCounters) -> ResourceHandle {
        ResourceHandle(Arc::new(Info {
            id: ResourceId(id),
            name: format!("{kind} {id}"),
            kind,
            capacity: None,
            capacity_from: None,
            concurrency: 1,
            concurrency_min: None,
            link: None,
            pacer: None,
            chunk_size: ChunkSize::default(),
            counters,
        }))
    }

    fn counters(at: Instant, cpu: Option<u64>, disks: &[Option<(u64, u64)>], memory: u64) -> Counters {
        Counters {
            at,
            busy_ns: cpu,
            own_busy_ns: cpu.map(|c| c / 2),
            moved: disks.iter().map(|d| d.map(|(read, written)| DeviceBytes { read, written })).collect(),
            memory_bytes: Some(memory),
        }
    }

    #[test]
    fn samples_are_differences_from_previous_sample() {
        let resources = [
            resource(0, trace::kind::CPU),
            resource(1, trace::kind::DISK),
            resource(2, trace::kind::DISK),
            resource(3, trace::kind::STORE),
        ];
        let recorder = trace::Recorder::start(trace::RecorderOptions { keep: true, ..Default::default() })
            .expect("a recorder in memory");
        let job = JobInner::new(JobId(0), "sampled", recorder, None, &resources);
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let samples = [
            counters(at(0), Some(1_000), &[None, Some((100, 50))], 7),
            counters(at(200), Some(4_000), &[None, Some((700, 50)), Some((5, 5))], 9),
            counters(at(300), None, &[None, None, Some((6, 8))], 8),
        ];
        for sample in &samples {
            job.sampling.sample(&job, sample, &resources);
        }
        assert_eq!(job.sampling.memory_high_water_bytes(), Some(9));
        job.sampling.end(&job, &resources);
        job.sampling.sample(&job, &samples[1], &resources); // ignored: the job has ended

        let trace = job.recorder.finish().expect("a trace");
        let seen: Vec<_> = trace
            .utilization_samples
            .iter()
            .map(|s| {
                (s.resource, s.interval_ns / 1_000_000, s.busy_ns, s.own_busy_ns, s.read_bytes, s.write_bytes)
            })
            .collect();
        let expect = [
            (0, 200, Some(3_000), Some(1_500), None, None),
            (1, 200, None, None, Some(600), Some(0)),
            // No sample without counts at both ends: the cores and disk 1 are missing.
            (2, 100, None, None, Some(1), Some(3)),
        ];
        assert_eq!(seen, expect);
    }

    #[test]
    fn device_registered_during_job_is_counted_from_registration() {
        let begin = Instant::now();
        let late =
            DeviceCounters::new(vec!["counters".into()], |_| Some(DeviceBytes { read: 10, written: 20 }));
        let disk = device(1, trace::kind::DISK, late);
        let recorder = trace::Recorder::start(trace::RecorderOptions { keep: true, ..Default::default() })
            .expect("a recorder in memory");
        let job = JobInner::new(JobId(0), "sampled", recorder, None, std::slice::from_ref(&disk));
        let later = begin + Duration::from_millis(200);
        for sample in [counters(begin, None, &[], 7), counters(later, None, &[None, Some((15, 26))], 7)] {
            job.sampling.sample(&job, &sample, std::slice::from_ref(&disk));
        }
        let trace = job.recorder.finish().expect("a trace");
        let [sample] = &trace.utilization_samples[..] else { panic!("{:?}", trace.utilization_samples) };
        assert_eq!((sample.read_bytes, sample.write_bytes), (Some(5), Some(6)));
        assert!(sample.interval_ns < 200_000_000, "{sample:?}");
    }
}
