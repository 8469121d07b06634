//! JSON as values of other types, and of them.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, LargeStringArray, ListArray, MapArray, NullBufferBuilder, StringViewArray,
    StructArray,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::cast as arrow_cast;
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{DataFusionError, Result, exec_datafusion_err, exec_err};
use datafusion::sql::sqlparser::parser::Parser;

use crate::sql::dialect::Pellucid;
use crate::types::cast::{How, convert, converted, quoted};
use crate::types::json::{Json, double, quoted as as_string};
use crate::types::names::{JSON, TypeNames};

/// Returns the type that a structure such as `{"a": "INT", "b": ["DATE"]}` describes.
///
/// # Errors
/// Returns the cause if it names an unknown type.
pub(crate) fn type_of(structure: &Json<'_>) -> std::result::Result<DataType, String> {
    match structure {
        Json::Text(text) => {
            let unknown = |cause: &dyn std::fmt::Display| format!("cannot find type {text}: {cause}");
            let parser = Parser::new(&Pellucid).try_with_sql(text);
            let sql = parser.and_then(|mut parser| parser.parse_data_type()).map_err(|e| unknown(&e))?;
            let planned = TypeNames::new("UTC".into(), true).planned(&sql);
            planned
                .map_err(|error| match error {
                    DataFusionError::Plan(message) => message,
                    other => other.strip_backtrace(),
                })?
                .ok_or_else(|| unknown(&"use a type of SQL"))
        }
        Json::List(items) => match &items[..] {
            [item] => Ok(DataType::new_list(type_of(item)?, true)),
            _ => Err("a list in the structure must have one element, the type of its elements".to_string()),
        },
        Json::Object(members) => {
            let mut fields = Vec::with_capacity(members.len());
            for (key, member) in members {
                fields.push(datafusion::arrow::datatypes::Field::new(key, type_of(member)?, true));
            }
            Ok(DataType::Struct(fields.into()))
        }
        other => Err(format!("the structure has {other}; it must have names of types in quotes")),
    }
}

/// Converts texts that are JSON to a type. With `safe`, values that do not fit become NULL.
///
/// # Errors
/// Returns an error for the first text that is not JSON, or value that does not fit.
pub(crate) fn transformed<'a>(
    texts: impl Iterator<Item = Option<&'a str>>,
    to: &DataType,
    safe: bool,
) -> Result<ArrayRef> {
    let parsed = texts.map(|text| text.map(Json::parse).transpose());
    let parsed: Vec<Option<Json<'_>>> =
        parsed.collect::<std::result::Result<_, _>>().map_err(|cause| exec_datafusion_err!("{cause}"))?;
    let how = How { safe, kind: None, column: None };
    values(&parsed.iter().map(Option::as_ref).collect::<Vec<_>>(), to, &how)
}

/// Converts values of the type JSON; a text that is not JSON counts as a string.
pub(super) fn cast<'a>(
    texts: impl Iterator<Item = Option<&'a str>>,
    to: &DataType,
    how: &How,
) -> Result<ArrayRef> {
    let json = |text: &'a str| Json::parse(text).unwrap_or(Json::Text(text.into()));
    let parsed: Vec<Option<Json<'_>>> = texts.map(|text| text.map(json)).collect();
    values(&parsed.iter().map(Option::as_ref).collect::<Vec<_>>(), to, how)
}

fn values(jsons: &[Option<&Json<'_>>], to: &DataType, how: &How) -> Result<ArrayRef> {
    let mut valid = NullBufferBuilder::new(jsons.len());
    // Checks the form of a value.
    let mut check = |fits: bool, json: &Option<&Json<'_>>| -> Result<()> {
        valid.append(fits);
        match json {
            Some(json) if !fits && **json != Json::Null => {
                how.misfit::<()>(&quoted(&json.to_string()), to, "it has another form").map(|_| ())
            }
            _ => Ok(()),
        }
    };
    match to {
        to if *to == JSON => {
            let text = |json: &Option<&Json<'_>>| {
                json.filter(|json| **json != Json::Null).map(|json| json.to_string())
            };
            Ok(Arc::new(jsons.iter().map(text).collect::<LargeStringArray>()))
        }
        DataType::Struct(fields) => {
            for json in jsons {
                check(matches!(json, Some(Json::Object(_))), json)?;
            }
            let column = |field: &datafusion::arrow::datatypes::FieldRef| {
                let of_field = jsons.iter().map(|json| json.and_then(|json| json.get(field.name())));
                let children: Vec<Option<&Json<'_>>> = of_field.collect();
                values(&children, field.data_type(), how)
            };
            let columns = fields.iter().map(column).collect::<Result<Vec<_>>>()?;
            Ok(Arc::new(StructArray::try_new(fields.clone(), columns, valid.finish())?))
        }
        DataType::List(field) => {
            let (mut items, mut lengths) = (Vec::new(), Vec::with_capacity(jsons.len()));
            for json in jsons {
                let list = match json {
                    Some(Json::List(list)) => Some(list),
                    _ => None,
                };
                check(list.is_some(), json)?;
                lengths.push(list.map_or(0, Vec::len));
                items.extend(list.into_iter().flatten().map(Some));
            }
            let items = values(&items, field.data_type(), how)?;
            let offsets = OffsetBuffer::from_lengths(lengths);
            Ok(Arc::new(ListArray::try_new(Arc::clone(field), offsets, items, valid.finish())?))
        }
        DataType::Map(entries, sorted) => {
            let DataType::Struct(fields) = entries.data_type() else {
                return exec_err!("a map has entries of a struct");
            };
            let (mut keys, mut items, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
            for json in jsons {
                let members = match json {
                    Some(Json::Object(members)) => Some(members),
                    _ => None,
                };
                check(members.is_some(), json)?;
                lengths.push(members.map_or(0, Vec::len));
                for (key, value) in members.into_iter().flatten() {
                    keys.push(Some(key.as_str()));
                    items.push(Some(value));
                }
            }
            let keys: ArrayRef = Arc::new(keys.into_iter().collect::<StringViewArray>());
            let keys = convert(&keys, fields[0].data_type(), how)?;
            let items = values(&items, fields[1].data_type(), how)?;
            let entries_array = StructArray::try_new(fields.clone(), vec![keys, items], None)?;
            let offsets = OffsetBuffer::from_lengths(lengths);
            let map =
                MapArray::try_new(Arc::clone(entries), offsets, entries_array, valid.finish(), *sorted)?;
            Ok(Arc::new(map))
        }
        _ => {
            let texts = jsons.iter().map(|json| json.and_then(Json::text));
            convert(&(Arc::new(texts.collect::<StringViewArray>()) as ArrayRef), to, how)
        }
    }
}

