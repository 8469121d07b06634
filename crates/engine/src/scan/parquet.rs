//! Divides Parquet scans into multitasks and decodes their row groups and pages from memory.
//!
//! Row groups are pruned by their statistics and pages by the page index. The predicate includes the
//! filters of finished build sides ([`crate::scan::dynamic_filter`]). Filters that tighten while the stage
//! runs (TopK) prune again when a multitask is admitted. The scan then decodes from memory, column by
//! column ([`crate::scan::columns`]) or by DataFusion's opener, with the metadata that planning read.
//! Both prune by the same rules, so they never need other bytes.
//!
//! Bloom filters are not used: pruning would then need I/O.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::{ParquetAccessPlan, RowGroupAccess};
use datafusion::datasource::physical_plan::{
    FileGroup, FileScanConfig, FileScanConfigBuilder, FileSource, ParquetFileReaderFactory, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::parquet::arrow::arrow_reader::{ArrowReaderOptions, RowSelection, RowSelector};
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::errors::{ParquetError, Result as ParquetResult};
use datafusion::parquet::file::metadata::ParquetMetaData;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::DynamicFilterTracking;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::FutureExt;
use futures::future::BoxFuture;
use pellucid_trace::guard::guarded;

use crate::execute::expressions::Timer;
use crate::plan::cut::Node;
use crate::scan::columns::{self, ColumnsExec};
use crate::scan::decoder::{ColumnFile, ColumnScan};
use crate::scan::prune::Pruner;
use crate::scan::{Need, Scan, ScanTask, Source, damaged, not_read};
use crate::stores::in_store;

/// Metadata of the job's Parquet files, by name from [`in_store`].
pub(crate) type Metadata = HashMap<String, Arc<ParquetMetaData>>;

/// The parts of a Parquet scan node.
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

    /// Returns every file once, in the order of the groups.
    fn files(&self) -> Vec<PartitionedFile> {
        let mut seen = std::collections::HashSet::new();
        let all = self.config.file_groups.iter().flat_map(|g| g.iter());
        all.filter(|f| seen.insert(f.path().clone())).cloned().collect()
    }
}

/// The rules for dividing a scan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Division {
    /// True if the planned partitions must not change.
    pub pinned: bool,
    /// Minimum number of multitasks, if the files have enough row groups or pages.
    pub min_partitions: usize,
    /// Decoded size of a multitask, at most [`crate::scan::MULTITASK_BYTES`].
    pub max_bytes: u64,
    /// True if the row groups of a Parquet file are decoded in the order of the file.
    pub in_order: bool,
}

/// Minimum decoded size of a piece. Starting a smaller one costs more than sharing its work gains.
const MIN_PIECE_BYTES: u64 = 1 << 20;

/// A piece of a file: a row group with its access, or a file whose row groups are all pruned.
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
/// Returns an error if a file cannot be opened, or its metadata was not read.
pub(crate) fn divide(
    scan: &ParquetScan<'_>,
    division: Division,
    metadata: &Metadata,
    open: &dyn Fn(&PartitionedFile) -> Result<Source>,
) -> Result<(Node, Arc<Scan>)> {
    // The Parquet library panics on some damaged footers and page indexes.
    guarded(|| Ok(divide_intact(scan, division, metadata, open))).unwrap_or_else(|_| {
        let names: Vec<_> = scan.files().iter().take(3).map(|file| format!("/{}", file.path())).collect();
        Err(damaged(&names.join(" or "), "its footer or page index is malformed"))
    })
}

fn divide_intact(
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
        let bundles =
            if division.pinned { vec![pieces] } else { bundle(planner.split(pieces, division), division) };
        for bundle in bundles {
            let (group, task) = planner.task(&bundle);
            file_groups.push(group);
            tasks.push(task);
        }
    }
    Ok(planner.finish(scan, division, file_groups, tasks))
}

