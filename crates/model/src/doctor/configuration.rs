//! The storage settings of a Spark configuration: `spark-defaults.conf`, or the properties of an
//! event log.

use std::collections::BTreeMap;
use std::fmt;

/// Spark's properties by name.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct SparkConfiguration(BTreeMap<String, String>);

/// Shows names only, since values may be credentials.
impl fmt::Debug for SparkConfiguration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// An error for a line that is not a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAProperty {
    /// Line number, from 1.
    pub line: usize,
}

impl fmt::Display for NotAProperty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "line {}: property without a value; write `spark.NAME VALUE` or `spark.NAME=VALUE`",
            self.line
        )
    }
}

impl std::error::Error for NotAProperty {}

impl SparkConfiguration {
    /// Creates a configuration from properties.
    pub fn new(properties: impl IntoIterator<Item = (String, String)>) -> Self {
        SparkConfiguration(properties.into_iter().collect())
    }

    /// Parses the text of a `spark-defaults.conf`: one property per line, with whitespace, `=` or `:`
    /// before its value. The last value of a property counts.
    ///
    /// # Errors
    /// Returns an error for a property without a value.
    pub fn parse(text: &str) -> Result<Self, NotAProperty> {
        let mut properties = BTreeMap::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', '!']) {
                continue;
            }
            let end = line.find(|c: char| c.is_whitespace() || c == '=' || c == ':');
            let (name, rest) = line.split_at(end.ok_or(NotAProperty { line: number + 1 })?);
            let rest = rest.trim_start();
            let value = rest.strip_prefix(['=', ':']).unwrap_or(rest).trim();
            if name.is_empty() || value.is_empty() {
                return Err(NotAProperty { line: number + 1 });
            }
            properties.insert(name.to_string(), value.to_string());
        }
        Ok(SparkConfiguration(properties))
    }

    /// Returns true if the text looks like a Spark configuration: its first property is Spark's.
    pub fn recognizes(text: &str) -> bool {
        let mut lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with(['#', '!']));
        lines.next().is_some_and(|line| line.starts_with("spark."))
    }

    /// Returns a property of Spark, or of Hadoop with the prefix `spark.hadoop.`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns a property of Hadoop.
    pub fn hadoop(&self, name: &str) -> Option<&str> {
        self.get(&format!("spark.hadoop.{name}"))
    }

    /// Returns the schemes of the configured stores: those of the default file system and the warehouse,
    /// and those with their own settings.
    pub fn schemes(&self) -> Vec<&str> {
        let named = ["spark.hadoop.fs.defaultFS", "spark.sql.warehouse.dir"];
        let urls =
            named.iter().filter_map(|name| self.get(name)?.split_once("://")).map(|(scheme, _)| scheme);
        let settings = ["s3a", "swift", "gs", "abfs"].into_iter().filter(|scheme| {
            let of_scheme = format!("spark.hadoop.fs.{scheme}.");
            self.0.keys().any(|name| name.starts_with(&of_scheme))
        });
        let mut schemes: Vec<&str> = urls.chain(settings).collect();
        schemes.sort_unstable();
        schemes.dedup();
        schemes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_parse_as_in_spark() {
        let text = "# a comment\nspark.a  1\nspark.b=2\n\n spark.c : s3a://x/y\nspark.a 3\n";
        let read = SparkConfiguration::parse(text).unwrap();
        assert_eq!(
            (read.get("spark.a"), read.get("spark.b"), read.get("spark.c")),
            (Some("3"), Some("2"), Some("s3a://x/y"))
        );
        assert!(SparkConfiguration::recognizes(text) && !SparkConfiguration::recognizes("name = \"x\""));
        let error = SparkConfiguration::parse("spark.a 1\nspark.b").unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("write"), "{error}");
    }

    #[test]
    fn schemes_come_from_urls_and_settings_and_debug_hides_values() {
        let text = "spark.hadoop.fs.defaultFS hdfs://n:9000\nspark.hadoop.fs.s3a.secret.key hunter2\n";
        let read = SparkConfiguration::parse(text).unwrap();
        assert_eq!(read.schemes(), ["hdfs", "s3a"]);
        assert!(!format!("{read:?}").contains("hunter2"));
    }
}
