//! The metadata of Parquet files as tables: `parquet_metadata`, `parquet_schema`, `parquet_file_metadata` and
//! `parquet_kv_metadata`, with DuckDB's columns.
//!
//! The Parquet library does not keep everything that a footer may have. `stats_min` and `stats_max` repeat
//! `stats_min_value` and `stats_max_value`, whether the file has the deprecated fields or not; the key-value metadata of
//! columns are empty; a logical type gives the converted type that it stands for; a bound that is not known to be exact has
//! NULL in `min_is_exact`; and values of geometries are NULL.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryBuilder, BooleanArray, FixedSizeBinaryArray, Int64Array,
    ListBuilder, MapBuilder, MapFieldNames, RecordBatch, StringArray, StringBuilder, UInt64Array,
    new_null_array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, TimeUnit};
use datafusion::common::Result;
use datafusion::execution::context::SessionState;
use datafusion::parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use datafusion::parquet::arrow::parquet_to_arrow_schema;
use datafusion::parquet::basic::{ColumnOrder, ConvertedType, LogicalType, Repetition, TimeUnit as Unit};
use datafusion::parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use datafusion::parquet::file::statistics::Statistics;
use datafusion::parquet::schema::types::{SchemaDescriptor, Type, TypePtr};
use object_store::{ObjectMeta, ObjectStoreExt};

use crate::scan::footer::footer;
use crate::tables::calls::options::Function;
use crate::tables::found::Found;
use crate::types::cast::to_text;
use crate::types::names::name;

/// Columns of a table.
type Columns = Vec<(&'static str, ArrayRef)>;

/// A file with its metadata.
struct File {
    name: String,
    object: ObjectMeta,
    meta: Arc<ParquetMetaData>,
}

/// Returns the rows of a function over files.
///
/// # Errors
/// Returns an error if a file cannot be read.
pub(super) async fn rows(state: &SessionState, function: Function, found: &Found) -> Result<RecordBatch> {
    let mut files = Vec::new();
    for object in &found.files {
        let cache = state.runtime_env().cache_manager.get_file_metadata_cache();
        let meta = footer(found.store.as_ref(), object, cache).await?;
        files.push(File { name: found.name(object).to_string(), object: object.clone(), meta });
    }
    let columns = match function {
        Function::ParquetSchema => schema(&files)?,
        Function::ParquetFileMetadata => file_metadata(found, &files).await?,
        Function::ParquetKvMetadata => key_values(&files),
        _ => metadata(&files)?,
    };
    Ok(RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )?)
}

fn texts(values: impl Iterator<Item = Option<String>>) -> ArrayRef {
    Arc::new(values.collect::<StringArray>())
}

fn numbers(values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(values.collect::<Int64Array>())
}

/// The part of a column in a row group.
struct Chunk<'a> {
    file: &'a str,
    row_group: i64,
    group: &'a RowGroupMetaData,
    column: i64,
    meta: &'a ColumnChunkMetaData,
    min: Option<String>,
    max: Option<String>,
}

impl Chunk<'_> {
    fn statistics<T>(&self, value: impl Fn(&Statistics) -> Option<T>) -> Option<T> {
        self.meta.statistics().and_then(value)
    }
}

