//! The table to rewrite, and what its steps share.

use crate::console::{Console, Progress};
use crate::failure::Failure;
use crate::interrupt;
use pellucid_engine::{Engine, PlannedScan, Statement};
use pellucid_layout::TableFile;
use pellucid_model::units::grouped;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The name of the table in statements.
pub const TABLE: &str = "rewritten_table";

/// The table to rewrite.
pub struct Source<'a> {
    pub engine: &'a Engine,
    pub scan: PlannedScan,
    pub files: Vec<TableFile>,
    pub rows: u64,
    pub console: &'a Console,
}

/// Makes interrupts set a flag until the guard is dropped.
pub fn cancellable() -> (Arc<AtomicBool>, interrupt::Guard) {
    let cancelled = Arc::new(AtomicBool::new(interrupt::requested()));
    let flag = Arc::clone(&cancelled);
    (cancelled, interrupt::on_interrupt(move || flag.store(true, Ordering::Relaxed)))
}

/// The progress of writing.
pub struct RowsWritten {
    bar: Progress,
    rows: u64,
    of: u64,
}

impl RowsWritten {
    pub fn new(source: &Source<'_>) -> Self {
        RowsWritten { bar: source.console.progress(), rows: 0, of: source.rows }
    }

    pub fn add(&mut self, rows: u64) {
        self.rows += rows;
        let message = format!("{} of {} rows", grouped(self.rows), grouped(self.of));
        self.bar.set(self.rows, self.of, &message);
    }
}

/// Parses a statement that this command makes.
pub fn statement(sql: &str) -> Result<Statement, Failure> {
    Ok(sql.parse()?)
}

/// Quotes the name of a column.
pub fn column_name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
