//! Tables in memory before the measured job starts; for experiments (monotasks-sosp17 §6.3).
//!
//! `memory` reads the query's files once, so that the page cache holds them: what it cannot
//! keep is read by the job and shows as disk. `memory-decoded` keeps whole tables as decoded
//! columns for as long as the engine lives, and queries scan those; a file that changes after
//! that is not seen. Loading is no part of any job and leaves no trace.

use std::collections::HashMap;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result};
use datafusion::dataframe::DataFrame;
use datafusion::datasource::listing::ListingTable;
use datafusion::datasource::{MemTable, provider_as_source, source_as_provider};
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder, TableScan};

use crate::cut::Node;
use crate::text;

/// Bytes that one read of a file brings into the page cache.
const PIECE_BYTES: usize = 1 << 20;

/// Tables kept as decoded columns, by the name that queries use.
#[derive(Default)]
pub(crate) struct Decoded(Mutex<HashMap<String, Arc<MemTable>>>);

impl Decoded {
    fn get(&self, scan: &TableScan) -> Option<Arc<MemTable>> {
        let tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tables.get(&scan.table_name.to_string()).cloned()
    }

    /// Loads the files' tables that `plan` scans and that are not loaded yet.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(crate) async fn load(&self, state: &SessionState, plan: &LogicalPlan) -> Result<()> {
        let mut scans: Vec<TableScan> = Vec::new();
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::TableScan(scan) = node {
                let provider = source_as_provider(&scan.source)?;
                if provider.is::<ListingTable>() && self.get(scan).is_none() {
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
                // Nothing to decode: the file serves as well.
                None => continue,
            };
            let table = Arc::new(MemTable::try_new(schema, partitions)?);
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name, table);
        }
        Ok(())
    }

    /// `plan` over the tables that are loaded.
    ///
    /// # Errors
    /// None of its own.
    pub(crate) fn instead(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
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

/// Reads the files of `plan` once, so that the page cache holds them.
///
/// # Errors
/// A file that cannot be read, or is not on this machine.
pub(crate) fn cache(plan: &Node) -> Result<()> {
    plan.apply(|node| {
        let Some(config) = text::file_scan(node) else { return Ok(TreeNodeRecursion::Continue) };
        for file in config.file_groups.iter().flat_map(|g| g.iter()) {
            if config.object_store_url.as_str() != "file:///" {
                return Err(DataFusionError::Configuration(format!(
                    "{}{}: --input memory holds local files only; use --input memory-decoded",
                    config.object_store_url.as_str(),
                    file.path()
                )));
            }
            let path = pellucid_storage::LocalStore::default().path(file.path())?;
            let mut open = std::fs::File::open(&path)?;
            let mut piece = vec![0; PIECE_BYTES];
            while open.read(&mut piece)? > 0 {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}
