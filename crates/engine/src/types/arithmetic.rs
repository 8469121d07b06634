//! `+`, `-`, `*` and unary minus that fail when the result does not fit its type, where DataFusion's wrap around.
//!
//! The kernels compute wrapped values and whether any of them overflowed, in one loop without branches, so that the
//! check costs next to nothing. Only then are the values looked at again, to name the first ones. Operators keep
//! DataFusion's types: integers of the wider operand, decimals of at most 38 digits.
//!
//! DataFusion finds the type of a call by naming and typing all that is below it, so a sum of thousands of terms as
//! calls within calls would take cubic time to plan. From a depth of [`DEPTH`] on, the operators become one call.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, Datum, PrimitiveArray, Scalar};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::kernels::numeric;
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, FieldRef, Int8Type, Int16Type, Int32Type,
    Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue, exec_datafusion_err};
use datafusion::logical_expr::binary::BinaryTypeCoercer;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};

use crate::types::names::name;

/// The largest number of 38 digits.
const MAX_DECIMAL: i128 = 10_i128.pow(DECIMAL128_MAX_PRECISION as u32) - 1;

/// How deep calls of operators nest. Below it they stay apart, so that equal parts of expressions are computed once.
const DEPTH: usize = 8;

/// Returns the call of a checked operator, or the operands if DataFusion's operator cannot overflow.
pub(super) fn checked(
    op: Operator,
    left: Expr,
    right: Expr,
    schema: &DFSchema,
) -> Result<std::result::Result<Expr, (Expr, Expr)>> {
    let (left_type, right_type) = (type_of(&left, schema)?, type_of(&right, schema)?);
    if !overflows(op, &left_type, &right_type) {
        return Ok(Err((left, right)));
    }
    let data_type = BinaryTypeCoercer::new(&left_type, &op, &right_type).get_result_type()?;
    let (mut ops, depth, mut operands) = match left {
        Expr::ScalarFunction(call) => match call.func.inner().downcast_ref::<Checked>() {
            Some(inner) if inner.depth >= DEPTH && call.args.len() > 1 => {
                (inner.ops.clone(), inner.depth, call.args)
            }
            Some(inner) => (Vec::new(), inner.depth + 1, vec![Expr::ScalarFunction(call)]),
            None => (Vec::new(), 1, vec![Expr::ScalarFunction(call)]),
        },
        left => (Vec::new(), 1, vec![left]),
    };
    ops.push(op);
    operands.push(right);
    Ok(Ok(ScalarUDF::new_from_impl(Checked::new(ops, operands.len(), depth, data_type)).call(operands)))
}

/// Returns the call of the checked unary minus, or the operand if its type is not that of a signed integer.
pub(super) fn negation(operand: Expr, schema: &DFSchema) -> Result<std::result::Result<Expr, Expr>> {
    let data_type = type_of(&operand, schema)?;
    if !data_type.is_signed_integer() {
        return Ok(Err(operand));
    }
    let depth = 1 + of_call(&operand).map_or(0, |inner| inner.depth);
    let function = ScalarUDF::new_from_impl(Checked::new(vec![Operator::Minus], 1, depth, data_type));
    Ok(Ok(function.call(vec![operand])))
}

/// Returns the type of an expression. DataFusion computes an empty array for each operator to find its type, which takes
/// seconds for a sum of thousands of terms if it is done at each of them; here only operands of different types do so.
pub(crate) fn type_of(expr: &Expr, schema: &DFSchema) -> Result<DataType> {
    let mut operators = Vec::new();
    let mut innermost = expr;
    while let Expr::BinaryExpr(binary) = innermost {
        operators.push(binary);
        innermost = &binary.left;
    }
    let mut data_type = match of_call(innermost) {
        Some(checked) => checked.data_type.clone(),
        None => innermost.get_type(schema)?,
    };
    for BinaryExpr { op, right, .. } in operators.into_iter().rev() {
        let right = type_of(right, schema)?;
        let same = data_type == right && (right.is_integer() || right.is_floating());
        let keeps = matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide);
        if !(same && keeps) {
            data_type = BinaryTypeCoercer::new(&data_type, op, &right).get_result_type()?;
        }
    }
    Ok(data_type)
}

