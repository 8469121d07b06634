//! Loads tables into memory before the measured job starts; for experiments (monotasks-sosp17 §6.3).
//!
//! `memory` reads the query's files once into the page cache; pages that the kernel evicts are read
//! again by the job and count as disk. `memory-decoded` keeps whole tables as decoded columns for the
//! lifetime of the engine; queries scan these and do not see later changes of the files. Loading is
//! not part of any job and is not traced.

use std::collections::HashMap;
use std::io::Read;
use std::sync::{Arc, Mutex};

use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result};
use datafusion::dataframe::DataFrame;
use datafusion::datasource::listing::ListingTable;
use datafusion::datasource::{MemTable, provider_as_source, source_as_provider};
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder, TableScan};

use crate::plan::cut::Node;
use crate::scan::text;
use crate::sync::lock;
use crate::tables::FilesTable;

/// Size of the reads that fill the page cache.
const READ_BYTES: usize = 1 << 20;

/// Decoded tables, by the name that queries use.
#[derive(Default)]
pub(crate) struct DecodedTables(Mutex<HashMap<String, Arc<MemTable>>>);

impl DecodedTables {
    fn get(&self, scan: &TableScan) -> Option<Arc<MemTable>> {
        let tables = lock(&self.0);
        tables.get(&scan.table_name.to_string()).cloned()
    }

    /// Loads the file tables that `plan` scans and that are not loaded yet.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read.
    pub(crate) async fn load(&self, state: &SessionState, plan: &LogicalPlan) -> Result<()> {
        let mut scans: Vec<TableScan> = Vec::new();
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::TableScan(scan) = node {
                let provider = source_as_provider(&scan.source)?;
                if (provider.is::<ListingTable>() || provider.is::<FilesTable>()) && self.get(scan).is_none()
                {
                    scans.push(scan.clone());
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        for scan in scans {
            let name = scan.table_name.to_string();
            let all = LogicalPlanBuilder::scan(scan.table_name, scan.source, None)?.build()?;
            let partitions = DataFrame::new(state.clone(), all).collect_partitioned().await?;
            let schema = match partitions.iter().flatten().next() {
                Some(batch) => batch.schema(),
                // An empty table has nothing to decode.
                None => continue,
            };
            let table = Arc::new(MemTable::try_new(schema, partitions)?);
            lock(&self.0).insert(name, table);
        }
        Ok(())
    }

    /// Replaces the file tables in `plan` by the loaded ones.
    ///
    /// # Errors
    /// Returns the errors of DataFusion's tree traversal.
    pub(crate) fn replace_tables(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let replaced = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::TableScan(mut scan) => match self.get(&scan) {
                Some(table) => {
                    scan.source = provider_as_source(table as Arc<dyn TableProvider>);
                    Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
                }
                None => Ok(Transformed::no(LogicalPlan::TableScan(scan))),
            },
            other => Ok(Transformed::no(other)),
        })?;
        Ok(replaced.data)
    }
}

/// Reads the files of `plan` once into the page cache.
///
/// # Errors
/// Returns an error if a file cannot be read, or is in a remote store.
pub(crate) fn cache(plan: &Node) -> Result<()> {
    plan.apply(|node| {
        let Some(config) = text::file_scan(node) else { return Ok(TreeNodeRecursion::Continue) };
        for file in config.file_groups.iter().flat_map(|g| g.iter()) {
            if config.object_store_url.as_str() != "file:///" {
                return Err(DataFusionError::Configuration(format!(
                    "{}{}: --input memory supports local files only; use --input memory-decoded",
                    config.object_store_url.as_str(),
                    file.path()
                )));
            }
            let path = pellucid_storage::LocalStore::default().path(file.path())?;
            let mut open = std::fs::File::open(&path)?;
            let mut buffer = vec![0; READ_BYTES];
            while open.read(&mut buffer)? > 0 {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}
