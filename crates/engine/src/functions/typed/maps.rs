//! Functions that make maps and structs of others.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, MapArray, NullBufferBuilder, StructArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::interleave;
use datafusion::arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};

use crate::functions::typed::{Typed, nullable, within};
use crate::types::names::name;

pub(crate) const FUNCTIONS: &[Typed] = &[
    Typed {
        name: "map_concat",
        aliases: &[],
        coerced: |types| {
            let map = types.iter().find(|kind| !kind.is_null()).unwrap_or(&DataType::Null);
            match types.iter().find(|kind| !kind.is_null() && *kind != map) {
                _ if types.len() < 2 => plan_err!("cannot call map_concat: it takes two or more maps"),
                Some(other) => plan_err!(
                    "cannot call map_concat: one map is {}, another is {}; CAST one",
                    name(map),
                    name(other)
                ),
                None if matches!(map, DataType::Map(_, _) | DataType::Null) => {
                    Ok(vec![map.clone(); types.len()])
                }
                None => {
                    plan_err!("cannot call map_concat: an argument is {}; it must be a map", name(map))
                }
            }
        },
        result: |types, _| Ok(types[0].clone()),
        invoke: |arrays, result| match result {
            DataType::Map(_, _) => concat(arrays, result),
            _ => Ok(Arc::clone(&arrays[0])),
        },
    },
    Typed {
        name: "map_from_entries",
        aliases: &[],
        coerced: |types| match types {
            [DataType::List(item)] if matches!(item.data_type(), DataType::Struct(fields) if fields.len() == 2) => {
                Ok(types.to_vec())
            }
            [DataType::Null] => Ok(types.to_vec()),
            _ => plan_err!(
                "cannot call map_from_entries: its argument must be a list of structs with a key and a value"
            ),
        },
        result: |types, _| {
            Ok(match &types[0] {
                DataType::List(item) => match item.data_type() {
                    DataType::Struct(fields) => map(fields[0].data_type(), fields[1].data_type()),
                    other => other.clone(),
                },
                other => other.clone(),
            })
        },
        invoke: |arrays, result| match result {
            DataType::Map(_, _) => from_entries(&arrays[0], result),
            _ => Ok(Arc::clone(&arrays[0])),
        },
    },
    Typed {
        name: "struct_keys",
        aliases: &[],
        coerced: |types| match types {
            [DataType::Struct(_)] => Ok(types.to_vec()),
            _ => plan_err!("cannot call struct_keys: its argument must be a struct"),
        },
        result: |_, _| Ok(DataType::new_list(DataType::Utf8, true)),
        invoke: |arrays, result| {
            let names = arrays[0].as_struct().fields().iter().map(|field| Some(field.name().as_str()));
            let names: ArrayRef = Arc::new(names.collect::<datafusion::arrow::array::StringArray>());
            let keys = SingleRowListArrayBuilder::new(names).with_nullable(true).build_list_scalar();
            let null = ScalarValue::try_from(result)?;
            let rows = (0..arrays[0].len()).map(|row| if arrays[0].is_valid(row) { &keys } else { &null });
            ScalarValue::iter_to_array(rows.cloned())
        },
    },
    Typed {
        name: "struct_concat",
        aliases: &[],
        coerced: |types| match types.iter().all(|kind| matches!(kind, DataType::Struct(_))) {
            true => Ok(types.to_vec()),
            false => plan_err!("cannot call struct_concat: its arguments must be structs"),
        },
        result: |types, _| {
            let fields = types.iter().filter_map(|kind| match kind {
                DataType::Struct(fields) => Some(fields.iter().cloned()),
                _ => None,
            });
            let fields: Fields = fields.flatten().collect();
            let mut names = HashSet::new();
            match fields.iter().find(|field| !names.insert(field.name().to_lowercase())) {
                Some(field) => plan_err!("cannot call struct_concat: field {} occurs twice", field.name()),
                None => Ok(DataType::Struct(nullable(&fields))),
            }
        },
        invoke: |arrays, result| {
            let DataType::Struct(fields) = result else { return exec_err!("struct_concat returns a struct") };
            let mut columns = Vec::with_capacity(fields.len());
            for array in arrays {
                let parts = array.as_struct();
                for column in parts.columns() {
                    columns.push(within(column, parts)?);
                }
            }
            Ok(Arc::new(StructArray::try_new(fields.clone(), columns, None)?))
        },
    },
];

