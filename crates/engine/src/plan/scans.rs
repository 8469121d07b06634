//! The Parquet scans of a plan, for advice on how tables are stored.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::{ParquetAccessPlan, RowGroupAccess};
use datafusion::datasource::physical_plan::{FileScanConfig, FileSource};
use datafusion::parquet::file::metadata::ParquetMetaData;
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, conjunction, split_conjunction};
use pellucid_trace::guard::guarded;

use crate::EngineError;
use crate::plan::cut::{StagePlan, key};
use crate::plan::operators::Operators;
use crate::scan::damaged;
use crate::scan::parquet::ParquetScan;
use crate::scan::prune::Pruner;

/// A Parquet scan of a query.
pub struct PlannedScan {
    /// Number of its operator, as in the trace of the query.
    pub operator: u32,
    /// Name of its operator.
    pub name: String,
    /// Its files, each once.
    pub files: Vec<PathBuf>,
    /// Columns of the files, with the types that they are decoded to.
    pub schema: SchemaRef,
    /// Columns that are decoded.
    pub columns: Vec<String>,
    /// The filter by which row groups and pages are pruned, without the keys of joins.
    pub filter: Option<String>,
    /// Columns of the filter.
    pub filter_columns: Vec<String>,
    /// The reason why the table cannot be rewritten as Parquet files, if there is one.
    pub obstacle: Option<&'static str>,
    config: FileScanConfig,
    predicate: Option<Arc<dyn PhysicalExpr>>,
}

impl PlannedScan {
    /// Returns the rows of each row group of a file that the filter's pruning leaves. The file may have fewer columns than
    /// the table.
    ///
    /// # Errors
    /// Returns an error if the filter does not fit the file, or its footer is damaged.
    pub fn kept(&self, metadata: &Arc<ParquetMetaData>) -> Result<Vec<u64>, EngineError> {
        let Some(file) = self.config.file_groups.iter().flat_map(|group| group.iter()).next() else {
            return Ok(Vec::new());
        };
        let access = || -> Result<ParquetAccessPlan> {
            let pruner = Pruner::new(&self.config, file, metadata, self.predicate.clone(), &[])?;
            Ok(pruner.access(None, None))
        };
        // The Parquet library panics on some damaged footers and page indexes.
        let plan = guarded(|| Ok(access()))
            .unwrap_or_else(|_| Err(damaged(&self.name, "its footer or page index is malformed")))?;
        let rows = |(row_group, access): (usize, &RowGroupAccess)| match access {
            RowGroupAccess::Skip => 0,
            RowGroupAccess::Scan => metadata.row_group(row_group).num_rows().max(0) as u64,
            RowGroupAccess::Selection(selection) => selection.row_count() as u64,
        };
        Ok(plan.inner().iter().enumerate().map(rows).collect())
    }
}

/// Returns the scans of a plan in the order of their operators.
pub(crate) fn of(plan: &StagePlan) -> Vec<PlannedScan> {
    let mut scans: Vec<PlannedScan> = Vec::new();
    for (stage, operators) in plan.stages.iter().zip(Operators::of_stages(plan)) {
        // The tree also has the nodes of other stages, which have no place here. The closure never fails.
        let _ = stage.root.apply(|node| {
            if let (Some(scan), Some(place)) = (ParquetScan::of(node), operators.places.get(&key(node))) {
                let number = operators.number(place.own);
                if scans.iter().all(|known| known.operator != number) {
                    scans.push(planned(&scan, number, operators.list[place.own].name.clone()));
                }
            }
            Ok(TreeNodeRecursion::Continue)
        });
    }
    scans.sort_by_key(|scan| scan.operator);
    scans
}

fn planned(scan: &ParquetScan<'_>, operator: u32, name: String) -> PlannedScan {
    let schema = Arc::clone(scan.config.file_schema());
    let named = |index: usize| schema.fields().get(index).map(|field| field.name().clone());
    let columns: Vec<String> = match scan.source.projection() {
        Some(projection) => projection.column_indices().into_iter().filter_map(named).collect(),
        None => (0..schema.fields().len()).filter_map(named).collect(),
    };
    let is_static = |part: &&Arc<dyn PhysicalExpr>| !part.is::<DynamicFilterPhysicalExpr>();
    let predicate = scan.source.filter().and_then(|filter| {
        let parts: Vec<_> = split_conjunction(&filter).into_iter().filter(is_static).cloned().collect();
        (!parts.is_empty()).then(|| conjunction(parts))
    });
    let filter_columns: BTreeSet<String> =
        predicate.iter().flat_map(collect_columns).map(|column| column.name().to_string()).collect();
    let files: Vec<&PartitionedFile> =
        scan.config.file_groups.iter().flat_map(|group| group.iter()).collect();
    let store = pellucid_storage::LocalStore::default();
    let mut paths: Vec<PathBuf> = files.iter().filter_map(|file| store.path(file.path()).ok()).collect();
    paths.sort();
    paths.dedup();
    PlannedScan {
        operator,
        name,
        obstacle: obstacle(scan.config, &files, &paths),
        files: paths,
        columns,
        filter: predicate.as_ref().map(|predicate| predicate.to_string()),
        filter_columns: filter_columns.into_iter().collect(),
        schema,
        config: scan.config.clone(),
        predicate,
    }
}

fn obstacle(config: &FileScanConfig, files: &[&PartitionedFile], paths: &[PathBuf]) -> Option<&'static str> {
    let url: &url::Url = config.object_store_url.as_ref();
    let of_lake = |path: &PathBuf| {
        let has = |folder: &Path| ["_delta_log", "metadata"].iter().any(|name| folder.join(name).is_dir());
        path.ancestors().skip(1).take(3).any(has)
    };
    if url.scheme() != "file" {
        return Some("its files are in a store; copy them to a local folder first");
    }
    if !config.table_partition_cols().is_empty() {
        return Some("its folders hold values of columns");
    }
    let deleted = files.iter().any(|file| file.extension::<ParquetAccessPlan>().is_some());
    (deleted || paths.iter().any(of_lake)).then_some("it is a Delta or Iceberg table")
}
