//! The report page: one self-contained HTML file.
//!
//! The file embeds a frame (`page.html`), its style (`page.css`), its scripts (`*.js`) and the data: the
//! document that `analyze --json` prints, the timeline, the plans, and the sampled stacks. The page makes no network requests; its content
//! security policy forbids them.
//!
//! The timeline is stored in two forms to keep the page small and fast. `levels` holds the use of each
//! resource in equal bins, which is all that the first picture needs. `blocks` holds single activities; the
//! page unpacks those in view once they are few enough to be distinguished.
//!
//! Without JavaScript, only the headline and a notice are shown.

mod blocks;
mod chunks;
mod headline;
mod levels;
mod plan;
pub(crate) mod stacks;
mod timeline;

use pellucid_model::Analysis;
use pellucid_model::units::count;
use pellucid_trace::Trace;
use serde_json::json;

use crate::json::{Source, analysis_json};
use crate::text::terminal::missing;
use crate::what_if::WhatIf;
use chunks::Chunks;

const FRAME: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
/// Parts of the page's script, in execution order.
const SCRIPTS: [&str; 11] = [
    include_str!("data.js"),
    include_str!("words.js"),
    include_str!("lanes.js"),
    include_str!("timeline.js"),
    include_str!("tables.js"),
    include_str!("layout.js"),
    include_str!("plan/core.js"),
    include_str!("plan/metrics.js"),
    include_str!("plan.js"),
    include_str!("stacks/flame.js"),
    include_str!("start.js"),
];

/// Renders the page of a trace. If no prediction is possible, `what_if` is the reason, which the page shows.
pub fn html(trace: &Trace, a: &Analysis, source: Source, what_if: Result<&WhatIf, &str>) -> String {
    let mut chunks = Chunks::default();
    let timeline = timeline::timeline(trace, a, &mut chunks);
    let headline = headline::headline(a, what_if.ok());
    let title = match a.jobs.as_slice() {
        [job] => job.name.split_whitespace().collect::<Vec<_>>().join(" "),
        jobs => count(jobs.len() as u64, "job"),
    };
    let jobs: Vec<_> = a.jobs.iter().collect();
    let document = json!({
        "title": title,
        "headline": headline,
        "recorded_unix_ns": trace.header.as_ref().map(|h| h.origin_unix_ns.to_string()),
        "truncated": trace.truncated,
        "analysis": analysis_json(a, source),
        "timeline": timeline,
        "plans": plan::plans(trace),
        "stacks": stacks::flame(trace),
        "what_if": what_if.ok(),
        "no_what_if": what_if.err(),
        "not_measured": missing(a, &jobs),
    });
    let document = chunks.add(document.to_string().as_bytes());
    let mut page = String::new();
    let mut rest = FRAME;
    while let Some((before, after)) = rest.split_once("{{") {
        let (slot, after) = after.split_once("}}").unwrap_or((after, ""));
        page.push_str(before);
        match slot {
            "title" => page.push_str(&escaped(&shortened(&title))),
            "limit" => page.push_str(&escaped(&unbroken(&headline.limit))),
            "help" => page.push_str(&escaped(&unbroken(&headline.help))),
            "style" => page.push_str(STYLE),
            "chunks" => page.push_str(&std::mem::take(&mut chunks).finish()),
            "document" => page.push_str(&document.to_string()),
            "script" => SCRIPTS.iter().for_each(|script| page.push_str(script)),
            // The frame has no other slots; a test checks that none is left.
            _ => {}
        }
        rest = after;
    }
    page.push_str(rest);
    page
}

/// Truncates a title to fit a browser tab.
fn shortened(title: &str) -> String {
    match title.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &title[..end]),
        None => title.to_owned(),
    }
}

/// Replaces the spaces between numbers and units by no-break spaces.
fn unbroken(text: &str) -> String {
    const UNITS: [&str; 7] = ["h", "min", "s", "ms", "µs", "ns", "%"];
    let (mut out, mut after_number) = (String::new(), false);
    for (ix, word) in text.split(' ').enumerate() {
        let is_unit = UNITS.contains(&word.trim_end_matches([')', ',', '.', ';']));
        if ix > 0 {
            out.push(if after_number && is_unit { '\u{a0}' } else { ' ' });
        }
        out += word;
        after_number = word.ends_with(|c: char| c.is_ascii_digit());
    }
    out
}

fn escaped(text: &str) -> String {
    let entity = |c: char| match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&quot;".to_owned(),
        c if c.is_control() && !c.is_whitespace() => " ".to_owned(),
        c => c.to_string(),
    };
    text.chars().map(entity).collect()
}
