//! The actions of a Delta log, and their effect on the files of a table.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

/// One line of a commit, or one row of a checkpoint. Other actions have no effect on reading.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Action {
    add: Option<Add>,
    remove: Option<Remove>,
    meta_data: Option<MetadataAction>,
    protocol: Option<ProtocolAction>,
    pub sidecar: Option<Sidecar>,
}

/// A file that belongs to the table.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Add {
    pub path: String,
    /// Values by name of the column in files; NULL values may be absent.
    pub partition_values: HashMap<String, Option<String>>,
    pub size: i64,
    /// Milliseconds since 1970.
    pub modification_time: i64,
    /// Statistics as JSON.
    pub stats: Option<String>,
    /// Statistics in a checkpoint without JSON.
    #[serde(rename = "stats_parsed")]
    pub stats_parsed: Option<Value>,
    pub deletion_vector: Option<VectorAction>,
}

/// A file that no longer belongs to the table.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Remove {
    path: String,
    deletion_vector: Option<VectorAction>,
}

/// The place of a deletion vector.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct VectorAction {
    pub storage_type: String,
    pub path_or_inline_dv: String,
    pub offset: Option<i64>,
    pub size_in_bytes: i64,
    pub cardinality: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MetadataAction {
    format: FormatAction,
    schema_string: String,
    partition_columns: Vec<String>,
    configuration: HashMap<String, Option<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FormatAction {
    provider: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ProtocolAction {
    min_reader_version: i64,
    reader_features: Option<Vec<String>>,
}

/// A file with actions of a checkpoint.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Sidecar {
    pub path: String,
}

/// The version and the features that a reader needs.
#[derive(Debug, Clone, Default)]
pub(super) struct Protocol {
    pub min_reader_version: i64,
    pub reader_features: Vec<String>,
}

/// Schema, partitioning and settings of a table.
#[derive(Debug, Clone, Default)]
pub(super) struct Metadata {
    pub format: String,
    /// The schema as JSON.
    pub schema: String,
    pub partition_columns: Vec<String>,
    pub configuration: HashMap<String, String>,
}

/// A table at one version.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub protocol: Protocol,
    pub metadata: Metadata,
    /// Files in the order in which they were added.
    pub adds: Vec<Add>,
}

/// A file with one deletion vector.
type Key = (String, Option<(String, Option<i64>)>);

fn key(path: &str, vector: Option<&VectorAction>) -> Key {
    let vector = vector.map(|v| (format!("{}{}", v.storage_type, v.path_or_inline_dv), v.offset));
    (path.to_string(), vector)
}

/// Applies actions in the order of their versions.
#[derive(Debug, Default)]
pub(super) struct Replay {
    protocol: Option<Protocol>,
    metadata: Option<Metadata>,
    adds: Vec<Option<Add>>,
    places: HashMap<Key, usize>,
}

impl Replay {
    pub(super) fn apply(&mut self, action: Action) {
        if let Some(remove) = action.remove
            && let Some(at) = self.places.remove(&key(&remove.path, remove.deletion_vector.as_ref()))
        {
            self.adds[at] = None;
        }
        if let Some(add) = action.add {
            let key = key(&add.path, add.deletion_vector.as_ref());
            if let Some(at) = self.places.insert(key, self.adds.len()) {
                self.adds[at] = None;
            }
            self.adds.push(Some(add));
        }
        if let Some(protocol) = action.protocol {
            self.protocol = Some(Protocol {
                min_reader_version: protocol.min_reader_version,
                reader_features: protocol.reader_features.unwrap_or_default(),
            });
        }
        if let Some(metadata) = action.meta_data {
            let setting = |(name, value): (String, Option<String>)| Some((name, value?));
            self.metadata = Some(Metadata {
                format: metadata.format.provider,
                schema: metadata.schema_string,
                partition_columns: metadata.partition_columns,
                configuration: metadata.configuration.into_iter().filter_map(setting).collect(),
            });
        }
    }

    /// Returns the table, or the name of the action that the log lacks (protocol or metadata).
    pub(super) fn finish(self) -> Result<Snapshot, &'static str> {
        Ok(Snapshot {
            protocol: self.protocol.ok_or("protocol")?,
            metadata: self.metadata.ok_or("metadata")?,
            adds: self.adds.into_iter().flatten().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replayed(lines: &[&str]) -> Result<Vec<String>, &'static str> {
        let mut replay = Replay::default();
        lines.iter().for_each(|line| replay.apply(serde_json::from_str(line).unwrap()));
        Ok(replay.finish()?.adds.into_iter().map(|add| add.path).collect())
    }

    #[test]
    fn removed_files_and_replaced_vectors_do_not_count() {
        let head = [
            r#"{"commitInfo":{"operation":"WRITE"}}"#,
            r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}"#,
            r#"{"metaData":{"id":"x","format":{"provider":"parquet","options":{}},"schemaString":"{}","partitionColumns":[],"configuration":{}}}"#,
            r#"{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":0,"dataChange":true}}"#,
            r#"{"add":{"path":"b","partitionValues":{"p":null},"size":1,"modificationTime":0,"dataChange":true}}"#,
        ];
        assert_eq!(replayed(&head).unwrap(), ["a", "b"]);
        let then = |more: &[&str]| replayed(&[&head[..], more].concat()).unwrap();
        assert_eq!(then(&[r#"{"remove":{"path":"a"}}"#]), ["b"]);
        let vector = r#""deletionVector":{"storageType":"u","pathOrInlineDv":"x","offset":1,"sizeInBytes":1,"cardinality":1}"#;
        let add = format!(r#"{{"add":{{"path":"a","partitionValues":{{}},"size":1,{vector}}}}}"#);
        let removed = format!(r#"{{"remove":{{"path":"a",{vector}}}}}"#);
        assert_eq!(then(&[r#"{"remove":{"path":"a"}}"#, &add]), ["b", "a"]);
        // The file without a vector is another one, in whatever order a commit has both.
        assert_eq!(then(&[&add, r#"{"remove":{"path":"a"}}"#]), ["b", "a"]);
        assert_eq!(then(&[r#"{"remove":{"path":"a"}}"#, &add, &removed]), ["b"]);
        assert_eq!(replayed(&head[2..]).unwrap_err(), "protocol");
    }
}
