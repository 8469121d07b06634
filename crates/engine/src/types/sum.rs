//! `sum` that is exact: of integers in 128 bits, with an error only if the total does not fit BIGINT.
//!
//! DataFusion's wraps around. The partial sums of 128 bits make the outcome independent of how the rows are divided among
//! partitions: two partitions of which one exceeds BIGINT may still add up to a total that fits. Sums of decimals with
//! up to 28 digits cannot overflow and are left to DataFusion, like those of floats and intervals.

use std::mem::size_of_val;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, PrimitiveArray};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, FieldRef, Int64Type,
    UInt64Type,
};
use datafusion::common::types::{NativeType, logical_boolean, logical_int64};
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_datafusion_err};
use datafusion::functions_aggregate::sum::Sum as DataFusionSum;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Coercion, Documentation, EmitTo, Expr, GroupsAccumulator,
    Operator, ReversedUDAF, SetMonotonicity, Signature, StatisticsArgs, TypeSignature, TypeSignatureClass,
};

use crate::types::from_state::FromState;
use crate::types::names::name;

/// Returns the function.
pub(crate) fn function() -> AggregateUDF {
    let inner = DataFusionSum::new();
    let mut signature = inner.signature().clone();
    if let TypeSignature::OneOf(variants) = &mut signature.type_signature {
        // Counts the rows that are true.
        let count = Coercion::new_implicit(
            TypeSignatureClass::Native(logical_int64()),
            vec![TypeSignatureClass::Native(logical_boolean())],
            NativeType::Int64,
        );
        variants.push(TypeSignature::Coercible(vec![count]));
    }
    AggregateUDF::new_from_impl(Sum { inner, signature })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sum {
    inner: DataFusionSum,
    signature: Signature,
}

/// Returns true for totals that are added up here.
fn is_exact(total: &DataType) -> bool {
    matches!(total, DataType::Int64 | DataType::UInt64 | DataType::Decimal128(38, _))
}

impl AggregateUDFImpl for Sum {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let total = args.return_field.data_type().clone();
        match is_exact(&total) {
            true if args.is_distinct => {
                let inner = self.inner.accumulator(args)?;
                Ok(Box::new(FromState { inner, result: total, evaluate: distinct }))
            }
            true => Ok(Box::new(Exact { total, sum: 0, count: 0, overflowed: false })),
            false => self.inner.accumulator(args),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        if args.is_distinct || !is_exact(args.return_type()) {
            return self.inner.state_fields(args);
        }
        let state = state_type(args.return_type());
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "sum"), state, true))])
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        let total = args.return_field.data_type().clone();
        match is_exact(&total) {
            true => Ok(Box::new(ExactGroups { total, sums: Vec::new(), seen: None, overflowed: false })),
            false => self.inner.create_groups_accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let total = args.return_field.data_type().clone();
        match is_exact(&total) {
            true if args.is_distinct => {
                let inner = self.inner.create_sliding_accumulator(args)?;
                Ok(Box::new(FromState { inner, result: total, evaluate: distinct }))
            }
            true => Ok(Box::new(Exact { total, sum: 0, count: 0, overflowed: false })),
            false => self.inner.create_sliding_accumulator(args),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.reverse_expr()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.inner.set_monotonicity(data_type)
    }

    fn simplify_expr_op_literal(
        &self,
        call: &AggregateFunction,
        arg: &Expr,
        op: Operator,
        literal: &Expr,
        arg_is_left: bool,
    ) -> Result<Option<Expr>> {
        self.inner.simplify_expr_op_literal(call, arg, op, literal, arg_is_left)
    }

    fn value_from_stats(&self, args: &StatisticsArgs) -> Option<ScalarValue> {
        self.inner.value_from_stats(args)
    }
}

/// The largest number of 38 digits.
const MAX_DECIMAL: u128 = 10_u128.pow(DECIMAL128_MAX_PRECISION as u32) - 1;

/// Returns the type of partial sums, whose values may have a digit more.
fn state_type(total: &DataType) -> DataType {
    DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale(total))
}

fn scale(total: &DataType) -> i8 {
    match total {
        DataType::Decimal128(_, scale) => *scale,
        _ => 0,
    }
}

/// Calls `f` with each value that is not NULL, widened to 128 bits.
fn each(array: &dyn Array, f: impl FnMut(usize, i128)) {
    fn run<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>, mut f: impl FnMut(usize, i128))
    where
        T::Native: Into<i128>,
    {
        if array.null_count() == 0 {
            array.values().iter().enumerate().for_each(|(row, value)| f(row, (*value).into()));
        } else {
            array.iter().enumerate().for_each(|(row, value)| {
                if let Some(value) = value {
                    f(row, value.into());
                }
            });
        }
    }
    match array.data_type() {
        DataType::Int64 => run(array.as_primitive::<Int64Type>(), f),
        DataType::UInt64 => run(array.as_primitive::<UInt64Type>(), f),
        _ => run(array.as_primitive::<Decimal128Type>(), f),
    }
}