/// Returns the row groups and columns of files.
fn metadata(files: &[File]) -> Result<Columns> {
    let mut chunks: Vec<Chunk> = Vec::new();
    for file in files {
        let columns = file.meta.file_metadata().schema_descr().num_columns();
        let bounds = (0..columns).map(|column| bounds(&file.meta, column)).collect::<Result<Vec<_>>>()?;
        for (row_group, group) in file.meta.row_groups().iter().enumerate() {
            chunks.extend(group.columns().iter().enumerate().map(|(column, meta)| Chunk {
                file: &file.name,
                row_group: row_group as i64,
                group,
                column: column as i64,
                meta,
                min: bounds[column][0][row_group].clone(),
                max: bounds[column][1][row_group].clone(),
            }));
        }
    }
    let text = |value: &dyn Fn(&Chunk) -> Option<String>| texts(chunks.iter().map(value));
    let number = |value: &dyn Fn(&Chunk) -> Option<i64>| numbers(chunks.iter().map(value));
    let flag = |value: &dyn Fn(&Chunk) -> Option<bool>| {
        Arc::new(chunks.iter().map(value).collect::<BooleanArray>()) as ArrayRef
    };
    let count = |value: Option<u64>| value.map(|value| value as i64);
    let joined = |values: Vec<String>| Some(values.join(", "));
    let names = MapFieldNames { entry: "entries".into(), key: "key".into(), value: "value".into() };
    let mut pairs = MapBuilder::new(Some(names), BinaryBuilder::new(), BinaryBuilder::new());
    chunks.iter().try_for_each(|_| pairs.append(true))?;
    let sides = ["xmin", "xmax", "ymin", "ymax", "zmin", "zmax", "mmin", "mmax"];
    let sides = sides.map(|side| Field::new(side, DataType::Float64, true)).to_vec();
    let nothing = |data_type: DataType| new_null_array(&data_type, chunks.len());
    Ok(vec![
        ("file_name", text(&|c| Some(c.file.to_string()))),
        ("row_group_id", number(&|c| Some(c.row_group))),
        ("row_group_num_rows", number(&|c| Some(c.group.num_rows()))),
        ("row_group_num_columns", number(&|c| Some(c.group.num_columns() as i64))),
        ("row_group_bytes", number(&|c| Some(c.group.total_byte_size()))),
        ("column_id", number(&|c| Some(c.column))),
        ("file_offset", number(&|c| Some(c.meta.file_offset()))),
        ("num_values", number(&|c| Some(c.meta.num_values()))),
        ("path_in_schema", text(&|c| joined(c.meta.column_path().parts().to_vec()))),
        ("type", text(&|c| Some(c.meta.column_type().to_string()))),
        ("stats_min", text(&|c| c.min.clone())),
        ("stats_max", text(&|c| c.max.clone())),
        ("stats_null_count", number(&|c| count(c.statistics(Statistics::null_count_opt)))),
        ("stats_distinct_count", number(&|c| count(c.statistics(Statistics::distinct_count_opt)))),
        ("stats_min_value", text(&|c| c.min.clone())),
        ("stats_max_value", text(&|c| c.max.clone())),
        ("compression", text(&|c| Some(format!("{:?}", c.meta.compression_codec())))),
        ("encodings", text(&|c| joined(c.meta.encodings().map(|e| e.to_string()).collect()))),
        ("index_page_offset", number(&|c| c.meta.index_page_offset())),
        ("dictionary_page_offset", number(&|c| c.meta.dictionary_page_offset())),
        ("data_page_offset", number(&|c| Some(c.meta.data_page_offset()))),
        ("total_compressed_size", number(&|c| Some(c.meta.compressed_size()))),
        ("total_uncompressed_size", number(&|c| Some(c.meta.uncompressed_size()))),
        ("key_value_metadata", Arc::new(pairs.finish())),
        ("bloom_filter_offset", number(&|c| c.meta.bloom_filter_offset())),
        ("bloom_filter_length", number(&|c| c.meta.bloom_filter_length().map(i64::from))),
        ("min_is_exact", flag(&|c| c.statistics(|s| (c.min.is_some() && s.min_is_exact()).then_some(true)))),
        ("max_is_exact", flag(&|c| c.statistics(|s| (c.max.is_some() && s.max_is_exact()).then_some(true)))),
        ("row_group_compressed_bytes", number(&|c| Some(c.group.compressed_size()))),
        ("geo_bbox", nothing(DataType::Struct(sides.into()))),
        ("geo_types", nothing(DataType::new_list(DataType::Utf8, true))),
    ])
}

/// Returns the schema that has only one column, which is not repeated.
fn alone(leaf: &TypePtr) -> Result<SchemaDescriptor> {
    let mut leaf = Arc::clone(leaf);
    if let Type::PrimitiveType { basic_info, physical_type, type_length, scale, precision } = leaf.as_ref()
        && basic_info.has_repetition()
        && basic_info.repetition() == Repetition::REPEATED
    {
        let single = Type::primitive_type_builder(basic_info.name(), *physical_type)
            .with_repetition(Repetition::OPTIONAL)
            .with_converted_type(basic_info.converted_type())
            .with_logical_type(basic_info.logical_type_ref().cloned())
            .with_length(*type_length)
            .with_precision(*precision)
            .with_scale(*scale);
        leaf = Arc::new(single.build()?);
    }
    Ok(SchemaDescriptor::new(Arc::new(Type::group_type_builder("schema").with_fields(vec![leaf]).build()?)))
}

/// Returns the lower and the upper bounds of a column, by row group, as text.
fn bounds(meta: &ParquetMetaData, column: usize) -> Result<[Vec<Option<String>>; 2]> {
    let leaf = meta.file_metadata().schema_descr().column(column).self_type_ptr();
    let schema = Arc::new(alone(&leaf)?);
    let arrow = parquet_to_arrow_schema(&schema, None)?;
    let converter = StatisticsConverter::try_new(leaf.name(), &arrow, &schema)?;
    let group = |group: &RowGroupMetaData| {
        RowGroupMetaData::builder(Arc::clone(&schema))
            .set_num_rows(group.num_rows())
            .set_column_metadata(vec![group.column(column).clone()])
            .build()
    };
    let groups = meta.row_groups().iter().map(group).collect::<Result<Vec<_>, _>>()?;
    let is_uuid = matches!(leaf.get_basic_info().logical_type_ref(), Some(LogicalType::Uuid));
    let text = |array: ArrayRef| -> Result<Vec<Option<String>>> {
        let texts = match array.as_any().downcast_ref::<FixedSizeBinaryArray>() {
            Some(bytes) if is_uuid => return Ok(bytes.iter().map(|bytes| bytes.map(uuid)).collect()),
            Some(_) => to_text(&cast(&array, &DataType::Binary)?)?,
            None => to_text(&array)?,
        };
        Ok(texts.as_string_view().iter().map(|text| text.map(str::to_string)).collect())
    };
    Ok([text(converter.row_group_mins(&groups)?)?, text(converter.row_group_maxes(&groups)?)?])
}

