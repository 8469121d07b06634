//! Opens tables over files: lists the files, and reads what is needed for the columns.

use std::sync::Arc;

use datafusion::arrow::compute::can_cast_types;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::type_coercion::binary::type_union_resolution;
use futures::{StreamExt, TryStreamExt};
use object_store::ObjectMeta;

use crate::lakes::{self, Version};
use crate::tables::csv::table::CsvReader;
use crate::tables::files::FilesTable;
use crate::tables::find::{self, Format, Kind, compression_type};
use crate::tables::found::Found;
use crate::tables::json::table::JsonReader;
use crate::tables::options::FileOptions;
use crate::tables::paths;
use crate::types::names;

/// Maximum number of files whose columns are read at once.
const CONCURRENCY: usize = 16;

/// Reads the files of a table.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a table has one")]
pub(crate) enum Reader {
    Csv(CsvReader),
    Json(JsonReader),
    Format(Arc<dyn FileFormat>),
}

impl Reader {
    /// Drops all columns but those at some positions.
    pub(crate) fn keep(self, kept: &[usize]) -> Self {
        match self {
            Self::Csv(csv) => Self::Csv(csv.keep(kept)),
            Self::Json(json) => Self::Json(json.keep(kept)),
            format => format,
        }
    }
}

fn failed<T>(message: String) -> Result<T> {
    Err(DataFusionError::Execution(message))
}

/// Creates the table of the files at some places.
///
/// # Errors
/// Returns an error if no file matches or can be read, no format has the extension, or the files do not fit together.
pub(crate) async fn listing(
    state: &SessionState,
    places: &[String],
    options: &FileOptions,
) -> Result<Arc<dyn TableProvider>> {
    if let [place] = places {
        let listed = find::find(state, place).await?;
        if let Some(lake) = listed.lake.filter(|_| *options == FileOptions::default()) {
            return lakes::open(state, lake, place, &listed.url, &listed.files, Version::Newest).await;
        }
    }
    let found = find_all(state, places, options).await?;
    let shown = places.join(", ");
    let (reader, schema) = match found.format {
        Format::Csv => {
            let (reader, schema) = CsvReader::open(&found, options).await?;
            (Reader::Csv(reader), schema)
        }
        Format::Json => {
            check_sizes(&shown, &found)?;
            let (reader, schema) = JsonReader::open(&found, options).await?;
            (Reader::Json(reader), schema)
        }
        format => {
            if options.file_row_number && format != Format::Parquet {
                return Err(DataFusionError::Plan(
                    "file_row_number is an option of Parquet files".to_string(),
                ));
            }
            check_sizes(&shown, &found)?;
            let factory = state
                .get_file_format_factory(format.name())
                .ok_or_else(|| DataFusionError::Internal(format!("no format {}", format.name())))?;
            let mut settings = std::collections::HashMap::new();
            if let Some(compressed) = found.compressed {
                settings.insert("format.compression".to_string(), compressed.to_string());
            }
            let format = factory.create(state, &settings)?;
            let schema = merged(state, &shown, &found, format.as_ref(), options).await?;
            (Reader::Format(format), schema)
        }
    };
    Ok(Arc::new(FilesTable::new(places.to_vec(), options.clone(), reader, &schema, &found)?))
}

