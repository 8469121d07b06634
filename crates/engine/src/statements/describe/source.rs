//! Tables of a query, and subqueries in their place.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Ident, ObjectName, Query, SetExpr, TableAlias, TableFactor, VisitMut, VisitorMut,
};

/// Returns a subquery as a table.
pub(crate) fn derived(subquery: Box<Query>, alias: Option<TableAlias>) -> TableFactor {
    TableFactor::Derived { lateral: false, subquery, alias, sample: None }
}

/// Returns the name of a table as its alias, for columns that are qualified with it.
pub(crate) fn usual_alias(name: &ObjectName) -> Option<TableAlias> {
    let name: Ident = name.0.last()?.as_ident()?.clone();
    Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None })
}

/// Replaces the tables of one name in a query by a subquery.
pub(crate) fn with_source(query: &mut Query, source: &str, subquery: &Query) {
    struct Replace<'a>(&'a str, &'a Query);
    impl VisitorMut for Replace<'_> {
        type Break = std::convert::Infallible;

        fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<Self::Break> {
            if let TableFactor::Table { name, alias, .. } = table
                && name.to_string() == self.0
            {
                *table = derived(Box::new(self.1.clone()), alias.clone().or_else(|| usual_alias(name)));
            }
            ControlFlow::Continue(())
        }
    }
    // `Break` is `Infallible`.
    let _ = query.visit(&mut Replace(source, subquery));
}

/// Returns the table of `SELECT * FROM table`; `None` for other queries.
pub(crate) fn only_table(query: &Query) -> Option<&ObjectName> {
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let plain = query.with.is_none() && select.selection.is_none() && select.projection.len() == 1;
    match &select.from[..] {
        [from] if plain && from.joins.is_empty() && select.projection[0].to_string() == "*" => {
            match &from.relation {
                TableFactor::Table { name, args: None, .. } => Some(name),
                _ => None,
            }
        }
        _ => None,
    }
}
