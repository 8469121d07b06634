//! Functions whose meaning depends on the types of their arguments.

mod buckets;
pub(crate) mod kinds;
pub(crate) mod lists;
pub(crate) mod maps;
pub(crate) mod others;

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, StructArray, TimestampMicrosecondArray, make_array,
    new_null_array,
};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::arity::binary;
use datafusion::arrow::compute::kernels::numeric::div;
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, Fields, Float64Type, Int64Type, IntervalUnit, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::common::{Result, ScalarValue, exec_err, plan_datafusion_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::types::names::name;

const MICROS: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// A function over arrays: the types to which arguments are cast, the type of the result, and the result.
pub(crate) struct Typed {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    pub coerced: fn(&[DataType]) -> Result<Vec<DataType>>,
    pub result: fn(&[DataType], &[Option<&ScalarValue>]) -> Result<DataType>,
    pub invoke: fn(&[ArrayRef], &DataType) -> Result<ArrayRef>,
}

pub(crate) const FUNCTIONS: &[Typed] = &[
    Typed {
        name: "pellucid_epoch_ms",
        aliases: &[],
        coerced: |types| match types {
            [kind] if kind.is_integer() || kind.is_null() => Ok(vec![DataType::Int64]),
            [DataType::Date32 | DataType::Date64 | DataType::Timestamp(_, _)] => Ok(vec![MICROS]),
            _ => plan_err!(
                "cannot call epoch_ms: its argument must be a timestamp, or a number of milliseconds"
            ),
        },
        result: |types, _| Ok(if types[0].is_integer() { MICROS } else { DataType::Int64 }),
        invoke: |arrays, _| match arrays[0].data_type() {
            DataType::Int64 => {
                let millis = arrays[0].as_primitive::<Int64Type>();
                Ok(Arc::new(
                    millis.iter().map(|n| n?.checked_mul(1000)).collect::<TimestampMicrosecondArray>(),
                ))
            }
            _ => {
                let micros = arrays[0].as_primitive::<TimestampMicrosecondType>();
                Ok(Arc::new(micros.iter().map(|n| Some(n?.div_euclid(1000))).collect::<Int64Array>()))
            }
        },
    },
    Typed {
        name: "pellucid_to_timestamp",
        aliases: &[],
        coerced: |types| match types {
            [kind] if kind.is_numeric() || kind.is_null() => Ok(vec![DataType::Float64]),
            [DataType::Date32 | DataType::Date64 | DataType::Timestamp(_, _)] => Ok(vec![MICROS]),
            [kind] if kind.is_string() => Ok(vec![MICROS]),
            _ => plan_err!("cannot call to_timestamp: its argument must be a number of seconds since 1970"),
        },
        result: |types, _| {
            let zone = types[0].is_numeric().then(|| Arc::from("+00:00"));
            Ok(DataType::Timestamp(TimeUnit::Microsecond, zone))
        },
        invoke: |arrays, result| {
            if arrays[0].data_type() == &MICROS {
                return Ok(Arc::clone(&arrays[0]));
            }
            let seconds = arrays[0].as_primitive::<Float64Type>();
            let micros: TimestampMicrosecondArray =
                seconds.iter().map(|n| Some((n? * 1e6).round() as i64)).collect();
            Ok(Arc::new(micros.with_data_type(result.clone())))
        },
    },
    Typed {
        name: "pellucid_quotient",
        aliases: &[],
        coerced: |types| {
            let kind = |kind: &DataType| match kind {
                whole if whole.is_integer() || whole.is_null() => Some(DataType::Int64),
                number if number.is_numeric() => Some(DataType::Float64),
                _ => None,
            };
            let kinds: Option<Vec<DataType>> = types.iter().map(kind).collect();
            match kinds {
                Some(kinds) if kinds.len() > 1 => Ok(kinds),
                _ => plan_err!("cannot compute //: both sides must be numbers"),
            }
        },
        result: |types, _| {
            let whole = types.iter().all(DataType::is_integer);
            Ok(if whole { DataType::Int64 } else { DataType::Float64 })
        },
        invoke: |arrays, _| {
            arrays[1..].iter().try_fold(Arc::clone(&arrays[0]), |value, operand| quotient(&value, operand))
        },
    },
    Typed {
        name: "pellucid_power",
        aliases: &[],
        coerced: |types| {
            let is_number = |kind: &DataType| kind.is_numeric() || kind.is_null() || kind.is_string();
            match types.iter().all(is_number) && types.len() > 1 {
                true => Ok(vec![DataType::Float64; types.len()]),
                false => plan_err!("cannot compute **: both sides must be numbers"),
            }
        },
        result: |_, _| Ok(DataType::Float64),
        invoke: |arrays, _| {
            let power = |value: ArrayRef, exponent: &ArrayRef| -> Result<ArrayRef> {
                let numbers = (value.as_primitive::<Float64Type>(), exponent.as_primitive::<Float64Type>());
                Ok(Arc::new(binary::<_, _, _, Float64Type>(numbers.0, numbers.1, f64::powf)?))
            };
            arrays[1..].iter().try_fold(Arc::clone(&arrays[0]), power)
        },
    },
    Typed {
        name: "length",
        aliases: &["len", "char_length", "character_length"],
        coerced: |types| match types {
            [DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null] => {
                Ok(vec![DataType::Utf8])
            }
            [DataType::List(_) | DataType::Map(_, _)] => Ok(types.to_vec()),
            [DataType::FixedSizeList(field, _) | DataType::LargeList(field)] => {
                Ok(vec![DataType::List(Arc::clone(field))])
            }
            [other] => plan_err!(
                "cannot call length: its argument is {}; it must be text, a list or a map",
                name(other)
            ),
            _ => plan_err!("cannot call length: it takes one argument; write length(x)"),
        },
        result: |_, _| Ok(DataType::Int64),
        invoke: |arrays, _| {
            let array = &arrays[0];
            let lengths: Int64Array = match array.data_type() {
                DataType::Utf8 => array
                    .as_string::<i32>()
                    .iter()
                    .map(|text| i64::try_from(text?.chars().count()).ok())
                    .collect(),
                DataType::Map(_, _) => {
                    let map = array.as_map();
                    (0..map.len())
                        .map(|row| map.is_valid(row).then(|| i64::from(map.value_length(row))))
                        .collect()
                }
                _ => {
                    let list = array.as_list::<i32>();
                    (0..list.len())
                        .map(|row| list.is_valid(row).then(|| i64::from(list.value_length(row))))
                        .collect()
                }
            };
            Ok(Arc::new(lengths))
        },
    },
    Typed {
        name: "pellucid_bucket",
        aliases: &[],
        coerced: |types| {
            let kind = |kind: &DataType| match kind {
                DataType::Date32 | DataType::Interval(_) => Some(kind.clone()),
                DataType::Timestamp(_, zone) => {
                    Some(DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))
                }
                kind if kind.is_string() || kind.is_null() => Some(MICROS),
                _ => None,
            };
            let interval = DataType::Interval(IntervalUnit::MonthDayNano);
            let rest: Option<Vec<DataType>> = types.iter().skip(1).map(kind).collect();
            match (types.first(), rest) {
                (Some(DataType::Interval(_)), Some(rest)) => {
                    let rest = rest.into_iter().map(|kind| {
                        if matches!(kind, DataType::Interval(_)) { interval.clone() } else { kind }
                    });
                    Ok([interval.clone()].into_iter().chain(rest).collect())
                }
                _ => plan_err!("cannot call time_bucket: write time_bucket(INTERVAL '1 hour', timestamp)"),
            }
        },
        result: |types, _| Ok(types[1].clone()),
        invoke: buckets::buckets,
    },
    Typed {
        name: "struct_extract",
        aliases: &["struct_extract_at"],
        coerced: |types| match types {
            [DataType::Struct(_), _] => Ok(types.to_vec()),
            _ => plan_err!("cannot call struct_extract: write struct_extract(struct, 'field')"),
        },
        result: |types, constants| {
            let (_, field) = field_of(types, constants)?;
            Ok(field.data_type().clone())
        },
        invoke: |arrays, _| {
            let name = ScalarValue::try_from_array(&arrays[1], 0)?;
            let kinds = [arrays[0].data_type().clone(), arrays[1].data_type().clone()];
            let (index, _) = field_of(&kinds, &[None, Some(&name)])?;
            let parts = arrays[0].as_struct();
            within(parts.column(index), parts)
        },
    },
    Typed {
        name: "pellucid_struct_insert",
        aliases: &[],
        coerced: |types| match types {
            [DataType::Struct(_), ..] => Ok(types.to_vec()),
            _ => plan_err!("cannot call struct_insert: write struct_insert(struct, name := value)"),
        },
        result: |types, constants| {
            let DataType::Struct(fields) = &types[0] else { return plan_err!("cannot call struct_insert") };
            let mut fields: Vec<FieldRef> = fields.iter().cloned().collect();
            for (name, kind) in constants[1..].iter().step_by(2).zip(types[2..].iter().step_by(2)) {
                let Some(Some(name)) = name.and_then(ScalarValue::try_as_str) else {
                    return plan_err!("cannot call struct_insert: a field has no name");
                };
                fields.push(Arc::new(Field::new(name, kind.clone(), true)));
            }
            Ok(DataType::Struct(nullable(&Fields::from(fields))))
        },
        invoke: |arrays, result| {
            let DataType::Struct(fields) = result else { return exec_err!("struct_insert returns a struct") };
            let parts = arrays[0].as_struct();
            let mut columns = Vec::with_capacity(fields.len());
            for column in parts.columns() {
                columns.push(within(column, parts)?);
            }
            columns.extend(arrays[2..].iter().step_by(2).cloned());
            // As in DuckDB, NULL gets the new fields too.
            Ok(Arc::new(StructArray::try_new(nullable(fields), columns, None)?))
        },
    },
    Typed {
        name: "isnan",
        aliases: &[],
        coerced: |types| match types {
            [kind] if kind.is_numeric() || kind.is_null() => Ok(vec![DataType::Float64]),
            _ => plan_err!("cannot call isnan: its argument must be a number"),
        },
        result: |_, _| Ok(DataType::Boolean),
        invoke: |arrays, _| {
            let numbers = arrays[0].as_primitive::<Float64Type>();
            Ok(Arc::new(numbers.iter().map(|n| Some(n?.is_nan())).collect::<BooleanArray>()))
        },
    },
];

