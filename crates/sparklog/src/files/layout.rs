//! The layout of logs: which files belong to which log, and in which order.
//!
//! | layout | files |
//! |---|---|
//! | one file | `<application>[_<attempt>][.codec][.inprogress]` |
//! | rolling (3.0 on) | `eventlog_v2_<application>/events_<n>_<application>[.codec][.compact]`, `appstatus_<application>[.inprogress]` |
//! | Spark 1.2 | a folder of `EVENT_LOG_1`, `SPARK_VERSION_1.2.0`, `APPLICATION_COMPLETE` |
//! | Databricks | a folder of `eventlog-2021-06-15--15-00.gz` and so on, and `eventlog`, the newest |
//!
//! Rolling files are ordered by number. A compacted file replaces all files up to its number. The layout is
//! derived from names alone, so it works for local folders ([`local`]) and object stores ([`logs`]) alike.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// The files of one application's log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogFiles {
    /// Path of the file or folder.
    pub name: String,
    /// Paths of the parts, in order.
    pub parts: Vec<String>,
    /// Warnings about missing or duplicate parts.
    pub warnings: Vec<String>,
}

/// Maximum depth of folders below the given path.
const MAX_DEPTH: u32 = 16;

/// Returns the logs at a local path, which may be a file, a log's folder, or a folder of logs.
///
/// # Errors
/// Fails if the path, or a folder below it, cannot be read.
pub fn local(path: &Path) -> io::Result<Vec<LogFiles>> {
    let name = path.to_string_lossy().into_owned();
    if !std::fs::metadata(path)?.is_dir() {
        return Ok(vec![LogFiles { name: name.clone(), parts: vec![name], warnings: Vec::new() }]);
    }
    let mut files = Vec::new();
    walk(path, 0, &mut files)?;
    Ok(logs(files))
}

fn walk(folder: &Path, depth: u32, files: &mut Vec<String>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        // Dangling links are ignored.
        match std::fs::metadata(&path) {
            Ok(found) if found.is_dir() && depth < MAX_DEPTH => walk(&path, depth + 1, files)?,
            Ok(found) if found.is_file() => files.push(path.to_string_lossy().into_owned()),
            _ => {}
        }
    }
    Ok(())
}

/// Returns the logs among files. Paths are separated by `/`.
pub fn logs(files: impl IntoIterator<Item = String>) -> Vec<LogFiles> {
    let mut folders: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files {
        let (folder, name) = file.rsplit_once('/').unwrap_or(("", &file));
        let ignored = name.starts_with(['.', '_']) || name.ends_with(".crc");
        if !ignored {
            folders.entry(folder.to_owned()).or_default().push(name.to_owned());
        }
    }
    folders.into_iter().flat_map(|(folder, names)| in_folder(&folder, names)).collect()
}

fn in_folder(folder: &str, mut names: Vec<String>) -> Vec<LogFiles> {
    names.sort();
    let path = |name: &String| if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
    let one = |parts: Vec<&String>, warnings| {
        let parts = parts.into_iter().map(path).collect();
        vec![LogFiles { name: folder.to_owned(), parts, warnings }]
    };
    let any = |is: fn(&str) -> bool| names.iter().any(|name| is(name));
    if any(|name| rolled(name).is_some()) || any(is_status) {
        let (parts, warnings) = rolling(&names);
        return one(parts, warnings);
    }
    if any(|name| name.starts_with("EVENT_LOG_")) {
        return one(names.iter().filter(|name| name.starts_with("EVENT_LOG_")).collect(), Vec::new());
    }
    if any(is_databricks) {
        // Ordered by date; `eventlog` itself is the newest.
        let mut parts: Vec<&String> = names.iter().filter(|name| is_databricks(name)).collect();
        parts.sort_by_key(|name| (!name.starts_with("eventlog-"), *name));
        return one(parts, Vec::new());
    }
    let single = |name: &String| LogFiles { name: path(name), parts: vec![path(name)], warnings: Vec::new() };
    names.iter().filter(|name| !is_marker(name)).map(single).collect()
}

/// Returns the number of a rolling file, and whether it is compacted.
fn rolled(name: &str) -> Option<(u64, bool)> {
    let (number, rest) = name.strip_prefix("events_")?.split_once('_')?;
    Some((number.parse().ok()?, rest.ends_with(".compact")))
}

