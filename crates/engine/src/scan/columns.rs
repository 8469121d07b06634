//! Decodes the columns of a Parquet scan one after the other, so that the work of each is known.
//!
//! DataFusion's opener has the Parquet library decode all columns of a batch in one call, in which they cannot be told
//! apart. Here, each column has a reader of its own for the same rows, which is what the library does within that call:
//! nothing is decoded twice, and batches are the same. Files are adapted to the table by DataFusion's rules. [`applies`]
//! lists the scans that keep DataFusion's opener, whose columns are not measured.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use datafusion::arrow::datatypes::{Schema, SchemaRef, TimeUnit};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::{
    Int96Coercer, ParquetAccessPlan, RowGroupAccess, apply_file_schema_type_coercions,
};
use datafusion::datasource::physical_plan::{FileScanConfig, FileSource, ParquetSource};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::parquet::arrow::ProjectionMask;
use datafusion::parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
    RowSelectionPolicy,
};
use datafusion::parquet::errors::{ParquetError, Result as ParquetResult};
use datafusion::parquet::file::metadata::ParquetMetaData;
use datafusion::physical_expr::expressions::Column as ColumnExpr;
use datafusion::physical_expr::projection::{ProjectionExprs, Projector};
use datafusion::physical_expr::simplifier::PhysicalExprSimplifier;
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_expr_adapter::{DefaultPhysicalExprAdapterFactory, replace_columns_with_literals};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

use crate::execute::compact::array_bytes;
use crate::execute::expressions::Timer;
use crate::scan::Scan;
use crate::scan::chunks::Chunks;
use crate::scan::column_work::{self, ColumnWork};
use crate::scan::prune::Pruner;

/// Returns true if the columns of a scan can be decoded one by one. The following need DataFusion's opener: columns that
/// the reader makes up (row numbers), functions that the opener replaces, filters within the scan, and expressions over
/// nested columns, of which it decodes only the fields that are used.
pub(crate) fn applies(source: &ParquetSource) -> bool {
    let table = source.table_schema();
    let nested = |column: &ColumnExpr| {
        table.table_schema().fields().get(column.index()).is_none_or(|field| field.data_type().is_nested())
    };
    let replaced = |function: &ScalarFunctionExpr| {
        ["input_file_name", "file_row_index"].contains(&function.fun().name())
    };
    let separable = |expr: Arc<dyn PhysicalExpr>| {
        let needs_opener = expr.exists(|part| {
            let column = part.downcast_ref::<ColumnExpr>().is_some_and(nested);
            Ok(column || part.downcast_ref::<ScalarFunctionExpr>().is_some_and(replaced))
        });
        expr.is::<ColumnExpr>() || !needs_opener.unwrap_or(true)
    };
    table.virtual_columns().is_empty()
        && !source.table_parquet_options().global.pushdown_filters
        && source.projection().is_some_and(|projection| projection.expr_iter().all(separable))
}

/// A file of a scan.
pub(crate) struct ColumnFile {
    /// Index of the source in the scan.
    pub source: usize,
    pub metadata: Arc<ParquetMetaData>,
    pub pruner: Arc<Pruner>,
    decoder: OnceLock<Arc<Decoder>>,
}

impl ColumnFile {
    pub(crate) fn new(source: usize, metadata: Arc<ParquetMetaData>, pruner: Arc<Pruner>) -> Self {
        Self { source, metadata, pruner, decoder: OnceLock::new() }
    }

    /// Returns the decoder, which the multitasks of the file share.
    fn decoder(&self, scan: &ColumnScan, file: &PartitionedFile) -> Result<Arc<Decoder>> {
        if let Some(decoder) = self.decoder.get() {
            return Ok(Arc::clone(decoder));
        }
        let decoder = Arc::new(Decoder::of(scan, file, &self.metadata)?);
        Ok(Arc::clone(self.decoder.get_or_init(|| decoder)))
    }
}

/// A scan whose columns are decoded one by one.
pub(crate) struct ColumnScan {
    /// The bytes.
    pub scan: Arc<Scan>,
    /// The divided scan.
    pub config: FileScanConfig,
    pub projection: ProjectionExprs,
    /// Of each expression of the projection that costs something.
    pub timers: Vec<Option<Arc<Timer>>>,
    /// The unit and time zone that timestamps of 96 bits get.
    pub int96: Option<(TimeUnit, Option<Arc<str>>)>,
    /// Files by path.
    pub files: HashMap<String, ColumnFile>,
    /// True if the predicate may exclude more rows when a row group is decoded than when it was read.
    pub may_tighten: bool,
}

