//! Wrappers of DataFusion's file formats and table factories, for known shortcomings.
//!
//! - Arrow IPC: DataFusion expects the first message at byte 8, so it finds no schema in a file
//!   whose messages are aligned to 64 bytes, as arrow-rs (and so `COPY … TO`) writes them.
//! - `CREATE EXTERNAL TABLE` without columns over missing files creates a table without columns;
//!   here it fails.
//! - A Delta or Iceberg table is read as such, never as raw files.
//! - The Arrow and Parquet libraries panic on some damaged files; here those are errors that name the file.

use std::collections::HashMap;
use std::fmt::{Debug, Formatter};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::ipc::convert::fb_to_schema;
use datafusion::arrow::ipc::reader::read_footer_length;
use datafusion::arrow::ipc::root_as_footer;
use datafusion::catalog::{Session, TableProvider, TableProviderFactory};
use datafusion::common::stats::Precision;
use datafusion::common::{DataFusionError, GetExt, Result, Statistics};
use datafusion::datasource::file_format::arrow::ArrowFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::{FileFormat, FileFormatFactory, FileMeta};
use datafusion::datasource::physical_plan::{FileScanConfig, FileSinkConfig, FileSource};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::logical_expr::CreateExternalTable;
use datafusion::physical_expr::{LexOrdering, LexRequirement};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use pellucid_trace::guard::{guarded, guarded_future};

use crate::scan::damaged;
use crate::scan::ipc::{MAGIC, TAIL_BYTES};
use crate::tables;

/// DataFusion's names of the formats.
const FORMATS: [&str; 4] = ["arrow", "csv", "json", "parquet"];
/// Formats of tables that have a log.
const LAKES: [&str; 2] = ["DELTA", "ICEBERG"];

/// Wraps DataFusion's format and table factories.
pub(crate) fn register(context: &SessionContext) -> Result<()> {
    let state = context.state_ref();
    let mut state = state.write();
    for name in FORMATS {
        if let Some(factory) = state.get_file_format_factory(name) {
            state.register_file_format(Arc::new(CheckedFactory(factory)), true)?;
        }
    }
    let factories = state.table_factories_mut();
    if let Some(parquet) = factories.get("PARQUET").cloned() {
        factories.extend(LAKES.map(|lake| (lake.to_string(), Arc::clone(&parquet))));
    }
    for factory in factories.values_mut() {
        *factory = Arc::new(ExternalTables(Arc::clone(factory)));
    }
    Ok(())
}

/// A table factory for `CREATE EXTERNAL TABLE` that checks that the files exist.
#[derive(Debug)]
struct ExternalTables(Arc<dyn TableProviderFactory>);

#[async_trait]
impl TableProviderFactory for ExternalTables {
    async fn create(&self, state: &dyn Session, cmd: &CreateExternalTable) -> Result<Arc<dyn TableProvider>> {
        if let Some(table) = external_lake(state, cmd).await? {
            return Ok(table);
        }
        // A table with declared columns may have no files yet.
        if cmd.schema.fields().is_empty() {
            for place in &cmd.locations {
                tables::check(state, place).await?;
            }
        }
        let places = cmd.locations.join(", ");
        caught(&places, self.0.create(state, cmd)).await
    }
}

/// Opens the Delta or Iceberg table that `CREATE EXTERNAL TABLE` names, whatever format it states for the files.
async fn external_lake(
    state: &dyn Session,
    cmd: &CreateExternalTable,
) -> Result<Option<Arc<dyn TableProvider>>> {
    let is_lake = LAKES.contains(&cmd.file_type.as_str());
    for place in &cmd.locations {
        let Some(table) = tables::lake::at(state, place).await? else { continue };
        let fits = is_lake || cmd.file_type == "PARQUET";
        let plain = cmd.schema.fields().is_empty()
            && cmd.table_partition_cols.is_empty()
            && cmd.options.is_empty()
            && cmd.order_exprs.is_empty();
        if !fits || !plain || cmd.locations.len() > 1 {
            return Err(DataFusionError::Plan(format!(
                "cannot create the table {}: {place} is a Delta or Iceberg table, which has its own columns and format; \
                 write CREATE EXTERNAL TABLE {} STORED AS PARQUET LOCATION '{place}' alone",
                cmd.name, cmd.name
            )));
        }
        return Ok(Some(table));
    }
    if is_lake {
        return Err(DataFusionError::Plan(format!(
            "cannot create the table {}: {} has no Delta or Iceberg table; check the path",
            cmd.name,
            cmd.locations.join(", ")
        )));
    }
    Ok(None)
}

