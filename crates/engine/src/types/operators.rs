//! Operators for operands that DataFusion refuses: an interval times a number, a boolean compared with another type,
//! and `||` of values of which none is text. And the length of an interval, by which intervals compare.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, PrimitiveArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Float64Type, IntervalMonthDayNano, IntervalMonthDayNanoType,
    IntervalUnit,
};
use datafusion::common::{DFSchema, Result, ScalarValue, exec_datafusion_err};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::sqlparser::ast::BinaryOperator as Op;

use crate::types::arithmetic::type_of;

/// Plans these operators.
#[derive(Debug)]
pub(crate) struct Operators;

impl ExprPlanner for Operators {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let (Ok(left), Ok(right)) = (type_of(&expr.left, schema), type_of(&expr.right, schema)) else {
            return Ok(PlannerResult::Original(expr));
        };
        let as_type = |expr: Expr, to: &DataType| Expr::Cast(Cast::new(Box::new(expr), to.clone()));
        let RawBinaryExpr { op, left: a, right: b } = expr;
        Ok(match (&op, &left, &right) {
            (Op::Multiply, DataType::Interval(_), number) if number.is_numeric() => {
                PlannerResult::Planned(scaled(false, a, b))
            }
            (Op::Multiply, number, DataType::Interval(_)) if number.is_numeric() => {
                PlannerResult::Planned(scaled(false, b, a))
            }
            (Op::Divide, DataType::Interval(_), number) if number.is_numeric() => {
                PlannerResult::Planned(scaled(true, a, b))
            }
            (op, DataType::Boolean, other)
                if is_comparison(op) && (other.is_string() || other.is_numeric()) =>
            {
                let (a, b) = match other.is_string() {
                    true => (a, as_type(b, &DataType::Boolean)),
                    false => (as_type(a, other), b),
                };
                PlannerResult::Original(RawBinaryExpr { op: op.clone(), left: a, right: b })
            }
            (op, other, DataType::Boolean)
                if is_comparison(op) && (other.is_string() || other.is_numeric()) =>
            {
                let (a, b) = match other.is_string() {
                    true => (as_type(a, &DataType::Boolean), b),
                    false => (a, as_type(b, other)),
                };
                PlannerResult::Original(RawBinaryExpr { op: op.clone(), left: a, right: b })
            }
            (Op::StringConcat, left, right)
                if !left.is_string() && !right.is_string() && !left.is_nested() && !right.is_nested() =>
            {
                let (left, right) = (as_type(a, &DataType::Utf8View), as_type(b, &DataType::Utf8View));
                PlannerResult::Original(RawBinaryExpr { op: op.clone(), left, right })
            }
            _ => PlannerResult::Original(RawBinaryExpr { op, left: a, right: b }),
        })
    }
}

fn is_comparison(op: &Op) -> bool {
    matches!(op, Op::Eq | Op::NotEq | Op::Lt | Op::LtEq | Op::Gt | Op::GtEq)
}

fn scaled(divide: bool, interval: Expr, number: Expr) -> Expr {
    let signature = Signature::any(2, Volatility::Immutable);
    ScalarUDF::new_from_impl(Scaled { divide, signature }).call(vec![interval, number])
}

/// An interval times a number, or divided by it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Scaled {
    divide: bool,
    signature: Signature,
}

impl ScalarUDFImpl for Scaled {
    fn name(&self) -> &str {
        if self.divide { "/" } else { "*" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Interval(IntervalUnit::MonthDayNano))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let intervals = cast(&arrays[0], args.return_type())?;
        let numbers = cast(&arrays[1], &DataType::Float64)?;
        let (intervals, numbers) =
            (intervals.as_primitive::<IntervalMonthDayNanoType>(), numbers.as_primitive::<Float64Type>());
        let one = |row: usize| -> Result<Option<IntervalMonthDayNano>> {
            if intervals.is_null(row) || numbers.is_null(row) || self.divide && numbers.value(row) == 0.0 {
                return Ok(None);
            }
            let (interval, number) = (intervals.value(row), numbers.value(row));
            scale(interval, number, self.divide).map(Some).ok_or_else(|| {
                exec_datafusion_err!(
                    "cannot compute an interval {} {number}: it is out of range; use a smaller number",
                    self.name()
                )
            })
        };
        let scaled =
            (0..intervals.len()).map(one).collect::<Result<PrimitiveArray<IntervalMonthDayNanoType>>>()?;
        Ok(ColumnarValue::Array(Arc::new(scaled) as ArrayRef))
    }
}

