//! Redaction of a trace: keeps numbers and the texts of closed lists, and replaces all other texts.
//!
//! Each text is replaced by a word for its category and sixteen hexadecimal digits of a hash, so that equal
//! texts get equal replacements. The hash is SHA-256 over a [`Salt`] and the text. Without the salt, which
//! is random and never written, hashing a guess reveals nothing.
//!
//! Times, sizes and counts are kept. [`known`] lists the texts that are kept as well: kinds, operators,
//! names of local devices (`vda`, `eth0`), and the sentences of Pellucid's own labels and warnings, since
//! they tell the reader which hardware was emulated and which data is missing. A text is judged as a whole or
//! word by word; it never has to be recognised as private.

mod known;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use pellucid_trace::{Application, Resource, Trace, reason};
use sha2::{Digest, Sha256};

/// The secret part of the hashes. Traces redacted with the same salt have the same names.
#[derive(Clone)]
pub struct Salt([u8; 32]);

impl Salt {
    /// Returns a random salt.
    pub fn random() -> Salt {
        // The standard library seeds its hash maps with 128 random bits from the system.
        let state = RandomState::new();
        let mut hash = Sha256::new();
        (0..4_u64).for_each(|number| hash.update(state.hash_one(number).to_le_bytes()));
        Salt(hash.finalize().into())
    }

    /// Returns the replacement of a text of a category.
    fn name(&self, category: &str, text: &str) -> String {
        let hash = Sha256::new().chain_update(self.0).chain_update(text.as_bytes()).finalize();
        let digits: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("{category}-{digits}")
    }

    fn hide(&self, category: &str, text: &mut String) {
        *text = self.name(category, text);
    }

    /// Hides a text unless it is one of `known`.
    fn hide_unless(&self, category: &str, text: &mut String, known: &[&str]) {
        if !known.contains(&text.as_str()) {
            self.hide(category, text);
        }
    }
}

/// Makes a salt that is not secret, for tests.
impl From<[u8; 32]> for Salt {
    fn from(bytes: [u8; 32]) -> Salt {
        Salt(bytes)
    }
}

impl std::fmt::Debug for Salt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Salt")
    }
}

/// Redacts a trace in place.
pub fn redact(trace: &mut Trace, salt: &Salt) {
    if let Some(header) = &mut trace.header {
        if header.format.strip_prefix("pellucid.trace/").is_none_or(|number| number_of(number) != number) {
            salt.hide("format", &mut header.format);
        }
        salt.hide_unless("producer", &mut header.producer, &known::PRODUCERS);
        header.producer_version = version(&header.producer_version, salt).unwrap_or_else(|| "unknown".into());
        header.labels.iter_mut().for_each(|label| sentence("label", label, salt));
    }
    trace.machines.iter_mut().for_each(|machine| salt.hide("host", &mut machine.name));
    trace.resources.iter_mut().for_each(|r| resource(r, salt));
    trace.jobs.iter_mut().for_each(|job| salt.hide("sql", &mut job.name));
    trace.queries.iter_mut().for_each(|query| salt.hide("sql", &mut query.name));
    for stage in &mut trace.stages {
        operators(&mut stage.name, salt);
        stage.not_split.iter_mut().for_each(|name| operators(name, salt));
        stage.call_site.iter_mut().for_each(|site| salt.hide("call-site", site));
    }
    for operator in &mut trace.operators {
        operators(&mut operator.name, salt);
        operator.detail = None;
        operator.columns.iter_mut().for_each(|column| salt.hide("column", &mut column.name));
        operator.expressions.iter_mut().for_each(|expr| salt.hide("expression", &mut expr.text));
    }
    for stack in &mut trace.stacks {
        stack.frames = functions(&stack.frames);
    }
    for operator in &mut trace.query_operators {
        operators(&mut operator.name, salt);
        operator.detail = None;
        let metrics = operator.metrics.iter_mut();
        metrics.for_each(|metric| salt.hide_unless("metric", &mut metric.name, &known::METRICS));
    }
    trace.application.iter_mut().for_each(|a| application(a, salt));
    let reasons = trace.concurrency_changes.iter_mut().filter_map(|change| change.reason.as_mut());
    reasons.for_each(|reason| salt.hide_unless("reason", reason, &reason::ALL));
    trace.pipelined_tasks.map_errors(|error| salt.hide("error", error));
    let stages = trace.stage_ends.iter_mut().map(|end| &mut end.error);
    let queries = trace.query_ends.iter_mut().map(|end| &mut end.error);
    let jobs = trace.job_ends.iter_mut().map(|end| &mut end.error);
    let operations = trace.storage_operations.iter_mut().map(|operation| &mut operation.error);
    let errors = stages.chain(queries).chain(jobs).chain(operations).flatten();
    errors.for_each(|error| salt.hide("error", error));
    let held =
        trace.job_ends.iter_mut().filter_map(|end| end.peak.as_mut()).flat_map(|peak| &mut peak.held_by);
    held.for_each(|held| salt.hide_unless("memory", &mut held.what, &known::MEMORY));
    trace.truncated.iter_mut().for_each(|why| *why = "cut short".into());
    trace.warnings.iter_mut().for_each(|warning| sentence("warning", warning, salt));
}

