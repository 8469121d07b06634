//! COPY in DuckDB's form, rewritten to DataFusion's `COPY … STORED AS … OPTIONS (…)` and to INSERT.

use datafusion::common::Result;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::statements::own::{CopyFrom, CopyTo, Own};
use crate::statements::syntax::copy_options::{self, CopyOption};
use crate::statements::syntax::words::{Words, quoted, refused, spelled};

/// A rewritten statement, and what else it does.
pub(crate) type Rewritten = (Vec<TokenWithSpan>, Option<Own>);

/// Rewrites a COPY; `None` for one in DataFusion's own form.
///
/// # Errors
/// Returns an error with its place for an option that is unknown or cannot be honoured.
pub(crate) fn rewrite(mut words: Words<'_>) -> Result<Option<Rewritten>> {
    if words.is("INTO") {
        return Ok(None);
    }
    let start = words.span();
    let mut source: Vec<TokenWithSpan> = Vec::new();
    let mut columns: Vec<TokenWithSpan> = Vec::new();
    let is_query = words.eat_token(&Token::LParen);
    if is_query {
        source.extend_from_slice(words.group());
    } else {
        while words.peek().is_some_and(|t| t.token != Token::LParen) && !words.is("TO") && !words.is("FROM") {
            source.extend(words.next().cloned());
        }
        if words.eat_token(&Token::LParen) {
            columns.extend_from_slice(words.group());
        }
    }
    let to = words.is("TO");
    if source.is_empty() || !(words.eat(&["TO"]) || words.eat(&["FROM"])) {
        return Ok(None);
    }
    let span = words.span();
    let Some(file) = words.text() else {
        return Err(refused(span, "COPY needs the name of a file in single quotes after TO or FROM"));
    };
    let own_form = |t: &TokenWithSpan| {
        ["STORED", "OPTIONS", "PARTITIONED"].iter().any(|word| super::words::is_word(&t.token, word))
    };
    if to && words.rest().iter().any(own_form) {
        return Ok(None);
    }
    let options = copy_options::parse(&mut words)?;
    let written = |text: &str| spelled(text, start);
    if to {
        if !is_query && columns.is_empty() {
            columns = written("*");
        }
        let query = match is_query {
            true => source,
            false => [written("SELECT "), columns, written(" FROM "), source].concat(),
        };
        let (clauses, copy) = target(&file, &options)?;
        let tail = format!(") TO {} {clauses}", quoted(&file));
        return Ok(Some(([written("COPY ("), query, written(&tail)].concat(), Some(Own::CopyTo(copy)))));
    }
    if is_query {
        return Err(refused(start, "cannot COPY into a query: COPY … FROM needs a table; name one"));
    }
    let mut tokens = [written("INSERT INTO "), source].concat();
    if !columns.is_empty() {
        tokens.extend([written("("), columns, written(")")].concat());
    }
    let place = spelled(" SELECT * FROM ", span);
    let name = spelled(&format!("\"{}\"", file.replace('"', "\"\"")), span);
    tokens.extend([place, name].concat());
    let format = format(&file, &options)?;
    check_read(&format, &options)?;
    Ok(Some((tokens, Some(Own::CopyFrom(CopyFrom { file, format, options, span })))))
}

/// Returns the format that the options or the file's extension say, in lower case.
fn format(file: &str, options: &[CopyOption]) -> Result<String> {
    if let Some(option) = options.iter().find(|option| option.name == "FORMAT") {
        let name = option.value()?.to_lowercase();
        return match name.as_str() {
            "csv" | "parquet" | "json" => Ok(name),
            "arrow" => Ok(name),
            "ndjson" | "jsonl" => Ok("json".to_string()),
            _ => Err(option.wrong("the formats are csv, parquet, json and arrow")),
        };
    }
    let lower = file.to_lowercase();
    let plain =
        [".gz", ".zst", ".bz2", ".xz"].iter().find_map(|end| lower.strip_suffix(end)).unwrap_or(&lower);
    Ok(match plain.rsplit_once('.').map(|(_, extension)| extension) {
        Some("parquet" | "parq" | "pq") => "parquet",
        Some("json" | "jsonl" | "ndjson") => "json",
        Some("arrow" | "arrows" | "ipc" | "feather") => "arrow",
        _ => "csv",
    }
    .to_string())
}

/// Refuses options that reading a file does not have.
fn check_read(format: &str, options: &[CopyOption]) -> Result<()> {
    for option in options {
        let has = match option.name.as_str() {
            "FORMAT" => true,
            "HEADER" | "DELIMITER" | "SEP" | "DELIM" | "QUOTE" | "ESCAPE" | "NULLSTR" | "NULL"
            | "COMPRESSION" => format == "csv",
            _ => false,
        };
        if !has {
            return Err(option.wrong(&format!("COPY … FROM of a {format} file cannot honour it; remove it")));
        }
    }
    Ok(())
}

