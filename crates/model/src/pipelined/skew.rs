//! Skew: partitions that hold more data than others and therefore take longer.
//!
//! Such a task is not a straggler, since its rate of progress is normal; it is long because of the data
//! (blocked-time-nsdi15 §5.3 compares rates for that reason). The cost of skew is estimated by a replay
//! with the same work divided evenly: the excess of the long partitions is spread over the other tasks of
//! the stage.

use super::straggler::STRAGGLER_RATIO;
use super::task::Task;
use crate::analysis::{Skew, SkewedPartition};
use crate::index::{Table, TaskIx};
use crate::numbers::{max_over_median, median};

/// Multiple of the median input above which a partition is skewed.
const SKEW_RATIO: f64 = 2.0;
/// Maximum skewed partitions listed per stage.
const MAX_LISTED: usize = 5;

/// Returns how uneven a stage's tasks are, and each task's duration with the work divided evenly (index,
/// ns); the latter is empty if nothing is skewed.
pub(crate) fn skew(all: &Table<TaskIx, Task>, of_stage: &[TaskIx]) -> (Skew, Vec<(TaskIx, u64)>) {
    let ended: Vec<TaskIx> = of_stage.iter().copied().filter(|ix| all[*ix].ok()).collect();
    let tasks = || ended.iter().map(|ix| &all[*ix]);
    let mut out = Skew {
        input_bytes_max_over_median: max_over_median(tasks().filter_map(Task::in_bytes).collect()),
        output_bytes_max_over_median: max_over_median(tasks().filter_map(Task::out_bytes).collect()),
        duration_max_over_median: max_over_median(tasks().map(Task::duration_ms).collect()),
        partitions: Vec::new(),
    };
    let read: Vec<f64> = match tasks().map(Task::in_bytes).collect::<Option<Vec<f64>>>() {
        Some(bytes) => bytes,
        None => tasks().map(Task::in_records).collect::<Option<Vec<f64>>>().unwrap_or_default(),
    };
    let times: Vec<f64> = tasks().map(Task::duration_ms).collect();
    let (Some(usual_read), Some(usual_time)) = (median(read.clone()), median(times.clone())) else {
        return (out, Vec::new());
    };
    let total: f64 = read.iter().sum();
    let mean = total / read.len() as f64;
    let mut even = Vec::new();
    let mut excess_ms = 0.0;
    for (ix, (read, time)) in read.iter().zip(&times).enumerate() {
        // Its rate is below the straggler threshold, so the data explains its duration.
        let by_data = time / usual_time <= STRAGGLER_RATIO * read / usual_read;
        if *read > SKEW_RATIO * usual_read && *time > STRAGGLER_RATIO * usual_time && by_data {
            even.push((ix, time * mean / read));
            excess_ms += time - time * mean / read;
            let partition = all[ended[ix]].partition;
            out.partitions.push(SkewedPartition {
                partition,
                share: read / total,
                times_median: read / usual_read,
                duration_ms: *time,
            });
        }
    }
    if even.is_empty() {
        return (out, Vec::new());
    }
    out.partitions.sort_by(|a, b| b.duration_ms.total_cmp(&a.duration_ms));
    out.partitions.truncate(MAX_LISTED);
    // The other tasks take over the excess of the long ones.
    let share = excess_ms / (times.len() - even.len()).max(1) as f64;
    let mut divided: Vec<f64> = times.iter().map(|ms| ms + share).collect();
    even.iter().for_each(|(ix, ms)| divided[*ix] = *ms);
    (out, ended.into_iter().zip(divided).map(|(ix, ms)| (ix, (ms * 1e6) as u64)).collect())
}
