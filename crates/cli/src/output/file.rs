//! Writes files atomically, checks their paths, and writes rows in memory to a file.
//!
//! Only rows from Spark are written here. The engine writes its own rows with `COPY`, as write
//! monotasks.

use super::rows::invalid;
use crate::failure::Failure;
use arrow::array::RecordBatch;
use arrow::csv;
use arrow::datatypes::SchemaRef;
use arrow::json::LineDelimitedWriter;
use parquet::arrow::ArrowWriter;
use pellucid_trace::whole::{WholeFile, WholeFolder, same_file};
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

/// Rejects an output that would replace an input or another output of the same command. `outputs` are
/// options with their values.
///
/// # Errors
/// Returns an error for the first such output.
pub fn check_outputs<'a>(
    outputs: &[(&str, Option<&Path>)],
    inputs: impl IntoIterator<Item = &'a Path>,
) -> Result<(), Failure> {
    let given: Vec<(&str, &Path)> =
        outputs.iter().filter_map(|(option, path)| path.map(|path| (*option, path))).collect();
    let refused = |path: &Path, why: String| {
        Err(Failure::Usage(format!("cannot write to {}: {why}; choose another file", path.display())))
    };
    for (at, (option, path)) in given.iter().enumerate() {
        if let Some((other, _)) = given[..at].iter().find(|(_, other)| same_file(path, other)) {
            return refused(path, format!("{other} and {option} name the same file"));
        }
    }
    for input in inputs {
        if let Some((option, path)) = given.iter().find(|(_, path)| same_file(path, input)) {
            return refused(path, format!("{option} would replace an input of the command"));
        }
    }
    Ok(())
}

/// Writes a file that appears when it is complete. Writes directly to a device or a pipe.
///
/// # Errors
/// Returns an error if the path does not name a file, or if the file cannot be written.
pub fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut (dyn Write + Send)) -> io::Result<()>,
) -> Result<(), Failure> {
    if path.file_name().is_none() {
        return Err(Failure::Usage(format!(
            "cannot write to {}: it does not name a file; pass one, such as `-o out.html`",
            path.display()
        )));
    }
    let written = WholeFile::create(path).and_then(|file| {
        let mut out = BufWriter::with_capacity(1 << 20, file);
        write(&mut out)?;
        out.flush()?;
        out.get_ref().publish()
    });
    written.map_err(|error| Failure::file("write", path.display(), &error))
}

/// Writes a folder that appears when it is complete.
///
/// # Errors
/// Returns an error if the folder exists and is not empty, or cannot be written.
pub fn write_whole_folder(path: &Path, fill: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::file("write", path.display(), &error);
    let occupied = match std::fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_some(),
        Err(_) => path.exists(),
    };
    if occupied {
        return Err(Failure::Usage(format!(
            "cannot write to {}: it already exists; name a folder that does not exist or is empty",
            path.display()
        )));
    }
    if path.file_name().is_none() {
        return Err(Failure::Usage(format!(
            "cannot write to {}: it does not name a folder; pass one, such as `-o output`",
            path.display()
        )));
    }
    let written = WholeFolder::create(path).and_then(|folder| {
        fill(folder.path())?;
        folder.publish()
    });
    written.map_err(failed)
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

    #[test]
    fn output_must_differ_from_inputs_and_other_outputs() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("in.csv"), "x").expect("written");
        std::os::unix::fs::symlink("in.csv", at("link")).expect("linked");
        let check = |one: &str, other: &str| {
            let (one, other, input) = (at(one), at(other), at("in.csv"));
            let checked = check_outputs(
                &[("-o", Some(one.as_path())), ("--trace", Some(other.as_path()))],
                [input.as_path()],
            );
            checked
                .err()
                .map(|failure| (failure.exit_code(), failure.message().unwrap_or_default().to_string()))
        };
        assert_eq!(check("a", "b"), None);
        let (code, same) = check("a", "./a").expect("refused");
        assert!(
            code == 2 && same.contains("-o and --trace name the same file; choose another file"),
            "{same}"
        );
        let (code, input) = check("a", "link").expect("refused");
        assert!(code == 2 && input.contains("link: --trace would replace an input"), "{input}");
    }
}
