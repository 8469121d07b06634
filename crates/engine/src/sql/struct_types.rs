//! Types of structs: `STRUCT(a INT, b VARCHAR)`.
//!
//! The parser knows their parentheses only in DuckDB's own dialect, and angle brackets in ours. So the tokens of the
//! parentheses are replaced by those of brackets, at their places.

use datafusion::sql::sqlparser::dialect::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::sql::from_first::keyword;

/// Replaces the parentheses of types of structs by angle brackets.
pub(crate) fn with_brackets(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    // For each open parenthesis, whether it belongs to a type.
    let mut open = Vec::new();
    for at in 0..tokens.len() {
        match tokens[at].token {
            Token::LParen => {
                let is_type = is_struct(&tokens[..at]) && is_field(&tokens[at + 1..]);
                if is_type {
                    tokens[at].token = Token::Lt;
                }
                open.push(is_type);
            }
            Token::RParen if open.pop() == Some(true) => tokens[at].token = Token::Gt,
            _ => {}
        }
    }
    tokens
}

fn is_struct(before: &[TokenWithSpan]) -> bool {
    let last = before.iter().rev().find(|token| !matches!(token.token, Token::Whitespace(_)));
    last.is_some_and(|token| keyword(&token.token) == Keyword::STRUCT)
}

/// Returns true if a name and a type follow, where a call of the function `struct` has an expression.
fn is_field(after: &[TokenWithSpan]) -> bool {
    let mut next =
        after.iter().map(|token| &token.token).filter(|token| !matches!(token, Token::Whitespace(_)));
    matches!(next.next(), Some(Token::Word(_)))
        && next.next().is_some_and(|token| match token {
            Token::Word(word) => !matches!(
                word.keyword,
                Keyword::AS
                    | Keyword::AND
                    | Keyword::OR
                    | Keyword::IS
                    | Keyword::IN
                    | Keyword::LIKE
                    | Keyword::BETWEEN
                    | Keyword::NOT
            ),
            _ => false,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::dialect::Pellucid;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    #[test]
    fn types_get_brackets_and_calls_keep_parentheses() {
        let replaced = |sql: &str| -> String {
            let tokens = Tokenizer::new(&Pellucid, sql).tokenize_with_location().unwrap();
            with_brackets(tokens).iter().map(|token| token.token.to_string()).collect()
        };
        assert_eq!(
            replaced("x::STRUCT(a INT, \"b\" STRUCT(c DECIMAL(4, 2))[])"),
            "x::STRUCT<a INT, \"b\" STRUCT<c DECIMAL(4, 2)>[]>"
        );
        for call in ["struct(a, b)", "struct(a AS x)", "struct(f(a), 1)", "struct(a IS NULL)"] {
            assert_eq!(replaced(call), call);
        }
    }
}
