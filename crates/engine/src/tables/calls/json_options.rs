//! The named options of `read_json`.

use crate::tables::calls::Refused;
use crate::tables::calls::csv_options::format;
use crate::tables::calls::values::{Argument, Types, Value};
use crate::tables::json::{JsonOptions, Layout};

/// The options that are honoured.
pub(super) const NAMES: [&str; 11] = [
    "auto_detect",
    "columns",
    "compression",
    "date_format",
    "dateformat",
    "format",
    "maximum_object_size",
    "records",
    "sample_size",
    "timestamp_format",
    "timestampformat",
];

/// Options of DuckDB that are not.
pub(super) const REFUSED: [&str; 6] = [
    "convert_strings_to_integers",
    "field_appearance_threshold",
    "ignore_errors",
    "map_inference_threshold",
    "maximum_depth",
    "maximum_sample_files",
];

/// Reads one option.
pub(super) fn read(
    options: &mut JsonOptions,
    name: &str,
    argument: &Argument,
    types: &Types<'_>,
) -> Result<(), Refused> {
    let refuse = |message: String| Err(Refused { message, span: argument.span });
    match name {
        "columns" => {
            let expected = "columns with types: {'a': 'INTEGER', 'b': 'VARCHAR'}";
            options.columns = Some(types.of_columns(name, argument, expected)?);
        }
        "dateformat" | "date_format" => options.values.date = format(name, argument)?,
        "timestampformat" | "timestamp_format" => options.values.timestamp = format(name, argument)?,
        "format" => {
            options.layout = match argument.text(name)?.to_lowercase().as_str() {
                "auto" => Layout::Auto,
                "newline_delimited" | "nd" => Layout::Lines,
                "array" => Layout::List,
                "unstructured" => Layout::Sequence,
                other => {
                    return refuse(format!(
                        "cannot read the format {other}; use 'auto', 'newline_delimited', 'array' or 'unstructured'"
                    ));
                }
            };
        }
        "records" => {
            let is_auto = matches!(&argument.value, Value::Text(word) if word.eq_ignore_ascii_case("auto"));
            options.no_records = !is_auto && !argument.boolean(name)?;
        }
        "sample_size" => options.whole_sample = argument.integer(name)? == -1,
        // Records of any size are read.
        "maximum_object_size" => drop(argument.integer(name)?),
        "auto_detect" if !argument.boolean(name)? => {
            return refuse(
                "the option auto_detect = false is not supported; give the columns instead".to_string(),
            );
        }
        _ => {}
    }
    Ok(())
}
