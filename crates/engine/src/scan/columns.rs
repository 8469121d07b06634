//! Decodes the columns of a Parquet scan one after the other, so that the work of each is known.
//!
//! DataFusion's opener has the Parquet library decode all columns of a batch in one call, in which they cannot be told
//! apart. Here, each column has a reader of its own for the same rows, which is what the library does within that call:
//! nothing is decoded twice. Files are adapted to the table by DataFusion's rules. [`applies`] lists the scans that keep
//! DataFusion's opener, whose columns are not measured.
//!
//! If the keys of build sides filter the scan, their columns are decoded first ([`crate::scan::row_group`]).

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::BooleanArray;
use datafusion::arrow::compute::BatchCoalescer;
use datafusion::arrow::datatypes::{SchemaRef, TimeUnit};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::physical_plan::parquet::{ParquetAccessPlan, RowGroupAccess};
use datafusion::datasource::physical_plan::{FileSource, ParquetSource};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::parquet::arrow::arrow_reader::RowSelectionPolicy;
use datafusion::parquet::errors::ParquetError;
use datafusion::physical_expr::expressions::Column as ColumnExpr;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

use crate::execute::expressions::Timer;
use crate::execute::timing::timed;
use crate::scan::chunks::Chunks;
use crate::scan::column_work::{self, ColumnWork};
use crate::scan::decoder::{ColumnScan, Decoder};
use crate::scan::prune::Pruner;
use crate::scan::row_group::{RowGroup, Rows};

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

/// The filters by keys of build sides that a scan applies. They need not drop a row: a join drops it later.
#[derive(Clone, Default)]
pub(crate) struct Keys {
    /// Over the columns of the table.
    pub filters: Vec<Arc<dyn PhysicalExpr>>,
    /// The operator whose work it is to filter.
    pub operator: usize,
}

/// The leaf of a stage's plan that decodes a Parquet scan column by column.
pub(crate) struct ColumnsExec {
    scan: Arc<ColumnScan>,
    keys: Keys,
    properties: Arc<PlanProperties>,
}

impl ColumnsExec {
    /// Creates a leaf that replaces `node`, with its schema, partitions and ordering.
    pub(crate) fn in_place_of(node: &dyn ExecutionPlan, scan: ColumnScan) -> Arc<Self> {
        let (scan, keys) = (Arc::new(scan), Keys::default());
        Arc::new(Self { scan, keys, properties: Arc::clone(node.properties()) })
    }

    /// Returns the scan of the rows alone that have keys of build sides.
    pub(crate) fn filtered(&self, keys: Keys) -> Arc<Self> {
        let (scan, properties) = (Arc::clone(&self.scan), Arc::clone(&self.properties));
        Arc::new(Self { scan, keys, properties })
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
        let batch_rows = config.batch_size.unwrap_or_else(|| context.session_config().batch_size());
        // A scan that ends at a number of rows must not drop any.
        let filters = !self.keys.filters.is_empty() && config.limit.is_none();
        // As in a filter of DataFusion.
        let coalesced = || {
            BatchCoalescer::new(self.schema(), batch_rows)
                .with_biggest_coalesce_batch_size(Some(batch_rows / 2))
        };
        let batches = Batches {
            scan: Arc::clone(&self.scan),
            keys: self.keys.clone(),
            output: self.schema(),
            partition,
            batch_rows,
            rows_left: config.limit,
            coalesced: filters.then(coalesced),
            files: 0,
            file: None,
        };
        let stream = RecordBatchStreamAdapter::new(self.schema(), futures::stream::iter(batches));
        Ok(Box::pin(cooperative(stream)))
    }
}

/// The batches of one partition of a scan.
struct Batches {
    scan: Arc<ColumnScan>,
    keys: Keys,
    output: SchemaRef,
    partition: usize,
    batch_rows: usize,
    /// Rows until the limit.
    rows_left: Option<usize>,
    /// Collects the rows that are left in batches, if keys filter them.
    coalesced: Option<BatchCoalescer>,
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
        loop {
            if let Some(batch) = self.coalesced.as_mut().and_then(BatchCoalescer::next_completed_batch) {
                return Ok(Some(batch));
            }
            let decoded = self.decoded()?;
            let Some(coalesced) = &mut self.coalesced else { return Ok(decoded.map(|(batch, _)| batch)) };
            let Some((batch, kept)) = decoded else {
                coalesced.finish_buffered_batch()?;
                return Ok(coalesced.next_completed_batch());
            };
            timed(self.keys.operator, || match &kept {
                Some(kept) => coalesced.push_batch_with_filter(batch, kept),
                None => coalesced.push_batch(batch),
            })?;
        }
    }

    /// Returns a batch of the output, and which of its rows to keep (`None` for all).
    fn decoded(&mut self) -> Result<Option<(RecordBatch, Option<BooleanArray>)>> {
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
                        let keys = self.coalesced.as_ref().map(|_| self.keys.operator);
                        let (limit, may_tighten) = (self.rows_left, self.scan.may_tighten);
                        file.start(row_group, access, may_tighten, self.batch_rows, limit, keys)?;
                    }
                    None => self.file = None,
                }
                continue;
            };
            let Some((batch, kept)) = group.next(&file.decoder, self.batch_rows)? else {
                file.group = None;
                continue;
            };
            self.rows_left = self.rows_left.map(|left| left.saturating_sub(batch.num_rows()));
            let batch = file.decoder.projector.project_batch(&batch)?;
            if *batch.schema_ref() == self.output {
                return Ok(Some((batch, kept)));
            }
            // Other metadata, or columns that are nullable in the file only.
            let (_, columns, rows) = batch.into_parts();
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let batch = RecordBatch::try_new_with_options(Arc::clone(&self.output), columns, &options)?;
            return Ok(Some((batch, kept)));
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
            decoder: known.decoder(&self.scan, &self.keys.filters, file)?,
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
    /// Starts to decode a row group, unless the predicate excludes all of it. It is pruned again if the predicate
    /// `may_tighten`, and filtered by the operator `keys`.
    fn start(
        &mut self,
        row_group: usize,
        access: RowGroupAccess,
        may_tighten: bool,
        batch_rows: usize,
        limit: Option<usize>,
        keys: Option<usize>,
    ) -> Result<()> {
        let access = match may_tighten && access.should_scan() {
            true => self.pruner.tightened(row_group, access),
            false => access,
        };
        let (selection, count) = match &access {
            RowGroupAccess::Skip => return Ok(()),
            RowGroupAccess::Scan => (None, self.pruner.rows(row_group)),
            RowGroupAccess::Selection(selection) => (Some(selection.clone()), selection.row_count()),
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
        let (decoder, chunks) = (self.decoder.as_ref(), &self.chunks);
        let rows = Rows { decoder, chunks, row_group, selection, count, policy, batch_rows, limit };
        self.group = Some(RowGroup::start(rows, keys)?);
        Ok(())
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
