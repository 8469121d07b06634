//! Units, ratios, medians and the measured time, as every analysis uses them.

use pellucid_trace::Trace;

/// Returns the time from the first submission to the last end.
pub(crate) fn measured_ns(trace: &Trace) -> u64 {
    let first = trace.jobs.iter().map(|j| j.submitted_ns).min().unwrap_or(0);
    let last = trace.job_ends.iter().map(|e| e.ended_ns).max().unwrap_or(first);
    last.saturating_sub(first)
}

/// Returns `a ÷ b` if it is a finite number.
pub(crate) fn ratio(a: f64, b: f64) -> Option<f64> {
    let r = a / b;
    (b > 0.0 && r.is_finite()).then_some(r)
}

/// Converts nanoseconds to milliseconds.
pub(crate) fn ms(ns: f64) -> f64 {
    ns / 1e6
}

/// Returns the median, or the mean of the two middle values.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    let middle = values.len() / 2;
    if values.is_empty() {
        return None;
    }
    let (below, upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let upper = *upper;
    let lower = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Some(if values.len() % 2 == 1 { upper } else { (lower + upper) / 2.0 })
}

/// Returns the largest value over the median, for at least two values.
pub(crate) fn max_over_median(values: Vec<f64>) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    ratio(largest, median(values)?)
}
