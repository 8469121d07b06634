//! Limits how deep a statement nests, before it is parsed.
//!
//! `a + a + …` and `SELECT … UNION ALL SELECT …` parse to trees with one level for each operator. The
//! parser builds them in a loop, but much of DataFusion prints, compares and drops them recursively. The
//! stacks of [`crate::sql::stack`] suffice for [`MAX_OPERATORS`]; without a limit, a longer chain would
//! overflow them and abort the process. Parentheses have a limit of their own, in the parser.

use datafusion::common::DataFusionError;
use datafusion::sql::sqlparser::dialect::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::sql::from_first::keyword;

/// Maximum number of operators that may nest into each other. Planning time grows with its square.
const MAX_OPERATORS: usize = 10_000;

/// Effect of a token on the nesting.
enum Effect {
    None,
    /// Adds a level to the current expression.
    Operator,
    /// Adds a level to the current query.
    Query,
    /// Starts another expression of the same query.
    Expression,
    Open,
    Close,
    /// Starts another statement.
    Statement,
}

/// The operators so far within one level of parentheses.
#[derive(Default)]
struct Level {
    /// Operators of the current expression.
    expression: usize,
    /// Set operations and joins.
    query: usize,
}

/// Checks that no expression or query of the statements nests too deep. Returns the largest number of
/// operators that nest into each other.
///
/// # Errors
/// Returns an error with the location of the first operator beyond the limit.
pub(crate) fn check(tokens: &[TokenWithSpan]) -> Result<usize, DataFusionError> {
    let mut outer: Vec<Level> = Vec::new();
    let mut level = Level::default();
    // Total of all levels.
    let mut nested = 0;
    let mut deepest = 0;
    for TokenWithSpan { token, span } in tokens {
        match effect(token) {
            Effect::None => {}
            Effect::Operator => {
                level.expression += 1;
                nested += 1;
            }
            Effect::Query => {
                level.query += 1;
                nested += 1;
            }
            Effect::Expression => nested -= std::mem::take(&mut level.expression),
            Effect::Open => outer.push(std::mem::take(&mut level)),
            Effect::Close => {
                if let Some(before) = outer.pop() {
                    nested -= level.expression + level.query;
                    level = before;
                }
            }
            Effect::Statement => {
                outer.clear();
                level = Level::default();
                nested = 0;
            }
        }
        deepest = deepest.max(nested);
        if nested > MAX_OPERATORS {
            let at = span.start;
            return Err(DataFusionError::Plan(format!(
                "cannot plan the statement: it nests more than {MAX_OPERATORS} operators at line {}, column \
                 {}; write x IN (…) instead of x = … OR x = …, or put the values into a table",
                at.line, at.column
            )));
        }
    }
    Ok(deepest)
}

fn effect(token: &Token) -> Effect {
    match token {
        Token::LParen => Effect::Open,
        Token::RParen => Effect::Close,
        Token::Comma => Effect::Expression,
        Token::SemiColon => Effect::Statement,
        Token::Word(_) => match keyword(token) {
            Keyword::CASE => Effect::Open,
            Keyword::END => Effect::Close,
            Keyword::SELECT
            | Keyword::WHERE
            | Keyword::HAVING
            | Keyword::ON
            | Keyword::WHEN
            | Keyword::THEN
            | Keyword::ELSE => Effect::Expression,
            Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT | Keyword::MINUS | Keyword::JOIN => {
                Effect::Query
            }
            Keyword::AND
            | Keyword::OR
            | Keyword::XOR
            | Keyword::IS
            | Keyword::IN
            | Keyword::BETWEEN
            | Keyword::LIKE
            | Keyword::ILIKE
            | Keyword::SIMILAR
            | Keyword::RLIKE
            | Keyword::REGEXP
            | Keyword::DIV
            | Keyword::OVERLAPS
            | Keyword::COLLATE
            | Keyword::AT => Effect::Operator,
            _ => Effect::None,
        },
        Token::Eq
        | Token::DoubleEq
        | Token::Neq
        | Token::Lt
        | Token::Gt
        | Token::LtEq
        | Token::GtEq
        | Token::Spaceship
        | Token::Plus
        | Token::Minus
        | Token::Mul
        | Token::Div
        | Token::DuckIntDiv
        | Token::Mod
        | Token::StringConcat
        | Token::DoubleColon
        | Token::LBracket
        | Token::Ampersand
        | Token::Pipe
        | Token::Caret
        | Token::CaretAt
        | Token::Sharp
        | Token::Overlap
        | Token::ShiftLeft
        | Token::ShiftRight
        | Token::Tilde
        | Token::TildeAsterisk
        | Token::ExclamationMarkTilde
        | Token::ExclamationMarkTildeAsterisk
        | Token::DoubleTilde
        | Token::DoubleTildeAsterisk
        | Token::ExclamationMarkDoubleTilde
        | Token::ExclamationMarkDoubleTildeAsterisk
        | Token::Arrow
        | Token::LongArrow
        | Token::HashArrow
        | Token::HashLongArrow
        | Token::HashMinus
        | Token::AtArrow
        | Token::ArrowAt => Effect::Operator,
        _ => Effect::None,
    }
}

#[cfg(test)]
mod tests {
    use crate::sql::dialect::Pellucid;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;

    fn checked(sql: &str) -> Result<(), String> {
        let tokens = Tokenizer::new(&Pellucid, sql).tokenize_with_location().expect("tokens");
        check(&tokens).map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn long_chains_are_refused_with_their_location() {
        let chain = |terms: usize| format!("SELECT\n1 {}", "+ 1 ".repeat(terms));
        assert_eq!(checked(&chain(MAX_OPERATORS)), Ok(()));
        let error = checked(&chain(MAX_OPERATORS + 1)).unwrap_err();
        assert!(error.contains(&format!("line 2, column {}", 3 + 4 * MAX_OPERATORS)), "{error}");
        for deep in ["UNION ALL SELECT 1 ", "JOIN t ON a = b "] {
            assert_eq!(checked(&format!("SELECT 1 {}", deep.repeat(9_000))), Ok(()));
            assert!(checked(&format!("SELECT 1 {}", deep.repeat(20_000))).is_err(), "{deep}");
        }
        let inner = format!("SELECT ({}1) {}", "1 + ".repeat(6_000), "+ (1) ".repeat(5_000));
        assert_eq!(checked(&inner), Ok(()));
        let nested = format!("SELECT {}({}1)", "1 + ".repeat(6_000), "1 + ".repeat(5_000));
        assert!(checked(&nested).is_err());
    }

    #[test]
    fn wide_statements_are_accepted() {
        for wide in [
            format!("SELECT {} 1", "a + b, ".repeat(20_000)),
            format!("SELECT {} 1", "f(a + b), ".repeat(20_000)),
            format!("SELECT CASE {} END", "WHEN a = 1 THEN 2 ".repeat(20_000)),
            format!("SELECT a WHERE a IN ({} 1)", "1, ".repeat(50_000)),
            "SELECT a + 1;".repeat(20_000),
            format!("SELECT 1 {}", "UNION ALL SELECT a + b + c WHERE a = 1 AND b = 2 ".repeat(5_000)),
        ] {
            assert_eq!(checked(&wide), Ok(()), "{}", &wide[..40]);
        }
    }
}