/// Returns the length of an interval, or of a duration, as a number that compares with others: a month has 30 days, and a
/// day 24 hours.
pub(super) fn length(interval: Expr) -> Expr {
    let signature = Signature::any(1, Volatility::Immutable);
    ScalarUDF::new_from_impl(Length { signature }).call(vec![interval])
}

/// The nanoseconds of an interval.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Length {
    signature: Signature,
}

impl ScalarUDFImpl for Length {
    fn name(&self) -> &str {
        "length_of_interval"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let intervals = cast(&arrays[0], &DataType::Interval(IntervalUnit::MonthDayNano))?;
        let lengths: Decimal128Array = intervals
            .as_primitive::<IntervalMonthDayNanoType>()
            .iter()
            .map(|one| one.map(nanoseconds))
            .collect();
        let lengths = lengths.with_data_type(args.return_type().clone());
        Ok(match &args.args[0] {
            ColumnarValue::Scalar(_) => ColumnarValue::Scalar(ScalarValue::try_from_array(&lengths, 0)?),
            ColumnarValue::Array(_) => ColumnarValue::Array(Arc::new(lengths) as ArrayRef),
        })
    }
}

fn nanoseconds(interval: IntervalMonthDayNano) -> i128 {
    const DAY: i128 = 86_400_000_000_000;
    (i128::from(interval.months) * 30 + i128::from(interval.days)) * DAY + i128::from(interval.nanoseconds)
}

/// Scales an interval. The fraction of a month is days, of which it has 30, and that of a day is a time.
fn scale(interval: IntervalMonthDayNano, number: f64, divide: bool) -> Option<IntervalMonthDayNano> {
    const DAY: f64 = 86_400e9;
    let scale = |part: f64| if divide { part / number } else { part * number };
    let months = scale(f64::from(interval.months));
    let days = scale(f64::from(interval.days)) + months.fract() * 30.0;
    // To microseconds, below which a float is not exact.
    let nanos = (scale(interval.nanoseconds as f64) + days.fract() * DAY) / 1000.0;
    let within = |value: f64, most: f64| (value.abs() < most).then(|| value.trunc());
    Some(IntervalMonthDayNano::new(
        within(months, 2_147_483_647.0)? as i32,
        within(days, 2_147_483_647.0)? as i32,
        within(nanos.round(), 9.2e15)? as i64 * 1000,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_compare_by_their_length() {
        let of = |months, days, nanos| nanoseconds(IntervalMonthDayNano::new(months, days, nanos));
        assert_eq!(of(0, 1, 0), of(0, 0, 86_400_000_000_000));
        assert_eq!(of(1, 0, 0), of(0, 30, 0));
        assert!(of(0, 0, 90_000_000_000_000) > of(0, 1, 0) && of(-1, 0, 0) < of(0, -29, 0));
    }

    #[test]
    fn intervals_are_scaled() {
        let of = IntervalMonthDayNano::new;
        assert_eq!(scale(of(0, 1, 0), 3.0, false), Some(of(0, 3, 0)));
        assert_eq!(scale(of(0, 1, 0), 2.0, true), Some(of(0, 0, 43_200_000_000_000)));
        assert_eq!(scale(of(1, 0, 0), 1.5, false), Some(of(1, 15, 0)));
        assert_eq!(scale(of(12, 0, 0), 1e12, false), None);
    }
}