fn resource(resource: &mut Resource, salt: &Salt) {
    salt.hide_unless("kind", &mut resource.kind, &known::KINDS);
    resource.capacity_from.iter_mut().for_each(|from| {
        salt.hide_unless("source", from, &known::CAPACITY_SOURCES);
    });
    resource.removed_why.iter_mut().for_each(|why| salt.hide("reason", why));
    let name = &mut resource.name;
    let memory = name.strip_prefix("memory, ").and_then(|rest| rest.strip_suffix(" at once"));
    if known::RESOURCES.contains(&name.as_str())
        || known::KINDS.contains(&name.as_str())
        || known::is_device(name)
        || memory.is_some_and(is_short_number)
    {
        return;
    }
    match name.strip_prefix("executor ") {
        Some(id) => *name = salt.name("executor", id),
        None => salt.hide("resource", name),
    }
}

fn application(application: &mut Application, salt: &Salt) {
    salt.hide_unless("engine", &mut application.engine, &known::ENGINES);
    application.engine_version = application.engine_version.take().and_then(|text| version(&text, salt));
    let Application { name, id, attempt, user, .. } = application;
    name.iter_mut().chain(id).for_each(|name| salt.hide("application", name));
    user.iter_mut().for_each(|user| salt.hide("user", user));
    attempt.iter_mut().filter(|text| !is_short_number(text)).for_each(|text| salt.hide("attempt", text));
    application.properties.retain(|key, _| pellucid_model::is_known_setting(key));
    let values = application.properties.values_mut();
    values.filter(|value| !is_plain(value)).for_each(|value| salt.hide("value", value));
    let mut events = BTreeMap::new();
    for (name, count) in std::mem::take(&mut application.events) {
        let streaming = name.starts_with(known::STREAMING).then_some(known::STREAMING);
        let known = streaming.or_else(|| known::EVENTS.into_iter().find(|known| *known == name));
        *events.entry(known.unwrap_or("other").to_owned()).or_default() += count;
    }
    application.events = events;
}

/// Keeps a known sentence. In a known sentence about a file, only the file's name is replaced.
fn sentence(category: &str, text: &mut String, salt: &Salt) {
    let about_file = [" is truncated", " is readable up to"].iter().filter_map(|verb| text.rfind(verb)).max();
    match about_file {
        Some(end) if known::is_sentence(&text[end..]) => {
            let name = salt.name("file", &text[..end]);
            text.replace_range(..end, &name);
        }
        _ if known::is_sentence(text) => {}
        _ => salt.hide(category, text),
    }
}

