//! The named options of the table functions over files.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::sql::sqlparser::ast::Ident;

use crate::logical::nearest::hint;
use crate::tables::calls::values::{Argument, Types, Value};
use crate::tables::calls::{Refused, csv_options, json_options, shown};
use crate::tables::find::Format;
use crate::tables::json::Layout;
use crate::tables::options::FileOptions;

/// A table function over files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    Csv,
    Parquet,
    Json,
    Ndjson,
    JsonObjects,
    Glob,
    SniffCsv,
    ParquetMetadata,
    ParquetSchema,
    ParquetFileMetadata,
    ParquetKvMetadata,
}

impl Function {
    /// All names, in lower case.
    pub(crate) const NAMES: [(&str, Function); 17] = [
        ("read_csv", Function::Csv),
        ("read_csv_auto", Function::Csv),
        ("read_parquet", Function::Parquet),
        ("parquet_scan", Function::Parquet),
        ("read_json", Function::Json),
        ("read_json_auto", Function::Json),
        ("read_ndjson", Function::Ndjson),
        ("read_ndjson_auto", Function::Ndjson),
        ("read_json_objects", Function::JsonObjects),
        ("read_ndjson_objects", Function::JsonObjects),
        ("read_json_objects_auto", Function::JsonObjects),
        ("glob", Function::Glob),
        ("sniff_csv", Function::SniffCsv),
        ("parquet_metadata", Function::ParquetMetadata),
        ("parquet_schema", Function::ParquetSchema),
        ("parquet_file_metadata", Function::ParquetFileMetadata),
        ("parquet_kv_metadata", Function::ParquetKvMetadata),
    ];

    pub(crate) fn by_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, function)| *function)
    }

    fn format(self) -> Option<Format> {
        match self {
            Self::Csv | Self::SniffCsv => Some(Format::Csv),
            Self::Parquet
            | Self::ParquetMetadata
            | Self::ParquetSchema
            | Self::ParquetFileMetadata
            | Self::ParquetKvMetadata => Some(Format::Parquet),
            Self::Json | Self::Ndjson | Self::JsonObjects => Some(Format::Json),
            Self::Glob => None,
        }
    }

    /// Returns the names of its options.
    fn options(self) -> Vec<&'static str> {
        let files = ["filename", "hive_partitioning", "hive_types", "hive_types_autocast", "union_by_name"];
        let own: &[&str] = match self {
            Self::Csv => &csv_options::NAMES,
            Self::Parquet => &["binary_as_string", "compression", "file_row_number"],
            Self::Json | Self::Ndjson | Self::JsonObjects => &json_options::NAMES,
            Self::SniffCsv => return csv_options::NAMES.to_vec(),
            _ => return Vec::new(),
        };
        files.iter().chain(own).copied().collect()
    }

    /// Returns the names of options of DuckDB that cannot be honoured.
    fn refused(self) -> &'static [&'static str] {
        match self {
            Self::Csv | Self::SniffCsv => &csv_options::REFUSED,
            Self::Parquet => {
                &["can_have_nan", "encryption_config", "explicit_cardinality", "parquet_version", "schema"]
            }
            Self::Json | Self::Ndjson | Self::JsonObjects => &json_options::REFUSED,
            _ => &[],
        }
    }
}

/// Reads the options of a call.
///
/// # Errors
/// Returns an error for an option that is unknown, has a wrong value, or cannot be honoured.
pub(super) fn read(
    function: Function,
    options: &[(Ident, Argument)],
    sql_type: &(dyn Fn(&str) -> Option<DataType> + Sync),
) -> Result<FileOptions, Refused> {
    let types = Types(sql_type);
    let mut read = FileOptions { format: function.format(), ..FileOptions::default() };
    read.json.objects = function == Function::JsonObjects;
    if function == Function::Ndjson {
        read.json.layout = Layout::Lines;
    }
    for (ident, argument) in options {
        let name = ident.value.to_lowercase();
        let known = function.options();
        if function.refused().contains(&name.as_str()) {
            let message = format!("the option {name} is not supported; remove it");
            return Err(Refused { message, span: ident.span });
        }
        if !known.contains(&name.as_str()) {
            let mut names: Vec<String> = known.iter().map(|name| name.to_string()).collect();
            names.sort();
            let hint = if names.is_empty() {
                "it has none".to_string()
            } else {
                hint(&name, names, "the options are")
            };
            let message = format!("cannot find option {name}; {hint}");
            return Err(Refused { message, span: ident.span });
        }
        match name.as_str() {
            "filename" => {
                read.filename = match &argument.value {
                    Value::Text(column) if !["true", "false"].contains(&column.to_lowercase().as_str()) => {
                        Some(column.clone())
                    }
                    _ => argument.boolean(&name)?.then(|| "filename".to_string()),
                }
            }
            "hive_partitioning" => read.hive_partitioning = Some(argument.boolean(&name)?),
            "hive_types" => {
                read.hive_types = types.of_columns(&name, argument, "types by key: {'year': 'BIGINT'}")?;
            }
            "hive_types_autocast" => read.hive_autocast = argument.boolean(&name)?,
            "union_by_name" => read.union_by_name = argument.boolean(&name)?,
            "compression" => read.compression = compression(argument)?,
            "file_row_number" => read.file_row_number = argument.boolean(&name)?,
            // Text of files without annotation is read as such anyway.
            "binary_as_string" if function == Function::Parquet => {
                if argument.boolean(&name)? {
                    let message = "the option binary_as_string is not supported; CAST the column to VARCHAR"
                        .to_string();
                    return Err(Refused { message, span: ident.span });
                }
            }
            _ if read.format == Some(Format::Json) => {
                json_options::read(&mut read.json, &name, argument, &types)?
            }
            _ => csv_options::read(&mut read.csv, &name, argument, &types)?,
        }
    }
    if !read.hive_types.is_empty() && read.hive_partitioning.is_none() {
        read.hive_partitioning = Some(true);
    }
    csv_options::check(&read.csv, options)?;
    Ok(read)
}

fn compression(argument: &Argument) -> Result<Option<Option<&'static str>>, Refused> {
    Ok(match argument.text("compression")?.to_lowercase().as_str() {
        "auto" | "auto_detect" => None,
        "none" | "uncompressed" => Some(None),
        "gzip" | "gz" => Some(Some("gzip")),
        "zstd" | "zst" => Some(Some("zstd")),
        "bzip2" | "bz2" => Some(Some("bzip2")),
        "xz" => Some(Some("xz")),
        _ => {
            let found = shown(&argument.value);
            let message = format!(
                "cannot read the compression {found}; use 'auto', 'none', 'gzip', 'zstd', 'bzip2' or 'xz'"
            );
            return Err(Refused { message, span: argument.span });
        }
    })
}
