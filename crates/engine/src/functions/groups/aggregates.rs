//! Aggregates that need all values of a group at once. They are held in memory.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array, UInt64Array, new_empty_array};
use datafusion::arrow::compute::{cast, concat, take};
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Field, FieldRef, Float64Type, IntervalUnit, TimeUnit,
};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Result, ScalarValue, plan_datafusion_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};

use crate::functions::groups::samples::{counts, discrete, entries, histogram, interpolated, sorted};
use crate::functions::groups::statistics;

/// A statistic of the values of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Entropy,
    Histogram,
    Kurtosis,
    KurtosisPop,
    Mad,
    Median,
    Mode,
    Product,
    QuantileCont,
    QuantileDisc,
    Skewness,
}

const ALL: [(&str, Kind); 11] = [
    ("entropy", Kind::Entropy),
    ("histogram", Kind::Histogram),
    ("kurtosis", Kind::Kurtosis),
    ("kurtosis_pop", Kind::KurtosisPop),
    ("mad", Kind::Mad),
    ("median", Kind::Median),
    ("mode", Kind::Mode),
    ("product", Kind::Product),
    ("quantile_cont", Kind::QuantileCont),
    ("quantile_disc", Kind::QuantileDisc),
    ("skewness", Kind::Skewness),
];

/// Returns the aggregates.
pub(crate) fn all() -> Vec<AggregateUDF> {
    ALL.iter()
        .map(|(name, kind)| {
            let signature = Signature::user_defined(Volatility::Immutable);
            AggregateUDF::new_from_impl(Statistic { name, kind: *kind, signature })
        })
        .collect()
}

#[derive(Debug)]
struct Statistic {
    name: &'static str,
    kind: Kind,
    signature: Signature,
}

impl PartialEq for Statistic {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

impl Eq for Statistic {}

impl Hash for Statistic {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kind.hash(state);
    }
}

impl Statistic {
    fn takes_fraction(&self) -> bool {
        matches!(self.kind, Kind::QuantileCont | Kind::QuantileDisc)
    }
}

impl AggregateUDFImpl for Statistic {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let wanted = if self.takes_fraction() { 2 } else { 1 };
        if types.len() != wanted {
            let (name, given) = (self.name, types.len());
            let second = if wanted == 2 { ", a fraction from 0 to 1" } else { "" };
            return Err(plan_datafusion_err!(
                "cannot call {name}: {given} arguments were given; write {name}(x{second})"
            ));
        }
        let value = match &types[0] {
            DataType::Dictionary(_, values) => values.as_ref().clone(),
            DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
            other => other.clone(),
        };
        let numeric = value.is_numeric() || value.is_null();
        let ordered = numeric || value.is_temporal();
        let value = match self.kind {
            Kind::Product | Kind::Skewness | Kind::Kurtosis | Kind::KurtosisPop if numeric => {
                DataType::Float64
            }
            Kind::Entropy | Kind::Histogram | Kind::Mode | Kind::QuantileDisc | Kind::Median => value,
            Kind::Mad | Kind::QuantileCont if ordered => value,
            _ => {
                return Err(plan_datafusion_err!(
                    "cannot call {}: its argument is {value}; it must be a number",
                    self.name
                ));
            }
        };
        let fraction = types.get(1).map(|kind| match kind {
            DataType::List(_) | DataType::FixedSizeList(_, _) => DataType::new_list(DataType::Float64, true),
            _ => DataType::Float64,
        });
        Ok([value].into_iter().chain(fraction).collect())
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let value = &types[0];
        let one = match self.kind {
            Kind::Entropy | Kind::Product | Kind::Skewness | Kind::Kurtosis | Kind::KurtosisPop => {
                DataType::Float64
            }
            Kind::Histogram => histogram_type(value),
            Kind::Mode | Kind::QuantileDisc => value.clone(),
            Kind::Median if !value.is_numeric() && !value.is_temporal() => value.clone(),
            Kind::Median | Kind::QuantileCont => continuous(value),
            Kind::Mad if value.is_temporal() => DataType::Interval(IntervalUnit::MonthDayNano),
            Kind::Mad => continuous(value),
        };
        Ok(match types.get(1) {
            Some(DataType::List(_)) => DataType::new_list(one, true),
            _ => one,
        })
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let inputs = args.input_fields.iter().enumerate();
        Ok(inputs
            .map(|(index, field)| {
                let name = format_state_name(args.name, &format!("{}_{index}", self.name));
                let kind = match index {
                    0 => DataType::new_list(field.data_type().clone(), true),
                    _ => field.data_type().clone(),
                };
                Arc::new(Field::new(name, kind, true))
            })
            .collect())
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let kinds: Vec<DataType> = args.expr_fields.iter().map(|field| field.data_type().clone()).collect();
        Ok(Box::new(Values {
            kind: self.kind,
            name: self.name,
            value: kinds[0].clone(),
            result: args.return_type().clone(),
            distinct: args.is_distinct,
            batches: VecDeque::new(),
            fraction: kinds.get(1).map(ScalarValue::try_from).transpose()?,
        }))
    }
}

