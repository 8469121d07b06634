//! Changes to predict: the settings of `--set KEY=VALUE`, parsed and validated.
//!
//! A value is absolute (`200MB/s`, `4`) or relative to the trace's (`x2`, `x0.5`). The caller passes the
//! parser for rates, so that the whole command line uses one table of units.
//! [`WhatIfModel::predict`](super::WhatIfModel::predict) decides whether a trace supports a setting.

use std::fmt;

use super::change::{Amount, Change, InputFrom, Storage};
use super::error::WhatIfError;
use super::keys::{self, Key, Values};
use crate::units::parse_size;

/// Parses a rate (`50MB/s`) in bytes per second, or returns what is wrong with it.
pub type ReadRate = fn(&str) -> Result<u64, String>;

/// Two names for one key.
const MACHINES: [&str; 2] = ["machines", "workers"];

/// The parts that `no=` can remove besides kinds of resources.
const PARTS: &[&str] = &["gc", "scheduler", "deserialize", "stragglers", "skew"];

/// A setting as written, with its meaning.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// `disk.rate`.
    pub key: String,
    /// `x2`.
    pub value: String,
    /// The parsed change.
    pub change: Change,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

/// Changes that apply together: one per key, except for `no`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Changes {
    settings: Vec<Setting>,
}

impl Changes {
    /// Parses settings such as `disk.rate=x2`.
    ///
    /// # Errors
    /// Returns an error for an invalid setting; the message lists the valid ones.
    pub fn parse<S: AsRef<str>>(settings: &[S], rate: ReadRate) -> Result<Changes, WhatIfError> {
        let mut changes = Changes::default();
        settings.iter().try_for_each(|setting| changes.add(setting.as_ref(), rate))?;
        Ok(changes)
    }

    /// Parses and adds one setting.
    ///
    /// # Errors
    /// As [`Changes::parse`].
    pub fn add(&mut self, setting: &str, rate: ReadRate) -> Result<(), WhatIfError> {
        let Some((key, value)) = setting.split_once('=') else {
            return Err(WhatIfError::Usage(format!(
                "invalid setting `{setting}`: write KEY=VALUE, for example disk.rate=x2"
            )));
        };
        self.once(key.trim())?;
        self.set(key.trim(), value.trim(), rate)
    }

    /// Rejects a key that already has a value; `no` may be given several times.
    fn once(&self, key: &str) -> Result<(), WhatIfError> {
        let same = |s: &&Setting| s.key == key || [s.key.as_str(), key].iter().all(|k| MACHINES.contains(k));
        match self.settings.iter().find(same).filter(|_| key != "no") {
            None => Ok(()),
            Some(first) => Err(WhatIfError::Usage(format!(
                "`{key}` is set twice, first as `{first}`; set it once, or use --sweep for several values"
            ))),
        }
    }

    /// Adds one setting, replacing any with the same key.
    ///
    /// # Errors
    /// As [`Changes::parse`].
    pub fn set(&mut self, key: &str, value: &str, rate: ReadRate) -> Result<(), WhatIfError> {
        self.put(key, value, change(key, value, rate)?);
        Ok(())
    }

    /// Adds `storage=VALUE`, whose file the caller has read.
    ///
    /// # Errors
    /// Returns an error if reading was not measured, or if a storage is already set.
    pub fn set_storage(&mut self, value: &str, storage: Storage) -> Result<(), WhatIfError> {
        self.once("storage")?;
        if !storage.read.iter().any(|(_, rate)| *rate > 0.0) {
            return Err(WhatIfError::Failed(format!(
                "cannot use {value}: reading was not measured; probe again with more time"
            )));
        }
        self.put("storage", value, Change::Storage(storage));
        Ok(())
    }

    fn put(&mut self, key: &str, value: &str, change: Change) {
        // Several parts may be removed together; every other key has one value.
        let same = |s: &Setting| s.key == key && (key != "no" || s.value == value);
        self.settings.retain(|s| !same(s));
        self.settings.push(Setting { key: key.into(), value: value.into(), change });
    }

    /// Returns the settings, in order.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// Returns the changes, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Change> {
        self.settings.iter().map(|s| &s.change)
    }

    /// Returns true if the changes only remove parts, so that the prediction is an upper bound of the
    /// gain.
    pub fn is_bound(&self) -> bool {
        !self.is_empty() && self.iter().all(|change| matches!(change, Change::No(_)))
    }

    /// Returns true if the changes ask what other code would bring, which neither hardware nor a setting does.
    pub fn is_of_code(&self) -> bool {
        self.iter().any(Change::is_of_code)
    }

    /// Returns true if there are no changes.
    pub fn is_empty(&self) -> bool {
        self.settings.is_empty()
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings: Vec<String> = self.settings.iter().map(Setting::to_string).collect();
        f.write_str(&settings.join(" "))
    }
}

