//! Functions of lists that choose, order or join elements.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, ListArray, NullBufferBuilder, UInt64Array,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{SortOptions, cast, interleave, sort_to_indices, take};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::{Result, exec_err, plan_datafusion_err, plan_err};
use datafusion::logical_expr::type_coercion::binary::type_union_coercion;

use crate::functions::typed::Typed;
use crate::types::names::name as type_name;

pub(crate) const FUNCTIONS: &[Typed] = &[
    Typed {
        name: "list_where",
        aliases: &["array_where"],
        coerced: |types| {
            chosen("list_where", types, DataType::Boolean, |kind| matches!(kind, DataType::Boolean))
        },
        result: |types, _| Ok(types[0].clone()),
        invoke: |arrays, _| {
            choose("list_where", arrays, |mask| {
                let mask = mask.as_boolean();
                (0..mask.len()).filter(|at| mask.value(*at)).map(|at| at as i64 + 1).collect()
            })
        },
    },
    Typed {
        name: "list_select",
        aliases: &["array_select"],
        coerced: |types| chosen("list_select", types, DataType::Int64, DataType::is_integer),
        result: |types, _| Ok(types[0].clone()),
        invoke: |arrays, _| {
            choose("list_select", arrays, |places| places.as_primitive::<Int64Type>().values().to_vec())
        },
    },
    Typed {
        name: "list_grade_up",
        aliases: &["array_grade_up", "grade_up"],
        coerced: |types| match types {
            [list, words @ ..] if words.len() <= 2 => {
                let list = as_list("list_grade_up", 0, list)?;
                Ok([list].into_iter().chain(words.iter().map(|_| DataType::Utf8)).collect())
            }
            _ => plan_err!("cannot call list_grade_up: write list_grade_up(list, 'ASC', 'NULLS LAST')"),
        },
        result: |_, _| Ok(DataType::new_list(DataType::Int64, true)),
        invoke: |arrays, _| {
            let word = |at: usize| arrays.get(at).filter(|words| words.is_valid(0));
            let is = |at: usize, start: &str| {
                word(at)
                    .is_some_and(|words| words.as_string::<i32>().value(0).to_uppercase().starts_with(start))
            };
            let options = SortOptions { descending: is(1, "DESC"), nulls_first: is(2, "NULLS FIRST") };
            let lists = arrays[0].as_list::<i32>();
            let (mut places, mut lengths) = (Vec::new(), Vec::with_capacity(lists.len()));
            for row in 0..lists.len() {
                let before = places.len();
                if lists.is_valid(row) {
                    let order = sort_to_indices(&lists.value(row), Some(options), None)?;
                    places.extend(order.values().iter().map(|at| i64::from(*at) + 1));
                }
                lengths.push(places.len() - before);
            }
            let field = Arc::new(Field::new_list_field(DataType::Int64, true));
            let offsets = OffsetBuffer::from_lengths(lengths);
            let places = Arc::new(Int64Array::from(places));
            Ok(Arc::new(ListArray::try_new(field, offsets, places, lists.nulls().cloned())?))
        },
    },
    Typed {
        name: "list_has_any",
        aliases: &["array_has_any", "arrays_overlap"],
        coerced: |types| pair("list_has_any", types),
        result: |_, _| Ok(DataType::Boolean),
        invoke: |arrays, _| has(arrays, false),
    },
    Typed {
        name: "list_has_all",
        aliases: &["array_has_all"],
        coerced: |types| pair("list_has_all", types),
        result: |_, _| Ok(DataType::Boolean),
        invoke: |arrays, _| has(arrays, true),
    },
    Typed {
        name: "list_concat",
        aliases: &["list_cat", "array_concat", "array_cat"],
        coerced: |types| {
            let lists = types.iter().enumerate().map(|(at, kind)| as_list("list_concat", at, kind));
            let common = common("list_concat", &lists.collect::<Result<Vec<_>>>()?)?;
            Ok(vec![common; types.len()])
        },
        result: |types, _| Ok(types[0].clone()),
        invoke: |arrays, result| {
            let lists: Vec<&ListArray> = arrays.iter().map(|array| array.as_list::<i32>()).collect();
            let values: Vec<&dyn Array> = lists.iter().map(|list| list.values().as_ref()).collect();
            let (mut places, mut lengths) = (Vec::new(), Vec::new());
            let mut valid = NullBufferBuilder::new(lists[0].len());
            for row in 0..lists[0].len() {
                let before = places.len();
                for (of, list) in lists.iter().enumerate().filter(|(_, list)| list.is_valid(row)) {
                    let offsets = list.value_offsets();
                    places.extend((offsets[row]..offsets[row + 1]).map(|at| (of, at as usize)));
                }
                lengths.push(places.len() - before);
                valid.append(lists.iter().any(|list| list.is_valid(row)));
            }
            let values = interleave(&values, &places)?;
            let offsets = OffsetBuffer::from_lengths(lengths);
            Ok(Arc::new(ListArray::try_new(item_of(result)?, offsets, values, valid.finish())?))
        },
    },
];

