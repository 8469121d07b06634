//! The options of `sql` that say how the engine runs, and how they are read.

use crate::failure::Failure;
use crate::generate::all_cores;
use crate::units::{parse_rate, parse_size};
use pellucid_engine::{EngineOptions, Input};
use pellucid_runtime::IoMode;
use std::path::PathBuf;

/// How reads go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Io {
    /// Through the page cache: what is in memory already is served from there
    Cached,
    /// Past the page cache: every byte comes from the device
    Direct,
}

/// Where the tables are when the measured job starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum InputFrom {
    /// Where they lie
    Storage,
    /// As their files are, in memory
    Memory,
    /// As decoded columns in memory
    MemoryDecoded,
}

/// Options of everything that runs queries.
#[derive(Debug, Clone, clap::Args)]
pub struct EngineArguments {
    /// Cores to compute on [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536), help_heading = "Execution")]
    cores: Option<u32>,
    /// Partitions of each exchange [default: four a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536), help_heading = "Execution")]
    partitions: Option<u32>,
    /// Memory that queries may hold, for example 4GiB [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Execution")]
    memory: Option<u64>,
    /// Reserved: the engine refuses it until it can spill
    #[arg(long = "spill-dir", value_name = "DIR", help_heading = "Execution", hide = true)]
    spill_dirs: Vec<PathBuf>,
    /// How reads go
    #[arg(long, value_enum, default_value = "cached", help_heading = "Execution")]
    io: Io,
    /// Pace the disk that holds PATH, for example /data=50MB/s; the trace says so
    #[arg(long = "disk-rate", value_name = "PATH=RATE", value_parser = parse_disk_rate, help_heading = "Experiments")]
    disk_rates: Vec<(PathBuf, u64)>,
    /// Pace the network link, for example 1Gbit/s; the trace says so
    #[arg(long, value_name = "RATE", value_parser = parse_rate, help_heading = "Experiments")]
    network_rate: Option<u64>,
    /// Monotasks at once on each resource of a kind, for example disk=4
    #[arg(long, value_name = "KIND=N", value_parser = parse_concurrency, help_heading = "Experiments")]
    concurrency: Vec<(String, u32)>,
    /// Load the tables before the measured job
    #[arg(long, value_enum, default_value = "storage", help_heading = "Experiments")]
    input: InputFrom,
}

impl EngineArguments {
    /// The first option that was given, for where none of them applies.
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
            ("--input", self.input != InputFrom::Storage),
        ];
        given.into_iter().find_map(|(name, given)| given.then_some(name))
    }

    /// What the engine is to be made with.
    pub fn options(&self) -> Result<EngineOptions, Failure> {
        // The engine paces the disk that a path would be on; a path that is not there is a slip.
        if let Some((path, _)) = self.disk_rates.iter().find(|(path, _)| !path.exists()) {
            return Err(Failure::Usage(format!(
                "--disk-rate {}: cannot find its disk: no such file or directory; check the path",
                path.display()
            )));
        }
        Ok(EngineOptions {
            cores: self.cores.map_or_else(all_cores, |cores| cores as usize),
            cores_set: self.cores.is_some(),
            partitions: self.partitions.map(|partitions| partitions as usize),
            memory_bytes: self.memory,
            io: match self.io {
                Io::Cached => IoMode::Cached,
                Io::Direct => IoMode::Direct,
            },
            disk_rates: self.disk_rates.clone(),
            network_rate: self.network_rate,
            concurrency: self.concurrency.clone(),
            spill_dirs: self.spill_dirs.clone(),
            input: match self.input {
                InputFrom::Storage => Input::Storage,
                InputFrom::Memory => Input::Memory,
                InputFrom::MemoryDecoded => Input::MemoryDecoded,
            },
            ..EngineOptions::default()
        })
    }
}

fn parse_disk_rate(text: &str) -> Result<(PathBuf, u64), String> {
    // From the right: a path may hold `=` (`year=2026`), a rate cannot.
    match text.rsplit_once('=') {
        Some((path, rate)) if !path.is_empty() => Ok((path.into(), parse_rate(rate)?)),
        _ => Err("it is a path on the disk and a rate, for example /data=50MB/s".to_string()),
    }
}

fn parse_concurrency(text: &str) -> Result<(String, u32), String> {
    let explain = || "it is a kind of resource and a number from 1, for example disk=4".to_string();
    let (kind, number) = text.split_once('=').ok_or_else(explain)?;
    match number.parse() {
        Ok(number) if number > 0 && !kind.is_empty() => Ok((kind.to_string(), number)),
        _ => Err(explain()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_rate_may_name_a_path_with_an_equals_sign() {
        let read = parse_disk_rate("/data/year=2026=50MB/s");
        assert_eq!(read, Ok((PathBuf::from("/data/year=2026"), 50_000_000)));
        assert!(parse_disk_rate("50MB/s").unwrap_err().contains("/data=50MB/s"));
        assert!(parse_disk_rate("/data=50MB").unwrap_err().contains("a rate is a size a second"));
    }

    #[test]
    fn concurrency_is_a_kind_and_a_positive_number() {
        assert_eq!(parse_concurrency("disk=4"), Ok(("disk".to_string(), 4)));
        for text in ["disk", "disk=0", "=4", "disk=four"] {
            assert!(parse_concurrency(text).is_err(), "{text}");
        }
    }
}
