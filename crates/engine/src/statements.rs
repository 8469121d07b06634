//! Divides a text into statements, and looks at each before any of them runs.

use std::ops::ControlFlow;

use datafusion::common::DataFusionError;
use datafusion::sql::parser::{CopyToSource, DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::{Query, SetExpr, SetOperator, SetQuantifier, Visit, Visitor};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, Tokenizer, Whitespace};

use crate::EngineError;

/// The statements of `sql`, without the semicolons between them; empty ones are left out.
///
/// # Errors
/// Text that does not parse, with its place in the whole: a mistake in the last statement is
/// found before the first one runs.
pub(crate) fn split(sql: &str) -> Result<Vec<String>, EngineError> {
    let statements = divide(sql)?;
    // Whoever changes the dialect on the way has the statements after it read by that.
    if !statements.iter().any(|s| s.to_ascii_lowercase().contains("sql_parser")) {
        let parsed = DFParserBuilder::new(sql).build().and_then(|mut parser| parser.parse_statements())?;
        parsed.iter().try_for_each(check)?;
    }
    Ok(statements)
}

/// Refuses what DataFusion would answer wrongly: it takes `EXCEPT ALL` and `INTERSECT ALL` for
/// joins, which do not count how often a row is there.
fn check(statement: &Statement) -> Result<(), EngineError> {
    let found = match statement {
        Statement::Statement(inner) => visit_queries(inner.as_ref()),
        Statement::CopyTo(copy) => match &copy.source {
            CopyToSource::Query(query) => visit_queries(query.as_ref()),
            CopyToSource::Relation(_) => ControlFlow::Continue(()),
        },
        Statement::Explain(explain) => return check(&explain.statement),
        _ => ControlFlow::Continue(()),
    };
    match found {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(operator) => Err(EngineError::Usage(format!(
            "{operator} ALL is not supported: rows that are there several times would be counted wrongly; use \
             {operator}, or number equal rows with row_number() OVER (PARTITION BY …) on both sides first"
        ))),
    }
}

fn visit_queries(within: &impl Visit) -> ControlFlow<SetOperator> {
    struct Queries;
    impl Visitor for Queries {
        type Break = SetOperator;

        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<SetOperator> {
            of_set(&query.body)
        }
    }
    within.visit(&mut Queries)
}

/// The operator of a set operation within `body` (queries of their own left out) that counts
/// equal rows and is no union.
fn of_set(body: &SetExpr) -> ControlFlow<SetOperator> {
    let SetExpr::SetOperation { op, set_quantifier, left, right } = body else {
        return ControlFlow::Continue(());
    };
    if *op != SetOperator::Union && matches!(set_quantifier, SetQuantifier::All | SetQuantifier::AllByName) {
        return ControlFlow::Break(*op);
    }
    of_set(left)?;
    of_set(right)
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

/// Finds the bytes of the tokenizer's lines and columns, which count characters.
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
    use super::split;

    #[test]
    fn semicolons_in_strings_and_comments_divide_nothing() {
        let sql = "SELECT 'a;b', \"c;d\" -- e;f\n;\n /* g;h */ ;; SELECT 'ü;' FROM t;\nSELECT 3 -- end";
        let got = split(sql).unwrap();
        assert_eq!(got, ["SELECT 'a;b', \"c;d\" -- e;f", "SELECT 'ü;' FROM t", "SELECT 3 -- end"]);
    }

    #[test]
    fn nothing_gives_nothing_and_an_open_string_is_an_error() {
        assert!(split(" ; -- x").unwrap().is_empty());
        assert!(split("SELECT 'x").is_err());
    }

    #[test]
    fn a_mistake_has_its_place_in_the_whole_text() {
        for (sql, place) in [
            ("SELECT 1;\nSELECT 2;\n  SELECT 3 FORM x y", "line 3, column 17"),
            ("SELECT 1;\n SELECT 'x", "line 2, column 9"),
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
