//! Encodes values as JSON, and builds the `pellucid.result/1` document.
//!
//! | SQL | JSON |
//! |---|---|
//! | NULL | `null` |
//! | BOOLEAN | `true`, `false` |
//! | integers | numbers with all digits (64 bits; some parsers convert numbers to doubles) |
//! | floats | the shortest number that round-trips; `"NaN"`, `"Infinity"`, `"-Infinity"` |
//! | DECIMAL | strings with all digits (`"10.50"`), since most parsers would round a number |
//! | text | strings |
//! | dates, times, timestamps, intervals | strings, in ISO 8601 where it applies (`"2026-11-21"`) |
//! | binary | hexadecimal strings |
//! | lists | arrays |
//! | structs, maps | objects; the keys of a map become strings |
//!
//! `docs/json.md` documents this mapping for users.

use super::rows::{invalid, row_count};
use arrow::array::{Array, ArrayRef, AsArray, ListArray, MapArray, RecordBatch, StructArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, FieldRef, Float16Type, Float32Type, Float64Type, Int64Type, SchemaRef, UInt64Type,
};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fmt::Display;
use std::io::{self, Write};
use std::sync::Arc;

static TEXT: FormatOptions<'static> = FormatOptions::new().with_display_error(false);

/// Encodes the value at a row of a column.
type Encoder<'a> = Box<dyn Fn(usize) -> Result<Value, ArrowError> + 'a>;

/// Returns the result of one statement, without its `format` key: columns, rows and row
/// count. The caller adds `job` and `trace`.
pub fn result_document(schema: &SchemaRef, batches: &[RecordBatch]) -> io::Result<Value> {
    let columns: Vec<Value> = schema
        .fields()
        .iter()
        .map(|field| json!({"name": field.name(), "type": field.data_type().to_string()}))
        .collect();
    let mut rows = Vec::new();
    for_each_row(batches, |row| {
        rows.push(Value::Array(row));
        Ok(())
    })?;
    let mut document = json!({"columns": columns, "row_count": row_count(batches)});
    // Not through `json!`, which would copy the rows.
    document["rows"] = Value::Array(rows);
    Ok(document)
}

/// Prints the rows as an array of objects, one row per line. Duplicate names get a number
/// (`id`, `id_1`), since the keys of an object are unique.
pub fn write_objects(out: &mut dyn Write, schema: &SchemaRef, batches: &[RecordBatch]) -> io::Result<()> {
    let keys = unique_names(schema);
    let mut separator = "[\n";
    for_each_row(batches, |row| {
        out.write_all(separator.as_bytes())?;
        separator = ",\n";
        for (index, (key, value)) in keys.iter().zip(&row).enumerate() {
            out.write_all(if index == 0 { b"{" } else { b"," })?;
            write!(out, "{}:", Value::from(key.as_str()))?;
            serde_json::to_writer(&mut *out, value)?;
        }
        out.write_all(b"}")
    })?;
    out.write_all(if separator == "[\n" { b"[]\n" } else { b"\n]\n" })
}

fn unique_names(schema: &SchemaRef) -> Vec<String> {
    let mut taken: HashSet<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
    let mut seen = HashSet::new();
    let unique = |name: &String| {
        if seen.insert(name.clone()) {
            return name.clone();
        }
        let free = (1..).map(|number| format!("{name}_{number}")).find(|name| !taken.contains(name));
        let free = free.unwrap_or_default();
        taken.insert(free.clone());
        free
    };
    schema.fields().iter().map(|field| field.name()).map(unique).collect()
}

fn for_each_row(
    batches: &[RecordBatch],
    mut row: impl FnMut(Vec<Value>) -> io::Result<()>,
) -> io::Result<()> {
    for batch in batches {
        let plain = |array: &ArrayRef| cast(array, &plain_type(array.data_type()));
        let columns: Vec<ArrayRef> =
            batch.columns().iter().map(plain).collect::<Result<_, _>>().map_err(invalid)?;
        let encoders: Vec<Encoder> =
            columns.iter().map(encoder).collect::<Result<_, _>>().map_err(invalid)?;
        for index in 0..batch.num_rows() {
            let values: Result<Vec<Value>, ArrowError> =
                encoders.iter().map(|encode| encode(index)).collect();
            row(values.map_err(invalid)?)?;
        }
    }
    Ok(())
}

