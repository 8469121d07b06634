//! Finds the columns of a table in a file by their field ids.
//!
//! A file keeps the names that its columns had when it was written. The scan of a file reads each column by the file's
//! name for its id. A column that was added later gets a name that the file does not have, so that it is NULL, also if
//! the file has a dropped column of that name.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::parquet::file::metadata::ParquetMetaData;
use datafusion::parquet::schema::types::Type;

use super::column::{Column, Kind, Names, map, nested};

/// How files name the columns of a table.
#[derive(Debug, Clone)]
pub(super) enum Mapping {
    /// All files have the same names.
    Names,
    /// Files have field ids; those without any have one of the names given for an id.
    Ids(HashMap<i32, Vec<String>>),
}

/// Returns the fields of `columns` in a file; their types are those of the table with the file's names.
///
/// # Errors
/// Returns the cause if the file has neither field ids nor known names.
pub(super) fn fields(
    columns: &[&Column],
    metadata: &ParquetMetaData,
    names: &HashMap<i32, Vec<String>>,
) -> Result<Vec<InFile>, String> {
    let root = metadata.file_metadata().schema_descr().root_schema();
    if has_ids(root) {
        return Ok(columns.iter().map(|column| field(column, root)).collect());
    }
    if names.is_empty() {
        return Err("it has no field ids, and the table no mapping of names".to_string());
    }
    let by_name = |column: &&Column| {
        let known = column.id.and_then(|id| names.get(&id)).map_or(&[][..], Vec::as_slice);
        let found = root.get_fields().iter().find(|field| known.iter().any(|name| name == field.name()));
        match found {
            Some(found) => InFile {
                field: Arc::new(Field::new(found.name(), column.kind.arrow(Names::Now), true)),
                is_missing: false,
            },
            None => missing(column, root),
        }
    };
    Ok(columns.iter().map(by_name).collect())
}

/// A column as a file has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InFile {
    pub field: FieldRef,
    /// True if the file does not have the column.
    pub is_missing: bool,
}

fn id(node: &Type) -> Option<i32> {
    let info = node.get_basic_info();
    info.has_id().then(|| info.id())
}

fn children(node: &Type) -> &[Arc<Type>] {
    if node.is_group() { node.get_fields() } else { &[] }
}

fn has_ids(node: &Type) -> bool {
    children(node).iter().any(|child| id(child).is_some() || has_ids(child))
}

/// Returns a column of the group `parent`.
fn field(column: &Column, parent: &Type) -> InFile {
    let found = children(parent).iter().find(|child| column.id.is_some() && id(child) == column.id);
    match found {
        Some(found) => InFile {
            field: Arc::new(Field::new(found.name(), data_type(&column.kind, found), true)),
            is_missing: false,
        },
        None => missing(column, parent),
    }
}

/// Returns a column that the group `parent` lacks, under a name that it does not have.
fn missing(column: &Column, parent: &Type) -> InFile {
    let taken = |name: &str| children(parent).iter().any(|child| child.name() == name);
    let mut name = column.name.clone();
    while taken(&name) {
        name.push('_');
    }
    let field = Field::new(name, column.kind.arrow(Names::Now), true);
    InFile { field: Arc::new(field), is_missing: true }
}

/// Returns the type of a column with the names of the Parquet type `node`.
fn data_type(kind: &Kind, node: &Type) -> DataType {
    let inner = |column: &Column, node: &Type| {
        Arc::new(Field::new(node.name(), nested(data_type(&column.kind, node)), column.nullable))
    };
    let repeated = children(node).first();
    match kind {
        Kind::Primitive(primitive) => primitive.clone(),
        Kind::Struct(columns) => {
            let field = |column: &Column| {
                let found = field(column, node).field;
                let data_type = nested(found.data_type().clone());
                Arc::new(found.as_ref().clone().with_data_type(data_type))
            };
            DataType::Struct(columns.iter().map(field).collect())
        }
        Kind::List(element) => match repeated.and_then(|group| children(group).first()) {
            Some(node) => DataType::List(inner(element, node)),
            None => kind.arrow(Names::Now),
        },
        Kind::Map(key, value) => match repeated.map(|group| children(group)) {
            Some([key_node, value_node]) => map(inner(key, key_node), inner(value, value_node)),
            _ => kind.arrow(Names::Now),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::parquet::schema::parser::parse_message_type;

    fn column(name: &str, id: i32, kind: Kind) -> Column {
        Column { name: name.to_string(), in_files: name.to_string(), id: Some(id), nullable: true, kind }
    }

    fn int() -> Kind {
        Kind::Primitive(DataType::Int32)
    }

    #[test]
    fn columns_are_found_by_id_whatever_their_names() {
        let file = parse_message_type(
            "message t { optional int32 a = 1; optional int32 c = 2; optional group s = 3 { optional int32 x = 4; } \
             optional group l (LIST) = 5 { repeated group list { optional int32 element = 6; } } }",
        )
        .unwrap();
        let found = |c: &Column| field(c, &file);
        let renamed = found(&column("b", 1, int()));
        assert_eq!((renamed.field.name().as_str(), renamed.is_missing), ("a", false));
        // The file's `c` is another column, which was dropped.
        let added = found(&column("c", 9, int()));
        assert_eq!((added.field.name().as_str(), added.is_missing), ("c_", true));
        let nested = Kind::Struct(vec![column("y", 4, int()), column("x", 8, int())]);
        let nested = found(&column("s", 3, nested));
        let DataType::Struct(fields) = nested.field.data_type() else { panic!("{nested:?}") };
        assert_eq!(fields.iter().map(|f| f.name().as_str()).collect::<Vec<_>>(), ["x", "x_"]);
        let list = found(&column("l", 5, Kind::List(Box::new(column("element", 6, int())))));
        assert!(matches!(list.field.data_type(), DataType::List(e) if e.name() == "element"), "{list:?}");
    }
}