/// Returns the type of an interpolated value.
fn continuous(value: &DataType) -> DataType {
    match value {
        DataType::Date32 | DataType::Date64 => DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Decimal128(_, _) => value.clone(),
        temporal if temporal.is_temporal() => temporal.clone(),
        _ => DataType::Float64,
    }
}

fn histogram_type(value: &DataType) -> DataType {
    DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entries(value)), false)), false)
}

/// The values of one group that are not NULL.
#[derive(Debug)]
struct Values {
    kind: Kind,
    name: &'static str,
    value: DataType,
    result: DataType,
    distinct: bool,
    batches: VecDeque<ArrayRef>,
    fraction: Option<ScalarValue>,
}

impl Values {
    fn push(&mut self, values: &ArrayRef) -> Result<()> {
        let values = match values.null_count() {
            0 => Arc::clone(values),
            _ => {
                datafusion::arrow::compute::filter(values, &datafusion::arrow::compute::is_not_null(values)?)?
            }
        };
        if !values.is_empty() && !values.data_type().is_null() {
            self.batches.push_back(values);
        }
        Ok(())
    }

    /// Keeps the fraction of a quantile, which is the same in all rows.
    fn keep_fraction(&mut self, column: Option<&ArrayRef>) -> Result<()> {
        if let (Some(column), Some(fraction)) = (column, &mut self.fraction)
            && fraction.is_null()
            && !column.is_empty()
        {
            *fraction = ScalarValue::try_from_array(column, 0)?;
        }
        Ok(())
    }

    fn all(&self) -> Result<ArrayRef> {
        let parts: Vec<&dyn Array> = self.batches.iter().map(AsRef::as_ref).collect();
        if parts.is_empty() {
            return Ok(new_empty_array(&self.value));
        }
        let all = concat(&parts)?;
        if !self.distinct {
            return Ok(all);
        }
        let counts = counts(&all)?;
        let firsts = UInt64Array::from_iter_values(counts.iter().map(|(first, _)| *first as u64));
        Ok(take(&all, &firsts, None)?)
    }
}