/// Groups consecutive pieces into multitasks of about the size of a division. Returns at least as many groups as it wants
/// if there are as many pieces.
fn bundle(pieces: Vec<Piece>, division: Division) -> Vec<Vec<Piece>> {
    let total: u64 = pieces.iter().map(|p| p.decoded_bytes).sum();
    let wanted = (total / division.max_bytes.max(1)).max(division.min_partitions as u64);
    let count = wanted.min(pieces.len() as u64).max(1);
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

/// One file of the scan, or one planned range of it.
struct ScanFile {
    file: PartitionedFile,
    /// Index of the source, which ranges of one file share.
    source: usize,
    metadata: Arc<ParquetMetaData>,
    pruner: Arc<Pruner>,
}

/// Plans the multitasks of one scan.
struct Planner<'a> {
    metadata: &'a Metadata,
    config: &'a FileScanConfig,
    predicate: Option<Arc<dyn PhysicalExpr>>,
    /// Indices of the decoded columns in the file schema.
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
        let metadata = self
            .metadata
            .get(&in_store(self.config.object_store_url.as_ref(), file.path()))
            .cloned()
            .ok_or_else(|| DataFusionError::Internal(format!("metadata of {} was not read", file.path())))?;
        let size = file.object_meta.size;
        let chunks = metadata.row_groups().iter().flat_map(|group| group.columns());
        if let Some((start, length)) = chunks
            .map(|chunk| chunk.byte_range())
            .find(|&(start, length)| start.checked_add(length).is_none_or(|end| end > size))
        {
            let why = format!("its footer claims {length} bytes at byte {start} of {size}");
            return Err(damaged(&format!("/{}", file.path()), &why));
        }
        let pruner = Pruner::new(self.config, file, &metadata, self.predicate.clone(), &self.columns)?;
        let source = match self.files.iter().find(|f| f.file.path() == file.path()) {
            Some(known) => known.source,
            None => {
                self.sources.push(open(file)?);
                self.sources.len() - 1
            }
        };
        self.files.push(ScanFile { file: file.clone(), source, metadata, pruner: Arc::new(pruner) });
        Ok(())
    }

    /// Returns the pieces of the files from index `first` on that pruning leaves.
    fn pieces(&self, first: usize, ranged: bool) -> Result<Vec<Piece>> {
        let mut pieces = Vec::new();
        let mut rows_left = self.config.limit.filter(|_| self.predicate.is_none());
        for (index, f) in self.files.iter().enumerate().skip(first) {
            let range = f.file.range.as_ref().filter(|_| ranged);
            // The rows of a table's file that were not deleted.
            let undeleted = f.file.extension::<ParquetAccessPlan>().cloned();
            let plan = f.pruner.access(range.map(|r| r.start..r.end), undeleted);
            for (row_group, access) in plan.into_inner().into_iter().enumerate() {
                if !access.should_scan() || rows_left == Some(0) {
                    continue;
                }
                let rows = match &access {
                    RowGroupAccess::Selection(selection) => selection.row_count(),
                    RowGroupAccess::Scan | RowGroupAccess::Skip => f.pruner.rows(row_group),
                };
                rows_left = rows_left.map(|n| n.saturating_sub(rows));
                let decoded_bytes = f.pruner.decoded_bytes(row_group);
                pieces.push(Piece { file: index, row_group: Some(row_group), access, decoded_bytes });
            }
        }
        if pieces.is_empty() && first < self.files.len() {
            // A stage needs at least one multitask to end.
            let access = RowGroupAccess::Skip;
            pieces.push(Piece { file: first, row_group: None, access, decoded_bytes: 0 });
        }
        Ok(pieces)
    }

    /// Splits row groups that are much larger than a multitask should be, or too few to keep all
    /// cores busy.
    fn split(&self, pieces: Vec<Piece>, division: Division) -> Vec<Piece> {
        let total: u64 = pieces.iter().map(|p| p.decoded_bytes).sum();
        let max_bytes = division.max_bytes.max(MIN_PIECE_BYTES);
        let target = (total / division.min_partitions.max(1) as u64).clamp(MIN_PIECE_BYTES, max_bytes);
        let mut split = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let parts = (piece.decoded_bytes + target / 2) / target;
            let row_group = piece.row_group.filter(|_| parts > 1 && piece.access == RowGroupAccess::Scan);
            let Some(row_group) = row_group else {
                split.push(piece);
                continue;
            };
            let pruner = &self.files[piece.file].pruner;
            let rows = pruner.rows(row_group);
            let mut from = 0;
            for to in pruner.cuts(row_group, parts).into_iter().chain([rows]) {
                let selectors =
                    [RowSelector::skip(from), RowSelector::select(to - from), RowSelector::skip(rows - to)];
                let whole = from == 0 && to == rows;
                split.push(Piece {
                    file: piece.file,
                    row_group: Some(row_group),
                    access: match whole {
                        true => RowGroupAccess::Scan,
                        false => RowGroupAccess::Selection(RowSelection::from_iter(selectors)),
                    },
                    decoded_bytes: piece.decoded_bytes * (to - from) as u64 / rows.max(1) as u64,
                });
                from = to;
            }
        }
        split
    }

    /// Builds one multitask from `pieces`.
    fn task(&self, pieces: &[Piece]) -> (FileGroup, ScanTask) {
        let mut files: Vec<(usize, ParquetAccessPlan)> = Vec::new();
        for piece in pieces {
            if files.last().is_none_or(|(f, _)| *f != piece.file) {
                let n = self.files[piece.file].metadata.num_row_groups();
                files.push((piece.file, ParquetAccessPlan::new_none(n)));
            }
            if let (Some((_, plan)), Some(row_group)) = (files.last_mut(), piece.row_group) {
                let access = match (&plan.inner()[row_group], &piece.access) {
                    // Two parts of one row group.
                    (RowGroupAccess::Selection(a), RowGroupAccess::Selection(b)) => {
                        RowGroupAccess::Selection(a.union(b))
                    }
                    (_, access) => access.clone(),
                };
                plan.set(row_group, access);
            }
        }
        let needs = files
            .iter()
            .map(|(f, plan)| Need {
                source: self.files[*f].source,
                ranges: self.files[*f].pruner.ranges(plan),
            })
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
        division: Division,
        groups: Vec<FileGroup>,
        tasks: Vec<ScanTask>,
    ) -> (Node, Arc<Scan>) {
        let may_tighten = self.predicate.as_ref().is_some_and(may_tighten);
        let mut memory = Scan::new(self.sources, tasks);
        if may_tighten {
            memory.replan = Some(replan(&self.files, &groups));
        }
        let memory = Arc::new(memory);
        let by_path: HashMap<String, (usize, Arc<ParquetMetaData>)> = self
            .files
            .iter()
            .map(|f| (f.file.path().to_string(), (f.source, Arc::clone(&f.metadata))))
            .collect();
        let factory = Arc::new(MemoryReaders { scan: Arc::clone(&memory), by_path });
        let source =
            scan.source.clone().with_parquet_file_reader_factory(factory).with_bloom_filter_on_read(false);
        let config = FileScanConfigBuilder::from(scan.config.clone())
            .with_source(Arc::new(source))
            .with_file_groups(groups)
            .with_output_partitioning(None)
            .build();
        let node = DataSourceExec::from_data_source(config.clone());
        let by_column =
            scan.source.projection().filter(|_| division.in_order && columns::applies(scan.source));
        let Some(projection) = by_column else { return (node, memory) };
        let file = |f: ScanFile| {
            let path = f.file.path().to_string();
            (path, ColumnFile::new(f.source, f.metadata, f.pruner))
        };
        let columns = ColumnScan {
            scan: Arc::clone(&memory),
            config,
            projection: projection.clone(),
            timers: projection.iter().map(|projected| Timer::of(&projected.expr)).collect(),
            int96: columns::int96(scan.source),
            files: self.files.into_iter().map(file).collect(),
            may_tighten,
        };
        (ColumnsExec::in_place_of(node.as_ref(), columns), memory)
    }
}

