//! Parquet scans: which row groups and pages a multitask reads, and how it decodes them.
//!
//! Row groups are pruned by their statistics, pages by the page index, both against the
//! scan's predicate, which by then holds what the build sides know ([`crate::keys`]).
//! Filters that tighten while the stage runs (TopK) prune again when a multitask is
//! admitted. DataFusion's opener then decodes from memory, with the metadata that
//! planning read; it prunes by the same rules, so that it never asks for more.
//!
//! Bloom filters are not used: reading one is an I/O in the middle of a decision.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::{
    PagePruningAccessPlanFilter, ParquetAccessPlan, RowGroupAccess, RowGroupAccessPlanFilter,
    apply_file_schema_type_coercions,
};
use datafusion::datasource::physical_plan::{
    FileGroup, FileScanConfig, FileScanConfigBuilder, FileSource, ParquetFileMetrics,
    ParquetFileReaderFactory, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::parquet::arrow::arrow_reader::ArrowReaderOptions;
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::arrow::parquet_to_arrow_schema;
use datafusion::parquet::errors::{ParquetError, Result as ParquetResult};
use datafusion::parquet::file::metadata::ParquetMetaData;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::simplifier::PhysicalExprSimplifier;
use datafusion::physical_expr_adapter::{
    DefaultPhysicalExprAdapterFactory, PhysicalExprAdapterFactory, replace_columns_with_literals,
};
use datafusion::physical_optimizer::pruning::build_pruning_predicate;
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet};
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::cut::Node;
use crate::scan::{MULTITASK_BYTES, Need, Scan, ScanTask, Source, merge};

/// Metadata of the job's Parquet files, by location.
pub(crate) type Metadata = HashMap<String, Arc<ParquetMetaData>>;

/// A Parquet scan node, its parts at hand.
pub(crate) struct ParquetScan<'a> {
    pub config: &'a FileScanConfig,
    pub source: &'a ParquetSource,
}

impl<'a> ParquetScan<'a> {
    pub(crate) fn of(node: &'a Node) -> Option<Self> {
        let exec = node.downcast_ref::<DataSourceExec>()?;
        let (config, source) = exec.downcast_to_file_source::<ParquetSource>()?;
        Some(Self { config, source })
    }

    /// Every file once, in the order of the groups.
    fn files(&self) -> Vec<PartitionedFile> {
        let mut seen = std::collections::HashSet::new();
        let all = self.config.file_groups.iter().flat_map(|g| g.iter());
        all.filter(|f| seen.insert(f.path().clone())).cloned().collect()
    }
}

/// How a scan may be divided.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Division {
    /// The planned partitions must stay as they are.
    pub pinned: bool,
    /// At least this many multitasks, where there are as many row groups.
    pub at_least: usize,
}

/// A piece of a file: a row group with its access, or all of a file that has none left.
struct Piece {
    file: usize,
    row_group: Option<usize>,
    access: RowGroupAccess,
    decoded_bytes: u64,
}

/// Divides the scan and returns the node that decodes it from memory.
///
/// `open` turns a file of the scan into a source.
///
/// # Errors
/// A file that cannot be opened, or whose metadata was not read.
pub(crate) fn divide(
    scan: &ParquetScan<'_>,
    division: Division,
    metadata: &Metadata,
    open: &dyn Fn(&PartitionedFile) -> Result<Source>,
) -> Result<(Node, Arc<Scan>)> {
    let groups: Vec<Vec<PartitionedFile>> = if division.pinned {
        scan.config.file_groups.iter().map(|g| g.iter().cloned().collect()).collect()
    } else {
        vec![scan.files()]
    };
    let mut planner = Planner::new(scan, metadata)?;
    let mut file_groups = Vec::new();
    let mut tasks = Vec::new();
    for files in groups {
        let first = planner.files.len();
        for file in &files {
            planner.add(file, open)?;
        }
        let pieces = planner.pieces(first, division.pinned)?;
        let bundles = if division.pinned { vec![pieces] } else { bundle(pieces, division.at_least) };
        for bundle in bundles {
            let (group, task) = planner.task(&bundle);
            file_groups.push(group);
            tasks.push(task);
        }
    }
    Ok(planner.finish(scan, file_groups, tasks))
}

