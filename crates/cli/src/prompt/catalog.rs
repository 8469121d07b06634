//! The engine of a session, which opens in the background, and the names that it knows.

use super::complete::Names;
use crate::failure::Failure;
use crate::output;
use pellucid_engine::{Engine, EngineError, EngineOptions};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Maximum time to look up names for one completion.
const NAMES_TIMEOUT: Duration = Duration::from_secs(2);

/// The engine and names of a session.
pub struct Catalog {
    options: EngineOptions,
    /// Names and paths of `--table`.
    tables: Vec<(String, String)>,
    engine: OnceLock<Result<Engine, EngineError>>,
    /// Names by the query that finds them, until a statement may have changed them.
    found: Mutex<HashMap<String, Vec<String>>>,
}

impl Catalog {
    /// Creates a catalog. Its engine opens in the background, because the prompt need not wait for it.
    pub fn new(options: EngineOptions, tables: Vec<(String, String)>) -> Arc<Self> {
        let catalog = Self { options, tables, engine: OnceLock::new(), found: Mutex::default() };
        let catalog = Arc::new(catalog);
        let opening = Arc::clone(&catalog);
        // Without a thread, the first statement opens the engine.
        let _ =
            std::thread::Builder::new().name("open".to_string()).spawn(move || opening.engine().map(drop));
        catalog
    }

    /// Returns the engine.
    ///
    /// # Errors
    /// Returns an error if it cannot be opened, or a table of `--table` not be found.
    pub fn engine(&self) -> Result<&Engine, Failure> {
        let open = || {
            let engine = Engine::new(self.options.clone())?;
            self.tables.iter().try_for_each(|(name, path)| engine.register_table(name, path))?;
            Ok(engine)
        };
        self.engine.get_or_init(open).as_ref().map_err(|error| error.clone().into())
    }

    /// Forgets the names, which a statement may have changed.
    pub fn forget_names(&self) {
        self.found().clear();
    }

    fn found(&self) -> MutexGuard<'_, HashMap<String, Vec<String>>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the first column of a query; nothing if it fails or takes too long.
    fn names(&self, sql: String) -> Vec<String> {
        if let Some(found) = self.found().get(&sql) {
            return found.clone();
        }
        let names = self.query(&sql).unwrap_or_default();
        self.found().insert(sql, names.clone());
        names
    }

    fn query(&self, sql: &str) -> Option<Vec<String>> {
        let query = self.engine().ok()?.start(sql.parse().ok()?, None).ok()?;
        if !query.ended_within(NAMES_TIMEOUT) {
            query.cancel_handle().cancel();
            return None;
        }
        let mut names = Vec::new();
        let rows = output::for_each_row(&query.wait().ok()?.batches, |cells| {
            names.extend(cells.first().cloned().flatten());
            Ok(())
        });
        rows.is_ok().then_some(names)
    }
}

impl Names for Catalog {
    fn tables(&self) -> Vec<String> {
        self.names("SHOW TABLES".to_string())
    }

    fn functions(&self) -> Vec<String> {
        self.engine().map_or_else(|_| Vec::new(), Engine::functions)
    }

    fn columns(&self, table: &str) -> Vec<String> {
        self.names(format!("DESCRIBE SELECT * FROM {table}"))
    }
}