/// Returns the error of a total beyond its type.
fn beyond(sum: Option<i128>, total: &DataType) -> DataFusionError {
    let way_out = match total {
        DataType::Decimal128(..) => "cast the values to DOUBLE",
        _ => "cast the values to HUGEINT",
    };
    let sum = sum.map_or_else(|| "the sum".to_string(), |sum| format!("the sum {sum}"));
    exec_datafusion_err!("cannot add up the values of sum(…): {sum} exceeds {}; {way_out}", name(total))
}

/// Converts a sum to its type.
fn finished(sum: Option<i128>, overflowed: bool, total: &DataType) -> Result<ScalarValue> {
    if overflowed {
        return Err(beyond(None, total));
    }
    let fits = |sum: i128| beyond(Some(sum), total);
    Ok(match total {
        DataType::Int64 => {
            ScalarValue::Int64(sum.map(|sum| i64::try_from(sum).map_err(|_| fits(sum))).transpose()?)
        }
        DataType::UInt64 => {
            ScalarValue::UInt64(sum.map(|sum| u64::try_from(sum).map_err(|_| fits(sum))).transpose()?)
        }
        DataType::Decimal128(precision, scale) => match sum {
            Some(sum) if sum.unsigned_abs() > MAX_DECIMAL => return Err(beyond(None, total)),
            sum => ScalarValue::Decimal128(sum, *precision, *scale),
        },
        other => return Err(exec_datafusion_err!("cannot add up values of type {}", name(other))),
    })
}

/// The sum of one group, also of a window's frame.
#[derive(Debug)]
struct Exact {
    total: DataType,
    sum: i128,
    count: u64,
    /// True if a sum of decimals exceeded 128 bits.
    overflowed: bool,
}

impl Accumulator for Exact {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (mut sum, mut overflowed) = (self.sum, self.overflowed);
        each(&values[0], |_, value| {
            let (next, overflow) = sum.overflowing_add(value);
            sum = next;
            overflowed |= overflow;
        });
        (self.sum, self.overflowed) = (sum, overflowed);
        self.count += (values[0].len() - values[0].null_count()) as u64;
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        each(&values[0], |_, value| self.sum = self.sum.wrapping_sub(value));
        self.count -= (values[0].len() - values[0].null_count()) as u64;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        finished((self.count > 0).then_some(self.sum), self.overflowed, &self.total)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        if self.overflowed {
            return Err(beyond(None, &self.total));
        }
        let sum = (self.count > 0).then_some(self.sum);
        Ok(vec![ScalarValue::Decimal128(sum, DECIMAL128_MAX_PRECISION, scale(&self.total))])
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// Adds up distinct values, which DataFusion's accumulator collects.
fn distinct(state: &[ScalarValue], total: &DataType) -> Result<ScalarValue> {
    let mut exact = Exact { total: total.clone(), sum: 0, count: 0, overflowed: false };
    if let Some(ScalarValue::List(values)) = state.first() {
        exact.update_batch(&[Arc::clone(values.values())])?;
    }
    exact.evaluate()
}

/// The sums of many groups.
struct ExactGroups {
    total: DataType,
    sums: Vec<i128>,
    /// Groups with a value; `None` as long as all have one, since each group begins with a row.
    seen: Option<Vec<bool>>,
    overflowed: bool,
}

impl ExactGroups {
    fn add(&mut self, values: &dyn Array, groups: &[usize], filter: Option<&BooleanArray>, total: usize) {
        let partial = filter.is_some() || values.null_count() > 0;
        if partial && self.seen.is_none() {
            self.seen = Some(vec![true; self.sums.len()]);
        }
        self.sums.resize(total, 0);
        if let Some(seen) = &mut self.seen {
            seen.resize(total, false);
        }
        let (sums, mut overflowed) = (&mut self.sums, false);
        let mut add = |group: usize, value: i128| {
            let (sum, overflow) = sums[group].overflowing_add(value);
            sums[group] = sum;
            overflowed |= overflow;
        };
        match &mut self.seen {
            None => each(values, |row, value| add(groups[row], value)),
            Some(seen) => each(values, |row, value| {
                if filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row)) {
                    seen[groups[row]] = true;
                    add(groups[row], value);
                }
            }),
        }
        self.overflowed |= overflowed;
    }

    /// Removes the sums to emit.
    fn take(&mut self, emit_to: EmitTo) -> Result<(Vec<i128>, Option<NullBuffer>)> {
        if self.overflowed {
            return Err(beyond(None, &self.total));
        }
        let nulls = self.seen.as_mut().map(|seen| NullBuffer::from(emit_to.take_needed(seen)));
        Ok((emit_to.take_needed(&mut self.sums), nulls))
    }
}