/// Returns the clauses of DataFusion's COPY for the options of a target.
fn target(file: &str, options: &[CopyOption]) -> Result<(String, CopyTo)> {
    let format = format(file, options)?;
    let mut copy = CopyTo { csv: format == "csv", ..CopyTo::default() };
    let mut set: Vec<(&str, String)> = Vec::new();
    if copy.csv {
        set.push(("has_header", "true".to_string()));
        set.push(("timestamp_format", "%Y-%m-%d %H:%M:%S%.f".to_string()));
        set.push(("timestamp_tz_format", "%Y-%m-%d %H:%M:%S%.f%:::z".to_string()));
    }
    if let Some(compression) = compression(file, &format, options)? {
        set.push(("compression", compression));
    }
    for option in options {
        match option.name.as_str() {
            "FORMAT" | "COMPRESSION" => {}
            // Parquet's levels are part of the compression.
            "COMPRESSION_LEVEL" if format == "parquet" => {}
            "PARTITION_BY" => copy.partition_by.clone_from(&option.values),
            // The folder must be empty, where these agree.
            "OVERWRITE" | "OVERWRITE_OR_IGNORE" | "APPEND" | "USE_TMP_FILE" => drop(option.is_true()?),
            "PER_THREAD_OUTPUT" if !option.is_true()? => {}
            "ARRAY" if format == "json" && !option.is_true()? => {}
            "ARRAY" if format == "json" => {
                return Err(option.wrong(
                    "JSON files have one object in each line; remove it, or print a list with --format json",
                ));
            }
            "WRITE_PARTITION_COLUMNS" => copy.keep_partition_columns = option.is_true()?,
            name => match (format.as_str(), name) {
                ("csv", _) => csv(option, &mut set, &mut copy)?,
                ("parquet", "ROW_GROUP_SIZE") => {
                    set.push(("max_row_group_size", option.number()?.to_string()))
                }
                ("parquet", "ROW_GROUP_SIZE_BYTES") => {
                    set.push(("max_row_group_bytes", option.number()?.to_string()));
                }
                ("parquet", "PARQUET_VERSION") if option.value()?.eq_ignore_ascii_case("v1") => {
                    set.push(("writer_version", "1.0".to_string()));
                }
                ("parquet", "PARQUET_VERSION") if option.value()?.eq_ignore_ascii_case("v2") => {
                    set.push(("writer_version", "2.0".to_string()));
                }
                _ => return Err(option.wrong(&format!("a {format} file cannot honour it; remove it"))),
            },
        }
    }
    let mut clauses = format!("STORED AS {}", format.to_uppercase());
    let mut written: Vec<String> =
        set.iter().map(|(key, value)| format!("'format.{key}' {}", quoted(value))).collect();
    if copy.keep_partition_columns {
        written.push("'execution.keep_partition_by_columns' 'true'".to_string());
    }
    if !written.is_empty() {
        clauses.push_str(&format!(" OPTIONS ({})", written.join(", ")));
    }
    Ok((clauses, copy))
}

/// Translates an option of CSV files.
fn csv(option: &CopyOption, set: &mut Vec<(&str, String)>, copy: &mut CopyTo) -> Result<()> {
    let (key, value) = match option.name.as_str() {
        "HEADER" => ("has_header", option.is_true()?.to_string()),
        "DELIMITER" | "SEP" | "DELIM" => {
            let text = option.value()?;
            let tab = CopyOption { values: vec![text.replace("\\t", "\t")], ..option.clone() };
            ("delimiter", tab.byte()?.to_string())
        }
        "QUOTE" => ("quote", option.byte()?.to_string()),
        "ESCAPE" => {
            set.push(("double_quote", "false".to_string()));
            ("escape", option.byte()?.to_string())
        }
        "NULLSTR" | "NULL" => ("null_value", option.value()?.to_string()),
        "DATEFORMAT" => ("date_format", pattern(option)?),
        "TIMESTAMPFORMAT" => {
            set.retain(|(key, _)| !key.starts_with("timestamp"));
            set.push(("timestamp_tz_format", pattern(option)?));
            ("timestamp_format", pattern(option)?)
        }
        "FORCE_QUOTE" => {
            copy.force_quote = Some(option.span);
            ("quote_style", "always".to_string())
        }
        "ENCODING"
            if option.value()?.eq_ignore_ascii_case("utf-8")
                || option.value()?.eq_ignore_ascii_case("utf8") =>
        {
            return Ok(());
        }
        _ => return Err(option.wrong("a csv file cannot honour it; remove it")),
    };
    set.retain(|(other, _)| *other != key);
    set.push((key, value));
    Ok(())
}

/// Returns DuckDB's pattern of a date or a time as the writer of CSV files has it.
fn pattern(option: &CopyOption) -> Result<String> {
    let pattern = option.value()?;
    Ok(pattern.replace("%f", "%6f").replace("%g", "%3f").replace("%n", "%9f"))
}

fn compression(file: &str, format: &str, options: &[CopyOption]) -> Result<Option<String>> {
    let level = options.iter().find(|o| o.name == "COMPRESSION_LEVEL").map(CopyOption::number).transpose()?;
    let by_name = match file.to_lowercase() {
        name if name.ends_with(".gz") => Some("gzip"),
        name if name.ends_with(".zst") => Some("zstd"),
        _ => None,
    };
    let Some(option) = options.iter().find(|option| option.name == "COMPRESSION") else {
        return Ok(match format {
            "parquet" => Some(level.map_or("snappy".to_string(), |level| format!("zstd({level})"))),
            _ => by_name.map(str::to_string),
        });
    };
    let name = option.value()?.to_lowercase();
    let leveled = |usual: u64| format!("{name}({})", level.unwrap_or(usual));
    Ok(Some(match (format, name.as_str()) {
        ("parquet", "uncompressed" | "none") => "uncompressed".to_string(),
        ("parquet", "snappy" | "lz4_raw") => name,
        ("parquet", "lz4") => "lz4_raw".to_string(),
        ("parquet", "zstd") => leveled(3),
        ("parquet", "gzip") => leveled(6),
        ("parquet", "brotli") => leveled(4),
        ("csv" | "json", "gzip" | "zstd") => name,
        ("csv" | "json", "uncompressed" | "none") => return Ok(None),
        ("csv" | "json", "auto" | "auto_detect") => return Ok(by_name.map(str::to_string)),
        _ => return Err(option.wrong(&format!("a {format} file does not support it"))),
    }))
}