impl ColumnScan {
    /// Returns the indices of the decoded columns in the table's schema of its files.
    fn columns(&self) -> Vec<usize> {
        let count = self.config.file_schema().fields().len();
        self.projection.column_indices().into_iter().filter(|column| *column < count).collect()
    }
}

/// The leaf of a stage's plan that decodes a Parquet scan column by column.
pub(crate) struct ColumnsExec {
    scan: Arc<ColumnScan>,
    properties: Arc<PlanProperties>,
}

impl ColumnsExec {
    /// Creates a leaf that replaces `node`, with its schema, partitions and ordering.
    pub(crate) fn in_place_of(node: &dyn ExecutionPlan, scan: ColumnScan) -> Arc<Self> {
        Arc::new(Self { scan: Arc::new(scan), properties: Arc::clone(node.properties()) })
    }

    /// Returns the names of the columns, as the table has them, in the order of their work.
    pub(crate) fn names(&self) -> Vec<&str> {
        let fields = self.scan.config.file_schema().fields();
        self.scan.columns().into_iter().map(|column| fields[column].name().as_str()).collect()
    }

    /// Returns the timers of the expressions that are computed from the columns.
    pub(crate) fn timers(&self) -> impl Iterator<Item = &Arc<Timer>> {
        self.scan.timers.iter().flatten()
    }
}

impl fmt::Debug for ColumnsExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ColumnsExec({} files)", self.scan.files.len())
    }
}

impl DisplayAs for ColumnsExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ColumnsExec: columns=[{}]", self.names().join(", "))
    }
}

impl ExecutionPlan for ColumnsExec {
    fn name(&self) -> &str {
        "ColumnsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let config = &self.scan.config;
        let batches = Batches {
            scan: Arc::clone(&self.scan),
            output: self.schema(),
            partition,
            batch_rows: config.batch_size.unwrap_or_else(|| context.session_config().batch_size()),
            rows_left: config.limit,
            files: 0,
            file: None,
        };
        let stream = RecordBatchStreamAdapter::new(self.schema(), futures::stream::iter(batches));
        Ok(Box::pin(cooperative(stream)))
    }
}

/// A decoded column of a file.
struct DecodedColumn {
    /// Its place in [`ColumnScan::columns`].
    place: Option<usize>,
    mask: ProjectionMask,
    /// Leaf columns, several if it is nested.
    leaves: Vec<usize>,
}

/// Decodes a file, and adapts its columns to the table.
struct Decoder {
    metadata: ArrowReaderMetadata,
    /// In the order of the file.
    columns: Vec<DecodedColumn>,
    projector: Projector,
}

impl Decoder {
    /// Builds the decoder by the rules of DataFusion's opener.
    fn of(scan: &ColumnScan, file: &PartitionedFile, in_file: &Arc<ParquetMetaData>) -> Result<Self> {
        let table = scan.config.file_schema();
        let mut options = ArrowReaderOptions::new();
        if let Some(schema) = &file.arrow_schema {
            options = options.with_schema(Arc::clone(schema));
        }
        let mut metadata = ArrowReaderMetadata::try_new(Arc::clone(in_file), options)?;
        let mut schema = Arc::clone(metadata.schema());
        if let Some(coerced) = apply_file_schema_type_coercions(table, &schema) {
            schema = Arc::new(coerced);
        }
        if let Some((unit, zone)) = &scan.int96 {
            let coercer = Int96Coercer::new(metadata.parquet_schema(), &schema, unit);
            if let Some(coerced) = coercer.with_timezone(zone.clone()).coerce() {
                schema = Arc::new(coerced);
            }
        }
        if !Arc::ptr_eq(&schema, metadata.schema()) {
            let options = ArrowReaderOptions::new().with_schema(Arc::clone(&schema));
            metadata = ArrowReaderMetadata::try_new(Arc::clone(in_file), options)?;
        }
        let of_path: HashMap<String, ScalarValue> = scan
            .config
            .table_partition_cols()
            .iter()
            .zip(&file.partition_values)
            .map(|(field, value)| (field.name().clone(), value.clone()))
            .collect();
        let adapter = match *table == schema {
            true => None,
            false => {
                let factory = scan.config.expr_adapter_factory.clone();
                let factory = factory.unwrap_or_else(|| Arc::new(DefaultPhysicalExprAdapterFactory));
                Some(factory.create(Arc::clone(table), Arc::clone(&schema))?)
            }
        };
        let simplifier = PhysicalExprSimplifier::new(&schema);
        let adapted = |expr: Arc<dyn PhysicalExpr>| match &adapter {
            Some(adapter) => simplifier.simplify(adapter.rewrite(expr)?),
            None => Ok(expr),
        };
        let projection = scan.projection.clone().try_map_exprs(|expr| {
            adapted(if of_path.is_empty() { expr } else { replace_columns_with_literals(expr, &of_path)? })
        })?;
        let roots = projection.column_indices();
        let places = scan.columns().into_iter().map(|column| -> Result<Vec<usize>> {
            let expr = adapted(Arc::new(ColumnExpr::new(table.field(column).name(), column)))?;
            Ok(collect_columns(&expr).into_iter().map(|column| column.index()).collect())
        });
        let places: Vec<Vec<usize>> = places.collect::<Result<_>>()?;
        let descriptor = metadata.parquet_schema();
        let column = |root: &usize| DecodedColumn {
            place: places.iter().position(|roots| roots.contains(root)),
            mask: ProjectionMask::roots(descriptor, [*root]),
            leaves: (0..descriptor.num_columns())
                .filter(|leaf| descriptor.get_column_root_idx(*leaf) == *root)
                .collect(),
        };
        let columns = roots.iter().map(column).collect();
        let decoded = schema.project(&roots)?;
        let mut timers = scan.timers.iter();
        let projector = projection
            .try_map_exprs(|expr| {
                let expr = reassign_expr_columns(expr, &decoded)?;
                Ok(match timers.next() {
                    Some(Some(timer)) => timer.wrap(expr),
                    _ => expr,
                })
            })?
            .make_projector(&decoded)?;
        Ok(Self { metadata, columns, projector })
    }
}

