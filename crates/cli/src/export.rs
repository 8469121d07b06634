//! `pellucid export`: converts a trace for other tools.

use crate::console::Console;
use crate::failure::Failure;
use crate::{inputs, output};
use pellucid_report::Salt;
use serde_json::json;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

/// Arguments of `export`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
perfetto  a file for https://ui.perfetto.dev or a local Perfetto, with one
          track for each concurrent slot of a resource
parquet   a folder with one file per kind of record (docs/exports.md)
otlp      a file of OpenTelemetry spans (OTLP/JSON): jobs, stages,
          multitasks, monotasks
folded    a file of call stacks for flame graphs, of a trace recorded
          with `sql --stacks`

Example:
  pellucid export count.trace --to parquet -o count
  duckdb -c \"SELECT kind, count(*) FROM 'count/monotasks.parquet' GROUP BY 1\"")]
pub struct Arguments {
    /// A trace written by `pellucid sql --trace`, or a Spark event log
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// Output format
    #[arg(long, value_enum)]
    to: Format,
    /// The file to write; for parquet, a folder that does not exist or is empty
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Replace SQL text, paths, host names and errors with hashes, for sharing
    #[arg(long)]
    redact: bool,
}

/// An export format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Perfetto,
    Parquet,
    Otlp,
    Folded,
}

/// Runs the command.
pub fn run(arguments: &Arguments, console: &Console) -> Result<(), Failure> {
    let mut trace = inputs::read_one_for(&arguments.input, &arguments.output, console)?;
    if arguments.redact {
        pellucid_report::redact(&mut trace, &Salt::random());
    }
    let path = &arguments.output;
    match arguments.to {
        Format::Perfetto => output::write_whole(path, |out| pellucid_report::perfetto(&trace, out))?,
        Format::Otlp => output::write_whole(path, |out| pellucid_report::otlp(&trace, out))?,
        Format::Folded if trace.stacks.is_empty() => {
            return Err(Failure::Failed(format!(
                "cannot export the stacks of {}: it has none; record them with `pellucid sql --stacks --trace FILE`",
                arguments.input.display()
            )));
        }
        Format::Folded => output::write_whole(path, |out| pellucid_report::folded(&trace, out))?,
        Format::Parquet => output::write_whole_folder(path, |partial| {
            pellucid_report::parquet(&trace, |name| File::create(partial.join(name)).map(BufWriter::new))
        })?,
    }
    if console.json {
        let document = json!({"path": path.to_string_lossy(), "redacted": arguments.redact});
        return console.print_document("pellucid.export/1", &document);
    }
    console.note(&format!("wrote {}", path.display()));
    Ok(())
}
