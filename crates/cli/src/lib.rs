//! The `pellucid` command: parses the command line, runs one command, and maps its
//! result to a message and an exit code.
//!
//! It is a library, so that the binary (`bin/pellucid.rs`) and the Python package share it.
//! Each command has its own module (`sql`, `analyze`, `generate`, `demo`). `output` does
//! not depend on the engine. `console` and `failure` implement the behaviour that all
//! commands share: `--json`, streams and exit codes.

mod advise;
mod analyze;
mod backtest;
mod compare;
mod console;
mod demo;
mod engine_options;
mod execute;
mod export;
mod failure;
mod generate;
mod inputs;
mod install;
mod interrupt;
mod iterate;
mod output;
mod prompt;
mod report;
mod rewrite;
mod script;
mod spark;
mod sql;
mod start;
mod storage;
mod temporary;
mod whatif;

use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser};
use console::{Color, Console};
use failure::Failure;
use std::ffi::OsString;

pub use start::{Program, check_processor};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Index of `mi_option_purge_delay`, for which the crate has no constant. In mimalloc
/// 2 and 3 it directly precedes `use_numa_nodes`.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = libmimalloc_sys::mi_option_use_numa_nodes - 1;

/// An analytics engine that shows what limited each query.
#[derive(Debug, Parser)]
#[command(
    name = "pellucid",
    version,
    about,
    max_term_width = 80,
    after_help = "\
Without a command, opens a prompt on a terminal, and otherwise runs the
statements that it reads from standard input, as `pellucid sql` does.

Results go to standard output, everything else to standard error.
Exit codes: 0 done, 1 it failed, 2 wrong usage, 130 interrupted.

Example:
  pellucid
  pellucid demo
  pellucid sql \"SELECT count(*) FROM 'data/*.parquet'\""
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Print a single JSON document on standard output
    #[arg(long, global = true, help_heading = "Output")]
    json: bool,
    /// Print only errors on standard error
    #[arg(short, long, global = true, help_heading = "Output")]
    quiet: bool,
    /// When to use colour; auto respects NO_COLOR
    #[arg(long, global = true, value_enum, default_value = "auto", help_heading = "Output")]
    color: Color,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run SQL on Parquet, CSV, JSON and Arrow files; show what limited it
    Sql(sql::Arguments),
    /// Show where a recorded query spent its time
    Analyze(analyze::Arguments),
    /// Predict a job's time with other hardware or settings
    Whatif(whatif::Arguments),
    /// Advise on how a query's tables are stored
    Advise(advise::Arguments),
    /// Write a table as advice says
    Rewrite(rewrite::Arguments),
    /// Compare predictions with measurements
    Backtest(Box<backtest::Arguments>),
    /// Show what changed between two runs, and whether it exceeds noise
    Compare(compare::Arguments),
    /// Write a self-contained HTML report of a trace
    Report(report::Arguments),
    /// Export a trace to other tools: Perfetto, Parquet, OpenTelemetry
    Export(export::Arguments),
    /// Run iterative jobs: logistic regression, k-means, PageRank
    Iterate(Box<iterate::Arguments>),
    /// Measure stores, rank compositions, and find storage problems
    Storage(storage::Arguments),
    /// Enable the plugin in an existing Apache Spark
    Spark(spark::Arguments),
    /// Generate benchmark data as Parquet files
    Generate(generate::Arguments),
    /// Generate data, run three queries, and show what limited them
    Demo(demo::Arguments),
    /// Print a script that completes commands and options in a shell
    Completions(install::Completions),
    /// Write the manual pages of all commands
    #[command(hide = true)]
    Man(install::Man),
}

/// Returns freed memory to the system from here on, after some time.
pub(crate) fn return_freed_memory() {
    const DELAY_MS: std::ffi::c_long = 10;
    // SAFETY: sets an integer option; mimalloc ignores an unknown index.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, DELAY_MS) };
}

/// Runs the command and returns its exit code. Usage errors, help and interrupts exit the process at once.
#[inline(never)]
pub fn main(program: Program) -> u8 {
    let arguments = parse(program.register());
    if !matches!(arguments.command, Some(Command::Analyze(_))) {
        // Keep freed memory for the next query: touching fresh pages costs up to half of a
        // join's time. `analyze` reads each log once, possibly on the machine that runs the
        // logged application, so it returns memory to the system.
        // SAFETY: sets an integer option; mimalloc ignores an unknown index.
        unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, -1) };
        // A huge page is resident as a whole once one of its bytes is used. Without them, TPC-H at scale 10 takes 0.86 of
        // the memory and the same time.
        #[cfg(target_os = "linux")]
        // SAFETY: changes how the kernel maps pages from here on.
        unsafe {
            libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0)
        };
    }
    #[cfg(feature = "backends")]
    pellucid_backends::register();
    let console = Console::new(arguments.json, arguments.quiet, arguments.color);
    let result = interrupt::install()
        .map_err(|error| Failure::Failed(format!("cannot listen for Ctrl-C: {error}")))
        .and_then(|()| match &arguments.command {
            Some(command) => run(command, &console),
            None => sql::run(&sql::Arguments::default(), &console),
        });
    match result {
        Ok(()) => 0,
        Err(failure) => {
            if let Some(message) = failure.message() {
                console.error(message);
            }
            failure.exit_code()
        }
    }
}

/// Parses the command line. Parsing prints help and usage errors, so their colour is determined
/// first.
fn parse(program: &Program) -> Arguments {
    let command = Arguments::command().color(color(program.arguments().iter().cloned()));
    let arguments = program.name_and_arguments().iter().cloned().map(script::comment_as_value);
    let parsed = Arguments::from_arg_matches(&command.get_matches_from(arguments));
    parsed.unwrap_or_else(|error| error.format(&mut Arguments::command()).exit())
}

/// Returns the last value of `--color` at any position before `--`.
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
        Command::Advise(arguments) => advise::run(arguments, console),
        Command::Rewrite(arguments) => rewrite::run(arguments, console),
        Command::Backtest(arguments) => backtest::run(arguments, console),
        Command::Compare(arguments) => compare::run(arguments, console),
        Command::Report(arguments) => report::run(arguments, console),
        Command::Export(arguments) => export::run(arguments, console),
        Command::Iterate(arguments) => iterate::run(arguments, console),
        Command::Storage(arguments) => storage::run(arguments, console),
        Command::Spark(arguments) => spark::execute(arguments, console),
        Command::Generate(arguments) => generate::run(arguments, console),
        Command::Demo(arguments) => demo::run(arguments, console),
        Command::Completions(arguments) => install::completions(arguments, Arguments::command(), console),
        Command::Man(arguments) => install::man(arguments, Arguments::command(), console),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn color_is_found_before_the_command_line_is_parsed() {
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
