//! The columns of a CSV table, and the layout of each of its files.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::PartitionedFile;
use futures::{StreamExt, TryStreamExt};
use object_store::ObjectMeta;
use object_store::path::Path;

use crate::logical::nearest::hint;
use crate::sync::lock;
use crate::tables::csv::sniff::{Sniffed, sniff, unique};
use crate::tables::csv::types::Guess;
use crate::tables::csv::{CsvColumn, CsvFormat, CsvOptions, Encoding, Layout};
use crate::tables::found::Found;
use crate::tables::options::FileOptions;
use crate::tables::text::TextFormat;
use crate::tables::text::sample::sample;

/// Number of files whose types are examined, spread over all files.
const TYPED_FILES: usize = 10;
/// Maximum number of files that are examined at once.
const CONCURRENCY: usize = 16;

/// A file as it was examined.
type Examined = (ObjectMeta, Arc<Sniffed>);

/// Reads the CSV files of a table.
#[derive(Debug)]
pub(crate) struct CsvReader {
    options: CsvOptions,
    names: Vec<String>,
    columns: Vec<CsvColumn>,
    files: Mutex<HashMap<Path, Examined>>,
}

impl CsvReader {
    /// Examines the files of a table. Returns its reader and columns.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or the files do not have the same columns.
    pub(crate) async fn open(found: &Found, options: &FileOptions) -> Result<(Self, SchemaRef)> {
        let mut csv = options.csv.clone();
        if csv.delimiter.is_none() && found.extension.to_ascii_lowercase().starts_with(".tsv") {
            csv.delimiter = Some(b"\t".to_vec());
        }
        let reader = Self { options: csv, names: Vec::new(), columns: Vec::new(), files: Mutex::default() };
        let sniffed = reader.examine(found, &found.files).await?;
        let options_csv = &reader.options;
        let mut names: Vec<String> = Vec::new();
        let mut guesses: Vec<Guess> = Vec::new();
        let step = sniffed.len().div_ceil(TYPED_FILES).max(1);
        for (at, (file, about)) in found.files.iter().zip(&sniffed).enumerate() {
            for (index, name) in about.names.iter().enumerate() {
                let by_name = || names.iter().position(|known| known.eq_ignore_ascii_case(name));
                let known = if about.has_header && options_csv.names.is_empty() {
                    by_name()
                } else {
                    (index < names.len()).then_some(index)
                };
                match known {
                    Some(known) if at % step == 0 || at + 1 == sniffed.len() || options.union_by_name => {
                        guesses[known].merge(&about.guesses[index]);
                    }
                    Some(_) => {}
                    None if at == 0 || options.union_by_name => {
                        names.push(name.clone());
                        guesses.push(about.guesses[index].clone());
                    }
                    // Other columns than those of the first file are left out.
                    None => {}
                }
            }
            let _ = file;
        }
        let columns = reader.typed(&names, &guesses)?;
        let (fields, columns): (Vec<Field>, Vec<CsvColumn>) = columns.into_iter().unzip();
        let names = fields.iter().map(|field| field.name().clone()).collect();
        let reader = Self { names, columns, ..reader };
        // Files without a column are found now.
        for (file, about) in found.files.iter().zip(&sniffed) {
            reader.mapped(found.name(file), about, options)?;
        }
        Ok((reader, Arc::new(Schema::new(fields))))
    }

    /// Returns the columns with the types of the options, or those that the values allow.
    fn typed(&self, names: &[String], guesses: &[Guess]) -> Result<Vec<(Field, CsvColumn)>> {
        let options = &self.options;
        let column = |name: &str, data_type: DataType, values| {
            let not_null = options.force_not_null.iter().any(|other| other.eq_ignore_ascii_case(name));
            (Field::new(name, data_type, true), CsvColumn { values, not_null })
        };
        let wrong = |name: &str, option: &str| {
            let hint = hint(name, names.to_vec(), "the columns are");
            DataFusionError::Plan(format!("cannot find column {name} of {option} in the files; {hint}"))
        };
        if let Some(name) = options
            .force_not_null
            .iter()
            .find(|name| !names.iter().any(|known| known.eq_ignore_ascii_case(name)))
        {
            return Err(wrong(name, "force_not_null"));
        }
        if let Some(columns) = &options.columns {
            let names = unique(columns.iter().map(|(name, _)| name.clone()));
            let typed = names
                .iter()
                .zip(columns)
                .map(|(name, (_, data_type))| column(name, data_type.clone(), options.values.clone()));
            return Ok(typed.collect());
        }
        if options.types.iter().filter(|(name, _)| name.is_none()).count() > names.len() {
            return Err(DataFusionError::Plan(format!(
                "cannot give {} types: the files have {} columns, {}",
                options.types.len(),
                names.len(),
                names.join(", ")
            )));
        }
        let unknown = options.types.iter().filter_map(|(name, _)| name.as_ref());
        if let Some(name) =
            unknown.into_iter().find(|name| !names.iter().any(|known| known.eq_ignore_ascii_case(name)))
        {
            return Err(wrong(name, "types"));
        }
        let typed = names.iter().zip(guesses).enumerate().map(|(at, (name, guess))| {
            let given = options.types.iter().enumerate().find(|(index, (given, _))| match given {
                Some(given) => given.eq_ignore_ascii_case(name),
                None => *index == at,
            });
            let (data_type, values) = match given {
                // The format of its dates is still guessed.
                Some((_, (_, data_type))) => {
                    let (guessed, values) = guess.decide();
                    let same = guessed == *data_type;
                    (data_type.clone(), if same { values } else { options.values.clone() })
                }
                None if options.all_varchar => (DataType::Utf8View, options.values.clone()),
                None => guess.decide(),
            };
            column(name, data_type, values)
        });
        Ok(typed.collect())
    }

