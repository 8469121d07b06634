//! A table of a lake, and its scan.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::config::TableParquetOptions;
use datafusion::datasource::TableType;
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::parquet::file::metadata::ParquetMetaData;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column as PhysicalColumn;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::union::UnionExec;
use futures::FutureExt;

use super::column::{Column, Names, fields};
use super::files::{DataFile, Deleted};
use super::layout::{self, Mapping};
use super::{Lake, Root, all, failed, positions, prune, rename};
use crate::scan::footer::footer;

/// A Delta or Iceberg table at one version.
#[derive(Debug)]
pub(crate) struct LakeTable {
    lake: Lake,
    root: Root,
    schema: SchemaRef,
    columns: Vec<Column>,
    /// Columns whose values are not in the files.
    partitions: Vec<usize>,
    mapping: Mapping,
    files: Vec<DataFile>,
}

impl LakeTable {
    pub(super) fn new(
        lake: Lake,
        root: Root,
        columns: Vec<Column>,
        partitions: Vec<usize>,
        mapping: Mapping,
        files: Vec<DataFile>,
    ) -> Self {
        let schema = Arc::new(Schema::new(fields(&columns)));
        Self { lake, root, schema, columns, partitions, mapping, files }
    }

    /// Returns the columns that are in the files, with their indices.
    fn stored(&self) -> impl Iterator<Item = (usize, &Column)> {
        self.columns.iter().enumerate().filter(|(index, _)| !self.partitions.contains(index))
    }

    /// Reads the footers of files whose columns or deleted rows depend on them.
    async fn footers(
        &self,
        state: &dyn Session,
        files: &[&DataFile],
    ) -> Result<Vec<Option<Arc<ParquetMetaData>>>> {
        let cache = state.runtime_env().cache_manager.get_file_metadata_cache();
        let mut reads = Vec::new();
        for &file in files {
            let cache = Arc::clone(&cache);
            let read = async move {
                if matches!(self.mapping, Mapping::Names) && matches!(file.deleted, Deleted::None) {
                    return Ok(None);
                }
                footer(self.root.store.as_ref(), &file.meta, cache).await.map(Some)
            };
            reads.push(read.boxed());
        }
        all(reads).await
    }

    /// Returns the fields of the stored columns in a file.
    fn fields_in(&self, file: &DataFile, footer: Option<&ParquetMetaData>) -> Result<Vec<FieldRef>> {
        let (Mapping::Ids(names), Some(footer)) = (&self.mapping, footer) else {
            return Ok(self.stored().map(|(_, column)| column.field(Names::InFiles)).collect());
        };
        let name = || self.root.name(&file.meta.location);
        let columns: Vec<&Column> = self.stored().map(|(_, column)| column).collect();
        let found = layout::fields(&columns, footer, names).map_err(|why| {
            self.root.error(format!("cannot find columns in {}: {why}; rewrite the file", name()))
        })?;
        for ((index, column), found) in self.stored().zip(&found) {
            let bounds = file.bounds.get(index);
            if found.is_missing && bounds.is_some_and(|bounds| bounds.min.is_some()) {
                return Err(self.root.error(format!(
                    "{} lacks the column {}, whose value is only in the table's metadata; rewrite the file",
                    name(),
                    column.name
                )));
            }
        }
        Ok(found.into_iter().map(|found| found.field).collect())
    }

    /// Groups files by the fields that they have.
    async fn grouped(&self, state: &dyn Session, files: &[&DataFile]) -> Result<Vec<Group>> {
        let footers = self.footers(state, files).await?;
        let deleted = positions::deleted(&self.root, files).await?;
        let mut groups: Vec<Group> = Vec::new();
        for ((file, footer), deleted) in files.iter().zip(footers).zip(deleted) {
            let mut scanned = PartitionedFile::new_from_meta(file.meta.clone())
                .with_partition_values(file.partition.clone());
            if let Some(plan) = footer.as_ref().and_then(|footer| positions::access(footer, &deleted)) {
                scanned = scanned.with_extension(plan);
            }
            let rows = file.rows.map(|rows| rows.saturating_sub(deleted.len() as u64));
            let fields = self.fields_in(file, footer.as_deref())?;
            match groups.iter_mut().find(|group| group.fields == fields) {
                Some(group) => {
                    group.rows = group.rows.zip(rows).map(|(a, b)| a + b);
                    group.files.push(scanned);
                }
                None => groups.push(Group { fields, files: vec![scanned], rows }),
            }
        }
        Ok(groups)
    }

