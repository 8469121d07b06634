//! Reads from the syntax tree of a statement, and replacements in it.

use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName,
    Spanned, TableAlias, TableFactor, Visit, VisitMut, Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::Span;

/// Replaces the table `from` by `to` in all queries of a statement. `from` stays the alias, so that
/// qualified columns still resolve. With `quoted`, only quoted names are replaced. Returns true if
/// anything changed.
pub(crate) fn rename(statement: &mut Statement, from: &str, to: &str, quoted: bool) -> bool {
    let mut tables = Rename { from, to, quoted, changed: false };
    // `Break` is `Infallible`.
    let _ = visit(statement, &mut tables);
    tables.changed
}

/// Visits the queries of a statement.
pub(crate) fn visit<V: VisitorMut>(statement: &mut Statement, visitor: &mut V) -> ControlFlow<V::Break> {
    match statement {
        Statement::Statement(inner) => inner.as_mut().visit(visitor),
        Statement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => query.as_mut().visit(visitor),
            CopyToSource::Relation(_) => ControlFlow::Continue(()),
        },
        Statement::Explain(explain) => visit(&mut explain.statement, visitor),
        _ => ControlFlow::Continue(()),
    }
}

struct Rename<'a> {
    from: &'a str,
    to: &'a str,
    quoted: bool,
    changed: bool,
}

impl VisitorMut for Rename<'_> {
    type Break = std::convert::Infallible;

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<Self::Break> {
        if let TableFactor::Table { name, alias, args: None, .. } = table
            && let [part] = &name.0[..]
            && let Some(ident) = part.as_ident().cloned()
        {
            let same = match ident.quote_style {
                Some(_) => ident.value == self.from,
                None => !self.quoted && ident.value.to_lowercase() == self.from,
            };
            if same {
                *name = ObjectName::from(vec![Ident::with_quote('"', self.to)]);
                let own = TableAlias { explicit: true, name: ident, columns: Vec::new(), at: None };
                alias.get_or_insert(own);
                self.changed = true;
            }
        }
        ControlFlow::Continue(())
    }
}

/// Visits the queries of a statement.
pub(crate) fn inspect<V: Visitor>(statement: &Statement, visitor: &mut V) -> ControlFlow<V::Break> {
    match statement {
        Statement::Statement(inner) => inner.visit(visitor),
        Statement::CopyTo(copy) => match &copy.source {
            CopyToSource::Query(query) => query.visit(visitor),
            CopyToSource::Relation(_) => ControlFlow::Continue(()),
        },
        Statement::Explain(explain) => inspect(&explain.statement, visitor),
        _ => ControlFlow::Continue(()),
    }
}

/// Returns a call whose place is that of its arguments.
pub(crate) fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let span = Span::union_iter(arguments.iter().map(Spanned::span).filter(|span| *span != Span::empty()));
    call_at(span, name, arguments)
}

/// Returns a call at a place.
pub(crate) fn call_at(span: Span, name: &str, arguments: Vec<Expr>) -> Expr {
    let args = arguments.into_iter().map(|one| FunctionArg::Unnamed(FunctionArgExpr::Expr(one))).collect();
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::with_span(span, name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::statements::Statement as Parsed;

    fn parsed(sql: &str) -> Statement {
        let parsed: Parsed = sql.parse().unwrap();
        parsed.tree().clone()
    }

    #[test]
    fn renamed_table_keeps_its_name_as_alias() {
        let renamed = |sql: &str, from, quoted| {
            let mut statement = parsed(sql);
            rename(&mut statement, from, "b/", quoted).then(|| statement.to_string())
        };
        let got = renamed("SELECT a.x FROM 'a' JOIN (SELECT 1 FROM \"a\" c) d ON true", "a", true).unwrap();
        assert_eq!(got, "SELECT a.x FROM \"b/\" AS 'a' JOIN (SELECT 1 FROM \"b/\" c) d ON true");
        assert_eq!(renamed("SELECT 1 FROM a, s.\"a\"", "a", true), None);
        assert!(
            renamed("COPY (SELECT 1 FROM A) TO 'x.csv'", "a", false).unwrap().contains("FROM \"b/\" AS A")
        );
    }
}
