//! Renders analyses as terminal text, JSON, an HTML page, and export formats.
//!
//! Renderers are pure functions from an [`Analysis`](pellucid_model::Analysis) and its trace to text. They
//! read neither the environment nor the terminal: the caller passes width and colour. A live analysis, a
//! replayed trace and a test therefore produce the same bytes.
//!
//! Quantities that were not measured are listed as "not measured" in text and are `null` in JSON; they are
//! never estimated. Names and messages in a trace are untrusted: control characters never reach the terminal,
//! and no line exceeds the given width. Use [`escaped`] for foreign text that is printed otherwise.
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
//! [`html`] renders a self-contained page for interactive exploration. Use [`redact`] on a trace before
//! sharing anything rendered from it.

mod activity;
mod export;
mod html;
mod json;
mod redact;
mod text;
mod what_if;
mod words;

pub use export::folded::folded;
pub use export::otlp::otlp;
pub use export::parquet::parquet;
pub use export::perfetto::perfetto;
pub use html::html;
pub use json::{Source, analysis_json, comparison_json, job_json, spreads_json, write_document};
pub use redact::{Salt, redact};
pub use text::comparison::comparison;
pub use text::overview::{overview, worst_first};
pub use text::page::escaped;
pub use text::summary::summary_line;
pub use text::terminal::{shows_warnings, terminal};
pub use text::timeline::timeline;
pub use text::width::{columns, fit};
pub use what_if::{Single, WhatIf};
pub use words::cause;