/// The batches of one partition of a scan.
struct Batches {
    scan: Arc<ColumnScan>,
    output: SchemaRef,
    partition: usize,
    batch_rows: usize,
    /// Rows until the limit.
    rows_left: Option<usize>,
    /// Number of files that were opened.
    files: usize,
    file: Option<OpenFile>,
}

impl Iterator for Batches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.batch().transpose()
    }
}

impl Batches {
    fn batch(&mut self) -> Result<Option<RecordBatch>> {
        while self.rows_left != Some(0) {
            let Some(file) = &mut self.file else {
                self.file = self.open()?;
                match self.file {
                    Some(_) => continue,
                    None => return Ok(None),
                }
            };
            let Some(group) = &mut file.group else {
                match file.row_groups.next() {
                    Some((row_group, access)) => {
                        file.start(row_group, access, &self.scan, self.batch_rows, self.rows_left)?;
                    }
                    None => self.file = None,
                }
                continue;
            };
            let Some(batch) = group.next(&file.decoder, self.batch_rows)? else {
                file.group = None;
                continue;
            };
            self.rows_left = self.rows_left.map(|left| left.saturating_sub(batch.num_rows()));
            let batch = file.decoder.projector.project_batch(&batch)?;
            if *batch.schema_ref() == self.output {
                return Ok(Some(batch));
            }
            // Other metadata, or columns that are nullable in the file only.
            let (_, columns, rows) = batch.into_parts();
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            return Ok(Some(RecordBatch::try_new_with_options(Arc::clone(&self.output), columns, &options)?));
        }
        Ok(None)
    }

    /// Opens the next file of the partition; `None` if there is none.
    fn open(&mut self) -> Result<Option<OpenFile>> {
        let group = self.scan.config.file_groups.get(self.partition);
        let Some(file) = group.and_then(|group| group.files().get(self.files)) else { return Ok(None) };
        self.files += 1;
        let path = file.path().as_ref();
        let Some(known) = self.scan.files.get(path) else {
            return Err(ParquetError::General(format!("{path} is not part of the scan")).into());
        };
        let row_groups = match file.extension::<ParquetAccessPlan>() {
            Some(plan) => plan.clone(),
            None => ParquetAccessPlan::new_all(known.metadata.num_row_groups()),
        };
        Ok(Some(OpenFile {
            decoder: known.decoder(&self.scan, file)?,
            pruner: Arc::clone(&known.pruner),
            chunks: Chunks::new(self.scan.scan.segments(self.partition, known.source), path),
            row_groups: row_groups.into_inner().into_iter().enumerate().collect::<Vec<_>>().into_iter(),
            group: None,
        }))
    }
}

/// A file that is being decoded.
struct OpenFile {
    decoder: Arc<Decoder>,
    pruner: Arc<Pruner>,
    chunks: Chunks,
    /// The row groups that follow.
    row_groups: std::vec::IntoIter<(usize, RowGroupAccess)>,
    group: Option<RowGroup>,
}

