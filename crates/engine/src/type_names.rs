//! SQL names of types, for messages.

use datafusion::arrow::datatypes::{DataType, IntervalUnit, TimeUnit};

/// Returns the name that a type has in SQL.
pub(crate) fn type_name(kind: &DataType) -> String {
    use DataType as T;
    let name = match kind {
        T::Null => "NULL",
        T::Boolean => "BOOLEAN",
        T::Int8 => "TINYINT",
        T::Int16 => "SMALLINT",
        T::Int32 => "INTEGER",
        T::Int64 => "BIGINT",
        T::UInt8 => "UTINYINT",
        T::UInt16 => "USMALLINT",
        T::UInt32 => "UINTEGER",
        T::UInt64 => "UBIGINT",
        T::Float16 | T::Float32 => "FLOAT",
        T::Float64 => "DOUBLE",
        T::Utf8 | T::LargeUtf8 | T::Utf8View => "VARCHAR",
        T::Binary | T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_) => "BLOB",
        T::Date32 | T::Date64 => "DATE",
        T::Time32(_) | T::Time64(_) => "TIME",
        T::Timestamp(
            TimeUnit::Second | TimeUnit::Millisecond | TimeUnit::Microsecond | TimeUnit::Nanosecond,
            None,
        ) => "TIMESTAMP",
        T::Timestamp(_, Some(_)) => "TIMESTAMP WITH TIME ZONE",
        T::Duration(_)
        | T::Interval(IntervalUnit::YearMonth | IntervalUnit::DayTime | IntervalUnit::MonthDayNano) => {
            "INTERVAL"
        }
        T::Decimal32(p, s) | T::Decimal64(p, s) | T::Decimal128(p, s) | T::Decimal256(p, s) => {
            return format!("DECIMAL({p}, {s})");
        }
        T::List(field) | T::LargeList(field) | T::FixedSizeList(field, _) | T::ListView(field) => {
            return format!("{}[]", type_name(field.data_type()));
        }
        T::Struct(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|field| format!("{} {}", field.name(), type_name(field.data_type())))
                .collect();
            return format!("STRUCT({})", fields.join(", "));
        }
        T::Map(entries, _) => match entries.data_type() {
            T::Struct(fields) if fields.len() == 2 => {
                let [key, value] = [0, 1].map(|index| type_name(fields[index].data_type()));
                return format!("MAP({key}, {value})");
            }
            _ => "MAP",
        },
        T::Dictionary(_, value) => return type_name(value),
        other => return other.to_string(),
    };
    name.to_string()
}

/// Names of types as DataFusion prints them, and in SQL.
const PRINTED: &[(&str, &str)] = &[
    ("Utf8View", "VARCHAR"),
    ("LargeUtf8", "VARCHAR"),
    ("Utf8", "VARCHAR"),
    ("Int8", "TINYINT"),
    ("Int16", "SMALLINT"),
    ("Int32", "INTEGER"),
    ("Int64", "BIGINT"),
    ("UInt8", "UTINYINT"),
    ("UInt16", "USMALLINT"),
    ("UInt32", "UINTEGER"),
    ("UInt64", "UBIGINT"),
    ("Float32", "FLOAT"),
    ("Float64", "DOUBLE"),
    ("Boolean", "BOOLEAN"),
    ("Date32", "DATE"),
    ("Null", "NULL"),
    ("Decimal128", "DECIMAL"),
    ("Decimal256", "DECIMAL"),
    ("BinaryView", "BLOB"),
    ("Binary", "BLOB"),
];

/// Replaces the names of types in a message by those in SQL.
pub(crate) fn in_text(text: &str) -> String {
    let mut replaced = String::new();
    let mut word = String::new();
    for c in text.chars().chain(['\n']) {
        if c.is_alphanumeric() || c == '_' {
            word.push(c);
            continue;
        }
        let name = PRINTED.iter().find(|(printed, _)| *printed == word).map(|(_, name)| *name);
        replaced.push_str(name.unwrap_or(&word));
        word.clear();
        replaced.push(c);
    }
    replaced.pop();
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::datatypes::Field;
    use std::sync::Arc;

    #[test]
    fn types_have_their_sql_names() {
        let list = DataType::List(Arc::new(Field::new("item", DataType::Utf8View, true)));
        assert_eq!(type_name(&list), "VARCHAR[]");
        assert_eq!(
            in_text("Cannot coerce Utf8View to Int64, Utf8s"),
            "Cannot coerce VARCHAR to BIGINT, Utf8s"
        );
        assert_eq!(type_name(&DataType::Decimal128(10, 2)), "DECIMAL(10, 2)");
        assert_eq!(type_name(&DataType::Timestamp(TimeUnit::Nanosecond, None)), "TIMESTAMP");
    }
}
