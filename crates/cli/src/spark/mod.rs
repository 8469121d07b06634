//! Spark: the lines that switch Pellucid's plugin on, and statements and iterative jobs run on a Spark
//! that the user has.
//!
//! Nothing of Spark is in this binary. The plugin is a jar that is looked for ([`plugin`]), Spark
//! is a Python that has PySpark ([`python`]); a session is a process of that Python ([`session`]),
//! whose rows come back as JSON ([`rows`]) and whose event log becomes the trace. Of an iterative job it starts the
//! workers, in tasks, and nothing else ([`hosting`]).

mod hosting;
mod plugin;
mod python;
mod rows;
mod session;

pub use hosting::{Hosting, Wanted};
pub use session::{Request, run};

use crate::console::Console;
use crate::failure::Failure;
use crate::output;
use serde_json::{Map, Value, json};

/// Arguments of `spark`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The plugin is one jar, for Spark 3.5 and 4, on the driver and the executors of an unmodified Spark.

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
    /// Print what switches the plugin on, as arguments of spark-submit
    Conf(ConfArguments),
    /// Print where the plugin's jar is
    #[command(after_help = "Example:\n  spark-submit --jars \"$(pellucid spark jar)\" job.py")]
    Jar,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  pellucid spark conf
  spark-submit $(pellucid spark conf --mode monotasks) job.py")]
struct ConfArguments {
    /// What the plugin does: measure only, tune how many tasks run, or queue I/O per disk
    #[arg(long, value_enum, default_value = "measure")]
    mode: Mode,
    /// When more tasks at once pay [default: throughput]
    #[arg(long, value_enum)]
    policy: Option<Policy>,
    /// As lines of spark-defaults.conf
    #[arg(long)]
    properties: bool,
}

/// `spark.pellucid.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    /// Nothing is changed
    Measure,
    /// The number of tasks that run is tuned, per executor and stage; slows short stages (docs/spark-plugin.md)
    Adaptive,
    /// I/O is queued per disk, computing per core
    Monotasks,
}

/// `spark.pellucid.policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Policy {
    /// While bytes per second grow
    Throughput,
    /// While the congestion index falls
    Index,
}

/// The name that an option's value has on the command line and in Spark's settings.
fn name(value: &impl clap::ValueEnum) -> String {
    value.to_possible_value().map_or(String::new(), |value| value.get_name().to_string())
}

/// Runs the command.
pub fn execute(arguments: &Arguments, console: &Console) -> Result<(), Failure> {
    if let Command::Conf(ConfArguments { mode: Mode::Measure, policy: Some(policy), .. }) = &arguments.command
    {
        return Err(Failure::Usage(format!(
            "cannot use --policy {}: nothing is tuned in mode measure; add --mode adaptive or --mode monotasks",
            name(policy)
        )));
    }
    let path = plugin::jar()?;
    let jar = path.display().to_string();
    match &arguments.command {
        Command::Jar if console.json => print(console, Map::from_iter([("jar".to_string(), jar.into())])),
        Command::Jar => console.print(|out| writeln!(out, "{jar}")),
        Command::Conf(conf) => {
            let mut settings =
                vec![("spark.plugins", plugin::CLASS.to_string()), ("spark.pellucid.mode", name(&conf.mode))];
            settings.extend(conf.policy.map(|policy| ("spark.pellucid.policy", name(&policy))));
            if matches!(conf.mode, Mode::Monotasks) {
                // Shuffle files are on the disk when their task has ended, as what its queues write (§3.1).
                settings.push(("spark.shuffle.sync", "true".to_string()));
            }
            if console.json {
                let settings = settings.into_iter().map(|(key, value)| (key.to_string(), value.into()));
                let settings: Map<String, Value> = settings.collect();
                let document = [("jar".to_string(), json!(jar)), ("conf".to_string(), settings.into())];
                return print(console, Map::from_iter(document));
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

fn print(console: &Console, document: Map<String, Value>) -> Result<(), Failure> {
    console.print(|out| output::write_document(out, "pellucid.spark/1", &document))
}

/// The master of `--on spark` or `--on spark=MASTER`; `None`: Spark's own settings say.
///
/// # Errors
/// For any other place to run.
pub fn master(on: &str) -> Result<Option<&str>, Failure> {
    match on.strip_prefix("spark") {
        Some("") => Ok(None),
        Some(rest) if rest.len() > 1 && rest.starts_with('=') => Ok(Some(&rest[1..])),
        _ => Err(Failure::Usage(format!(
            "--on {on}: it is spark or spark=MASTER, for example spark='local[4]' or spark=spark://host:7077"
        ))),
    }
}

/// Reads `KEY=VALUE` of Spark's settings.
pub fn parse_setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if key.starts_with("spark.") => Ok((key.into(), value.into())),
        _ => {
            Err("it is one of Spark's settings and its value, for example spark.executor.memory=4g"
                .to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_to_run() {
        assert!(matches!(master("spark"), Ok(None)));
        assert!(matches!(master("spark=local-cluster[2,1,1024]"), Ok(Some("local-cluster[2,1,1024]"))));
        for on in ["spark=", "sparkle", "flink", ""] {
            let code = master(on).err().map(|failure| failure.exit_code());
            assert_eq!(code, Some(2), "{on}");
        }
    }

    #[test]
    fn settings_are_sparks() {
        let read = parse_setting("spark.jars=a=b,c");
        assert_eq!(read, Ok(("spark.jars".to_string(), "a=b,c".to_string())));
        assert!(parse_setting("memory=4g").is_err());
        assert!(parse_setting("spark.memory").is_err());
    }
}