/// Returns the types of two lists with elements of one type.
fn pair(name: &str, given: &[DataType]) -> Result<Vec<DataType>> {
    let [a, b] = given else {
        return plan_err!("cannot call {name}: {} arguments were given; it takes two lists", given.len());
    };
    let common = common(name, &[as_list(name, 0, a)?, as_list(name, 1, b)?])?;
    Ok(vec![common.clone(), common])
}

/// Returns the type of lists with elements of one type.
fn common(name: &str, lists: &[DataType]) -> Result<DataType> {
    let mut common = DataType::Null;
    for list in lists {
        let DataType::List(item) = list else { continue };
        let next = item.data_type();
        let mixed = next.is_string() != common.is_string() && !next.is_null() && !common.is_null();
        let both = type_union_coercion(&common, next).filter(|_| !mixed);
        common = both.ok_or_else(|| {
            plan_datafusion_err!(
                "cannot call {name}: one list has elements of type {}, another of {}; CAST one",
                type_name(&common),
                type_name(next)
            )
        })?;
    }
    Ok(DataType::new_list(common, true))
}

/// Returns true for rows where any or all elements of the second list, except NULL, are in the first one.
fn has(arrays: &[ArrayRef], all: bool) -> Result<ArrayRef> {
    let [lists, wanted] = [arrays[0].as_list::<i32>(), arrays[1].as_list::<i32>()];
    let field = SortField::new(lists.values().data_type().clone());
    let converter = RowConverter::new(vec![field])?;
    let rows = [lists, wanted].map(|list| converter.convert_columns(std::slice::from_ref(list.values())));
    let [known, others] = rows;
    let (known, others) = (known?, others?);
    let range = |list: &ListArray, row: usize| {
        list.value_offsets()[row] as usize..list.value_offsets()[row + 1] as usize
    };
    let found = |row: usize| {
        (lists.is_valid(row) && wanted.is_valid(row)).then(|| {
            let elements: HashSet<_> = range(lists, row).map(|at| known.row(at)).collect();
            let mut wanted = range(wanted, row)
                .filter(|at| wanted.values().is_valid(*at))
                .map(|at| elements.contains(&others.row(at)));
            if all { wanted.all(|has| has) } else { wanted.any(|has| has) }
        })
    };
    Ok(Arc::new((0..lists.len()).map(found).collect::<BooleanArray>()))
}

/// Returns the list type of an argument.
fn as_list(name: &str, at: usize, given: &DataType) -> Result<DataType> {
    match given {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            Ok(DataType::new_list(item.data_type().clone(), true))
        }
        DataType::Null => Ok(DataType::new_list(DataType::Null, true)),
        other => {
            plan_err!("cannot call {name}: argument {} is {}; it must be a list", at + 1, type_name(other))
        }
    }
}

fn item_of(list: &DataType) -> Result<FieldRef> {
    match list {
        DataType::List(item) => Ok(Arc::clone(item)),
        other => exec_err!("{other} is not a list"),
    }
}

/// Returns the types of a list and one that chooses its elements.
fn chosen(
    name: &str,
    given: &[DataType],
    by: DataType,
    fits: fn(&DataType) -> bool,
) -> Result<Vec<DataType>> {
    let [list, places] = given else {
        return plan_err!("cannot call {name}: {} arguments were given; it takes two lists", given.len());
    };
    let list = as_list(name, 0, list)?;
    match as_list(name, 1, places)? {
        DataType::List(item) if fits(item.data_type()) || item.data_type().is_null() => {
            Ok(vec![list, DataType::new_list(by, true)])
        }
        other => plan_err!(
            "cannot call {name}: argument 2 is {}; it must be {}[]",
            type_name(&other),
            type_name(&by)
        ),
    }
}

/// Returns the elements at the places, which count from 1, that `places` finds in the second list. There is NULL at
/// others.
fn choose(name: &str, arrays: &[ArrayRef], places: fn(&ArrayRef) -> Vec<i64>) -> Result<ArrayRef> {
    let (lists, by) = (arrays[0].as_list::<i32>(), arrays[1].as_list::<i32>());
    let (mut indices, mut lengths) = (Vec::new(), Vec::with_capacity(lists.len()));
    let mut valid = NullBufferBuilder::new(lists.len());
    for row in 0..lists.len() {
        let before = indices.len();
        valid.append(lists.is_valid(row) && by.is_valid(row));
        if lists.is_valid(row) && by.is_valid(row) {
            let chosen = by.value(row);
            if chosen.null_count() > 0 {
                return exec_err!("cannot call {name}: an element of the second list is NULL; remove it");
            }
            let (start, length) = (i64::from(lists.value_offsets()[row]), i64::from(lists.value_length(row)));
            let index = |place: i64| (1..=length).contains(&place).then(|| (start + place - 1) as u64);
            indices.extend(places(&chosen).into_iter().map(index));
        }
        lengths.push(indices.len() - before);
    }
    let values = take(lists.values(), &UInt64Array::from(indices), None)?;
    let field = item_of(arrays[0].data_type())?;
    let values = cast(&values, field.data_type())?;
    Ok(Arc::new(ListArray::try_new(field, OffsetBuffer::from_lengths(lengths), values, valid.finish())?))
}
