//! Writes files atomically, and writes rows in memory to a file.
//!
//! Only rows from Spark are written here. The engine writes its own rows with `COPY`, as write
//! monotasks.

use super::invalid;
use crate::failure::Failure;
use crate::interrupt;
use arrow::array::RecordBatch;
use arrow::csv;
use arrow::datatypes::SchemaRef;
use arrow::json::LineDelimitedWriter;
use parquet::arrow::ArrowWriter;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Writes Parquet, CSV or JSON lines, by extension.
///
/// # Errors
/// Returns an error if the file cannot be written, its extension is unknown, or the format does not
/// support a type.
pub fn write_file(path: &Path, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<(), Failure> {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
    write_whole(path, |out| match ending.as_str() {
        "parquet" => {
            let other = |error: parquet::errors::ParquetError| io::Error::other(error.to_string());
            let mut writer = ArrowWriter::try_new(out, schema.clone(), None).map_err(other)?;
            batches.iter().try_for_each(|batch| writer.write(batch)).map_err(other)?;
            writer.close().map(drop).map_err(other)
        }
        "csv" => {
            let mut writer = csv::WriterBuilder::new().with_header(true).build(out);
            // Write the header even without rows.
            let empty = RecordBatch::new_empty(schema.clone());
            let batches = if batches.is_empty() { std::slice::from_ref(&empty) } else { batches };
            batches.iter().try_for_each(|batch| writer.write(batch)).map_err(invalid)
        }
        "json" | "jsonl" | "ndjson" => {
            let mut writer = LineDelimitedWriter::new(out);
            batches.iter().try_for_each(|batch| writer.write(batch)).map_err(invalid)?;
            writer.finish().map_err(invalid)
        }
        _ => Err(io::Error::other("unknown extension; use .parquet, .csv or .json")),
    })
}

/// Rejects a URL in an option that can only write local files.
///
/// # Errors
/// Returns an error for a URL.
pub fn check_local(option: &str, path: &Path) -> Result<(), Failure> {
    let text = path.to_string_lossy();
    match text.contains("://") {
        true => Err(Failure::Usage(format!(
            "cannot write to {}: {option} supports local files only; write one, and copy it there",
            pellucid_storage::shown(&text)
        ))),
        false => Ok(()),
    }
}

/// Writes a file atomically: under a temporary name in the same folder, renamed when complete.
///
/// # Errors
/// Returns an error if the path does not name a file, or if the file cannot be written.
pub fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut (dyn Write + Send)) -> io::Result<()>,
) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::file("write", path.display(), &error);
    let name = path.file_name().ok_or_else(|| {
        Failure::Usage(format!(
            "cannot write to {}: it does not name a file; pass one, such as `-o out.html`",
            path.display()
        ))
    })?;
    if fs::metadata(path).is_ok_and(|existing| !existing.is_file() && !existing.is_dir()) {
        // Write directly to a device or a pipe, which must not be replaced.
        let opened = File::options().write(true).open(path);
        let mut out = BufWriter::new(opened.map_err(failed)?);
        return write(&mut out).and_then(|()| out.flush()).map_err(failed);
    }
    let partial = path.with_file_name(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    interrupt::temporary(&partial);
    let written = File::create(&partial).and_then(|file| {
        let mut out = BufWriter::with_capacity(1 << 20, file);
        write(&mut out)?;
        out.flush()?;
        out.get_ref().sync_all()?;
        fs::rename(&partial, path)
    });
    written.map_err(|error| {
        // The file may not exist; report the first error only.
        let _ = fs::remove_file(&partial);
        failed(error)
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn extension_determines_the_format() {
        let (schema, batches) = sample();
        let folder = tempfile::tempdir().expect("a folder");
        let written = |name: &str, batches: &[RecordBatch]| {
            let path = folder.path().join(name);
            write_file(&path, &schema, batches).map(|()| std::fs::read(&path).expect("there"))
        };
        assert!(written("a.parquet", &batches).expect("written").starts_with(b"PAR1"));
        let csv = written("a.csv", &[]).expect("written");
        assert!(csv.starts_with(b"id,"), "a header without rows");
        assert_eq!(written("a.JSON", &batches).expect("written").iter().filter(|b| **b == b'\n').count(), 3);
        assert!(written("a.xlsx", &batches).is_err());
        assert_eq!(std::fs::read_dir(folder.path()).expect("read").count(), 3, "nothing else is left");
    }
}
