//! The files of a table.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};

use crate::error::LayoutError;

/// A file of a table, with its footer.
#[derive(Debug, Clone)]
pub struct TableFile {
    /// The file.
    pub path: PathBuf,
    /// Its footer, with the page index if it has one.
    pub metadata: Arc<ParquetMetaData>,
}

impl TableFile {
    /// Returns each row group of some files.
    pub fn row_groups(files: &[TableFile]) -> Vec<(&TableFile, usize)> {
        files
            .iter()
            .flat_map(|file| (0..file.metadata.num_row_groups()).map(move |group| (file, group)))
            .collect()
    }
}

/// Reads the footer of a file.
///
/// # Errors
/// Returns an error if the file cannot be read or is damaged.
pub fn footer(path: &Path) -> Result<TableFile, LayoutError> {
    let file = File::open(path).map_err(LayoutError::at("read", path))?;
    let reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Optional);
    let metadata = reader.parse_and_finish(&file).map_err(LayoutError::at("read", path))?;
    Ok(TableFile { path: path.to_path_buf(), metadata: Arc::new(metadata) })
}

/// Returns the name of a table by its files: of its only file, or of the folder of several.
pub fn table_name(files: &[&Path]) -> Option<String> {
    let name = match files {
        [only] => only.file_stem(),
        [first, ..] => first.parent()?.file_name(),
        [] => None,
    };
    Some(name?.to_string_lossy().into_owned())
}
