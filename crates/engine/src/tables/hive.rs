//! Columns from the folders of files: `year=2024/month=1` gives `year` and `month`.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{DataFusionError, Result, ScalarValue};

use crate::tables::options::FileOptions;
use crate::tables::text::columns;
use crate::tables::text::temporal::TimeFormat;

/// The folder of rows whose key is NULL.
const NULL_FOLDER: &str = "__HIVE_DEFAULT_PARTITION__";

/// The key columns of a table.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keys {
    pub fields: Vec<FieldRef>,
}

/// Returns the keys in a path, with their values.
fn pairs(path: &str) -> Vec<(&str, Option<String>)> {
    let folders = path.rsplit_once('/').map_or("", |(folders, _)| folders);
    let pair = |folder: &'_ str| -> Option<(usize, Option<String>)> {
        let at = folder.find('=').filter(|at| *at > 0)?;
        let value = &folder[at + 1..];
        Some((at, (value != NULL_FOLDER).then(|| decoded(value))))
    };
    folders.split('/').filter_map(|folder| pair(folder).map(|(at, value)| (&folder[..at], value))).collect()
}

/// Replaces `%20` and the like by their characters.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).filter(|_| *first == b'%');
        let code = code.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match code {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_string())
}

impl Keys {
    /// Finds the keys of files by their paths, and the types of their values.
    ///
    /// # Errors
    /// Returns an error if files have different keys but the options ask for them, or a type is given for another name.
    pub(crate) fn find(paths: &[String], options: &FileOptions) -> Result<Self> {
        let all: Vec<_> = paths.iter().map(|path| pairs(path)).collect();
        let names = |pairs: &[(&str, Option<String>)]| {
            pairs.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>()
        };
        let first = all.first().map(|pairs| names(pairs)).unwrap_or_default();
        let odd = all.iter().position(|pairs| names(pairs) != first);
        let wanted = options.hive_partitioning.unwrap_or(odd.is_none());
        if !wanted {
            return unknown_types(&[], options).map(|()| Self::default());
        }
        if let Some(odd) = odd {
            return Err(DataFusionError::Execution(format!(
                "cannot read {}: its folders have other keys than those of {}; give files with the same keys, or \
                 hive_partitioning = false",
                paths[odd], paths[0]
            )));
        }
        unknown_types(&first, options)?;
        let field = |(index, name): (usize, &String)| {
            let given = options.hive_types.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
            let data_type = match given {
                Some((_, data_type)) => data_type.clone(),
                None if options.hive_autocast => {
                    inferred(all.iter().filter_map(|pairs| pairs.get(index)?.1.as_deref()))
                }
                None => DataType::Utf8View,
            };
            Arc::new(Field::new(name, data_type, true))
        };
        Ok(Self { fields: first.iter().enumerate().map(field).collect() })
    }

    /// Returns the values of the keys of a file.
    ///
    /// # Errors
    /// Returns an error if a key is missing or does not fit its type.
    pub(crate) fn values(&self, path: &str) -> Result<Vec<ScalarValue>> {
        let pairs = pairs(path);
        let value = |field: &FieldRef| {
            let (_, value) = pairs.iter().find(|(name, _)| name == field.name()).ok_or_else(|| {
                DataFusionError::Execution(format!(
                    "cannot read {path}: its folders have no key {}",
                    field.name()
                ))
            })?;
            let Some(value) = value else { return ScalarValue::try_from(field.data_type()) };
            read(value, field.data_type()).ok_or_else(|| {
                DataFusionError::Execution(format!(
                    "cannot read {path}: the key {} has type {}, which `{value}` does not fit; use hive_types = \
                     {{'{}': 'VARCHAR'}}",
                    field.name(),
                    crate::types::names::name(field.data_type()),
                    field.name()
                ))
            })
        };
        self.fields.iter().map(value).collect()
    }
}

