//! Lists, structs and maps: from text such as `[1, 2]`, and item by item.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, ListArray, MapArray, NullBufferBuilder, StringViewArray, StructArray,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::datatypes::{DataType, FieldRef, Fields};
use datafusion::common::{Result, exec_datafusion_err};

use crate::types::cast::{How, arrow, convert as convert_array, quoted};
use crate::types::names::name;

/// Returns for each field of `to` the index of the field of `from` with its value; `None` if `from` lacks the field,
/// which then is NULL. Fields are matched by name, or by position if `from` has no names of its own. Returns `None` if no
/// field matches.
pub(super) fn pairs(from: &Fields, to: &Fields) -> Option<Vec<Option<usize>>> {
    let unnamed = from.len() == to.len()
        && from.iter().enumerate().all(|(at, field)| *field.name() == format!("c{at}"));
    if unnamed {
        return Some((0..to.len()).map(Some).collect());
    }
    let same = |a: &FieldRef, b: &FieldRef| a.name().eq_ignore_ascii_case(b.name());
    let pairs: Vec<Option<usize>> = to.iter().map(|to| from.iter().position(|from| same(from, to))).collect();
    pairs.iter().any(Option::is_some).then_some(pairs)
}

/// Converts lists and structs whose items need a conversion of ours.
pub(super) fn convert(array: &ArrayRef, to: &DataType, how: &How) -> Result<ArrayRef> {
    match (array.data_type(), to) {
        (DataType::List(_), DataType::List(item)) => {
            let lists = array.as_list::<i32>();
            let values = convert_array(lists.values(), item.data_type(), how)?;
            Ok(Arc::new(ListArray::try_new(
                Arc::clone(item),
                lists.offsets().clone(),
                values,
                lists.nulls().cloned(),
            )?))
        }
        (DataType::Struct(from), DataType::Struct(fields)) => {
            let structs = array.as_struct();
            let pairs = pairs(from, fields).ok_or_else(|| {
                exec_datafusion_err!(
                    "cannot cast {} to {}: no field has the same name",
                    name(array.data_type()),
                    name(to)
                )
            })?;
            let columns = pairs.iter().zip(fields).map(|(index, field)| match index {
                Some(index) => convert_array(structs.column(*index), field.data_type(), how),
                None => Ok(datafusion::arrow::array::new_null_array(field.data_type(), structs.len())),
            });
            let columns = columns.collect::<Result<Vec<_>>>()?;
            Ok(Arc::new(StructArray::try_new(fields.clone(), columns, structs.nulls().cloned())?))
        }
        _ => arrow(array, to, how),
    }
}

/// Parses lists, structs and maps.
pub(super) fn parsed(texts: &StringViewArray, to: &DataType, how: &How) -> Result<ArrayRef> {
    match to {
        DataType::List(item) => {
            let rows = rows(texts, to, how, "it is not a list such as [1, 2]", |text| {
                Some(
                    items(text.strip_prefix('[')?.strip_suffix(']')?)?
                        .into_iter()
                        .map(|item| vec![unquoted(item)])
                        .collect(),
                )
            })?;
            let values = convert_array(&rows.column(0), item.data_type(), how)?;
            Ok(Arc::new(ListArray::try_new(Arc::clone(item), rows.offsets(), values, rows.nulls)?))
        }
        DataType::Map(entries, sorted) => {
            let DataType::Struct(fields) = entries.data_type() else {
                return arrow(&(Arc::new(texts.clone()) as ArrayRef), to, how);
            };
            let rows = rows(texts, to, how, "it is not a map such as {a=1, b=2}", |text| {
                let items = items(text.strip_prefix('{')?.strip_suffix('}')?)?;
                items
                    .into_iter()
                    .map(|item| pair(item, '=').map(|(key, value)| vec![unquoted(key), unquoted(value)]))
                    .collect()
            })?;
            let columns = [0, 1].map(|at| convert_array(&rows.column(at), fields[at].data_type(), how));
            let columns = columns.into_iter().collect::<Result<Vec<_>>>()?;
            let items = StructArray::try_new(fields.clone(), columns, None)?;
            Ok(Arc::new(MapArray::try_new(Arc::clone(entries), rows.offsets(), items, rows.nulls, *sorted)?))
        }
        DataType::Struct(fields) => {
            let rows = rows(texts, to, how, "it is not a struct such as {'a': 1}", |text| {
                let items = items(text.strip_prefix('{')?.strip_suffix('}')?)?;
                let mut values = vec![None; fields.len()];
                for item in items {
                    let (key, value) = pair(item, ':')?;
                    let key = unquoted(key)?;
                    let at = fields.iter().position(|field| field.name().eq_ignore_ascii_case(&key))?;
                    values[at] = unquoted(value);
                }
                Some(vec![values])
            })?;
            // Each row that is not NULL has one item; the others get one, too.
            let lengths = rows.lengths.iter();
            let mut next = 0;
            let indices: Vec<Option<usize>> = lengths
                .map(|length| {
                    let at = (*length > 0).then_some(next);
                    next += length;
                    at
                })
                .collect();
            let columns = fields.iter().enumerate().map(|(column, field)| {
                let texts = indices.iter().map(|index| index.and_then(|at| rows.items[at][column].clone()));
                convert_array(
                    &(Arc::new(texts.collect::<StringViewArray>()) as ArrayRef),
                    field.data_type(),
                    how,
                )
            });
            let columns = columns.collect::<Result<Vec<_>>>()?;
            Ok(Arc::new(StructArray::try_new(fields.clone(), columns, rows.nulls)?))
        }
        _ => arrow(&(Arc::new(texts.clone()) as ArrayRef), to, how),
    }
}

