//! Takes out of a trace what must not be shared: SQL text, paths, names of hosts and stores, errors.
//!
//! Each is replaced by a word for what it was and eight hexadecimal digits of a hash, so that the same
//! text stays the same name all through the trace. The hash is SHA-256 over the text and a salt that
//! is itself the hash of everything that is replaced and of the trace's origin: the same trace
//! gives the same names, but a name cannot be found by hashing guesses at one text alone.
//!
//! What stays: times, sizes, counts, kinds and names of local devices (`vda`, `eth0`), the names of
//! operators, which are the engine's own, and labels and warnings of fixed words (`page cache bypassed (direct
//! I/O)`): without them a reader would not know what was emulated or is missing.

use pellucid_trace::{Trace, kind};
use sha2::{Digest, Sha256};

/// Replaces what must not be shared, in place.
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

/// Every text that is replaced, with the word for what it is.
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

/// Keeps a sentence of fixed words, numbers and local devices. Of one about a file, the file's name goes; else
/// one with anything other goes whole.
fn sentence(what: &str, text: &mut String, each: &mut impl FnMut(&str, &mut String)) {
    let about_file = [" is cut", " is read up to"].iter().filter_map(|verb| text.rfind(verb)).max();
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

/// A word, an amount (`1,234`, `1.5`) or a local device (`vda1`), maybe with marks around it: no path, host or URL.
fn is_fixed(word: &str) -> bool {
    let word = word.trim_start_matches('(').trim_end_matches([',', ';', ':', '.', ')']);
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '\'' | '’');
    matches!(word, "MB/s" | "I/O")
        || word.replace(',', "").parse::<f64>().is_ok()
        || word.chars().all(is_name)
}

/// A switch or an amount (`true`, `200`, `4g`, `0.6`): it names nothing, and what is advised rests on it.
fn is_plain(value: &str) -> bool {
    let unit = value.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let is_unit = unit.len() <= 2 && unit.chars().all(|c| c.is_ascii_alphabetic());
    let is_amount = value[..value.len() - unit.len()].parse::<f64>().is_ok();
    // Longer ones may be somebody's number.
    matches!(value, "true" | "false") || is_unit && is_amount && value.len() <= 8
}

/// Keeps an operator's own words and replaces what it works on (`Scan lineitem.parquet`): whatever
/// is not a word of letters alone, and all that follows a scan.
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

/// Operators that name what they read.
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
    fn operators_stay_and_what_they_work_on_goes() {
        assert_eq!(operators_of("Aggregate Partial, HashJoin Inner"), "Aggregate Partial, HashJoin Inner");
        assert_eq!(operators_of("Repartition, Scan secret"), "Repartition, Scan source-6");
        assert_eq!(operators_of("Scan a b.parquet …"), "Scan source-15");
        assert_eq!(operators_of("/home/me/x.py:12"), "operator-16");
    }

    #[test]
    fn sentences_of_fixed_words_stay_and_names_of_files_go() {
        let redacted = |text: &str| {
            let mut text = text.to_owned();
            sentence("warning", &mut text, &mut |what, text| *text = format!("{what}-#"));
            text
        };
        for fixed in [
            "page cache bypassed (direct I/O)",
            "disk nvme0n1 paced at 62.5 MB/s inside the engine",
            "line 7 is left out: no valid JSON at byte 12 of 1,345",
            "1 line left out: JSON, but no event of Spark",
            "parts between 2 and 10 are missing",
            "core time was not measured: computing is the rest of the run time",
        ] {
            assert_eq!(redacted(fixed), fixed);
        }
        assert_eq!(redacted("/home/me/acme payroll is cut within line 7"), "file-# is cut within line 7");
        assert_eq!(
            redacted("payroll is read up to line 7 only: corrupt input"),
            "file-# is read up to line 7 only: corrupt input"
        );
        for secret in [
            "payroll is cut: /home/me is full",
            "disk //acme/share paced",
            "input of s3://acme",
            "host a.acme.com",
            "host 10.0.0.7",
        ] {
            assert_eq!(redacted(secret), "warning-#");
        }
    }

    #[test]
    fn switches_and_amounts_name_nothing() {
        assert!(["true", "false", "200", "4g", "60s", "0.6", "512mb"].into_iter().all(is_plain));
        let names = ["", "yarn", "s3://b", "acme", "4 goats", "123456789012", "10.0.0.7", "g4"];
        assert!(!names.into_iter().any(is_plain));
    }
}
