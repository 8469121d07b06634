//! The named options of `read_csv`.

use datafusion::sql::sqlparser::ast::Ident;

use crate::tables::calls::Refused;
use crate::tables::calls::values::{Argument, Types, Value};
use crate::tables::csv::{CsvOptions, Encoding};
use crate::tables::text::temporal::{Pattern, TimeFormat};

/// The options that are honoured.
pub(super) const NAMES: [&str; 40] = [
    "all_varchar",
    "allow_quoted_nulls",
    "auto_detect",
    "auto_type_candidates",
    "buffer_size",
    "column_names",
    "column_types",
    "columns",
    "comment",
    "compression",
    "dateformat",
    "date_format",
    "decimal_separator",
    "delim",
    "delimiter",
    "dtypes",
    "encoding",
    "escape",
    "files_to_sniff",
    "force_not_null",
    "header",
    "ignore_errors",
    "max_line_size",
    "maximum_line_size",
    "names",
    "new_line",
    "normalize_names",
    "null_padding",
    "nullstr",
    "null",
    "parallel",
    "quote",
    "sample_size",
    "sep",
    "skip",
    "strict_mode",
    "thousands",
    "timestampformat",
    "timestamp_format",
    "types",
];

/// Options of DuckDB that are not.
pub(super) const REFUSED: [&str; 4] = ["store_rejects", "rejects_table", "rejects_scan", "rejects_limit"];

pub(super) fn format(name: &str, argument: &Argument) -> Result<TimeFormat, Refused> {
    let text = argument.text(name)?;
    if text.eq_ignore_ascii_case("iso") || text.eq_ignore_ascii_case("auto") {
        return Ok(TimeFormat::Iso);
    }
    let refused = |error: datafusion::common::DataFusionError| Refused {
        message: error.strip_backtrace().trim_start_matches("Error during planning: ").to_string(),
        span: argument.span,
    };
    Ok(TimeFormat::Pattern(Pattern::parse(text).map_err(refused)?))
}