/// Finds the files at some places, in their order.
///
/// # Errors
/// Returns an error if no file matches a place, or the files have different formats or stores.
pub(crate) async fn find_all(state: &dyn Session, places: &[String], options: &FileOptions) -> Result<Found> {
    let mut all: Option<(Found, Kind)> = None;
    for place in places {
        let mut listed = find::find(state, place).await?;
        let by_content = listed.kind.take();
        if let Some(lake) = listed.lake {
            return failed(format!(
                "cannot read {place} as files: it is {}, whose log says which of its files and rows count; read FROM \
                 '{place}' alone and without options",
                lake.a()
            ));
        }
        let (kind, mut files) = match (options.format, by_content) {
            (None, Some(kind)) => (kind.checked(place)?, listed.files.iter().collect()),
            (None, None) => {
                let kind = find::infer_kind(place, &paths::matching_files(&listed.url, &listed.files, "")?)?;
                let files = paths::matching_files(&listed.url, &listed.files, &kind.extension)?;
                (kind, files)
            }
            (Some(format), by_content) => {
                let mut files = paths::matching_files(&listed.url, &listed.files, "")?;
                if listed.url.is_collection() && listed.url.get_glob().is_none() {
                    files.retain(|file| find::kind_of(file).is_some_and(|kind| kind.format == format));
                }
                let Some(first) = files.first() else {
                    return failed(format!(
                        "{place}: no file has the format {}; check the path",
                        format.name()
                    ));
                };
                let compressed = match by_content {
                    Some(kind) => kind.compressed,
                    None => find::compression_of(first),
                };
                (Kind { format, compressed, extension: String::new() }, files)
            }
        };
        // Hidden files of a folder do not belong to it, but one that is named does.
        files.sort_by(|a, b| a.location.cmp(&b.location));
        let compressed = options.compression.unwrap_or(kind.compressed);
        let names: Vec<String> = files.iter().map(|file| listed.shown(place, file)).collect();
        match &mut all {
            None => {
                all = Some((
                    Found {
                        names,
                        files: files.iter().map(|file| (*file).clone()).collect(),
                        store_url: listed.url.object_store().as_str().to_string(),
                        store: listed.store,
                        format: kind.format,
                        compression: compression_type(compressed),
                        compressed,
                        extension: kind.extension.clone(),
                    },
                    kind,
                ));
            }
            Some((found, first)) => {
                if first.format != kind.format || first.compressed != kind.compressed {
                    return failed(format!(
                        "{place}: the files have different formats, {} and {}; read them as two tables",
                        first.extension, kind.extension
                    ));
                }
                if found.store_url != listed.url.object_store().as_str() {
                    return failed(format!(
                        "{place}: the files are in different stores; read them as two tables and use UNION ALL"
                    ));
                }
                found.names.extend(names);
                found.files.extend(files.iter().map(|file| (*file).clone()));
            }
        }
    }
    all.map(|(found, _)| found)
        .ok_or_else(|| DataFusionError::Plan("the list of files is empty; name one".to_string()))
}

fn check_sizes(shown: &str, found: &Found) -> Result<()> {
    let text = found.format == Format::Json;
    if let Some(empty) = found.files.iter().find(|file| file.size == 0 && !text) {
        return failed(format!("{}: the file is empty; remove it, or write it again", found.name(empty)));
    }
    if found.files.iter().all(|file| file.size == 0) {
        return failed(format!("{shown}: cannot infer columns: the file is empty; write it again"));
    }
    Ok(())
}

/// Reads the columns of a file.
async fn columns_of(
    state: &dyn Session,
    found: &Found,
    file: &ObjectMeta,
    format: &dyn FileFormat,
) -> Result<SchemaRef> {
    format.infer_schema(state, &found.store, std::slice::from_ref(file)).await.map_err(|error| {
        error.context(format!(
            "{}: cannot read the file in the format of its extension; check that it is complete",
            found.name(file)
        ))
    })
}