/// Consecutive pieces of about [`MULTITASK_BYTES`], so that there are at least `at_least`
/// multitasks where there are as many pieces.
fn bundle(pieces: Vec<Piece>, at_least: usize) -> Vec<Vec<Piece>> {
    let total: u64 = pieces.iter().map(|p| p.decoded_bytes).sum();
    let count = (total / MULTITASK_BYTES).max(at_least as u64).min(pieces.len() as u64).max(1);
    let mut bundles: Vec<Vec<Piece>> = vec![Vec::new()];
    let mut before = 0u64;
    for piece in pieces {
        let full = before * count >= total * bundles.len() as u64;
        let last = bundles.len() - 1;
        if full && !bundles[last].is_empty() && (bundles.len() as u64) < count {
            bundles.push(Vec::new());
        }
        before += piece.decoded_bytes;
        if let Some(last) = bundles.last_mut() {
            last.push(piece);
        }
    }
    bundles
}

/// One file of the scan.
struct ScanFile {
    file: PartitionedFile,
    metadata: Arc<ParquetMetaData>,
    pruner: Arc<Pruner>,
}

struct Planner<'a> {
    metadata: &'a Metadata,
    config: &'a FileScanConfig,
    predicate: Option<Arc<dyn PhysicalExpr>>,
    /// Columns of the file schema that are decoded.
    columns: Vec<usize>,
    files: Vec<ScanFile>,
    sources: Vec<Source>,
}

impl<'a> Planner<'a> {
    fn new(scan: &ParquetScan<'a>, metadata: &'a Metadata) -> Result<Self> {
        let columns = match scan.source.projection() {
            Some(p) => p.column_indices(),
            None => (0..scan.config.file_schema().fields().len()).collect(),
        };
        let predicate = scan.source.filter();
        Ok(Self { metadata, config: scan.config, predicate, columns, files: Vec::new(), sources: Vec::new() })
    }

    fn add(
        &mut self,
        file: &PartitionedFile,
        open: &dyn Fn(&PartitionedFile) -> Result<Source>,
    ) -> Result<()> {
        let metadata =
            self.metadata.get(file.path().as_ref()).cloned().ok_or_else(|| {
                DataFusionError::Internal(format!("metadata of {} was not read", file.path()))
            })?;
        let pruner = Pruner::new(self.config, file, &metadata, self.predicate.clone(), &self.columns)?;
        self.sources.push(open(file)?);
        self.files.push(ScanFile { file: file.clone(), metadata, pruner: Arc::new(pruner) });
        Ok(())
    }

    /// What is left of the files from `first` on after pruning.
    fn pieces(&self, first: usize, ranged: bool) -> Result<Vec<Piece>> {
        let mut pieces = Vec::new();
        let mut rows_left = self.config.limit.filter(|_| self.predicate.is_none());
        for (index, f) in self.files.iter().enumerate().skip(first) {
            let range = f.file.range.as_ref().filter(|_| ranged);
            let plan = f.pruner.access(range.map(|r| r.start..r.end), None);
            for (row_group, access) in plan.into_inner().into_iter().enumerate() {
                if !access.should_scan() || rows_left == Some(0) {
                    continue;
                }
                let group = f.metadata.row_group(row_group);
                rows_left = rows_left.map(|n| n.saturating_sub(group.num_rows().max(0) as usize));
                let decoded_bytes = f.pruner.decoded_bytes(row_group);
                pieces.push(Piece { file: index, row_group: Some(row_group), access, decoded_bytes });
            }
        }
        if pieces.is_empty() && first < self.files.len() {
            // A multitask that reads nothing still ends the stage.
            let access = RowGroupAccess::Skip;
            pieces.push(Piece { file: first, row_group: None, access, decoded_bytes: 0 });
        }
        Ok(pieces)
    }

