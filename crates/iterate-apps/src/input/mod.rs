//! Input data of applications: tables (Parquet, CSV) and graphs (edge lists), read into partitions.
//!
//! Opening a [`Table`] reads the footers or finds the lines. The worker that holds a partition then reads its
//! range of rows. User errors (a missing column, a value that is not a number, fewer rows than partitions)
//! are reported as an [`InputError`] with the location. Files are local. For joins, filters or conversions of
//! text to numbers, write Parquet with `pellucid sql` and read that.

mod csv;
pub mod edges;
mod names;
mod parquet;
pub mod results;

use std::fmt;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// An error in reading data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputError {
    /// The request does not fit the data.
    Usage(String),
    /// The data is invalid or could not be read.
    Failed(String),
}

impl InputError {
    fn io(action: &str, path: &Path, error: &std::io::Error) -> Self {
        InputError::Failed(format!("cannot {action} {}: {error}; check the path", path.display()))
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InputError::Usage(message) | InputError::Failed(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for InputError {}

/// A column's name and type.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Column {
    name: String,
    /// Description of a non-numeric type, for messages; `None` for numbers and booleans.
    other: Option<String>,
}

/// A table of named columns in one or more files with the same columns.
#[derive(Debug)]
pub struct Table {
    path: PathBuf,
    columns: Vec<Column>,
    parts: Vec<Part>,
    rows: usize,
}

/// One file of a table.
#[derive(Debug)]
struct Part {
    path: PathBuf,
    /// Number of rows in the files before this one.
    first_row: usize,
    rows: usize,
    file: File,
}

#[derive(Debug)]
enum File {
    Csv(csv::Csv),
    Parquet(parquet::Parquet),
}

/// A callback that receives row (relative to the range), column (index into the requested ones) and value.
type Sink<'a> = dyn FnMut(usize, usize, f64) + 'a;

impl Table {
    /// Opens a Parquet or CSV file, a folder of such files, or the files that match a pattern.
    ///
    /// # Errors
    /// If files are missing, have an unsupported format, contain no rows, or have different columns.
    pub fn open(path: &Path) -> Result<Self, InputError> {
        let shown = path.display();
        if shown.to_string().contains("://") {
            let shown = pellucid_storage::shown(&shown.to_string());
            return Err(InputError::Usage(format!(
                "cannot read {shown}: iterative jobs read local files only; copy it with `pellucid sql \"SELECT * FROM '{shown}'\" -o FILE.parquet`"
            )));
        }
        let mut table = Table { path: path.into(), columns: Vec::new(), parts: Vec::new(), rows: 0 };
        for path in files(path)? {
            let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_lowercase);
            let (file, columns, rows) = match ending.as_deref() {
                Some("parquet") => {
                    let (file, columns, rows) = parquet::caught(&path, || parquet::Parquet::open(&path))?;
                    (File::Parquet(file), columns, rows)
                }
                Some("csv" | "tsv") => {
                    let (file, columns, rows) = csv::Csv::open(&path)?;
                    (File::Csv(file), columns, rows)
                }
                _ => {
                    let shown = path.display();
                    return Err(InputError::Usage(format!(
                        "cannot infer the format of {shown} from its name; use a file that ends in .parquet, .csv or .tsv"
                    )));
                }
            };
            let names =
                |columns: &[Column]| columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>();
            if table.parts.is_empty() {
                table.columns = columns;
            } else if names(&columns) != names(&table.columns) {
                return Err(InputError::Failed(format!(
                    "the columns of {} ({}) differ from those of {} ({}); all files of a table must have the same columns",
                    path.display(),
                    names(&columns).join(", "),
                    table.parts[0].path.display(),
                    names(&table.columns).join(", ")
                )));
            }
            table.parts.push(Part { path, first_row: table.rows, rows, file });
            table.rows += rows;
        }
        if table.rows == 0 {
            return Err(InputError::Failed(format!("{shown} has no rows")));
        }
        Ok(table)
    }

    /// Returns an identity of the table that does not require reading its data: rows, columns and file sizes. It does
    /// not depend on the location of the files.
    pub fn identity(&self) -> (usize, Vec<&str>, Vec<u64>) {
        let size = |part: &Part| fs::metadata(&part.path).map_or(0, |about| about.len());
        let names = self.columns.iter().map(|column| column.name.as_str()).collect();
        (self.rows, names, self.parts.iter().map(size).collect())
    }

    /// Returns the number of rows in all files.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the names of the columns of numbers or booleans, in file order.
    pub fn numeric_columns(&self) -> Vec<String> {
        self.columns
            .iter()
            .filter(|column| column.other.is_none())
            .map(|column| column.name.clone())
            .collect()
    }

    /// Checks that a numeric column with this name exists.
    ///
    /// # Errors
    /// If it does not, with the nearest names, or with the type of the column.
    pub fn require(&self, name: &str) -> Result<(), InputError> {
        match self.columns.iter().find(|column| column.name == name) {
            None => {
                let known = self.columns.iter().map(|column| column.name.as_str());
                Err(InputError::Usage(format!(
                    "{} has no column {name}; {}",
                    self.path.display(),
                    names::nearest(name, known)
                )))
            }
            Some(Column { other: Some(what), .. }) => Err(InputError::Usage(format!(
                "column {name} of {} holds {what}, not numbers; convert it with `pellucid sql`, or choose other columns with --features",
                self.path.display()
            ))),
            Some(_) => Ok(()),
        }
    }

    /// Returns the number of partitions to divide the rows into: as requested, or else by the number of rows alone,
    /// so that the result does not depend on the machine.
    ///
    /// # Errors
    /// If there are more partitions than rows.
    pub fn partitions(&self, requested: Option<u32>) -> Result<u32, InputError> {
        /// Target number of rows per partition. 64 partitions suffice for several machines.
        const ROWS: usize = 16_384;
        match requested {
            None => Ok(self.rows.div_ceil(ROWS).clamp(1, 64) as u32),
            Some(requested) if requested as usize > self.rows => Err(InputError::Usage(format!(
                "cannot divide the {} rows of {} into {requested} partitions; use --partitions {} or fewer",
                self.rows,
                self.path.display(),
                self.rows
            ))),
            Some(requested) => Ok(requested),
        }
    }

    /// Returns the rows of a partition.
    pub fn range(&self, partition: u32, partitions: u32) -> Range<usize> {
        let cut = |at: u32| (self.rows as u128 * u128::from(at) / u128::from(partitions.max(1))) as usize;
        cut(partition)..cut(partition + 1)
    }

    /// Reads the given columns and rows into `sink`, file by file. All values are finite.
    ///
    /// # Errors
    /// If a value is missing, not a number or not finite, with its location; if a file has changed or is truncated.
    pub fn read(&self, rows: Range<usize>, columns: &[String], sink: &mut Sink) -> Result<(), InputError> {
        let places = columns
            .iter()
            .map(|name| {
                self.require(name)?;
                Ok(self.columns.iter().position(|column| column.name == *name).unwrap_or_default())
            })
            .collect::<Result<Vec<_>, InputError>>()?;
        for part in &self.parts {
            let start = rows.start.max(part.first_row);
            let end = rows.end.min(part.first_row + part.rows);
            if start >= end {
                continue;
            }
            let range = start - part.first_row..end - part.first_row;
            let before = start - rows.start;
            let mut bad: Option<(usize, usize, f64)> = None;
            let mut read = 0;
            let mut checked = |row: usize, column: usize, value: f64| {
                if !value.is_finite() {
                    bad.get_or_insert((row, column, value));
                }
                read += 1;
                sink(before + row, column, value);
            };
            match &part.file {
                File::Csv(file) => file.read(&part.path, range.clone(), &places, &mut checked)?,
                File::Parquet(file) => {
                    let read = || file.read(&part.path, range.clone(), &places, &mut checked);
                    parquet::caught(&part.path, read)?;
                }
            }
            if let Some((row, column, value)) = bad {
                return Err(InputError::Failed(format!(
                    "{}, row {}: column {} is {}; fill it in or remove the row",
                    part.path.display(),
                    range.start + row + 1,
                    columns[column],
                    if value.is_nan() { "NaN".to_string() } else { value.to_string() }
                )));
            }
            if read != range.len() * columns.len() {
                return Err(InputError::Failed(format!(
                    "{} has changed since it was opened; run the job again",
                    part.path.display()
                )));
            }
        }
        Ok(())
    }
}

/// Lists a file, the visible files of a folder in order of name, or those of every path that matches a pattern.
///
/// # Errors
/// If a path cannot be read, or nothing matches.
pub fn files(path: &Path) -> Result<Vec<PathBuf>, InputError> {
    let mut files = Vec::new();
    for path in matching(path)? {
        let failed = |e| InputError::io("read", &path, &e);
        if !fs::metadata(&path).map_err(failed)?.is_dir() {
            files.push(path);
            continue;
        }
        let before = files.len();
        for entry in fs::read_dir(&path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let hidden = entry.file_name().to_string_lossy().starts_with(['.', '_']);
            if !hidden && entry.path().is_file() {
                files.push(entry.path());
            }
        }
        files[before..].sort();
        if files.len() == before {
            return Err(InputError::Failed(format!(
                "{} is a folder without files; check the path",
                path.display()
            )));
        }
    }
    Ok(files)
}

/// Expands a pattern (`data/*.csv`) to at least one path. Other paths expand to themselves.
fn matching(path: &Path) -> Result<Vec<PathBuf>, InputError> {
    let found = pellucid_storage::pattern::matching(path);
    if found.is_empty() {
        let shown = path.display();
        return Err(InputError::Failed(format!(
            "cannot read {shown}: no file matches it; check the pattern"
        )));
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
