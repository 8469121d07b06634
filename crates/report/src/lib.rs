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
//! Where a person is to explore, [`html`] writes one page with everything in it. What goes to people
//! elsewhere is [`redact`]ed first.

mod activity;
mod comparison;
mod html;
mod json;
mod otlp;
mod overview;
mod page;
mod parquet;
mod perfetto;
mod pipelined;
mod redact;
mod summary;
mod terminal;
mod timeline;
mod tuning;
mod what_if;
mod words;

pub use comparison::{comparison, comparison_json};
pub use html::html;
pub use json::{Source, analysis_json, document, job_json, spreads_json};
pub use otlp::otlp;
pub use overview::{overview, worst_first};
pub use parquet::parquet;
pub use perfetto::perfetto;
pub use redact::redact;
pub use summary::summary_line;
pub use terminal::{shows_warnings, terminal};
pub use timeline::timeline;
pub use what_if::{Single, WhatIf};
pub use words::{cause, time};
