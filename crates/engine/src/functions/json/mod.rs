//! Functions of JSON, which is text of the type [`JSON`].

mod build;
pub(crate) mod each;
mod path;
mod structure;

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, LargeStringArray, ListArray, ListBuilder, NullBufferBuilder,
    StringArray, StringBuilder, UInt64Array,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Int64Type};
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, plan_datafusion_err, plan_err};

use crate::functions::json::path::Path;
use crate::functions::typed::Typed;
use crate::types::cast::json::{made, transformed, type_of};
use crate::types::json::Json;
use crate::types::names::{JSON, name as type_name};

/// A function of the value at a path, which may be absent.
macro_rules! at_path {
    ($name:literal, $aliases:expr, $least:literal, $of:ident) => {
        Typed {
            name: $name,
            aliases: $aliases,
            coerced: |types| with_path($name, $least, types),
            result: |types, constants| of_path($name, types, constants, Of::$of.data_type()),
            invoke: |arrays, result| at_paths($name, arrays, result, Of::$of),
        }
    };
}

/// A function of texts, which is NULL if one of them is.
macro_rules! of_texts {
    ($name:literal, $aliases:expr, $range:expr, $result:expr, $body:expr) => {
        Typed {
            name: $name,
            aliases: $aliases,
            coerced: |types| texts($name, $range, types),
            result: |_, _| Ok($result),
            invoke: |arrays, result| each_text($name, arrays, result, $body),
        }
    };
}

/// The functions.
pub(crate) const FUNCTIONS: &[Typed] = &[
    at_path!("json_extract", &["json_extract_path"], 2, Json),
    at_path!("json_extract_string", &["json_extract_path_text"], 2, Text),
    at_path!("json_value", &[], 2, Scalar),
    at_path!("json_exists", &[], 2, Exists),
    at_path!("json_type", &[], 1, Type),
    at_path!("json_array_length", &[], 1, Length),
    at_path!("json_keys", &[], 1, Keys),
    of_texts!("json_valid", &[], 1..=1, DataType::Boolean, |v| Ok(Item::Boolean(Json::parse(v[0]).is_ok()))),
    of_texts!("json", &["json_minify"], 1..=1, JSON, |v| Ok(Item::Text(Json::parse(v[0])?.to_string()))),
    of_texts!("json_contains", &[], 2..=2, DataType::Boolean, |v| {
        Ok(Item::Boolean(Json::parse(v[0])?.contains(&Json::parse(v[1])?)))
    }),
    of_texts!("json_merge_patch", &[], 2..=99, JSON, |v| {
        let mut merged = Json::parse(v[0])?;
        for patch in &v[1..] {
            merged = merged.patched(Json::parse(patch)?);
        }
        Ok(Item::Text(merged.to_string()))
    }),
    of_texts!("json_pretty", &[], 1..=1, DataType::Utf8, |v| {
        let mut pretty = String::new();
        Json::parse(v[0])?.pretty(0, &mut pretty);
        Ok(Item::Text(pretty))
    }),
    of_texts!("json_structure", &[], 1..=1, JSON, |v| {
        Ok(Item::Text(structure::of(&Json::parse(v[0])?).to_string()))
    }),
    Typed {
        name: "to_json",
        aliases: &["json_quote", "array_to_json", "row_to_json"],
        coerced: |types| match types {
            [_] => Ok(types.to_vec()),
            _ => plan_err!("cannot call to_json: {} arguments were given; it takes one", types.len()),
        },
        result: |_, _| Ok(JSON),
        invoke: |arrays, _| made(&arrays[0]),
    },
    Typed {
        name: "json_array",
        aliases: &[],
        coerced: |types| Ok(types.to_vec()),
        result: |_, _| Ok(JSON),
        invoke: |arrays, _| build::lists(arrays),
    },
    Typed {
        name: "json_object",
        aliases: &[],
        coerced: build::with_keys,
        result: |_, _| Ok(JSON),
        invoke: |arrays, _| build::objects(arrays),
    },
    // The rows of `json_each` and `json_tree`, as a list.
    Typed {
        name: "pellucid_json_each",
        aliases: &[],
        coerced: |types| each::coerced("json_each", types),
        result: |_, _| Ok(each::rows_type()),
        invoke: |arrays, _| each::rows("json_each", arrays, false),
    },
    Typed {
        name: "pellucid_json_tree",
        aliases: &[],
        coerced: |types| each::coerced("json_tree", types),
        result: |_, _| Ok(each::rows_type()),
        invoke: |arrays, _| each::rows("json_tree", arrays, true),
    },
    // The parts of `json_group_array` and `json_group_object`.
    Typed {
        name: "pellucid_json_item",
        aliases: &[],
        coerced: |types| Ok(types.to_vec()),
        result: |_, _| Ok(DataType::Utf8),
        invoke: |arrays, _| build::items(&arrays[0]),
    },
    Typed {
        name: "pellucid_json_member",
        aliases: &[],
        coerced: |types| Ok(types.to_vec()),
        result: |_, _| Ok(DataType::Utf8),
        invoke: |arrays, _| build::members(&arrays[0], &arrays[1]),
    },
    Typed {
        name: "pellucid_json_group",
        aliases: &[],
        coerced: |types| match types {
            [list, _] => Ok(vec![list.clone(), DataType::Utf8]),
            _ => plan_err!("cannot call json_group_array"),
        },
        result: |_, _| Ok(JSON),
        invoke: |arrays, _| build::joined(&arrays[0], &arrays[1]),
    },
    Typed {
        name: "from_json",
        aliases: &["json_transform"],
        coerced: |types| texts("from_json", 2..=2, types),
        result: |_, constants| structured("from_json", constants),
        invoke: |arrays, result| parsed(arrays, result, false),
    },
    Typed {
        name: "from_json_strict",
        aliases: &["json_transform_strict"],
        coerced: |types| texts("from_json_strict", 2..=2, types),
        result: |_, constants| structured("from_json_strict", constants),
        invoke: |arrays, result| parsed(arrays, result, true),
    },
];