fn unknown_types(keys: &[String], options: &FileOptions) -> Result<()> {
    let unknown =
        options.hive_types.iter().find(|(name, _)| !keys.iter().any(|key| key.eq_ignore_ascii_case(name)));
    match unknown {
        None => Ok(()),
        Some((name, _)) => Err(DataFusionError::Plan(format!(
            "cannot find the key {name} of hive_types; {}",
            if keys.is_empty() {
                "the files have no folders such as year=2024".to_string()
            } else {
                crate::logical::nearest::hint(name, keys.to_vec(), "the keys are")
            }
        ))),
    }
}

/// Returns the type of all values: BIGINT or DATE, otherwise VARCHAR.
fn inferred<'a>(values: impl Iterator<Item = &'a str> + Clone) -> DataType {
    let mut all = values.clone().peekable();
    if all.peek().is_none() {
        return DataType::Utf8View;
    }
    // `01` is a text, since a number would lose its zero.
    let is_number = |text: &str| text.parse::<i64>().is_ok_and(|number| number.to_string() == text);
    if values.clone().all(is_number) {
        return DataType::Int64;
    }
    let is_date = |text: &str| {
        text.len() == 10 && TimeFormat::Iso.read(text.as_bytes()).is_some_and(|stamp| !stamp.has_time)
    };
    if values.clone().all(is_date) { DataType::Date32 } else { DataType::Utf8View }
}

fn read(value: &str, data_type: &DataType) -> Option<ScalarValue> {
    let mut column = columns::column(data_type, &columns::ValueFormat::default(), 1)?;
    if !column.append(value.as_bytes()) {
        return None;
    }
    ScalarValue::try_from_array(&column.finish(), 0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(paths: &[&str], options: &FileOptions) -> Result<Vec<String>> {
        let paths: Vec<String> = paths.iter().map(|path| path.to_string()).collect();
        let found = Keys::find(&paths, options)?;
        let fields = found.fields.iter();
        Ok(fields.map(|f| format!("{} {}", f.name(), crate::types::names::name(f.data_type()))).collect())
    }

    #[test]
    fn keys_have_the_type_of_their_values() {
        let default = FileOptions::default();
        let typed = |values: &[&str]| {
            let paths: Vec<String> = values.iter().map(|value| format!("t/k={value}/a.csv")).collect();
            keys(&paths.iter().map(String::as_str).collect::<Vec<_>>(), &default).unwrap().join(", ")
        };
        assert_eq!(typed(&["1", "12", NULL_FOLDER]), "k BIGINT");
        assert_eq!(typed(&["01", "12"]), "k VARCHAR");
        assert_eq!(typed(&["2024-01-31"]), "k DATE");
        assert_eq!(typed(&[NULL_FOLDER]), "k VARCHAR");
        assert_eq!(keys(&["t/y=1/a", "t/y=1/m=2/a"], &default).unwrap(), Vec::<String>::new());
        let forced = FileOptions { hive_partitioning: Some(true), ..FileOptions::default() };
        assert!(keys(&["t/y=1/a", "t/y=1/m=2/a"], &forced).unwrap_err().to_string().contains("t/y=1/m=2/a"));
        let typed = FileOptions {
            hive_types: vec![("Yar".to_string(), DataType::Utf8View)],
            ..FileOptions::default()
        };
        assert!(keys(&["t/year=1/a"], &typed).unwrap_err().to_string().contains("Yar"));
    }

    #[test]
    fn values_of_keys_are_decoded() {
        let paths = ["t/k=a%20b/x=1/f".to_string(), format!("t/k={NULL_FOLDER}/x=2/f")];
        let keys = Keys::find(&paths, &FileOptions::default()).unwrap();
        assert_eq!(
            keys.values(&paths[0]).unwrap(),
            [ScalarValue::Utf8View(Some("a b".to_string())), ScalarValue::Int64(Some(1))]
        );
        assert_eq!(keys.values(&paths[1]).unwrap()[0], ScalarValue::Utf8View(None));
    }
}
