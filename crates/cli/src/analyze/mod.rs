//! `pellucid analyze`: shows where a trace or an event log spent its time.
//!
//! A single log gets a full screen; several get a table, worst first. Logs are read one at a time, and only
//! their analyses are kept. If one of several logs cannot be read, the command warns and continues.

mod follow;

use crate::console::Console;
use crate::failure::Failure;
use crate::inputs::{self, Input};
use pellucid_model::Analysis;
use pellucid_report::{Salt, Source, escaped};
use pellucid_trace::Trace;
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Format of the document.
const FORMAT: &str = "pellucid.analysis/1";

/// Limits on the printed warnings of several logs and names of skipped files; the rest are only counted.
const MAX_WARNINGS: usize = 20;
const MAX_NAMES: usize = 5;

/// The salt of `--redact`. All inputs share it, so that a name that occurs in several has one replacement.
static SALT: LazyLock<Salt> = LazyLock::new(Salt::random);

/// Arguments of `analyze`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A truncated trace (after kill -9 or a full disk) is read as far as possible, and the analysis is marked as \
incomplete.

Examples:
  pellucid sql \"SELECT count(*) FROM 'lineitem.parquet'\" --trace count.trace
  pellucid analyze count.trace
  pellucid analyze /var/log/spark/application_1716000000000_0042
  pellucid analyze '/var/log/spark/app-*'
  pellucid analyze --follow /var/log/spark/app-20260101-0001.inprogress")]
pub struct Arguments {
    /// Traces written by `pellucid sql --trace`, or Spark event logs: a file, a log's folder,
    /// a folder of logs, a glob pattern, s3://BUCKET/PATH, or
    /// http://HOST:18080/history/APPLICATION
    #[arg(required = true, value_name = "INPUT")]
    pub inputs: Vec<PathBuf>,

    /// Repeat the analysis as the log of a running application grows, until the application ends;
    /// with --json, print one document at the end
    #[arg(long)]
    pub follow: bool,

    /// Warn of records that contradict each other, a defect of the program that wrote the trace
    #[arg(long)]
    pub check: bool,

    /// Replace SQL text, paths, host names and errors with hashes, for sharing
    #[arg(long)]
    pub redact: bool,
}

/// Runs the command.
pub fn run(arguments: &Arguments, console: &Console) -> Result<(), Failure> {
    if arguments.follow {
        return match &arguments.inputs[..] {
            [one] => follow::follow(one, |input| show_growing(input, arguments, console)),
            _ => Err(Failure::Usage("--follow takes a single log; name one".to_string())),
        };
    }
    let (mut inputs, mut unrecognized) = (Vec::new(), Vec::new());
    for path in &arguments.inputs {
        let found = inputs::find(path)?;
        inputs.extend(found.inputs);
        unrecognized.extend(found.unrecognized);
    }
    warn_unrecognized(&unrecognized, arguments, console);
    let table = inputs.len() > 1 && inputs.iter().any(|input| input.is_spark_log);
    if inputs.len() > 1 && (table || console.json) {
        return several(&inputs, &unrecognized, arguments, console);
    }
    for (number, input) in inputs.iter().enumerate() {
        let (trace, analysis) = analyzed(input, arguments)?;
        let heading = match (inputs.len() > 1, arguments.redact) {
            (false, _) => String::new(),
            (true, false) => format!("{}:\n", escaped(&input.name)),
            (true, true) => format!("trace {number}:\n"),
        };
        show(input, &trace, &analysis, &heading, arguments, console)?;
    }
    Ok(())
}

/// Prints the analysis of one trace, as a document or as text after a heading.
fn show(
    input: &Input,
    trace: &Trace,
    analysis: &Analysis,
    heading: &str,
    arguments: &Arguments,
    console: &Console,
) -> Result<(), Failure> {
    if console.json {
        return console.print_document(FORMAT, &document(input, trace, analysis, arguments));
    }
    let text = pellucid_report::terminal(analysis, trace, console.width(), console.color_stdout());
    console.print_styled(|out| write!(out, "{heading}{text}"))?;
    if !pellucid_report::shows_warnings(analysis, trace) {
        analysis.warnings.iter().for_each(|warning| console.warn(warning));
    }
    Ok(())
}

/// Warns about files of a folder that are neither traces nor event logs.
fn warn_unrecognized(unrecognized: &[String], arguments: &Arguments, console: &Console) {
    if unrecognized.is_empty() {
        return;
    }
    let names = match arguments.redact {
        true => String::new(),
        false => format!(": {}", unrecognized.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>().join(", ")),
    };
    let more = if unrecognized.len() > MAX_NAMES && !arguments.redact { ", …" } else { "" };
    let (files, are) = if unrecognized.len() == 1 { ("file", "is") } else { ("files", "are") };
    let count = unrecognized.len();
    console
        .warn(&format!("skipped {count} {files} that {are} neither a trace nor an event log{names}{more}"));
}

