//! The `pellucid` command. Thin: it reads the command line, runs one command, and
//! turns how that ended into a message and an exit code.
//!
//! One file a command (`sql`, `analyze`, `generate`, `demo`); `benchmark`, `output`
//! and `units` know nothing of the engine. What every command promises (`--json`,
//! streams, exit codes) is kept in `console` and `failure`.

mod analyze;
mod backtest;
mod benchmark;
mod compare;
mod console;
mod cpu;
mod demo;
mod engine_options;
mod execute;
mod export;
mod failure;
mod follow;
mod generate;
mod inputs;
mod interrupt;
mod iterate;
mod output;
mod report;
mod spark;
mod sql;
mod storage;
mod units;
mod whatif;

use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser};
use console::{Color, Console};
use failure::Failure;
use std::ffi::OsString;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Index of `mi_option_purge_delay`, which the crate does not name; it is the one
/// before `use_numa_nodes` in version 2 and 3 of mimalloc.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = libmimalloc_sys::mi_option_use_numa_nodes - 1;

/// An analytics engine that says what limited each query.
#[derive(Debug, Parser)]
#[command(
    name = "pellucid",
    version,
    about,
    max_term_width = 110,
    after_help = "\
Results go to standard output, everything else to standard error.
Exit codes: 0 done, 1 it failed, 2 wrong usage, 130 interrupted.

Example:
  pellucid demo
  pellucid sql \"SELECT count(*) FROM 'data/*.parquet'\""
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Print one JSON document on standard output, and nothing else there
    #[arg(long, global = true, help_heading = "Output")]
    json: bool,
    /// Print nothing on standard error but errors
    #[arg(short, long, global = true, help_heading = "Output")]
    quiet: bool,
    /// When to use colour; NO_COLOR is honoured
    #[arg(long, global = true, value_enum, default_value = "auto", help_heading = "Output")]
    color: Color,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run SQL over Parquet, CSV, JSON and Arrow files, and say what limited it
    Sql(sql::Arguments),
    /// Say where the time of a recorded query went
    Analyze(analyze::Arguments),
    /// Say what a recorded query would take with other hardware or software
    Whatif(whatif::Arguments),
    /// Hold predictions against what was measured
    Backtest(Box<backtest::Arguments>),
    /// Say what changed between two runs, and whether it is more than noise
    Compare(compare::Arguments),
    /// Write one self-contained page from a trace
    Report(report::Arguments),
    /// Write a trace for other tools: Perfetto, Parquet, OpenTelemetry
    Export(export::Arguments),
    /// Run iterative jobs: logistic regression, k-means, PageRank
    Iterate(Box<iterate::Arguments>),
    /// Where data lives: rank compositions, measure a store, find what is wrong
    Storage(storage::Arguments),
    /// Switch Pellucid's plugin on in an Apache Spark that is there
    Spark(spark::Arguments),
    /// Make benchmark data as Parquet files
    Generate(generate::Arguments),
    /// See it work: data, queries, answers, bottleneck, timeline
    Demo(demo::Arguments),
}

fn main() -> ExitCode {
    // Before anything that may use the instructions in question.
    cpu::check();
    start()
}

#[inline(never)]
fn start() -> ExitCode {
    let arguments = parse();
    if !matches!(arguments.command, Command::Analyze(_)) {
        // Freed memory is kept for the next query: touching fresh pages costs up to
        // half of a join's time. A log is read and judged once, maybe beside what it tells of.
        // SAFETY: sets an integer option; mimalloc ignores an index that it does not know.
        unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, -1) };
    }
    #[cfg(feature = "backends")]
    pellucid_backends::register();
    let console = Console::new(arguments.json, arguments.quiet, arguments.color);
    let result = interrupt::install()
        .map_err(|error| Failure::Failed(format!("cannot listen for Ctrl-C: {error}")))
        .and_then(|()| run(&arguments.command, &console));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(message) = failure.message() {
                console.error(message);
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Reads the command line. Help and usage errors are printed while it is read, so their colour is
/// looked up first.
fn parse() -> Arguments {
    let command = Arguments::command().color(color(std::env::args_os().skip(1)));
    let parsed = Arguments::from_arg_matches(&command.get_matches());
    parsed.unwrap_or_else(|error| error.format(&mut Arguments::command()).exit())
}

/// Returns the value of `--color`, wherever it stands.
fn color(arguments: impl Iterator<Item = OsString>) -> ColorChoice {
    let mut choice = ColorChoice::Auto;
    let mut arguments = arguments.take_while(|argument| argument != "--");
    while let Some(argument) = arguments.next() {
        let value = match argument.to_str() {
            Some("--color") => arguments.next(),
            Some(text) => text.strip_prefix("--color=").map(OsString::from),
            None => None,
        };
        match value.as_ref().and_then(|value| value.to_str()) {
            Some("always") => choice = ColorChoice::Always,
            Some("never") => choice = ColorChoice::Never,
            Some("auto") => choice = ColorChoice::Auto,
            _ => {}
        }
    }
    choice
}

fn run(command: &Command, console: &Console) -> Result<(), Failure> {
    match command {
        Command::Sql(arguments) => sql::run(arguments, console),
        Command::Analyze(arguments) => analyze::run(arguments, console),
        Command::Whatif(arguments) => whatif::run(arguments, console),
        Command::Backtest(arguments) => backtest::run(arguments, console),
        Command::Compare(arguments) => compare::run(arguments, console),
        Command::Report(arguments) => report::run(arguments, console),
        Command::Export(arguments) => export::run(arguments, console),
        Command::Iterate(arguments) => iterate::run(arguments, console),
        Command::Storage(arguments) => storage::run(arguments, console),
        Command::Spark(arguments) => spark::execute(arguments, console),
        Command::Generate(arguments) => generate::run(arguments, console),
        Command::Demo(arguments) => demo::run(arguments, console),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_colour_is_known_before_the_command_line_is_read() {
        for (text, choice) in [
            ("sql --help", ColorChoice::Auto),
            ("--color never sql --help", ColorChoice::Never),
            ("sql --nope --color=always", ColorChoice::Always),
            ("sql --color=always --color auto", ColorChoice::Auto),
            ("sql --color", ColorChoice::Auto),
            ("sql -- --color=always", ColorChoice::Auto),
        ] {
            assert_eq!(color(text.split(' ').map(OsString::from)), choice, "{text}");
        }
    }
}
