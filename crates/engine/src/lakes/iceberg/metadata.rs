//! The metadata file of an Iceberg table.

use std::collections::HashMap;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use serde::Deserialize;
use serde_json::Value;

use crate::lakes::column::{Column, Kind};

/// Maximum depth of nested types.
const MAX_DEPTH: usize = 64;
/// Property with the names of columns in files that have no field ids.
const NAME_MAPPING: &str = "schema.name-mapping.default";

/// A table's metadata. Fields that do not matter to a reader are left out.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct Metadata {
    pub format_version: i64,
    pub location: String,
    current_schema_id: Option<i64>,
    schemas: Vec<Schema>,
    /// The only schema in version 1.
    schema: Option<Schema>,
    partition_specs: Vec<Spec>,
    /// The only partitioning in version 1.
    partition_spec: Option<Vec<PartitionField>>,
    current_snapshot_id: Option<i64>,
    snapshots: Vec<Snapshot>,
    properties: HashMap<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Schema {
    schema_id: i64,
    fields: Vec<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Spec {
    spec_id: i64,
    fields: Vec<PartitionField>,
}

/// A value by which files are divided.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct PartitionField {
    pub source_id: i32,
    pub transform: String,
}

/// The files of a table at one time.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct Snapshot {
    pub snapshot_id: i64,
    pub manifest_list: Option<String>,
    /// Manifests without a list, in version 1.
    pub manifests: Option<Vec<String>>,
    schema_id: Option<i64>,
}

impl Metadata {
    /// Returns the snapshot of an id, or the current one; `None` for a table without rows.
    ///
    /// # Errors
    /// Returns an error if the snapshot does not exist.
    pub(super) fn snapshot(&self, id: Option<i64>) -> Result<Option<&Snapshot>, String> {
        let current = self.current_snapshot_id.filter(|id| *id >= 0);
        let Some(wanted) = id.or(current) else { return Ok(None) };
        let found = self.snapshots.iter().find(|snapshot| snapshot.snapshot_id == wanted);
        found.map(Some).ok_or_else(|| format!("it has no snapshot {wanted}"))
    }

    /// Returns the columns of the table, or of a snapshot that was asked for.
    ///
    /// # Errors
    /// Returns the cause if the schema is missing, damaged, or has an unknown type.
    pub(super) fn columns(&self, snapshot: Option<&Snapshot>) -> Result<Vec<Column>, String> {
        let id = snapshot.and_then(|snapshot| snapshot.schema_id).or(self.current_schema_id);
        let found = match id {
            Some(id) => self.schemas.iter().find(|schema| schema.schema_id == id),
            None => None,
        };
        let schema = found.or(self.schema.as_ref()).ok_or("it has no schema")?;
        schema.fields.iter().map(|field| column(field, 0)).collect()
    }

    /// Returns the partitioning of an id.
    pub(super) fn spec(&self, id: i64) -> Option<&[PartitionField]> {
        let found = self.partition_specs.iter().find(|spec| spec.spec_id == id);
        found.map(|spec| spec.fields.as_slice()).or(self.partition_spec.as_deref())
    }

    /// Returns the names of top-level columns in files without field ids.
    pub(super) fn names(&self) -> HashMap<i32, Vec<String>> {
        let mapping = self.properties.get(NAME_MAPPING).and_then(Value::as_str);
        let mapping = mapping.and_then(|json| serde_json::from_str::<Vec<Value>>(json).ok());
        let entry = |entry: Value| {
            let id = i32::try_from(entry.get("field-id")?.as_i64()?).ok()?;
            let names = entry.get("names")?.as_array()?.iter();
            Some((id, names.filter_map(|name| name.as_str().map(str::to_string)).collect()))
        };
        mapping.unwrap_or_default().into_iter().filter_map(entry).collect()
    }
}

fn id(json: &Value, key: &str) -> Result<i32, String> {
    let id = json.get(key).and_then(Value::as_i64).and_then(|id| i32::try_from(id).ok());
    id.ok_or_else(|| format!("a field has no valid {key}"))
}

fn column(json: &Value, depth: usize) -> Result<Column, String> {
    let name = json.get("name").and_then(Value::as_str).ok_or("a column has no name")?;
    let data_type = json.get("type").ok_or_else(|| format!("column {name} has no type"))?;
    let required = json.get("required").and_then(Value::as_bool).unwrap_or(false);
    let kind = kind(data_type, depth + 1).map_err(|why| format!("column {name}: {why}"))?;
    Ok(named(name, id(json, "id")?, !required, kind))
}

fn named(name: &str, id: i32, nullable: bool, kind: Kind) -> Column {
    Column { name: name.to_string(), in_files: name.to_string(), id: Some(id), nullable, kind }
}