/// Returns the type that holds the same values in a layout that `encoder` supports.
fn plain_type(data_type: &DataType) -> DataType {
    let plain_field = |field: &FieldRef| -> FieldRef {
        let plain = plain_type(field.data_type());
        Arc::new(field.as_ref().clone().with_data_type(plain))
    };
    match data_type {
        DataType::Dictionary(_, values) => plain_type(values),
        DataType::RunEndEncoded(_, values) => plain_type(values.data_type()),
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => DataType::List(plain_field(item)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain_field).collect()),
        DataType::Map(entries, sorted) => DataType::Map(plain_field(entries), *sorted),
        other if other.is_unsigned_integer() => DataType::UInt64,
        other if other.is_signed_integer() => DataType::Int64,
        other => other.clone(),
    }
}

fn encoder(array: &ArrayRef) -> Result<Encoder<'_>, ArrowError> {
    let encode: Encoder = match array.data_type() {
        DataType::Boolean => {
            let array = array.as_boolean();
            Box::new(|row| Ok(array.value(row).into()))
        }
        DataType::Int64 => {
            let array = array.as_primitive::<Int64Type>();
            Box::new(|row| Ok(array.value(row).into()))
        }
        DataType::UInt64 => {
            let array = array.as_primitive::<UInt64Type>();
            Box::new(|row| Ok(array.value(row).into()))
        }
        DataType::Float16 => {
            let array = array.as_primitive::<Float16Type>();
            Box::new(|row| Ok(float(array.value(row).to_f32())))
        }
        DataType::Float32 => {
            let array = array.as_primitive::<Float32Type>();
            Box::new(|row| Ok(float(array.value(row))))
        }
        DataType::Float64 => {
            let array = array.as_primitive::<Float64Type>();
            Box::new(|row| Ok(float(array.value(row))))
        }
        DataType::Utf8View => {
            let array = array.as_string_view();
            Box::new(|row| Ok(array.value(row).into()))
        }
        DataType::List(_) => list_encoder(array.as_list::<i32>())?,
        DataType::Struct(_) => struct_encoder(array.as_struct())?,
        DataType::Map(..) => map_encoder(array.as_map())?,
        // Decimals, dates, times, intervals, binary, unions.
        _ => {
            let formatter = ArrayFormatter::try_new(array.as_ref(), &TEXT)?;
            Box::new(move |row| formatter.value(row).try_to_string().map(Value::from))
        }
    };
    let nulls = array.logical_nulls();
    Ok(Box::new(move |row| {
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) { Ok(Value::Null) } else { encode(row) }
    }))
}

fn list_encoder(array: &ListArray) -> Result<Encoder<'_>, ArrowError> {
    let encode = encoder(array.values())?;
    Ok(Box::new(move |row| {
        let range = array.value_offsets()[row] as usize..array.value_offsets()[row + 1] as usize;
        range.map(&encode).collect::<Result<Vec<_>, _>>().map(Value::Array)
    }))
}

fn struct_encoder(array: &StructArray) -> Result<Encoder<'_>, ArrowError> {
    let encoders: Vec<Encoder> = array.columns().iter().map(encoder).collect::<Result<_, _>>()?;
    Ok(Box::new(move |row| {
        let fields = array.fields().iter().zip(&encoders);
        fields.map(|(field, encode)| Ok((field.name().clone(), encode(row)?))).collect()
    }))
}

fn map_encoder(array: &MapArray) -> Result<Encoder<'_>, ArrowError> {
    let keys = ArrayFormatter::try_new(array.keys().as_ref(), &TEXT)?;
    let encode = encoder(array.values())?;
    Ok(Box::new(move |row| {
        let range = array.value_offsets()[row] as usize..array.value_offsets()[row + 1] as usize;
        range.map(|entry| Ok((keys.value(entry).try_to_string()?, encode(entry)?))).collect()
    }))
}