/// The items of all rows, each a row of texts.
struct Rows {
    items: Vec<Vec<Option<String>>>,
    lengths: Vec<usize>,
    nulls: Option<NullBuffer>,
}

impl Rows {
    fn offsets(&self) -> OffsetBuffer<i32> {
        OffsetBuffer::from_lengths(self.lengths.iter().copied())
    }

    fn column(&self, at: usize) -> ArrayRef {
        Arc::new(self.items.iter().map(|item| item[at].as_deref()).collect::<StringViewArray>())
    }
}

type Items = Vec<Vec<Option<String>>>;

fn rows(
    texts: &StringViewArray,
    to: &DataType,
    how: &How,
    reason: &str,
    parse: impl Fn(&str) -> Option<Items>,
) -> Result<Rows> {
    let mut rows = Rows { items: Vec::new(), lengths: Vec::with_capacity(texts.len()), nulls: None };
    let mut nulls = NullBufferBuilder::new(texts.len());
    for text in texts.iter() {
        let items = match text {
            None => None,
            Some(text) => match parse(text.trim()) {
                Some(items) => Some(items),
                None => how.misfit(&quoted(text), to, reason)?,
            },
        };
        nulls.append(items.is_some());
        let items = items.unwrap_or_default();
        rows.lengths.push(items.len());
        rows.items.extend(items);
    }
    rows.nulls = nulls.finish();
    Ok(rows)
}

/// Splits text at the commas that are outside of quotes and brackets; `None` if these do not match.
fn items(text: &str) -> Option<Vec<&str>> {
    if text.trim().is_empty() {
        return Some(Vec::new());
    }
    let mut parts = Vec::new();
    let mut start = 0;
    for at in top_level(text)? {
        if text.as_bytes()[at] == b',' {
            parts.push(text[start..at].trim());
            start = at + 1;
        }
    }
    parts.push(text[start..].trim());
    Some(parts)
}

/// Splits text at the first separator outside of quotes and brackets.
fn pair(text: &str, separator: char) -> Option<(&str, &str)> {
    let at = top_level(text)?.into_iter().find(|at| text[*at..].starts_with(separator))?;
    Some((text[..at].trim(), text[at + 1..].trim()))
}

/// Returns the places of the ASCII characters outside of quotes and brackets.
fn top_level(text: &str) -> Option<Vec<usize>> {
    let (mut places, mut open, mut quote, mut escaped) = (Vec::new(), Vec::new(), None, false);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (_, '\\') => escaped = true,
            (Some(q), c) if q == c => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => open.push(']'),
            (None, '{') => open.push('}'),
            (None, '(') => open.push(')'),
            (None, ']' | '}' | ')') if open.pop() != Some(c) => return None,
            (None, ']' | '}' | ')') => {}
            (None, c) if open.is_empty() && c.is_ascii() => places.push(at),
            _ => {}
        }
    }
    (open.is_empty() && quote.is_none()).then_some(places)
}

/// Returns an item without its quotes; `None` for NULL.
fn unquoted(item: &str) -> Option<String> {
    let quoted = |quote: char| item.strip_prefix(quote)?.strip_suffix(quote);
    match quoted('\'').or_else(|| quoted('"')) {
        Some(inner) => {
            let mut text = String::with_capacity(inner.len());
            let mut escaped = false;
            for c in inner.chars() {
                escaped = !escaped && c == '\\';
                if !escaped {
                    text.push(c);
                }
            }
            Some(text)
        }
        None => (!item.eq_ignore_ascii_case("null")).then(|| item.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_split_outside_of_quotes_and_brackets() {
        assert_eq!(items("1, [2, 3], 'a, b'").unwrap(), ["1", "[2, 3]", "'a, b'"]);
        assert_eq!(items(" ").unwrap(), Vec::<&str>::new());
        assert_eq!(items("1, ]"), None);
        assert_eq!(pair("'a:b': x", ':'), Some(("'a:b'", "x")));
        assert_eq!(unquoted("'it\\'s'").as_deref(), Some("it's"));
        assert_eq!(unquoted("NULL"), None);
    }
}