/// Waits for a reader of the files at `place`, and converts a panic to an error that names them.
pub(crate) async fn caught<T>(place: &str, read: impl Future<Output = Result<T>>) -> Result<T> {
    guarded_future(read).await.unwrap_or_else(|_| Err(damaged(place, "its content is malformed")))
}

/// Removes bounds that contradict each other, on which DataFusion fails with an internal error.
fn consistent(mut statistics: Statistics) -> Statistics {
    for column in &mut statistics.column_statistics {
        let bounds = column.min_value.get_value().zip(column.max_value.get_value());
        if bounds.is_some_and(|(min, max)| min > max) {
            (column.min_value, column.max_value) = (Precision::Absent, Precision::Absent);
        }
    }
    statistics
}

/// Makes [`Checked`] formats.
struct CheckedFactory(Arc<dyn FileFormatFactory>);

/// Shown in the plans of `COPY`.
impl Debug for CheckedFactory {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl GetExt for CheckedFactory {
    fn get_ext(&self) -> String {
        self.0.get_ext()
    }
}

impl FileFormatFactory for CheckedFactory {
    fn create(&self, state: &dyn Session, options: &HashMap<String, String>) -> Result<Arc<dyn FileFormat>> {
        Ok(Arc::new(Checked(self.0.create(state, options)?)))
    }

    fn default(&self) -> Arc<dyn FileFormat> {
        Arc::new(Checked(self.0.default()))
    }
}

/// A format whose panics over damaged files are errors, and which reads the schema of an Arrow IPC file here.
#[derive(Debug)]
struct Checked(Arc<dyn FileFormat>);

impl Checked {
    async fn schema(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        object: &ObjectMeta,
    ) -> Result<Schema> {
        if self.0.is::<ArrowFormat>()
            && let Some(schema) = footer_schema(store, object).await?
        {
            return Ok(schema);
        }
        let inferred = self.0.infer_schema(state, store, std::slice::from_ref(object));
        Ok(Arc::unwrap_or_clone(caught(&shown(object), inferred).await?))
    }
}

/// Returns a file's path within its store, for messages.
fn shown(object: &ObjectMeta) -> String {
    format!("/{}", object.location)
}

#[async_trait]
impl FileFormat for Checked {
    async fn infer_schema(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        objects: &[ObjectMeta],
    ) -> Result<SchemaRef> {
        if self.0.is::<ArrowFormat>() || objects.len() == 1 {
            let mut schemas = Vec::new();
            for object in objects {
                schemas.push(self.schema(state, store, object).await?);
            }
            return Ok(Arc::new(Schema::try_merge(schemas)?));
        }
        // After an error, the caller tries one after the other.
        let place = format!("one of {} files", objects.len());
        caught(&place, self.0.infer_schema(state, store, objects)).await
    }

