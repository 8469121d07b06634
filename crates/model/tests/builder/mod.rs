//! Builders for small traces, in milliseconds, for tests here and in crates that render analyses.
#![allow(dead_code, missing_docs)] // each test file uses a part of it

pub mod spark;

use pellucid_trace::*;

#[derive(Debug)]
pub struct Build {
    pub trace: Trace,
}

/// Converts milliseconds to nanoseconds.
pub fn ms(ms: f64) -> u64 {
    (ms * 1e6) as u64
}

/// Builds the end of a successful job.
pub fn job_end(job: u32, ended: f64) -> JobEnd {
    JobEnd {
        job,
        ended_ns: ms(ended),
        outcome: Outcome::Ok,
        error: None,
        rows: None,
        memory_high_water_bytes: None,
        peak: None,
        spill: None,
    }
}

impl Build {
    /// Starts a trace of the engine on one machine; resource 0 is its cores.
    pub fn on_cores(cores: u32) -> Build {
        let mut build = Build { trace: Trace::default() };
        build.trace.header = Some(Header {
            format: "pellucid.trace/1.0".into(),
            producer: "engine".into(),
            producer_version: "0.1.0".into(),
            origin_unix_ns: 1_700_000_000_000_000_000,
            labels: vec![],
        });
        build.trace.machines.push(Machine { name: "here".into(), cores: Some(cores), memory_bytes: None });
        build.resource("cores", kind::CPU, Some((f64::from(cores), "counted")));
        build
    }

    pub fn resource(&mut self, name: &str, kind: &str, capacity: Option<(f64, &str)>) -> u32 {
        self.trace.resources.push(Resource {
            name: name.into(),
            kind: kind.into(),
            machine: 0,
            capacity: capacity.map(|c| c.0),
            capacity_from: capacity.map(|c| c.1.into()),
            concurrency: None,
            link: None,
            ..Default::default()
        });
        self.trace.resources.len() as u32 - 1
    }

    /// Adds a disk, with a set rate in bytes per second if there is one.
    pub fn disk(&mut self, name: &str, rate: Option<f64>) -> u32 {
        self.resource(name, kind::DISK, rate.map(|rate| (rate, "set")))
    }

    pub fn job(&mut self, name: &str, submitted: f64) -> u32 {
        self.trace.jobs.push(Job { name: name.into(), submitted_ns: ms(submitted), ..Default::default() });
        self.trace.jobs.len() as u32 - 1
    }

    pub fn stage(&mut self, job: u32, name: &str, submitted: f64) -> u32 {
        self.trace.stages.push(Stage {
            job,
            name: name.into(),
            attempt: 0,
            call_site: None,
            after: vec![],
            submitted_ns: ms(submitted),
            not_split: vec![],
            ..Default::default()
        });
        self.trace.stages.len() as u32 - 1
    }

    pub fn multitask(&mut self, stage: u32, admitted: f64) -> u32 {
        let partition = self.trace.multitasks.iter().filter(|m| m.stage == stage).count() as u32;
        let admitted_ns = ms(admitted);
        self.trace.multitasks.push(Multitask { stage, partition, admitted_ns, memory_bytes: None });
        self.trace.multitasks.len() as u32 - 1
    }

    /// Adds a monotask that was served immediately, from `start` for `service`.
    pub fn monotask(
        &mut self,
        multitask: u32,
        resource: u32,
        phase: Phase,
        start: f64,
        service: f64,
    ) -> &mut Monotask {
        self.trace.monotasks.push(Monotask {
            multitask,
            resource,
            phase,
            queued_ns: ms(start),
            queue_ns: 0,
            service_ns: ms(service),
            bytes: None,
            device_bytes: None,
            cached_bytes: None,
            cpu_ns: None,
            decode_ns: None,
            operator_ns: None,
            encode_ns: None,
            not_split_ns: None,
            rows: None,
            outcome: Outcome::Ok,
        });
        self.trace.monotasks.last_mut().expect("one was pushed")
    }

    pub fn read(&mut self, multitask: u32, disk: u32, start: f64, service: f64, bytes: u64) -> &mut Monotask {
        let monotask = self.monotask(multitask, disk, Phase::Read, start, service);
        monotask.bytes = Some(bytes);
        monotask
    }

    pub fn compute(&mut self, multitask: u32, start: f64, service: f64) -> &mut Monotask {
        self.monotask(multitask, 0, Phase::Compute, start, service)
    }

    pub fn end_stage(&mut self, stage: u32, ended: f64) {
        self.trace.stage_ends.push(StageEnd {
            stage,
            ended_ns: ms(ended),
            outcome: Outcome::Ok,
            ..Default::default()
        });
    }

    pub fn end_job(&mut self, job: u32, ended: f64) -> &mut JobEnd {
        self.trace.job_ends.push(job_end(job, ended));
        self.trace.job_ends.last_mut().expect("one was pushed")
    }

    pub fn end(&mut self, recording: f64, writer: f64) {
        self.trace.end = Some(End {
            records: self.trace.records(),
            recording_ns: Some(ms(recording)),
            writer_ns: Some(ms(writer)),
        });
    }

    /// Builds one query as the engine runs it: a scan of 80 MB at 50 MB/s in four multitasks on two
    /// cores, then a small final stage. It takes 1.84 s.
    pub fn query() -> Build {
        let mut b = Build::on_cores(2);
        let disk = b.disk("nvme0n1", Some(50e6));
        let job = b.job("SELECT l_returnflag, sum(l_quantity) FROM lineitem GROUP BY 1", 0.0);
        let scan = b.stage(job, "AggregateExec partial, DataSourceExec lineitem", 10.0);
        for part in 0..4_u32 {
            let m = b.multitask(scan, 10.0);
            let start = 10.0 + 400.0 * f64::from(part);
            let read = b.read(m, disk, 10.0, 400.0, 20_000_000);
            read.queue_ns = ms(start - 10.0);
            read.device_bytes = Some(20_000_000);
            let compute = b.compute(m, start + 400.0, 150.0);
            compute.cached_bytes = Some(4_000_000);
            compute.decode_ns = Some(ms(90.0));
            compute.operator_ns = Some(ms(50.0));
            compute.encode_ns = Some(ms(10.0));
            compute.not_split_ns = Some(0);
        }
        b.end_stage(scan, 1760.0);
        let last = b.stage(job, "SortPreservingMergeExec, AggregateExec final", 1760.0);
        let m = b.multitask(last, 1762.0);
        let compute = b.compute(m, 1765.0, 60.0);
        compute.operator_ns = Some(ms(60.0));
        compute.not_split_ns = Some(ms(6.0));
        b.end_stage(last, 1830.0);
        let end = b.end_job(job, 1840.0);
        end.rows = Some(4);
        end.memory_high_water_bytes = Some(312_000_000);
        b.end(0.02, 1.5);
        b
    }
}
