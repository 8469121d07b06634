//! The values of a PIVOT without IN, which name its columns: they are queried before the statement can be planned.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::LogicalPlan;

use crate::sync::lock;

/// Maximum number of values.
pub(crate) const MAX_VALUES: usize = 10_000;

/// Values by the query that finds them.
#[derive(Debug, Default)]
pub(crate) struct Values(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    known: HashMap<String, Vec<String>>,
    wanted: Option<LogicalPlan>,
}

impl Values {
    /// Returns the values of a query.
    ///
    /// # Errors
    /// Returns an error if they are not known yet. [`Values::wanted`] returns the query then.
    pub(super) fn get(&self, query: LogicalPlan) -> Result<Vec<String>> {
        let mut state = self.state();
        if let Some(values) = state.known.get(&key(&query)) {
            return Ok(values.clone());
        }
        state.wanted = Some(query);
        Err(DataFusionError::Plan("the values of PIVOT are not known yet; list them with IN (…)".to_string()))
    }

    /// Takes the query whose values are needed to plan the statement.
    pub(crate) fn wanted(&self) -> Option<LogicalPlan> {
        self.state().wanted.take()
    }

    /// Adds the values of a query, in order.
    ///
    /// # Errors
    /// Returns an error if there are more than [`MAX_VALUES`].
    pub(crate) fn insert(&self, query: &LogicalPlan, batches: &[RecordBatch]) -> Result<()> {
        let mut values = Vec::new();
        for batch in batches {
            let column = cast(batch.column(0), &DataType::Utf8)?;
            let column = column.as_string::<i32>();
            values.extend(
                (0..column.len())
                    .filter(|&row| column.is_valid(row))
                    .map(|row| column.value(row).to_string()),
            );
        }
        values.sort();
        values.dedup();
        if values.len() > MAX_VALUES {
            return Err(DataFusionError::Plan(format!(
                "cannot make more than {MAX_VALUES} columns with PIVOT; list the values with IN (…)"
            )));
        }
        self.state().known.insert(key(query), values);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

fn key(query: &LogicalPlan) -> String {
    query.display_indent().to_string()
}
