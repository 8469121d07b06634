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
mod width;
mod words;

pub use comparison::{comparison, comparison_json};
pub use html::html;
pub use json::{Source, analysis_json, job_json, spreads_json, write_document};
pub use otlp::otlp;
pub use overview::{overview, worst_first};
pub use page::escaped;
pub use parquet::parquet;
pub use perfetto::perfetto;
pub use redact::{Salt, redact};
pub use summary::summary_line;
pub use terminal::{shows_warnings, terminal};
pub use timeline::timeline;
pub use what_if::{Single, WhatIf};
pub use width::{columns, fit};
pub use words::cause;
