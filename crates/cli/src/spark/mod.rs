//! `pellucid spark` prints the settings that enable the plugin; `--on spark` runs statements and iterative
//! jobs on the user's Spark.
//!
//! This binary contains no part of Spark. The plugin's jar is located at run time ([`plugin`]), and Spark is
//! reached through a Python with PySpark ([`python`]). A session is a process of that Python ([`session`]).
//! It returns rows as JSON ([`rows`]), and its event log becomes the trace. For an iterative job, Spark only
//! starts the workers, in its tasks ([`hosting`]).

mod hosting;
mod plugin;
mod python;
mod rows;
mod session;

pub use hosting::{Hosting, HostingRequest};
pub use session::{Request, run};

use crate::console::Console;
use crate::failure::Failure;
use serde_json::json;
use std::collections::BTreeMap;

/// Format of the document of `spark jar` and `spark conf`.
const FORMAT: &str = "pellucid.spark/1";

/// Arguments of `spark`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The plugin is a single jar for Spark 3.5 and 4. It runs on the driver and the executors of an unmodified \
Spark.

Example:
  pellucid spark jar
  pellucid spark conf --properties >> $SPARK_HOME/conf/spark-defaults.conf
  spark-submit $(pellucid spark conf) job.py")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print the settings that enable the plugin, as arguments of spark-submit
    Conf(ConfArguments),
    /// Print the path of the plugin's jar
    #[command(after_help = "Example:\n  spark-submit --jars \"$(pellucid spark jar)\" job.py")]
    Jar,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  pellucid spark conf
  spark-submit $(pellucid spark conf --mode monotasks) job.py")]
struct ConfArguments {
    /// Mode of the plugin
    #[arg(long, value_enum, default_value = "measure")]
    mode: Mode,
    /// Criterion for running more tasks concurrently [default: throughput]
    #[arg(long, value_enum)]
    policy: Option<Policy>,
    /// Print lines of spark-defaults.conf
    #[arg(long)]
    properties: bool,
}

/// `spark.pellucid.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    /// Measure only; change nothing
    Measure,
    /// Tune the number of concurrent tasks per executor and stage; slows short stages (docs/spark-plugin.md)
    Adaptive,
    /// Queue I/O per disk and computation per core
    Monotasks,
}

/// `spark.pellucid.policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Policy {
    /// Add tasks while throughput increases
    Throughput,
    /// Add tasks while the congestion index decreases
    Index,
}

/// Returns the name of an option's value on the command line and in Spark's settings.
fn name(value: &impl clap::ValueEnum) -> String {
    value.to_possible_value().map_or(String::new(), |value| value.get_name().to_string())
}

/// Runs the command.
pub fn execute(arguments: &Arguments, console: &Console) -> Result<(), Failure> {
    if let Command::Conf(ConfArguments { mode: Mode::Measure, policy: Some(policy), .. }) = &arguments.command
    {
        return Err(Failure::Usage(format!(
            "cannot use --policy {}: mode measure tunes nothing; add --mode adaptive or --mode monotasks",
            name(policy)
        )));
    }
    let path = plugin::jar()?;
    let jar = path.display().to_string();
    match &arguments.command {
        Command::Jar if console.json => console.print_document(FORMAT, &json!({"jar": jar})),
        Command::Jar => console.print(|out| writeln!(out, "{jar}")),
        Command::Conf(conf) => {
            let mut settings =
                vec![("spark.plugins", plugin::CLASS.to_string()), ("spark.pellucid.mode", name(&conf.mode))];
            settings.extend(conf.policy.map(|policy| ("spark.pellucid.policy", name(&policy))));
            if matches!(conf.mode, Mode::Monotasks) {
                // Shuffle files must be on disk when their task ends, like writes through the queues
                // (monotasks paper, §3.1).
                settings.push(("spark.shuffle.sync", "true".to_string()));
            }
            if console.json {
                let settings: BTreeMap<_, _> = settings.into_iter().collect();
                return console.print_document(FORMAT, &json!({"jar": jar, "conf": settings}));
            }
            let location = plugin::location(&path)?;
            console.print(|out| {
                match conf.properties {
                    true => writeln!(out, "spark.jars {location}")?,
                    false => writeln!(out, "--jars {location}")?,
                }
                settings.iter().try_for_each(|(key, value)| match conf.properties {
                    true => writeln!(out, "{key} {value}"),
                    false => writeln!(out, "--conf {key}={value}"),
                })
            })
        }
    }
}

/// Parses `spark` or `spark=MASTER`. Returns `None` to use the master of Spark's own settings.
///
/// # Errors
/// Returns an error for any other value.
pub fn master(on: &str) -> Result<Option<&str>, Failure> {
    match on.strip_prefix("spark") {
        Some("") => Ok(None),
        Some(rest) if rest.len() > 1 && rest.starts_with('=') => Ok(Some(&rest[1..])),
        _ => Err(Failure::Usage(format!(
            "invalid --on {on}: expected spark or spark=MASTER, for example spark='local[4]' or \
             spark=spark://host:7077"
        ))),
    }
}

/// Parses `KEY=VALUE` of a Spark property.
pub fn parse_setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if key.starts_with("spark.") => Ok((key.into(), value.into())),
        _ => Err("expected a Spark property and its value, for example spark.executor.memory=4g".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn master_accepts_spark_only() {
        assert!(matches!(master("spark"), Ok(None)));
        assert!(matches!(master("spark=local-cluster[2,1,1024]"), Ok(Some("local-cluster[2,1,1024]"))));
        for on in ["spark=", "sparkle", "flink", ""] {
            let code = master(on).err().map(|failure| failure.exit_code());
            assert_eq!(code, Some(2), "{on}");
        }
    }

    #[test]
    fn settings_start_with_spark() {
        let read = parse_setting("spark.jars=a=b,c");
        assert_eq!(read, Ok(("spark.jars".to_string(), "a=b,c".to_string())));
        assert!(parse_setting("memory=4g").is_err());
        assert!(parse_setting("spark.memory").is_err());
    }
}