/// Reads one option.
pub(super) fn read(
    options: &mut CsvOptions,
    name: &str,
    argument: &Argument,
    types: &Types<'_>,
) -> Result<(), Refused> {
    let refuse = |message: String| Err(Refused { message, span: argument.span });
    match name {
        "all_varchar" => options.all_varchar = argument.boolean(name)?,
        "allow_quoted_nulls" => options.allow_quoted_nulls = argument.boolean(name)?,
        "auto_type_candidates" => {
            let candidates = types.of(name, argument)?.into_iter().map(|(_, data_type)| data_type);
            options.candidates = Some(candidates.collect());
        }
        "names" | "column_names" => {
            options.names = match &argument.value {
                Value::List(_) => argument.texts(name)?,
                _ => return refuse(format!("the option {name} is a list of names: ['a', 'b']")),
            };
            let mut seen: Vec<String> = options.names.iter().map(|name| name.to_lowercase()).collect();
            seen.sort();
            if let Some(pair) = seen.windows(2).find(|pair| pair[0] == pair[1]) {
                return refuse(format!("the name {} is given twice in {name}; choose another one", pair[0]));
            }
        }
        "types" | "dtypes" | "column_types" => options.types = types.of(name, argument)?,
        "columns" => {
            let expected = "all columns with types: {'a': 'INTEGER', 'b': 'VARCHAR'}";
            options.columns = Some(types.of_columns(name, argument, expected)?);
        }
        "comment" => options.comment = Some(argument.byte(name)?),
        "quote" => options.quote = Some(argument.byte(name)?),
        "escape" => options.escape = Some(argument.byte(name)?),
        "delim" | "sep" | "delimiter" => {
            let text = argument.text(name)?;
            let delimiter = match text {
                "\\t" => "\t",
                text => text,
            };
            if delimiter.is_empty() || delimiter.len() > 4 || delimiter.contains(['\n', '\r']) {
                return refuse(format!("the option {name} is one to four characters, such as ';' or '\\t'"));
            }
            options.delimiter = Some(delimiter.as_bytes().to_vec());
        }
        "dateformat" | "date_format" => {
            options.values.date = format(name, argument)?;
            options.has_date_format = true;
        }
        "timestampformat" | "timestamp_format" => {
            options.values.timestamp = format(name, argument)?;
            options.has_timestamp_format = true;
        }
        "decimal_separator" => match argument.byte(name)? {
            Some(byte @ (b'.' | b',')) => options.values.decimal_separator = byte,
            _ => return refuse("the option decimal_separator is '.' or ','".to_string()),
        },
        "thousands" => options.values.thousands = argument.byte(name)?,
        "encoding" => {
            options.encoding = match argument.text(name)?.to_lowercase().replace('_', "-").as_str() {
                "utf-8" | "utf8" => Encoding::Utf8,
                "latin-1" | "latin1" | "iso-8859-1" | "iso8859-1" => Encoding::Latin1,
                "utf-16" | "utf16" => Encoding::Utf16,
                other => {
                    return refuse(format!(
                        "cannot read the encoding {other}; use 'utf-8', 'latin-1' or 'utf-16'"
                    ));
                }
            };
        }
        "force_not_null" => options.force_not_null = argument.texts(name)?,
        "header" => options.header = Some(argument.boolean(name)?),
        "ignore_errors" => options.ignore_errors = argument.boolean(name)?,
        "normalize_names" => options.normalize_names = argument.boolean(name)?,
        "null_padding" => options.null_padding = argument.boolean(name)?,
        "nullstr" | "null" => {
            options.nulls = argument.texts(name)?.into_iter().map(String::into_bytes).collect()
        }
        "parallel" => options.parallel = argument.boolean(name)?,
        "sample_size" => {
            let rows = argument.integer(name)?;
            if rows == 0 || rows < -1 {
                return refuse(
                    "the option sample_size is a number of rows, or -1 for the whole file".to_string(),
                );
            }
            // A smaller sample would only make errors more likely.
            options.sample_rows = if rows < 0 { -1 } else { i64::MAX };
        }
        "skip" => {
            options.skip = match usize::try_from(argument.integer(name)?) {
                Ok(lines) => Some(lines),
                Err(_) => return refuse("the option skip is a number of lines".to_string()),
            };
        }
        // Without detection, the usual dialect applies.
        "auto_detect" if !argument.boolean(name)? => {
            options.delimiter.get_or_insert_with(|| b",".to_vec());
            options.quote.get_or_insert(Some(b'"'));
            options.escape.get_or_insert(Some(b'"'));
            options.header.get_or_insert(false);
            options.skip.get_or_insert(0);
            options.all_varchar = options.columns.is_none();
        }
        // Lines of any kind and length are read.
        "new_line" => drop(argument.text(name)?),
        "buffer_size" | "files_to_sniff" => drop(argument.integer(name)?),
        "max_line_size" | "maximum_line_size" => drop(argument.integer(name)?),
        "strict_mode" if !argument.boolean(name)? => {
            return refuse("the option strict_mode = false is not supported; use ignore_errors = true to skip lines that are malformed".to_string());
        }
        _ => {}
    }
    Ok(())
}

/// Checks that options do not contradict each other.
pub(super) fn check(options: &CsvOptions, given: &[(Ident, Argument)]) -> Result<(), Refused> {
    for aliases in [
        &["delim", "sep", "delimiter"][..],
        &["types", "dtypes", "column_types"],
        &["names", "column_names"],
        &["nullstr", "null"],
        &["columns", "names", "column_names"],
        &["columns", "types", "dtypes", "column_types"],
    ] {
        let mut both = given.iter().filter(|(name, _)| aliases.contains(&name.value.to_lowercase().as_str()));
        if let (Some((first, _)), Some((second, _))) = (both.next(), both.next()) {
            let message = format!("the options {first} and {second} cannot be given together; remove one");
            return Err(Refused { message, span: second.span });
        }
    }
    let decimal = options.values.decimal_separator;
    if options.values.thousands == Some(decimal) {
        let span = given
            .iter()
            .find(|(name, _)| name.value.eq_ignore_ascii_case("thousands"))
            .map(|(name, _)| name.span);
        let message =
            "the options thousands and decimal_separator are the same character; choose another one"
                .to_string();
        return Err(Refused {
            message,
            span: span.unwrap_or_else(datafusion::sql::sqlparser::tokenizer::Span::empty),
        });
    }
    Ok(())
}