/// Returns the operator that an expression calls, if it is a checked one.
fn of_call(expr: &Expr) -> Option<&Checked> {
    let Expr::ScalarFunction(call) = expr else { return None };
    call.func.inner().downcast_ref::<Checked>()
}

/// Returns true if DataFusion's operator could wrap around for operands of these types.
fn overflows(op: Operator, left: &DataType, right: &DataType) -> bool {
    match (left, right) {
        (left, right) if left == right && left.is_integer() => {
            matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply)
        }
        (DataType::Decimal128(p1, s1), DataType::Decimal128(p2, s2)) => {
            let whole = |p: &u8, s: &i8| i32::from(*p) - i32::from(*s);
            let digits = match op {
                Operator::Plus | Operator::Minus => {
                    whole(p1, s1).max(whole(p2, s2)) + i32::from(*s1.max(s2)) + 1
                }
                Operator::Multiply => i32::from(*p1) + i32::from(*p2) + 1,
                _ => 0,
            };
            digits > i32::from(DECIMAL128_MAX_PRECISION)
        }
        _ => false,
    }
}

/// A checked unary minus, or operators that are applied to the operands from the left.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Checked {
    ops: Vec<Operator>,
    /// How deep calls of checked operators nest in the first operand, with this one.
    depth: usize,
    data_type: DataType,
    signature: Signature,
}

