//! Contention between tasks on one machine, which share its cores and disks.
//!
//! An executor may have more slots than its machine has cores. A task that does not wait for disks then
//! waits for a core part of the time; that part grows when disks become faster and shrinks when they
//! become slower. A machine's tasks of a stage are therefore modelled as a closed queueing network of two
//! stations: one with as many servers as there are cores, and one for the disks. The share of task time
//! spent waiting for disks is known. It determines the only unknown, the disks' service time relative to
//! the cores', and with it the time at either station for another disk rate.
//!
//! Service times are assumed exponential, so the number of tasks at the disks is a birth-death process
//! (the machine repairman model). Real ones are not, but only the ratio of the two states is used;
//! bench/ONETWO.md gives the error.

/// Bisection steps over the logarithm of the ratio, which lies between `MIN_RATIO` and its inverse.
const BISECTION_STEPS: u32 = 60;
const MIN_RATIO: f64 = 1e-9;
/// Upper limit of the waiting share: tasks that only wait do not tell how long they compute.
const MAX_WAITING: f64 = 0.999;
/// Weights of states are rescaled above this.
const MAX_WEIGHT: f64 = 1e200;

/// Returns the factors by which the time not waiting for disks, and the time waiting, grow when disks
/// have `factor` times their rate, for `tasks` concurrent tasks on `cores` cores that wait for a share of
/// `waiting`.
pub(super) fn stretched(tasks: usize, cores: usize, waiting: f64, factor: f64) -> [f64; 2] {
    if waiting <= 0.0 || tasks == 0 {
        return [1.0, 1.0 / factor];
    }
    let at_disks = waiting.min(MAX_WAITING) * tasks as f64;
    let (mut low, mut high) = (MIN_RATIO, 1.0 / MIN_RATIO);
    for _ in 0..BISECTION_STEPS {
        let middle = f64::sqrt(low * high);
        match steady(tasks, cores, middle).1 < at_disks {
            true => low = middle,
            false => high = middle,
        }
    }
    let ratio = f64::sqrt(low * high);
    // A task's time at a station is the number of tasks there over the throughput (Little's law).
    let times = |(passing, at): (f64, f64)| [(tasks as f64 - at) / passing, at / passing];
    let (before, after) = (times(steady(tasks, cores, ratio)), times(steady(tasks, cores, ratio / factor)));
    [after[0] / before[0], after[1] / before[1]]
}

/// Returns the tasks completed per core service time, and the number at the disks, whose service takes
/// `ratio` of that time.
fn steady(tasks: usize, cores: usize, ratio: f64) -> (f64, f64) {
    let (mut weight, mut none, mut busy, mut at_disks) = (1.0, 1.0, 0.0, 0.0);
    for k in 1..=tasks {
        weight *= (tasks - k + 1).min(cores.max(1)) as f64 * ratio;
        busy += weight;
        at_disks += k as f64 * weight;
        if weight > MAX_WEIGHT {
            (weight, none, busy, at_disks) = (1.0, none / weight, busy / weight, at_disks / weight);
        }
    }
    let all = none + busy;
    (busy / all / ratio, at_disks / all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the task time after the change, relative to 1.
    fn takes(tasks: usize, cores: usize, waiting: f64, factor: f64) -> f64 {
        let [computing, at_disks] = stretched(tasks, cores, waiting, factor);
        (1.0 - waiting) * computing + waiting * at_disks
    }

    #[test]
    fn single_task_never_contends() {
        for waiting in [0.1, 0.5, 0.9] {
            assert!((takes(1, 2, waiting, 2.0) - (1.0 - waiting / 2.0)).abs() < 1e-6);
            assert!((takes(1, 2, waiting, 0.5) - (1.0 + waiting)).abs() < 1e-6);
        }
    }

    #[test]
    fn saturated_station_sets_the_pace() {
        // Seven of eight tasks wait: the disks are saturated, so all of the time halves.
        assert!((takes(8, 8, 0.9, 2.0) - 0.5).abs() < 0.1);
        // Few tasks wait for disks but all wait for cores: disks hardly matter, though disk waits halve
        // or double.
        for factor in [2.0, 0.5] {
            assert!((takes(8, 2, 0.04, factor) - 1.0).abs() < 0.02);
        }
        // The same waits, with a core for each task.
        assert!(takes(8, 8, 0.04, 0.5) > 1.03);
        // With faster disks, tasks that waited for them now wait for cores.
        assert!(takes(8, 2, 0.8, 4.0) > takes(8, 8, 0.8, 4.0) + 0.05);
    }

    #[test]
    fn faster_disks_never_slow_tasks_and_results_stay_finite() {
        for tasks in [1, 2, 8, 1000, 100_000] {
            for waiting in [0.0, 1e-6, 0.3, 0.999, 1.0] {
                let times = [0.01, 0.5, 1.0, 2.0, 100.0].map(|factor| takes(tasks, 4, waiting, factor));
                assert!(times.iter().all(|t| t.is_finite() && *t >= 0.0), "{tasks} {waiting} {times:?}");
                assert!(times.is_sorted_by(|a, b| *a >= b - 1e-9), "{tasks} {waiting} {times:?}");
                assert!((times[2] - 1.0).abs() < 1e-9);
            }
        }
    }
}
