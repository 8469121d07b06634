//! DuckDB's names of types.

use datafusion::arrow::datatypes::{DataType, TimeUnit};

/// Words that DuckDB quotes in names of fields.
const RESERVED: [&str; 20] = [
    "all", "and", "as", "case", "check", "default", "desc", "end", "false", "from", "group", "in", "not",
    "null", "or", "order", "select", "table", "true", "where",
];

/// Returns the name of a type.
pub(crate) fn name(data_type: &DataType) -> String {
    match data_type {
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
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "VARCHAR".to_string(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            "BLOB".to_string()
        }
        DataType::Date32 | DataType::Date64 => "DATE".to_string(),
        DataType::Time32(_) | DataType::Time64(_) => "TIME".to_string(),
        DataType::Timestamp(_, Some(_)) => "TIMESTAMP WITH TIME ZONE".to_string(),
        DataType::Timestamp(TimeUnit::Second, None) => "TIMESTAMP_S".to_string(),
        DataType::Timestamp(TimeUnit::Millisecond, None) => "TIMESTAMP_MS".to_string(),
        // The usual TIMESTAMP has nanoseconds here.
        DataType::Timestamp(_, None) => "TIMESTAMP".to_string(),
        DataType::Interval(_) | DataType::Duration(_) => "INTERVAL".to_string(),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => format!("DECIMAL({precision},{scale})"),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => {
            format!("{}[]", name(item.data_type()))
        }
        DataType::FixedSizeList(item, length) => format!("{}[{length}]", name(item.data_type())),
        DataType::Struct(fields) => {
            let field = |f: &std::sync::Arc<datafusion::arrow::datatypes::Field>| {
                format!("{} {}", field_name(f.name()), name(f.data_type()))
            };
            format!("STRUCT({})", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => {
                format!("MAP({}, {})", name(fields[0].data_type()), name(fields[1].data_type()))
            }
            other => format!("MAP({})", name(other)),
        },
        DataType::Dictionary(_, values) => name(values),
        DataType::RunEndEncoded(_, values) => name(values.data_type()),
        other => other.to_string().to_uppercase(),
    }
}

fn field_name(name: &str) -> String {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && !RESERVED.contains(&name.to_lowercase().as_str());
    if plain { name.to_string() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::datatypes::Field;
    use std::sync::Arc;

    #[test]
    fn nested_types_have_duckdbs_form() {
        let field = |name: &str, data_type| Arc::new(Field::new(name, data_type, true));
        let of =
            DataType::Struct(vec![field("Street", DataType::Utf8View), field("a b", DataType::Int32)].into());
        let list = DataType::List(field("item", of));
        assert_eq!(name(&list), "STRUCT(Street VARCHAR, \"a b\" INTEGER)[]");
        assert_eq!(name(&DataType::Decimal128(8, 2)), "DECIMAL(8,2)");
    }
}
