//! Iceberg tables of version 1 and 2: the current snapshot, or one by its id, from `metadata.json` and manifests.
//!
//! A folder's newest metadata file is that of `version-hint.text`, or the one with the highest version. Paths in the
//! metadata are absolute; those below the table's `location` are read relative to its folder, so that a table may be
//! moved. Version 3 is refused.

mod avro;
mod manifests;
mod metadata;
mod values;

use std::io::Read;
use std::sync::Arc;

use datafusion::common::{Result, ScalarValue};
use datafusion::datasource::listing::ListingTableUrl;
use object_store::ObjectMeta;
use object_store::path::Path;

use self::manifests::{Content, Entry};
use self::metadata::Metadata;
use super::column::{Column, Kind};
use super::files::{Bounds, DataFile, Deleted};
use super::layout::Mapping;
use super::table::LakeTable;
use super::{ICEBERG_METADATA, Lake, Root, Version};

/// Newest version of the format that is read.
const MAX_VERSION: i64 = 2;
/// Field id of the data file in position deletes.
const DELETED_FILE: i32 = 2_147_483_546;

/// Returns the folder of the table at `url`, and its metadata file if `url` names that.
pub(super) fn places(url: &ListingTableUrl) -> (Path, Option<Path>) {
    if url.is_collection() {
        return (url.prefix().clone(), None);
    }
    let parts: Vec<_> = url.prefix().parts().collect();
    let folder = &parts[..parts.len().saturating_sub(1)];
    let folder = match folder.split_last() {
        Some((last, table)) if last.as_ref() == ICEBERG_METADATA => table,
        _ => folder,
    };
    (Path::from_iter(folder.to_vec()), Some(url.prefix().clone()))
}

/// Opens the table of `root` by a metadata file, or by the newest of `files`.
///
/// # Errors
/// Returns an error if the metadata is incomplete or damaged, or the table uses a feature that is not supported.
pub(super) async fn open(
    root: &Root,
    file: Option<&Path>,
    files: &[ObjectMeta],
    version: Version,
) -> Result<LakeTable> {
    let file = match file {
        Some(file) => file.clone(),
        None => newest(root, files).await?,
    };
    let metadata = read(root, &file).await?;
    if !(1..=MAX_VERSION).contains(&metadata.format_version) {
        let feature = format!("version {} of the Iceberg format", metadata.format_version);
        return Err(root.unsupported(feature, "read it with Spark, or write a copy in version 2"));
    }
    let invalid = |why: String| root.error(format!("{}: {why}", root.name(&file)));
    let id = match version {
        Version::Newest => None,
        Version::Number(id) => Some(id),
    };
    let snapshot = metadata.snapshot(id).map_err(invalid)?;
    let columns = metadata.columns(snapshot.filter(|_| id.is_some())).map_err(invalid)?;
    let entries = match snapshot {
        Some(snapshot) => manifests::entries(root, &metadata.location, snapshot).await?,
        None => Vec::new(),
    };
    let files = data_files(root, &metadata, &columns, &entries)?;
    let mapping = Mapping::Ids(metadata.names());
    Ok(LakeTable::new(Lake::Iceberg, root.clone(), columns, Vec::new(), mapping, files))
}

/// Finds the newest metadata file of a folder.
async fn newest(root: &Root, files: &[ObjectMeta]) -> Result<Path> {
    let folder = root.below(ICEBERG_METADATA)?;
    let mut found: Vec<(&str, &Path)> = Vec::new();
    let mut hint = None;
    for file in files {
        let Some(mut below) = file.location.prefix_match(&folder) else { continue };
        let (Some(_), None) = (below.next(), below.next()) else { continue };
        let name = file.location.filename().unwrap_or_default();
        if super::is_iceberg_metadata(name) {
            found.push((name, &file.location));
        } else if name == "version-hint.text" {
            hint = Some(&file.location);
        }
    }
    if let Some(hint) = hint {
        let text = String::from_utf8_lossy(&root.read(hint).await?).trim().to_string();
        let names = |name: &str| {
            let stem = name.split(".metadata.json").next().unwrap_or(name);
            name == text || stem == text || stem.strip_prefix('v') == Some(&text)
        };
        let hinted =
            found.iter().find(|(name, _)| names(name.strip_suffix(".gz.metadata.json").unwrap_or(name)));
        return hinted.map(|(_, file)| (*file).clone()).ok_or_else(|| {
            root.error(format!("{} names version {text}, whose metadata is missing", root.name(hint)))
        });
    }
    let newest = found.iter().filter_map(|(name, _)| number(name)).max();
    let newest: Vec<_> =
        found.iter().filter(|(name, _)| newest.is_some() && number(name) == newest).collect();
    match newest[..] {
        [(_, file)] => Ok((*file).clone()),
        [(_, one), (_, other), ..] => Err(root.error(format!(
            "cannot tell which metadata is the newest, {} or {}; read FROM one of them",
            root.name(one),
            root.name(other)
        ))),
        [] => Err(root.error("the names of its metadata files have no version; read FROM one of them")),
    }
}

