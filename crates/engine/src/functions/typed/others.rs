//! Functions of values of any type, and those whose result has a type of its own.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Decimal256Array, StringArray, StructArray, UInt64Array,
};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, i256};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, exec_err, plan_datafusion_err, plan_err};

use crate::functions::rows::{Memory, patterns};
use crate::functions::typed::Typed;

/// The type of HUGEINT.
const HUGEINT: DataType = DataType::Decimal256(39, 0);

pub(crate) const FUNCTIONS: &[Typed] = &[
    Typed {
        name: "hash",
        aliases: &[],
        coerced: |types| Ok(types.to_vec()),
        result: |_, _| Ok(DataType::UInt64),
        invoke: |arrays, _| {
            let fields = arrays.iter().map(|array| SortField::new(array.data_type().clone())).collect();
            let rows = RowConverter::new(fields)?.convert_columns(arrays)?;
            Ok(Arc::new(UInt64Array::from_iter_values(rows.iter().map(|row| hash(row.as_ref())))))
        },
    },
    Typed {
        name: "factorial",
        aliases: &[],
        coerced: |types| match types {
            [kind] if kind.is_integer() || kind.is_null() => Ok(vec![DataType::Int64]),
            _ => plan_err!("cannot call factorial: its argument must be a whole number"),
        },
        result: |_, _| Ok(HUGEINT),
        invoke: |arrays, _| {
            let factorial = |n: Option<i64>| match n {
                None => Ok(None),
                Some(n @ 0..=33) => Ok(Some(i256::from_i128((1..=i128::from(n)).product()))),
                Some(n) if n < 0 => exec_err!("cannot call factorial: {n} is negative"),
                Some(n) => {
                    exec_err!(
                        "cannot call factorial: {n}! exceeds HUGEINT; use exp(lgamma({n} + 1)), a DOUBLE"
                    )
                }
            };
            let numbers = arrays[0].as_primitive::<Int64Type>().iter().map(factorial);
            let found = numbers.collect::<Result<Decimal256Array>>()?;
            Ok(Arc::new(found.with_data_type(HUGEINT)))
        },
    },
    // The text, the pattern, its options, and the names of its groups.
    Typed {
        name: "pellucid_regexp_groups",
        aliases: &[],
        coerced: |types| match types.iter().all(|kind| kind.is_string() || kind.is_null()) {
            true => Ok(vec![DataType::Utf8; types.len()]),
            false => plan_err!("cannot call regexp_extract: text, pattern and names must be text"),
        },
        result: |_, constants| {
            let text = |at: usize| constants.get(at).copied().flatten().and_then(ScalarValue::try_as_str)?;
            let mut fields = Vec::new();
            for at in 3..constants.len() {
                let name = text(at).ok_or_else(|| {
                    plan_datafusion_err!("cannot call regexp_extract: the names of groups must be constants")
                })?;
                fields.push(Field::new(name, DataType::Utf8, true));
            }
            if let Some(pattern) = text(1) {
                let groups = patterns::groups(pattern)
                    .map_err(|cause| plan_datafusion_err!("cannot call regexp_extract: {cause}"))?;
                if groups < fields.len() {
                    return plan_err!(
                        "cannot call regexp_extract: the pattern has {groups} groups in parentheses, for {} names",
                        fields.len()
                    );
                }
            }
            Ok(DataType::Struct(fields.into()))
        },
        invoke: |arrays, result| {
            let DataType::Struct(fields) = result else {
                return exec_err!("regexp_extract returns a struct");
            };
            let column = |at: usize| arrays[at].as_string::<i32>();
            let mut memory = Memory::default();
            let mut found: Vec<Vec<String>> = vec![Vec::new(); fields.len()];
            let mut valid = Vec::with_capacity(arrays[0].len());
            for row in 0..arrays[0].len() {
                let is_valid = (0..3).all(|at| column(at).is_valid(row));
                valid.push(is_valid);
                let mut texts = vec![String::new(); fields.len()];
                if is_valid {
                    let pattern = patterns::compiled(&mut memory, column(1).value(row), column(2).value(row))
                        .map_err(|cause| exec_datafusion_err!("cannot call regexp_extract: {cause}"))?;
                    if let Some(captures) = pattern.captures(column(0).value(row)) {
                        for (group, text) in texts.iter_mut().enumerate() {
                            let group = captures.get(group + 1).map_or("", |found| found.as_str());
                            group.clone_into(text);
                        }
                    }
                }
                found.iter_mut().zip(texts).for_each(|(column, text)| column.push(text));
            }
            let columns = found.into_iter().map(|texts| Arc::new(StringArray::from(texts)) as ArrayRef);
            let nulls = NullBuffer::from(valid);
            Ok(Arc::new(StructArray::try_new(fields.clone(), columns.collect(), Some(nulls))?))
        },
    },
];

/// Hashes bytes: FNV-1a with 64 bits, mixed so that all bits depend on all bytes.
fn hash(bytes: &[u8]) -> u64 {
    let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let mut hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, fnv);
    for _ in 0..2 {
        hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    }
    hash ^ (hash >> 32)
}