    async fn infer_stats(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<Statistics> {
        caught(&shown(object), self.0.infer_stats(state, store, schema, object)).await.map(consistent)
    }

    async fn infer_ordering(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<Option<LexOrdering>> {
        caught(&shown(object), self.0.infer_ordering(state, store, schema, object)).await
    }

    async fn infer_stats_and_ordering(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<FileMeta> {
        let read = self.0.infer_stats_and_ordering(state, store, schema, object);
        let mut about = caught(&shown(object), read).await?;
        about.statistics = consistent(about.statistics);
        Ok(about)
    }

    fn get_ext(&self) -> String {
        self.0.get_ext()
    }

    fn get_ext_with_compression(&self, compression: &FileCompressionType) -> Result<String> {
        self.0.get_ext_with_compression(compression)
    }

    fn compression_type(&self) -> Option<FileCompressionType> {
        self.0.compression_type()
    }

    async fn create_physical_plan(
        &self,
        state: &dyn Session,
        scan: FileScanConfig,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.0.create_physical_plan(state, scan).await
    }

    async fn create_writer_physical_plan(
        &self,
        input: Arc<dyn ExecutionPlan>,
        state: &dyn Session,
        sink: FileSinkConfig,
        order: Option<LexRequirement>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.0.create_writer_physical_plan(input, state, sink, order).await
    }

    fn file_source(&self, schema: TableSchema) -> Arc<dyn FileSource> {
        self.0.file_source(schema)
    }
}

/// Reads the schema from the footer of a file; `None` for a stream.
async fn footer_schema(store: &Arc<dyn ObjectStore>, file: &ObjectMeta) -> Result<Option<Schema>> {
    let (place, shown) = (&file.location, shown(file));
    if file.size < TAIL_BYTES {
        return Ok(None);
    }
    let start = store.get_range(place, 0..MAGIC.len() as u64).await?;
    if start.starts_with(b"FEA1") {
        let message = format!(
            "cannot read {shown}: it is a file of Feather version 1; write it as version 2, which is Arrow IPC"
        );
        return Err(DataFusionError::Execution(message));
    }
    if start != MAGIC {
        return Ok(None);
    }
    let corrupt = |why: String| {
        DataFusionError::Execution(format!(
            "{shown}: {why}; the file is truncated or corrupt, write it again"
        ))
    };
    let tail = store.get_range(place, file.size - TAIL_BYTES..file.size).await?;
    let tail =
        tail.as_ref().try_into().map_err(|_| corrupt("cannot read the end of the file".to_string()))?;
    let length = read_footer_length(tail).map_err(|e| corrupt(e.to_string()))? as u64;
    let end = file.size - TAIL_BYTES;
    let start =
        end.checked_sub(length).ok_or_else(|| corrupt("the footer is longer than the file".to_string()))?;
    let footer = store.get_range(place, start..end).await?;
    let footer = root_as_footer(&footer).map_err(|e| corrupt(format!("cannot read the footer: {e}")))?;
    let schema = footer.schema().ok_or_else(|| corrupt("the footer has no schema".to_string()))?;
    // It panics on a schema with unknown types.
    let schema =
        guarded(|| Ok(fb_to_schema(schema))).map_err(|_| corrupt("its schema is malformed".to_string()))?;
    Ok(Some(schema))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use datafusion::arrow::ipc::MetadataVersion;
    use datafusion::arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
    use object_store::memory::InMemory;
    use object_store::path::Path;

    async fn inferred(bytes: Vec<u8>) -> Result<SchemaRef> {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let place = Path::from("a.arrow");
        store.put(&place, bytes.into()).await?;
        let files = [store.head(&place).await?];
        Checked(Arc::new(ArrowFormat)).infer_schema(&SessionContext::new().state(), &store, &files).await
    }

    fn batch() -> RecordBatch {
        RecordBatch::try_from_iter([("x", Arc::new(Int64Array::from(vec![1])) as ArrayRef)]).unwrap()
    }

    fn file(alignment: usize) -> Vec<u8> {
        let options = IpcWriteOptions::try_new(alignment, false, MetadataVersion::V5).unwrap();
        let mut bytes = Vec::new();
        let mut writer = FileWriter::try_new_with_options(&mut bytes, &batch().schema(), options).unwrap();
        writer.write(&batch()).unwrap();
        writer.finish().unwrap();
        drop(writer);
        bytes
    }

    #[tokio::test]
    async fn schema_is_inferred_for_any_alignment_and_for_streams() {
        let mut stream = Vec::new();
        let mut writer = StreamWriter::try_new(&mut stream, &batch().schema()).unwrap();
        writer.write(&batch()).unwrap();
        writer.finish().unwrap();
        drop(writer);
        for bytes in [file(8), file(64), stream] {
            assert_eq!(inferred(bytes).await.unwrap().field(0).name(), "x");
        }
    }

    #[tokio::test]
    async fn panic_of_a_library_is_an_error_that_names_the_file() {
        async fn panics() -> Result<()> {
            panic!("not implemented: Type NONE not supported")
        }
        let error = caught("/a.parquet", panics()).await.unwrap_err().to_string();
        assert!(error.contains("cannot read /a.parquet: the file is damaged"), "{error}");
    }

    #[test]
    fn bounds_that_contradict_each_other_are_removed() {
        use datafusion::common::{ColumnStatistics, ScalarValue};
        let column = |min: i64, max: i64| ColumnStatistics {
            min_value: Precision::Exact(ScalarValue::Int64(Some(min))),
            max_value: Precision::Exact(ScalarValue::Int64(Some(max))),
            ..ColumnStatistics::new_unknown()
        };
        let schema = Schema::empty();
        let mut statistics = Statistics::new_unknown(&schema);
        statistics.column_statistics = vec![column(1, 5), column(9, 5)];
        let columns = consistent(statistics).column_statistics;
        assert_eq!(columns[0], column(1, 5));
        assert_eq!((&columns[1].min_value, &columns[1].max_value), (&Precision::Absent, &Precision::Absent));
    }

    #[tokio::test]
    async fn truncated_file_error_names_the_file() {
        let whole = file(64);
        let error = inferred(whole[..whole.len() - 8].to_vec()).await.unwrap_err().to_string();
        assert!(error.contains("/a.arrow") && error.contains("truncated"), "{error}");
    }
}
