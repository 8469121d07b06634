//! `avg` of decimals as a DOUBLE, where DataFusion's keeps four more digits than the values have.
//!
//! DataFusion's accumulators count the values and add them up exactly; only the mean is computed here, from their state.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray, Float64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type, UInt64Type};
use datafusion::common::{Result, ScalarValue, exec_datafusion_err};
use datafusion::functions_aggregate::average::Avg;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF,
    Signature,
};

use crate::types::from_state::FromState;

/// Returns the function.
pub(crate) fn function() -> AggregateUDF {
    AggregateUDF::new_from_impl(Average(Avg::new()))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Average(Avg);

impl Average {
    /// Returns the arguments with the type that DataFusion's function has, if it is a decimal.
    fn of_decimals<'a>(&self, args: AccumulatorArgs<'a>) -> Result<(AccumulatorArgs<'a>, bool)> {
        let kinds: Vec<DataType> = args.expr_fields.iter().map(|field| field.data_type().clone()).collect();
        if !kinds[0].is_decimal() {
            return Ok((args, false));
        }
        let field = Field::new(args.return_field.name(), self.0.return_type(&kinds)?, true);
        Ok((AccumulatorArgs { return_field: Arc::new(field), ..args }, true))
    }
}

impl AggregateUDFImpl for Average {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn aliases(&self) -> &[String] {
        self.0.aliases()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(match self.0.return_type(types)? {
            decimal if decimal.is_decimal() => DataType::Float64,
            other => other,
        })
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let (args, decimal) = self.of_decimals(args)?;
        let inner = self.0.accumulator(args)?;
        let result = DataType::Float64;
        Ok(if decimal { Box::new(FromState { inner, result, evaluate: mean }) } else { inner })
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.0.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.0.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        let (args, decimal) = self.of_decimals(args)?;
        let inner = self.0.create_groups_accumulator(args)?;
        Ok(if decimal { Box::new(Means(inner)) } else { inner })
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.0.reverse_expr()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.0.order_sensitivity()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.documentation()
    }
}

/// Divides sums by counts; NULL where there are no values.
fn means(counts: &ArrayRef, sums: &ArrayRef) -> Result<Float64Array> {
    let sums = cast(sums, &DataType::Float64)?;
    let pairs = counts.as_primitive::<UInt64Type>().iter().zip(sums.as_primitive::<Float64Type>());
    Ok(pairs.map(|(count, sum)| Some(sum? / count.filter(|count| *count > 0)? as f64)).collect())
}

/// Returns the mean of one group, whose state is a count and a sum, or the distinct values.
fn mean(state: &[ScalarValue], _: &DataType) -> Result<ScalarValue> {
    match state {
        [count, sum] => ScalarValue::try_from_array(&means(&count.to_array()?, &sum.to_array()?)?, 0),
        [ScalarValue::List(values)] => {
            let values = cast(values.values(), &DataType::Float64)?;
            let (count, values) = (values.len() - values.null_count(), values.as_primitive::<Float64Type>());
            let sum: f64 = values.iter().flatten().sum();
            Ok(ScalarValue::Float64((count > 0).then(|| sum / count as f64)))
        }
        _ => Err(exec_datafusion_err!("cannot compute avg: its state has neither a count nor values")),
    }
}

/// The means of many groups.
struct Means(Box<dyn GroupsAccumulator>);

impl GroupsAccumulator for Means {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.0.update_batch(values, group_indices, opt_filter, total_num_groups)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.0.merge_batch(values, group_indices, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let state = self.0.state(emit_to)?;
        Ok(Arc::new(means(&state[0], &state[1])?))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.0.state(emit_to)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.0.convert_to_state(values, opt_filter)
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Decimal128Array, UInt64Array};

    #[test]
    fn means_have_all_digits_and_are_null_without_values() {
        let counts: ArrayRef = Arc::new(UInt64Array::from(vec![Some(3), Some(0), None]));
        let sums = Decimal128Array::from(vec![Some(1000), Some(0), None]).with_precision_and_scale(38, 2);
        let found = means(&counts, &(Arc::new(sums.unwrap()) as ArrayRef)).unwrap();
        assert_eq!(found, Float64Array::from(vec![Some(10.0 / 3.0), None, None]));
    }
}
