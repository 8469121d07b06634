//! The causal check: slows one resource at a time by a known factor, runs the same query,
//! and compares the measured time with the prediction from the baseline run.
//!
//! Cores are slowed by using fewer of them. Disks and links are slowed by pacing inside the
//! engine, at rates that make them take as long as the job, and twice as long. Each
//! configuration keeps one engine, runs once unmeasured, and is then interleaved with the
//! others, so that background load affects all of them alike.

use super::Arguments;
use super::manifest::limits;
use crate::console::Console;
use crate::execute::execute;
use crate::failure::Failure;
use pellucid_engine::{Engine, EngineOptions};
use pellucid_model::backtest::{Emulation, Scored, middle, repeats};
use pellucid_model::measured_ms;
use pellucid_model::units::parse_rate;
use pellucid_model::whatif::{Changes, WhatIfModel, residuals};
use pellucid_runtime::{IoMode, Pacer};
use pellucid_trace::{Phase, Trace, kind};
use std::path::{Path, PathBuf};

/// Times that a slowed disk or link needs, relative to the duration of the job.
const SHARES: [f64; 2] = [1.0, 2.0];

/// Minimum duration of a paced job, in multiples of [`Pacer::CATCH_UP`]. In a shorter job, bursts
/// make the slowdown factor uncertain.
const MIN_CATCH_UPS: u32 = 10;

/// One configuration of the engine that runs the query.
struct Configuration {
    /// The change, in the syntax of `--set`; `None` for the baseline.
    set: Option<String>,
    emulation: Emulation,
    engine: Engine,
    traces: Vec<Trace>,
}

/// Runs the check. Returns the prediction and measurement of each configuration, and warnings.
pub fn run(
    query: &str,
    arguments: &Arguments,
    console: &Console,
) -> Result<(Vec<Scored>, Vec<String>), Failure> {
    let mut options = arguments.engine.options()?;
    options.io = IoMode::Direct;
    // The default depends on the cores, which are the only thing that may change.
    options.partitions.get_or_insert(4 * options.cores);
    let mut first = Configuration::new(None, Emulation::None, &options, arguments)?;
    console.note("running the baseline …");
    first.once(query, console)?;
    first.once(query, console)?;
    let known = first.traces.pop().ok_or_else(|| Failure::Failed("the query left no trace".to_string()))?;
    first.traces.clear();
    let mut warnings = Vec::new();
    let slowdowns = slowdowns(&known, query, &options, arguments, &mut warnings)?;
    let mut all = vec![first];
    for (set, emulation, options) in slowdowns {
        console.note(&format!("warming up {set} …"));
        let mut configuration = Configuration::new(Some(set), emulation, &options, arguments)?;
        configuration.once(query, console)?;
        configuration.traces.clear();
        all.push(configuration);
    }
    for repeat in 1..=arguments.repeats {
        console.note(&format!("repeat {repeat} of {} …", arguments.repeats));
        for configuration in &mut all {
            configuration.once(query, console)?;
        }
    }
    Ok((score(query, &all)?, warnings))
}

impl Configuration {
    fn new(
        set: Option<String>,
        emulation: Emulation,
        options: &EngineOptions,
        arguments: &Arguments,
    ) -> Result<Configuration, Failure> {
        let engine = Engine::new(options.clone())?;
        for (name, path) in &arguments.tables {
            engine.register_table(name, path)?;
        }
        Ok(Configuration { set, emulation, engine, traces: Vec::new() })
    }

    fn once(&mut self, query: &str, console: &Console) -> Result<(), Failure> {
        self.traces.push(execute(&self.engine, query.parse()?, None, console)?.result.trace);
        Ok(())
    }
}

/// Slowdowns: the setting, its emulation, and the engine's options.
type Slowdowns = Vec<(String, Emulation, EngineOptions)>;

fn slowdowns(
    trace: &Trace,
    query: &str,
    options: &EngineOptions,
    arguments: &Arguments,
    warnings: &mut Vec<String>,
) -> Result<Slowdowns, Failure> {
    let took_s = measured_ms(trace)? / 1000.0;
    let mut all = Slowdowns::new();
    match options.cores / 2 {
        0 => warnings.push("cores were not slowed: only one is available".to_string()),
        half => {
            let options = EngineOptions { cores: half, ..options.clone() };
            all.push((format!("cores={half}"), Emulation::None, options));
        }
    }
    let disk_bytes = input_bytes(trace, kind::DISK);
    let paths = paths(query, arguments);
    if disk_bytes == 0 || paths.is_empty() {
        warnings.push("disks were not slowed: found no local file that the query reads".to_string());
    } else {
        for share in SHARES {
            let rate = whole_rate(disk_bytes, took_s * share);
            let disk_rates = paths.iter().map(|path| (path.clone(), rate)).collect();
            let set = format!("disk.rate={}MB/s", rate / 1_000_000);
            all.push((set, Emulation::EnginePaced, EngineOptions { disk_rates, ..options.clone() }));
        }
    }
    let store_bytes = input_bytes(trace, kind::STORE);
    for share in SHARES.iter().filter(|_| store_bytes > 0) {
        let rate = whole_rate(store_bytes, took_s * share);
        let set = format!("network.rate={}MB/s", rate / 1_000_000);
        all.push((
            set,
            Emulation::EnginePaced,
            EngineOptions { network_rate: Some(rate), ..options.clone() },
        ));
    }
    let minimum = MIN_CATCH_UPS * Pacer::CATCH_UP;
    let paced = all.iter().any(|(_, emulation, _)| matches!(emulation, Emulation::EnginePaced));
    if paced && took_s < minimum.as_secs_f64() {
        warnings.push(format!(
            "the query takes only {:.0} ms, but pacing is too coarse for a fair comparison below {} ms; \
             use more data",
            took_s * 1e3,
            minimum.as_millis()
        ));
    }
    if all.is_empty() {
        return Err(Failure::Failed(format!("cannot slow any resource: {}", warnings.join("; "))));
    }
    Ok(all)
}