/// Converts sums to their type; those of groups without a value are 0.
fn narrowed<T: ArrowPrimitiveType>(
    sums: &[i128],
    nulls: Option<NullBuffer>,
    total: &DataType,
) -> Result<ArrayRef>
where
    T::Native: TryFrom<i128>,
{
    let narrow = |sum: &i128| T::Native::try_from(*sum).map_err(|_| beyond(Some(*sum), total));
    let values = sums.iter().map(narrow).collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(PrimitiveArray::<T>::new(values.into(), nulls)))
}

impl GroupsAccumulator for ExactGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.add(&values[0], group_indices, opt_filter, total_num_groups);
        Ok(())
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.add(&values[0], group_indices, None, total_num_groups);
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (sums, nulls) = self.take(emit_to)?;
        match &self.total {
            DataType::Int64 => narrowed::<Int64Type>(&sums, nulls, &self.total),
            DataType::UInt64 => narrowed::<UInt64Type>(&sums, nulls, &self.total),
            _ if sums.iter().any(|sum| sum.unsigned_abs() > MAX_DECIMAL) => Err(beyond(None, &self.total)),
            decimal => Ok(Arc::new(Decimal128Array::new(sums.into(), nulls).with_data_type(decimal.clone()))),
        }
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (sums, nulls) = self.take(emit_to)?;
        Ok(vec![Arc::new(Decimal128Array::new(sums.into(), nulls).with_data_type(state_type(&self.total)))])
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let mut sums = vec![0; values[0].len()];
        each(&values[0], |row, value| sums[row] = value);
        let passed =
            opt_filter.map(|filter| filter.iter().map(|passed| passed.unwrap_or(false)).collect::<Vec<_>>());
        let nulls = NullBuffer::union(values[0].nulls(), passed.map(NullBuffer::from).as_ref());
        Ok(vec![Arc::new(Decimal128Array::new(sums.into(), nulls).with_data_type(state_type(&self.total)))])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>() + self.seen.as_ref().map_or(0, Vec::capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::Int64Array;

    fn integers(values: Vec<Option<i64>>) -> ArrayRef {
        Arc::new(Int64Array::from(values))
    }

    fn groups() -> ExactGroups {
        ExactGroups { total: DataType::Int64, sums: Vec::new(), seen: None, overflowed: false }
    }

    #[test]
    fn partial_sums_may_exceed_bigint() {
        let (mut first, mut second, mut whole) = (groups(), groups(), groups());
        first.update_batch(&[integers(vec![Some(i64::MAX), Some(i64::MAX)])], &[0, 0], None, 1).unwrap();
        second.update_batch(&[integers(vec![Some(i64::MIN), Some(i64::MIN)])], &[0, 0], None, 1).unwrap();
        for part in [&mut first, &mut second] {
            whole.merge_batch(&part.state(EmitTo::All).unwrap(), &[0], 1).unwrap();
        }
        let sums = whole.evaluate(EmitTo::All).unwrap();
        assert_eq!(sums.as_primitive::<Int64Type>(), &Int64Array::from(vec![-2]));
        first.update_batch(&[integers(vec![Some(i64::MAX), Some(1)])], &[0, 0], None, 1).unwrap();
        let error = first.evaluate(EmitTo::All).unwrap_err().to_string();
        assert!(error.contains("the sum 9223372036854775808 exceeds BIGINT"), "{error}");
    }

    #[test]
    fn groups_without_values_are_null() {
        let mut sums = groups();
        sums.update_batch(&[integers(vec![Some(1), Some(2)])], &[0, 1], None, 2).unwrap();
        let filter = BooleanArray::from(vec![Some(true), Some(false), None, Some(true)]);
        let values = integers(vec![Some(10), Some(20), Some(30), None]);
        sums.update_batch(&[values], &[0, 2, 3, 4], Some(&filter), 5).unwrap();
        let first = sums.evaluate(EmitTo::First(2)).unwrap();
        assert_eq!(first.as_primitive::<Int64Type>(), &Int64Array::from(vec![11, 2]));
        assert_eq!(sums.evaluate(EmitTo::All).unwrap().null_count(), 3);
    }

    #[test]
    fn frame_forgets_values_that_leave_it() {
        let mut sum = Exact { total: DataType::Int64, sum: 0, count: 0, overflowed: false };
        sum.update_batch(&[integers(vec![Some(i64::MAX), Some(i64::MAX), None])]).unwrap();
        assert!(sum.evaluate().is_err());
        sum.retract_batch(&[integers(vec![Some(i64::MAX)])]).unwrap();
        assert_eq!(sum.evaluate().unwrap(), ScalarValue::Int64(Some(i64::MAX)));
        sum.retract_batch(&[integers(vec![Some(i64::MAX)])]).unwrap();
        assert_eq!(sum.evaluate().unwrap(), ScalarValue::Int64(None));
    }
}
