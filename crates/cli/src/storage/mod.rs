//! `pellucid storage`: ranks compositions by their data paths, measures stores, and finds problems.

pub mod reports;

use crate::console::Console;
use crate::failure::Failure;
use crate::{analyze, interrupt, output};
use pellucid_model::composition::Composition;
use pellucid_model::composition::rank::{self, Ranking};
use pellucid_model::doctor::{self, Diagnosis, Problem, Saving, SparkConfiguration};
use pellucid_model::units;
use pellucid_model::whatif::{Changes, WhatIfModel, residuals};
use pellucid_storage::StorageError;
use pellucid_storage::probe::{self, Budget, PlaceError, Report};
use pellucid_trace::Trace;
use reports::{probe_report, probed};
use serde::Serialize;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Arguments of `storage`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  pellucid storage rank crates/storage/scenarios/*.toml
  pellucid storage probe s3://bucket/scratch -o probe.json
  pellucid storage doctor spark-defaults.conf --probe probe.json")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Rank compositions by the links that each record crosses
    Rank(RankArguments),
    /// Measure a store: reads, writes, listings, renames, commits
    Probe(ProbeArguments),
    /// Find problems in how data is stored and accessed
    Doctor(DoctorArguments),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A composition is a TOML file. crates/storage/scenarios has examples; docs/storage.md describes the format.

Example:
  pellucid storage rank gc.toml nc.toml swi.toml")]
struct RankArguments {
    /// Composition files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The probe writes temporary objects to a new folder under URL and removes them afterwards. Objects left by a \
killed probe are removed by the next one with the same URL.

Example:
  pellucid storage probe s3://bucket/scratch -o probe.json
  pellucid storage probe s3://bucket/scratch --read s3://bucket/logs -o p.json
  pellucid storage probe /mnt/data --seconds 20 --bytes 256MiB")]
struct ProbeArguments {
    /// A folder, s3://BUCKET/FOLDER, swift://CONTAINER/FOLDER or hdfs://HOST:PORT/FOLDER
    #[arg(value_name = "URL")]
    place: String,
    /// Read existing objects below this folder of the same store, each byte at most once,
    /// instead of the objects that the probe wrote
    #[arg(long, value_name = "URL")]
    read: Option<String>,
    /// Write the measurements to FILE as JSON
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Maximum duration in seconds
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Maximum number of bytes to transfer; at least 17MiB
    #[arg(long, default_value = "1GiB", value_parser = parse_budget)]
    bytes: u64,
}

/// Parses the limit on the bytes that a probe transfers.
fn parse_budget(text: &str) -> Result<u64, String> {
    let bytes = units::parse_size(text)?;
    if bytes < Budget::MIN_BYTES {
        let min = Budget::MIN_BYTES >> 20;
        return Err(format!(
            "too small: a probe writes and reads an object of 8 MiB; allow at least {min}MiB"
        ));
    }
    Ok(bytes)
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
FILE is a composition (TOML), a Spark configuration (spark-defaults.conf), a Pellucid trace, or a Spark \
event log. If no problem is found, nothing is printed.

Example:
  pellucid storage doctor swi.toml --probe probe.json
  pellucid storage doctor query.trace
  pellucid storage doctor spark-events/app-20260101-0001 --probe probe.json")]
struct DoctorArguments {
    /// The file or log to examine
    #[arg(value_name = "FILE|LOG")]
    file: PathBuf,
    /// Measurements of the store, written by `pellucid storage probe -o`
    #[arg(long, value_name = "FILE")]
    probe: Option<PathBuf>,
}

/// Runs the command.
pub fn run(arguments: &Arguments, console: &Console) -> Result<(), Failure> {
    match &arguments.command {
        Command::Rank(arguments) => rank(arguments, console),
        Command::Probe(arguments) => probe(arguments, console),
        Command::Doctor(arguments) => doctor(arguments, console),
    }
}

fn read_text(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| Failure::file("read", path.display(), &error))
}

fn composition(path: &Path) -> Result<Composition, Failure> {
    let text = read_text(path)?;
    Composition::parse(&path.to_string_lossy(), &text).map_err(|error| Failure::Failed(error.to_string()))
}

/// Prints the document with `--json`, and the text otherwise.
fn show(console: &Console, document: &impl Serialize, text: &str) -> Result<(), Failure> {
    console.print(|out| {
        if console.json {
            serde_json::to_writer_pretty(&mut *out, document)?;
            return writeln!(out);
        }
        out.write_all(pellucid_report::escaped(text).as_bytes())
    })
}

fn rank(arguments: &RankArguments, console: &Console) -> Result<(), Failure> {
    let compositions = arguments.files.iter().map(|p| composition(p)).collect::<Result<Vec<_>, _>>()?;
    for (i, one) in compositions.iter().enumerate() {
        if let Some(j) = compositions[..i].iter().position(|other| other.name == one.name) {
            return Err(Failure::Usage(format!(
                "cannot rank {} and {}: both are named {}; give each composition a unique name",
                arguments.files[j].display(),
                arguments.files[i].display(),
                one.name
            )));
        }
    }
    let ranking = Ranking::of(&compositions);
    show(console, &ranking, &rank::text(&compositions, &ranking))
}

fn probe(arguments: &ProbeArguments, console: &Console) -> Result<(), Failure> {
    let read = arguments.read.as_deref().map(Path::new);
    output::check_outputs(&[("-o", arguments.output.as_deref())], read)?;
    let cancelled = Arc::new(AtomicBool::new(false));
    let guard = interrupt::on_interrupt({
        let cancelled = Arc::clone(&cancelled);
        move || cancelled.store(true, Ordering::Relaxed)
    });
    let bar = Mutex::new(console.progress());
    let progress = |what: &str, share: f64| {
        if let Ok(mut bar) = bar.lock() {
            bar.set((share * 1000.0) as u64, 1000, what);
        }
    };
    let budget = Budget { time_ns: arguments.seconds * 1_000_000_000, bytes: arguments.bytes };
    let ended = probe::probe(&arguments.place, arguments.read.as_deref(), budget, cancelled, &progress);
    drop(guard);
    drop(bar);
    let report = ended.map_err(|error| match error {
        PlaceError::Cancelled => Failure::Interrupted,
        PlaceError::NotAPlace(message) => Failure::Usage(message),
        PlaceError::Open(StorageError::UnknownScheme { .. }) => Failure::Usage(error.to_string()),
        other => Failure::Failed(other.to_string()),
    })?;
    // Print the measurements even if the file cannot be written.
    let written = arguments.output.as_deref().map_or(Ok(()), |path| {
        output::write_whole(path, |out| {
            serde_json::to_writer_pretty(&mut *out, &report)?;
            writeln!(out)
        })
    });
    let shown = show(console, &report, &report.text());
    written.and(shown)
}

fn doctor(arguments: &DoctorArguments, console: &Console) -> Result<(), Failure> {
    let probe = arguments.probe.as_deref().map(probe_report).transpose()?;
    let path = &arguments.file;
    let findings = match text_prefix(path)? {
        Some(text) if SparkConfiguration::recognizes(&text) => {
            let conf = SparkConfiguration::parse(&read_text(path)?)
                .map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
            doctor::of_spark(&conf, probe.as_ref())
        }
        Some(text) if !text.trim_start().starts_with('{') => {
            doctor::of_composition(&composition(path)?, probe.as_ref())
        }
        _ => {
            let trace = analyze::read(path)?;
            let mut findings = doctor::of_trace(&trace, probe.as_ref());
            findings.iter_mut().for_each(|problem| predict_saving(problem, &trace, probe.as_ref()));
            findings.sort_by(|a, b| b.saves_ms.unwrap_or(0.0).total_cmp(&a.saves_ms.unwrap_or(0.0)));
            findings
        }
    };
    let text: String = findings.iter().map(describe).collect();
    show(console, &Diagnosis::new(findings), &text)
}

/// Relative uncertainty of a predicted saving of task and driver time, in addition to the replay
/// error. `bench/STORAGE.md` compares predicted with measured savings.
const SAVING_UNCERTAINTY: f64 = 0.15;

/// Sets the predicted saving of a problem, with its interval, if the model can predict it.
fn predict_saving(problem: &mut Problem, trace: &Trace, probe: Option<&Report>) {
    let ms = |ns: u64| ns as f64 / 1e6;
    let saving = match &problem.saving {
        Saving::Unknown => None,
        Saving::Time(ns) => Some(ns.map(ms)),
        Saving::Tasks { saved_ns, driver_ns, uncertainty_ns } => {
            pellucid_model::saved_by_shorter_tasks_ms(trace, saved_ns).map(|tasks_ms| {
                let expected = tasks_ms + ms(*driver_ns);
                let uncertainty = expected * SAVING_UNCERTAINTY + ms(*uncertainty_ns);
                [(expected - uncertainty).max(0.0), expected, expected + uncertainty]
            })
        }
        Saving::WhatIf { settings, share } => {
            let changes = Changes::parse(settings, units::parse_rate).ok();
            changes
                .and_then(|changes| saved(trace, &changes))
                .map(|saved| [saved[0] * share[0], saved[1] * share[1], saved[2] * share[2]])
        }
        Saving::ProbedStorage => {
            let mut changes = Changes::default();
            let set = probe.and_then(|report| changes.set_storage("the probe", probed(report)).ok());
            set.and_then(|()| saved(trace, &changes))
        }
    };
    if let Some([low, expected, high]) = saving {
        (problem.low_ms, problem.saves_ms, problem.high_ms) = (Some(low), Some(expected), Some(high));
    }
}

/// Returns the time that changes save, in milliseconds (low, expected, high), or `None` if the trace
/// does not allow a prediction.
fn saved(trace: &Trace, changes: &Changes) -> Option<[f64; 3]> {
    let table = residuals(None);
    let model = WhatIfModel::of(trace, &table).ok()?;
    let prediction = model.predict(changes).ok()?.prediction;
    let measured = model.baseline().measured_ms;
    let less = |ms: f64| (measured - ms).max(0.0);
    Some([less(prediction.high_ms), less(prediction.duration_ms), less(prediction.low_ms)])
}

/// Returns the first 64 KiB of a text file, or `None` if the path is not a local file with UTF-8 text.
fn text_prefix(path: &Path) -> Result<Option<String>, Failure> {
    if !path.is_file() {
        return Ok(None);
    }
    let mut start = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(64 << 10).read_to_end(&mut start));
    read.map_err(|error| Failure::file("read", path.display(), &error))?;
    match std::str::from_utf8(&start) {
        Ok(text) => Ok(Some(text.to_string())),
        // The limit cut a character in two.
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => {
            Ok(Some(String::from_utf8_lossy(&start[..error.valid_up_to()]).into_owned()))
        }
        Err(_) => Ok(None),
    }
}

fn describe(problem: &Problem) -> String {
    let saves = match (problem.saves_ms, problem.low_ms, problem.high_ms) {
        (Some(ms), Some(low), Some(high)) => format!("  Saves: {ms:.0} ms ({low:.0} to {high:.0})\n"),
        _ => "  Saves: not predicted\n".to_string(),
    };
    let finding = &problem.finding;
    format!("{}\n  {}\n  Change: {}\n{saves}", finding.title, finding.evidence, finding.change)
}
