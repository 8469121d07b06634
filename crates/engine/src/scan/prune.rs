//! Prunes one Parquet file by a predicate, and finds the byte ranges that remain to be read.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{Result, ScalarValue};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::{
    PagePruningAccessPlanFilter, ParquetAccessPlan, RowGroupAccess, RowGroupAccessPlanFilter,
    apply_file_schema_type_coercions,
};
use datafusion::datasource::physical_plan::{FileScanConfig, ParquetFileMetrics};
use datafusion::parquet::arrow::parquet_to_arrow_schema;
use datafusion::parquet::file::metadata::ParquetMetaData;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::simplifier::PhysicalExprSimplifier;
use datafusion::physical_expr_adapter::{DefaultPhysicalExprAdapterFactory, replace_columns_with_literals};
use datafusion::physical_optimizer::pruning::build_pruning_predicate;
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet};

use crate::scan::merge;

/// The pruner of one file.
pub(crate) struct Pruner {
    metadata: Arc<ParquetMetaData>,
    /// Schema of the predicate.
    schema: SchemaRef,
    predicate: Option<Arc<dyn PhysicalExpr>>,
    /// Decoded leaf columns of the file, with the size of a decoded value if it is fixed.
    leaves: Vec<(usize, Option<usize>)>,
}

/// Size of a string view, which each decoded string has in addition to its characters.
const VIEW_BYTES: u64 = 16;

impl Pruner {
    pub(crate) fn new(
        config: &FileScanConfig,
        file: &PartitionedFile,
        metadata: &Arc<ParquetMetaData>,
        predicate: Option<Arc<dyn PhysicalExpr>>,
        columns: &[usize],
    ) -> Result<Self> {
        let table = config.file_schema();
        let descriptor = metadata.file_metadata().schema_descr();
        let in_file = parquet_to_arrow_schema(descriptor, metadata.file_metadata().key_value_metadata())?;
        let in_file = match apply_file_schema_type_coercions(table, &in_file) {
            Some(coerced) => Arc::new(coerced),
            None => Arc::new(in_file),
        };
        let names: Vec<&str> =
            columns.iter().filter_map(|&c| table.fields().get(c)).map(|f| f.name().as_str()).collect();
        let wanted = |leaf: usize| {
            let root = descriptor.get_column_root(leaf);
            let field = in_file.field_with_name(root.name()).ok();
            let width = field.and_then(|f| f.data_type().primitive_width());
            names.contains(&root.name()).then_some((leaf, width))
        };
        let leaves = (0..descriptor.num_columns()).filter_map(wanted).collect();
        let predicate = predicate.map(|p| adapt(p, config, file, &in_file)).transpose()?;
        Ok(Self { metadata: Arc::clone(metadata), schema: in_file, predicate, leaves })
    }

    /// Prunes `plan` by the predicate. Without a `plan`, it prunes all row groups that start in
    /// `range`, or all row groups of the file.
    pub(crate) fn access(
        &self,
        range: Option<Range<i64>>,
        plan: Option<ParquetAccessPlan>,
    ) -> ParquetAccessPlan {
        let groups = self.metadata.row_groups();
        let plan = plan.unwrap_or_else(|| ParquetAccessPlan::new_all(groups.len()));
        let mut filter = RowGroupAccessPlanFilter::new(plan);
        if let Some(range) = range {
            let range = datafusion::datasource::listing::FileRange { start: range.start, end: range.end };
            filter.prune_by_range(groups, &range);
        }
        let Some(predicate) = &self.predicate else { return filter.build() };
        let metrics = ParquetFileMetrics::new(0, "", &ExecutionPlanMetricsSet::new());
        let descriptor = self.metadata.file_metadata().schema_descr();
        if let Some(pruning) = build_pruning_predicate(Arc::clone(predicate), &self.schema, &Count::new()) {
            filter.prune_by_statistics(&self.schema, descriptor, groups, &pruning, &metrics);
        }
        let plan = filter.build();
        if plan.is_empty() {
            return plan;
        }
        PagePruningAccessPlanFilter::new(predicate, Arc::clone(&self.schema)).prune_plan_with_page_index(
            plan,
            &self.schema,
            descriptor,
            &self.metadata,
            &metrics,
        )
    }

    /// Estimates the decoded size of a row group. Dictionary encoding makes it larger than the size
    /// in the file.
    pub(crate) fn decoded_bytes(&self, row_group: usize) -> u64 {
        let group = self.metadata.row_group(row_group);
        let rows = group.num_rows().max(0) as u64;
        let size = |&(leaf, width): &(usize, Option<usize>)| match width {
            Some(width) => rows * width as u64,
            None => (rows * VIEW_BYTES).max(group.column(leaf).uncompressed_size().max(0) as u64),
        };
        self.leaves.iter().map(size).sum()
    }

