//! The table over files: which files a query reads, and the columns that their paths give.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use datafusion::arrow::array::{Array, BooleanArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue, Statistics, project_schema};
use datafusion::datasource::TableType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::listing::helpers::expr_applicable_for_cols;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::{TableSchema, TableSchemaBuilder};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::parquet::arrow::RowNumber;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};

use crate::sync::lock;
use crate::tables::found::Found;
use crate::tables::hive::Keys;
use crate::tables::open::{self, Reader};
use crate::tables::options::FileOptions;
use crate::tables::text::TextSource;
use crate::types::names;

/// Name of the column with the number of a row in its Parquet file.
const ROW_NUMBER: &str = "file_row_number";

/// Maximum number of files whose statistics are read at once.
const CONCURRENCY: usize = 16;

/// A table over files.
pub(crate) struct FilesTable {
    places: Vec<String>,
    options: FileOptions,
    reader: Reader,
    /// The columns of files, then those of paths, then the row number.
    table_schema: TableSchema,
    keys: Keys,
    /// The columns as queries see them.
    schema: SchemaRef,
    /// Index in the table schema, by column.
    order: Vec<usize>,
    statistics: Mutex<HashMap<Path, (ObjectMeta, Arc<Statistics>)>>,
}

impl fmt::Debug for FilesTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FilesTable({})", self.places.join(", "))
    }
}

impl FilesTable {
    /// Creates the table of files with columns that `reader` reads.
    ///
    /// # Errors
    /// Returns an error if a column of paths has the name of another column, or keys do not fit their types.
    pub(crate) fn new(
        places: Vec<String>,
        options: FileOptions,
        reader: Reader,
        file_schema: &SchemaRef,
        found: &Found,
    ) -> Result<Self> {
        let keys = Keys::find(&found.names(), &options)?;
        let is_key = |name: &str| keys.fields.iter().position(|key| key.name().eq_ignore_ascii_case(name));
        let kept: Vec<usize> = (0..file_schema.fields().len())
            .filter(|at| is_key(file_schema.field(*at).name()).is_none())
            .collect();
        let reader = reader.keep(&kept);
        let file_schema_kept = Arc::new(file_schema.project(&kept)?);
        let count = kept.len();
        let mut of_path = keys.fields.clone();
        let mut order: Vec<usize> = Vec::new();
        let mut in_place = Vec::new();
        for (at, field) in file_schema.fields().iter().enumerate() {
            match is_key(field.name()) {
                Some(key) => {
                    in_place.push(key);
                    order.push(count + key);
                }
                None => order.extend(kept.iter().position(|kept| *kept == at)),
            }
        }
        let mut extra: Vec<&str> = Vec::new();
        if options.file_row_number {
            order.push(count + keys.fields.len() + usize::from(options.filename.is_some()));
            extra.push(ROW_NUMBER);
        }
        if let Some(name) = &options.filename {
            of_path.push(Arc::new(Field::new(name, DataType::Utf8View, true)));
            order.push(count + keys.fields.len());
            extra.push(name);
        }
        order.extend((0..keys.fields.len()).filter(|key| !in_place.contains(key)).map(|key| count + key));
        let taken = extra
            .iter()
            .find(|name| file_schema.fields().iter().any(|field| field.name().eq_ignore_ascii_case(name)));
        if let Some(name) = taken {
            return Err(DataFusionError::Plan(format!(
                "cannot add the column {name}: the files have one of this name; use filename = 'other_name'"
            )));
        }
        let mut builder = TableSchemaBuilder::new(file_schema_kept).with_table_partition_cols(of_path);
        if options.file_row_number {
            let field = Field::new(ROW_NUMBER, DataType::Int64, true).with_extension_type(RowNumber);
            builder = builder.with_virtual_columns(vec![Arc::new(field)]);
        }
        let table_schema = builder.build();
        let mut schema = table_schema.table_schema().project(&order)?;
        if let Reader::Format(_) = reader {
            let shown =
                |field: &FieldRef| names::without_large_text(field).unwrap_or_else(|| Arc::clone(field));
            schema.fields = schema.fields.iter().map(shown).collect();
        }
        let schema = Arc::new(schema);
        let statistics = Mutex::default();
        Ok(Self { places, options, reader, table_schema, keys, schema, order, statistics })
    }

    /// Returns the files with the values of their paths' columns.
    fn files(&self, found: &Found) -> Result<Vec<PartitionedFile>> {
        let file = |(meta, name): (&ObjectMeta, String)| {
            let mut values = self.keys.values(&name)?;
            if self.options.filename.is_some() {
                values.push(ScalarValue::Utf8View(Some(name)));
            }
            let mut file = PartitionedFile::new_from_meta(meta.clone());
            file.partition_values = values;
            Ok(file)
        };
        found.files.iter().zip(found.names()).map(file).collect()
    }

    fn path_columns(&self) -> Vec<&str> {
        self.table_schema.table_partition_cols().iter().map(|field| field.name().as_str()).collect()
    }

    /// Returns true if a filter depends on the paths of files alone.
    fn prunes(&self, filter: &Expr) -> bool {
        let columns = self.path_columns();
        !columns.is_empty() && expr_applicable_for_cols(&columns, filter)
    }

