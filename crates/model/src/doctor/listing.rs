//! The finding that a job waits for listings while it is planned.

use super::problem::{Problem, Saving};
use super::remedies::MIN_TIME_SHARE;
use crate::finding::{Finding, number, percent};

/// Reports listings that took a notable share of the jobs' time, given the duration of each one.
/// `saved_ns` returns the saving of `change` for the sum of the durations.
pub(super) fn long_listings(
    name: &str,
    took_ns: &[u64],
    jobs_ns: u64,
    change: &str,
    saved_ns: impl FnOnce(u64) -> [u64; 3],
) -> Option<Problem> {
    let listed = took_ns.iter().sum::<u64>();
    (listed as f64 > MIN_TIME_SHARE * jobs_ns as f64).then(|| {
        let finding = Finding::new(
            "planning waits for listings",
            format!(
                "{} {name} took {} ms, {} of the jobs' time",
                took_ns.len(),
                number(listed as f64 / 1e6),
                percent(listed as f64 / jobs_ns as f64)
            ),
            change,
        );
        Problem::saving(finding, Saving::Time(saved_ns(listed)))
    })
}
