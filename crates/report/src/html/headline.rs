//! The sentence at the top of the page: what limited the job, and what would help most.
//!
//! It claims no more than the analysis: a job that was mostly waiting is said to be limited by no
//! resource, a trace that holds nothing is said to hold nothing, and without a prediction the model's
//! lower bound is named as what it is.

use pellucid_model::{Analysis, Cause, JobAnalysis};
use pellucid_trace::Outcome;

use crate::what_if::WhatIf;
use crate::words::{count, limiting, noun, percent, time};

/// Parts of the time below which a cause does not carry a headline.
const WORTH: f64 = 0.05;

/// Two sentences: what limited, and what would help most.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub(crate) struct Headline {
    pub limit: String,
    /// Empty where there is nothing to say.
    pub help: String,
}

/// The headline of a trace; of several jobs, it is about the longest.
pub(crate) fn headline(a: &Analysis, what_if: Option<&WhatIf>) -> Headline {
    if let Some(whole) = a.wall_clock.jobs_ms.filter(|ms| a.blocked.is_some() && *ms > 0.0) {
        return of_application(a, whole, what_if);
    }
    let lasted = |job: &&JobAnalysis| job.duration_ms.or(job.observed_ms).unwrap_or(0.0);
    let Some(job) = a.jobs.iter().rev().max_by(|a, b| lasted(a).total_cmp(&lasted(b))) else {
        let limit = "This trace holds no job, so there is nothing that limited one.".into();
        return Headline { limit, help: String::new() };
    };
    let which = if a.jobs.len() > 1 {
        format!("the longest of {}", count(a.jobs.len() as u64, "job"))
    } else {
        "this job".into()
    };
    Headline { limit: capitalized(&limit(a, job, &which)), help: help(job, what_if) }
}

/// Of an application of pipelined tasks: its causes hold for all its jobs together.
fn of_application(a: &Analysis, whole_ms: f64, what_if: Option<&WhatIf>) -> Headline {
    let failure = a.causes.iter().find(|cause| cause.cause == "failure");
    let waits = a.causes.iter().filter(|cause| cause.cause != "failure");
    let largest = waits.max_by(|a, b| a.ms.total_cmp(&b.ms)).filter(|c| c.ms >= WORTH * whole_ms);
    let limit = largest.map_or_else(
        || format!("Nothing stands out in the {} in which jobs ran.", time(whole_ms)),
        |cause| {
            let at_most = if cause.at_most { "at most " } else { "" };
            let (ms, share) = (time(cause.ms), percent(cause.ms / whole_ms));
            format!(
                "{} limited {at_most}{ms} of the {} in which jobs ran ({share}).",
                capitalized(noun(&cause.cause)),
                time(whole_ms)
            )
        },
    );
    // That a job failed comes first, whatever its time.
    let limit = match failure {
        Some(failure) => format!("{}. {limit}", capitalized(&failure.evidence)),
        None => limit,
    };
    let best = what_if.filter(|w| w.best().is_some());
    let help = match (best, a.advice.first()) {
        (Some(what_if), _) => predicted(what_if),
        (None, Some(advice)) => format!(
            "What would help most: {} — saves {} ({} to {}).",
            advice.title,
            time(advice.saves_ms),
            time(advice.low_ms),
            time(advice.high_ms)
        ),
        (None, None) => String::new(),
    };
    Headline { limit, help }
}

fn limit(a: &Analysis, job: &JobAnalysis, which: &str) -> String {
    let Some(ms) = job.duration_ms else {
        let seen = job
            .observed_ms
            .map_or("nothing of it was recorded".into(), |ms| format!("it was seen for {}", time(ms)));
        return format!("the end of {which} was not recorded; {seen}.");
    };
    match job.outcome {
        Some(Outcome::Failed) => return format!("{which} failed after {}.", time(ms)),
        Some(Outcome::Cancelled) => return format!("{which} was cancelled after {}.", time(ms)),
        _ => {}
    }
    let causes = || a.causes.iter().filter(|c| c.job == job.id);
    let largest = causes().max_by(|a, b| a.ms.total_cmp(&b.ms)).filter(|c| c.ms >= WORTH * ms);
    match (largest, &job.bottleneck) {
        (Some(cause), bottleneck) if cause.cause == "unexplained" => {
            let next = bottleneck.as_ref().map_or(String::new(), |b| {
                let (name, busy) = name(job, &b.kind);
                format!(" The most used was {name}, with {} of work.", time(busy))
            });
            format!(
                "no resource was full for {} of the {} that {which} took.{next}",
                time(cause.ms),
                time(ms)
            )
        }
        (Some(cause), _) => format!(
            "{which} was limited by {} for {}{} of its {} ({}).",
            by(job, cause),
            if cause.at_most { "at most " } else { "" },
            time(cause.ms),
            time(ms),
            percent(cause.ms / ms)
        ),
        (None, _) => format!("what limited {which} ({}) was not measured.", time(ms)),
    }
}

/// What a cause names: the resource where it is one's, else the cause.
fn by(job: &JobAnalysis, cause: &Cause) -> String {
    let kind = if cause.cause == "disk input" { "disk" } else { &cause.cause };
    if job.kinds.contains_key(kind) { name(job, kind).0 } else { noun(kind).to_owned() }
}

fn name(job: &JobAnalysis, kind: &str) -> (String, f64) {
    let (name, ms) = job.kinds.get(kind).map_or((noun(kind).to_owned(), 0.0), |used| limiting(kind, used));
    (if kind == "disk" || name == "cores" { format!("the {name}") } else { name }, ms)
}

/// The best single change, or that there is none.
fn predicted(what_if: &WhatIf) -> String {
    let Some(best) = what_if.best() else {
        return "No single change that was tried is predicted to make it faster.".into();
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
            "Were {} no limit at all, {} would limit next, at {} or more.",
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
