//! Command-line options that configure the engine, shared by the commands that run queries.

use crate::failure::Failure;
use crate::generate::all_cores;
use pellucid_engine::{EngineOptions, Input};
use pellucid_model::units::{parse_rate, parse_size};
use pellucid_runtime::{IoMode, available_memory_bytes};
use std::path::PathBuf;

/// Read mode of `--io`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Io {
    /// Through the page cache: cached bytes are served from memory
    Cached,
    /// Bypass the page cache: every byte comes from the device
    Direct,
}

/// Location of the tables when the measured job starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum InputFrom {
    /// Read from storage during the job
    Storage,
    /// Held in memory as encoded files
    Memory,
    /// Held in memory as decoded columns
    MemoryDecoded,
}

/// Options of the commands that run queries.
#[derive(Debug, Clone, clap::Args)]
pub struct EngineArguments {
    /// Number of cores to use [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536), help_heading = "Execution")]
    cores: Option<u32>,
    /// Partitions of each exchange [default: four per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536), help_heading = "Execution")]
    partitions: Option<u32>,
    /// Memory for queries, for example 4GiB; beyond it, they spill to disk [default: 70 % of the memory]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Execution")]
    memory: Option<u64>,
    /// Folder for what does not fit into memory; repeat it for several disks [default: the system's]
    #[arg(long = "spill-dir", value_name = "DIR", help_heading = "Execution")]
    spill_dirs: Vec<PathBuf>,
    /// Read mode
    #[arg(long, value_enum, default_value = "cached", help_heading = "Execution")]
    io: Io,
    /// Limit the rate of the disk that holds PATH, for example /data=50MB/s
    #[arg(long = "disk-rate", value_name = "PATH=RATE", value_parser = parse_disk_rate, help_heading = "Experiments")]
    disk_rates: Vec<(PathBuf, u64)>,
    /// Limit the rate of the network link, for example 1Gbit/s
    #[arg(long, value_name = "RATE", value_parser = parse_rate, help_heading = "Experiments")]
    network_rate: Option<u64>,
    /// Concurrent monotasks on each resource of a kind, for example disk=4
    #[arg(long, value_name = "KIND=N", value_parser = parse_concurrency, help_heading = "Experiments")]
    concurrency: Vec<(String, u32)>,
    /// Slow an operator of `analyze --json` to a multiple of its core time, for example 5=x2
    #[arg(long, value_name = "N=xFACTOR", value_parser = parse_slow_operator, help_heading = "Experiments")]
    slow_operator: Option<(u32, f64)>,
    /// Location of the tables when the measured job starts
    #[arg(long, value_enum, default_value = "storage", help_heading = "Experiments")]
    input: InputFrom,
}

impl EngineArguments {
    /// Returns the first option given, for commands to which none applies.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            ("--cores", self.cores.is_some()),
            ("--partitions", self.partitions.is_some()),
            ("--memory", self.memory.is_some()),
            ("--spill-dir", !self.spill_dirs.is_empty()),
            ("--io", self.io != Io::Cached),
            ("--disk-rate", !self.disk_rates.is_empty()),
            ("--network-rate", self.network_rate.is_some()),
            ("--concurrency", !self.concurrency.is_empty()),
            ("--slow-operator", self.slow_operator.is_some()),
            ("--input", self.input != InputFrom::Storage),
        ];
        given.into_iter().find_map(|(name, given)| given.then_some(name))
    }

    /// Returns the options to create the engine with.
    pub fn options(&self) -> Result<EngineOptions, Failure> {
        // The engine accepts paths that do not exist yet; on the command line they are mistakes.
        if let Some((path, _)) = self.disk_rates.iter().find(|(path, _)| !path.exists()) {
            return Err(Failure::Usage(format!(
                "cannot find the disk of --disk-rate {}: no such file or directory; check the path",
                path.display()
            )));
        }
        Ok(EngineOptions {
            cores: self.cores.map_or_else(all_cores, |cores| cores as usize),
            cores_set: self.cores.is_some(),
            partitions: self.partitions.map(|partitions| partitions as usize),
            memory_bytes: self.memory.or_else(usual_memory),
            // Otherwise it is kept for the next operator: touching fresh pages takes a sixth of a query's time.
            on_pressure: Some(crate::return_freed_memory),
            io: match self.io {
                Io::Cached => IoMode::Cached,
                Io::Direct => IoMode::Direct,
            },
            disk_rates: self.disk_rates.clone(),
            network_rate: self.network_rate,
            concurrency: self.concurrency.clone(),
            slow_operator: self.slow_operator,
            spill_dirs: self.spill_dirs.clone(),
            input: match self.input {
                InputFrom::Storage => Input::Storage,
                InputFrom::Memory => Input::Memory,
                InputFrom::MemoryDecoded => Input::MemoryDecoded,
            },
            stacks: false,
            stdin_taken: false,
        })
    }
}

/// Returns seven tenths of the memory that this process may use: the rest is for the program and what its allocator keeps.
fn usual_memory() -> Option<u64> {
    available_memory_bytes().map(|bytes| bytes / 10 * 7)
}

fn parse_disk_rate(text: &str) -> Result<(PathBuf, u64), String> {
    // Split at the last `=`: a path may contain one (`year=2026`), a rate cannot.
    match text.rsplit_once('=') {
        Some((path, rate)) if !path.is_empty() => Ok((path.into(), parse_rate(rate)?)),
        _ => Err("expected PATH=RATE, for example /data=50MB/s".to_string()),
    }
}

fn parse_concurrency(text: &str) -> Result<(String, u32), String> {
    let expected = || "expected KIND=N with N at least 1, for example disk=4".to_string();
    let (kind, number) = text.split_once('=').ok_or_else(expected)?;
    match number.parse() {
        Ok(number) if number > 0 && !kind.is_empty() => Ok((kind.to_string(), number)),
        _ => Err(expected()),
    }
}

fn parse_slow_operator(text: &str) -> Result<(u32, f64), String> {
    let parsed = text.split_once("=x").and_then(|(number, factor)| {
        let factor = factor.parse::<f64>().ok().filter(|factor| factor.is_finite() && *factor >= 1.0)?;
        Some((number.parse().ok()?, factor))
    });
    parsed.ok_or_else(|| "expected N=xFACTOR with a factor of at least 1, for example 5=x2".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_operator_requires_a_number_and_a_factor_of_1_or_more() {
        assert_eq!(parse_slow_operator("5=x2.5"), Ok((5, 2.5)));
        for text in ["5", "5=2", "x2", "-1=x2", "5=x0.5", "5=xinf", "5=xNaN"] {
            assert!(parse_slow_operator(text).is_err(), "{text}");
        }
    }

    #[test]
    fn disk_rate_accepts_a_path_with_an_equals_sign() {
        let parsed = parse_disk_rate("/data/year=2026=50MB/s");
        assert_eq!(parsed, Ok((PathBuf::from("/data/year=2026"), 50_000_000)));
        assert!(parse_disk_rate("50MB/s").unwrap_err().contains("/data=50MB/s"));
        assert!(parse_disk_rate("/data=50MB").unwrap_err().contains("a rate is a size per second"));
    }

    #[test]
    fn concurrency_requires_a_kind_and_a_positive_number() {
        assert_eq!(parse_concurrency("disk=4"), Ok(("disk".to_string(), 4)));
        for text in ["disk", "disk=0", "=4", "disk=four"] {
            assert!(parse_concurrency(text).is_err(), "{text}");
        }
    }
}
