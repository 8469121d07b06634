//! Atomic writing of results as Parquet files.

use super::InputError;
use arrow::array::{ArrayRef, RecordBatch};
use parquet::arrow::ArrowWriter;
use pellucid_trace::whole::WholeFile;
use std::path::Path;

/// Checks that a result can be written to `path`, before a job runs.
///
/// # Errors
/// If the path is a URL, does not end in `.parquet`, or is in a missing folder.
pub fn check(path: &Path) -> Result<(), InputError> {
    let shown = path.display();
    if shown.to_string().contains("://") {
        return Err(InputError::Usage(format!(
            "cannot write to {}: results are written to local files only; write one and copy it there",
            pellucid_storage::shown(&shown.to_string())
        )));
    }
    if path.extension().is_none_or(|ending| ending != "parquet") {
        return Err(InputError::Usage(format!(
            "cannot write {shown}: results are Parquet; use a name that ends in .parquet"
        )));
    }
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => Err(InputError::Usage(
            format!("cannot write {shown}: {} is not a folder; create it first", folder.display()),
        )),
        _ => Ok(()),
    }
}

/// Writes batches of columns to a file that appears when it is complete.
///
/// # Errors
/// If the file cannot be written.
pub fn write(
    path: &Path,
    batches: impl Iterator<Item = Vec<(&'static str, ArrayRef)>>,
) -> Result<(), InputError> {
    try_write(path, batches).map_err(|e| InputError::Failed(format!("cannot write {}: {e}", path.display())))
}

fn try_write(
    path: &Path,
    batches: impl Iterator<Item = Vec<(&'static str, ArrayRef)>>,
) -> Result<(), String> {
    let mut writer: Option<ArrowWriter<WholeFile>> = None;
    for columns in batches {
        let batch = RecordBatch::try_from_iter(columns).map_err(|e| e.to_string())?;
        let writer = match &mut writer {
            Some(writer) => writer,
            none => {
                let file = WholeFile::create(path).map_err(|e| e.to_string())?;
                none.insert(ArrowWriter::try_new(file, batch.schema(), None).map_err(|e| e.to_string())?)
            }
        };
        writer.write(&batch).map_err(|e| e.to_string())?;
    }
    let writer = writer.ok_or("there is nothing to write")?;
    writer.into_inner().and_then(|file| Ok(file.publish()?)).map_err(|e| e.to_string())
}
