//! Views, which a statement reads as their queries, so that a view sees its tables as they are now.
//!
//! DataFusion's view holds the plan of its query, and so the rows of the moment when it was created. It stays in the
//! catalog for lists of tables.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as Tree;
use datafusion::sql::sqlparser::ast::{
    CreateView, Cte, Query, TableAlias, TableAliasColumnDef, TableFactor, Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::EngineError;
use crate::sql::statements::Statement;
use crate::sql::tree;
use crate::statements::describe::source::{derived, usual_alias};
use crate::statements::script::state::{State, View};

/// Maximum number of views that read each other.
const MAX_DEPTH: usize = 32;

/// Remembers the query of a view that was created.
pub(crate) fn remember(state: &State, view: &CreateView) {
    if let [part] = &view.name.0[..]
        && let Some(name) = part.as_ident()
    {
        let columns = view.columns.iter().map(|c| c.name.clone()).collect();
        let made = View { query: view.query.clone(), columns };
        state.names().views.insert(name.value.to_lowercase(), made);
    }
}

/// Replaces the views in a statement by their queries.
///
/// # Errors
/// Returns an error if too many views read each other.
pub(crate) fn expand(state: &State, statement: &Statement, tree: &mut Tree) -> Result<(), EngineError> {
    let mut views = state.names().views.clone();
    if views.is_empty() {
        return Ok(());
    }
    // A query of WITH hides the view of its name.
    let mut hidden = Hidden::default();
    let _ = tree::inspect(tree, &mut hidden);
    views.retain(|name, _| !hidden.0.contains(name));
    for _ in 0..MAX_DEPTH {
        let mut replace = Replace { views: &views, changed: false };
        // `Break` is `Infallible`.
        let _ = tree::visit(tree, &mut replace);
        if !replace.changed {
            return Ok(());
        }
    }
    Err(statement
        .refuse(Span::empty(), &format!("cannot read the views: more than {MAX_DEPTH} read each other")))
}

/// Names of queries of WITH.
#[derive(Default)]
struct Hidden(HashSet<String>);

impl Visitor for Hidden {
    type Break = std::convert::Infallible;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Self::Break> {
        let ctes: &[Cte] = query.with.as_ref().map(|with| &with.cte_tables[..]).unwrap_or_default();
        self.0.extend(ctes.iter().map(|cte| cte.alias.name.value.to_lowercase()));
        ControlFlow::Continue(())
    }
}

struct Replace<'a> {
    views: &'a HashMap<String, View>,
    changed: bool,
}

impl VisitorMut for Replace<'_> {
    type Break = std::convert::Infallible;

    fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<Self::Break> {
        let TableFactor::Table { name, args: None, alias, .. } = &*table else {
            return ControlFlow::Continue(());
        };
        let [part] = &name.0[..] else { return ControlFlow::Continue(()) };
        let found = part.as_ident().and_then(|name| self.views.get(&name.value.to_lowercase()));
        if let Some(view) = found {
            let mut alias: Option<TableAlias> = alias.clone().or_else(|| usual_alias(name));
            if let Some(alias) = &mut alias
                && alias.columns.is_empty()
            {
                let column = |name: &datafusion::sql::sqlparser::ast::Ident| TableAliasColumnDef {
                    name: name.clone(),
                    data_type: None,
                };
                alias.columns = view.columns.iter().map(column).collect();
            }
            *table = derived(view.query.clone(), alias);
            self.changed = true;
        }
        ControlFlow::Continue(())
    }
}