fn kind(json: &Value, depth: usize) -> Result<Kind, String> {
    if depth > MAX_DEPTH {
        return Err(format!("types are nested more than {MAX_DEPTH} deep"));
    }
    if let Some(name) = json.as_str() {
        return primitive(name).map(Kind::Primitive).ok_or_else(|| format!("unknown type {name}"));
    }
    let part = |key: &str| kind(json.get(key).unwrap_or(&Value::Null), depth + 1);
    let flag = |key: &str| json.get(key).and_then(Value::as_bool).unwrap_or(false);
    match json.get("type").and_then(Value::as_str) {
        Some("struct") => {
            let fields = json.get("fields").and_then(Value::as_array).ok_or("a struct has no fields")?;
            fields.iter().map(|field| column(field, depth)).collect::<Result<_, _>>().map(Kind::Struct)
        }
        Some("list") => {
            let element =
                named("element", id(json, "element-id")?, !flag("element-required"), part("element")?);
            Ok(Kind::List(Box::new(element)))
        }
        Some("map") => Ok(Kind::Map(
            Box::new(named("key", id(json, "key-id")?, false, part("key")?)),
            Box::new(named("value", id(json, "value-id")?, !flag("value-required"), part("value")?)),
        )),
        _ => Err(format!("unknown type {json}")),
    }
}

fn primitive(name: &str) -> Option<DataType> {
    let micros = TimeUnit::Microsecond;
    Some(match name {
        "boolean" => DataType::Boolean,
        "int" => DataType::Int32,
        "long" => DataType::Int64,
        "float" => DataType::Float32,
        "double" => DataType::Float64,
        "date" => DataType::Date32,
        "time" => DataType::Time64(micros),
        "timestamp" => DataType::Timestamp(micros, None),
        "timestamptz" => DataType::Timestamp(micros, Some("UTC".into())),
        "string" => DataType::Utf8View,
        "uuid" => DataType::FixedSizeBinary(16),
        "binary" => DataType::BinaryView,
        other => {
            if let Some(size) = other.strip_prefix("fixed[") {
                return Some(DataType::FixedSizeBinary(size.strip_suffix(']')?.parse().ok()?));
            }
            let (precision, scale) = other.strip_prefix("decimal(")?.strip_suffix(')')?.split_once(',')?;
            let (precision, scale) = (precision.trim().parse().ok()?, scale.trim().parse().ok()?);
            return (1..=38).contains(&precision).then_some(DataType::Decimal128(precision, scale));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_and_snapshot_of_both_versions() {
        let fields = r#"[{"id":1,"name":"a","required":true,"type":"decimal(9, 2)"},
            {"id":2,"name":"l","required":false,"type":{"type":"list","element-id":3,"element-required":false,"element":"string"}}]"#;
        let one = format!(
            r#"{{"format-version":1,"location":"x","schema":{{"type":"struct","fields":{fields}}},
            "partition-spec":[{{"name":"a","transform":"identity","source-id":1,"field-id":1000}}],"current-snapshot-id":-1}}"#
        );
        let one: Metadata = serde_json::from_str(&one).unwrap();
        assert_eq!(one.columns(None).unwrap()[0].kind, Kind::Primitive(DataType::Decimal128(9, 2)));
        assert!(one.snapshot(None).unwrap().is_none() && one.snapshot(Some(7)).is_err());
        assert_eq!(one.spec(0).unwrap()[0].transform, "identity");
        let two = format!(
            r#"{{"format-version":2,"location":"x","schemas":[{{"schema-id":0,"fields":[]}},{{"schema-id":1,"fields":{fields}}}],
            "current-schema-id":1,"partition-specs":[{{"spec-id":0,"fields":[]}}],"current-snapshot-id":7,
            "snapshots":[{{"snapshot-id":7,"manifest-list":"m","schema-id":0}}],
            "properties":{{"schema.name-mapping.default":"[{{\"field-id\":1,\"names\":[\"a\",\"old\"]}}]"}}}}"#
        );
        let two: Metadata = serde_json::from_str(&two).unwrap();
        let snapshot = two.snapshot(None).unwrap().unwrap();
        assert_eq!((two.columns(None).unwrap().len(), two.columns(Some(snapshot)).unwrap().len()), (2, 0));
        assert_eq!(two.names().get(&1).unwrap(), &["a", "old"]);
    }

    #[test]
    fn unknown_types_are_refused_by_name() {
        for name in ["variant", "timestamp_ns", "geometry", "decimal(50,1)"] {
            assert_eq!(kind(&Value::from(name), 0).unwrap_err(), format!("unknown type {name}"));
        }
    }
}
