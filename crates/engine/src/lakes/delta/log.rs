//! Chooses the checkpoint and the commits of a version, and reads them.
//!
//! A listing of the log fixes the version: later commits are not seen, and commits never change.

use std::collections::BTreeMap;

use bytes::Bytes;
use datafusion::arrow::json::LineDelimitedWriter;
use datafusion::common::Result;
use datafusion::parquet::arrow::ProjectionMask;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use futures::FutureExt;
use object_store::ObjectMeta;
use object_store::path::Path;
use pellucid_trace::guard::guarded;

use super::actions::{Action, Replay, Sidecar, Snapshot};
use crate::lakes::{DELTA_LOG, Root, Version, all};
use crate::scan::damaged;

/// Digits of a version in a name.
const DIGITS: usize = 20;

/// A file of the log.
#[derive(Debug, PartialEq, Eq)]
enum Entry {
    Commit(u64),
    /// A checkpoint in `parts` files, of which this is number `part`, from 1 on.
    Checkpoint {
        version: u64,
        part: u64,
        parts: u64,
    },
}

/// Parses a name within the log's folder; `None` for other files.
fn entry(name: &str) -> Option<Entry> {
    let (digits, rest) = name.split_once('.')?;
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u64>().ok())?;
    if digits.len() != DIGITS {
        return None;
    }
    let version = number(digits)?;
    if rest == "json" {
        return Some(Entry::Commit(version));
    }
    let rest = rest.strip_prefix("checkpoint.")?;
    let parts: Vec<&str> = rest.split('.').collect();
    match parts[..] {
        // The second is a checkpoint of version 2, with a UUID.
        ["parquet"] | [_, "parquet" | "json"] => Some(Entry::Checkpoint { version, part: 1, parts: 1 }),
        [part, parts, "parquet"] => {
            Some(Entry::Checkpoint { version, part: number(part)?, parts: number(parts)? })
        }
        _ => None,
    }
}

/// The files of the log that make a version.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Log {
    version: u64,
    checkpoint: Vec<Path>,
    commits: Vec<Path>,
}

impl Log {
    /// Chooses the files of a version; `files` lists at least the log's folder.
    ///
    /// # Errors
    /// Returns an error if the log lacks a file, or does not have the version.
    pub(super) fn of(root: &Root, files: &[ObjectMeta], wanted: Version) -> Result<Self> {
        let folder = root.below(DELTA_LOG)?;
        let mut commits: BTreeMap<u64, Path> = BTreeMap::new();
        // Checkpoints by version and number of parts.
        let mut checkpoints: BTreeMap<(u64, u64), BTreeMap<u64, Path>> = BTreeMap::new();
        for file in files {
            let Some(mut below) = file.location.prefix_match(&folder) else { continue };
            let (Some(name), None) = (below.next(), below.next()) else { continue };
            match entry(name.as_ref()) {
                Some(Entry::Commit(version)) => _ = commits.insert(version, file.location.clone()),
                Some(Entry::Checkpoint { version, part, parts }) => {
                    checkpoints.entry((version, parts)).or_default().insert(part, file.location.clone());
                }
                None => {}
            }
        }
        checkpoints
            .retain(|(_, parts), found| found.len() as u64 == *parts && found.keys().copied().eq(1..=*parts));
        let newest = commits.keys().next_back().copied();
        let newest = newest.max(checkpoints.keys().next_back().map(|(version, _)| *version));
        let newest = newest.ok_or_else(|| root.error("its log has no commit and no checkpoint"))?;
        let version = match wanted {
            Version::Newest => newest,
            Version::Number(number) => {
                u64::try_from(number).ok().filter(|v| *v <= newest).ok_or_else(|| {
                    root.error(format!("version {number} does not exist; the newest is {newest}"))
                })?
            }
        };
        let checkpoint = checkpoints.range(..=(version, u64::MAX)).next_back();
        let first = checkpoint.map_or(0, |((version, _), _)| version + 1);
        let commits = (first..=version).map(|version| {
            commits.get(&version).cloned().ok_or_else(|| {
                root.error(format!(
                    "its log lacks version {version}, and a later checkpoint; restore the log from a copy, or \
                     read a newer version"
                ))
            })
        });
        Ok(Self {
            version,
            commits: commits.collect::<Result<_>>()?,
            checkpoint: checkpoint.map(|(_, parts)| parts.values().cloned().collect()).unwrap_or_default(),
        })
    }

    /// Reads the files and applies their actions.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or is damaged.
    pub(super) async fn replay(&self, root: &Root) -> Result<Snapshot> {
        let mut replay = Replay::default();
        let sidecars = apply(root, &self.checkpoint, &mut replay).await?;
        let sidecars = sidecars.iter().map(|sidecar| place(root, sidecar)).collect::<Result<Vec<_>>>()?;
        apply(root, &sidecars, &mut replay).await?;
        apply(root, &self.commits, &mut replay).await?;
        replay.finish().map_err(|action| {
            root.error(format!(
                "version {} of its log has no {action} action; restore it from a copy",
                self.version
            ))
        })
    }
}

