//! Columns of a table: their names now, their names in files, and their field ids.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields};

/// A column, or a field within one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    /// The name that queries use.
    pub name: String,
    /// The name in files; the same unless the table maps names.
    pub in_files: String,
    /// The field id, by which files without a name mapping are read.
    pub id: Option<i32>,
    pub nullable: bool,
    pub kind: Kind,
}

/// The type of a [`Column`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Primitive(DataType),
    Struct(Vec<Column>),
    List(Box<Column>),
    Map(Box<Column>, Box<Column>),
}

/// The names of a column's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    Now,
    InFiles,
}

impl Column {
    /// Returns the column as a field of Arrow. Every column may be NULL, since older files may lack it.
    pub(super) fn field(&self, names: Names) -> FieldRef {
        Arc::new(Field::new(self.named(names), self.kind.arrow(names), true))
    }

    fn named(&self, names: Names) -> &str {
        match names {
            Names::Now => &self.name,
            Names::InFiles => &self.in_files,
        }
    }

    fn inner(&self, names: Names) -> FieldRef {
        Arc::new(Field::new(self.named(names), nested(self.kind.arrow(names)), self.nullable))
    }
}

/// Returns the type of a value within another. As in other tables, only columns are views.
pub(super) fn nested(data_type: DataType) -> DataType {
    match data_type {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        other => other,
    }
}

impl Kind {
    /// Returns the type of Arrow. Names of elements, keys and values are those that Parquet specifies.
    pub(super) fn arrow(&self, names: Names) -> DataType {
        match self {
            Self::Primitive(primitive) => primitive.clone(),
            Self::Struct(columns) => DataType::Struct(columns.iter().map(|c| c.inner(names)).collect()),
            Self::List(element) => DataType::List(element.inner(names)),
            Self::Map(key, value) => map(key.inner(names), value.inner(names)),
        }
    }
}

/// Returns the type of a map of Arrow, as the Parquet library names its fields.
pub(super) fn map(key: FieldRef, value: FieldRef) -> DataType {
    let key = Arc::new(key.as_ref().clone().with_nullable(false));
    DataType::Map(
        Arc::new(Field::new("key_value", DataType::Struct(Fields::from(vec![key, value])), false)),
        false,
    )
}

/// Returns the fields of columns by their names now.
pub(super) fn fields(columns: &[Column]) -> Vec<FieldRef> {
    columns.iter().map(|c| c.field(Names::Now)).collect()
}
