//! Secrets in an application's settings, by the application's own rule.
//!
//! Spark redacts what it logs by `spark.redaction.regex`, but versions before
//! 2.2 did not, and logs are copied with a rule that someone tightened later. So
//! the rule of the log is applied once more, to names and to values.

use std::collections::BTreeMap;

use regex::Regex;

const RULE: &str = "spark.redaction.regex";
/// Spark's own default.
const DEFAULT: &str = "(?i)secret|password|token|access[.]?key";
/// What Spark writes instead of a secret.
const REDACTED: &str = "*********(redacted)";

/// What is a secret.
#[derive(Debug)]
pub struct Redaction {
    rules: Vec<Regex>,
    /// Why the log's own rule is not used, if it is not.
    pub fell_back: Option<String>,
}

impl Redaction {
    /// As the settings say; Spark's default always holds too.
    pub fn of(settings: &BTreeMap<String, String>) -> Redaction {
        let mut redaction = Redaction { rules: Regex::new(DEFAULT).into_iter().collect(), fell_back: None };
        match settings.get(RULE).filter(|rule| *rule != REDACTED).map(|rule| (rule, Regex::new(rule))) {
            None => {}
            Some((_, Ok(rule))) => redaction.rules.push(rule),
            Some((rule, Err(_))) => {
                let why = format!(
                    "{RULE} ({rule}) is written in a way that only Java knows; Spark's default is used"
                );
                redaction.fell_back = Some(why);
            }
        }
        redaction
    }

    /// A setting without its secret.
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
    fn secrets_go_by_name_and_by_value() {
        assert!(redacted(None, "spark.hadoop.fs.s3a.access.key", "AKIA"));
        assert!(redacted(None, "spark.executor.extraJavaOptions", "-Dpassword=x"));
        assert!(!redacted(None, "spark.executor.memory", "4g"));
        assert!(redacted(Some("(?i)passphrase"), "spark.my.Passphrase", "x"));
        assert!(redacted(Some("(?i)passphrase"), "spark.my.token", "x"));
        assert!(!redacted(None, RULE, DEFAULT));
    }

    #[test]
    fn a_rule_that_cannot_be_read_is_said() {
        let settings = [(RULE.to_owned(), "(?<!a)key".to_owned())].into();
        assert!(Redaction::of(&settings).fell_back.is_some_and(|why| why.contains("(?<!a)key")));
    }
}