    /// Returns the reader of some of the columns.
    pub(crate) fn keep(self, kept: &[usize]) -> Self {
        Self {
            names: kept.iter().map(|at| self.names[*at].clone()).collect(),
            columns: kept.iter().map(|at| self.columns[*at].clone()).collect(),
            ..self
        }
    }

    /// Examines files that were not examined before, or have changed.
    async fn examine(&self, found: &Found, files: &[ObjectMeta]) -> Result<Vec<Arc<Sniffed>>> {
        let known = lock(&self.files).clone();
        let read = |file: &ObjectMeta| {
            let known = known
                .get(&file.location)
                .filter(|(meta, _)| meta == file)
                .map(|(_, sniffed)| Arc::clone(sniffed));
            let file = file.clone();
            async move {
                if let Some(sniffed) = known {
                    return Ok(sniffed);
                }
                let sample =
                    sample(found, &file, self.options.sample_rows < 0, self.options.encoding).await?;
                let sniffed = Arc::new(sniff(found.name(&file), &sample, &self.options)?);
                let mut all = lock(&self.files);
                all.insert(file.location.clone(), (file, Arc::clone(&sniffed)));
                Ok::<_, DataFusionError>(sniffed)
            }
        };
        futures::stream::iter(files.iter().map(read)).buffered(CONCURRENCY).try_collect().await
    }

    /// Returns the layout of a file.
    fn mapped(&self, name: &str, about: &Sniffed, options: &FileOptions) -> Result<Layout> {
        let by_position =
            !about.has_header || self.options.columns.is_some() || !self.options.names.is_empty();
        let same_names =
            !about.has_header && about.names.iter().zip(&self.names).all(|(a, b)| a.eq_ignore_ascii_case(b));
        let fields = match &self.options.columns {
            Some(columns) => columns.len(),
            None => about.names.len(),
        };
        let columns: Vec<Option<usize>> = (0..fields)
            .map(|at| {
                let own = about.names.get(at);
                let by_name = || {
                    self.names.iter().position(|known| own.is_some_and(|own| own.eq_ignore_ascii_case(known)))
                };
                match (&self.options.columns, by_position && !options.union_by_name) {
                    (Some(declared), _) => {
                        let name = &declared[at].0;
                        self.names.iter().position(|known| known.eq_ignore_ascii_case(name))
                    }
                    (None, true) if !same_names && self.options.names.is_empty() => by_name(),
                    (None, _) => by_name(),
                }
            })
            .collect();
        let missing = (0..self.names.len()).find(|column| !columns.contains(&Some(*column)));
        if let Some(missing) = missing.filter(|_| !options.union_by_name && !self.options.null_padding) {
            return Err(DataFusionError::Execution(format!(
                "cannot read {name}: it has no column {}, which other files have; use union_by_name = true to get NULL \
                 there",
                self.names[missing]
            )));
        }
        Ok(Layout {
            separators: about.separators.clone(),
            first_record: about.first_record,
            fields,
            columns,
            has_line_ends: about.has_line_ends,
        })
    }

    /// Returns the format to scan some files with.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or has other columns than the table.
    pub(crate) async fn format(
        &self,
        found: &Found,
        files: &[PartitionedFile],
        options: &FileOptions,
    ) -> Result<Arc<dyn TextFormat>> {
        let metas: Vec<ObjectMeta> = files.iter().map(|file| file.object_meta.clone()).collect();
        let sniffed = self.examine(found, &metas).await?;
        let mut layouts = HashMap::new();
        for (file, about) in metas.iter().zip(&sniffed) {
            layouts.insert(file.location.clone(), Arc::new(self.mapped(found.name(file), about, options)?));
        }
        let splits = self.options.parallel
            && self.options.encoding == Encoding::Utf8
            && layouts.values().all(|layout| !layout.has_line_ends && !layout.separators.carriage_return);
        Ok(Arc::new(CsvFormat {
            options: self.options.clone(),
            columns: self.columns.clone(),
            layouts,
            splits,
        }))
    }
}
