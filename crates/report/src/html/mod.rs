//! One self-contained HTML page: headline, timeline, stages, what-ifs, and what was not measured.
//!
//! The page is a frame (`page.html`), its look (`page.css`) and its behaviour (`*.js`), all in this
//! folder and all inside the one file, beside the data: the analysis as the same document that
//! `analyze --json` prints, and the timeline. Whatever the analysis learns to say is thus in the page's
//! data already. It asks nothing of any network; its own policy forbids that.
//!
//! Size and speed come from two forms of the same thing. `levels` holds the use of each resource in
//! equal bins and is all that the first picture needs; `blocks` holds single monotasks, and the page
//! unpacks those in view once they are few enough to be told apart.
//!
//! Nothing is drawn without a script, but the headline and the reason are still read then.

mod blocks;
mod chunks;
mod headline;
mod levels;
mod timeline;

use pellucid_model::Analysis;
use pellucid_trace::Trace;
use serde_json::json;

use crate::json::{Source, analysis_json};
use crate::terminal::missing;
use crate::what_if::WhatIf;
use chunks::Chunks;

const FRAME: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
/// In the order in which they run; each is a part of one script.
const SCRIPTS: [&str; 6] = [
    include_str!("data.js"),
    include_str!("words.js"),
    include_str!("lanes.js"),
    include_str!("timeline.js"),
    include_str!("tables.js"),
    include_str!("start.js"),
];

/// The page of a trace. Where nothing could be predicted, `what_if` is the reason, and the page gives it.
pub fn html(trace: &Trace, a: &Analysis, source: Source, what_if: Result<&WhatIf, &str>) -> String {
    let mut chunks = Chunks::default();
    let timeline = timeline::timeline(trace, a, &mut chunks);
    let headline = headline::headline(a, what_if.ok());
    let title = match a.jobs.as_slice() {
        [job] => job.name.split_whitespace().collect::<Vec<_>>().join(" "),
        jobs => crate::words::count(jobs.len() as u64, "job"),
    };
    let jobs: Vec<_> = a.jobs.iter().collect();
    let document = json!({
        "title": title,
        "headline": headline,
        "recorded_unix_ns": trace.header.as_ref().map(|h| h.origin_unix_ns.to_string()),
        "truncated": trace.truncated,
        "analysis": analysis_json(a, source),
        "timeline": timeline,
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
            // No other is in the frame; a test opens the page.
            _ => {}
        }
        rest = after;
    }
    page.push_str(rest);
    page
}

/// A title that fits a tab.
fn shortened(title: &str) -> String {
    match title.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &title[..end]),
        None => title.to_owned(),
    }
}

/// Text whose numbers are not parted from their units at the end of a line.
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
