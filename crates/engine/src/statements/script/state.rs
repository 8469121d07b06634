//! The state of a session beside its tables.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use datafusion::catalog::TableProvider;
use datafusion::common::{Result, ScalarValue, TableReference};
use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::{DataType, Expr, Ident, Query};

use crate::statements::own::{NewSequence, Own};
use crate::sync::lock;

/// A macro.
#[derive(Debug, Clone)]
pub(crate) struct Macro {
    pub parameters: Vec<(Ident, Option<Expr>)>,
    pub body: Body,
}

/// The definition of a macro.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a macro is one of few")]
pub(crate) enum Body {
    Value(Expr),
    Table(Box<Query>),
}

/// A sequence and its last value.
#[derive(Debug, Clone)]
pub(crate) struct Sequence {
    pub of: NewSequence,
    pub last: Option<i64>,
}

impl Sequence {
    /// Returns the next value.
    ///
    /// # Errors
    /// Returns the name if the sequence has reached its end.
    pub(crate) fn next(&mut self) -> std::result::Result<i64, String> {
        let NewSequence { name, start, increment, min, max, cycle, .. } = &self.of;
        let next = match self.last {
            None => Some(*start),
            Some(last) => last.checked_add(*increment).filter(|next| (min..=max).contains(&next)),
        };
        let next = match (next, cycle) {
            (Some(next), _) => next,
            (None, true) => {
                if *increment > 0 {
                    *min
                } else {
                    *max
                }
            }
            (None, false) => return Err(name.clone()),
        };
        self.last = Some(next);
        Ok(next)
    }
}

/// A statement of PREPARE.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    pub tree: Tree,
    pub own: Option<Own>,
    pub types: Vec<DataType>,
}

/// A view: its query, and its names of columns.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub query: Box<Query>,
    pub columns: Vec<Ident>,
}

/// Names that a transaction can take back.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    pub macros: HashMap<String, Macro>,
    pub views: HashMap<String, View>,
    /// The values of ENUM types.
    pub types: HashMap<String, Vec<String>>,
}

/// The tables at the start of a transaction.
pub(crate) struct Transaction {
    pub tables: Vec<(TableReference, Arc<dyn TableProvider>)>,
    pub names: Names,
    pub sequences: HashMap<String, Sequence>,
    /// True after an error, until ROLLBACK.
    pub failed: bool,
}

/// The state of a session.
#[derive(Default)]
pub(crate) struct State {
    pub variables: Arc<Mutex<HashMap<String, ScalarValue>>>,
    pub sequences: Arc<Mutex<HashMap<String, Sequence>>>,
    names: Mutex<Names>,
    prepared: Mutex<HashMap<String, Prepared>>,
    transaction: Mutex<Option<Transaction>>,
    settings: Mutex<HashMap<String, String>>,
}

impl State {
    pub(crate) fn names(&self) -> MutexGuard<'_, Names> {
        lock(&self.names)
    }

    pub(crate) fn prepared(&self) -> MutexGuard<'_, HashMap<String, Prepared>> {
        lock(&self.prepared)
    }

    pub(crate) fn transaction(&self) -> MutexGuard<'_, Option<Transaction>> {
        lock(&self.transaction)
    }

    /// Returns settings of DuckDB that were set, by name.
    pub(crate) fn settings(&self) -> MutexGuard<'_, HashMap<String, String>> {
        lock(&self.settings)
    }

    /// Forgets the query of a view that was dropped or replaced.
    pub(crate) fn forget_view(&self, view: &TableReference) {
        self.names().views.remove(&view.table().to_lowercase());
    }

    /// Marks a transaction as failed.
    pub(crate) fn fail(&self) {
        if let Some(transaction) = self.transaction().as_mut() {
            transaction.failed = true;
        }
    }

    /// Registers the functions that read the state.
    ///
    /// # Errors
    /// Returns the error of the registry.
    pub(crate) fn register(&self, context: &datafusion::prelude::SessionContext) -> Result<()> {
        for function in super::functions::all(&self.variables, &self.sequences) {
            context.register_udf(function);
        }
        Ok(())
    }
}
