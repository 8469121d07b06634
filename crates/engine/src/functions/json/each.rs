//! `json_each` and `json_tree`: a row for each value within JSON. `crate::queries` joins their rows to other tables.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, LargeStringArray, ListArray, StringArray, StructArray, UInt64Array,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::{DataFusionError, Result, exec_datafusion_err, plan_err};

use super::{as_text, is_text, json_texts};
use crate::functions::json::path::Path;
use crate::types::json::Json;
use crate::types::names::JSON;

/// The columns.
pub(crate) const COLUMNS: [&str; 8] = ["key", "value", "type", "atom", "id", "parent", "fullkey", "path"];

/// Returns the types of the arguments: JSON and a path.
pub(super) fn coerced(name: &str, given: &[DataType]) -> Result<Vec<DataType>> {
    match given {
        [json] => Ok(vec![as_text(name, 0, json)?]),
        [json, path] if is_text(path) => Ok(vec![as_text(name, 0, json)?, DataType::Utf8]),
        _ => plan_err!("cannot call {name}: write {name}(json) or {name}(json, '$.path')"),
    }
}

fn fields() -> Fields {
    let kinds = [
        DataType::Utf8,
        JSON,
        DataType::Utf8,
        JSON,
        DataType::UInt64,
        DataType::UInt64,
        DataType::Utf8,
        DataType::Utf8,
    ];
    COLUMNS.iter().zip(kinds).map(|(name, kind)| Field::new(*name, kind, true)).collect()
}

/// Returns the type of the rows of one value.
pub(super) fn rows_type() -> DataType {
    DataType::new_list(DataType::Struct(fields()), true)
}

/// Returns the rows of each value; with `tree`, also those of values within values.
pub(super) fn rows(name: &str, arrays: &[ArrayRef], tree: bool) -> Result<ArrayRef> {
    let failed = |cause: String| match cause.starts_with("cannot ") {
        true => exec_datafusion_err!("{cause}"),
        false => exec_datafusion_err!("cannot call {name}: {cause}"),
    };
    let jsons = json_texts(&arrays[0])?;
    let paths = arrays.get(1).map(|paths| paths.as_string::<i32>());
    let mut rows = Rows::default();
    let mut lengths = Vec::with_capacity(jsons.len());
    for row in 0..jsons.len() {
        let before = rows.ids.len();
        if arrays.iter().all(|array| array.is_valid(row)) {
            let json = Json::parse(jsons.value(row)).map_err(failed)?;
            let path = paths.map_or("$", |paths| paths.value(row));
            rows.add(&json, path, tree).map_err(failed)?;
        }
        lengths.push(rows.ids.len() - before);
    }
    rows.into_lists(lengths)
}

/// A value, its key, its path, and its number among all keys and values.
struct Child<'a, 'b> {
    key: String,
    path: String,
    json: &'b Json<'a>,
    id: u64,
}