    /// Returns the scan of a group, with the names and the order of the table's columns.
    async fn scan_group(
        &self,
        state: &dyn Session,
        group: Group,
        projection: &[usize],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let partitions = self.partitions.iter().map(|&index| self.columns[index].field(Names::InFiles));
        let table = TableSchema::builder(Arc::new(Schema::new(group.fields.clone())))
            .with_table_partition_cols(partitions.collect::<Vec<_>>())
            .build();
        let order: Vec<usize> =
            self.stored().map(|(index, _)| index).chain(self.partitions.iter().copied()).collect();
        let place = |wanted: &usize| order.iter().position(|index| index == wanted);
        let indices: Vec<usize> = projection.iter().filter_map(place).collect();
        let mut statistics = Statistics::new_unknown(table.table_schema());
        if let Some(rows) = group.rows {
            statistics.num_rows = Precision::Exact(rows as usize);
        }
        let bytes: u64 = group.files.iter().map(|file| file.object_meta.size).sum();
        statistics.total_byte_size = Precision::Inexact(bytes as usize);
        let format = ParquetFormat::default().with_options(options(state));
        let source = format.file_source(table);
        let config = FileScanConfigBuilder::new(self.root.store_url(), source)
            .with_file_groups(FileGroup::new(group.files).split_files(state.config().target_partitions()))
            .with_statistics(statistics)
            .with_projection_indices(Some(indices))?
            .with_limit(limit)
            .build();
        self.renamed(state, format.create_physical_plan(state, config).await?, projection)
    }

    /// Gives the columns of a scan their names in the table.
    fn renamed(
        &self,
        state: &dyn Session,
        scan: Arc<dyn ExecutionPlan>,
        projection: &[usize],
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = scan.schema();
        let wanted: Vec<FieldRef> =
            projection.iter().map(|&index| Arc::clone(&self.schema.fields()[index])).collect();
        let same = |(a, b): (&FieldRef, &FieldRef)| a.name() == b.name() && a.data_type() == b.data_type();
        if schema.fields().iter().zip(&wanted).all(same) {
            return Ok(scan);
        }
        let options = Arc::new(state.config_options().clone());
        let columns = schema.fields().iter().zip(&wanted).enumerate().map(|(index, (from, to))| {
            let column: Arc<dyn PhysicalExpr> = Arc::new(PhysicalColumn::new(from.name(), index));
            let column = match from.data_type() == to.data_type() {
                true => column,
                false => rename::expression(column, to, &options),
            };
            (column, to.name().clone())
        });
        Ok(Arc::new(ProjectionExec::try_new(columns.collect::<Vec<_>>(), scan)?))
    }
}

/// Files of a table that have the same fields.
struct Group {
    fields: Vec<FieldRef>,
    files: Vec<PartitionedFile>,
    /// Number of rows that are not deleted, if it is known.
    rows: Option<u64>,
}

/// Returns the options of the Parquet reader.
fn options(state: &dyn Session) -> TableParquetOptions {
    let mut options = state.table_options().parquet.clone();
    // Spark writes timestamps as INT96, whose range is larger than that of nanoseconds.
    options.global.coerce_int96 = Some("us".to_string());
    options
}

#[async_trait]
impl TableProvider for LakeTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let projection = match projection {
            Some(projection) => projection.clone(),
            None => (0..self.columns.len()).collect(),
        };
        let files = prune::keep(&self.files, &self.schema, state, filters)?;
        if files.is_empty() {
            return Ok(Arc::new(EmptyExec::new(Arc::new(self.schema.project(&projection)?))));
        }
        let limit = limit.filter(|_| filters.is_empty());
        let mut scans = Vec::new();
        for group in self.grouped(state, &files).await? {
            scans.push(self.scan_group(state, group, &projection, limit).await?);
        }
        UnionExec::try_new(scans)
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn insert_into(
        &self,
        _: &dyn Session,
        _: Arc<dyn ExecutionPlan>,
        _: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let error: DataFusionError = failed(format!(
            "cannot write to {}: it is {}, which Pellucid only reads; write to another folder, or use Spark",
            self.root.place,
            self.lake.a()
        ));
        Err(error)
    }
}
