//! Reads the rows written by a Spark session as Arrow batches.
//!
//! Rows and structs are JSON arrays, which preserve the order of columns and duplicate names. Types
//! are Spark's, in the JSON form of its schemas. Values that Arrow's reader does not support
//! (intervals, variants) are text.

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use arrow::json::{ReaderBuilder, StructMode};
use serde_json::Value;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

/// Converts the fields of a Spark schema.
pub fn schema(fields: &[Value]) -> SchemaRef {
    Arc::new(Schema::new(columns(fields)))
}

fn columns(fields: &[Value]) -> Fields {
    fields.iter().map(|field| Field::new(text(&field["name"]), data_type(&field["type"]), true)).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn data_type(of: &Value) -> DataType {
    match text(&of["type"]) {
        "struct" => DataType::Struct(columns(of["fields"].as_array().map_or(&[], Vec::as_slice))),
        "array" => DataType::List(Arc::new(Field::new_list_field(data_type(&of["elementType"]), true))),
        "map" => {
            let key = Field::new("key", DataType::Utf8, false);
            let value = Field::new("value", data_type(&of["valueType"]), true);
            let entries = DataType::Struct(vec![key, value].into());
            DataType::Map(Arc::new(Field::new("entries", entries, false)), false)
        }
        _ => plain_type(text(of)),
    }
}

fn plain_type(name: &str) -> DataType {
    match name {
        "boolean" => DataType::Boolean,
        "byte" => DataType::Int8,
        "short" => DataType::Int16,
        "integer" => DataType::Int32,
        "long" => DataType::Int64,
        "float" => DataType::Float32,
        "double" => DataType::Float64,
        "binary" => DataType::Binary,
        "date" => DataType::Date32,
        // The session's time zone is UTC, and its values carry none.
        "timestamp" | "timestamp_ntz" => DataType::Timestamp(TimeUnit::Microsecond, None),
        _ => decimal(name).unwrap_or(DataType::Utf8),
    }
}

/// Parses `decimal(15,2)`.
fn decimal(name: &str) -> Option<DataType> {
    let (precision, scale) = name.strip_prefix("decimal(")?.strip_suffix(')')?.split_once(',')?;
    Some(DataType::Decimal128(precision.trim().parse().ok()?, scale.trim().parse().ok()?))
}

/// Reads the rows of a file.
///
/// # Errors
/// Returns an error if the file cannot be read, or if a value does not match its type.
pub fn read(path: &Path, schema: &SchemaRef) -> Result<Vec<RecordBatch>, ArrowError> {
    if schema.fields().is_empty() {
        return Ok(Vec::new());
    }
    let file = BufReader::new(File::open(path)?);
    ReaderBuilder::new(Arc::clone(schema))
        .with_struct_mode(StructMode::ListOnly)
        .with_batch_size(8192)
        .build(file)?
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output;
    use serde_json::json;

    #[test]
    fn all_types_round_trip() {
        let fields = json!([
            {"name": "a", "type": "long"}, {"name": "a", "type": "string"}, {"name": "d", "type": "decimal(15,2)"},
            {"name": "f", "type": "double"}, {"name": "t", "type": "timestamp"}, {"name": "day", "type": "date"},
            {"name": "b", "type": "binary"}, {"name": "i", "type": "interval day to second"},
            {"name": "l", "type": {"type": "array", "elementType": "integer", "containsNull": true}},
            {"name": "s", "type": {"type": "struct", "fields": [{"name": "x", "type": "short"}, {"name": "y", "type": "boolean"}]}},
            {"name": "m", "type": {"type": "map", "keyType": "integer", "valueType": "float"}},
        ]);
        let schema = schema(fields.as_array().expect("a list"));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rows");
        let row = r#"[9007199254740993,"é","-10.50",1e300,"2026-11-21T08:30:00.000001","2026-11-21","00ff","1 day",[1,null],[3,true],{"7":0.5}]"#;
        std::fs::write(
            &path,
            format!("{row}\n[null,null,null,\"inf\",null,null,null,null,null,null,null]\n"),
        )
        .expect("written");
        let batches = read(&path, &schema).expect("read");
        let document = output::result_document(&schema, &batches).expect("shown");
        assert_eq!(
            document["rows"],
            json!([
                [9_007_199_254_740_993_u64, "é", "-10.50", 1e300, "2026-11-21T08:30:00.000001", "2026-11-21", "00ff", "1 day",
                 [1, null], {"x": 3, "y": true}, {"7": 0.5}],
                [null, null, null, "Infinity", null, null, null, null, null, null, null],
            ])
        );
    }
}