/// Divides whole numbers to a whole one, and others to a DOUBLE.
fn quotient(left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef> {
    if left.data_type().is_integer() && right.data_type().is_integer() {
        let pairs = left.as_primitive::<Int64Type>().iter().zip(right.as_primitive::<Int64Type>());
        return Ok(Arc::new(pairs.map(|(a, b)| a?.checked_div(b?)).collect::<Int64Array>()));
    }
    let (left, right) = (cast(left, &DataType::Float64)?, cast(right, &DataType::Float64)?);
    Ok(div(&left, &right)?)
}

/// Returns a field's column, with NULL where the struct is.
fn within(column: &ArrayRef, parts: &StructArray) -> Result<ArrayRef> {
    let nulls = NullBuffer::union(column.nulls(), parts.nulls());
    Ok(make_array(column.to_data().into_builder().nulls(nulls).build()?))
}

fn nullable(fields: &Fields) -> Fields {
    fields.iter().map(|field| field.as_ref().clone().with_nullable(true)).collect()
}

/// Returns the field of a struct that a constant names, in any case, or counts from 1.
fn field_of<'a>(types: &'a [DataType], constants: &[Option<&ScalarValue>]) -> Result<(usize, &'a FieldRef)> {
    let (DataType::Struct(fields), Some(Some(wanted))) = (&types[0], constants.get(1)) else {
        return plan_err!("cannot call struct_extract: write struct_extract(struct, 'field')");
    };
    let number = |n: i64| usize::try_from(n - 1).ok().filter(|index| *index < fields.len());
    let index = match wanted {
        ScalarValue::Int64(Some(n)) => number(*n),
        other => other.try_as_str().flatten().and_then(|name| {
            let same = |field: &FieldRef| field.name() == name;
            let like = |field: &FieldRef| field.name().to_lowercase() == name.to_lowercase();
            fields.iter().position(same).or_else(|| fields.iter().position(like))
        }),
    };
    let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
    index.map(|index| (index, &fields[index])).ok_or_else(|| {
        plan_datafusion_err!("cannot find field {wanted} in the struct; the fields are {}", names.join(", "))
    })
}

