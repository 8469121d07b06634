//! `pellucid whatif`: a job's time with other hardware or software.

mod json;
mod text;

use crate::analyze;
use crate::console::Console;
use crate::failure::Failure;
use crate::output;
use crate::storage::probe_report;
use crate::units::parse_rate;
use pellucid_model::whatif::{
    Changes, Point, Single, Storage, Sweep, WhatIf, WhatIfError, WhatIfModel, residuals,
};
use pellucid_storage::probe::{ReadFrom, Report};
use std::path::{Path, PathBuf};

pub use text::{interval, time};

/// Arguments of `whatif`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Keys of --set: cores, disks, disk.rate, disk.NAME.rate, network.rate, store.rate, concurrency.KIND,
partitions, machines, workers, input=memory|memory-decoded, input.scale, storage=FILE (input and output on a
store that `pellucid storage probe -o FILE` measured); of Spark's logs executors, executor.cores,
idle.timeout; no=KIND|gc|scheduler|deserialize|stragglers|skew (takes that time away: the bound of
optimising it). A value is absolute (disk.rate=200MB/s) or relative (x2).
With nothing set: what each of the best single changes would buy, and the bounds (no=…) apart from them.

Example:
  pellucid sql \"SELECT count(*) FROM 'data/tpch/lineitem.parquet'\" --trace count.trace
  pellucid whatif count.trace
  pellucid whatif count.trace --set disk.rate=x2 --set cores=4
  pellucid whatif count.trace --set storage=probe.json
  pellucid whatif count.trace --sweep disk.rate=25MB/s..400MB/s")]
pub struct Arguments {
    /// A trace that `pellucid sql --trace` or `pellucid iterate --trace` wrote, or a Spark event log
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// What is different; several keys hold together, each given once (`no` may be repeated)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// One key over a range: A..B doubles, A..B:N takes N even steps
    #[arg(long, value_name = "KEY=A..B[:N]")]
    sweep: Option<String>,
}

impl From<WhatIfError> for Failure {
    fn from(refused: WhatIfError) -> Self {
        match refused {
            WhatIfError::Usage(message) => Failure::Usage(message),
            WhatIfError::Failed(message) => Failure::Failed(message),
        }
    }
}

/// Everything that one call answers.
pub struct Answer {
    /// The question as a whole; with nothing set, the job as it was.
    pub whatif: WhatIf,
    /// The points of a sweep and its key.
    pub sweep: Option<(String, Vec<Point>)>,
    /// Single changes, where nothing was set or swept.
    pub singles: Option<Vec<Single>>,
}

/// The settings; of `storage=FILE` the file is read.
fn changes(settings: &[String]) -> Result<Changes, Failure> {
    let mut changes = Changes::default();
    for setting in settings {
        match setting.split_once('=').filter(|(key, _)| key.trim() == "storage") {
            Some((_, file)) => {
                let report = probe_report(Path::new(file.trim()))?;
                changes.set_storage(file.trim(), probed(&report))?;
            }
            None => changes.add(setting, parse_rate)?,
        }
    }
    Ok(changes)
}

/// A probe's report as the model takes it.
pub fn probed(report: &Report) -> Storage {
    let service = report.service();
    Storage {
        name: report.url.clone(),
        is_disk: report.url.starts_with("file://"),
        first_byte_ns: service.first_byte_ns,
        read: service.read,
        at_once: service.at_once,
        read_just_written: report.read_from == ReadFrom::Written,
        // Our jobs write as the upload was made; objects that are put whole pay for their own ends.
        write_bytes_per_s: report.upload.map(|upload| upload.bytes_per_s()).or(report.write_bytes_per_s),
        publish_ns: report.upload.map(|upload| upload.completion_ns()),
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments, console: &Console) -> Result<(), Failure> {
    let changes = changes(&arguments.set)?;
    let sweep = arguments.sweep.as_deref().map(|text| Sweep::parse(text, parse_rate)).transpose()?;
    let trace = analyze::read(&arguments.input)?;
    let in_file = |refused: WhatIfError| match refused {
        WhatIfError::Failed(message) => Failure::Failed(format!("{}: {message}", arguments.input.display())),
        usage => usage.into(),
    };
    let table = residuals(None);
    let model = WhatIfModel::of(&trace, &table).map_err(in_file)?;
    let points = sweep.as_ref().map(|sweep| model.sweep(&changes, sweep, parse_rate)).transpose()?;
    let answer = Answer {
        whatif: model.predict(&changes)?,
        singles: (changes.is_empty() && points.is_none()).then(|| model.singles()),
        sweep: sweep.map(|sweep| sweep.key).zip(points),
    };
    if console.json {
        return console
            .print(|out| output::write_document(out, "pellucid.whatif/1", &json::document(&answer)));
    }
    let text = text::answer(&answer, model.backtests(), console.width(), console.color_stdout());
    console.print(|out| out.write_all(text.as_bytes()))?;
    for warning in trace.truncated.iter().chain(&trace.warnings) {
        console.warn(warning);
    }
    Ok(())
}