impl Accumulator for Values {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        self.keep_fraction(columns.get(1))?;
        self.push(&columns[0])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.keep_fraction(states.get(1))?;
        for list in states[0].as_list::<i32>().iter().flatten() {
            self.push(&list)?;
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let list = SingleRowListArrayBuilder::new(self.all()?).with_nullable(true).build_list_scalar();
        Ok([list].into_iter().chain(self.fraction.clone()).collect())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let values = self.all()?;
        let wrong = |cause: String| plan_datafusion_err!("cannot call {}: {cause}", self.name);
        let null = || ScalarValue::try_from(&self.result);
        if values.is_empty() && self.kind != Kind::Entropy {
            return null();
        }
        let numbers = || -> Result<Float64Array> {
            Ok(cast(&values, &DataType::Float64)?.as_primitive::<Float64Type>().clone())
        };
        let made = match self.kind {
            Kind::Mode => {
                let counts = counts(&values)?;
                // The first of the most frequent values.
                let most = counts.iter().fold((0, 0), |most, one| if one.1 > most.1 { *one } else { most });
                return ScalarValue::try_from_array(&values, most.0);
            }
            Kind::Histogram => return histogram(&values),
            Kind::QuantileDisc => return self.quantiles(&sorted(&values)?, false),
            Kind::QuantileCont => return self.quantiles(&sorted(&values)?, true),
            Kind::Median if !self.result.is_numeric() && !self.result.is_temporal() => {
                return discrete(&sorted(&values)?, 0.5);
            }
            Kind::Median => return interpolated(&sorted(&values)?, 0.5, &self.result),
            Kind::Mad if self.result.is_numeric() => {
                let mut found: Vec<f64> = match &values.data_type() {
                    // In units of the last digit.
                    DataType::Decimal128(_, _) => {
                        values.as_primitive::<Decimal128Type>().values().iter().map(|n| *n as f64).collect()
                    }
                    _ => numbers()?.values().to_vec(),
                };
                found.sort_by(f64::total_cmp);
                let median = statistics::quantile(&found, 0.5);
                let median = if self.result.is_decimal() { median.trunc() } else { median };
                let mut distances: Vec<f64> = found.iter().map(|value| (value - median).abs()).collect();
                distances.sort_by(f64::total_cmp);
                let middle = statistics::quantile(&distances, 0.5);
                if let DataType::Decimal128(digits, scale) = self.result {
                    return Ok(ScalarValue::Decimal128(Some(middle as i128), digits, scale));
                }
                Some(middle)
            }
            Kind::Mad => return Err(wrong("dates are not supported; use median of numbers".to_string())),
            Kind::Entropy => Some(statistics::entropy(counts(&values)?.iter().map(|(_, count)| *count))),
            Kind::Product => Some(numbers()?.values().iter().product()),
            Kind::Skewness => statistics::skewness(numbers()?.values()),
            Kind::Kurtosis => statistics::kurtosis(numbers()?.values(), true),
            Kind::KurtosisPop => statistics::kurtosis(numbers()?.values(), false),
        };
        Ok(ScalarValue::Float64(made))
    }

    fn retract_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let mut leaving = columns[0].len() - columns[0].null_count();
        while leaving > 0 {
            let Some(first) = self.batches.pop_front() else { break };
            if first.len() > leaving {
                self.batches.push_front(first.slice(leaving, first.len() - leaving));
                break;
            }
            leaving -= first.len();
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.batches.iter().map(|batch| batch.get_array_memory_size()).sum::<usize>()
    }
}

impl Values {
    /// Returns the quantile of the fraction, or a list of those of several fractions.
    fn quantiles(&self, sorted: &ArrayRef, continuous: bool) -> Result<ScalarValue> {
        let one = |fraction: f64, result: &DataType| match fraction {
            fraction if !(0.0..=1.0).contains(&fraction) => Err(plan_datafusion_err!(
                "cannot call {}: the fraction is {fraction}; it must be from 0 to 1",
                self.name
            )),
            fraction if continuous => interpolated(sorted, fraction, result),
            fraction => discrete(sorted, fraction),
        };
        match (&self.fraction, &self.result) {
            (Some(ScalarValue::Float64(Some(fraction))), result) => one(*fraction, result),
            (Some(ScalarValue::List(fractions)), DataType::List(field)) => {
                let fractions = fractions.value(0);
                let fractions = fractions.as_primitive::<Float64Type>().values().iter();
                let found = fractions.map(|fraction| one(*fraction, field.data_type()));
                let found = found.collect::<Result<Vec<_>>>()?;
                Ok(ScalarValue::List(ScalarValue::new_list(&found, field.data_type(), true)))
            }
            (_, result) => Ok(ScalarValue::try_from(result)?),
        }
    }
}
