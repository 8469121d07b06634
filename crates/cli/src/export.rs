//! `pellucid export`: a trace for other tools.

use crate::analyze;
use crate::console::Console;
use crate::failure::Failure;
use crate::{interrupt, output};
use serde_json::{Map, json};
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// Arguments of `export`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
perfetto  one file for https://ui.perfetto.dev or a local Perfetto: a track per place of a resource
parquet   a folder with a file per kind of record (docs/exports.md)
otlp      one file of OpenTelemetry spans (OTLP as JSON): jobs, stages, multitasks, monotasks

Example:
  pellucid export count.trace --to parquet -o count
  duckdb -c \"SELECT kind, phase, sum(service_ns) / 1e9 FROM 'count/monotasks.parquet' GROUP BY ALL\"")]
pub struct Arguments {
    /// A trace that `pellucid sql --trace` wrote, or a Spark event log
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// The tool's format
    #[arg(long, value_enum)]
    to: Format,
    /// The file to write; for parquet the folder, which must not exist yet or be empty
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Replace SQL text, paths, hosts and errors by hashes, for sharing
    #[arg(long)]
    redact: bool,
}

/// What a trace can be written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Perfetto,
    Parquet,
    Otlp,
}

/// Runs the command.
pub fn run(arguments: &Arguments, console: &Console) -> Result<(), Failure> {
    let mut trace = analyze::read(&arguments.input)?;
    if arguments.redact {
        pellucid_report::redact(&mut trace);
    }
    let path = &arguments.output;
    match arguments.to {
        Format::Perfetto => output::write_whole(path, |out| pellucid_report::perfetto(&trace, out))?,
        Format::Otlp => output::write_whole(path, |out| pellucid_report::otlp(&trace, out))?,
        Format::Parquet => folder(path, |partial| {
            pellucid_report::parquet(&trace, |name| File::create(partial.join(name)).map(BufWriter::new))
        })?,
    }
    if console.json {
        let document = json!({"path": path.to_string_lossy(), "redacted": arguments.redact});
        let document = document.as_object().cloned().unwrap_or_else(Map::new);
        return console.print(|out| output::write_document(out, "pellucid.export/1", &document));
    }
    console.note(&format!("wrote {}", path.display()));
    Ok(())
}

/// Fills a folder that appears whole or not at all.
fn folder(path: &Path, fill: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::file("write", path.display(), &error);
    let taken = match std::fs::read_dir(path) {
        Ok(mut there) => there.next().is_some(),
        Err(_) => path.exists(),
    };
    if taken {
        return Err(Failure::Usage(format!(
            "{} exists already; name a folder that does not exist or is empty",
            path.display()
        )));
    }
    let name = path.file_name().ok_or_else(|| {
        Failure::Usage(format!("{} names no folder; give one, such as `-o trace-tables`", path.display()))
    })?;
    let partial = path.with_file_name(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    interrupt::temporary(&partial);
    let written = std::fs::create_dir(&partial)
        .and_then(|()| fill(&partial))
        // An empty folder gives way; that it is empty was seen above.
        .and_then(|()| std::fs::rename(&partial, path));
    written.map_err(|error| {
        let _ = std::fs::remove_dir_all(&partial);
        failed(error)
    })
}