    /// Prunes one row group again, by a predicate that may exclude more rows than before.
    pub(crate) fn tightened(&self, row_group: usize, access: RowGroupAccess) -> RowGroupAccess {
        let mut plan = ParquetAccessPlan::new_none(self.metadata.num_row_groups());
        plan.set(row_group, access);
        self.access(None, Some(plan)).into_inner().swap_remove(row_group)
    }

    /// Returns the byte ranges that decoding `plan` needs.
    pub(crate) fn ranges(&self, plan: &ParquetAccessPlan) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        for (row_group, access) in plan.inner().iter().enumerate() {
            for &(leaf, _) in &self.leaves {
                self.leaf_ranges(row_group, access, leaf, &mut |range| ranges.push(range));
            }
        }
        merge(ranges)
    }

    /// Returns the number of bytes that decoding a leaf column of a row group needs.
    pub(crate) fn leaf_bytes(&self, row_group: usize, access: &RowGroupAccess, leaf: usize) -> u64 {
        let mut bytes = 0;
        self.leaf_ranges(row_group, access, leaf, &mut |range| {
            bytes += range.end.saturating_sub(range.start)
        });
        bytes
    }

    fn leaf_ranges(
        &self,
        row_group: usize,
        access: &RowGroupAccess,
        leaf: usize,
        each: &mut dyn FnMut(Range<u64>),
    ) {
        let chunk = self.chunk(row_group, leaf);
        let selection = match access {
            RowGroupAccess::Skip => return,
            RowGroupAccess::Scan => return each(chunk),
            RowGroupAccess::Selection(selection) => selection,
        };
        let pages = self.metadata.offset_index().map(|index| index[row_group][leaf].page_locations());
        match pages.filter(|pages| !pages.is_empty()) {
            Some(pages) => {
                // A dictionary page precedes the first data page.
                each(chunk.start..(pages[0].offset as u64).max(chunk.start));
                selection.scan_ranges(pages).into_iter().for_each(each);
            }
            None => each(chunk),
        }
    }

    /// Returns rows at which a row group may be split into about `parts` parts. Pages of the largest
    /// column start there, so that few pages are decoded on both sides. Empty without a page index.
    pub(crate) fn cuts(&self, row_group: usize, parts: u64) -> Vec<usize> {
        let group = self.metadata.row_group(row_group);
        let rows = group.num_rows().max(0) as u64;
        let largest = self.leaves.iter().max_by_key(|(l, _)| group.column(*l).uncompressed_size());
        let Some((index, &(leaf, _))) = self.metadata.offset_index().zip(largest) else { return Vec::new() };
        let begins: Vec<u64> =
            index[row_group][leaf].page_locations().iter().map(|p| p.first_row_index.max(0) as u64).collect();
        let nearest = |row: u64| begins.iter().copied().min_by_key(|b| b.abs_diff(row));
        let mut cuts: Vec<usize> =
            (1..parts).filter_map(|i| nearest(rows * i / parts)).map(|row| row as usize).collect();
        cuts.dedup();
        cuts.retain(|&row| row > 0 && (row as u64) < rows);
        cuts
    }

    /// Returns the number of rows of a row group.
    pub(crate) fn rows(&self, row_group: usize) -> usize {
        self.metadata.row_group(row_group).num_rows().max(0) as usize
    }

    fn chunk(&self, row_group: usize, leaf: usize) -> Range<u64> {
        let (start, len) = self.metadata.row_group(row_group).column(leaf).byte_range();
        start..start + len
    }
}

/// Rewrites the predicate to the file's own schema, as DataFusion's opener does.
fn adapt(
    mut predicate: Arc<dyn PhysicalExpr>,
    config: &FileScanConfig,
    file: &PartitionedFile,
    in_file: &SchemaRef,
) -> Result<Arc<dyn PhysicalExpr>> {
    let literals: HashMap<String, ScalarValue> = config
        .table_partition_cols()
        .iter()
        .zip(&file.partition_values)
        .map(|(field, value)| (field.name().clone(), value.clone()))
        .collect();
    if !literals.is_empty() {
        predicate = replace_columns_with_literals(predicate, &literals)?;
    }
    if config.file_schema() == in_file {
        return Ok(predicate);
    }
    let factory =
        config.expr_adapter_factory.clone().unwrap_or_else(|| Arc::new(DefaultPhysicalExprAdapterFactory));
    let adapter = factory.create(Arc::clone(config.file_schema()), Arc::clone(in_file))?;
    PhysicalExprSimplifier::new(in_file).simplify(adapter.rewrite(predicate)?)
}
