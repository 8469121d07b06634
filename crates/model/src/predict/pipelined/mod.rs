//! What-ifs from pipelined tasks: other executors, faster disks or links, part of the time removed.
//!
//! The simulated predictor replays the tasks with other durations or on other slots. A task's blocked
//! time is known, so a faster resource shortens that part; its computing stays the same. A wait that is
//! only bounded is taken at its bound, which gives the best the change can do; the interval reaches down
//! to no gain. On other executors every stage may use every slot, both before and after the change.
//!
//! The analytic predictor sums over stages the tasks' time divided by the slots, or the longest task if
//! that takes longer. It ignores waves, gaps and overlapping stages.
//!
//! [`scenario`] applies the changes, [`recorded`] predicts the time, [`disks`] is the law of shared disks.

mod contention;
mod disks;
mod held;
mod limit;
mod recorded;
mod scenario;

use std::sync::OnceLock;

use pellucid_trace::Trace;

use crate::analysis::{Bottleneck, Cause};
use crate::analyze::analyze;
use crate::numbers::{median, ratio};
use crate::pipelined::blocked::{Without, blocked};
use crate::pipelined::findings::evidence::failed;
use crate::pipelined::findings::settings::Settings;
use crate::pipelined::limit::limit;
use crate::pipelined::replay::allocation;
use crate::whatif::{Baseline, Basis, Changes, Estimate, Tasks, WhatIfError};
use limit::limit_after;
use recorded::{Recorded, slots_of};
use scenario::Scenario;

/// Standard deviations per median absolute deviation, for a normal distribution.
const DEVIATION: f64 = 1.4826;

/// The basis of what-ifs on a trace of pipelined tasks.
pub(crate) struct PipelinedBasis<'t> {
    recorded: Recorded<'t>,
    /// Computed on first use, because it takes a whole analysis.
    first_cause: OnceLock<Option<Cause>>,
}

impl<'t> PipelinedBasis<'t> {
    /// Reads a trace and replays it once.
    ///
    /// # Errors
    /// Returns an error if no job in the trace took any time.
    pub fn of(trace: &'t Trace) -> Result<PipelinedBasis<'t>, WhatIfError> {
        Ok(PipelinedBasis { recorded: Recorded::of(trace)?, first_cause: OnceLock::new() })
    }
}

impl Basis for PipelinedBasis<'_> {
    fn tasks(&self) -> Tasks {
        Tasks::Pipelined
    }

    fn baseline(&self) -> Baseline {
        Baseline {
            measured_ms: self.recorded.replays.measured_ms,
            modelled_ms: Some(self.recorded.analytic_ms(&self.recorded.replays.tasks.durations_ns(), None))
                .filter(|ms| *ms > 0.0),
            simulated_ms: Some(self.recorded.replays.unchanged.jobs_ms()),
        }
    }

    fn bottleneck(&self) -> Option<Bottleneck> {
        let blocked = blocked(self.recorded.replays.tasks.all.iter());
        limit(Some(&blocked), self.first_cause().as_ref())
    }

    fn first_cause(&self) -> Option<Cause> {
        self.first_cause.get_or_init(|| analyze(self.recorded.replays.trace).first_cause()).clone()
    }

    /// Returns the relative standard error of the sum of task times. It falls with the number of tasks.
    /// The median absolute deviation is used, so that stragglers and skew do not count as chance.
    fn spread(&self) -> f64 {
        let (mut variance, mut total) = (0.0, 0.0);
        for tasks in &self.recorded.replays.schedule.by_stage {
            let times: Vec<f64> =
                tasks.iter().map(|ix| self.recorded.replays.tasks.all[*ix].duration_ms()).collect();
            total += times.iter().sum::<f64>();
            let Some(usual) = median(times.clone()) else { continue };
            let deviation = median(times.iter().map(|ms| (ms - usual).abs()).collect()).unwrap_or(0.0);
            variance += times.len() as f64 * (DEVIATION * deviation).powi(2);
        }
        ratio(variance.sqrt(), total).unwrap_or(0.0)
    }

    fn estimate(&self, changes: &Changes) -> Result<Estimate, WhatIfError> {
        let scenario = Scenario::of(&self.recorded, changes)?;
        let executors = scenario.executors.as_ref();
        let (simulated, held) = self.recorded.simulated_ms(&scenario.durations_ns, executors);
        let slots = executors.map(|executors| slots_of(&executors.slots).len());
        let analytic = self.recorded.analytic_ms(&scenario.durations_ns, slots);
        let bottleneck = limit_after(&scenario, self.first_cause());
        let Scenario { mut assumptions, mut uncertainty, .. } = scenario;
        assumptions.extend(held);
        let mut bounded = false;
        for end_ns in [&scenario.min_effect_ns, &scenario.max_effect_ns] {
            if *end_ns == scenario.durations_ns {
                continue;
            }
            bounded = true;
            let (end, _) = self.recorded.simulated_ms(end_ns, scenario.executors.as_ref());
            // `uncertainty` is the logarithm of the error factor; see `interval`.
            let off = ratio(end, simulated).filter(|r| *r > 0.0).map_or(0.0, f64::ln);
            match off >= 0.0 {
                true => uncertainty.1 += off,
                false => uncertainty.0 -= off,
            }
        }
        if bounded {
            assumptions.push(
                "Spark does not record all of these waits; the prediction uses their upper bounds".into(),
            );
        }
        Ok(Estimate {
            analytic_ms: Some(analytic),
            simulated_ms: Some(simulated),
            bottleneck,
            assumptions,
            uncertainty,
        })
    }

    fn singles(&self) -> Vec<String> {
        let trace = self.recorded.replays.trace;
        let local = Settings::of(trace).local;
        // More capacity does not fix an application that failed.
        let failed = failed(trace);
        let slots: &[&str] = match (failed, local) {
            (true, _) => &[],
            (false, true) => &["cores=x2"],
            (false, false) => &["executors=x2", "executor.cores=x2"],
        };
        let any = |without: Without| {
            self.recorded.replays.tasks.all.iter().any(|t| without.blocked_ms(t).is_some_and(|b| b.1 > 0.0))
        };
        let rates = [
            ("disk.rate=x2", Without::Disk),
            ("network.rate=x2", Without::Network),
            ("input=memory", Without::Input),
            ("no=gc", Without::Gc),
            ("no=scheduler", Without::Scheduler),
            ("no=deserialize", Without::Deserialize),
            ("no=disk", Without::Disk),
            ("no=network", Without::Network),
        ];
        let rates = rates.into_iter().filter(|(_, without)| any(*without)).map(|(setting, _)| setting);
        let late = (!local
            && !failed
            && allocation::arrival_ns(&self.recorded.replays.schedule).is_some_and(|ns| ns > 0))
        .then_some("idle.timeout=never");
        let tasks = [("no=stragglers", &self.recorded.at_median_ns), ("no=skew", &self.recorded.even_ns)];
        let tasks = tasks.into_iter().filter(|(_, changed)| !changed.is_empty()).map(|(setting, _)| setting);
        slots.iter().copied().chain(late).chain(rates).chain(tasks).map(str::to_owned).collect()
    }
}
