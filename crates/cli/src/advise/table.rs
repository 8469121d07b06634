//! The tables of a query: their files, and the scans that read them.

use crate::failure::Failure;
use pellucid_engine::PlannedScan;
use pellucid_layout::{Layout, TableFile, footer, table_name};
use std::path::{Path, PathBuf};

/// A table that can be rewritten.
pub struct Table {
    /// Its name in advice.
    pub name: String,
    /// The file, or the folder of all of its files.
    pub place: PathBuf,
    pub files: Vec<TableFile>,
    pub present: Layout,
    pub scans: Vec<PlannedScan>,
}

impl Table {
    /// Groups scans by their files. Adds a note for each table that cannot be rewritten.
    ///
    /// # Errors
    /// Returns an error if a footer cannot be read.
    pub fn of(scans: Vec<PlannedScan>, notes: &mut Vec<String>) -> Result<Vec<Table>, Failure> {
        let mut tables: Vec<Table> = Vec::new();
        for scan in scans {
            let same = |table: &&mut Table| table.files.iter().map(|file| &file.path).eq(&scan.files);
            if let Some(table) = tables.iter_mut().find(same) {
                table.scans.push(scan);
                continue;
            }
            let paths: Vec<&Path> = scan.files.iter().map(PathBuf::as_path).collect();
            let (Some(name), Some(place)) = (table_name(&paths), place(&paths)) else {
                notes.push(format!("no advice on {}: its folder holds other files", scan.name));
                continue;
            };
            if let Some(obstacle) = scan.obstacle {
                notes.push(format!("no advice on {name}: {obstacle}"));
                continue;
            }
            let files = paths.iter().map(|path| footer(path)).collect::<Result<Vec<_>, _>>()?;
            let present = Layout::of(&files);
            tables.push(Table { name, place, files, present, scans: vec![scan] });
        }
        Ok(tables)
    }

    /// Returns true if all files have a page index, by which their row groups can be divided.
    pub fn is_indexed(&self) -> bool {
        self.files.iter().all(|file| file.metadata.offset_index().is_some())
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.files.iter().map(|file| file.metadata.file_metadata().num_rows().max(0) as u64).sum()
    }
}

/// Returns the only file, or the folder that holds exactly these Parquet files.
fn place(files: &[&Path]) -> Option<PathBuf> {
    let (first, rest) = files.split_first()?;
    if rest.is_empty() {
        return Some(first.to_path_buf());
    }
    let folder = first.parent()?;
    let entries = folder.read_dir().ok()?.flatten().map(|entry| entry.path());
    let mut there: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "parquet")).collect();
    there.sort();
    there.iter().map(PathBuf::as_path).eq(files.iter().copied()).then(|| folder.to_path_buf())
}
