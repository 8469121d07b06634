//! Data for applications: tables (Parquet, CSV) and graphs (edge lists), read into partitions.
//!
//! A [`Table`] is opened once, which reads footers or finds the lines, and then read by ranges of rows, each
//! by the worker that holds the partition. What a person may have got wrong (a column that is not
//! there, a value that is no number, fewer rows than partitions) is an [`InputError`] that says where it
//! stands. Files are local; for anything else (joins, filters, text to numbers) `pellucid sql` writes
//! Parquet that is read here.

mod csv;
pub mod edges;
mod names;
mod parquet;
pub mod results;

use std::fmt;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Why data could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputError {
    /// What was asked for does not fit the data.
    Usage(String),
    /// The data is not as it should be, or could not be read.
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

/// A column, as far as readers care.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Column {
    name: String,
    /// What it holds, for messages; `None` for numbers and booleans.
    other: Option<String>,
}

/// Rows of named columns in one or several files of the same columns.
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
    /// Rows of the files before it.
    first_row: usize,
    rows: usize,
    file: File,
}

#[derive(Debug)]
enum File {
    Csv(csv::Csv),
    Parquet(parquet::Parquet),
}

/// Takes values: row (counted from the range's first), column (as they were asked for), value.
type Sink<'a> = dyn FnMut(usize, usize, f64) + 'a;

impl Table {
    /// Opens a Parquet or CSV file, a folder of such files, or those that a pattern matches.
    ///
    /// # Errors
    /// Files that are not there, are of another kind, hold no rows, or do not fit together.
    pub fn open(path: &Path) -> Result<Self, InputError> {
        let shown = path.display();
        if shown.to_string().contains("://") {
            return Err(InputError::Usage(format!(
                "{shown}: iterative jobs read local files; copy it with `pellucid sql \"SELECT * FROM '{shown}'\" -o FILE.parquet`"
            )));
        }
        let mut table = Table { path: path.into(), columns: Vec::new(), parts: Vec::new(), rows: 0 };
        for path in files(path)? {
            let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_lowercase);
            let (file, columns, rows) = match ending.as_deref() {
                Some("parquet") => {
                    let (file, columns, rows) = parquet::Parquet::open(&path)?;
                    (File::Parquet(file), columns, rows)
                }
                Some("csv" | "tsv") => {
                    let (file, columns, rows) = csv::Csv::open(&path)?;
                    (File::Csv(file), columns, rows)
                }
                _ => {
                    let shown = path.display();
                    return Err(InputError::Usage(format!(
                        "{shown}: what kind of file it is cannot be told from its name; .parquet, .csv and .tsv are read"
                    )));
                }
            };
            let names =
                |columns: &[Column]| columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>();
            if table.parts.is_empty() {
                table.columns = columns;
            } else if names(&columns) != names(&table.columns) {
                return Err(InputError::Failed(format!(
                    "{} has other columns ({}) than {} ({}); files of one table have the same",
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

    /// What tells it apart from other tables, without reading it: rows, columns, and the sizes of its files, wherever
    /// they stand.
    pub fn identity(&self) -> (usize, Vec<&str>, Vec<u64>) {
        let size = |part: &Part| fs::metadata(&part.path).map_or(0, |about| about.len());
        let names = self.columns.iter().map(|column| column.name.as_str()).collect();
        (self.rows, names, self.parts.iter().map(size).collect())
    }

    /// Rows of all files.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The names of columns that hold numbers or booleans, as they stand in the files.
    pub fn numeric_columns(&self) -> Vec<String> {
        self.columns
            .iter()
            .filter(|column| column.other.is_none())
            .map(|column| column.name.clone())
            .collect()
    }

    /// Checks that there is a column of numbers of this name.
    ///
    /// # Errors
    /// With the names nearest to it, or with what the column holds instead.
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
                "column {name} of {} holds {what}, not numbers; make numbers of it with `pellucid sql`, or choose others with --features",
                self.path.display()
            ))),
            Some(_) => Ok(()),
        }
    }

    /// Into how many partitions to divide the rows: as asked, or by their number alone, so that the
    /// answer does not depend on the machine.
    ///
    /// # Errors
    /// More partitions than rows.
    pub fn partitions(&self, asked: Option<u32>) -> Result<u32, InputError> {
        /// Rows of a partition that are worth a task; 64 partitions keep several machines busy.
        const ROWS: usize = 16_384;
        match asked {
            None => Ok(self.rows.div_ceil(ROWS).clamp(1, 64) as u32),
            Some(asked) if asked as usize > self.rows => Err(InputError::Usage(format!(
                "{} has {} rows, which cannot be divided into {asked} partitions; use --partitions {} or fewer",
                self.path.display(),
                self.rows,
                self.rows
            ))),
            Some(asked) => Ok(asked),
        }
    }

    /// The rows of a partition.
    pub fn range(&self, partition: u32, partitions: u32) -> Range<usize> {
        let cut = |at: u32| (self.rows as u128 * u128::from(at) / u128::from(partitions.max(1))) as usize;
        cut(partition)..cut(partition + 1)
    }

    /// Reads some columns of some rows into `sink`, file by file. Every value is finite.
    ///
    /// # Errors
    /// A value that is missing, no number or not finite, with its place; files that changed or break off.
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
                File::Parquet(file) => file.read(&part.path, range.clone(), &places, &mut checked)?,
            }
            if let Some((row, column, value)) = bad {
                return Err(InputError::Failed(format!(
                    "{}, row {}: column {} is {}; rows with such values have to be left out or filled in first",
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

/// The file itself, or a folder's files by name, without hidden ones; of a pattern, those of each path that it matches.
fn files(path: &Path) -> Result<Vec<PathBuf>, InputError> {
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
            return Err(InputError::Failed(format!("{} is a folder without files", path.display())));
        }
    }
    Ok(files)
}

/// The paths of a pattern (`data/*.csv`), at least one; a path that is no pattern is itself.
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