/// Prints the warnings of several logs, each with the name of its log.
fn print_warnings(analyses: &[Analysis], names: &[String], console: &Console) {
    let all = names.iter().zip(analyses);
    let all = all.flat_map(|(name, analysis)| analysis.warnings.iter().map(move |warning| (name, warning)));
    all.clone().take(MAX_WARNINGS).for_each(|(name, warning)| console.warn(&format!("{name}: {warning}")));
    let more = all.count().saturating_sub(MAX_WARNINGS);
    if more > 0 {
        console.warn(&format!("{more} more warnings; --json prints all of them"));
    }
}

/// Prints the analysis of a growing log on a cleared screen. Returns whether its application has ended.
fn show_growing(input: &Input, arguments: &Arguments, console: &Console) -> Result<bool, Failure> {
    let (trace, analysis) = match analyzed(input, arguments) {
        Ok(read) => read,
        // Spark creates the log before it writes the first event.
        Err(_) if input.bytes() == 0 => return Ok(false),
        Err(failure) => return Err(failure),
    };
    let ended = trace.application.as_ref().is_some_and(|application| application.ended_ns.is_some());
    if !console.json || ended {
        const CLEAR: &str = "\x1b[H\x1b[2J";
        let heading = if std::io::stdout().is_terminal() { CLEAR } else { "\n" };
        show(input, &trace, &analysis, heading, arguments, console)?;
    }
    Ok(ended)
}

/// Prints the analyses of several logs, worst first, as a table or a document.
fn several(
    inputs: &[Input],
    unrecognized: &[String],
    arguments: &Arguments,
    console: &Console,
) -> Result<(), Failure> {
    let (mut analyses, mut names, mut documents) = (Vec::new(), Vec::new(), Vec::new());
    let mut unread = Vec::new();
    for input in inputs {
        match analyzed(input, arguments) {
            Ok((trace, analysis)) => {
                if console.json {
                    documents.push(document(input, &trace, &analysis, arguments));
                }
                names.push(if arguments.redact {
                    format!("log {}", names.len())
                } else {
                    input.name.clone()
                });
                analyses.push(analysis);
            }
            Err(failure) => {
                // The message names the file.
                let why = match arguments.redact {
                    true => "an input that cannot be read; run without --redact to see the reason",
                    false => failure.message().unwrap_or("interrupted"),
                };
                console.warn(&format!("skipped: {why}"));
                unread.push(failure);
            }
        }
    }
    if analyses.is_empty() {
        return unread.pop().map_or(Ok(()), Err);
    }
    if !console.json {
        let text = pellucid_report::overview(&analyses, &names, console.width(), console.color_stdout());
        console.print_styled(|out| out.write_all(text.as_bytes()))?;
        print_warnings(&analyses, &names, console);
        return Ok(());
    }
    let worst_first = pellucid_report::worst_first(&analyses);
    let ordered: Vec<Value> = worst_first.into_iter().map(|ix| documents[ix].take()).collect();
    // Messages contain file names, which are redacted.
    let message = |failure: &Failure| match arguments.redact {
        true => "redacted".to_string(),
        false => failure.message().unwrap_or("interrupted").to_string(),
    };
    let other = |name: &String| match arguments.redact {
        true => "redacted".to_string(),
        false => format!("{name} is neither a trace nor an event log"),
    };
    let unread: Vec<String> = unread.iter().map(message).chain(unrecognized.iter().map(other)).collect();
    let mut document = json!({"spread": pellucid_report::spreads_json(&analyses), "not_read": unread});
    document["analyses"] = Value::Array(ordered);
    console.print_document(FORMAT, &document)
}

fn analyzed(input: &Input, arguments: &Arguments) -> Result<(Trace, Analysis), Failure> {
    let mut trace = input.read()?;
    if arguments.redact {
        pellucid_report::redact(&mut trace, &SALT);
    }
    if arguments.check {
        let violations = trace.check();
        trace.warnings.extend(violations.into_iter().map(|violation| format!("invalid trace: {violation}")));
    }
    let analysis = pellucid_model::analyze(&trace);
    Ok((trace, analysis))
}

fn document(input: &Input, trace: &Trace, analysis: &Analysis, arguments: &Arguments) -> Value {
    let path = (!arguments.redact).then_some(input.name.as_str());
    pellucid_report::analysis_json(analysis, Source::of_trace(trace, path))
}

/// Reads the single trace or event log that a path, pattern or URL names.
pub fn read(path: &Path) -> Result<Trace, Failure> {
    inputs::read_one(path)
}
