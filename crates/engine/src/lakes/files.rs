//! The data files of a table, as its log describes them.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use object_store::ObjectMeta;
use object_store::path::Path;

/// A Parquet file whose rows belong to a table, apart from deleted ones.
#[derive(Debug, Clone)]
pub(super) struct DataFile {
    pub meta: ObjectMeta,
    /// Number of rows with the deleted ones, if it is known.
    pub rows: Option<u64>,
    /// Bounds by column of the table.
    pub bounds: Vec<Bounds>,
    /// Values of the columns that are not in the file, by column of the partitioning.
    pub partition: Vec<ScalarValue>,
    pub deleted: Deleted,
}

/// Bounds of a column's values in one file. A NULL bound is unknown.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Bounds {
    pub min: Option<ScalarValue>,
    pub max: Option<ScalarValue>,
    pub nulls: Option<u64>,
}

impl Bounds {
    /// Returns the bounds of a column that has one value in all `rows` rows.
    pub(super) fn constant(value: &ScalarValue, rows: Option<u64>) -> Self {
        if value.is_null() {
            return Self { min: None, max: None, nulls: rows };
        }
        Self { min: Some(value.clone()), max: Some(value.clone()), nulls: Some(0) }
    }

    /// Adds bounds that hold as well, where there are none.
    pub(super) fn or(self, other: Self) -> Self {
        Self { min: self.min.or(other.min), max: self.max.or(other.max), nulls: self.nulls.or(other.nulls) }
    }
}

/// The rows of a file that were deleted.
#[derive(Debug, Clone)]
pub(super) enum Deleted {
    None,
    Vector(Arc<Vector>),
    /// Rows that position delete files name.
    Positions {
        /// The data file, as delete files name it.
        uri: String,
        files: Vec<Arc<ObjectMeta>>,
    },
}

/// A deletion vector of Delta.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Vector {
    pub place: VectorPlace,
    /// Number of deleted rows.
    pub count: u64,
}

/// The place of a deletion vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum VectorPlace {
    Inline(Vec<u8>),
    Stored { file: Path, offset: u64, bytes: u64 },
}
