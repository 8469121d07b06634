//! The thread that samples the machine's counters while jobs run, every 200 ms for all of them.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::drive::driver::Shared;
use crate::samples::Counters;
use crate::state::JobInner;

const INTERVAL: Duration = Duration::from_millis(200);

/// Starts the sampler thread, which calls a function after each sample while the process takes more than so many bytes.
pub(crate) fn spawn(shared: &Arc<Shared>, pressure: Option<(u64, fn())>) -> std::io::Result<()> {
    let of = Arc::clone(shared);
    let thread = std::thread::Builder::new().name("sampler".to_string()).spawn(move || run(&of, pressure))?;
    shared.lock().threads.push(thread);
    Ok(())
}

fn run(shared: &Shared, pressure: Option<(u64, fn())>) {
    let mut state = shared.lock();
    loop {
        state = shared
            .sampler
            .wait_while(state, |s| s.jobs.is_empty() && !s.closing)
            .unwrap_or_else(PoisonError::into_inner);
        if state.closing {
            return;
        }
        let jobs: Vec<Arc<JobInner>> = state.jobs.values().map(|l| Arc::clone(&l.job)).collect();
        let resources: Vec<_> = state.lanes.iter().map(|l| l.resource.clone()).collect();
        drop(state);
        let now = Counters::read(&resources);
        if let Some((bytes, call)) = pressure
            && now.memory_bytes > Some(bytes)
        {
            call();
        }
        for job in &jobs {
            job.sampling.sample(job, &now, &resources);
        }
        drop(jobs);
        state = shared
            .sampler
            .wait_timeout_while(shared.lock(), INTERVAL, |s| !s.closing)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
    }
}
