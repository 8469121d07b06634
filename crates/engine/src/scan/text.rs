//! Divides scans of CSV, JSON lines, Arrow IPC and other formats that DataFusion opens as streams.
//!
//! These formats have no index of their bytes. A multitask gets whole files or, if records end at
//! newlines, a piece of one file. For a piece, DataFusion's opener requests the byte before it, the
//! piece, and [`END_SCAN_LOOKAHEAD`] bytes after it for the end of its last record. The read monotask
//! loads these bytes. The openers read from the job's [stores](crate::stores::JobStores), which
//! serves them from the scan's slots.
//!
//! If a record is longer than the look-ahead, the opener itself reads the rest. The trace has such
//! reads as storage operations.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::listing::{FileRange, PartitionedFile};
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion_datasource_lookahead::END_SCAN_LOOKAHEAD;
use object_store::path::Path;

use crate::execute::expressions::{Timer, timed_source};
use crate::plan::cut::Node;
use crate::scan::parquet::Division;
use crate::scan::{Need, Scan, ScanTask, Source, merge};

/// The look-ahead of DataFusion's boundary-aligned streams, which it does not re-export.
mod datafusion_datasource_lookahead {
    /// Bytes past a piece that its opener requests first.
    pub(crate) const END_SCAN_LOOKAHEAD: u64 = 16 * 1024;
}

/// Target size of a multitask's text, which decodes to about twice its size.
const PIECE_BYTES: u64 = 8 << 20;

/// Minimum size of a piece. Smaller files are not divided.
pub(crate) const MIN_PIECE_BYTES: u64 = 1 << 20;

/// Returns the file scan of a node, for any format.
pub(crate) fn file_scan(node: &Node) -> Option<&FileScanConfig> {
    node.downcast_ref::<DataSourceExec>()?.data_source().downcast_ref::<FileScanConfig>()
}

/// A divided scan.
pub(crate) struct Divided {
    /// The node that decodes it.
    pub leaf: Node,
    pub scan: Arc<Scan>,
    /// Paths of its sources, whose reads the job's store must serve from the scan.
    pub paths: Vec<Path>,
    /// Of the expressions that are computed from the columns.
    pub timers: Vec<Arc<Timer>>,
}

/// Divides the scan.
///
/// # Errors
/// Returns an error if a file cannot be opened.
pub(crate) fn divide(
    config: &FileScanConfig,
    division: Division,
    open: &dyn Fn(&PartitionedFile) -> Result<Source>,
) -> Result<Divided> {
    let groups: Vec<Vec<PartitionedFile>> = if division.pinned {
        config.file_groups.iter().map(|g| g.iter().cloned().collect()).collect()
    } else {
        pieces(config, division.min_partitions)
    };
    let mut sources = Vec::new();
    let mut paths: Vec<Path> = Vec::new();
    let mut tasks = Vec::new();
    for group in &groups {
        let mut needs: Vec<Need> = Vec::new();
        for file in group {
            let path = file.path().clone();
            let source = match paths.iter().position(|p| *p == path) {
                Some(known) => known,
                None => {
                    sources.push(open(file)?);
                    paths.push(path);
                    paths.len() - 1
                }
            };
            let range = needed_range(config, file);
            match needs.iter_mut().find(|n| n.source == source) {
                Some(need) => need.ranges = merge([need.ranges.clone(), vec![range]].concat()),
                None => needs.push(Need { source, ranges: vec![range] }),
            }
        }
        let decoded_bytes = 2 * needs.iter().map(Need::bytes).sum::<u64>();
        tasks.push(ScanTask { needs, decoded_bytes });
    }
    let groups = groups.into_iter().map(FileGroup::new).collect();
    let (source, timers) = timed_source(config.file_source())?;
    let config = FileScanConfigBuilder::from(config.clone())
        .with_source(source)
        .with_file_groups(groups)
        .with_output_partitioning(None)
        .build();
    let mut scan = Scan::new(sources, tasks);
    scan.is_arrow_ipc = config.file_source().file_type().starts_with("arrow");
    let leaf = DataSourceExec::from_data_source(config);
    Ok(Divided { leaf, scan: Arc::new(scan), paths, timers })
}

/// Returns true if records end at newlines, so that pieces of a file can be decoded independently.
fn splits(config: &FileScanConfig) -> bool {
    let source = config.file_source();
    config.file_compression_type == FileCompressionType::UNCOMPRESSED
        && source.supports_repartitioning()
        && matches!(source.file_type(), "csv" | "json")
}

/// Returns the byte range that the opener of `file` requests.
fn needed_range(config: &FileScanConfig, file: &PartitionedFile) -> Range<u64> {
    let size = file.object_meta.size;
    match &file.range {
        Some(r) if splits(config) => {
            let start = (r.start.max(0) as u64).saturating_sub(1);
            let end = (r.end.max(0) as u64).saturating_add(END_SCAN_LOOKAHEAD);
            start.min(size)..end.min(size)
        }
        _ => 0..size,
    }
}

/// Returns every file once, in order: big files in pieces if possible, small files in groups.
fn pieces(config: &FileScanConfig, min_partitions: usize) -> Vec<Vec<PartitionedFile>> {
    let mut seen = HashSet::new();
    let files: Vec<&PartitionedFile> =
        config.file_groups.iter().flat_map(|g| g.iter()).filter(|f| seen.insert(f.path().clone())).collect();
    let total: u64 = files.iter().map(|f| f.object_meta.size).sum();
    // Small inputs are divided too, so that every core has work.
    let target = (total / min_partitions.max(1) as u64).clamp(MIN_PIECE_BYTES, PIECE_BYTES);
    let mut groups: Vec<Vec<PartitionedFile>> = Vec::new();
    let mut room = 0u64;
    for file in files {
        let size = file.object_meta.size;
        let mut whole = file.clone();
        whole.range = None;
        if splits(config) && size > target {
            let n = size.div_ceil(target);
            groups.extend((0..n).map(|i| {
                let mut piece = whole.clone();
                let at = |i: u64| (u128::from(size) * u128::from(i) / u128::from(n)) as i64;
                piece.range = Some(FileRange { start: at(i), end: at(i + 1) });
                vec![piece]
            }));
            room = 0;
        } else if size <= room
            && let Some(last) = groups.last_mut()
        {
            last.push(whole);
            room -= size;
        } else {
            groups.push(vec![whole]);
            room = target.saturating_sub(size);
        }
    }
    if groups.is_empty() {
        groups.push(Vec::new());
    }
    groups
}

/// Returns true if a CSV text, which starts at a record, has a newline within quotes.
pub(crate) fn newline_in_quotes(text: &[u8]) -> bool {
    let mut inside = false;
    let mut before = b'\n';
    for &byte in text {
        match byte {
            b'"' if inside => inside = false,
            // A quote opens at the start of a field, or directly after a closing quote (an escape).
            b'"' => inside = !before.is_ascii_alphanumeric(),
            b'\n' if inside => return true,
            _ => {}
        }
        before = byte;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::newline_in_quotes;

    #[test]
    fn newlines_in_quotes_differ_from_record_ends() {
        let cases: [(&str, bool); 5] = [
            ("a,b\n1,\"x\"\n", false),
            ("a,b\n1,\"x\ny\"\n", true),
            ("a,b\n1,\"x\"\"\ny\"\n", true),
            ("size\n5\"\n6\"\n", false),
            ("a\n\"x\"\"y\"\n\"z\"\n", false),
        ];
        for (text, expected) in cases {
            assert_eq!(newline_in_quotes(text.as_bytes()), expected, "{text}");
        }
    }
}
