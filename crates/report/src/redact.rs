//! Redaction of a trace: replaces SQL text, paths, names of hosts and stores, and errors.
//!
//! Each text is replaced by a word for its category and eight hexadecimal digits of a hash, so that equal
//! texts get equal replacements. The hash is SHA-256 over a salt and the text. The salt is a hash of all
//! replaced texts and the trace's origin: redacting a trace again gives the same names, but hashing a guess
//! at a single text does not reveal it.
//!
//! Times, sizes, counts, kinds, names of local devices (`vda`, `eth0`) and names of operators are kept. So
//! are labels and warnings that consist of plain words (`page cache bypassed (direct I/O)`), since they
//! tell the reader which hardware was emulated and which data is missing.

use pellucid_trace::{Trace, kind};
use sha2::{Digest, Sha256};

/// Redacts a trace in place.
pub fn redact(trace: &mut Trace) {
    let mut salt = Sha256::new();
    each_text(trace, |what, text| {
        salt.update(what.as_bytes());
        salt.update(text.as_bytes());
        salt.update([0]);
    });
    salt.update(trace.header.as_ref().map_or(0, |h| h.origin_unix_ns).to_le_bytes());
    let salt = salt.finalize();
    each_text(trace, |what, text| {
        let hash = Sha256::new().chain_update(salt).chain_update(text.as_bytes()).finalize();
        let digits: String = hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        *text = format!("{what}-{digits}");
    });
}

/// Calls `each` with every text to be replaced and the word for its category.
fn each_text(trace: &mut Trace, mut each: impl FnMut(&str, &mut String)) {
    let labels = trace.header.iter_mut().flat_map(|h| &mut h.labels);
    labels.for_each(|label| sentence("label", label, &mut each));
    trace.machines.iter_mut().for_each(|m| each("host", &mut m.name));
    for resource in &mut trace.resources {
        if resource.kind == kind::STORE || resource.name.contains(['/', '.', ':']) {
            each(&resource.kind.clone(), &mut resource.name);
        }
    }
    trace.jobs.iter_mut().for_each(|job| each("sql", &mut job.name));
    for stage in &mut trace.stages {
        operators(&mut stage.name, &mut each);
        stage.not_split.iter_mut().for_each(|name| operators(name, &mut each));
        stage.call_site.iter_mut().for_each(|site| each("call-site", site));
    }
    if let Some(application) = &mut trace.application {
        let (name, id, user) = (&mut application.name, &mut application.id, &mut application.user);
        name.iter_mut().for_each(|name| each("application", name));
        id.iter_mut().for_each(|id| each("application", id));
        user.iter_mut().for_each(|user| each("user", user));
        let values = application.properties.values_mut();
        values.filter(|value| !is_plain(value)).for_each(|value| each("value", value));
    }
    trace.queries.iter_mut().for_each(|query| each("sql", &mut query.name));
    trace.resources.iter_mut().flat_map(|r| &mut r.removed_why).for_each(|why| each("reason", why));
    trace.pipelined_tasks.map_errors(|error| each("error", error));
    let errors = trace.stage_ends.iter_mut().filter_map(|end| end.error.as_mut());
    errors.for_each(|error| each("error", error));
    let errors = trace.query_ends.iter_mut().filter_map(|end| end.error.as_mut());
    errors.for_each(|error| each("error", error));
    let errors = trace.job_ends.iter_mut().filter_map(|end| end.error.as_mut());
    errors.for_each(|error| each("error", error));
    let errors = trace.storage_operations.iter_mut().filter_map(|op| op.error.as_mut());
    errors.for_each(|error| each("error", error));
    trace.truncated.iter_mut().for_each(|why| *why = "cut short".into());
    trace.warnings.iter_mut().for_each(|warning| sentence("warning", warning, &mut each));
}

