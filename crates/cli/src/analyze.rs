//! `pellucid analyze`: what a trace says about where the time went.

use crate::console::Console;
use crate::failure::Failure;
use crate::output;
use pellucid_report::Source;
use pellucid_trace::Trace;
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Arguments of `analyze`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A trace that was cut short (by kill -9, by a full disk) is read as far as it goes, and marked so.

Example:
  pellucid sql \"SELECT count(*) FROM 'data/tpch/lineitem.parquet'\" --trace count.trace
  pellucid analyze count.trace")]
pub struct Arguments {
    /// Traces that `pellucid sql --trace` wrote
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
}

/// Runs the command.
pub fn run(arguments: &Arguments, console: &Console) -> Result<(), Failure> {
    let mut documents = Vec::new();
    for path in &arguments.inputs {
        let trace = read(path)?;
        let analysis = pellucid_model::analyze(&trace);
        if console.json {
            let source = Source::of_trace(&trace, Some(&path.to_string_lossy()));
            documents.push(pellucid_report::analysis_json(&analysis, source));
            continue;
        }
        let text = pellucid_report::terminal(&analysis, &trace, console.width(), console.color_stdout());
        console.print(|out| {
            if arguments.inputs.len() > 1 {
                writeln!(out, "{}:", path.display())?;
            }
            out.write_all(text.as_bytes())
        })?;
        for warning in &analysis.warnings {
            console.warn(warning);
        }
    }
    if !console.json {
        return Ok(());
    }
    let document = match documents.pop() {
        Some(Value::Object(mut only)) if documents.is_empty() => {
            only.remove("format");
            only
        }
        last => {
            documents.extend(last);
            Map::from_iter([("analyses".to_string(), Value::Array(documents))])
        }
    };
    console.print(|out| output::write_document(out, "pellucid.analysis/1", &document))
}

fn read(path: &Path) -> Result<Trace, Failure> {
    match is_spark_event_log(path) {
        Err(error) => Err(Failure::file("read", path.display(), &error)),
        Ok(true) => Err(Failure::Failed(format!(
            "{} is a Spark event log; this version analyses Pellucid traces only \
             (`pellucid sql --trace FILE` writes one), Spark event logs come with a later one",
            path.display()
        ))),
        Ok(false) => Trace::read(path).map_err(|error| Failure::Failed(error.to_string())),
    }
}

/// Whether this is a Spark event log: a file whose first line is a listener event,
/// or a rolling log's directory.
fn is_spark_event_log(path: &Path) -> io::Result<bool> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if path.is_dir() {
        return Ok(name.starts_with("eventlog_v2_"));
    }
    let mut start = Vec::new();
    File::open(path)?.take(4096).read_to_end(&mut start)?;
    let start = String::from_utf8_lossy(&start);
    Ok(start.trim_start().starts_with('{') && start.contains("\"Event\":\"SparkListener"))
}