/// Returns a function that plans a multitask's reads again with the current predicate.
fn replan(files: &[ScanFile], groups: &[FileGroup]) -> Box<dyn Fn(usize) -> Vec<Need> + Send + Sync> {
    let by_path: HashMap<String, (usize, Arc<Pruner>)> =
        files.iter().map(|f| (f.file.path().to_string(), (f.source, Arc::clone(&f.pruner)))).collect();
    let part = |file: &PartitionedFile| {
        let (source, pruner) = by_path.get(file.path().as_ref())?;
        Some((*source, Arc::clone(pruner), file.extension::<ParquetAccessPlan>()?.clone()))
    };
    let plans: Vec<Vec<_>> = groups.iter().map(|g| g.iter().filter_map(part).collect()).collect();
    Box::new(move |task| {
        let need = |(source, pruner, plan): &(usize, Arc<Pruner>, ParquetAccessPlan)| Need {
            source: *source,
            ranges: pruner.ranges(&pruner.access(None, Some(plan.clone()))),
        };
        plans[task].iter().map(need).collect()
    })
}

/// Returns true if `predicate` contains a filter that may still change. Those of build sides are complete.
pub(crate) fn may_tighten(predicate: &Arc<dyn PhysicalExpr>) -> bool {
    matches!(DynamicFilterTracking::classify(predicate), DynamicFilterTracking::Watching(_))
}

/// A factory of readers that get their bytes from the scan's slots.
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
        let bytes = self.scan.get(self.task, self.source, range);
        bytes.ok_or_else(|| ParquetError::General(not_read(&self.path, range)))
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
