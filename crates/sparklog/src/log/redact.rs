//! Redaction of secrets in an application's settings.
//!
//! Spark redacts its logs by `spark.redaction.regex` since version 2.2 only. The rule of the log is therefore
//! applied again, to both names and values.

use std::collections::BTreeMap;

use regex::Regex;

const RULE: &str = "spark.redaction.regex";
/// Spark's default rule.
const DEFAULT: &str = "(?i)secret|password|token|access[.]?key";
/// Spark's replacement for a secret.
const REDACTED: &str = "*********(redacted)";

/// The rules that identify secrets.
#[derive(Debug)]
pub struct Redaction {
    rules: Vec<Regex>,
    /// The reason why the log's own rule is not used, if so.
    pub fell_back: Option<String>,
}

impl Redaction {
    /// Returns the rules of an application's settings. Spark's default rule always applies as well.
    pub fn of(settings: &BTreeMap<String, String>) -> Redaction {
        let mut redaction = Redaction { rules: Regex::new(DEFAULT).into_iter().collect(), fell_back: None };
        match settings.get(RULE).filter(|rule| *rule != REDACTED).map(|rule| (rule, Regex::new(rule))) {
            None => {}
            Some((_, Ok(rule))) => redaction.rules.push(rule),
            Some((rule, Err(_))) => {
                let why = format!(
                    "cannot apply {RULE} ({rule}): it uses syntax specific to Java; Spark's default is used"
                );
                redaction.fell_back = Some(why);
            }
        }
        redaction
    }

    /// Returns a setting with its value redacted if it is a secret.
    pub fn apply(&self, key: String, value: String) -> (String, String) {
        let secret =
            key != RULE && self.rules.iter().any(|rule| rule.is_match(&key) || rule.is_match(&value));
        let value = if secret { REDACTED.to_owned() } else { value };
        (key, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(rule: Option<&str>, key: &str, value: &str) -> bool {
        let rule = rule.map(|rule| (RULE.to_owned(), rule.to_owned()));
        let redaction = Redaction::of(&rule.into_iter().collect());
        redaction.apply(key.into(), value.into()).1 == REDACTED
    }

    #[test]
    fn secrets_are_found_by_name_and_by_value() {
        assert!(redacted(None, "spark.hadoop.fs.s3a.access.key", "AKIA"));
        assert!(redacted(None, "spark.executor.extraJavaOptions", "-Dpassword=x"));
        assert!(!redacted(None, "spark.executor.memory", "4g"));
        assert!(redacted(Some("(?i)passphrase"), "spark.my.Passphrase", "x"));
        assert!(redacted(Some("(?i)passphrase"), "spark.my.token", "x"));
        assert!(!redacted(None, RULE, DEFAULT));
    }

    #[test]
    fn unsupported_rule_is_reported() {
        let settings = [(RULE.to_owned(), "(?<!a)key".to_owned())].into();
        assert!(Redaction::of(&settings).fell_back.is_some_and(|why| why.contains("(?<!a)key")));
    }
}