fn change(key: &str, value: &str, rate: ReadRate) -> Result<Change, WhatIfError> {
    let Some((known, name)) = Key::find(key) else { return Err(unknown(key)) };
    let count = || count(key, value, known.is_whole());
    let rate = || bytes_of(key, value, rate);
    Ok(match known.values {
        Values::Number(change) | Values::Whole(change) => change(count()?),
        Values::Rate(change) => change(rate()?),
        Values::Size(change) => change(bytes_of(key, value, parse_size)?),
        Values::WholeOf(change) => change(name, count()?),
        Values::RateOf(change) => change(name, rate()?),
        Values::Timeout => Change::IdleTimeout(timeout_ns(key, value)?),
        Values::Place => Change::Input(match value {
            "memory" => InputFrom::Memory,
            "memory-decoded" => InputFrom::MemoryDecoded,
            _ => return Err(wrong(key, value, None)),
        }),
        Values::Factor(change) => match count()? {
            Amount::Absolute(factor) | Amount::Times(factor) => change(name, factor),
        },
        Values::Removal(change) if value == "none" => change(name),
        Values::Removal(_) => return Err(wrong(key, value, None)),
        Values::Names(change) => {
            let names: Vec<String> = value.split(',').map(|name| name.trim().to_string()).collect();
            match names.iter().any(String::is_empty) {
                true => return Err(wrong(key, value, None)),
                false => change(name, names),
            }
        }
        Values::File => {
            let why = "it is read from a file and cannot be swept";
            return Err(wrong(key, value, Some(why)));
        }
        Values::Part if value.is_empty() => return Err(wrong(key, value, None)),
        Values::Part => Change::No(value.to_string()),
    })
}

fn count(key: &str, value: &str, whole: bool) -> Result<Amount, WhatIfError> {
    if let Some(factor) = value.strip_prefix('x') {
        return Ok(Amount::Times(positive(key, value, factor)?));
    }
    let number = positive(key, value, value)?;
    if whole && number.fract() != 0.0 {
        return Err(wrong(key, value, Some("it must be a whole number")));
    }
    Ok(Amount::Absolute(number))
}

/// Parses `60s`, `500ms`, `5min`, `1h` as Spark writes them, or `never`.
fn timeout_ns(key: &str, value: &str) -> Result<u64, WhatIfError> {
    if value == "never" {
        return Ok(u64::MAX);
    }
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let (number, unit) = value.split_at(digits);
    let unit_ns = match unit {
        "ms" => 1e6,
        "s" => 1e9,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        _ => return Err(wrong(key, value, Some("a time has a unit: ms, s, min or h"))),
    };
    // At most about 30 years, so that sums of times stay finite.
    Ok((positive(key, value, number)? * unit_ns).min(1e18) as u64)
}

/// Parses `x2`, or a size or a rate with its parser.
fn bytes_of(key: &str, value: &str, parse: ReadRate) -> Result<Amount, WhatIfError> {
    if let Some(factor) = value.strip_prefix('x') {
        return Ok(Amount::Times(positive(key, value, factor)?));
    }
    if value.starts_with('-') {
        return Err(wrong(key, value, Some("it must be over 0")));
    }
    match parse(value) {
        Ok(bytes) => Ok(Amount::Absolute(bytes as f64)),
        Err(why) => Err(wrong(key, value, Some(&why))),
    }
}

/// Parses a number within a plausible range, so that no time becomes infinite.
fn positive(key: &str, value: &str, number: &str) -> Result<f64, WhatIfError> {
    match number.parse::<f64>() {
        Ok(n) if (1e-3..=1e9).contains(&n) => Ok(n),
        Ok(n) if n <= 0.0 => Err(wrong(key, value, Some("it must be over 0"))),
        Ok(_) => Err(wrong(key, value, Some("it must be between 0.001 and 1000000000"))),
        Err(_) => Err(wrong(key, value, None)),
    }
}

fn wrong(key: &str, value: &str, why: Option<&str>) -> WhatIfError {
    let takes = Key::find(key).map_or("a value", |(known, _)| known.takes);
    let why = why.map_or(String::new(), |why| format!("{why}; "));
    WhatIfError::Usage(format!("`{key}={value}`: {why}{key} takes {takes}"))
}

fn unknown(key: &str) -> WhatIfError {
    WhatIfError::Usage(format!("unknown key `{key}`; the keys are {}", keys::all().join(", ")))
}

