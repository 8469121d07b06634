//! `pellucid report`: one self-contained page from a trace.

use crate::analyze;
use crate::console::Console;
use crate::failure::Failure;
use crate::{interrupt, output};
use pellucid_report::{Source, WhatIf};
use serde_json::{Map, json};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The page needs no network and no other file: send it as it is. With --redact, SQL text, paths, hosts and
errors in it are replaced by hashes.

Example:
  pellucid sql \"SELECT count(*) FROM 'data/tpch/lineitem.parquet'\" --trace count.trace
  pellucid report count.trace -o count.html")]
pub struct Arguments {
    /// A trace that `pellucid sql --trace` wrote, or a Spark event log
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// The page to write
    #[arg(short, long, value_name = "FILE.html")]
    output: PathBuf,
    /// Replace SQL text, paths, hosts and errors by hashes, for sharing
    #[arg(long)]
    redact: bool,
}

/// Runs the command.
pub fn run(arguments: &Arguments, console: &Console) -> Result<(), Failure> {
    let mut trace = analyze::read(&arguments.input)?;
    if arguments.redact {
        pellucid_report::redact(&mut trace);
    }
    let analysis = pellucid_model::analyze(&trace);
    let what_if = WhatIf::of(&trace);
    let path = arguments.input.to_string_lossy();
    let source = Source::of_trace(&trace, (!arguments.redact).then_some(path.as_ref()));
    let page = pellucid_report::html(&trace, &analysis, source, what_if.as_ref().map_err(String::as_str));
    write_whole(&arguments.output, |out| out.write_all(page.as_bytes()))?;
    if console.json {
        let document = json!({"path": arguments.output.to_string_lossy(), "bytes": page.len(), "redacted": arguments.redact});
        let document = document.as_object().cloned().unwrap_or_else(Map::new);
        return console.print(|out| output::write_document(out, "pellucid.report/1", &document));
    }
    console.note(&format!("wrote {} ({:.1} MB)", arguments.output.display(), page.len() as f64 / 1e6));
    Ok(())
}

/// Writes a file that appears whole or not at all: under a temporary name beside it until then.
pub fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::file("write", path.display(), &error);
    let name = path.file_name().ok_or_else(|| {
        Failure::Usage(format!("{} names no file; give one, such as `-o out.html`", path.display()))
    })?;
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        // A device or a pipe: nothing takes its place.
        let opened = std::fs::File::options().write(true).open(path);
        let mut out = std::io::BufWriter::new(opened.map_err(failed)?);
        return write(&mut out).and_then(|()| out.flush()).map_err(failed);
    }
    let partial = path.with_file_name(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    interrupt::temporary(&partial);
    let written = std::fs::File::create(&partial).and_then(|file| {
        let mut out = std::io::BufWriter::with_capacity(1 << 20, file);
        write(&mut out)?;
        out.flush()?;
        std::fs::rename(&partial, path)
    });
    written.map_err(|error| {
        // It may not exist; the first error is the one to tell.
        let _ = std::fs::remove_file(&partial);
        failed(error)
    })
}