/// Returns the columns of the first file, or those of all files by name.
async fn merged(
    state: &dyn Session,
    shown: &str,
    found: &Found,
    format: &dyn FileFormat,
    options: &FileOptions,
) -> Result<SchemaRef> {
    let files: Vec<ObjectMeta> = found.files.iter().filter(|file| file.size > 0).cloned().collect();
    let read = |file: ObjectMeta| async move {
        let schema = columns_of(state, found, &file, format).await?;
        Ok::<_, DataFusionError>((file, schema))
    };
    let schemas: Vec<(ObjectMeta, SchemaRef)> =
        futures::stream::iter(files).map(read).buffered(CONCURRENCY).try_collect().await?;
    let union = options.union_by_name;
    let mut fields: Vec<FieldRef> = Vec::new();
    let mut owners: Vec<&ObjectMeta> = Vec::new();
    for (at, (file, schema)) in schemas.iter().enumerate() {
        for field in schema.fields() {
            let known = fields.iter().position(|known| known.name() == field.name());
            let known = known
                .or_else(|| fields.iter().position(|known| known.name().eq_ignore_ascii_case(field.name())));
            match known {
                None if at == 0 || union => {
                    fields.push(Arc::new(field.as_ref().clone().with_nullable(true)));
                    owners.push(file);
                }
                None => {}
                Some(at) => {
                    let (a, b) = (fields[at].data_type(), field.data_type());
                    if a == b {
                        continue;
                    }
                    match common_type(a, b, union) {
                        // A query that needs the column is refused.
                        None if !union => {}
                        Some(common) => fields[at] = Arc::new(Field::new(fields[at].name(), common, true)),
                        None => {
                            return failed(format!(
                                "{shown}: the files have different schemas: column {} has type {} in {} and {} in \
                                 {}; read them as two tables and CAST the column of one",
                                field.name(),
                                names::name(a),
                                found.name(owners[at]),
                                names::name(b),
                                found.name(file)
                            ));
                        }
                    }
                }
            }
        }
    }
    let metadata = schemas.first().map(|(_, schema)| schema.metadata().clone()).unwrap_or_default();
    Ok(Arc::new(Schema::new_with_metadata(fields, metadata)))
}

/// Returns the type for values of two types: the wider one, or the first if values of the second can become it.
fn common_type(a: &DataType, b: &DataType, wider: bool) -> Option<DataType> {
    let both_numbers = a.is_numeric() && b.is_numeric();
    if a == b {
        return Some(a.clone());
    }
    if wider || both_numbers {
        return type_union_resolution(&[a.clone(), b.clone()]);
    }
    let alike = (a.is_string() && b.is_string())
        || (a.is_temporal() && b.is_temporal())
        || (a.is_nested() && b.is_nested());
    (alike && can_cast_types(b, a)).then(|| a.clone())
}

/// Checks that all files have the columns that a query needs.
///
/// # Errors
/// Returns an error that names the first column and file without it.
pub(crate) async fn check_columns(
    state: &dyn Session,
    found: &Found,
    files: &[PartitionedFile],
    format: &dyn FileFormat,
    schema: &SchemaRef,
    needed: &[usize],
) -> Result<()> {
    if files.len() < 2 {
        return Ok(());
    }
    for file in files {
        let of_file = columns_of(state, found, &file.object_meta, format).await?;
        for at in needed {
            let (name, wanted) = (schema.field(*at).name(), schema.field(*at).data_type());
            let own = of_file.fields().iter().find(|field| field.name().eq_ignore_ascii_case(name));
            if let Some(own) = own.filter(|own| common_type(wanted, own.data_type(), false).is_none()) {
                return failed(format!(
                    "cannot read {}: the files have different schemas: column {name} has type {} there and {} in the \
                     first file; read them as two tables and CAST the column of one",
                    found.name(&file.object_meta),
                    names::name(own.data_type()),
                    names::name(wanted)
                ));
            }
            if own.is_none() {
                return failed(format!(
                    "cannot read {}: it has no column {name}, which other files have; use union_by_name = true to get \
                     NULL there",
                    found.name(&file.object_meta)
                ));
            }
        }
    }
    Ok(())
}

/// Returns the names of the files that match a pattern.
///
/// # Errors
/// Returns an error if none does.
pub(crate) async fn matches(state: &dyn Session, place: &str) -> Result<Vec<String>> {
    let listed = find::find(state, place).await?;
    let files = paths::matching_files(&listed.url, &listed.files, "")?;
    let mut names: Vec<String> = files.iter().map(|file| listed.shown(place, file)).collect();
    names.sort();
    Ok(names)
}
