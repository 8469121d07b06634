//! Names of files: their completion, and the tables that `.open` makes of a file or folder.

use crate::failure::Failure;
use std::fs;
use std::path::Path;

/// Endings of files that can be tables.
const FORMATS: [&str; 9] = ["parquet", "csv", "tsv", "txt", "json", "jsonl", "ndjson", "arrow", "feather"];

/// Endings of compressed files.
const COMPRESSIONS: [&str; 5] = ["gz", "zst", "bz2", "xz", "lz4"];

/// Maximum number of files proposed.
const MAX_FILES: usize = 500;

/// Returns the paths that continue `typed`, in alphabetical order; a folder's ends with `/`.
pub fn completions(typed: &str, tables_only: bool) -> Vec<String> {
    let (folder, start) = typed.rfind('/').map_or(("", typed), |at| typed.split_at(at + 1));
    let listed = fs::read_dir(if folder.is_empty() { "." } else { folder });
    let mut found: Vec<String> = listed
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let shown = name.starts_with(start) && (!name.starts_with('.') || start.starts_with('.'));
            let is_folder = shown && entry.path().is_dir();
            let ending = if is_folder { "/" } else { "" };
            (shown && (is_folder || !tables_only || table_name(&name).is_some()))
                .then(|| format!("{folder}{name}{ending}"))
        })
        .collect();
    found.sort();
    found.truncate(MAX_FILES);
    found
}

/// Returns the table's name for a file's name, without its endings; `None` if its format is unknown.
fn table_name(file: &str) -> Option<&str> {
    let is_one_of = |ending: &str, of: &[&str]| of.iter().any(|one| ending.eq_ignore_ascii_case(one));
    let (mut stem, mut ending) = file.rsplit_once('.')?;
    if is_one_of(ending, &COMPRESSIONS) {
        (stem, ending) = stem.rsplit_once('.')?;
    }
    is_one_of(ending, &FORMATS).then_some(stem)
}

/// Returns the tables, as name and path, that `.open` makes of a path: one of a file, a pattern, a URL, or a folder
/// whose files belong together; otherwise one of each file and folder in it.
///
/// # Errors
/// Returns an error if the path does not exist or is a folder without tables.
pub fn tables(path: &str) -> Result<Vec<(String, String)>, Failure> {
    let one = |name: &str| Ok(vec![(identifier(name), path.to_string())]);
    let last = path.trim_end_matches('/').rsplit('/').find(|part| !part.contains(['*', '?', '[']));
    let last = last.filter(|last| !last.is_empty() && *last != ".").unwrap_or("data");
    let stem = table_name(last).unwrap_or(last);
    if path.contains("://") || path.contains(['*', '?', '[']) {
        return one(stem);
    }
    let found = fs::metadata(path).map_err(|error| Failure::file("open", path, &error))?;
    let entries = if found.is_dir() { entries(Path::new(path))? } else { return one(stem) };
    if entries.iter().any(|(name, is_folder)| belongs_to_one_table(name, *is_folder)) {
        return one(stem);
    }
    let folder = path.trim_end_matches('/');
    let tables: Vec<_> = entries
        .iter()
        .filter_map(|(name, is_folder)| {
            let table = if *is_folder { Some(name.as_str()) } else { table_name(name) };
            table.map(|table| (identifier(table), format!("{folder}/{name}")))
        })
        .collect();
    match tables.is_empty() {
        true => Err(Failure::Failed(format!(
            "cannot open {path}: it has no folders and no files that end with .{}; choose another folder",
            FORMATS.join(", .")
        ))),
        false => Ok(tables),
    }
}

/// Returns the visible files and folders of a folder, in alphabetical order.
fn entries(folder: &Path) -> Result<Vec<(String, bool)>, Failure> {
    let listed = fs::read_dir(folder).map_err(|error| Failure::file("open", folder.display(), &error))?;
    let mut entries: Vec<_> = listed
        .flatten()
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path().is_dir())))
        .filter(|(name, _)| !name.starts_with('.'))
        .collect();
    entries.sort();
    Ok(entries)
}

/// Returns whether a folder with this entry is one table: of Delta, Iceberg, Hive's partitions, or parts that a job wrote.
fn belongs_to_one_table(name: &str, is_folder: bool) -> bool {
    match is_folder {
        true => name == "_delta_log" || name == "metadata" || name.contains('='),
        false => name == "_SUCCESS" || name.starts_with("part-"),
    }
}

/// Returns a name that needs no quotes in SQL.
fn identifier(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    let name: String = name.chars().map(plain).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("t{name}") } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
            fs::write(path, "x").expect("a file");
        }
        folder
    }

    #[test]
    fn paths_continue_what_was_typed() {
        let folder = folder(&["sales.csv", "sales.csv.gz", "sales.md", "sold/a.csv", ".sales.csv"]);
        let path = folder.path().to_string_lossy().into_owned();
        let complete = |typed: &str, tables_only| {
            let found = completions(&format!("{path}/{typed}"), tables_only);
            found.iter().map(|found| found[path.len() + 1..].to_string()).collect::<Vec<_>>()
        };
        assert_eq!(complete("s", true), ["sales.csv", "sales.csv.gz", "sold/"]);
        assert_eq!(complete("sales", false), ["sales.csv", "sales.csv.gz", "sales.md"]);
        assert_eq!(complete(".s", true), [".sales.csv"]);
        assert_eq!(complete("none/", true), Vec::<String>::new());
    }

    #[test]
    fn folder_opens_as_its_tables_or_as_one() {
        let opened = |files: &[&str]| {
            let folder = folder(files);
            let path = folder.path().to_string_lossy().into_owned();
            let found = tables(&format!("{path}/data/"));
            let shown = |(name, at): (String, String)| format!("{name} {}", at.replace(&path, ""));
            found
                .map(|found| found.into_iter().map(shown).collect::<Vec<_>>().join(", "))
                .unwrap_or_else(|failure| failure.message().unwrap_or_default().replace(&path, ""))
        };
        let each =
            ["data/My Sales.csv.gz", "data/2024.parquet", "data/items/part-0.parquet", "data/README.md"];
        assert_eq!(
            opened(&each),
            "t2024 /data/2024.parquet, my_sales /data/My Sales.csv.gz, items /data/items"
        );
        for files in [["data/_delta_log/0.json", "data/a.parquet"], ["data/year=2024/a.csv", "data/x.csv"]] {
            assert_eq!(opened(&files), "data /data/");
        }
        assert!(opened(&["data/README.md"]).starts_with("cannot open /data/: it has no folders"));
        assert!(tables("/none").is_err());
        let one = |path| tables(path).expect("a table").remove(0).0;
        assert_eq!(one("s3://bucket/sales/*.parquet"), "sales");
        assert_eq!(one("https://host/a/Sales-1.csv"), "sales_1");
    }
}