impl Checked {
    fn new(ops: Vec<Operator>, operands: usize, depth: usize, data_type: DataType) -> Self {
        Self { ops, depth, data_type, signature: Signature::any(operands, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &str {
        match self.ops[..] {
            [Operator::Plus] => "+",
            [Operator::Minus] => "-",
            [Operator::Multiply] => "*",
            _ => "operators",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.data_type.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.data_type.clone(), nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (first, others) = (&args.args[0], &args.args[1..]);
        if others.is_empty() {
            return negate(first);
        }
        let compute_next =
            |value: ColumnarValue, (op, operand): (&Operator, &ColumnarValue)| compute(*op, &value, operand);
        self.ops.iter().zip(others).try_fold(first.clone(), compute_next)
    }
}

fn negate(operand: &ColumnarValue) -> Result<ColumnarValue> {
    let zero = ColumnarValue::Scalar(ScalarValue::new_zero(&operand.data_type())?);
    compute(Operator::Minus, &zero, operand).map_err(|error| {
        let message = error.strip_backtrace();
        let message = message.strip_prefix("Execution error: ").unwrap_or(&message);
        DataFusionError::Execution(message.replace("cannot compute 0 - ", "cannot compute - "))
    })
}

fn compute(op: Operator, left: &ColumnarValue, right: &ColumnarValue) -> Result<ColumnarValue> {
    let result = apply(op, left, right)?;
    Ok(match (left, right) {
        (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)) => {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?)
        }
        _ => ColumnarValue::Array(result),
    })
}

/// An operand of a kernel.
struct Operand {
    array: ArrayRef,
    /// True if the array has one value, which stands for all rows.
    scalar: bool,
}

impl Operand {
    fn new(value: &ColumnarValue) -> Result<Self> {
        Ok(match value {
            ColumnarValue::Array(array) => Self { array: Arc::clone(array), scalar: false },
            ColumnarValue::Scalar(value) => Self { array: value.to_array()?, scalar: true },
        })
    }
}

fn apply(op: Operator, left: &ColumnarValue, right: &ColumnarValue) -> Result<ArrayRef> {
    let (left, right) = (Operand::new(left)?, Operand::new(right)?);
    match left.array.data_type() {
        DataType::Int8 => integers::<Int8Type>(op, &left, &right),
        DataType::Int16 => integers::<Int16Type>(op, &left, &right),
        DataType::Int32 => integers::<Int32Type>(op, &left, &right),
        DataType::Int64 => integers::<Int64Type>(op, &left, &right),
        DataType::UInt8 => integers::<UInt8Type>(op, &left, &right),
        DataType::UInt16 => integers::<UInt16Type>(op, &left, &right),
        DataType::UInt32 => integers::<UInt32Type>(op, &left, &right),
        DataType::UInt64 => integers::<UInt64Type>(op, &left, &right),
        _ => decimals(op, &left, &right),
    }
}

/// Wrapping arithmetic that reports overflow without a branch.
trait Whole: Copy + std::fmt::Display {
    fn add(self, other: Self) -> (Self, bool);
    fn subtract(self, other: Self) -> (Self, bool);
    fn multiply(self, other: Self) -> (Self, bool);
}

macro_rules! whole {
    ($narrow:ty, $wide:ty, $signed:expr) => {
        impl Whole for $narrow {
            #[inline(always)]
            fn add(self, other: Self) -> (Self, bool) {
                let sum = self.wrapping_add(other);
                // In this form, unlike `overflowing_add`, the loop is vectorized.
                let overflow = if $signed {
                    ((self ^ sum) & (other ^ sum)) >> (<$narrow>::BITS - 1) != 0
                } else {
                    sum < self
                };
                (sum, overflow)
            }

            #[inline(always)]
            fn subtract(self, other: Self) -> (Self, bool) {
                let difference = self.wrapping_sub(other);
                let overflow = if $signed {
                    ((self ^ other) & (self ^ difference)) >> (<$narrow>::BITS - 1) != 0
                } else {
                    self < other
                };
                (difference, overflow)
            }

            #[inline(always)]
            fn multiply(self, other: Self) -> (Self, bool) {
                let product = (self as $wide).wrapping_mul(other as $wide);
                (product as $narrow, product as $narrow as $wide != product)
            }
        }
    };
}

whole!(i8, i16, true);
whole!(i16, i32, true);
whole!(i32, i64, true);
whole!(i64, i128, true);
whole!(u8, u16, false);
whole!(u16, u32, false);
whole!(u32, u64, false);
whole!(u64, u128, false);

fn integers<T: ArrowPrimitiveType>(op: Operator, left: &Operand, right: &Operand) -> Result<ArrayRef>
where
    T::Native: Whole,
{
    let (a, b) = (left.array.as_primitive::<T>(), right.array.as_primitive::<T>());
    let nulls = match (left.scalar, right.scalar) {
        (true, true) | (false, false) => NullBuffer::union(a.nulls(), b.nulls()),
        (true, false) if a.is_null(0) => Some(NullBuffer::new_null(b.len())),
        (true, false) => b.nulls().cloned(),
        (false, true) if b.is_null(0) => Some(NullBuffer::new_null(a.len())),
        (false, true) => a.nulls().cloned(),
    };
    let (values, overflowed) = match op {
        Operator::Plus => results(T::Native::add, left.scalar, a.values(), right.scalar, b.values()),
        Operator::Minus => results(T::Native::subtract, left.scalar, a.values(), right.scalar, b.values()),
        _ => results(T::Native::multiply, left.scalar, a.values(), right.scalar, b.values()),
    };
    if overflowed {
        // The values of NULLs are arbitrary.
        let at = |array: &PrimitiveArray<T>, scalar: bool, row| array.value(if scalar { 0 } else { row });
        for row in (0..values.len()).filter(|row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*row))) {
            let (x, y) = (at(a, left.scalar, row), at(b, right.scalar, row));
            let (_, overflowed) = match op {
                Operator::Plus => x.add(y),
                Operator::Minus => x.subtract(y),
                _ => x.multiply(y),
            };
            if overflowed {
                return Err(overflow(op, &x.to_string(), &y.to_string(), &T::DATA_TYPE));
            }
        }
    }
    Ok(Arc::new(PrimitiveArray::<T>::new(values.into(), nulls)))
}

