//! The manifests of a snapshot: its data files and its delete files.

use std::collections::HashMap;

use datafusion::common::Result;
use futures::FutureExt;

use super::avro::{self, Value};
use super::metadata::Snapshot;
use super::table_path;
use crate::lakes::{Root, all};

/// Status of an entry whose file was removed.
const REMOVED: i64 = 2;

/// The content of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Data,
    PositionDeletes,
    EqualityDeletes,
}

/// A file of a snapshot.
#[derive(Debug)]
pub(super) struct Entry {
    pub content: Content,
    /// The path as the table writes it.
    pub uri: String,
    pub format: String,
    pub spec: i64,
    /// Values by field of the partitioning.
    pub partition: Vec<Value>,
    /// Order of the snapshots that added files: deletes apply to files that are not newer.
    pub sequence: i64,
    pub rows: i64,
    pub bytes: i64,
    pub lower: HashMap<i32, Vec<u8>>,
    pub upper: HashMap<i32, Vec<u8>>,
    pub nulls: HashMap<i32, i64>,
    pub nans: HashMap<i32, i64>,
}

/// A manifest of the list.
struct Manifest {
    uri: String,
    spec: i64,
    sequence: i64,
}

/// Reads the files of a snapshot.
///
/// # Errors
/// Returns an error if a manifest cannot be read or is damaged.
pub(super) async fn entries(root: &Root, location: &str, snapshot: &Snapshot) -> Result<Vec<Entry>> {
    let manifests = manifests(root, location, snapshot).await?;
    let mut reads = Vec::new();
    for manifest in &manifests {
        reads.push(entries_of(root, location, manifest).boxed());
    }
    Ok(all(reads).await?.into_iter().flatten().collect())
}

async fn records(root: &Root, location: &str, uri: &str) -> Result<Vec<Value>> {
    let place = table_path(root, location, uri)?;
    let bytes = root.read(&place).await?;
    avro::records(&bytes).map_err(|why| {
        root.error(format!("{} is damaged ({why}); restore it from a copy", root.name(&place)))
    })
}

/// Reads the list of manifests.
async fn manifests(root: &Root, location: &str, snapshot: &Snapshot) -> Result<Vec<Manifest>> {
    let Some(list) = &snapshot.manifest_list else {
        let manifests = snapshot.manifests.iter().flatten();
        return Ok(manifests.map(|uri| Manifest { uri: uri.clone(), spec: 0, sequence: 0 }).collect());
    };
    let manifest = |record: &Value| {
        Some(Manifest {
            uri: record.text("manifest_path")?.to_string(),
            spec: record.long("partition_spec_id").unwrap_or(0),
            // Version 1 has none.
            sequence: record.long("sequence_number").unwrap_or(0),
        })
    };
    let records = records(root, location, list).await?;
    let manifests = records.iter().map(manifest).collect::<Option<_>>();
    manifests
        .ok_or_else(|| root.error(format!("{list} lacks the path of a manifest; restore it from a copy")))
}

async fn entries_of(root: &Root, location: &str, manifest: &Manifest) -> Result<Vec<Entry>> {
    let records = records(root, location, &manifest.uri).await?;
    let kept = records.iter().filter(|record| record.long("status") != Some(REMOVED));
    let entries = kept.map(|record| entry(record, manifest)).collect::<Option<_>>();
    entries
        .ok_or_else(|| root.error(format!("{} has an invalid entry; restore it from a copy", manifest.uri)))
}

fn entry(record: &Value, manifest: &Manifest) -> Option<Entry> {
    let file = record.get("data_file")?;
    let content = match file.long("content").unwrap_or(0) {
        0 => Content::Data,
        1 => Content::PositionDeletes,
        2 => Content::EqualityDeletes,
        _ => return None,
    };
    let partition = match file.get("partition")? {
        Value::Record(fields) => fields.iter().map(|(_, value)| value.clone()).collect(),
        _ => Vec::new(),
    };
    let bytes_of = |value: &Value| match value {
        Value::Bytes(bytes) => Some(bytes.clone()),
        _ => None,
    };
    let long_of = |value: &Value| match value {
        Value::Long(number) => Some(*number),
        _ => None,
    };
    Some(Entry {
        content,
        uri: file.text("file_path")?.to_string(),
        format: file.text("file_format")?.to_string(),
        spec: manifest.spec,
        partition,
        // A file that its manifest's snapshot added has none of its own.
        sequence: record.long("sequence_number").unwrap_or(manifest.sequence),
        rows: file.long("record_count")?,
        bytes: file.long("file_size_in_bytes")?,
        lower: by_id(file, "lower_bounds", bytes_of),
        upper: by_id(file, "upper_bounds", bytes_of),
        nulls: by_id(file, "null_value_counts", long_of),
        nans: by_id(file, "nan_value_counts", long_of),
    })
}

/// Reads a map with field ids as keys, which Avro writes as an array of pairs.
fn by_id<T>(file: &Value, name: &str, value: impl Fn(&Value) -> Option<T>) -> HashMap<i32, T> {
    let pair = |pair: &Value| Some((i32::try_from(pair.long("key")?).ok()?, value(pair.get("value")?)?));
    file.items(name).iter().filter_map(pair).collect()
}
