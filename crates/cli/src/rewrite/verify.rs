//! Compares the rows of a rewritten table with those of the table.

use super::source::{Source, TABLE, column_name, statement};
use crate::execute::execute;
use crate::failure::Failure;
use crate::output::result_document;
use arrow::datatypes::DataType;
use pellucid_layout::Layout;
use serde_json::Value;
use std::path::Path;

/// The name of the rewritten table in statements.
const WRITTEN: &str = "rewritten_copy";

/// Compares the number of rows, and the sum of the rows' hashes, which does not depend on their order.
///
/// # Errors
/// Returns an error if they differ or cannot be computed.
pub fn same_rows(source: &Source<'_>, layout: &Layout, folder: &Path) -> Result<(), Failure> {
    source.engine.register_table(WRITTEN, &folder.to_string_lossy())?;
    let column = |name: &String| {
        let narrowed = layout.types.iter().any(|(column, _)| column == name);
        let field = source.scan.schema.field_with_name(name).ok().filter(|_| narrowed);
        match field.map(|field| field.data_type()) {
            // Narrower values are compared as they were.
            Some(DataType::Decimal128(digits, scale)) => {
                format!("CAST({} AS DECIMAL({digits}, {scale}))", column_name(name))
            }
            Some(_) => format!("CAST({} AS VARCHAR)", column_name(name)),
            None => column_name(name),
        }
    };
    let columns: Vec<String> = source.scan.columns.iter().map(column).collect();
    let sums = |table: &str| -> Result<Value, Failure> {
        let sql = format!(
            "SELECT count(*), sum(CAST(hash({}) AS DECIMAL(38, 0))) FROM {table}",
            columns.join(", ")
        );
        let result = execute(source.engine, statement(&sql)?, None, source.console)?.result;
        let document = result_document(&result.schema, &result.batches);
        let unprintable =
            |error| Failure::Failed(format!("cannot verify the rows: {error}; use --no-verify"));
        Ok(document.map_err(unprintable)?["rows"].take())
    };
    let (before, after) = (sums(TABLE)?, sums(WRITTEN)?);
    match before == after {
        true => Ok(()),
        false => Err(Failure::Failed(format!(
            "cannot rewrite the table: its count and checksum are {before}, those of the new files {after}; nothing was \
             written; please report it with the table"
        ))),
    }
}
