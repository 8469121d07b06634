//! Divides a text into statements.

use datafusion::common::DataFusionError;
use datafusion::sql::parser::DFParserBuilder;
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
        DFParserBuilder::new(sql).build().and_then(|mut parser| parser.parse_statements())?;
    }
    Ok(statements)
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
            ("SELECT 1;\nSELECT 2;\n  SELECT FROM WHERE", "line 3, column 15"),
            ("SELECT 1;\n SELECT 'x", "line 2, column 9"),
        ] {
            let error = split(sql).unwrap_err().to_string();
            assert!(error.contains(place), "{error}");
        }
        let other = "SET datafusion.sql_parser.dialect = 'mysql'; SELECT `a` FROM t";
        assert_eq!(split(other).unwrap().len(), 2);
    }
}