/// Returns the type of a map.
fn map(key: &DataType, value: &DataType) -> DataType {
    let fields = vec![Field::new("key", key.clone(), false), Field::new("value", value.clone(), true)];
    DataType::Map(Arc::new(Field::new("entries", DataType::Struct(fields.into()), false)), false)
}

/// Returns the entries of all maps of a row; of several with one key, the last value at the place of the first.
fn concat(arrays: &[ArrayRef], result: &DataType) -> Result<ArrayRef> {
    let maps: Vec<&MapArray> = arrays.iter().map(|array| array.as_map()).collect();
    let (mut keys, mut values, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
    let mut valid = NullBufferBuilder::new(maps[0].len());
    for row in 0..maps[0].len() {
        let mut places: HashMap<ScalarValue, usize> = HashMap::new();
        let before = keys.len();
        for (of, map) in maps.iter().enumerate().filter(|(_, map)| map.is_valid(row)) {
            for at in map.value_offsets()[row] as usize..map.value_offsets()[row + 1] as usize {
                let place = *places.entry(ScalarValue::try_from_array(map.keys(), at)?).or_insert(keys.len());
                if place == keys.len() {
                    keys.push((of, at));
                    values.push((of, at));
                }
                values[place] = (of, at);
            }
        }
        lengths.push(keys.len() - before);
        valid.append(maps.iter().any(|map| map.is_valid(row)));
    }
    let of_all = |part: fn(&MapArray) -> &ArrayRef, places: &[(usize, usize)]| {
        let parts: Vec<&dyn Array> = maps.iter().map(|map| part(map).as_ref()).collect();
        interleave(&parts, places)
    };
    let columns = vec![of_all(MapArray::keys, &keys)?, of_all(MapArray::values, &values)?];
    made(columns, lengths, valid, result)
}

fn from_entries(entries: &ArrayRef, result: &DataType) -> Result<ArrayRef> {
    let lists = entries.as_list::<i32>();
    let (mut places, mut lengths) = (Vec::new(), Vec::new());
    let structs = lists.values().as_struct();
    let keys = structs.column(0);
    let mut valid = NullBufferBuilder::new(lists.len());
    for row in 0..lists.len() {
        let before = places.len();
        valid.append(lists.is_valid(row));
        let mut known = HashSet::new();
        let range = lists.value_offsets()[row] as usize..lists.value_offsets()[row + 1] as usize;
        for at in range.filter(|_| lists.is_valid(row)) {
            if structs.is_null(at) || keys.is_null(at) {
                return exec_err!("cannot call map_from_entries: a key is NULL; remove the entry");
            }
            let key = ScalarValue::try_from_array(keys, at)?;
            if known.contains(&key) {
                return exec_err!("cannot call map_from_entries: key {key} occurs twice; remove one");
            }
            known.insert(key);
            places.push((0, at));
        }
        lengths.push(places.len() - before);
    }
    let of_all = |column: &ArrayRef| interleave(&[column.as_ref()], &places);
    made(vec![of_all(keys)?, of_all(structs.column(1))?], lengths, valid, result)
}

fn made(
    columns: Vec<ArrayRef>,
    lengths: Vec<usize>,
    mut valid: NullBufferBuilder,
    result: &DataType,
) -> Result<ArrayRef> {
    let DataType::Map(entries, sorted) = result else { return exec_err!("{result} is not a map") };
    let DataType::Struct(fields) = entries.data_type() else { return exec_err!("{result} is not a map") };
    let structs = StructArray::try_new(fields.clone(), columns, None)?;
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(MapArray::try_new(Arc::clone(entries), offsets, structs, valid.finish(), *sorted)?))
}