    /// One multitask out of `pieces`.
    fn task(&self, pieces: &[Piece]) -> (FileGroup, ScanTask) {
        let mut files: Vec<(usize, ParquetAccessPlan)> = Vec::new();
        for piece in pieces {
            if files.last().is_none_or(|(f, _)| *f != piece.file) {
                let n = self.files[piece.file].metadata.num_row_groups();
                files.push((piece.file, ParquetAccessPlan::new_none(n)));
            }
            if let (Some((_, plan)), Some(row_group)) = (files.last_mut(), piece.row_group) {
                plan.set(row_group, piece.access.clone());
            }
        }
        let needs = files
            .iter()
            .map(|(f, plan)| Need { source: *f, ranges: self.files[*f].pruner.ranges(plan) })
            .collect();
        let group = files.into_iter().map(|(f, plan)| {
            let mut file = self.files[f].file.clone();
            file.range = None;
            file.with_extension(plan)
        });
        let group = FileGroup::new(group.collect());
        (group, ScanTask { needs, decoded_bytes: pieces.iter().map(|p| p.decoded_bytes).sum() })
    }

    fn finish(
        self,
        scan: &ParquetScan<'_>,
        groups: Vec<FileGroup>,
        tasks: Vec<ScanTask>,
    ) -> (Node, Arc<Scan>) {
        let by_path: HashMap<String, (usize, Arc<ParquetMetaData>)> = self
            .files
            .iter()
            .enumerate()
            .map(|(i, f)| (f.file.path().to_string(), (i, Arc::clone(&f.metadata))))
            .collect();
        let dynamic = self.predicate.as_ref().is_some_and(is_dynamic);
        let mut memory = Scan::new(self.sources, tasks);
        if dynamic {
            memory.replan = Some(replan(&self.files, &groups));
        }
        let memory = Arc::new(memory);
        let factory = Arc::new(MemoryReaders { scan: Arc::clone(&memory), by_path });
        let source =
            scan.source.clone().with_parquet_file_reader_factory(factory).with_bloom_filter_on_read(false);
        let config = FileScanConfigBuilder::from(scan.config.clone())
            .with_source(Arc::new(source))
            .with_file_groups(groups)
            .with_output_partitioning(None)
            .build();
        (DataSourceExec::from_data_source(config), memory)
    }
}

/// Plans a multitask's needs again, with the predicate as it is by then.
fn replan(files: &[ScanFile], groups: &[FileGroup]) -> Box<dyn Fn(usize) -> Vec<Need> + Send + Sync> {
    let index: HashMap<String, usize> =
        files.iter().enumerate().map(|(i, f)| (f.file.path().to_string(), i)).collect();
    let pruners: Vec<Arc<Pruner>> = files.iter().map(|f| Arc::clone(&f.pruner)).collect();
    let plans: Vec<Vec<(usize, ParquetAccessPlan)>> = groups
        .iter()
        .map(|g| {
            g.iter()
                .filter_map(|f| {
                    Some((*index.get(f.path().as_ref())?, f.extension::<ParquetAccessPlan>()?.clone()))
                })
                .collect()
        })
        .collect();
    Box::new(move |task| {
        let need = |(source, plan): &(usize, ParquetAccessPlan)| {
            let pruner = &pruners[*source];
            Need { source: *source, ranges: pruner.ranges(&pruner.access(None, Some(plan.clone()))) }
        };
        plans[task].iter().map(need).collect()
    })
}

/// True where `predicate` holds a filter that may still change.
fn is_dynamic(predicate: &Arc<dyn PhysicalExpr>) -> bool {
    use datafusion::physical_expr_common::physical_expr::snapshot_generation;
    snapshot_generation(predicate) != 0
}

/// Prunes one file and knows which bytes an access plan of it needs.
struct Pruner {
    metadata: Arc<ParquetMetaData>,
    /// Schema that the predicate is in.
    schema: SchemaRef,
    predicate: Option<Arc<dyn PhysicalExpr>>,
    /// Leaf columns of the file that are decoded.
    leaves: Vec<usize>,
}

