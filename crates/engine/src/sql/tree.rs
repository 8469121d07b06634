//! What is read from the syntax tree of a statement, and replaced in it.

use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, ObjectName, Query, Set, SetExpr, SetOperator, SetQuantifier,
    Statement as SqlStatement, TableAlias, TableFactor, Visit, VisitMut, Visitor, VisitorMut,
};

use crate::EngineError;

/// Replaces the table `from` by `to` in all queries of a statement. `from` stays the alias, so that
/// qualified columns still resolve. With `quoted`, only quoted names are replaced. Returns true if
/// anything changed.
pub(crate) fn rename(statement: &mut Statement, from: &str, to: &str, quoted: bool) -> bool {
    let mut tables = Rename { from, to, quoted, changed: false };
    // `Break` is `Infallible`.
    let _ = match statement {
        Statement::Statement(inner) => inner.as_mut().visit(&mut tables),
        Statement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => query.as_mut().visit(&mut tables),
            CopyToSource::Relation(_) => ControlFlow::Continue(()),
        },
        Statement::Explain(explain) => return rename(&mut explain.statement, from, to, quoted),
        _ => ControlFlow::Continue(()),
    };
    tables.changed
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

/// The setting that would change how later statements are parsed.
const DIALECT: &str = "datafusion.sql_parser.dialect";

/// Refuses what would not do as it says: `EXCEPT ALL` and `INTERSECT ALL`, which DataFusion runs as joins
/// that return the wrong number of duplicates, and another dialect, since statements are parsed before any
/// runs.
///
/// # Errors
/// Returns an error that names the construct.
pub(crate) fn check(statement: &Statement) -> Result<(), EngineError> {
    if let Statement::Statement(inner) = statement
        && let SqlStatement::Set(Set::SingleAssignment { variable, .. }) = inner.as_ref()
        && variable.to_string().eq_ignore_ascii_case(DIALECT)
    {
        return Err(EngineError::Usage(format!(
            "cannot set {DIALECT}: there is one dialect of SQL here; remove the statement"
        )));
    }
    match inspect(statement, &mut Queries) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(operator) => Err(EngineError::Usage(format!(
            "{operator} ALL is not supported: it would return the wrong number of duplicate rows; use \
             {operator}, or number equal rows with row_number() OVER (PARTITION BY …) on both sides first"
        ))),
    }
}

/// Finds a set operation that is not supported.
struct Queries;

impl Visitor for Queries {
    type Break = SetOperator;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<SetOperator> {
        unsupported_set_operation(&query.body)
    }
}

fn inspect<V: Visitor>(statement: &Statement, visitor: &mut V) -> ControlFlow<V::Break> {
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

/// Returns the text of the divisions in a statement whose divisor may be zero.
pub(crate) fn divisions(statement: &Statement) -> Vec<String> {
    struct Divisions(Vec<String>);
    impl Visitor for Divisions {
        type Break = std::convert::Infallible;

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Self::Break> {
            if let Expr::BinaryOp { op: BinaryOperator::Divide | BinaryOperator::Modulo, right, .. } = expr
                && right.to_string().parse::<f64>().map_or(true, |divisor| divisor == 0.0)
            {
                self.0.push(expr.to_string());
            }
            ControlFlow::Continue(())
        }
    }
    let mut found = Divisions(Vec::new());
    // `Break` is `Infallible`.
    let _ = inspect(statement, &mut found);
    found.0.dedup();
    found.0
}

/// Breaks with the operator of an `EXCEPT ALL` or `INTERSECT ALL` within `body`. Nested queries are
/// visited on their own.
fn unsupported_set_operation(body: &SetExpr) -> ControlFlow<SetOperator> {
    let SetExpr::SetOperation { op, set_quantifier, left, right } = body else {
        return ControlFlow::Continue(());
    };
    if *op != SetOperator::Union && matches!(set_quantifier, SetQuantifier::All | SetQuantifier::AllByName) {
        return ControlFlow::Break(*op);
    }
    unsupported_set_operation(left)?;
    unsupported_set_operation(right)
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

    #[test]
    fn divisions_are_quoted_literally() {
        let sql = "SELECT a / 2, a/b FROM t WHERE x % (y - 1) = 0 AND z / 0 > 1";
        assert_eq!(divisions(&parsed(sql)), ["a / b", "x % (y - 1)", "z / 0"]);
    }
}