/// Keeps the numbers of a version and replaces its suffix. `None` if it does not begin with two numbers.
fn version(text: &str, salt: &Salt) -> Option<String> {
    let number = number_of(text);
    let suffix = &text[number.len()..];
    match (number.is_empty(), suffix.is_empty()) {
        (true, _) => None,
        (false, true) => Some(number.to_owned()),
        (false, false) => Some(format!("{number}-{}", salt.name("suffix", suffix))),
    }
}

/// Returns the two or three numbers that a version begins with, or an empty text.
fn number_of(version: &str) -> &str {
    let mut end = 0;
    for (ix, part) in version.splitn(3, '.').enumerate() {
        let number = &part[..part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len())];
        if !is_short_number(number) {
            break;
        }
        end += usize::from(ix > 0) + number.len();
        if number != part {
            break;
        }
    }
    if version[..end].contains('.') { &version[..end] } else { "" }
}

fn is_short_number(text: &str) -> bool {
    (1..=4).contains(&text.len()) && known::digits(text)
}

/// Returns whether a setting's value is a boolean or an amount (`true`, `200`, `4g`, `0.6`). Such values
/// reveal no identity, and advice depends on them.
fn is_plain(value: &str) -> bool {
    let unit = value.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let is_unit = unit.len() <= 2 && unit.chars().all(|c| c.is_ascii_alphabetic());
    let is_amount = value[..value.len() - unit.len()].parse::<f64>().is_ok();
    // Longer numbers may be account or phone numbers.
    matches!(value, "true" | "false") || is_unit && is_amount && value.len() <= 8
}

/// Keeps the known words that an operator begins with (`Aggregate Partial`) and replaces the rest. A name
/// that contains the separator of operators only yields more replacements.
fn operators(name: &mut String, salt: &Salt) {
    let parts = name.split(", ").map(|operator| {
        let known = operator.split_inclusive(' ').take_while(|word| known::is_operator(word.trim_end()));
        let (kept, rest) = operator.split_at(known.map(str::len).sum());
        match (kept.trim_end(), rest) {
            (kept, "") => kept.to_owned(),
            ("", rest) => salt.name("operator", rest),
            (kept, rest) => format!("{kept} {}", salt.name("source", rest)),
        }
    });
    *name = parts.collect::<Vec<_>>().join(", ");
}