/// Returns the place of a sidecar: a name in a folder of the log, or a URI.
fn place(root: &Root, sidecar: &Sidecar) -> Result<Path> {
    if sidecar.path.contains('/') {
        return super::place(root, &sidecar.path);
    }
    root.below(&format!("{DELTA_LOG}/_sidecars/{}", sidecar.path))
}

/// Applies the actions of files, in their order. Returns the sidecars that they name.
async fn apply(root: &Root, files: &[Path], replay: &mut Replay) -> Result<Vec<Sidecar>> {
    let mut reads = Vec::new();
    for file in files {
        reads.push(root.read(file).boxed());
    }
    let mut sidecars = Vec::new();
    for (file, bytes) in files.iter().zip(all(reads).await?) {
        let name = root.name(file);
        let lines = match file.extension() {
            Some("parquet") => guarded(|| Ok(lines_of(bytes)))
                .unwrap_or_else(|_| Err(damaged(&name, "its content is malformed")))
                .map_err(|e| e.context(format!("cannot read {}: checkpoint {name}", root.place)))?,
            _ => bytes.to_vec(),
        };
        for (number, line) in lines.split(|byte| *byte == b'\n').enumerate() {
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let action: Action = serde_json::from_slice(line).map_err(|e| {
                root.error(format!(
                    "line {} of {name} is damaged ({e}); restore the log from a copy",
                    number + 1
                ))
            })?;
            sidecars.extend(action.sidecar.clone());
            replay.apply(action);
        }
    }
    Ok(sidecars)
}

/// Converts the rows of a checkpoint to the lines of a commit.
fn lines_of(bytes: Bytes) -> Result<Vec<u8>> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes)?;
    let schema = builder.parquet_schema();
    let path = |leaf: usize| schema.column(leaf).path().parts().to_vec();
    let leaves = 0..schema.num_columns();
    let has_json = leaves.clone().any(|leaf| path(leaf) == ["add", "stats"]);
    let wanted = |leaf: &usize| {
        let path = path(*leaf);
        match (path[0].as_str(), path.get(1).map(String::as_str)) {
            ("add", Some("partitionValues_parsed" | "tags")) => false,
            ("add", Some("stats_parsed")) => !has_json,
            (action, _) => ["add", "metaData", "protocol", "sidecar"].contains(&action),
        }
    };
    let mask = ProjectionMask::leaves(schema, leaves.filter(wanted));
    let mut writer = LineDelimitedWriter::new(Vec::new());
    for batch in builder.with_projection(mask).build()? {
        writer.write(&batch?)?;
    }
    writer.finish()?;
    Ok(writer.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lakes::root::tests::root;

    fn chosen(names: &[&str], wanted: Version) -> Result<(u64, usize, usize)> {
        let root = root();
        let meta = |name: &&str| ObjectMeta {
            location: root.below(&format!("_delta_log/{name}")).unwrap(),
            last_modified: Default::default(),
            size: 1,
            e_tag: None,
            version: None,
        };
        let files: Vec<ObjectMeta> = names.iter().map(meta).collect();
        let log = Log::of(&root, &files, wanted)?;
        Ok((log.version, log.checkpoint.len(), log.commits.len()))
    }

    fn commit(version: u64) -> String {
        format!("{version:020}.json")
    }

    #[test]
    fn newest_complete_checkpoint_and_later_commits_are_chosen() {
        let names: Vec<String> = (0..5).map(commit).collect();
        let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
        names.extend(["_last_checkpoint", "00000000000000000004.crc", "x.json", "_staged_commits/a.json"]);
        let newest = |names: &[&str]| chosen(names, Version::Newest).unwrap();
        assert_eq!(newest(&names), (4, 0, 5));
        assert_eq!(chosen(&names, Version::Number(2)).unwrap(), (2, 0, 3));
        assert!(chosen(&names, Version::Number(5)).is_err() && chosen(&names, Version::Number(-1)).is_err());
        names.push("00000000000000000002.checkpoint.0000000001.0000000002.parquet");
        assert_eq!(newest(&names), (4, 0, 5));
        names.push("00000000000000000002.checkpoint.0000000002.0000000002.parquet");
        assert_eq!(newest(&names), (4, 2, 2));
        assert_eq!(newest(&names[3..]), (4, 2, 2));
        assert_eq!(newest(&["00000000000000000007.checkpoint.parquet"]), (7, 1, 0));
        let uuid = "00000000000000000007.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json";
        assert_eq!(newest(&[uuid]), (7, 1, 0));
    }

    #[test]
    fn gap_in_the_log_is_an_error() {
        let (first, third) = (commit(0), commit(2));
        let error = chosen(&[&first, &third], Version::Newest).unwrap_err().to_string();
        assert!(error.contains("lacks version 1"), "{error}");
        assert!(chosen(&["x.json"], Version::Newest).is_err());
    }
}
