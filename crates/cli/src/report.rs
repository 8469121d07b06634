//! `pellucid report`: writes a self-contained HTML report of a trace.

use crate::console::Console;
use crate::failure::Failure;
use crate::{inputs, output};
use pellucid_report::{Salt, Source, WhatIf};
use serde_json::json;
use std::path::PathBuf;

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The page needs no network access and no other files, so it can be shared as it is. --redact replaces SQL \
text, paths, host names and errors with hashes.

Example:
  pellucid sql \"SELECT count(*) FROM 'lineitem.parquet'\" --trace count.trace
  pellucid report count.trace -o count.html")]
pub struct Arguments {
    /// A trace written by `pellucid sql --trace`, or a Spark event log
    #[arg(value_name = "INPUT")]
    pub input: PathBuf,
    /// The HTML file to write
    #[arg(short, long, value_name = "FILE.html")]
    pub output: PathBuf,
    /// Replace SQL text, paths, host names and errors with hashes, for sharing
    #[arg(long)]
    pub redact: bool,
}

/// Runs the command.
pub fn run(arguments: &Arguments, console: &Console) -> Result<(), Failure> {
    let mut trace = inputs::read_one_for(&arguments.input, &arguments.output, console)?;
    if arguments.redact {
        pellucid_report::redact(&mut trace, &Salt::random());
    }
    let analysis = pellucid_model::analyze(&trace);
    let what_if = WhatIf::of(&trace);
    let path = pellucid_storage::shown(&arguments.input.to_string_lossy());
    let source = Source::of_trace(&trace, (!arguments.redact).then_some(path.as_str()));
    let page = pellucid_report::html(&trace, &analysis, source, what_if.as_ref().map_err(String::as_str));
    output::write_whole(&arguments.output, |out| out.write_all(page.as_bytes()))?;
    if console.json {
        let document = json!({"path": arguments.output.to_string_lossy(), "bytes": page.len(), "redacted": arguments.redact});
        return console.print_document("pellucid.report/1", &document);
    }
    console.note(&format!("wrote {} ({:.1} MB)", arguments.output.display(), page.len() as f64 / 1e6));
    Ok(())
}