fn is_status(name: &str) -> bool {
    name.starts_with("appstatus_")
}

fn is_databricks(name: &str) -> bool {
    let dated = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    name == "eventlog" || name.strip_prefix("eventlog-").is_some_and(dated)
}

fn is_marker(name: &str) -> bool {
    name == "APPLICATION_COMPLETE"
        || name.starts_with("SPARK_VERSION_")
        || name.starts_with("COMPRESSION_CODEC_")
}

fn rolling(names: &[String]) -> (Vec<&String>, Vec<String>) {
    let mut parts: Vec<(u64, bool, &String)> = names
        .iter()
        .filter_map(|name| rolled(name).map(|(number, compact)| (number, compact, name)))
        .collect();
    parts.sort();
    let compacted = parts.iter().filter(|part| part.1).map(|part| part.0).max();
    parts.retain(|part| compacted.is_none_or(|to| part.0 > to || part.0 == to && part.1));
    let mut warnings = Vec::new();
    if compacted.is_some() {
        warnings.push(
            "the log is compacted: Spark dropped the events of finished jobs from its oldest parts"
                .to_owned(),
        );
    }
    let begins = parts.first().map_or(1, |part| part.0);
    if begins > 1 && compacted.is_none() {
        warnings.push(format!("the log begins with part {begins}: earlier parts are missing"));
    }
    for pair in parts.windows(2) {
        if pair[0].0 == pair[1].0 {
            warnings.push(format!("part {} exists twice", pair[0].0));
        } else if pair[0].0 + 1 != pair[1].0 {
            warnings.push(format!("parts between {} and {} are missing", pair[0].0, pair[1].0));
        }
    }
    (parts.into_iter().map(|part| part.2).collect(), warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[&str]) -> Vec<(String, Vec<String>)> {
        let found = logs(files.iter().map(|file| (*file).to_owned())).into_iter();
        found.map(|log| (log.name, log.parts)).collect()
    }

    fn one(name: &str, parts: &[&str]) -> Vec<(String, Vec<String>)> {
        vec![(name.to_owned(), parts.iter().map(|part| format!("{name}/{part}")).collect())]
    }

    #[test]
    fn rolling_parts_are_ordered_by_number() {
        let files =
            ["d/events_10_a", "d/events_2_a.zstd", "d/events_1_a", "d/appstatus_a.inprogress", "d/.x.crc"];
        assert_eq!(found(&files), one("d", &["events_1_a", "events_2_a.zstd", "events_10_a"]));
        let warnings = &logs(files.map(str::to_owned))[0].warnings;
        assert_eq!(warnings, &["parts between 2 and 10 are missing"]);
    }

    #[test]
    fn compacted_part_replaces_earlier_parts() {
        let files = ["d/events_1_a", "d/events_2_a", "d/events_2_a.compact", "d/events_3_a", "d/appstatus_a"];
        assert_eq!(found(&files), one("d", &["events_2_a.compact", "events_3_a"]));
    }

    #[test]
    fn application_without_events_has_no_parts() {
        assert_eq!(found(&["d/appstatus_a.inprogress"]), one("d", &[]));
    }

    #[test]
    fn folders_of_spark_1_2_and_databricks_are_one_log() {
        let old = ["d/EVENT_LOG_1", "d/SPARK_VERSION_1.2.0", "d/APPLICATION_COMPLETE"];
        assert_eq!(found(&old), one("d", &["EVENT_LOG_1"]));
        let new = ["d/eventlog", "d/eventlog-2021-06-15--15-00.gz", "d/eventlog-2021-06-14--01-00.gz"];
        let parts = ["eventlog-2021-06-14--01-00.gz", "eventlog-2021-06-15--15-00.gz", "eventlog"];
        assert_eq!(found(&new), one("d", &parts));
    }

    #[test]
    fn folder_of_logs_is_split_into_logs() {
        let files = ["l/app-1", "l/app-2.lz4", "l/.app-1.crc", "l/eventlog_v2_x/events_1_x", "l/_SUCCESS"];
        let names: Vec<String> = found(&files).into_iter().map(|log| log.0).collect();
        assert_eq!(names, ["l/app-1", "l/app-2.lz4", "l/eventlog_v2_x"]);
    }
}
