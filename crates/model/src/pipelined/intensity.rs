//! Demands of jobs relative to each other, and the distribution of bounds over many jobs
//! (blocked-time-nsdi15 §3.4, §4.2 and §4.3; figures 3, 6 and 8 to 10).
//!
//! Disk bytes are input and output, shuffle writes and reads, and spills (written and read back);
//! replicas that a file system writes elsewhere are not in the log. Network bytes are shuffle fetches
//! from other machines. Both are relative to core time. So is the time to decode and decompress, in logs
//! of engines whose operators measure it.

use pellucid_trace::Trace;

use crate::analysis::{Analysis, Intensity, Spread};
use crate::numbers::ratio;

#[derive(Debug, Clone, Copy, Default)]
struct Bytes {
    input: Option<f64>,
    output: Option<f64>,
    shuffled: Option<f64>,
    fetched: Option<f64>,
    disk: Option<f64>,
    cpu_ns: Option<f64>,
    decode_ns: Option<f64>,
}

impl Bytes {
    fn decode_share(&self) -> Option<f64> {
        ratio(self.decode_ns?, self.cpu_ns?).map(|share| share.min(1.0))
    }
}

/// Fills in the intensities of all jobs.
pub(crate) fn fill(trace: &Trace, analysis: &mut Analysis) {
    let mut of_jobs = vec![Bytes::default(); analysis.jobs.len()];
    let mut of_stages = vec![Bytes::default(); trace.stages.len()];
    for task in &trace.pipelined_tasks {
        let job = trace.stages.get(task.stage as usize).map(|s| s.job as usize);
        let Some(of_job) = job.and_then(|job| of_jobs.get_mut(job)) else { continue };
        let add = |to: &mut Option<f64>, value: Option<u64>, times: f64| {
            if let Some(value) = value {
                *to = Some(to.unwrap_or(0.0) + value as f64 * times);
            }
        };
        add(&mut of_job.input, task.input_bytes, 1.0);
        add(&mut of_job.output, task.output_bytes, 1.0);
        add(&mut of_job.shuffled, task.shuffle_write_bytes, 1.0);
        add(&mut of_job.fetched, task.shuffle_remote_bytes, 1.0);
        for times in [&mut *of_job, &mut of_stages[task.stage as usize]] {
            add(&mut times.cpu_ns, task.cpu_ns, 1.0);
            add(&mut times.decode_ns, task.decode_ns, 1.0);
        }
        let disk = [task.input_bytes, task.output_bytes, task.shuffle_write_bytes];
        disk.into_iter().for_each(|bytes| add(&mut of_job.disk, bytes, 1.0));
        add(&mut of_job.disk, task.shuffle_remote_bytes, 1.0);
        add(&mut of_job.disk, task.shuffle_local_bytes, 1.0);
        add(&mut of_job.disk, task.spill_bytes, 2.0);
    }
    for (job, bytes) in analysis.jobs.iter_mut().zip(of_jobs) {
        let per_core = |amount: Option<f64>, unit: f64| ratio(amount? / unit, bytes.cpu_ns? / 1e9);
        let over_input = |amount: Option<f64>| ratio(amount?, bytes.input?);
        job.intensity = Intensity {
            disk_mb_per_cpu_s: per_core(bytes.disk, 1e6),
            network_mbit_per_cpu_s: per_core(bytes.fetched, 1e6 / 8.0),
            shuffle_over_input: over_input(bytes.shuffled),
            output_over_input: over_input(bytes.output),
        };
        job.core.decode_share = bytes.decode_share();
        job.read_bytes = job.read_bytes.or(bytes.input.map(|b| b as u64));
        job.written_bytes = job.written_bytes.or(bytes.output.map(|b| b as u64));
    }
    for stage in &mut analysis.stages {
        stage.core.decode_share = of_stages[stage.id].decode_share();
    }
}

/// Returns the distribution of one bound's improvement over the jobs of several analyses; `None` where no
/// job has it.
pub fn spread(analyses: &[Analysis], bound: &str) -> Option<Spread> {
    let jobs = analyses.iter().flat_map(|a| &a.jobs);
    let mut values: Vec<f64> = jobs.filter_map(|job| Some(job.bounds.get(bound)?.improvement)).collect();
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    // Linear interpolation, as in the paper's plotting library.
    let at = |share: f64| {
        let place = share * last as f64;
        let (below, above) = (values[place.floor() as usize], values[place.ceil() as usize]);
        below + (above - below) * place.fract()
    };
    Some(Spread {
        jobs: values.len(),
        p5: at(0.05),
        p25: at(0.25),
        p50: at(0.5),
        p75: at(0.75),
        p95: at(0.95),
    })
}
