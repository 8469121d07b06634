//! The headline of the page: the bottleneck, and the change that would help most.
//!
//! The headline claims no more than the analysis. For a job that no resource limits, it names the longest
//! steps. Without a what-if prediction, it gives the model's lower bound instead.

use pellucid_model::units::{count, percent, time};
use pellucid_model::{Analysis, Cause, JobAnalysis};
use pellucid_trace::Outcome;

use crate::what_if::WhatIf;
use crate::words::{self, limiting, not_limited, noun, shortened};

/// Minimum share of the time for a cause, or a gain, to appear in the headline.
const MIN_SHARE: f64 = 0.05;
/// Maximum length of the first sentence: two lines of the page.
const MAX_CHARS: usize = 160;

/// Two sentences: the bottleneck, and the most effective change.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub(crate) struct Headline {
    pub limit: String,
    /// Empty without a prediction or advice.
    pub help: String,
}

/// Returns the headline of a trace. With several jobs, it is about the longest.
pub(crate) fn headline(a: &Analysis, what_if: Option<&WhatIf>) -> Headline {
    if let Some(whole) = a.wall_clock.jobs_ms.filter(|ms| a.blocked.is_some() && *ms > 0.0) {
        return of_application(a, whole, what_if);
    }
    let lasted = |job: &&JobAnalysis| job.duration_ms.or(job.observed_ms).unwrap_or(0.0);
    let Some(job) = a.jobs.iter().rev().max_by(|a, b| lasted(a).total_cmp(&lasted(b))) else {
        let limit = "This trace contains no jobs.".into();
        return Headline { limit, help: String::new() };
    };
    let which = if a.jobs.len() > 1 {
        format!("the longest of {} (job {})", count(a.jobs.len() as u64, "job"), job.id)
    } else {
        "this job".into()
    };
    Headline { limit: capitalized(&limit(a, job, &which)), help: help(job, what_if) }
}

/// Returns the headline of an application of pipelined tasks, whose causes cover all its jobs together.
fn of_application(a: &Analysis, whole_ms: f64, what_if: Option<&WhatIf>) -> Headline {
    // A failed job comes first, whatever its time.
    let failure = a.causes.iter().find(|cause| cause.cause == "failure").filter(|_| a.failed());
    let limit = match (failure, a.first_cause().filter(|cause| cause.ms >= MIN_SHARE * whole_ms)) {
        (Some(failure), _) => format!("{}.", capitalized(&failure.evidence)),
        (None, Some(cause)) => took(a, &cause, whole_ms),
        (None, None) => format!("Nothing stands out in the {} in which jobs ran.", time(whole_ms)),
    };
    let worth = |what_if: &&WhatIf| {
        what_if.best().is_some_and(|best| best.duration_ms <= (1.0 - MIN_SHARE) * what_if.measured_ms)
    };
    let help = match (a.advice.first(), what_if.filter(worth)) {
        (Some(advice), _) => format!(
            "What to do first: {} — saves {} ({} to {}).",
            advice.title,
            time(advice.saves_ms),
            time(advice.low_ms),
            time(advice.high_ms)
        ),
        (None, Some(what_if)) if !a.failed() => predicted(what_if),
        _ => String::new(),
    };
    Headline { limit: shortened(&limit, MAX_CHARS), help }
}

/// Describes a cause's share of the time in which jobs ran.
fn took(a: &Analysis, cause: &Cause, whole_ms: f64) -> String {
    let what = capitalized(words::cause(&cause.cause));
    let at_most = if cause.at_most { "at most " } else { "" };
    let of = crate::text::pipelined::of_jobs(a, cause).map_or(String::new(), |of| format!(", {of}"));
    let (ms, whole) = (time(cause.ms), time(whole_ms));
    match cause.ms <= whole_ms {
        true => format!(
            "{what} took {at_most}{ms} of the {whole} in which jobs ran ({}){of}.",
            percent(cause.ms / whole_ms)
        ),
        // The cause includes time between jobs.
        false => format!("{what} took {at_most}{ms}{of}, and jobs ran for {whole}."),
    }
}

fn limit(a: &Analysis, job: &JobAnalysis, which: &str) -> String {
    let Some(ms) = job.duration_ms else {
        let seen = job
            .observed_ms
            .map_or("it has no recorded activity".into(), |ms| format!("it was observed for {}", time(ms)));
        return format!("the end of {which} was not recorded; {seen}.");
    };
    match job.outcome {
        Some(Outcome::Failed) => return format!("{which} failed after {}.", time(ms)),
        Some(Outcome::Cancelled) => return format!("{which} was cancelled after {}.", time(ms)),
        _ => {}
    }
    let Some(bottleneck) = &job.bottleneck else {
        return match job.kinds.values().any(|used| used.limit_ms > 0.0) {
            true => format!("{which} was {}.", not_limited(job.steps.as_ref(), ms)),
            false => format!("the bottleneck of {which} ({}) was not measured.", time(ms)),
        };
    };
    let of_kind = |cause: &&Cause| cause.job == job.id && kind_of(cause) == bottleneck.kind;
    match a.causes.iter().find(of_kind) {
        Some(cause) => format!(
            "{which} was limited by {} for {}{} of its {} ({}).",
            by(job, cause),
            if cause.at_most { "at most " } else { "" },
            time(cause.ms),
            time(ms),
            percent(cause.ms / ms)
        ),
        None => format!("{which} ({}) was limited by {}.", time(ms), name(job, &bottleneck.kind).0),
    }
}

/// Returns the kind of resource of a cause, or the cause itself.
fn kind_of(cause: &Cause) -> &str {
    if cause.cause == "disk input" { "disk" } else { &cause.cause }
}

/// Names the resource of a cause, or the cause itself if it is not about a resource.
fn by(job: &JobAnalysis, cause: &Cause) -> String {
    let kind = kind_of(cause);
    if job.kinds.contains_key(kind) { name(job, kind).0 } else { noun(kind).to_owned() }
}

fn name(job: &JobAnalysis, kind: &str) -> (String, f64) {
    let (name, ms) = job.kinds.get(kind).map_or((noun(kind).to_owned(), 0.0), |used| limiting(kind, used));
    (if kind == "disk" || name == "cores" { format!("the {name}") } else { name }, ms)
}

/// Describes the best single change, if any.
fn predicted(what_if: &WhatIf) -> String {
    let Some(best) = what_if.best() else {
        return "None of the single changes tried is predicted to make it faster.".into();
    };
    format!(
        "What would help most: {} — {} ({} to {}), {} less.",
        best.set,
        time(best.duration_ms),
        time(best.low_ms),
        time(best.high_ms),
        percent(1.0 - best.duration_ms / what_if.measured_ms)
    )
}

fn help(job: &JobAnalysis, what_if: Option<&WhatIf>) -> String {
    if let Some(what_if) = what_if {
        return predicted(what_if);
    }
    match (&job.bottleneck, &job.next) {
        (Some(limit), Some(next)) if job.outcome == Some(Outcome::Ok) => format!(
            "If {} were unlimited, {} would limit next, at {} or more.",
            name(job, &limit.kind).0,
            name(job, &next.kind).0,
            time(next.ideal_ms)
        ),
        _ => String::new(),
    }
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}
