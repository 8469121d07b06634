//! The quantiles of SUMMARIZE: exact up to some thousand values, and estimated beyond.
//!
//! A quantile lies between the two values around its rank `p · n − ½`, as in DuckDB. Beyond [`MAX_POINTS`] values,
//! neighbours are joined to weighted points.

use std::mem::size_of;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};

/// Name of the function.
pub(crate) const QUANTILE: &str = "__quantile";

/// Number of points beyond which neighbours are joined.
const MAX_POINTS: usize = 8192;

/// Returns `__quantile_25(x)`, `__quantile_50(x)` and `__quantile_75(x)`.
pub(crate) fn all() -> Vec<AggregateUDF> {
    let of = |percent: u8| Quantile {
        name: format!("{QUANTILE}_{percent}"),
        percent,
        signature: Signature::exact(vec![DataType::Float64], Volatility::Immutable),
    };
    [25, 50, 75].into_iter().map(|percent| AggregateUDF::new_from_impl(of(percent))).collect()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Quantile {
    name: String,
    percent: u8,
    signature: Signature,
}

impl AggregateUDFImpl for Quantile {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Points { percent: self.percent, points: Vec::new() }))
    }

    fn state_fields(&self, _: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let list =
            |name: &str| Field::new_list(name, Field::new_list_field(DataType::Float64, true), true).into();
        Ok(vec![list("values"), list("weights")])
    }
}

/// Values with their weights.
#[derive(Debug)]
struct Points {
    percent: u8,
    points: Vec<(f64, f64)>,
}

impl Points {
    fn add(&mut self, values: impl Iterator<Item = (f64, f64)>) {
        for point in values {
            self.points.push(point);
            if self.points.len() > 2 * MAX_POINTS {
                self.compress();
            }
        }
    }

    fn compress(&mut self) {
        self.points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let join = |pair: &[(f64, f64)]| match pair {
            [(a, v), (b, w)] => ((a * v + b * w) / (v + w), v + w),
            rest => rest.first().copied().unwrap_or_default(),
        };
        self.points = self.points.chunks(2).map(join).collect();
    }

    fn quantile(&mut self) -> Option<f64> {
        self.points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let total: f64 = self.points.iter().map(|(_, weight)| weight).sum();
        let rank = total * f64::from(self.percent) / 100.0;
        let mut below = 0.0;
        let mut before: Option<(f64, f64)> = None;
        for (value, weight) in &self.points {
            let centre = below + weight / 2.0;
            if centre >= rank {
                return Some(match before {
                    Some((last, at)) if centre > at => last + (value - last) * (rank - at) / (centre - at),
                    _ => *value,
                });
            }
            before = Some((*value, centre));
            below += weight;
        }
        before.map(|(value, _)| value)
    }
}

impl Accumulator for Points {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<Float64Type>();
        self.add(values.iter().flatten().map(|value| (value, 1.0)));
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let (values, weights) = (states[0].as_list::<i32>(), states[1].as_list::<i32>());
        for at in 0..values.len() {
            let (values, weights) = (values.value(at), weights.value(at));
            let values = values.as_primitive::<Float64Type>().values().iter().copied();
            let points: Vec<_> =
                values.zip(weights.as_primitive::<Float64Type>().values().iter().copied()).collect();
            self.add(points.into_iter());
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let list = |values: Vec<f64>| {
            let values: Vec<ScalarValue> =
                values.into_iter().map(|value| ScalarValue::Float64(Some(value))).collect();
            ScalarValue::List(ScalarValue::new_list_nullable(&values, &DataType::Float64))
        };
        let (values, weights) = self.points.iter().copied().unzip();
        Ok(vec![list(values), list(weights)])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.quantile()))
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.points.capacity() * size_of::<(f64, f64)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantile(percent: u8, values: impl Iterator<Item = f64>) -> f64 {
        let mut points = Points { percent, points: Vec::new() };
        points.add(values.map(|value| (value, 1.0)));
        points.quantile().unwrap()
    }

    #[test]
    fn quantiles_lie_between_neighbours_and_stay_near_for_many_values() {
        assert_eq!([25, 50, 75].map(|p| quantile(p, [1.0, 2.0].into_iter())), [1.0, 1.5, 2.0]);
        assert_eq!(quantile(25, (0..8).map(f64::from)), 1.5);
        assert_eq!(quantile(50, [7.0].into_iter()), 7.0);
        let many = quantile(25, (0..1_000_000_u64).map(|n| (n * 7919 % 1_000_000) as f64));
        assert!((many - 250_000.0).abs() < 10_000.0, "{many}");
        assert_eq!(Points { percent: 50, points: Vec::new() }.quantile(), None);
    }
}
