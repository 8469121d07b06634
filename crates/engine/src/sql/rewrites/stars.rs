//! `*COLUMNS(…)`, which passes columns as arguments, and `* LIKE 'pattern'`, which selects some of them.

use datafusion::sql::sqlparser::dialect::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::{Maker, is, is_word, keyword_at, next, previous};

/// Rewrites both.
pub(super) fn rewrite(tokens: &mut Vec<TokenWithSpan>) {
    let mut at = 0;
    while at < tokens.len() {
        if is(tokens, at, &Token::Mul)
            && let Some(before) = previous(tokens, at)
        {
            let follows = next(tokens, at + 1);
            let opens = matches!(tokens[before].token, Token::LParen | Token::LBracket | Token::Comma);
            let selects = matches!(keyword_at(tokens, before), Keyword::SELECT | Keyword::DISTINCT)
                || is(tokens, before, &Token::Comma);
            if opens && is_word(tokens, follows, "columns") {
                let call = Maker(tokens[follows].span).text("__unpacked");
                tokens.splice(at..=follows, call);
            } else if let Some(pattern) = selects.then(|| pattern(tokens, follows)).flatten() {
                let maker = Maker(tokens[at].span);
                tokens.splice(pattern + 1..pattern + 1, maker.text(")"));
                tokens.splice(at..=at, maker.text("COLUMNS ( c -> c"));
            }
        }
        at += 1;
    }
}

/// Returns the index of the pattern after `LIKE` and its kin.
fn pattern(tokens: &[TokenWithSpan], at: usize) -> Option<usize> {
    use Keyword::{ILIKE, LIKE, NOT, SIMILAR, TO};
    let mut at = at;
    if keyword_at(tokens, at) == NOT {
        at = next(tokens, at + 1);
    }
    let mut pattern = next(tokens, at + 1);
    match keyword_at(tokens, at) {
        LIKE | ILIKE => {}
        SIMILAR if keyword_at(tokens, pattern) == TO => pattern = next(tokens, pattern + 1),
        _ if is_word(tokens, at, "glob") => {}
        _ => return None,
    }
    matches!(tokens.get(pattern)?.token, Token::SingleQuotedString(_)).then_some(pattern)
}