/// A value of a result.
enum Item {
    Null,
    Text(String),
    Boolean(bool),
    Number(u64),
    Texts(Vec<String>),
}

/// The property of a value that a function returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Json,
    Text,
    Scalar,
    Exists,
    Type,
    Length,
    Keys,
}

impl Of {
    fn data_type(self) -> DataType {
        match self {
            Of::Json => JSON,
            Of::Text | Of::Scalar | Of::Type => DataType::Utf8,
            Of::Exists => DataType::Boolean,
            Of::Length => DataType::UInt64,
            Of::Keys => DataType::new_list(DataType::Utf8, true),
        }
    }

    fn item(self, found: Option<&Json<'_>>) -> Item {
        let Some(json) = found else {
            return if self == Of::Exists { Item::Boolean(false) } else { Item::Null };
        };
        match (self, json) {
            (Of::Exists, _) => Item::Boolean(true),
            (Of::Json, json) => Item::Text(json.to_string()),
            (Of::Scalar, Json::Null | Json::List(_) | Json::Object(_)) => Item::Null,
            (Of::Scalar, json) => Item::Text(json.to_string()),
            (Of::Text, json) => json.text().map_or(Item::Null, Item::Text),
            (Of::Type, json) => Item::Text(json.type_name().to_string()),
            (Of::Length, Json::List(items)) => Item::Number(items.len() as u64),
            (Of::Length, _) => Item::Number(0),
            (Of::Keys, Json::Object(members)) => {
                Item::Texts(members.iter().map(|(key, _)| key.clone()).collect())
            }
            (Of::Keys, _) => Item::Texts(Vec::new()),
        }
    }
}

fn is_text(kind: &DataType) -> bool {
    kind.is_string() || kind.is_null()
}

/// Returns the type of a JSON argument: text, or a list, struct or map.
fn as_text(name: &str, at: usize, kind: &DataType) -> Result<DataType> {
    if is_text(kind) {
        return Ok(DataType::Utf8);
    }
    if kind.is_nested() {
        return Ok(kind.clone());
    }
    let way_out = match kind {
        DataType::Boolean => "-> and ->> bind less tightly than other operators: write (j ->> 'key')",
        _ => "use to_json(x)",
    };
    plan_err!("cannot call {name}: argument {} is {}; it must be JSON: {way_out}", at + 1, type_name(kind))
}