impl Pruner {
    fn new(
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
            names.contains(&root.name())
        };
        let leaves = (0..descriptor.num_columns()).filter(|&l| wanted(l)).collect();
        let predicate = predicate.map(|p| adapt(p, config, file, &in_file)).transpose()?;
        Ok(Self { metadata: Arc::clone(metadata), schema: in_file, predicate, leaves })
    }

    /// What the predicate leaves of `plan` (default: of the row groups that begin in `range`,
    /// default: of all).
    fn access(&self, range: Option<Range<i64>>, plan: Option<ParquetAccessPlan>) -> ParquetAccessPlan {
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

    fn decoded_bytes(&self, row_group: usize) -> u64 {
        let group = self.metadata.row_group(row_group);
        self.leaves.iter().map(|&l| group.column(l).uncompressed_size().max(0) as u64).sum()
    }

    /// The bytes that decoding `plan` asks for.
    fn ranges(&self, plan: &ParquetAccessPlan) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        for (row_group, access) in plan.inner().iter().enumerate() {
            match access {
                RowGroupAccess::Skip => {}
                RowGroupAccess::Scan => ranges.extend(self.leaves.iter().map(|&l| self.chunk(row_group, l))),
                RowGroupAccess::Selection(selection) => {
                    for &leaf in &self.leaves {
                        let pages = self.metadata.offset_index().map(|i| i[row_group][leaf].page_locations());
                        match pages.filter(|p| !p.is_empty()) {
                            Some(pages) => {
                                let chunk = self.chunk(row_group, leaf);
                                // The dictionary, where there is one, stands before the first page.
                                ranges.push(chunk.start..(pages[0].offset as u64).max(chunk.start));
                                ranges.extend(selection.scan_ranges(pages));
                            }
                            None => ranges.push(self.chunk(row_group, leaf)),
                        }
                    }
                }
            }
        }
        merge(ranges)
    }

    fn chunk(&self, row_group: usize, leaf: usize) -> Range<u64> {
        let (start, len) = self.metadata.row_group(row_group).column(leaf).byte_range();
        start..start + len
    }
}

/// The predicate in terms of the file's own schema, as DataFusion's opener does it.
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

/// Readers that find their bytes in the scan's slots.
#[derive(Debug)]
struct MemoryReaders {
    scan: Arc<Scan>,
    by_path: HashMap<String, (usize, Arc<ParquetMetaData>)>,
}

impl ParquetFileReaderFactory for MemoryReaders {
    fn create_reader(
        &self,
        partition_index: usize,
        file: PartitionedFile,
        _metadata_size_hint: Option<usize>,
        _metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let (source, metadata) =
            self.by_path.get(file.path().as_ref()).cloned().ok_or_else(|| {
                DataFusionError::Internal(format!("{} is not part of the scan", file.path()))
            })?;
        let scan = Arc::clone(&self.scan);
        Ok(Box::new(MemoryReader {
            scan,
            task: partition_index,
            source,
            metadata,
            path: file.path().to_string(),
        }))
    }
}

struct MemoryReader {
    scan: Arc<Scan>,
    task: usize,
    source: usize,
    metadata: Arc<ParquetMetaData>,
    path: String,
}

impl MemoryReader {
    fn get(&self, range: &Range<u64>) -> ParquetResult<Bytes> {
        self.scan.get(self.task, self.source, range).ok_or_else(|| {
            self.scan.missed_bytes.fetch_add(range.end - range.start, Ordering::Relaxed);
            ParquetError::General(format!(
                "{}: bytes {} to {} were not read beforehand; please report this with the query and the file's metadata",
                self.path, range.start, range.end
            ))
        })
    }
}

impl AsyncFileReader for MemoryReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        let bytes = self.get(&range);
        async move { bytes }.boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, ParquetResult<Vec<Bytes>>> {
        let bytes = ranges.iter().map(|r| self.get(r)).collect();
        async move { bytes }.boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        let metadata = Arc::clone(&self.metadata);
        async move { Ok(metadata) }.boxed()
    }
}