/// Returns the functions of several lists, for registration.
pub(crate) fn all(lists: &[&'static [Typed]]) -> Vec<ScalarUDF> {
    let functions = lists.iter().flat_map(|list| list.iter());
    functions
        .map(|typed| {
            let aliases = typed.aliases.iter().map(|alias| alias.to_string()).collect();
            ScalarUDF::new_from_impl(OfTypes {
                typed,
                aliases,
                signature: Signature::user_defined(Volatility::Immutable),
            })
        })
        .collect()
}

struct OfTypes {
    typed: &'static Typed,
    aliases: Vec<String>,
    signature: Signature,
}

impl std::fmt::Debug for OfTypes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.typed.name)
    }
}

impl PartialEq for OfTypes {
    fn eq(&self, other: &Self) -> bool {
        self.typed.name == other.typed.name
    }
}

impl Eq for OfTypes {}

impl Hash for OfTypes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.typed.name.hash(state);
    }
}

impl ScalarUDFImpl for OfTypes {
    fn name(&self) -> &str {
        self.typed.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        (self.typed.coerced)(types)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        (self.typed.result)(types, &[])
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let kinds: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let kind = (self.typed.result)(&kinds, args.scalar_arguments)?;
        Ok(Arc::new(Field::new(self.typed.name, kind, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        if rows == 0 {
            return Ok(ColumnarValue::Array(new_null_array(args.return_type(), 0)));
        }
        let arrays = args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let made = (self.typed.invoke)(&arrays, args.return_type())?;
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?));
        }
        Ok(ColumnarValue::Array(made))
    }
}
