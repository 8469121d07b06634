//! Spark settings that advice names: the version that introduced each, its default, and the log's value.
//!
//! Advice must be pasteable, so it never names a key that the log's version does not have. Versions and
//! defaults come from Spark's configuration pages.

use pellucid_trace::{Application, Trace, kind};

/// A version: major and minor.
pub(crate) type Version = (u32, u32);

/// A key: its name, the version that introduced it, and its defaults by version, oldest first.
type Key = (&'static str, Version, &'static [(Version, &'static str)]);

const KEYS: &[Key] = &[
    ("spark.executor.memory", (0, 7), &[((0, 7), "512m"), ((1, 4), "1g")]),
    ("spark.driver.memory", (1, 1), &[((1, 1), "512m"), ((1, 4), "1g")]),
    ("spark.executor.memoryOverhead", (2, 3), &[((2, 3), "10 % of the executor's memory, at least 384m")]),
    ("spark.sql.shuffle.partitions", (1, 1), &[((1, 1), "200")]),
    ("spark.default.parallelism", (0, 5), &[]),
    ("spark.sql.files.maxPartitionBytes", (2, 0), &[((2, 0), "128m")]),
    ("spark.sql.adaptive.enabled", (1, 6), &[((1, 6), "false"), ((3, 2), "true")]),
    ("spark.sql.adaptive.skewJoin.enabled", (3, 0), &[((3, 0), "true")]),
    ("spark.speculation", (0, 6), &[((0, 6), "false")]),
    ("spark.local.dir", (0, 5), &[((0, 5), "/tmp")]),
    ("spark.reducer.maxSizeInFlight", (1, 4), &[((1, 4), "48m")]),
    ("spark.dynamicAllocation.enabled", (1, 2), &[((1, 2), "false")]),
    ("spark.dynamicAllocation.minExecutors", (1, 2), &[((1, 2), "0")]),
    ("spark.dynamicAllocation.executorIdleTimeout", (1, 2), &[((1, 2), "60s")]),
];

/// Returns whether advice may name a key.
pub fn is_known_setting(key: &str) -> bool {
    KEYS.iter().any(|(known, ..)| *known == key)
}

/// The settings of an application.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings<'t> {
    application: Option<&'t Application>,
    version: Option<Version>,
    /// True if everything runs in the driver's process.
    pub local: bool,
}

impl<'t> Settings<'t> {
    /// Reads the settings from a trace.
    pub fn of(trace: &'t Trace) -> Settings<'t> {
        let application = trace.application.as_ref();
        let version = application.and_then(|a| a.engine_version.as_deref()).and_then(version);
        let slots = trace.resources.iter().filter(|r| r.kind == kind::SLOTS);
        let mut names = slots.map(|r| r.name.as_str()).peekable();
        let local = names.peek().is_some()
            && names.all(|name| name.ends_with("driver") || name.ends_with("<driver>"));
        Settings { application, version, local }
    }

    /// Returns the value of a key from the log, or else the version's default.
    pub fn value(&self, key: &str) -> Option<&'t str> {
        let set = self.application.and_then(|a| a.properties.get(key)).map(String::as_str);
        set.or_else(|| {
            let (_, since, defaults) = KEYS.iter().find(|(known, ..)| *known == key)?;
            let version = self.version.filter(|v| v >= since)?;
            defaults.iter().rev().find(|(from, _)| *from <= version).map(|(_, value)| *value)
        })
    }

    /// Returns true if a key is `true`.
    pub fn is_on(&self, key: &str) -> bool {
        self.value(key).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// Formats `--conf key=value (now …)`; `None` if the version does not have the key or it already has
    /// that value.
    pub fn change(&self, key: &str, value: &str) -> Option<String> {
        let (_, since, _) = KEYS.iter().find(|(known, ..)| *known == key)?;
        let known = self.version.is_some_and(|v| v >= *since);
        if !known || self.value(key) == Some(value) {
            return None;
        }
        let set = self.application.is_some_and(|a| a.properties.contains_key(key));
        let now = match (self.value(key), set) {
            (Some(now), true) => format!("now {now}"),
            (Some(now), false) => format!("now {now}, the default"),
            (None, _) => "now not set".to_owned(),
        };
        Some(format!("--conf {key}={value} ({now})"))
    }

    /// Returns the change that doubles a memory setting.
    pub fn doubled(&self, key: &str) -> Option<String> {
        let now = self.value(key)?.trim().to_lowercase();
        let digits = now.find(|c: char| !c.is_ascii_digit()).unwrap_or(now.len());
        let (amount, unit) = now.split_at(digits);
        let amount: u64 = amount.parse().ok().filter(|a| (1..=1 << 20).contains(a))?;
        let unit = match unit {
            "g" | "gb" => "g",
            "m" | "mb" => "m",
            _ => return None,
        };
        self.change(key, &format!("{}{unit}", amount * 2))
    }
}

/// Parses major and minor from `3.5.6`, `4.1.0-preview1`, `3.3.0-amzn-0`.
fn version(text: &str) -> Option<Version> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|n| !n.is_empty());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn application(version: &str, set: &[(&str, &str)]) -> Trace {
        let properties = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let application =
            Application { engine_version: Some(version.into()), properties, ..Application::default() };
        Trace { application: Some(application), ..Trace::default() }
    }

    #[test]
    fn change_requires_a_version_that_has_the_key() {
        let old = application("1.5.2", &[]);
        assert_eq!(Settings::of(&old).change("spark.sql.adaptive.skewJoin.enabled", "true"), None);
        assert_eq!(Settings::of(&Trace::default()).change("spark.speculation", "true"), None);
        let new = application("3.5.3", &[("spark.speculation", "false")]);
        let change = Settings::of(&new).change("spark.speculation", "true");
        assert_eq!(change.as_deref(), Some("--conf spark.speculation=true (now false)"));
        assert_eq!(Settings::of(&new).change("spark.sql.adaptive.enabled", "true"), None, "it is on already");
    }

    #[test]
    fn defaults_depend_on_the_version() {
        let adaptive = |v: &str| Settings::of(&application(v, &[])).is_on("spark.sql.adaptive.enabled");
        assert!(!adaptive("3.1.1") && adaptive("3.2.0") && adaptive("4.1.0-preview1"));
        let memory = |set: &[(&str, &str)]| {
            Settings::of(&application("3.3.0-amzn-0", set)).doubled("spark.executor.memory")
        };
        assert_eq!(memory(&[]).as_deref(), Some("--conf spark.executor.memory=2g (now 1g, the default)"));
        assert_eq!(
            memory(&[("spark.executor.memory", "4500M")]).as_deref(),
            Some("--conf spark.executor.memory=9000m (now 4500M)")
        );
        assert_eq!(memory(&[("spark.executor.memory", "a lot")]), None);
    }
}
