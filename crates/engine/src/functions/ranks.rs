//! `row_number`, `rank`, `dense_rank` and `ntile`, whose values are BIGINT.
//!
//! DataFusion's are unsigned, so that `id - row_number() OVER (ORDER BY id)` would be a decimal.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use datafusion::arrow::buffer::ScalarBuffer;
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{DataType, FieldRef, UInt64Type};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::functions_window::all_default_window_functions;
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::window_state::WindowAggState;
use datafusion::logical_expr::{LimitEffect, PartitionEvaluator, Signature, WindowUDF, WindowUDFImpl};
use datafusion::physical_expr::PhysicalExpr;

const NAMES: [&str; 4] = ["dense_rank", "ntile", "rank", "row_number"];

/// Returns the functions.
pub(super) fn all() -> impl Iterator<Item = WindowUDF> {
    let defaults = all_default_window_functions().into_iter();
    defaults.filter(|function| NAMES.contains(&function.name())).map(|of| WindowUDF::from(Rank { of }))
}

/// A function of DataFusion with values of another type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Rank {
    of: Arc<WindowUDF>,
}

impl WindowUDFImpl for Rank {
    fn name(&self) -> &str {
        self.of.name()
    }

    fn signature(&self) -> &Signature {
        self.of.signature()
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        let field = self.of.field(args)?;
        Ok(Arc::new(field.as_ref().clone().with_data_type(DataType::Int64)))
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(Signed(self.of.partition_evaluator_factory(args)?)))
    }

    fn sort_options(&self) -> Option<SortOptions> {
        self.of.sort_options()
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.of.inner().limit_effect(args)
    }
}

/// Gives the values of another evaluator as signed integers, in place: none exceeds the number of rows.
#[derive(Debug)]
struct Signed(Box<dyn PartitionEvaluator>);

impl PartitionEvaluator for Signed {
    fn memoize(&mut self, state: &mut WindowAggState) -> Result<()> {
        self.0.memoize(state)
    }

    fn get_range(&self, at: usize, rows: usize) -> Result<Range<usize>> {
        self.0.get_range(at, rows)
    }

    fn is_causal(&self) -> bool {
        self.0.is_causal()
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        signed(&self.0.evaluate_all(values, rows)?)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        match self.0.evaluate(values, range)? {
            ScalarValue::UInt64(value) => Ok(ScalarValue::Int64(value.map(u64::cast_signed))),
            other => exec_err!("a rank is {other:?}"),
        }
    }

    fn evaluate_all_with_rank(&self, rows: usize, ranks: &[Range<usize>]) -> Result<ArrayRef> {
        signed(&self.0.evaluate_all_with_rank(rows, ranks)?)
    }

    fn supports_bounded_execution(&self) -> bool {
        self.0.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.0.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.0.include_rank()
    }
}

fn signed(ranks: &ArrayRef) -> Result<ArrayRef> {
    match ranks.as_primitive_opt::<UInt64Type>() {
        Some(ranks) => {
            let values = ScalarBuffer::from(ranks.values().inner().clone());
            Ok(Arc::new(Int64Array::new(values, ranks.nulls().cloned())))
        }
        None => exec_err!("ranks are {}", ranks.data_type()),
    }
}
