//! Splits SQL text into statements and checks each of them before any runs.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use datafusion::common::DataFusionError;
use datafusion::config::SqlParserOptions;
use datafusion::sql::parser::{CopyToSource, DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, ObjectName, Query, SetExpr, SetOperator, SetQuantifier, TableAlias,
    TableFactor, Visit, VisitMut, Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::{GenericDialect, dialect_from_str};
use datafusion::sql::sqlparser::tokenizer::{Location, Token, Tokenizer, Whitespace};

use crate::EngineError;
use crate::sql::from_first;
use crate::sql::nesting;
use crate::sql::stack::with_large_stack;

/// Splits `sql` into its statements, without the semicolons between them and without empty ones.
///
/// # Errors
/// Returns an error with line and column if any statement does not parse, so that a mistake in the
/// last statement is found before the first one runs.
pub(crate) fn split(sql: &str) -> Result<Vec<String>, EngineError> {
    with_large_stack(|| {
        let statements = divide(sql)?;
        // A statement may change the dialect of those after it, which are then parsed when they run.
        if !statements.iter().any(|s| s.to_ascii_lowercase().contains("sql_parser")) {
            parse(sql, &SqlParserOptions::default())?.iter().try_for_each(check)?;
        }
        Ok(statements)
    })
}

/// Parses `sql`, which must be one statement, as [`split`] returns it.
///
/// # Errors
/// Returns an error if the text does not parse, or is not exactly one statement.
pub(crate) fn one(sql: &str, options: &SqlParserOptions) -> Result<Statement, DataFusionError> {
    let mut statements = parse(sql, options)?;
    match (statements.pop_front(), statements.len()) {
        (Some(statement), 0) => Ok(statement),
        (None, _) => Err(DataFusionError::Plan("expected one statement, found none".to_string())),
        (Some(_), more) => Err(DataFusionError::Plan(format!("expected one statement, found {}", more + 1))),
    }
}

fn parse(sql: &str, options: &SqlParserOptions) -> Result<VecDeque<Statement>, DataFusionError> {
    let dialect = dialect_from_str(options.dialect)
        .ok_or_else(|| DataFusionError::Configuration(format!("unknown SQL dialect {}", options.dialect)))?;
    let tokens = Tokenizer::new(dialect.as_ref(), sql)
        .tokenize_with_location()
        .map_err(|e| DataFusionError::SQL(Box::new(e.into()), None))?;
    nesting::check(&tokens)?;
    DFParserBuilder::new(from_first::with_select(tokens))
        .with_dialect(dialect.as_ref())
        .with_recursion_limit(options.recursion_limit.get())
        .build()?
        .parse_statements()
}

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

/// Refuses `EXCEPT ALL` and `INTERSECT ALL`: DataFusion runs them as joins, which return the wrong
/// number of duplicates.
fn check(statement: &Statement) -> Result<(), EngineError> {
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

fn divide(sql: &str) -> Result<Vec<String>, EngineError> {
    let tokens = Tokenizer::new(&GenericDialect {}, sql)
        .tokenize_with_location()
        .map_err(|e| DataFusionError::SQL(Box::new(e.into()), None))?;
    let mut statements = Vec::new();
    let mut start = 0;
    let mut empty = true;
    let mut at = Cursor { sql, byte: 0, location: Location { line: 1, column: 1 } };
    for token in tokens {
        match token.token {
            Token::SemiColon => {
                let end = at.advance(token.span.start);
                if !empty {
                    statements.push(sql[start..end].trim().to_string());
                }
                start = end + 1;
                empty = true;
            }
            Token::EOF => {}
            Token::Whitespace(
                Whitespace::Space
                | Whitespace::Newline
                | Whitespace::Tab
                | Whitespace::SingleLineComment { .. }
                | Whitespace::MultiLineComment(_),
            ) => {}
            _ => empty = false,
        }
    }
    if !empty {
        statements.push(sql[start.min(sql.len())..].trim().to_string());
    }
    Ok(statements)
}

/// Converts the tokenizer's locations, which count characters, to byte offsets.
struct Cursor<'a> {
    sql: &'a str,
    byte: usize,
    location: Location,
}

impl Cursor<'_> {
    fn advance(&mut self, to: Location) -> usize {
        for c in self.sql[self.byte..].chars() {
            if self.location >= to {
                break;
            }
            self.byte += c.len_utf8();
            if c == '\n' {
                self.location = Location { line: self.location.line + 1, column: 1 };
            } else {
                self.location.column += 1;
            }
        }
        self.byte
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semicolons_in_strings_and_comments_do_not_split() {
        let sql = "SELECT 'a;b', \"c;d\" -- e;f\n;\n /* g;h */ ;; SELECT 'ü;' FROM t;\nSELECT 3 -- end";
        let got = split(sql).unwrap();
        assert_eq!(got, ["SELECT 'a;b', \"c;d\" -- e;f", "SELECT 'ü;' FROM t", "SELECT 3 -- end"]);
    }

    #[test]
    fn empty_text_has_no_statements_and_open_string_is_an_error() {
        assert!(split(" ; -- x").unwrap().is_empty());
        assert!(split("SELECT 'x").is_err());
    }

    fn parsed(sql: &str) -> Statement {
        one(sql, &SqlParserOptions::default()).unwrap()
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

    #[test]
    fn syntax_error_has_its_location_in_the_whole_text() {
        for (sql, place) in [
            ("SELECT 1;\nSELECT 2;\n  SELECT 3 FORM x y", "line 3, column 17"),
            ("SELECT 1;\n SELECT 'x", "line 2, column 9"),
            ("FROM t;\nFROM t WHERE a = 1 LIMIT 1 x", "line 2, column 28"),
        ] {
            let error = split(sql).unwrap_err().to_string();
            assert!(error.contains(place), "{error}");
        }
        for sql in [
            "SELECT 1 EXCEPT ALL SELECT 2",
            "COPY (SELECT * FROM (SELECT 1 INTERSECT ALL SELECT 1)) TO 'x.csv'",
        ] {
            assert!(split(sql).unwrap_err().to_string().contains("ALL is not supported"), "{sql}");
        }
        assert!(split("SELECT 1 UNION ALL SELECT 2 EXCEPT SELECT 3").is_ok());
        let other = "SET datafusion.sql_parser.dialect = 'mysql'; SELECT `a` FROM t";
        assert_eq!(split(other).unwrap().len(), 2);
    }
}
