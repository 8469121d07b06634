//! Names of types, as DuckDB has them.

use datafusion::arrow::datatypes::{DataType, TimeUnit};

/// Returns the name of a type: `BIGINT`, `STRUCT(a INTEGER)`, `VARCHAR[]`.
pub(crate) fn name(kind: &DataType) -> String {
    match kind {
        DataType::Null => "\"NULL\"".to_string(),
        DataType::Boolean => "BOOLEAN".to_string(),
        DataType::Int8 => "TINYINT".to_string(),
        DataType::Int16 => "SMALLINT".to_string(),
        DataType::Int32 => "INTEGER".to_string(),
        DataType::Int64 => "BIGINT".to_string(),
        DataType::UInt8 => "UTINYINT".to_string(),
        DataType::UInt16 => "USMALLINT".to_string(),
        DataType::UInt32 => "UINTEGER".to_string(),
        DataType::UInt64 => "UBIGINT".to_string(),
        DataType::Float16 | DataType::Float32 => "FLOAT".to_string(),
        DataType::Float64 => "DOUBLE".to_string(),
        DataType::Decimal32(digits, scale) => format!("DECIMAL({digits},{scale})"),
        DataType::Decimal64(digits, scale) => format!("DECIMAL({digits},{scale})"),
        DataType::Decimal128(digits, scale) | DataType::Decimal256(digits, scale) => {
            format!("DECIMAL({digits},{scale})")
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "VARCHAR".to_string(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            "BLOB".to_string()
        }
        DataType::Date32 | DataType::Date64 => "DATE".to_string(),
        DataType::Time32(_) | DataType::Time64(_) => "TIME".to_string(),
        DataType::Timestamp(_, Some(_)) => "TIMESTAMP WITH TIME ZONE".to_string(),
        DataType::Timestamp(TimeUnit::Second, None) => "TIMESTAMP_S".to_string(),
        DataType::Timestamp(TimeUnit::Millisecond, None) => "TIMESTAMP_MS".to_string(),
        DataType::Timestamp(_, None) => "TIMESTAMP".to_string(),
        DataType::Interval(_) | DataType::Duration(_) => "INTERVAL".to_string(),
        DataType::List(field) | DataType::LargeList(field) | DataType::ListView(field) => {
            format!("{}[]", name(field.data_type()))
        }
        DataType::FixedSizeList(field, length) => format!("{}[{length}]", name(field.data_type())),
        DataType::Struct(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|field| format!("{} {}", quoted(field.name()), name(field.data_type())))
                .collect();
            format!("STRUCT({})", fields.join(", "))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => {
                format!("MAP({}, {})", name(fields[0].data_type()), name(fields[1].data_type()))
            }
            _ => "MAP".to_string(),
        },
        DataType::Dictionary(_, values) => name(values),
        other => other.to_string(),
    }
}

/// Quotes a name that is not a plain identifier.
fn quoted(field: &str) -> String {
    let plain = !field.is_empty()
        && !field.starts_with(|c: char| c.is_ascii_digit())
        && field.chars().all(|c| c.is_alphanumeric() || c == '_');
    if plain { field.to_string() } else { format!("\"{}\"", field.replace('"', "\"\"")) }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::Field;

    use super::*;

    #[test]
    fn types_have_the_names_of_duckdb() {
        let item =
            DataType::new_list(DataType::Struct(vec![Field::new("a b", DataType::Int32, true)].into()), true);
        assert_eq!(name(&item), "STRUCT(\"a b\" INTEGER)[]");
        assert_eq!(name(&DataType::Decimal128(10, 2)), "DECIMAL(10,2)");
    }
}