/// Returns the bytes that the query read or fetched from resources of a kind.
fn input_bytes(trace: &Trace, kind: &str) -> u64 {
    let of_kind = |m: &&pellucid_trace::Monotask| {
        trace.resources.get(m.resource as usize).is_some_and(|r| r.kind == kind)
            && matches!(m.phase, Phase::Read | Phase::Fetch)
    };
    trace.monotasks.iter().filter(of_kind).filter_map(|m| m.bytes).sum()
}

/// Returns the rate at which the bytes take `seconds`, rounded to whole megabytes per second.
fn whole_rate(bytes: u64, seconds: f64) -> u64 {
    let rate = bytes as f64 / seconds.max(1e-3) / 1e6;
    (rate.round().max(1.0) as u64) * 1_000_000
}

/// Returns paths on the disks that the query reads: those of its tables and those in its text.
fn paths(query: &str, arguments: &Arguments) -> Vec<PathBuf> {
    let quoted = query.split('\'').skip(1).step_by(2).map(str::to_string);
    let named = arguments.tables.iter().map(|(_, path)| path.clone());
    let mut paths: Vec<PathBuf> = named.chain(quoted).filter_map(|text| existing(&text)).collect();
    paths.sort();
    paths.dedup();
    paths
}

/// Returns the existing file or folder that a path names, or the part of it before a pattern.
fn existing(text: &str) -> Option<PathBuf> {
    if text.contains("://") {
        return None;
    }
    let plain = text.split(['*', '?', '[']).next().unwrap_or(text);
    let path = Path::new(plain);
    // Other quoted text of the query must not match: it has no separator, or no existing parent.
    let looks_like = text.contains('/') || text.contains('.');
    let found = if path.exists() { Some(path) } else { path.parent().filter(|p| p.exists()) };
    found.filter(|p| looks_like && !p.as_os_str().is_empty()).map(Path::to_path_buf)
}

fn score(query: &str, all: &[Configuration]) -> Result<Vec<Scored>, Failure> {
    let times = |configuration: &Configuration| -> Result<Vec<f64>, Failure> {
        configuration.traces.iter().map(|trace| Ok(measured_ms(trace)?)).collect()
    };
    let none = || {
        Failure::Failed("cannot score: the query's duration was not measurable; use more data".to_string())
    };
    let [first, slower @ ..] = all else { return Err(none()) };
    let baseline_times = times(first)?;
    let (baseline_ms, baseline_spread) = repeats(&baseline_times).ok_or_else(none)?;
    let table = residuals(None);
    let model = WhatIfModel::of(&first.traces[middle(&baseline_times).ok_or_else(none)?], &table)?;
    let mut scored = Vec::new();
    for configuration in slower {
        let set = configuration.set.clone().unwrap_or_default();
        let answer = model.predict(&Changes::parse(&[&set], parse_rate)?)?;
        let target_times = times(configuration)?;
        let (measured_ms, measured_spread) = repeats(&target_times).ok_or_else(none)?;
        let target = &configuration.traces[middle(&target_times).ok_or_else(none)?];
        let (bottleneck_measured, balanced) = limits(target);
        scored.push(Scored {
            name: set.clone(),
            query: query.to_string(),
            set: set.split_once('=').map(|(k, v)| (k.to_string(), v.to_string())).into_iter().collect(),
            emulation: configuration.emulation,
            baseline_ms,
            baseline_spread,
            measured_ms,
            measured_spread,
            scale: model.scale(&answer.prediction),
            prediction: answer.prediction,
            replay_error: answer.baseline.replay_error(),
            bottleneck_before: answer.bottleneck_before.map(|b| b.kind),
            bottleneck_after: answer.bottleneck_after.map(|b| b.kind),
            bottleneck_measured,
            balanced,
            void: None,
        });
    }
    Ok(scored)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_rounded_to_at_least_one_megabyte_per_second() {
        assert_eq!(whole_rate(100_000_000, 2.0), 50_000_000);
        assert_eq!(whole_rate(10, 2.0), 1_000_000);
    }

    #[test]
    fn quoted_text_is_not_a_path() {
        assert_eq!(existing("MAIL"), None);
        assert_eq!(existing("s3://bucket/a.parquet"), None);
        assert_eq!(existing("/*.parquet"), Some(PathBuf::from("/")));
    }
}
