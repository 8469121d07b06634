//! `pellucid compare`: shows what changed between two runs, and whether it exceeds noise.

use crate::analyze;
use crate::console::Console;
use crate::failure::Failure;
use pellucid_model::Verdict;
use pellucid_model::units::parse_share;
use std::path::{Path, PathBuf};

/// Arguments of `compare`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A difference is significant only if its 90 % interval excludes zero (docs/compare.md). \
--fail-slower rejects runs of different queries (exit code 2).

Example:
  pellucid compare before.trace after.trace
  pellucid compare before.trace after.trace --fail-slower 10%")]
pub struct Arguments {
    /// Trace of the earlier run
    #[arg(value_name = "A")]
    a: PathBuf,
    /// Trace of the later run
    #[arg(value_name = "B")]
    b: PathBuf,
    /// Exit with code 1 if B is slower by more than this share, for example 10% or 0.1, and the interval excludes
    /// noise
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    fail_slower: Option<f64>,
}

/// Runs the command.
pub fn run(arguments: &Arguments, console: &Console) -> Result<(), Failure> {
    let (a, b) = (analyze::read(&arguments.a)?, analyze::read(&arguments.b)?);
    let shown = |path: &Path| pellucid_storage::shown(&path.to_string_lossy());
    let names = (shown(&arguments.a), shown(&arguments.b));
    let comparison = pellucid_model::compare(&a, &b).map_err(Failure::Failed)?;
    if arguments.fail_slower.is_some() && comparison.different_queries {
        return Err(Failure::Usage(format!(
            "cannot use --fail-slower: {} and {} ran different queries; compare two runs of one query \
             (--table gives files at different paths the same name), or remove --fail-slower",
            names.0, names.1
        )));
    }
    let printed = if console.json {
        let document = pellucid_report::comparison_json(&comparison, &names.0, &names.1);
        console.print_document("pellucid.comparison/1", &document)
    } else {
        let text = pellucid_report::comparison(&comparison, console.width(), console.color_stdout());
        let printed = console.print_styled(|out| out.write_all(text.as_bytes()));
        comparison.notes.iter().for_each(|note| console.warn(note));
        printed
    };
    let slower = comparison.change.relative_to(comparison.duration_ms.0);
    match (arguments.fail_slower, slower) {
        (Some(limit), Some((share, low, _)))
            if comparison.change.verdict() == Verdict::Slower && share > limit =>
        {
            Err(Failure::Failed(format!(
                "{} is slower than {} by {:.1} % (90 % interval from {:.1} %), more than the {:.1} % allowed",
                names.1,
                names.0,
                share * 100.0,
                low * 100.0,
                limit * 100.0
            )))
        }
        // A closed pipe must not hide a failed gate.
        _ => printed,
    }
}