fn texts(name: &str, range: std::ops::RangeInclusive<usize>, given: &[DataType]) -> Result<Vec<DataType>> {
    if !range.contains(&given.len()) {
        return plan_err!(
            "cannot call {name}: {} arguments were given; it takes {}",
            given.len(),
            range.start()
        );
    }
    given.iter().enumerate().map(|(at, kind)| as_text(name, at, kind)).collect()
}

/// Returns the types of a value and its path: text, a whole number, or a list of texts.
fn with_path(name: &str, least: usize, given: &[DataType]) -> Result<Vec<DataType>> {
    match given {
        [json] if least == 1 => Ok(vec![as_text(name, 0, json)?]),
        [json, path] => {
            let path = match path {
                path if path.is_integer() => DataType::Int64,
                path if is_text(path) => DataType::Utf8,
                DataType::List(item) | DataType::FixedSizeList(item, _) if is_text(item.data_type()) => {
                    DataType::new_list(DataType::Utf8, true)
                }
                DataType::Boolean => {
                    return plan_err!(
                        "cannot call {name}: the path is a BOOLEAN; -> binds less tightly than other operators: \
                         write (j -> 'key') = …"
                    );
                }
                other => {
                    return plan_err!(
                        "cannot call {name}: the path is {}; it must be text such as '$.key[0]'",
                        type_name(other)
                    );
                }
            };
            Ok(vec![as_text(name, 0, json)?, path])
        }
        _ => plan_err!("cannot call {name}: {} arguments were given; write {name}(json, path)", given.len()),
    }
}

/// Returns the type of the value, or of a list of values for several paths or a path with `*`.
fn of_path(
    name: &str,
    given: &[DataType],
    constants: &[Option<&ScalarValue>],
    one: DataType,
) -> Result<DataType> {
    let wild = match constants.get(1).copied().flatten().and_then(ScalarValue::try_as_str) {
        Some(Some(path)) => {
            Path::parse(path).map_err(|cause| plan_datafusion_err!("cannot call {name}: {cause}"))?.is_wild()
        }
        _ => matches!(given.get(1), Some(DataType::List(_))),
    };
    Ok(if wild { DataType::new_list(one, true) } else { one })
}

/// Returns the texts of a JSON argument.
fn json_texts(array: &ArrayRef) -> Result<StringArray> {
    let texts = match array.data_type() {
        DataType::Utf8 => Arc::clone(array),
        _ => cast(&made(array)?, &DataType::Utf8)?,
    };
    Ok(texts.as_string::<i32>().clone())
}

/// Returns a function of the values at paths.
fn at_paths(name: &str, arrays: &[ArrayRef], result: &DataType, of: Of) -> Result<ArrayRef> {
    let failed = |cause: String| match cause.starts_with("cannot ") {
        true => exec_datafusion_err!("{cause}"),
        false => exec_datafusion_err!("cannot call {name}: {cause}"),
    };
    let jsons = json_texts(&arrays[0])?;
    let many = *result != of.data_type();
    let (mut items, mut lengths, mut valid) = (Vec::new(), Vec::new(), NullBufferBuilder::new(jsons.len()));
    let mut last: Option<(String, Path)> = None;
    for row in 0..jsons.len() {
        let before = items.len();
        let is_null = arrays.iter().any(|array| array.is_null(row));
        valid.append(!is_null);
        if is_null {
            items.extend((!many).then_some(Item::Null));
            lengths.push(0);
            continue;
        }
        let json = Json::parse(jsons.value(row)).map_err(failed)?;
        let mut path = |text: &str| -> Result<Path> {
            match &last {
                Some((known, path)) if known == text => Ok(path.clone()),
                _ => {
                    let path = Path::parse(text).map_err(failed)?;
                    last = Some((text.to_string(), path.clone()));
                    Ok(path)
                }
            }
        };
        match arrays.get(1).map(|paths| (paths, paths.data_type())) {
            None => items.push(of.item(Some(&json))),
            Some((paths, DataType::Int64)) => {
                let path = Path::index(paths.as_primitive::<Int64Type>().value(row));
                items.push(of.item(path.find(&json).first().copied()));
            }
            Some((paths, DataType::List(_))) => {
                let paths = paths.as_list::<i32>().value(row);
                for text in paths.as_string::<i32>() {
                    items.push(match text {
                        Some(text) => of.item(path(text)?.find(&json).first().copied()),
                        None => Item::Null,
                    });
                }
            }
            Some((paths, _)) => {
                let path = path(paths.as_string::<i32>().value(row))?;
                let found = path.find(&json);
                match many {
                    true => items.extend(found.into_iter().map(|json| of.item(Some(json)))),
                    false if path.is_wild() => {
                        return Err(failed("a path with * must be a constant".to_string()));
                    }
                    false => items.push(of.item(found.first().copied())),
                }
            }
        }
        lengths.push(items.len() - before);
    }
    let column = column(items, &of.data_type());
    if !many {
        return Ok(column);
    }
    let field = Arc::new(Field::new_list_field(of.data_type(), true));
    Ok(Arc::new(ListArray::try_new(field, OffsetBuffer::from_lengths(lengths), column, valid.finish())?))
}

