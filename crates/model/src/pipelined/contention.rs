//! Tasks beside each other on a machine, which share its cores and its disks.
//!
//! An executor may have more slots than its machine has cores. Then part of the time in which no task waits for disks
//! it waits for a core, and when disks become faster that part grows; when they become slower it shrinks. So a
//! machine's tasks of a stage are taken for a closed queueing network of two stations: as many servers as there are
//! cores, and one for its disks. What is known is which share of the tasks' time is wait for disks. From it follows the only
//! unknown number, the disks' service time in units of the cores', and from that the time at either station when
//! the disks' becomes another.
//!
//! Service times are taken for exponential, so that the number of tasks at the disks is a birth and death
//! process (the machine repairman's). They are not, but of the two states only the ratio counts; how far off that is
//! stands in bench/ONETWO.md.

/// Halvings of the logarithm of the unknown number, which is between these.
const STEPS: u32 = 60;
const LEAST: f64 = 1e-9;
/// Tasks that do nothing but wait say nothing of how long they compute.
const MAX_WAITING: f64 = 0.999;
/// Where weights of states are made smaller.
const LARGE: f64 = 1e200;

/// By how much the time that tasks are not waiting for disks, and that in which they are, becomes longer when the disks
/// have `factor` times their rate. Of so many tasks at once on so many cores, which waited a share of their time.
pub(super) fn stretched(tasks: usize, cores: usize, waiting: f64, factor: f64) -> [f64; 2] {
    if waiting <= 0.0 || tasks == 0 {
        return [1.0, 1.0 / factor];
    }
    let at_disks = waiting.min(MAX_WAITING) * tasks as f64;
    let (mut low, mut high) = (LEAST, 1.0 / LEAST);
    for _ in 0..STEPS {
        let middle = f64::sqrt(low * high);
        match steady(tasks, cores, middle).1 < at_disks {
            true => low = middle,
            false => high = middle,
        }
    }
    let ratio = f64::sqrt(low * high);
    // A task's time at a station is the number of tasks there over how many pass (Little's law).
    let times = |(passing, at): (f64, f64)| [(tasks as f64 - at) / passing, at / passing];
    let (before, after) = (times(steady(tasks, cores, ratio)), times(steady(tasks, cores, ratio / factor)));
    [after[0] / before[0], after[1] / before[1]]
}

/// Tasks that pass in a core's service time, and how many are at the disks, whose service takes `ratio` of that.
fn steady(tasks: usize, cores: usize, ratio: f64) -> (f64, f64) {
    let (mut weight, mut none, mut busy, mut at_disks) = (1.0, 1.0, 0.0, 0.0);
    for k in 1..=tasks {
        weight *= (tasks - k + 1).min(cores.max(1)) as f64 * ratio;
        busy += weight;
        at_disks += k as f64 * weight;
        if weight > LARGE {
            (weight, none, busy, at_disks) = (1.0, none / weight, busy / weight, at_disks / weight);
        }
    }
    let all = none + busy;
    (busy / all / ratio, at_disks / all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long tasks take then, of 1.
    fn takes(tasks: usize, cores: usize, waiting: f64, factor: f64) -> f64 {
        let [computing, at_disks] = stretched(tasks, cores, waiting, factor);
        (1.0 - waiting) * computing + waiting * at_disks
    }

    #[test]
    fn one_task_has_all_for_itself() {
        for waiting in [0.1, 0.5, 0.9] {
            assert!((takes(1, 2, waiting, 2.0) - (1.0 - waiting / 2.0)).abs() < 1e-6);
            assert!((takes(1, 2, waiting, 0.5) - (1.0 + waiting)).abs() < 1e-6);
        }
    }

    #[test]
    fn what_is_never_idle_sets_the_pace() {
        // Of eight tasks seven wait: the disks are busy, and what halves is all of their time.
        assert!((takes(8, 8, 0.9, 2.0) - 0.5).abs() < 0.1);
        // Hardly any waits, but for a core: disks change nothing, though waits for them halve or double.
        for factor in [2.0, 0.5] {
            assert!((takes(8, 2, 0.04, factor) - 1.0).abs() < 0.02);
        }
        // The same waits where each has a core.
        assert!(takes(8, 8, 0.04, 0.5) > 1.03);
        // Disks twice as fast leave tasks that waited for them waiting for cores.
        assert!(takes(8, 2, 0.8, 4.0) > takes(8, 8, 0.8, 4.0) + 0.05);
    }

    #[test]
    fn faster_disks_never_cost_and_nothing_overflows() {
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
