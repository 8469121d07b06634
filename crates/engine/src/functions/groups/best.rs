//! `arg_max` and `arg_min`: the value of one column in the row where another one is largest or smallest.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, make_comparator};
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue, plan_datafusion_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};

/// Returns the aggregates. Those that end with `_null` may return NULL for a row.
pub(crate) fn all() -> Vec<AggregateUDF> {
    [
        ("arg_max", true, false),
        ("arg_min", false, false),
        ("arg_max_null", true, true),
        ("arg_min_null", false, true),
    ]
    .into_iter()
    .map(|(name, largest, nulls)| {
        let signature = Signature::user_defined(Volatility::Immutable);
        AggregateUDF::new_from_impl(Best { name, largest, nulls, signature })
    })
    .collect()
}

#[derive(Debug)]
struct Best {
    name: &'static str,
    largest: bool,
    /// True if rows count whose value is NULL.
    nulls: bool,
    signature: Signature,
}

impl PartialEq for Best {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Best {}

impl Hash for Best {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl AggregateUDFImpl for Best {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        if types.len() != 2 {
            let (name, given) = (self.name, types.len());
            return Err(plan_datafusion_err!(
                "cannot call {name}: {given} arguments were given; write {name}(value, by) or {name}(value, by, n)"
            ));
        }
        Ok(types.to_vec())
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let found = Field::new(format_state_name(args.name, "found"), DataType::Boolean, true);
        let inputs = args.input_fields.iter().zip(["value", "by"]).map(|(field, name)| {
            Arc::new(Field::new(format_state_name(args.name, name), field.data_type().clone(), true))
        });
        Ok(inputs.chain([Arc::new(found)]).collect())
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(self.row(&args)?))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Frame { empty: self.row(&args)?, rows: VecDeque::new() }))
    }
}

impl Best {
    fn row(&self, args: &AccumulatorArgs) -> Result<Row> {
        Ok(Row {
            largest: self.largest,
            nulls: self.nulls,
            value: ScalarValue::try_from(args.expr_fields[0].data_type())?,
            by: ScalarValue::try_from(args.expr_fields[1].data_type())?,
            found: false,
        })
    }
}

/// The rows of a moving frame.
#[derive(Debug)]
struct Frame {
    empty: Row,
    rows: VecDeque<[ArrayRef; 2]>,
}

impl Accumulator for Frame {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        self.rows.push_back([Arc::clone(&columns[0]), Arc::clone(&columns[1])]);
        Ok(())
    }

    fn retract_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let mut leaving = columns[0].len();
        while leaving > 0
            && let Some(first) = self.rows.pop_front()
        {
            if first[0].len() > leaving {
                self.rows.push_front(first.map(|column| column.slice(leaving, column.len() - leaving)));
                break;
            }
            leaving -= first[0].len();
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.best()?.state()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.best()?.evaluate()
    }

    fn size(&self) -> usize {
        let columns = self.rows.iter().flatten();
        size_of_val(self) + columns.map(|column| column.get_array_memory_size()).sum::<usize>()
    }
}

impl Frame {
    fn best(&self) -> Result<Row> {
        let mut best = self.empty.clone();
        self.rows.iter().try_for_each(|columns| best.update_batch(columns))?;
        Ok(best)
    }
}

/// The best row so far; the first one of several.
#[derive(Debug, Clone)]
struct Row {
    largest: bool,
    nulls: bool,
    value: ScalarValue,
    by: ScalarValue,
    found: bool,
}

impl Accumulator for Row {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let (values, by) = (&columns[0], &columns[1]);
        let options = SortOptions { descending: self.largest, nulls_first: false };
        let compare = make_comparator(by, by, options)?;
        let counts = |row: &usize| by.is_valid(*row) && (self.nulls || values.is_valid(*row));
        let best = (0..by.len()).filter(counts).reduce(|best, row| match compare(row, best) {
            Ordering::Less => row,
            _ => best,
        });
        let Some(best) = best else { return Ok(()) };
        let by = ScalarValue::try_from_array(by, best)?;
        let better = if self.largest { Ordering::Greater } else { Ordering::Less };
        if !self.found || by.partial_cmp(&self.by) == Some(better) {
            self.value = ScalarValue::try_from_array(values, best)?;
            self.value.compact();
            self.by = by;
            self.by.compact();
            self.found = true;
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.value.clone(), self.by.clone(), ScalarValue::Boolean(Some(self.found))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.value.clone())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.value.size() + self.by.size()
    }
}