/// Returns the wrapped results, and whether any overflowed.
#[inline(always)]
fn results<N: Copy>(
    f: impl Fn(N, N) -> (N, bool),
    left_scalar: bool,
    left: &[N],
    right_scalar: bool,
    right: &[N],
) -> (Vec<N>, bool) {
    let mut overflowed = false;
    let mut one = |(value, overflow)| {
        overflowed |= overflow;
        value
    };
    let values = match (left_scalar, right_scalar) {
        (true, false) => right.iter().map(|y| one(f(left[0], *y))).collect(),
        (false, true) => left.iter().map(|x| one(f(*x, right[0]))).collect(),
        _ => left.iter().zip(right).map(|(x, y)| one(f(*x, *y))).collect(),
    };
    (values, overflowed)
}

/// Computes decimals with Arrow's kernels, which detect what exceeds 128 bits, and checks the number of digits.
fn decimals(op: Operator, left: &Operand, right: &Operand) -> Result<ArrayRef> {
    let kernel = match op {
        Operator::Plus => numeric::add,
        Operator::Minus => numeric::sub,
        _ => numeric::mul,
    };
    let datum = |operand: &Operand| -> Box<dyn Datum> {
        match operand.scalar {
            true => Box::new(Scalar::new(Arc::clone(&operand.array))),
            false => Box::new(Arc::clone(&operand.array)),
        }
    };
    let result = kernel(datum(left).as_ref(), datum(right).as_ref()).map_err(|error| {
        exec_datafusion_err!("cannot compute a {op} b of decimals: {error}; cast an operand to DOUBLE")
    })?;
    let decimals = result.as_primitive::<Decimal128Type>();
    let most =
        decimals.values().iter().fold(0, |most: u64, value| most.max((value.unsigned_abs() >> 64) as u64));
    // The upper half alone shows that nearly all values have fewer digits.
    if most >= (MAX_DECIMAL >> 64) as u64 {
        let beyond = |row: &usize| {
            decimals.is_valid(*row) && decimals.value(*row).unsigned_abs() > MAX_DECIMAL as u128
        };
        if let Some(row) = (0..decimals.len()).find(beyond) {
            let at = |operand: &Operand| {
                operand.array.as_primitive::<Decimal128Type>().value_as_string(if operand.scalar {
                    0
                } else {
                    row
                })
            };
            return Err(overflow(op, &at(left), &at(right), result.data_type()));
        }
    }
    Ok(result)
}

fn exceeds(data_type: &DataType) -> String {
    format!("the result exceeds {}", name(data_type))
}

/// Returns the remedy for a result that exceeds a type.
fn way_out(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Decimal128(..) => "cast an operand to DOUBLE",
        DataType::Int64 | DataType::UInt64 => "cast an operand to HUGEINT or DOUBLE",
        _ => "cast an operand to BIGINT",
    }
}