/// Encodes a float. An `f32` keeps its own shortest form: 0.1 stays 0.1.
fn float<F: Into<f64> + Display + Copy>(value: F) -> Value {
    let wide: f64 = value.into();
    if wide.is_nan() {
        "NaN".into()
    } else if wide.is_infinite() {
        if wide > 0.0 { "Infinity".into() } else { "-Infinity".into() }
    } else {
        // Format the shortest text of the narrow type, then parse it as the f64 of JSON.
        value.to_string().parse::<f64>().unwrap_or(wide).into()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Format;
    use super::super::tests::{print, sample};
    use super::*;
    use arrow::array::{
        BinaryArray, BooleanArray, Date32Array, DictionaryArray, Float32Array, Float64Array, Int32Builder,
        Int64Array, LargeListArray, MapBuilder, StringBuilder, UInt64Array,
    };
    use arrow::datatypes::{Field, Int8Type, Schema};

    fn encode(array: impl Array + 'static) -> Value {
        let schema = Arc::new(Schema::new(vec![Field::new("v", array.data_type().clone(), true)]));
        let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(array)]).unwrap();
        let document = result_document(&schema, &[batch]).unwrap();
        let rows = document["rows"].as_array().unwrap();
        rows.iter().map(|row| row[0].clone()).collect()
    }

    #[test]
    fn numbers_keep_all_digits() {
        assert_eq!(encode(Int64Array::from(vec![i64::MIN, i64::MAX])), json!([i64::MIN, i64::MAX]));
        assert_eq!(encode(UInt64Array::from(vec![u64::MAX])), json!([u64::MAX]));
        assert_eq!(encode(Float32Array::from(vec![0.1])).to_string(), "[0.1]");
        assert_eq!(
            encode(Float64Array::from(vec![0.1 + 0.2, 1e300])).to_string(),
            "[0.30000000000000004,1e+300]"
        );
        let odd = Float64Array::from(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
        assert_eq!(encode(odd), json!(["NaN", "Infinity", "-Infinity"]));
    }

    #[test]
    fn types_without_json_equivalent_become_strings() {
        assert_eq!(encode(Date32Array::from(vec![Some(20_778), None])), json!(["2026-11-21", null]));
        assert_eq!(encode(BinaryArray::from(vec![&b"\x00\xff"[..]])), json!(["00ff"]));
        assert_eq!(encode(BooleanArray::from(vec![true, false])), json!([true, false]));
    }

    #[test]
    fn dictionaries_and_nested_values_are_encoded() {
        let dictionary: DictionaryArray<Int8Type> = vec![Some("a"), None, Some("a")].into_iter().collect();
        assert_eq!(encode(dictionary), json!(["a", null, "a"]));
        let list = LargeListArray::from_iter_primitive::<Int8Type, _, _>([Some(vec![Some(1), None]), None]);
        assert_eq!(encode(list), json!([[1, null], null]));
        let mut map = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
        map.keys().append_value("x");
        map.values().append_value(7);
        map.append(true).unwrap();
        assert_eq!(encode(map.finish()), json!([{"x": 7}]));
    }

    #[test]
    fn document_has_columns_and_rows() {
        let (schema, batches) = sample();
        let read = result_document(&schema, &batches).unwrap();
        assert_eq!(read["columns"][2], json!({"name": "price", "type": "Decimal128(15, 2)"}));
        assert_eq!(read["rows"][0], json!([1, "a|b, \"c\"", "10.50", "日本"]));
        assert_eq!(read["row_count"], json!(3));
    }

    #[test]
    fn objects_keep_column_order_and_unique_names() {
        let text = print(Format::Json, None);
        assert!(text.starts_with("[\n{\"id\":1,\"name\":"), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap().as_array().map(Vec::len), Some(3));
        let fields = ["id", "id", "id_1"].map(|name| Field::new(name, DataType::Int64, true));
        let schema = Arc::new(Schema::new(fields.to_vec()));
        assert_eq!(unique_names(&schema), ["id", "id_2", "id_1"]);
    }
}