/// Returns the version in a name such as `v3.metadata.json` or `00003-UUID.metadata.json`.
fn number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix('v').unwrap_or(name);
    digits.split(['-', '.']).next()?.parse().ok()
}

/// Reads a metadata file, which may be compressed.
async fn read(root: &Root, file: &Path) -> Result<Metadata> {
    let bytes = root.read(file).await?;
    let damaged =
        |why: String| root.error(format!("{} is damaged ({why}); restore it from a copy", root.name(file)));
    let json = if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut json = Vec::new();
        let mut decoder = flate2::read::MultiGzDecoder::new(&bytes[..]);
        decoder.read_to_end(&mut json).map_err(|e| damaged(e.to_string()))?;
        json
    } else {
        bytes.to_vec()
    };
    serde_json::from_slice(&json).map_err(|e| damaged(e.to_string()))
}

/// Returns the place of a path in the metadata of a table, which was written for the folder `location`.
fn table_path(root: &Root, location: &str, uri: &str) -> Result<Path> {
    let location = location.trim_end_matches('/');
    let below = uri.strip_prefix(location).and_then(|rest| rest.strip_prefix('/'));
    match below.filter(|_| !location.is_empty()) {
        Some(relative) => root.below(relative),
        None => root.absolute(uri),
    }
}

/// Describes the data files, with the deletes that apply to each.
fn data_files(
    root: &Root,
    metadata: &Metadata,
    columns: &[Column],
    entries: &[Entry],
) -> Result<Vec<DataFile>> {
    for entry in entries {
        if !entry.format.eq_ignore_ascii_case("parquet") {
            return Err(
                root.unsupported(format!("files in the format {}", entry.format), "write it as Parquet")
            );
        }
    }
    let deletes: Vec<&Entry> = entries.iter().filter(|entry| entry.content != Content::Data).collect();
    let mut delete_files = Vec::new();
    for delete in &deletes {
        delete_files.push(Arc::new(meta(root, metadata, delete)?));
    }
    let data = entries.iter().filter(|entry| entry.content == Content::Data);
    data.map(|file| {
        let mut positions = Vec::new();
        for (delete, place) in deletes.iter().zip(&delete_files) {
            if !applies(metadata, delete, file) {
                continue;
            }
            if delete.content == Content::EqualityDeletes {
                let way_out = "rewrite its data files (Spark: CALL system.rewrite_data_files)";
                return Err(root.unsupported("equality deletes", way_out));
            }
            positions.push(Arc::clone(place));
        }
        let deleted = match positions.is_empty() {
            true => Deleted::None,
            false => Deleted::Positions { uri: file.uri.clone(), files: positions },
        };
        let rows = u64::try_from(file.rows).ok();
        let bounds = bounds(metadata, columns, file, rows);
        Ok(DataFile { meta: meta(root, metadata, file)?, rows, bounds, partition: Vec::new(), deleted })
    })
    .collect()
}

fn meta(root: &Root, metadata: &Metadata, entry: &Entry) -> Result<ObjectMeta> {
    let size = u64::try_from(entry.bytes)
        .map_err(|_| root.error(format!("its manifest gives {} a size of {}", entry.uri, entry.bytes)))?;
    Ok(ObjectMeta {
        location: table_path(root, &metadata.location, &entry.uri)?,
        // Files never change.
        last_modified: Default::default(),
        size,
        e_tag: None,
        version: None,
    })
}