    /// Drops the files whose paths do not fit a filter.
    fn prune(
        &self,
        state: &dyn Session,
        files: Vec<PartitionedFile>,
        filters: &[Expr],
    ) -> Result<Vec<PartitionedFile>> {
        let filters: Vec<&Expr> = filters.iter().filter(|filter| self.prunes(filter)).collect();
        if filters.is_empty() || files.is_empty() {
            return Ok(files);
        }
        let fields = self.table_schema.table_partition_cols();
        let columns = (0..fields.len())
            .map(|at| ScalarValue::iter_to_array(files.iter().map(|file| file.partition_values[at].clone())))
            .collect::<Result<Vec<_>>>()?;
        let schema = Arc::new(Schema::new(fields.clone()));
        let options = RecordBatchOptions::new().with_row_count(Some(files.len()));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)?;
        let named = DFSchema::try_from(schema)?;
        let mut kept = vec![true; files.len()];
        for filter in filters {
            let filter = state.create_physical_expr(filter.clone(), &named)?;
            let matches = filter.evaluate(&batch)?.into_array(files.len())?;
            let Some(matches) = matches.as_any().downcast_ref::<BooleanArray>() else { continue };
            for (at, kept) in kept.iter_mut().enumerate() {
                *kept &= matches.is_valid(at) && matches.value(at);
            }
        }
        Ok(files.into_iter().zip(kept).filter(|(_, kept)| *kept).map(|(file, _)| file).collect())
    }

    /// Adds the statistics of the files, as far as their format has them.
    async fn with_statistics(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        files: Vec<PartitionedFile>,
    ) -> Result<Vec<PartitionedFile>> {
        let Reader::Format(format) = &self.reader else { return Ok(files) };
        if !state.config().collect_statistics() {
            return Ok(files);
        }
        let schema = self.table_schema.file_schema();
        let read = |file: PartitionedFile| async move {
            let meta = &file.object_meta;
            let known = lock(&self.statistics).get(&meta.location).cloned();
            let statistics = match known {
                Some((of, statistics)) if of == *meta => statistics,
                _ => {
                    let read = format.infer_stats(state, store, Arc::clone(schema), meta).await?;
                    let read = Arc::new(read);
                    let mut all = lock(&self.statistics);
                    all.insert(meta.location.clone(), (meta.clone(), Arc::clone(&read)));
                    read
                }
            };
            Ok(file.with_statistics(statistics))
        };
        futures::stream::iter(files).map(read).buffered(CONCURRENCY).try_collect().await
    }

    /// Returns the statistics of all files together.
    fn summary(&self, state: &dyn Session, files: &[PartitionedFile]) -> Result<Option<Statistics>> {
        if self.options.file_row_number || !state.config().collect_statistics() {
            return Ok(None);
        }
        let all: Option<Vec<&Statistics>> = files.iter().map(|file| file.statistics.as_deref()).collect();
        let schema = self.table_schema.table_schema();
        all.map(|all| Statistics::try_merge_iter(all, schema)).transpose()
    }
}

#[async_trait]
impl TableProvider for FilesTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| match self.prunes(filter) {
            true => TableProviderFilterPushDown::Exact,
            false => TableProviderFilterPushDown::Inexact,
        };
        Ok(filters.iter().map(support).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let found = open::find_all(state, &self.places, &self.options).await?;
        let files = self.prune(state, self.files(&found)?, filters)?;
        if files.is_empty() {
            return Ok(Arc::new(EmptyExec::new(project_schema(&self.schema, projection)?)));
        }
        let columns: Vec<usize> = match projection {
            Some(columns) => columns.iter().map(|column| self.order[*column]).collect(),
            None => self.order.clone(),
        };
        let needed: Vec<usize> = columns
            .iter()
            .copied()
            .filter(|at| *at < self.table_schema.file_schema().fields().len())
            .collect();
        let source = match &self.reader {
            Reader::Format(format) => {
                if !self.options.union_by_name {
                    open::check_columns(
                        state,
                        &found,
                        &files,
                        format.as_ref(),
                        self.table_schema.file_schema(),
                        &needed,
                    )
                    .await?;
                }
                format.file_source(self.table_schema.clone())
            }
            Reader::Json(json) => Arc::new(TextSource::new(json.format(), self.table_schema.clone())),
            Reader::Csv(csv) => {
                let format = csv.format(&found, &files, &self.options).await?;
                Arc::new(TextSource::new(format, self.table_schema.clone()))
            }
        };
        let files = self.with_statistics(state, &found.store, files).await?;
        let statistics = self.summary(state, &files)?;
        let per_group = files.len().div_ceil(state.config().target_partitions().max(1));
        let groups: Vec<FileGroup> =
            files.chunks(per_group).map(|files| FileGroup::new(files.to_vec())).collect();
        let mut builder = FileScanConfigBuilder::new(ObjectStoreUrl::parse(found.store_url())?, source)
            .with_file_compression_type(found.compression)
            .with_limit(limit)
            .with_projection_indices(Some(columns))?;
        if let Some(statistics) = statistics {
            builder = builder.with_statistics(statistics);
        }
        let config = builder.with_file_groups(groups).build();
        match &self.reader {
            Reader::Format(format) => shown(format.create_physical_plan(state, config).await?),
            Reader::Csv(_) | Reader::Json(_) => Ok(DataSourceExec::from_data_source(config)),
        }
    }
}

/// Returns a scan whose large strings are text: as columns of a query, they would be JSON.
fn shown(scan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = scan.schema();
    let mut changed = false;
    let mut column = |(at, field): (usize, &FieldRef)| {
        let stored: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), at));
        let expr = match names::without_large_text(field) {
            Some(text) => {
                changed = true;
                Arc::new(CastExpr::new(stored, text.data_type().clone(), None))
            }
            None => stored,
        };
        ProjectionExpr::new(expr, field.name())
    };
    let columns: Vec<ProjectionExpr> = schema.fields().iter().enumerate().map(&mut column).collect();
    Ok(if changed { Arc::new(ProjectionExec::try_new(columns, scan)?) } else { scan })
}