/// Keeps a sentence of plain words, numbers and local devices. In a sentence about a file, only the file's
/// name is replaced; any other sentence is replaced as a whole.
fn sentence(what: &str, text: &mut String, each: &mut impl FnMut(&str, &mut String)) {
    let about_file = [" is truncated", " is readable up to"].iter().filter_map(|verb| text.rfind(verb)).max();
    match about_file {
        Some(end) if text[end..].split_whitespace().all(is_fixed) => {
            let mut name = text[..end].to_owned();
            each("file", &mut name);
            text.replace_range(..end, &name);
        }
        None if text.split_whitespace().all(is_fixed) => {}
        _ => each(what, text),
    }
}

/// Returns whether a word, apart from punctuation around it, is plain: a word, an amount (`1,234`, `1.5`)
/// or a local device (`vda1`), but not a path, host or URL.
fn is_fixed(word: &str) -> bool {
    let word = word.trim_start_matches('(').trim_end_matches([',', ';', ':', '.', ')']);
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '\'' | '’');
    matches!(word, "MB/s" | "I/O")
        || word.replace(',', "").parse::<f64>().is_ok()
        || word.chars().all(is_name)
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

/// Keeps the names of operators and replaces their arguments (`Scan lineitem.parquet`): anything but
/// alphabetic words, and everything after a scan.
fn operators(name: &mut String, each: &mut impl FnMut(&str, &mut String)) {
    let parts = name.split(", ").map(|operator| match operator.split_once(' ') {
        None if is_word(operator) => operator.to_owned(),
        Some((first, rest)) if is_word(first) && !scans(first) && rest.split(' ').all(is_word) => {
            operator.to_owned()
        }
        Some((first, rest)) if is_word(first) => {
            let mut rest = rest.to_owned();
            each("source", &mut rest);
            format!("{first} {rest}")
        }
        _ => {
            let mut all = operator.to_owned();
            each("operator", &mut all);
            all
        }
    });
    *name = parts.collect::<Vec<_>>().join(", ");
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphabetic())
}

/// Returns whether an operator's arguments name its input.
fn scans(operator: &str) -> bool {
    operator.contains("Scan") || operator.contains("Source")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operators_of(name: &str) -> String {
        let mut name = name.to_owned();
        operators(&mut name, &mut |what, text| *text = format!("{what}-{}", text.len()));
        name
    }

    #[test]
    fn operators_are_kept_and_arguments_replaced() {
        assert_eq!(operators_of("Aggregate Partial, HashJoin Inner"), "Aggregate Partial, HashJoin Inner");
        assert_eq!(operators_of("Repartition, Scan secret"), "Repartition, Scan source-6");
        assert_eq!(operators_of("Scan a b.parquet …"), "Scan source-15");
        assert_eq!(operators_of("/home/me/x.py:12"), "operator-16");
    }

    #[test]
    fn plain_sentences_are_kept_and_file_names_replaced() {
        let redacted = |text: &str| {
            let mut text = text.to_owned();
            sentence("warning", &mut text, &mut |what, text| *text = format!("{what}-#"));
            text
        };
        for fixed in [
            "page cache bypassed (direct I/O)",
            "disk nvme0n1 paced at 62.5 MB/s inside the engine",
            "skipped line 7: invalid JSON at byte 12 of 1,345",
            "skipped 1 line: JSON, but not a Spark event",
            "parts between 2 and 10 are missing",
            "core time was not measured: computing is the rest of the run time",
        ] {
            assert_eq!(redacted(fixed), fixed);
        }
        assert_eq!(
            redacted("/home/me/acme payroll is truncated within line 7"),
            "file-# is truncated within line 7"
        );
        assert_eq!(
            redacted("payroll is readable up to line 7 only: corrupt input"),
            "file-# is readable up to line 7 only: corrupt input"
        );
        for secret in [
            "payroll is truncated: /home/me is full",
            "disk //acme/share paced",
            "input of s3://acme",
            "host a.acme.com",
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
}