/// Returns the values directly within one.
fn children<'a, 'b>(json: &'b Json<'a>, path: &str, id: u64) -> Vec<Child<'a, 'b>> {
    let mut next = id + 1;
    let mut numbered = |key_size: u64, json: &Json<'_>| {
        let id = next + key_size;
        next = id + size(json);
        id
    };
    match json {
        Json::List(items) => {
            let items = items.iter().enumerate();
            items
                .map(|(at, json)| {
                    let id = numbered(0, json);
                    Child { key: at.to_string(), path: format!("{path}[{at}]"), json, id }
                })
                .collect()
        }
        Json::Object(members) => members
            .iter()
            .map(|(key, json)| {
                let id = numbered(1, json);
                Child { key: key.clone(), path: format!("{path}.{key}"), json, id }
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// Returns the number of keys and values within a value, with itself.
fn size(json: &Json<'_>) -> u64 {
    match json {
        Json::List(items) => 1 + items.iter().map(size).sum::<u64>(),
        Json::Object(members) => 1 + members.iter().map(|(_, json)| 1 + size(json)).sum::<u64>(),
        _ => 1,
    }
}

/// Returns the number of a value within another one, whose own is `id`.
fn id_of(wanted: &Json<'_>, json: &Json<'_>, id: u64) -> Option<u64> {
    if std::ptr::eq(wanted, json) {
        return Some(id);
    }
    children(json, "", id).iter().find_map(|child| id_of(wanted, child.json, child.id))
}

/// The columns of the rows so far.
#[derive(Default)]
struct Rows {
    keys: Vec<Option<String>>,
    values: Vec<String>,
    kinds: Vec<&'static str>,
    atoms: Vec<Option<String>>,
    ids: Vec<u64>,
    parents: Vec<Option<u64>>,
    fullkeys: Vec<String>,
    paths: Vec<String>,
}

impl Rows {
    fn add(&mut self, json: &Json<'_>, path: &str, tree: bool) -> std::result::Result<(), String> {
        let base = match path {
            path if path.starts_with('$') => path.to_string(),
            path if path.starts_with('/') => return Err("the path must start with $".to_string()),
            key => format!("$.\"{key}\""),
        };
        let path = Path::parse(path)?;
        if path.is_wild() {
            return Err("the path cannot have *".to_string());
        }
        let Some(found) = path.find(json).first().copied() else { return Ok(()) };
        let id = id_of(found, json, 0).unwrap_or_default();
        if tree {
            self.push(None, found, id, None, base.clone(), &base);
            self.add_within(found, &base, id);
            return Ok(());
        }
        match children(found, &base, id) {
            _ if !matches!(found, Json::List(_) | Json::Object(_)) => {
                self.push(None, found, id, None, base.clone(), &base);
            }
            children => children
                .into_iter()
                .for_each(|child| self.push(Some(child.key), child.json, child.id, None, child.path, &base)),
        }
        Ok(())
    }

    fn add_within(&mut self, json: &Json<'_>, path: &str, id: u64) {
        for child in children(json, path, id) {
            self.push(Some(child.key), child.json, child.id, Some(id), child.path.clone(), path);
            self.add_within(child.json, &child.path, child.id);
        }
    }

    fn push(
        &mut self,
        key: Option<String>,
        json: &Json<'_>,
        id: u64,
        parent: Option<u64>,
        fullkey: String,
        path: &str,
    ) {
        let text = json.to_string();
        self.keys.push(key);
        self.atoms.push(match json {
            Json::List(_) | Json::Object(_) | Json::Null => None,
            _ => Some(text.clone()),
        });
        self.values.push(text);
        self.kinds.push(json.type_name());
        self.ids.push(id);
        self.parents.push(parent);
        self.fullkeys.push(fullkey);
        self.paths.push(path.to_string());
    }

    fn into_lists(self, lengths: Vec<usize>) -> Result<ArrayRef> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from(self.keys)),
            Arc::new(LargeStringArray::from(self.values)),
            Arc::new(StringArray::from(self.kinds)),
            Arc::new(LargeStringArray::from(self.atoms)),
            Arc::new(UInt64Array::from(self.ids)),
            Arc::new(UInt64Array::from(self.parents)),
            Arc::new(StringArray::from(self.fullkeys)),
            Arc::new(StringArray::from(self.paths)),
        ];
        let rows = StructArray::try_new(fields(), columns, None).map_err(DataFusionError::from)?;
        let field = Arc::new(Field::new_list_field(DataType::Struct(fields()), true));
        Ok(Arc::new(ListArray::try_new(field, OffsetBuffer::from_lengths(lengths), Arc::new(rows), None)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_numbered_in_their_order() {
        let json = Json::parse(r#"{"a":1,"b":[1,{"c":2}]}"#).unwrap();
        let mut rows = Rows::default();
        rows.add(&json, "$", true).unwrap();
        assert_eq!(rows.ids, [0, 2, 4, 5, 6, 8]);
        assert_eq!(rows.parents, [None, Some(0), Some(0), Some(4), Some(4), Some(6)]);
        assert_eq!(rows.fullkeys, ["$", "$.a", "$.b", "$.b[0]", "$.b[1]", "$.b[1].c"]);
        let mut rows = Rows::default();
        rows.add(&json, "$.b", false).unwrap();
        assert_eq!((rows.ids, rows.keys), (vec![5, 6], vec![Some("0".to_string()), Some("1".to_string())]));
        assert!(Rows::default().add(&json, "$.*", false).is_err());
    }
}
