//! `pellucid whatif`: predicts a job's time with other hardware or settings.

mod answer;
mod json;
mod text;

use crate::analyze;
use crate::console::Console;
use crate::failure::Failure;
use crate::storage::reports::{probe_report, probed};
use answer::Answer;
use pellucid_model::units::parse_rate;
use pellucid_model::whatif::{Changes, Sweep, WhatIfError, WhatIfModel, residuals};
use std::path::{Path, PathBuf};

pub use text::interval;

/// Arguments of `whatif`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Keys of --set:
  cores, disks, machines, workers, partitions, concurrency.KIND
  disk.rate, disk.NAME.rate, network.rate, store.rate, memory
  executors, executor.cores, idle.timeout (Spark event logs only)
  input=memory|memory-decoded, input.scale
  operator.N.time, decode.time
                core time of operator N (`analyze --json` numbers them), of decoding
  operator.N.bytes, operator.N.multitasks
                bytes that scan N reads, multitasks of its stage
  rows.N        rows that operator N emits, and with them the work of those above it
  exchange.N=none
                leave out the exchange that operator N reads
  columns.TABLE=A,B
                no other columns of the file TABLE are read
  storage=FILE  move input and output to the store measured in FILE
                (written by `pellucid storage probe -o FILE`)
  no=KIND|gc|scheduler|deserialize|stragglers|skew
                remove that time: an upper bound of what optimising it saves

Values are absolute (disk.rate=200MB/s) or relative (disk.rate=x2). Without --set and --sweep, the command \
lists the best single changes, up to three of them to the query, and, separately, the upper bounds (no=…).

Example:
  pellucid sql \"SELECT count(*) FROM 'lineitem.parquet'\" --trace count.trace
  pellucid whatif count.trace
  pellucid whatif count.trace --set disk.rate=x2 --set cores=4
  pellucid whatif count.trace --set storage=probe.json
  pellucid whatif count.trace --sweep disk.rate=25MB/s..400MB/s")]
pub struct Arguments {
    /// A trace written by `pellucid sql --trace` or `pellucid iterate --trace`, or a Spark event log
    #[arg(value_name = "INPUT")]
    pub input: PathBuf,
    /// A change; repeat to combine changes of different keys (only `no` may occur several times)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Vary one key over a range: A..B doubles the value, A..B:N takes N even steps
    #[arg(long, value_name = "KEY=A..B[:N]")]
    pub sweep: Option<String>,
}

impl From<WhatIfError> for Failure {
    fn from(refused: WhatIfError) -> Self {
        match refused {
            WhatIfError::Usage(message) => Failure::Usage(message),
            WhatIfError::Failed(message) => Failure::Failed(message),
        }
    }
}

/// Parses the settings, and reads the file of `storage=FILE`.
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

/// Runs the command.
pub fn run(arguments: &Arguments, console: &Console) -> Result<(), Failure> {
    let changes = changes(&arguments.set)?;
    let sweep = arguments.sweep.as_deref().map(|text| Sweep::parse(text, parse_rate)).transpose()?;
    let trace = analyze::read(&arguments.input)?;
    let in_file = |refused: WhatIfError| match refused {
        WhatIfError::Failed(message) => {
            let input = pellucid_storage::shown(&arguments.input.to_string_lossy());
            Failure::Failed(format!("{input}: {message}"))
        }
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
        return console.print_document("pellucid.whatif/1", &json::document(&answer));
    }
    let text = text::answer(&answer, model.backtests(), console.width(), console.color_stdout());
    console.print_styled(|out| out.write_all(text.as_bytes()))?;
    for warning in trace.truncated.iter().chain(&trace.warnings) {
        console.warn(warning);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Arguments;
    use pellucid_model::whatif::KEYS;

    #[test]
    fn help_lists_every_key() {
        let command = <Arguments as clap::Args>::augment_args(clap::Command::new("whatif"));
        let help = command.get_after_help().expect("help after the options").to_string();
        let words: Vec<&str> = help.split([' ', ',', '=', '\n']).collect();
        for key in KEYS {
            assert!(words.contains(&key.name), "{} is missing", key.name);
        }
    }
}
