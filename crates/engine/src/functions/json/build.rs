//! JSON from values of other types.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, LargeStringArray, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err, plan_err};

use crate::types::cast::converted;
use crate::types::cast::json::texts;
use crate::types::json::quoted;
use crate::types::names::name;

/// Returns the JSON of each value; NULL is `null`.
pub(super) fn items(array: &ArrayRef) -> Result<ArrayRef> {
    Ok(Arc::new(StringArray::from_iter_values(texts(array)?)))
}

/// Returns a list of the values in each row.
pub(super) fn lists(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let columns = arrays.iter().map(texts).collect::<Result<Vec<_>>>()?;
    let list = |row: usize| {
        let items: Vec<&str> = columns.iter().map(|column| column[row].as_str()).collect();
        format!("[{}]", items.join(","))
    };
    let rows = arrays.first().map_or(1, |array| array.len());
    Ok(Arc::new(LargeStringArray::from_iter_values((0..rows).map(list))))
}

/// Checks the arguments of `json_object`.
pub(super) fn with_keys(given: &[DataType]) -> Result<Vec<DataType>> {
    if given.len() % 2 == 1 {
        return plan_err!(
            "cannot call json_object: {} arguments were given; it takes keys and values in turn",
            given.len()
        );
    }
    let kinds = given.iter().enumerate();
    kinds
        .map(|(at, kind)| match kind {
            kind if at % 2 == 1 => Ok(kind.clone()),
            kind if kind.is_string() => Ok(DataType::Utf8),
            other => plan_err!(
                "cannot call json_object: argument {} is {}; a key must be text; CAST it AS VARCHAR",
                at + 1,
                name(other)
            ),
        })
        .collect()
}

/// Returns an object of the keys and values in each row.
pub(super) fn objects(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let columns = arrays.chunks(2).map(|pair| members(&pair[0], &pair[1])).collect::<Result<Vec<_>>>()?;
    let columns: Vec<&StringArray> = columns.iter().map(|column| column.as_string::<i32>()).collect();
    let object = |row: usize| {
        let members: Vec<&str> = columns.iter().map(|column| column.value(row)).collect();
        format!("{{{}}}", members.join(","))
    };
    Ok(Arc::new(LargeStringArray::from_iter_values((0..arrays[0].len()).map(object))))
}

/// Returns `"key":value` of each row.
pub(super) fn members(keys: &ArrayRef, values: &ArrayRef) -> Result<ArrayRef> {
    if keys.logical_null_count() > 0 {
        return exec_err!("cannot make a JSON object: a key is NULL; use coalesce(key, '')");
    }
    let keys = converted(keys, &DataType::Utf8, false)?;
    let pairs = keys.as_string::<i32>().iter().flatten().zip(texts(values)?);
    Ok(Arc::new(StringArray::from_iter_values(pairs.map(|(key, value)| format!("{}:{value}", quoted(key))))))
}

/// Joins the texts of each list within brackets.
pub(super) fn joined(lists: &ArrayRef, brackets: &ArrayRef) -> Result<ArrayRef> {
    let lists = lists.as_list::<i32>();
    let brackets = brackets.as_string::<i32>();
    let joined = |row: usize| {
        let (open, close) = brackets.value(row).split_at(1);
        lists.is_valid(row).then(|| {
            let items = lists.value(row);
            let items: Vec<&str> = items.as_string::<i32>().iter().flatten().collect();
            format!("{open}{}{close}", items.join(","))
        })
    };
    Ok(Arc::new((0..lists.len()).map(joined).collect::<LargeStringArray>()))
}