/// Returns the JSON of each value; NULL stays NULL.
///
/// # Errors
/// Returns an error if a value has no text.
pub(crate) fn made(array: &ArrayRef) -> Result<ArrayRef> {
    let nulls = array.logical_nulls();
    let is_null = |row: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
    let texts = texts(array)?.into_iter().enumerate();
    Ok(Arc::new(texts.map(|(row, text)| (!is_null(row)).then_some(text)).collect::<LargeStringArray>()))
}

/// Returns the JSON of each value; NULL is `null`.
///
/// # Errors
/// Returns an error if a value has no text.
pub(crate) fn texts(array: &ArrayRef) -> Result<Vec<String>> {
    let shown = |array: &ArrayRef| -> Result<Vec<String>> {
        let texts = converted(array, &DataType::Utf8, false)?;
        Ok(texts.as_string::<i32>().iter().map(|text| text.unwrap_or_default().to_string()).collect())
    };
    let mut made: Vec<String> = match array.data_type() {
        DataType::Null => return Ok(vec!["null".to_string(); array.len()]),
        DataType::Boolean => shown(array)?,
        kind if kind.is_integer() || matches!(kind, DataType::Decimal256(_, 0)) => shown(array)?,
        kind if kind.is_numeric() => {
            let numbers = arrow_cast(array, &DataType::Float64)?;
            numbers.as_primitive::<Float64Type>().values().iter().map(|x| double(*x)).collect()
        }
        // JSON, or text of a file.
        DataType::LargeUtf8 => {
            let texts = shown(array)?;
            let json =
                |text: &String| Json::parse(text).map_or_else(|_| as_string(text), |json| json.to_string());
            texts.iter().map(json).collect()
        }
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            let items = texts(lists.values())?;
            let list = |pair: &[i32]| format!("[{}]", items[pair[0] as usize..pair[1] as usize].join(","));
            lists.value_offsets().windows(2).map(list).collect()
        }
        DataType::LargeList(item) | DataType::FixedSizeList(item, _) | DataType::ListView(item) => {
            texts(&arrow_cast(array, &DataType::List(Arc::clone(item)))?)?
        }
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns().iter().map(texts).collect::<Result<Vec<_>>>()?;
            let names: Vec<String> = fields.iter().map(|field| as_string(field.name())).collect();
            let object = |row: usize| {
                let members =
                    names.iter().zip(&columns).map(|(name, column)| format!("{name}:{}", column[row]));
                format!("{{{}}}", members.collect::<Vec<_>>().join(","))
            };
            (0..array.len()).map(object).collect()
        }
        DataType::Map(_, _) => {
            let map = array.as_map();
            let (keys, values) = (shown(map.keys())?, texts(map.values())?);
            let object = |pair: &[i32]| {
                let members = (pair[0] as usize..pair[1] as usize)
                    .map(|at| format!("{}:{}", as_string(&keys[at]), values[at]));
                format!("{{{}}}", members.collect::<Vec<_>>().join(","))
            };
            map.value_offsets().windows(2).map(object).collect()
        }
        DataType::Dictionary(_, kind) => texts(&arrow_cast(array, kind)?)?,
        _ => shown(array)?.iter().map(|text| as_string(text)).collect(),
    };
    if let Some(nulls) = array.logical_nulls() {
        let rows = made.iter_mut().zip(nulls.iter());
        rows.filter(|(_, valid)| !valid).for_each(|(text, _)| *text = "null".to_string());
    }
    Ok(made)
}