/// Keeps the functions of a stack, whose names are those of Pellucid's own code and of public libraries. Functions
/// without a name have that of their file, which is hidden unless it is a library of the system.
fn functions(frames: &str) -> String {
    let kept = frames.split(';').map(|name| {
        let file = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        if file.is_none_or(|file| known::FILES.contains(&file)) { name } else { "[file]" }
    });
    kept.collect::<Vec<_>>().join(";")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: Salt = Salt([7; 32]);

    /// Replaces the digits of each hash by `#`.
    fn without_digits(text: &str) -> String {
        let words = text.split(' ').map(|word| match word.split_once('-') {
            Some((category, digits)) if digits.trim_end_matches(',').len() == 16 => {
                format!("{category}-#{}", &digits[16..])
            }
            _ => word.to_owned(),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn operators_are_kept_and_everything_else_is_replaced() {
        for (name, expected) in [
            ("Aggregate Partial, HashJoin Inner, …", "Aggregate Partial, HashJoin Inner, …"),
            ("CometProject, ProjectExecTransformer", "CometProject, ProjectExecTransformer"),
            ("Repartition, Scan secret", "Repartition, Scan source-#"),
            ("Scan parquet db.t", "Scan parquet source-#"),
            ("WholeStageCodegen (12)", "WholeStageCodegen (12)"),
            ("WholeStageCodegen (acme)", "WholeStageCodegen source-#"),
            ("Scan a b.parquet …", "Scan source-#"),
            ("Scan Acme, Globex merger, x.parquet", "Scan source-#, operator-#, operator-#"),
            ("Scan JDBCRelation((select salary, bonus from t) t)", "Scan source-#, operator-#"),
            ("/home/me/x.py:12", "operator-#"),
            ("Project X", "Project source-#"),
            ("Customers of X at y", "operator-#"),
            ("", ""),
        ] {
            let mut text = name.to_owned();
            operators(&mut text, &SALT);
            assert_eq!(without_digits(&text), expected, "{name}");
        }
    }

    #[test]
    fn functions_are_kept_and_files_hidden() {
        let frames =
            "[truncated];<core::ops::F as a::B>::run;[libacme.so];[libc.so.6];f::{{closure}};[unknown]";
        let expected = "[truncated];<core::ops::F as a::B>::run;[file];[libc.so.6];f::{{closure}};[unknown]";
        assert_eq!(functions(frames), expected);
    }

    #[test]
    fn known_sentences_are_kept_and_file_names_replaced() {
        let redacted = |text: &str| {
            let mut text = text.to_owned();
            sentence("warning", &mut text, &SALT);
            without_digits(&text)
        };
        for fixed in [
            "page cache bypassed (direct I/O)",
            "disk nvme0n1 paced at 62.5 MB/s inside the engine",
            "4 compute threads on 1 core",
            "skipped line 7: invalid JSON at byte 12 of 1,345",
            "skipped 1 line: JSON, but not a Spark event",
            "parts between 2 and 10 are missing",
        ] {
            assert_eq!(redacted(fixed), fixed);
        }
        for (text, expected) in [
            ("/home/me/acme payroll is truncated within line 7", "file-# is truncated within line 7"),
            (
                "payroll is readable up to line 7 only: corrupt input",
                "file-# is readable up to line 7 only: corrupt input",
            ),
        ] {
            assert_eq!(redacted(text), expected);
        }
        for secret in [
            "payroll is truncated: /home/me is full",
            "disk //acme/share paced at 1 MB/s inside the engine",
            "disk acme paced at 1 MB/s inside the engine",
            "plain words",
            "part 4111111111111111 exists twice",
            "host 10.0.0.7",
        ] {
            assert_eq!(redacted(secret), "warning-#");
        }
    }

    #[test]
    fn booleans_and_amounts_are_plain() {
        assert!(["true", "false", "200", "4g", "60s", "0.6", "512mb"].into_iter().all(is_plain));
        let names = ["", "yarn", "s3://b", "acme", "4 goats", "123456789012", "10.0.0.7", "g4"];
        assert!(!names.into_iter().any(is_plain));
    }

    #[test]
    fn versions_keep_their_numbers() {
        let shown =
            |text: &str| version(text, &SALT).map(|text| text.split("suffix-").next().map(str::to_owned));
        for (text, expected) in [
            ("3.5.6", Some("3.5.6")),
            ("4.1.0-preview1", Some("4.1.0-")),
            ("3.3.0.acme", Some("3.3.0-")),
            ("0.1", Some("0.1")),
            ("acme", None),
            ("20261124.1", None),
            ("3", None),
        ] {
            assert_eq!(shown(text).flatten().as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn devices_are_known_by_the_kernels_names() {
        let names = ["vda", "sda1", "nvme0n1", "nvme0n1p2", "eth0", "enp0s31", "lo", "dm-0", "xvdb"];
        assert!(names.into_iter().all(known::is_device));
        let names =
            ["", "sd", "hdfc", "vdacme", "ethel", "nvme", "disk", "eth0.acme", "diskacme0", "sda12345"];
        assert!(!names.into_iter().any(known::is_device));
    }

    #[test]
    fn salts_are_random() {
        assert_ne!(Salt::random().0, Salt::random().0);
        assert_ne!(Salt::random().name("host", "a"), SALT.name("host", "a"));
        assert_eq!(SALT.name("host", "a"), SALT.name("host", "a"));
    }
}
