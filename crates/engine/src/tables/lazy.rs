//! Tables that are opened when a statement first names them.
//!
//! To open a table reads the footers of its files, and keeps them. A query names few of the tables that a command may get: of the 24
//! of TPC-DS at scale 10, those that a query did not name took 20 to 40 MB.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use datafusion::arrow::datatypes::Schema;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::{Result, exec_err, internal_datafusion_err};
use datafusion::datasource::empty::EmptyTable;

use crate::sync::lock;
use crate::tables::options::FileOptions;
use crate::tables::{PathTables, listing};

/// A schema whose tables may still have to be opened.
pub(crate) struct LazyTables {
    opened: Arc<dyn SchemaProvider>,
    /// Paths of the other tables, by name.
    unopened: Mutex<BTreeMap<String, String>>,
    session: Arc<PathTables>,
}

impl LazyTables {
    pub(crate) fn new(opened: Arc<dyn SchemaProvider>, session: Arc<PathTables>) -> Self {
        Self { opened, unopened: Mutex::default(), session }
    }

    /// Adds a table of the files at a path.
    ///
    /// # Errors
    /// Returns an error if there is a table of that name.
    pub(crate) fn add(&self, name: String, path: String) -> Result<()> {
        if self.table_exist(&name) {
            return exec_err!("The table {name} already exists");
        }
        lock(&self.unopened).insert(name, path);
        Ok(())
    }
}

impl fmt::Debug for LazyTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LazyTables").field("opened", &self.opened).field("unopened", &self.unopened).finish()
    }
}

#[async_trait]
impl SchemaProvider for LazyTables {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.opened.table_names();
        names.extend(lock(&self.unopened).keys().cloned());
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some(table) = self.opened.table(name).await? {
            return Ok(Some(table));
        }
        let Some(path) = lock(&self.unopened).get(name).cloned() else { return Ok(None) };
        let state = self.session.state().ok_or_else(|| internal_datafusion_err!("the session has ended"))?;
        let table = listing(&state, &[path], &FileOptions::default()).await?;
        let mut unopened = lock(&self.unopened);
        // Another statement may have opened, dropped or replaced it in the meantime.
        if unopened.remove(name).is_some() {
            self.opened.register_table(name.to_string(), Arc::clone(&table))?;
        }
        Ok(Some(table))
    }

    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        if lock(&self.unopened).contains_key(&name) {
            return exec_err!("The table {name} already exists");
        }
        self.opened.register_table(name, table)
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if lock(&self.unopened).remove(name).is_some() {
            return Ok(Some(Arc::new(EmptyTable::new(Arc::new(Schema::empty())))));
        }
        self.opened.deregister_table(name)
    }

    fn table_exist(&self, name: &str) -> bool {
        lock(&self.unopened).contains_key(name) || self.opened.table_exist(name)
    }
}
