//! Words that the parser reserves and DuckDB does not, and limits in percent.

use datafusion::sql::sqlparser::dialect::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::{Maker, is, keyword_at, next, previous};

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
    percent_limits(tokens);
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
