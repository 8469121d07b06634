//! Shows analyses: text and pictures for a terminal, JSON for programs.
//!
//! A renderer gets plain data (an [`Analysis`](pellucid_model::Analysis), and the trace where
//! it names things) and gives back text. It measures nothing, asks no
//! environment and writes nowhere: width and colour are the caller's, who knows
//! the terminal, `NO_COLOR` and `--color`. So the same bytes come out
//! in a test, live and from a trace read back.
//!
//! What was not measured is named as such in text and is `null` in JSON; nothing
//! is filled in. Names and messages come from other people's jobs, so control
//! characters in them never reach the terminal, and no line is longer than the width.
//!
//! ```
//! let trace = pellucid_trace::Trace::default();
//! let analysis = pellucid_model::analyze(&trace);
//! print!("{}", pellucid_report::terminal(&analysis, &trace, 80, false));
//! let source = pellucid_report::Source::of_trace(&trace, Some("job.trace"));
//! let document = pellucid_report::analysis_json(&analysis, source);
//! assert_eq!(document["format"], "pellucid.analysis/1");
//! ```
//!
//! It does not apply where a person is to explore: that is the one-file page.

mod json;
mod page;
mod summary;
mod terminal;
mod timeline;
mod words;

pub use json::{Source, analysis_json, document, job_json};
pub use summary::summary_line;
pub use terminal::terminal;
pub use timeline::timeline;
