//! Delta Lake tables: the newest snapshot, or one version, from the log.
//!
//! Tables of reader version 1 to 3 are read, with the features in [`FEATURES`]; others are refused by name.

mod actions;
mod log;
mod schema;
mod values;
mod vector;

use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::temporal_conversions::timestamp_ms_to_datetime;
use datafusion::common::{Result, ScalarValue};
use object_store::ObjectMeta;
use object_store::path::Path;

use self::actions::{Add, Metadata, Protocol, Snapshot};
use super::column::{Column, Names};
use super::files::{Bounds, DataFile, Deleted};
use super::layout::Mapping;
use super::table::LakeTable;
use super::{Lake, Root, Version};

/// Features of readers that are supported.
const FEATURES: [&str; 5] =
    ["columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"];

/// Newest version of the reader protocol.
const MAX_READER_VERSION: i64 = 3;

/// Opens the table of `root`, whose log has `files`.
///
/// # Errors
/// Returns an error if the log is incomplete or damaged, or the table uses a feature that is not supported.
pub(super) async fn open(root: &Root, files: &[ObjectMeta], version: Version) -> Result<LakeTable> {
    let log = log::Log::of(root, files, version)?;
    let Snapshot { protocol, metadata, adds } = log.replay(root).await?;
    check(root, &protocol, &metadata)?;
    let mode = metadata.configuration.get("delta.columnMapping.mode").map_or("none", |mode| mode);
    let columns = schema::columns(&metadata.schema, mode != "none")
        .map_err(|why| root.error(format!("its schema is not supported: {why}")))?;
    let mapping = match mode {
        "none" | "name" => Mapping::Names,
        "id" => Mapping::Ids(std::collections::HashMap::new()),
        other => {
            return Err(root.unsupported(format!("the column mapping `{other}`"), "rewrite it with Spark"));
        }
    };
    let partitions = metadata
        .partition_columns
        .iter()
        .map(|name| {
            let index = columns.iter().position(|column| column.name == *name);
            index.ok_or_else(|| root.error(format!("its schema lacks the partition column {name}")))
        })
        .collect::<Result<Vec<usize>>>()?;
    let file = |add: Add| data_file(root, &columns, &partitions, add);
    let files = adds.into_iter().map(file).collect::<Result<Vec<_>>>()?;
    Ok(LakeTable::new(Lake::Delta, root.clone(), columns, partitions, mapping, files))
}

/// Checks that the table can be read correctly.
fn check(root: &Root, protocol: &Protocol, metadata: &Metadata) -> Result<()> {
    let newest = protocol.min_reader_version;
    if newest > MAX_READER_VERSION {
        return Err(root.unsupported(format!("reader version {newest} of Delta"), "read it with Spark"));
    }
    let unknown = |feature: &&String| !FEATURES.contains(&feature.as_str());
    if let Some(feature) = protocol.reader_features.iter().find(unknown) {
        let way_out = format!(
            "run ALTER TABLE … DROP FEATURE {feature} in Spark, or write the table anew without this feature"
        );
        return Err(root.unsupported(format!("the Delta feature `{feature}`"), &way_out));
    }
    if metadata.format != "parquet" {
        return Err(
            root.unsupported(format!("files in the format {}", metadata.format), "write them as Parquet")
        );
    }
    Ok(())
}

/// Describes a file of the log.
fn data_file(root: &Root, columns: &[Column], partitions: &[usize], add: Add) -> Result<DataFile> {
    let location = place(root, &add.path)?;
    let size = u64::try_from(add.size)
        .map_err(|_| root.error(format!("its log gives {} a size of {}", add.path, add.size)))?;
    let statistics = values::Statistics::of(&add);
    let rows = statistics.rows();
    let partition = partitions
        .iter()
        .map(|&index| partition_value(root, &columns[index], &add))
        .collect::<Result<Vec<_>>>()?;
    let bounds = columns.iter().enumerate().map(|(index, column)| {
        match partitions.iter().position(|partition| *partition == index) {
            Some(at) => Bounds::constant(&partition[at], rows),
            None => statistics.bounds(column),
        }
    });
    let bounds = bounds.collect();
    let deleted = match &add.deletion_vector {
        Some(vector) => Deleted::Vector(std::sync::Arc::new(vector::parse(root, vector)?)),
        None => Deleted::None,
    };
    let meta = ObjectMeta {
        location,
        // Part of the identity by which footers are cached.
        last_modified: timestamp_ms_to_datetime(add.modification_time).unwrap_or_default().and_utc(),
        size,
        e_tag: None,
        version: None,
    };
    Ok(DataFile { meta, rows, bounds, partition, deleted })
}

/// Returns the place of a path of the log: relative to the table, or a URI; both are percent-encoded.
fn place(root: &Root, path: &str) -> Result<Path> {
    let decoded = |text: &str| {
        Path::from_url_path(text)
            .map_err(|e| root.error(format!("its log names an invalid path, {path}: {e}")))
    };
    if let Some((scheme, rest)) = path.split_once("://") {
        let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
        return root.absolute(&format!("{scheme}://{authority}/{}", decoded(key)?));
    }
    let local = path.strip_prefix("file:").or_else(|| path.starts_with('/').then_some(path));
    match local {
        Some(local) => root.absolute(&format!("/{}", decoded(local.trim_start_matches('/'))?)),
        None => root.below(decoded(path)?.as_ref()),
    }
}

/// Returns the value of a partition column in a file.
fn partition_value(root: &Root, column: &Column, add: &Add) -> Result<ScalarValue> {
    let field = column.field(Names::Now);
    let data_type: &DataType = field.data_type();
    let text = add.partition_values.get(&column.in_files).cloned().flatten();
    values::partition(text.as_deref(), data_type).map_err(|e| {
        root.error(format!(
            "its log has the value `{}` of the partition column {} of type {data_type}: {}",
            text.unwrap_or_default(),
            column.name,
            e.strip_backtrace()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lakes::root::tests::root;

    #[test]
    fn paths_of_the_log_are_decoded() {
        let place = |path: &str| place(&root(), path).unwrap().to_string();
        assert_eq!(place("p=a%20b/x%2520.parquet"), "w/t/p=a b/x%20.parquet");
        assert_eq!(place("s3://bucket/other/x%20y.parquet"), "other/x y.parquet");
        assert!(super::place(&root(), "file:///tmp/x.parquet").is_err());
    }

    #[test]
    fn unknown_features_are_refused_by_name() {
        let check = |version: i64, features: &[&str]| {
            let reader_features = features.iter().map(|f| f.to_string()).collect();
            let metadata = Metadata { format: "parquet".to_string(), ..Metadata::default() };
            check(&root(), &Protocol { min_reader_version: version, reader_features }, &metadata)
        };
        assert!(check(1, &[]).is_ok() && check(3, &FEATURES).is_ok());
        let error = check(3, &["deletionVectors", "variantType"]).unwrap_err().to_string();
        assert!(error.contains("s3://bucket/w/t") && error.contains("`variantType`"), "{error}");
        assert!(check(4, &[]).is_err());
    }
}
