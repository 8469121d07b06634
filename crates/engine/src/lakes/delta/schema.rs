//! The schema of a Delta table, from the JSON of its log.

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use serde_json::Value;

use crate::lakes::column::{Column, Kind};

/// Maximum depth of nested types.
const MAX_DEPTH: usize = 64;

/// Parses the columns of a schema. `mapped` says that files have other names than the table.
///
/// # Errors
/// Returns the cause if the schema is damaged, or has an unknown type.
pub(super) fn columns(schema: &str, mapped: bool) -> Result<Vec<Column>, String> {
    let schema: Value = serde_json::from_str(schema).map_err(|e| e.to_string())?;
    match kind(&schema, mapped, 0)? {
        Kind::Struct(columns) => Ok(columns),
        _ => Err("it is not a struct".to_string()),
    }
}

fn kind(json: &Value, mapped: bool, depth: usize) -> Result<Kind, String> {
    if depth > MAX_DEPTH {
        return Err(format!("types are nested more than {MAX_DEPTH} deep"));
    }
    if let Some(name) = json.as_str() {
        return primitive(name).map(Kind::Primitive);
    }
    let part = |name: &str| kind(json.get(name).unwrap_or(&Value::Null), mapped, depth + 1);
    let flag = |name: &str| json.get(name).and_then(Value::as_bool).unwrap_or(true);
    let inner = |name: &str, nullable: bool, kind: Kind| {
        Box::new(Column { name: name.to_string(), in_files: name.to_string(), id: None, nullable, kind })
    };
    match json.get("type").and_then(Value::as_str) {
        Some("struct") => {
            let fields = json.get("fields").and_then(Value::as_array).ok_or("a struct has no fields")?;
            let columns = fields.iter().map(|field| column(field, mapped, depth));
            columns.collect::<Result<_, _>>().map(Kind::Struct)
        }
        Some("array") => Ok(Kind::List(inner("element", flag("containsNull"), part("elementType")?))),
        Some("map") => Ok(Kind::Map(
            inner("key", false, part("keyType")?),
            inner("value", flag("valueContainsNull"), part("valueType")?),
        )),
        _ => Err(format!("unknown type {json}")),
    }
}

fn column(json: &Value, mapped: bool, depth: usize) -> Result<Column, String> {
    let name = json.get("name").and_then(Value::as_str).ok_or("a column has no name")?;
    let metadata = |key: &str| json.get("metadata").and_then(|metadata| metadata.get(key));
    let data_type = json.get("type").ok_or_else(|| format!("column {name} has no type"))?;
    let in_files = match mapped {
        true => metadata("delta.columnMapping.physicalName")
            .and_then(Value::as_str)
            .ok_or_else(|| format!("column {name} has no physical name"))?,
        false => name,
    };
    let id = metadata("delta.columnMapping.id").and_then(Value::as_i64).filter(|_| mapped);
    Ok(Column {
        name: name.to_string(),
        in_files: in_files.to_string(),
        id: id.and_then(|id| i32::try_from(id).ok()),
        nullable: json.get("nullable").and_then(Value::as_bool).unwrap_or(true),
        kind: kind(data_type, mapped, depth + 1).map_err(|why| format!("column {name}: {why}"))?,
    })
}

fn primitive(name: &str) -> Result<DataType, String> {
    Ok(match name {
        "string" => DataType::Utf8View,
        "long" => DataType::Int64,
        "integer" => DataType::Int32,
        "short" => DataType::Int16,
        "byte" => DataType::Int8,
        "float" => DataType::Float32,
        "double" => DataType::Float64,
        "boolean" => DataType::Boolean,
        "binary" => DataType::BinaryView,
        "date" => DataType::Date32,
        "timestamp" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        "timestamp_ntz" => DataType::Timestamp(TimeUnit::Microsecond, None),
        other => return decimal(other).ok_or_else(|| format!("unknown type {other}")),
    })
}

/// Parses `decimal(10,2)`.
fn decimal(name: &str) -> Option<DataType> {
    let (precision, scale) = name.strip_prefix("decimal(")?.strip_suffix(')')?.split_once(',')?;
    let (precision, scale) = (precision.trim().parse().ok()?, scale.trim().parse().ok()?);
    (1..=38).contains(&precision).then_some(DataType::Decimal128(precision, scale))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lakes::column::Names;

    #[test]
    fn nested_and_mapped_columns_are_parsed() {
        let schema = r#"{"type":"struct","fields":[
            {"name":"a","type":"decimal(10,2)","nullable":true,
             "metadata":{"delta.columnMapping.id":4,"delta.columnMapping.physicalName":"col-1"}},
            {"name":"s","type":{"type":"struct","fields":[
                {"name":"t","type":{"type":"array","elementType":"string","containsNull":true},"nullable":true,
                 "metadata":{"delta.columnMapping.id":6,"delta.columnMapping.physicalName":"col-3"}}]},
             "nullable":true,"metadata":{"delta.columnMapping.id":5,"delta.columnMapping.physicalName":"col-2"}}]}"#;
        let mapped = columns(schema, true).unwrap();
        assert_eq!(mapped[0].id, Some(4));
        assert_eq!(mapped[0].field(Names::Now).data_type(), &DataType::Decimal128(10, 2));
        assert_eq!(mapped[0].field(Names::InFiles).name(), "col-1");
        let inner = mapped[1].field(Names::InFiles);
        assert!(matches!(inner.data_type(), DataType::Struct(fields) if fields[0].name() == "col-3"));
        let plain = columns(schema, false).unwrap();
        assert_eq!((plain[0].field(Names::InFiles).name().as_str(), plain[0].id), ("a", None));
    }

    #[test]
    fn unknown_types_are_refused_by_name() {
        let schema =
            r#"{"type":"struct","fields":[{"name":"v","type":"variant","nullable":true,"metadata":{}}]}"#;
        assert_eq!(columns(schema, false).unwrap_err(), "column v: unknown type variant");
        assert!(
            columns("{}", false).is_err()
                && columns("\"long\"", false).is_err()
                && columns("", false).is_err()
        );
    }
}