fn uuid(bytes: &[u8]) -> String {
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default().concat();
    [part(0, 4), part(4, 6), part(6, 8), part(8, 10), part(10, 16)].join("-")
}

/// An element of a schema.
struct Element<'a> {
    file: &'a str,
    element: &'a TypePtr,
    number: i64,
}

impl<'a> Element<'a> {
    /// Adds an element and those below it.
    fn add(all: &mut Vec<Self>, file: &'a str, element: &'a TypePtr, number: &mut i64) {
        all.push(Self { file, element, number: *number });
        *number += 1;
        if element.is_group() {
            element.get_fields().iter().for_each(|field| Self::add(all, file, field, number));
        }
    }

    fn converted_type(&self) -> Option<ConvertedType> {
        let converted = self.element.get_basic_info().converted_type();
        (converted != ConvertedType::NONE).then_some(converted)
    }

    /// Returns a property of a decimal column.
    fn decimal(&self, scale_wanted: bool) -> Option<i64> {
        let Type::PrimitiveType { scale, precision, .. } = self.element.as_ref() else { return None };
        let logical = self.element.get_basic_info().logical_type_ref();
        let is_decimal = self.converted_type() == Some(ConvertedType::DECIMAL)
            || matches!(logical, Some(LogicalType::Decimal(_)));
        is_decimal.then_some(i64::from(if scale_wanted { *scale } else { *precision }))
    }

    fn type_length(&self) -> Option<String> {
        match self.element.as_ref() {
            Type::PrimitiveType { type_length, .. } if *type_length > 0 => Some(type_length.to_string()),
            _ => None,
        }
    }

    /// Returns the name of the type of its values.
    fn value_type(&self) -> Result<Option<String>> {
        if !self.element.is_primitive() {
            return Ok(None);
        }
        let arrow = parquet_to_arrow_schema(&alone(self.element)?, None)?;
        let logical = self.element.get_basic_info().logical_type_ref();
        Ok(Some(match (logical, arrow.field(0).data_type()) {
            (Some(LogicalType::Uuid), _) => "UUID".to_string(),
            (Some(LogicalType::Json), _) => "JSON".to_string(),
            (_, DataType::Null) => "\"NULL\"".to_string(),
            (_, DataType::Timestamp(TimeUnit::Millisecond, None)) => "TIMESTAMP".to_string(),
            (_, data_type) => name(data_type),
        }))
    }
}

/// Returns the elements of the schemas of files.
fn schema(files: &[File]) -> Result<Columns> {
    let roots: Vec<TypePtr> =
        files.iter().map(|file| file.meta.file_metadata().schema_descr().root_schema_ptr()).collect();
    let mut elements = Vec::new();
    for (file, root) in files.iter().zip(&roots) {
        Element::add(&mut elements, &file.name, root, &mut 0);
    }
    let types = elements.iter().map(Element::value_type).collect::<Result<Vec<_>>>()?;
    let text = |value: &dyn Fn(&Element) -> Option<String>| texts(elements.iter().map(value));
    let number = |value: &dyn Fn(&Element) -> Option<i64>| numbers(elements.iter().map(value));
    let primitive = |e: &Element| e.element.is_primitive().then(|| e.element.get_physical_type().to_string());
    let repetition = |e: &Element| {
        let info = e.element.get_basic_info();
        Some(if info.has_repetition() { info.repetition() } else { Repetition::REQUIRED }.to_string())
    };
    let children = |e: &Element| e.element.is_group().then(|| e.element.get_fields().len() as i64);
    let id = |e: &Element| {
        let info = e.element.get_basic_info();
        info.has_id().then(|| i64::from(info.id()))
    };
    Ok(vec![
        ("file_name", text(&|e| Some(e.file.to_string()))),
        ("name", text(&|e| Some(e.element.name().to_string()))),
        ("type", text(&primitive)),
        ("type_length", text(&|e| e.type_length())),
        ("repetition_type", text(&repetition)),
        ("num_children", number(&children)),
        ("converted_type", text(&|e| Some(e.converted_type()?.to_string()))),
        ("scale", number(&|e| e.decimal(true))),
        ("precision", number(&|e| e.decimal(false))),
        ("field_id", number(&id)),
        ("logical_type", text(&|e| Some(logical_type(e.element.get_basic_info().logical_type_ref()?)))),
        ("duckdb_type", texts(types.into_iter())),
        ("column_id", number(&|e| Some(e.number))),
    ])
}

