//! Samples: `TABLESAMPLE` of a table and `USING SAMPLE` of a FROM clause.
//!
//! A percentage keeps each row with that probability. A number of rows keeps those with the smallest random
//! keys. With a seed, the key of a row depends on its position alone, so that the sample is the same each time.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, Float64Array};
use datafusion::arrow::datatypes::{DataType, UInt64Type};
use datafusion::common::{DataFusionError, Result};
use datafusion::functions::math::expr_fn::random;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, LogicalPlanBuilder, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility, lit,
};
use datafusion::sql::sqlparser::ast::{
    Function, FunctionArguments, TableFactor, TableSampleKind, TableSampleMethod, TableSampleUnit,
};

use super::template::{column, numbered};

/// The size and the method of a sample.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    count: String,
    percent: bool,
    reservoir: bool,
    seed: Option<String>,
}

/// Takes the sample from a table.
pub(super) fn take(table: &mut TableFactor) -> Option<Sample> {
    let (TableFactor::Table { sample, .. } | TableFactor::Derived { sample, .. }) = table else {
        return None;
    };
    let (TableSampleKind::BeforeTableAlias(found) | TableSampleKind::AfterTableAlias(found)) =
        sample.take()?;
    let quantity = found.quantity?;
    Some(Sample {
        count: quantity.value.to_string(),
        percent: quantity.unit == Some(TableSampleUnit::Percent),
        reservoir: matches!(found.name, None | Some(TableSampleMethod::Row)),
        seed: found.seed.map(|seed| seed.value.to_string()),
    })
}

/// Reads `__sample(count, method, unit[, seed])`.
pub(super) fn of_marker(call: &Function) -> Result<Sample> {
    let arguments: Vec<String> = match &call.args {
        FunctionArguments::List(list) => list.args.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    };
    match &arguments[..] {
        [count, method, unit, seed @ ..] => Ok(Sample {
            count: count.clone(),
            percent: unit == "percent",
            reservoir: method == "reservoir",
            seed: seed.first().cloned(),
        }),
        _ => Err(usage()),
    }
}

fn usage() -> DataFusionError {
    DataFusionError::Plan(
        "cannot read the sample; write USING SAMPLE 10% or USING SAMPLE 100 ROWS".to_string(),
    )
}

/// Plans a sample of rows.
pub(super) fn plan_kind(input: LogicalPlan, sample: &Sample) -> Result<LogicalPlan> {
    let count: f64 = sample.count.parse().map_err(|_| usage())?;
    if sample.percent && !(0.0..=100.0).contains(&count) {
        let message =
            format!("cannot sample {}% of the rows; write a percentage from 0 to 100", sample.count);
        return Err(DataFusionError::Plan(message));
    }
    if !sample.percent && !sample.reservoir {
        let message = "cannot sample a number of rows with this method; use reservoir, or a percentage";
        return Err(DataFusionError::Plan(message.to_string()));
    }
    let columns: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
    let mut with_key = columns.clone();
    let plan = match &sample.seed {
        None => {
            with_key.push(random().alias("__key"));
            LogicalPlanBuilder::from(input)
        }
        Some(seed) => {
            let seed: f64 = seed.parse().map_err(|_| usage())?;
            let key = function().call(vec![lit(seed.to_bits()), Expr::Column(column("__position"))]);
            with_key.push(key.alias("__key"));
            LogicalPlanBuilder::from(numbered(input, Vec::new(), "__position")?)
        }
    };
    let plan = plan.project(with_key)?;
    let key = Expr::Column(column("__key"));
    let plan = match sample.percent {
        true => plan.filter(key.lt(lit(count / 100.0)))?,
        // More rows than memory can hold are all rows.
        false => plan.sort([key.sort(true, false)])?.limit(0, Some(count as usize))?,
    };
    plan.project(columns)?.build()
}

/// Returns the function that gives a row its key, from a seed and the row's position.
pub(super) fn function() -> ScalarUDF {
    ScalarUDF::from(SampleKey {
        signature: Signature::exact(vec![DataType::UInt64, DataType::UInt64], Volatility::Immutable),
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SampleKey {
    signature: Signature,
}

impl ScalarUDFImpl for SampleKey {
    fn name(&self) -> &str {
        "__sample_key"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let (seeds, positions) =
            (arrays[0].as_primitive::<UInt64Type>(), arrays[1].as_primitive::<UInt64Type>());
        let keys = (0..positions.len()).map(|row| key(seeds.value(row), positions.value(row)));
        Ok(ColumnarValue::Array(Arc::new(Float64Array::from_iter_values(keys)) as Arc<dyn Array>))
    }
}

/// Mixes a seed and a position to a number from 0 to 1 (SplitMix64, Steele et al. 2014).
fn key(seed: u64, position: u64) -> f64 {
    let mut z = seed.wrapping_add(position.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_spread_evenly_and_depend_on_the_seed() {
        let below = |seed| (0..10_000).filter(|&position| key(seed, position) < 0.1).count();
        assert!((900..1100).contains(&below(1)) && (900..1100).contains(&below(2)));
        assert_ne!(key(1, 5), key(2, 5));
    }
}