impl OpenFile {
    /// Starts to decode a row group, unless the predicate excludes all of it.
    fn start(
        &mut self,
        row_group: usize,
        access: RowGroupAccess,
        scan: &ColumnScan,
        batch_rows: usize,
        limit: Option<usize>,
    ) -> Result<()> {
        let access = match scan.may_tighten && access.should_scan() {
            true => self.pruner.tightened(row_group, access),
            false => access,
        };
        let (selection, rows) = match &access {
            RowGroupAccess::Skip => return Ok(()),
            RowGroupAccess::Scan => (None, self.pruner.rows(row_group)),
            RowGroupAccess::Selection(selection) => (Some(selection), selection.row_count()),
        };
        let mut whole = true;
        for column in &self.decoder.columns {
            let bytes = |leaf: &usize| self.pruner.leaf_bytes(row_group, &access, *leaf);
            let all = |leaf: &usize| self.pruner.leaf_bytes(row_group, &RowGroupAccess::Scan, *leaf);
            let encoded_bytes: u64 = column.leaves.iter().map(bytes).sum();
            whole &= encoded_bytes == column.leaves.iter().map(all).sum::<u64>();
            if let Some(place) = column.place {
                column_work::add(place, ColumnWork { encoded_bytes, ..ColumnWork::default() });
            }
        }
        // Masks select among decoded rows, which are not there if pages between them were not read.
        let policy = if whole { RowSelectionPolicy::default() } else { RowSelectionPolicy::Selectors };
        let reader = |column: &DecodedColumn| {
            let metadata = self.decoder.metadata.clone();
            let mut builder =
                ParquetRecordBatchReaderBuilder::new_with_metadata(self.chunks.clone(), metadata)
                    .with_projection(column.mask.clone())
                    .with_row_groups(vec![row_group])
                    .with_batch_size(batch_rows)
                    .with_row_selection_policy(policy);
            if let Some(selection) = selection {
                builder = builder.with_row_selection(selection.clone());
            }
            if let Some(limit) = limit {
                builder = builder.with_limit(limit);
            }
            builder.build()
        };
        let readers: Vec<_> = self.decoder.columns.iter().map(reader).collect::<ParquetResult<_>>()?;
        let rows = limit.map_or(rows, |limit| rows.min(limit));
        self.group = Some(RowGroup { readers, rows });
        Ok(())
    }
}

/// A row group that is being decoded.
struct RowGroup {
    /// By column.
    readers: Vec<ParquetRecordBatchReader>,
    /// Rows that follow, if there are no columns to decode.
    rows: usize,
}

impl RowGroup {
    fn next(&mut self, decoder: &Decoder, batch_rows: usize) -> Result<Option<RecordBatch>> {
        if self.readers.is_empty() {
            let rows = self.rows.min(batch_rows);
            self.rows -= rows;
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options)?;
            return Ok((rows > 0).then_some(batch));
        }
        let (mut fields, mut arrays) = (Vec::new(), Vec::new());
        for (reader, column) in self.readers.iter_mut().zip(&decoder.columns) {
            let started = Instant::now();
            let batch = reader.next().transpose()?;
            let ns = started.elapsed().as_nanos() as u64;
            let decoded = batch.as_ref().and_then(|batch| batch.columns().first());
            if let Some(place) = column.place {
                let decoded_bytes = decoded.map_or(0, array_bytes);
                column_work::add(place, ColumnWork { ns, decoded_bytes, ..ColumnWork::default() });
            }
            if let (Some(batch), Some(array)) = (&batch, decoded) {
                fields.extend(batch.schema_ref().fields().first().cloned());
                arrays.push(Arc::clone(array));
            }
        }
        match arrays.len() {
            0 => Ok(None),
            count if count < self.readers.len() => {
                Err(ParquetError::General("its columns have different numbers of rows".into()).into())
            }
            _ => Ok(Some(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)),
        }
    }
}

/// Returns the unit and time zone that a scan gives to timestamps of 96 bits; `None` if it keeps nanoseconds.
pub(crate) fn int96(source: &ParquetSource) -> Option<(TimeUnit, Option<Arc<str>>)> {
    let options = &source.table_parquet_options().global;
    let unit = match options.coerce_int96.as_deref()? {
        "us" => TimeUnit::Microsecond,
        "ms" => TimeUnit::Millisecond,
        "s" => TimeUnit::Second,
        _ => TimeUnit::Nanosecond,
    };
    Some((unit, options.coerce_int96_tz.as_deref().map(Arc::from)))
}
