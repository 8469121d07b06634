//! An accumulator of DataFusion's whose result is computed here, from its state.

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;

/// The accumulator of one group, also of a window's frame.
#[derive(Debug)]
pub(crate) struct FromState {
    pub inner: Box<dyn Accumulator>,
    /// The type of the result.
    pub result: DataType,
    /// Computes the result of a state.
    pub evaluate: fn(&[ScalarValue], &DataType) -> Result<ScalarValue>,
}

impl Accumulator for FromState {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        (self.evaluate)(&self.inner.state()?, &self.result)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}