fn overflow(op: Operator, left: &str, right: &str, data_type: &DataType) -> DataFusionError {
    let exceeds = exceeds(data_type);
    exec_datafusion_err!("cannot compute {left} {op} {right}: {exceeds}; {}", way_out(data_type))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Decimal128Array, Int32Array, Int64Array, UInt8Array};
    use datafusion::logical_expr::lit;

    fn run(op: Operator, left: ColumnarValue, right: ColumnarValue) -> std::result::Result<ArrayRef, String> {
        apply(op, &left, &right).map_err(|error| error.strip_backtrace())
    }

    fn array(array: impl Array + 'static) -> ColumnarValue {
        ColumnarValue::Array(Arc::new(array))
    }

    #[test]
    fn results_equal_those_of_exact_arithmetic_or_are_errors() {
        let edges = [i8::MIN, i8::MIN + 1, -12, -1, 0, 1, 11, 12, i8::MAX - 1, i8::MAX];
        let one = |value| array(PrimitiveArray::<Int8Type>::from(vec![value]));
        for (x, y) in edges.iter().flat_map(|x| edges.iter().map(move |y| (*x, *y))) {
            for (op, exact) in [
                (Operator::Plus, i32::from(x) + i32::from(y)),
                (Operator::Minus, i32::from(x) - i32::from(y)),
                (Operator::Multiply, i32::from(x) * i32::from(y)),
            ] {
                let got = run(op, one(x), one(y)).map(|array| array.as_primitive::<Int8Type>().value(0));
                match i8::try_from(exact) {
                    Ok(exact) => assert_eq!(got, Ok(exact), "{x} {op} {y}"),
                    Err(_) => assert!(
                        got.unwrap_err().contains(&format!("cannot compute {x} {op} {y}")),
                        "{x} {op} {y}"
                    ),
                }
            }
        }
        let error = run(Operator::Minus, array(UInt8Array::from(vec![1])), array(UInt8Array::from(vec![2])));
        assert!(error.unwrap_err().contains("1 - 2: the result exceeds UTINYINT"));
        let big = array(Int64Array::from(vec![i64::MAX, i64::MIN]));
        let error = run(Operator::Multiply, big, ColumnarValue::Scalar(ScalarValue::Int64(Some(-1))));
        assert!(error.unwrap_err().contains("cannot compute -9223372036854775808 * -1"));
    }

    #[test]
    fn values_below_nulls_do_not_overflow() {
        let nulls = NullBuffer::from(vec![false, true]);
        let left = Int32Array::new(vec![i32::MAX, 1].into(), Some(nulls));
        let sum =
            run(Operator::Plus, array(left.clone()), ColumnarValue::Scalar(ScalarValue::Int32(Some(1))))
                .unwrap();
        assert_eq!(sum.as_primitive::<Int32Type>(), &Int32Array::from(vec![None, Some(2)]));
        let none = run(Operator::Plus, array(left), ColumnarValue::Scalar(ScalarValue::Int32(None))).unwrap();
        assert_eq!(none.null_count(), 2);
    }

    #[test]
    fn decimals_of_more_than_38_digits_are_errors() {
        let decimals = |values: Vec<i128>| {
            array(
                Decimal128Array::from(values).with_precision_and_scale(DECIMAL128_MAX_PRECISION, 0).unwrap(),
            )
        };
        let error = run(Operator::Plus, decimals(vec![1, MAX_DECIMAL]), decimals(vec![1, 1])).unwrap_err();
        assert!(
            error.contains(&format!("cannot compute {MAX_DECIMAL} + 1: the result exceeds DECIMAL(38,0)")),
            "{error}"
        );
        assert!(run(Operator::Minus, decimals(vec![MAX_DECIMAL]), decimals(vec![1])).is_ok());
        let error =
            run(Operator::Multiply, decimals(vec![MAX_DECIMAL]), decimals(vec![MAX_DECIMAL])).unwrap_err();
        assert!(error.contains("cast an operand to DOUBLE"), "{error}");
        assert!(!overflows(Operator::Plus, &DataType::Decimal128(15, 2), &DataType::Decimal128(15, 2)));
    }
    #[test]
    fn long_sums_become_one_call_with_the_value_of_nested_ones() {
        let schema = DFSchema::empty();
        let mut sum = lit(1_i64);
        for term in 2..=100_i64 {
            let op = if term % 3 == 0 { Operator::Minus } else { Operator::Plus };
            sum = checked(op, sum, lit(term), &schema).unwrap().unwrap();
        }
        let outer = of_call(&sum).unwrap();
        assert_eq!((outer.depth, outer.ops.len()), (DEPTH, 99 - (DEPTH - 1)));
        fn value(expr: &Expr) -> ColumnarValue {
            match expr {
                Expr::ScalarFunction(call) => {
                    let args: Vec<ColumnarValue> = call.args.iter().map(value).collect();
                    let field = Arc::new(Field::new("sum", DataType::Int64, false));
                    let (arg_fields, return_field) = (vec![Arc::clone(&field); args.len()], field);
                    let config_options = Arc::default();
                    call.func
                        .invoke_with_args(ScalarFunctionArgs {
                            args,
                            arg_fields,
                            number_rows: 1,
                            return_field,
                            config_options,
                        })
                        .unwrap()
                }
                Expr::Literal(value, _) => ColumnarValue::Scalar(value.clone()),
                other => panic!("{other}"),
            }
        }
        let exact: i64 = (1..=100).map(|term| if term % 3 == 0 { -term } else { term }).sum();
        let ColumnarValue::Scalar(ScalarValue::Int64(Some(got))) = value(&sum) else {
            panic!("not a number")
        };
        assert_eq!(got, exact);
    }
}
