//! Prunes the files of a table by filters, with the bounds that its log has.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, UInt64Array};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::Session;
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column, DFSchema, Result, ScalarValue};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::utils::conjunction;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;

use super::files::{Bounds, DataFile};

/// Returns the files that may have rows for which all `filters` are true.
///
/// # Errors
/// Returns an error if a filter is invalid.
pub(super) fn keep<'a>(
    files: &'a [DataFile],
    schema: &SchemaRef,
    state: &dyn Session,
    filters: &[Expr],
) -> Result<Vec<&'a DataFile>> {
    let all = || files.iter().collect();
    let Some(filter) = conjunction(filters.iter().cloned()) else { return Ok(all()) };
    let filter: Arc<dyn PhysicalExpr> =
        state.create_physical_expr(filter, &DFSchema::try_from(Arc::clone(schema))?)?;
    let Ok(predicate) = PruningPredicateBuilder::new().with_file_schema(Arc::clone(schema)).try_build(filter)
    else {
        return Ok(all());
    };
    // Bounds of unexpected types make this fail; pruning is optional.
    let Ok(kept) = predicate.prune(&FileBounds { files, schema }) else { return Ok(all()) };
    Ok(files.iter().zip(kept).filter_map(|(file, kept)| kept.then_some(file)).collect())
}

/// The bounds of files as DataFusion asks for them.
struct FileBounds<'a> {
    files: &'a [DataFile],
    schema: &'a SchemaRef,
}

impl FileBounds<'_> {
    fn values(&self, column: &Column, of: fn(&Bounds) -> Option<&ScalarValue>) -> Option<ArrayRef> {
        let index = self.schema.index_of(&column.name).ok()?;
        let missing = ScalarValue::try_from(self.schema.field(index).data_type()).ok()?;
        let value = |file: &DataFile| file.bounds.get(index).and_then(of).unwrap_or(&missing).clone();
        ScalarValue::iter_to_array(self.files.iter().map(value)).ok()
    }
}

impl PruningStatistics for FileBounds<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.values(column, |bounds| bounds.min.as_ref())
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.values(column, |bounds| bounds.max.as_ref())
    }

    fn num_containers(&self) -> usize {
        self.files.len()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        let index = self.schema.index_of(&column.name).ok()?;
        let nulls = self.files.iter().map(|file| file.bounds.get(index).and_then(|bounds| bounds.nulls));
        Some(Arc::new(nulls.collect::<UInt64Array>()))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        Some(Arc::new(self.files.iter().map(|file| file.rows).collect::<UInt64Array>()))
    }

    fn contained(
        &self,
        _: &Column,
        _: &std::collections::HashSet<ScalarValue>,
    ) -> Option<datafusion::arrow::array::BooleanArray> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lakes::files::Deleted;
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::prelude::{SessionContext, col, lit};
    use object_store::ObjectMeta;
    use object_store::path::Path;

    fn file(name: &str, bounds: Bounds) -> DataFile {
        DataFile {
            meta: ObjectMeta {
                location: Path::from(name),
                last_modified: Default::default(),
                size: 1,
                e_tag: None,
                version: None,
            },
            rows: Some(10),
            bounds: vec![bounds],
            partition: Vec::new(),
            deleted: Deleted::None,
        }
    }

    #[test]
    fn files_outside_of_the_filter_are_pruned_and_unknown_ones_kept() {
        let int = |value: i64| Some(ScalarValue::Int64(Some(value)));
        let files = [
            file("a", Bounds { min: int(1), max: int(5), nulls: Some(0) }),
            file("b", Bounds { min: int(6), max: int(9), nulls: Some(1) }),
            file("c", Bounds::default()),
            file("d", Bounds { min: None, max: None, nulls: Some(10) }),
        ];
        let schema = Arc::new(Schema::new(vec![Field::new("x", DataType::Int64, true)]));
        let state = SessionContext::new().state();
        let kept = |filter: Expr| {
            let kept = keep(&files, &schema, &state, &[filter]).unwrap();
            kept.iter().map(|f| f.meta.location.to_string()).collect::<Vec<_>>().concat()
        };
        assert_eq!(kept(col("x").gt(lit(5i64))), "bc");
        assert_eq!(kept(col("x").is_null()), "bcd");
        assert_eq!(kept(col("x").eq(lit(3i64))), "ac");
        assert_eq!(keep(&files, &schema, &state, &[]).unwrap().len(), 4);
    }
}