/// Returns a column of items.
fn column(items: Vec<Item>, data_type: &DataType) -> ArrayRef {
    let text = |item: Item| match item {
        Item::Text(text) => Some(text),
        _ => None,
    };
    match data_type {
        DataType::LargeUtf8 => Arc::new(items.into_iter().map(text).collect::<LargeStringArray>()),
        DataType::Boolean => {
            let is = |item| if let Item::Boolean(is) = item { Some(is) } else { None };
            Arc::new(items.into_iter().map(is).collect::<BooleanArray>())
        }
        DataType::UInt64 => {
            let number = |item| if let Item::Number(number) = item { Some(number) } else { None };
            Arc::new(items.into_iter().map(number).collect::<UInt64Array>())
        }
        DataType::List(_) => {
            let mut lists = ListBuilder::new(StringBuilder::new());
            for item in items {
                lists.append_option(match item {
                    Item::Texts(texts) => Some(texts.into_iter().map(Some)),
                    _ => None,
                });
            }
            Arc::new(lists.finish())
        }
        _ => Arc::new(items.into_iter().map(text).collect::<StringArray>()),
    }
}

/// Computes a function of the texts of each row.
fn each_text(
    name: &str,
    arrays: &[ArrayRef],
    result: &DataType,
    body: fn(&[&str]) -> std::result::Result<Item, String>,
) -> Result<ArrayRef> {
    let columns = arrays.iter().map(json_texts).collect::<Result<Vec<_>>>()?;
    let mut items = Vec::with_capacity(arrays[0].len());
    for row in 0..arrays[0].len() {
        if columns.iter().any(|column| column.is_null(row)) {
            items.push(Item::Null);
            continue;
        }
        let texts: Vec<&str> = columns.iter().map(|column| column.value(row)).collect();
        items.push(body(&texts).map_err(|cause| match cause.starts_with("cannot ") {
            true => exec_datafusion_err!("{cause}"),
            false => exec_datafusion_err!("cannot call {name}: {cause}"),
        })?);
    }
    Ok(column(items, result))
}

/// Returns the type that the second argument of `from_json` describes.
fn structured(name: &str, constants: &[Option<&ScalarValue>]) -> Result<DataType> {
    let Some(Some(structure)) = constants.get(1).copied().flatten().map(|one| one.try_as_str().flatten())
    else {
        return plan_err!(
            "cannot call {name}: its second argument must be a constant such as '{{\"key\": \"INT\"}}'"
        );
    };
    Json::parse(structure)
        .and_then(|json| type_of(&json))
        .map_err(|cause| plan_datafusion_err!("cannot call {name}: {cause}"))
}

fn parsed(arrays: &[ArrayRef], result: &DataType, strict: bool) -> Result<ArrayRef> {
    transformed(json_texts(&arrays[0])?.iter(), result, !strict)
}
