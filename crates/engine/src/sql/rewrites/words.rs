//! Words that the parser reserves and DuckDB does not, `x ISNULL`, `WITH x AS MATERIALIZED (…)`, `EXCLUDE NO OTHERS`, and
//! limits in percent.

use datafusion::sql::sqlparser::dialect::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::{Maker, is, is_word, keyword_at, next, previous};

/// Makes names of words that are not keywords where they stand.
pub(super) fn rewrite(tokens: &mut Vec<TokenWithSpan>) {
    for at in 0..tokens.len() {
        if !matches!(tokens[at].token, Token::Word(_)) {
            continue;
        }
        let (before, after) = (previous(tokens, at), next(tokens, at + 1));
        let is_part =
            is(tokens, after, &Token::Period) || before.is_some_and(|at| is(tokens, at, &Token::Period));
        let is_name = match keyword_at(tokens, at) {
            Keyword::TOP => !matches!(tokens.get(after).map(|t| &t.token), Some(Token::Number(..))),
            Keyword::SORT => keyword_at(tokens, after) != Keyword::BY,
            _ => false,
        };
        if let (true, Token::Word(word)) = (is_part || is_name, &mut tokens[at].token) {
            word.keyword = Keyword::NoKeyword;
        }
    }
    is_null(tokens);
    materialized(tokens);
    no_others(tokens);
    percent_limits(tokens);
}

/// Removes `MATERIALIZED` and `NOT MATERIALIZED` between AS and the query of a WITH.
fn materialized(tokens: &mut Vec<TokenWithSpan>) {
    for at in 0..tokens.len() {
        if keyword_at(tokens, at) != Keyword::AS {
            continue;
        }
        let mut word = next(tokens, at + 1);
        if keyword_at(tokens, word) == Keyword::NOT {
            word = next(tokens, word + 1);
        }
        let query = next(tokens, word + 1);
        if keyword_at(tokens, word) == Keyword::MATERIALIZED && is(tokens, query, &Token::LParen) {
            tokens.drain(at + 1..query);
        }
    }
}

/// Removes `EXCLUDE NO OTHERS`, the default, from the frames of windows.
fn no_others(tokens: &mut Vec<TokenWithSpan>) {
    for at in 0..tokens.len() {
        let no = next(tokens, at + 1);
        let others = next(tokens, no + 1);
        let ends = is(tokens, next(tokens, others + 1), &Token::RParen);
        if is_word(tokens, at, "exclude")
            && is_word(tokens, no, "no")
            && is_word(tokens, others, "others")
            && ends
        {
            tokens.drain(at..=others);
            return no_others(tokens);
        }
    }
}

/// Rewrites `x ISNULL` to `x IS NULL`: the parser would take the word for an alias.
fn is_null(tokens: &mut Vec<TokenWithSpan>) {
    use Keyword::{
        AND, AS, BY, CASE, DISTINCT, ELSE, FROM, HAVING, IN, JOIN, LIKE, NOT, ON, OR, SELECT, THEN, WHEN,
        WHERE,
    };
    let mut at = 0;
    while at < tokens.len() {
        let ends_expression = previous(tokens, at).is_some_and(|before| match &tokens[before].token {
            Token::Word(_) => !matches!(
                keyword_at(tokens, before),
                AND | AS
                    | BY
                    | CASE
                    | DISTINCT
                    | ELSE
                    | FROM
                    | HAVING
                    | IN
                    | JOIN
                    | LIKE
                    | NOT
                    | ON
                    | OR
                    | SELECT
                    | THEN
                    | WHEN
                    | WHERE
            ),
            Token::RParen | Token::RBracket | Token::Number(..) | Token::SingleQuotedString(_) => true,
            _ => false,
        });
        let after = next(tokens, at + 1);
        let is_name = is(tokens, after, &Token::LParen) || is(tokens, after, &Token::Period);
        if ends_expression && !is_name && is_word(tokens, at, "isnull") {
            let new = Maker(tokens[at].span).text("IS NULL");
            tokens.splice(at..=at, new);
        }
        at += 1;
    }
}

/// Rewrites `LIMIT 10%` to `LIMIT __percent(10)`.
fn percent_limits(tokens: &mut Vec<TokenWithSpan>) {
    let mut at = 0;
    while at < tokens.len() {
        let number = next(tokens, at + 1);
        let unit = next(tokens, number + 1);
        let is_percent = is(tokens, unit, &Token::Mod) || keyword_at(tokens, unit) == Keyword::PERCENT;
        if keyword_at(tokens, at) == Keyword::LIMIT
            && is_percent
            && matches!(tokens[number].token, Token::Number(..))
        {
            let maker = Maker(tokens[number].span);
            let mut new = maker.text("__percent (");
            new.push(tokens[number].clone());
            new.extend(maker.text(")"));
            tokens.splice(number..=unit, new);
        }
        at += 1;
    }
}
