//! Rows in memory, to a file.
//!
//! For rows that come from elsewhere (Spark); the engine's own go through its `COPY`, by write
//! monotasks. Whole or not at all, under a temporary name until then.

use super::invalid;
use arrow::array::RecordBatch;
use arrow::csv;
use arrow::datatypes::SchemaRef;
use arrow::json::LineDelimitedWriter;
use parquet::arrow::ArrowWriter;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Writes Parquet, CSV or JSON lines, by the ending.
///
/// # Errors
/// When the file cannot be written, its ending says no format, or the format has no such type.
pub fn write_file(path: &Path, schema: &SchemaRef, batches: &[RecordBatch]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = tempfile::NamedTempFile::new_in(folder)?;
    let mut out = BufWriter::new(file);
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
    match ending.as_str() {
        "parquet" => {
            let other = |error: parquet::errors::ParquetError| io::Error::other(error.to_string());
            let mut writer = ArrowWriter::try_new(&mut out, schema.clone(), None).map_err(other)?;
            batches.iter().try_for_each(|batch| writer.write(batch)).map_err(other)?;
            writer.close().map_err(other)?;
        }
        "csv" => {
            let mut writer = csv::WriterBuilder::new().with_header(true).build(&mut out);
            // Without a row the header is still there.
            let empty = RecordBatch::new_empty(schema.clone());
            let batches = if batches.is_empty() { std::slice::from_ref(&empty) } else { batches };
            batches.iter().try_for_each(|batch| writer.write(batch)).map_err(invalid)?;
        }
        "json" | "jsonl" | "ndjson" => {
            let mut writer = LineDelimitedWriter::new(&mut out);
            batches.iter().try_for_each(|batch| writer.write(batch)).map_err(invalid)?;
            writer.finish().map_err(invalid)?;
        }
        _ => return Err(io::Error::other("the ending says no format; use .parquet, .csv or .json")),
    }
    out.flush()?;
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.as_file().sync_all()?;
    readable(file.as_file())?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

/// Temporary files are private; this one is an ordinary file from now on.
fn readable(file: &std::fs::File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn the_ending_says_the_format() {
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