/// Returns a logical type as the format's own tools write it.
fn logical_type(logical: &LogicalType) -> String {
    let timed = |kind: &str, utc: bool, unit: &Unit| {
        let [millis, micros, nanos] = match unit {
            Unit::MILLIS => ["MilliSeconds()", "<null>", "<null>"],
            Unit::MICROS => ["<null>", "MicroSeconds()", "<null>"],
            Unit::NANOS => ["<null>", "<null>", "NanoSeconds()"],
        };
        format!(
            "{kind}Type(isAdjustedToUTC={}, unit=TimeUnit(MILLIS={millis}, MICROS={micros}, NANOS={nanos}))",
            u8::from(utc)
        )
    };
    match logical {
        LogicalType::Decimal(d) => format!("DecimalType(scale={}, precision={})", d.scale, d.precision),
        LogicalType::Time(t) => timed("Time", t.is_adjusted_to_u_t_c, &t.unit),
        LogicalType::Timestamp(t) => timed("Timestamp", t.is_adjusted_to_u_t_c, &t.unit),
        LogicalType::Integer(i) => {
            format!("IntType(bitWidth={}, isSigned={})", i.bit_width, u8::from(i.is_signed))
        }
        LogicalType::Unknown => "NullType()".to_string(),
        LogicalType::Uuid => "UUIDType()".to_string(),
        LogicalType::Variant(_) => "VariantType()".to_string(),
        LogicalType::Geometry(_) => "GeometryType()".to_string(),
        LogicalType::Geography(_) => "GeographyType()".to_string(),
        other => format!("{other:?}Type()"),
    }
}

/// Returns one row for each file.
async fn file_metadata(found: &Found, files: &[File]) -> Result<Columns> {
    let mut footers = Vec::new();
    for file in files {
        let size = file.object.size;
        let tail = found.store.get_range(&file.object.location, size.saturating_sub(8)..size).await?;
        let length = tail.first_chunk::<4>().map(|bytes| u64::from(u32::from_le_bytes(*bytes)));
        footers.push(length);
    }
    let mut orders = ListBuilder::new(StringBuilder::new());
    for file in files {
        let of_file = file.meta.file_metadata().column_orders();
        of_file.into_iter().flatten().for_each(|order| {
            orders.values().append_value(match order {
                ColumnOrder::TYPE_DEFINED_ORDER(_) => "ColumnOrder(TYPE_ORDER=TypeDefinedOrder())",
                _ => "ColumnOrder()",
            });
        });
        orders.append(of_file.is_some());
    }
    let about = || files.iter().map(|file| file.meta.file_metadata());
    let nothing = || texts(files.iter().map(|_| None));
    let sizes: UInt64Array = files.iter().map(|file| Some(file.object.size)).collect();
    Ok(vec![
        ("file_name", texts(files.iter().map(|file| Some(file.name.clone())))),
        ("created_by", texts(about().map(|meta| meta.created_by().map(str::to_string)))),
        ("num_rows", numbers(about().map(|meta| Some(meta.num_rows())))),
        ("num_row_groups", numbers(files.iter().map(|file| Some(file.meta.num_row_groups() as i64)))),
        ("format_version", numbers(about().map(|meta| Some(i64::from(meta.version()))))),
        ("encryption_algorithm", nothing()),
        ("footer_signing_key_metadata", nothing()),
        ("file_size_bytes", Arc::new(sizes)),
        ("footer_size", Arc::new(footers.into_iter().collect::<UInt64Array>())),
        ("column_orders", Arc::new(orders.finish())),
    ])
}

/// Returns the keys and values that the writers of files added.
fn key_values(files: &[File]) -> Columns {
    let mut pairs = Vec::new();
    for file in files {
        let of_file = file.meta.file_metadata().key_value_metadata();
        pairs.extend(of_file.into_iter().flatten().map(|pair| (&file.name, pair)));
    }
    let keys: BinaryArray = pairs.iter().map(|(_, pair)| Some(pair.key.as_bytes())).collect();
    let values: BinaryArray =
        pairs.iter().map(|(_, pair)| pair.value.as_deref().map(str::as_bytes)).collect();
    vec![
        ("file_name", texts(pairs.iter().map(|(name, _)| Some(name.to_string())))),
        ("key", Arc::new(keys)),
        ("value", Arc::new(values)),
    ]
}