/// Returns true if `no=` with this name removes a part of a task's time rather than a kind of resource.
pub(crate) fn is_part(name: &str) -> bool {
    PARTS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> Result<u64, String> {
        let number = text.strip_suffix("MB/s").ok_or("a rate is a size a second, for example 50MB/s")?;
        number.parse::<u64>().map(|n| n * 1_000_000).map_err(|e| e.to_string())
    }

    fn read(setting: &str) -> Result<Change, String> {
        match Changes::parse(&[setting], rate) {
            Ok(changes) => Ok(changes.settings()[0].change.clone()),
            Err(refused) => Err(refused.message().to_string()),
        }
    }

    #[test]
    fn parse_accepts_every_key() {
        use Amount::{Absolute, Times};
        let cases = [
            ("cores=0.5", Change::Cores(Absolute(0.5))),
            ("disks=x2", Change::Disks(Times(2.0))),
            ("disk.rate=200MB/s", Change::DiskRate(None, Absolute(200e6))),
            ("disk.nvme0n1.rate=x0.5", Change::DiskRate(Some("nvme0n1".into()), Times(0.5))),
            ("disk.a.rate.rate=x2", Change::DiskRate(Some("a.rate".into()), Times(2.0))),
            ("network.rate=x2", Change::NetworkRate(Times(2.0))),
            ("store.rate=5MB/s", Change::StoreRate(Absolute(5e6))),
            ("concurrency.disk=4", Change::Concurrency("disk".into(), Absolute(4.0))),
            ("memory=4KiB", Change::Memory(Absolute(4096.0))),
            ("memory=x0.5", Change::Memory(Times(0.5))),
            ("partitions=16", Change::Partitions(Absolute(16.0))),
            ("workers=4", Change::Machines(Absolute(4.0))),
            ("executor.cores=4", Change::ExecutorCores(Absolute(4.0))),
            ("idle.timeout=60s", Change::IdleTimeout(60_000_000_000)),
            ("idle.timeout=never", Change::IdleTimeout(u64::MAX)),
            ("input=memory-decoded", Change::Input(InputFrom::MemoryDecoded)),
            ("input.scale=x3", Change::InputScale(3.0)),
            ("operator.3.time=x0.5", Change::OperatorTime("3".into(), 0.5)),
            ("operator.3.bytes=x0.5", Change::OperatorBytes("3".into(), 0.5)),
            ("operator.3.multitasks=8", Change::OperatorMultitasks("3".into(), Absolute(8.0))),
            ("decode.time=0.5", Change::DecodeTime(0.5)),
            ("rows.3=x0.5", Change::Rows("3".into(), 0.5)),
            ("rows.3=2", Change::Rows("3".into(), 2.0)),
            ("exchange.12=none", Change::NoExchange("12".into())),
            ("columns.a.parquet=b, c", Change::Columns("a.parquet".into(), vec!["b".into(), "c".into()])),
            ("no=disk", Change::No("disk".into())),
        ];
        for (text, change) in cases {
            assert_eq!(read(text), Ok(change), "{text}");
        }
    }

    #[test]
    fn invalid_setting_lists_valid_ones() {
        let cases = [
            ("disc.rate=x2", "the keys are cores"),
            ("disk..rate=x2", "the keys are cores"),
            ("disk.sda.rate=x2x", "takes a rate of one disk"),
            ("cores", "write KEY=VALUE"),
            ("cores=0", "must be over 0"),
            ("cores=-1", "must be over 0"),
            ("cores=four", "a number of cores"),
            ("cores=nan", "0.001"),
            ("cores=inf", "0.001"),
            ("disks=1.5", "whole number"),
            ("memory=4", "no unit; a size is"),
            ("memory=x0", "must be over 0"),
            ("disk.rate=200", "a size a second"),
            ("disk.rate=-5MB/s", "must be over 0"),
            ("disk.rate=x0", "must be over 0"),
            ("input=disk", "memory or memory-decoded"),
            ("idle.timeout=60", "a time has a unit"),
            ("idle.timeout=0s", "must be over 0"),
            ("concurrency.=4", "the keys are"),
            ("no=", "a kind of resource"),
            ("columns=a", "the keys are"),
            ("columns.t=", "columns.t takes the columns"),
            ("columns.t=a,,b", "columns.t takes the columns"),
            ("operator.time=x2", "the keys are"),
            ("operator.3.time=x0", "must be over 0"),
            ("rows.3=x0", "must be over 0"),
            ("rows.3=half", "takes a factor on the rows"),
            ("rows.=x2", "the keys are"),
            ("exchange.3=x2", "exchange.3 takes none"),
            ("exchange.3=", "exchange.3 takes none"),
        ];
        for (text, part) in cases {
            let message = read(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn parse_rejects_duplicate_keys_except_no() {
        let changes = Changes::parse(&["no=cpu", "no=disk", "cores=4"], rate).unwrap();
        assert_eq!(changes.to_string(), "no=cpu no=disk cores=4");
        for twice in
            [["cores=4", "cores=8"], ["machines=2", "workers=4"], ["disk.sda.rate=x2", "disk.sda.rate=x4"]]
        {
            let refused = Changes::parse(&twice, rate).unwrap_err();
            assert!(refused.message().contains(&format!("first as `{}`", twice[0])), "{}", refused.message());
        }
        Changes::parse(&["disk.rate=x2", "disk.sda.rate=x4"], rate).unwrap();
    }

    #[test]
    fn is_bound_only_if_all_changes_remove_parts() {
        let bound = |settings: &[&str]| Changes::parse(settings, rate).unwrap().is_bound();
        assert!(bound(&["no=cpu"]) && bound(&["no=gc", "no=skew"]));
        assert!(!bound(&[]) && !bound(&["cores=x2"]) && !bound(&["no=cpu", "cores=x2"]));
    }
}