/// Returns true if rows of `delete` may be rows of `file`.
fn applies(metadata: &Metadata, delete: &Entry, file: &Entry) -> bool {
    let same_partition = delete.spec == file.spec && delete.partition == file.partition;
    match delete.content {
        Content::Data => false,
        Content::EqualityDeletes => {
            let is_global = metadata.spec(delete.spec).is_none_or(<[_]>::is_empty);
            file.sequence < delete.sequence && (same_partition || is_global)
        }
        Content::PositionDeletes => {
            let (lower, upper) = (delete.lower.get(&DELETED_FILE), delete.upper.get(&DELETED_FILE));
            let name = file.uri.as_bytes();
            // Bounds may be cut, and only an upper one is rounded up.
            let within = lower.is_none_or(|lower| lower.as_slice() <= name)
                && upper.is_none_or(|upper| name <= upper.as_slice() || name.starts_with(upper));
            file.sequence <= delete.sequence && same_partition && within
        }
    }
}

/// Returns the bounds of the columns in a file, from its statistics and its partition.
fn bounds(metadata: &Metadata, columns: &[Column], file: &Entry, rows: Option<u64>) -> Vec<Bounds> {
    let spec = metadata.spec(file.spec).unwrap_or_default();
    let bounds = |column: &Column| {
        let (Kind::Primitive(data_type), Some(id)) = (&column.kind, column.id) else {
            return Bounds::default();
        };
        let value = |values: &std::collections::HashMap<i32, Vec<u8>>| -> Option<ScalarValue> {
            values::single(values.get(&id)?, data_type)
        };
        // NaN is larger than a maximum, which does not count it.
        let has_nan = data_type.is_floating() && file.nans.get(&id) != Some(&0);
        let of_values = Bounds {
            min: value(&file.lower),
            max: value(&file.upper).filter(|_| !has_nan),
            nulls: file.nulls.get(&id).and_then(|nulls| u64::try_from(*nulls).ok()),
        };
        let partitions = spec.iter().zip(&file.partition).filter(|(field, _)| field.source_id == id);
        partitions.fold(of_values, |bounds, (field, value)| {
            bounds.or(values::partition(&field.transform, value, data_type, rows))
        })
    };
    columns.iter().map(bounds).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lakes::root::tests::root;
    use object_store::ObjectStoreExt;

    async fn chosen(names: &[&str], hint: Option<&'static str>) -> Result<String> {
        let root = root();
        let mut names = names.to_vec();
        if let Some(hint) = hint {
            names.push("version-hint.text");
            let place = root.below("metadata/version-hint.text")?;
            root.store.put(&place, hint.into()).await?;
        }
        let meta = |name: &&str| ObjectMeta {
            location: root.below(&format!("metadata/{name}")).unwrap(),
            last_modified: Default::default(),
            size: 1,
            e_tag: None,
            version: None,
        };
        let files: Vec<ObjectMeta> = names.iter().map(meta).collect();
        Ok(newest(&root, &files).await?.filename().unwrap().to_string())
    }

    #[tokio::test]
    async fn newest_metadata_is_the_hinted_one_or_the_highest() {
        let names = ["v1.metadata.json", "v2.metadata.json", "v10.metadata.json", "snap-1.avro"];
        assert_eq!(chosen(&names, None).await.unwrap(), "v10.metadata.json");
        assert_eq!(chosen(&names, Some("2\n")).await.unwrap(), "v2.metadata.json");
        assert_eq!(chosen(&names, Some("v1.metadata.json")).await.unwrap(), "v1.metadata.json");
        assert!(chosen(&names, Some("7")).await.is_err());
        let catalog = ["00001-a.metadata.json", "00002-b.metadata.json", "00002-c.metadata.json"];
        assert_eq!(chosen(&catalog[..2], None).await.unwrap(), "00002-b.metadata.json");
        let error = chosen(&catalog, None).await.unwrap_err().to_string();
        assert!(error.contains("00002-b") && error.contains("00002-c"), "{error}");
    }

    #[test]
    fn moved_tables_keep_their_files() {
        let path = |uri: &str| table_path(&root(), "s3://old/x/", uri).map(|path| path.to_string());
        assert_eq!(path("s3://old/x/data/a b%.parquet").unwrap(), "w/t/data/a b%.parquet");
        assert_eq!(path("s3a://bucket/y/a.parquet").unwrap(), "y/a.parquet");
        assert!(path("s3://old/xy/a.parquet").is_err());
    }

    #[test]
    fn metadata_file_names_the_table_above_it() {
        let url = |place: &str| crate::tables::paths::parse(place).unwrap();
        let (folder, file) = places(&url("s3://b/w/t/metadata/v1.metadata.json"));
        assert_eq!((folder.as_ref(), file.unwrap().as_ref()), ("w/t", "w/t/metadata/v1.metadata.json"));
        assert_eq!(places(&url("s3://b/w/t/")), (Path::from("w/t"), None));
    }
}
