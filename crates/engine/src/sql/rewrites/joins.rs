//! `ASOF JOIN … ON` and `POSITIONAL JOIN`, as the ASOF JOIN that the parser knows, whose match condition is a marker.

use datafusion::sql::sqlparser::dialect::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::{Maker, find, is_word, keyword_at, next, previous};

/// Rewrites every ASOF and POSITIONAL JOIN.
pub(super) fn rewrite(tokens: &mut Vec<TokenWithSpan>) {
    let mut at = 0;
    while at < tokens.len() {
        if keyword_at(tokens, at) == Keyword::ASOF {
            asof(tokens, at);
        } else if is_word(tokens, at, "positional")
            && keyword_at(tokens, next(tokens, at + 1)) == Keyword::JOIN
            && previous(tokens, at).is_none_or(|before| keyword_at(tokens, before) != Keyword::AS)
        {
            positional(tokens, at);
        }
        at += 1;
    }
}

fn asof(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    use Keyword::{INNER, JOIN, LEFT, MATCH_CONDITION, ON, OUTER, USING};
    let kind = next(tokens, at + 1);
    let left = keyword_at(tokens, kind) == LEFT;
    let mut join = kind;
    while matches!(keyword_at(tokens, join), LEFT | INNER | OUTER) {
        join = next(tokens, join + 1);
    }
    if keyword_at(tokens, join) != JOIN {
        return;
    }
    let on = find(tokens, join + 1, |at| matches!(keyword_at(tokens, at), ON | USING | MATCH_CONDITION));
    if matches!(keyword_at(tokens, on), ON | USING) {
        let marker = if left { "MATCH_CONDITION ( __asof_left )" } else { "MATCH_CONDITION ( __asof )" };
        let marker = Maker(tokens[at].span).text(marker);
        tokens.splice(on..on, marker);
        tokens.drain(kind..join);
    }
}

fn positional(tokens: &mut Vec<TokenWithSpan>, at: usize) {
    use Keyword::{
        ANTI, ASOF, CROSS, EXCEPT, FULL, GROUP, HAVING, INNER, INTERSECT, JOIN, LEFT, LIMIT, NATURAL, OFFSET,
        ON, ORDER, QUALIFY, RIGHT, SELECT, SEMI, UNION, USING, WHERE, WINDOW,
    };
    let join = next(tokens, at + 1);
    let ends = |index: usize| {
        matches!(
            keyword_at(tokens, index),
            ANTI | ASOF
                | CROSS
                | EXCEPT
                | FULL
                | GROUP
                | HAVING
                | INNER
                | INTERSECT
                | JOIN
                | LEFT
                | LIMIT
                | NATURAL
                | OFFSET
                | ON
                | ORDER
                | QUALIFY
                | RIGHT
                | SELECT
                | SEMI
                | UNION
                | USING
                | WHERE
                | WINDOW
        ) || tokens[index].token == Token::Comma
            || is_word(tokens, index, "positional")
    };
    let end = find(tokens, join + 1, ends);
    let end = previous(tokens, end).map_or(end, |last| last + 1);
    let maker = Maker(tokens[at].span);
    let marker = maker.text("MATCH_CONDITION ( __positional )");
    tokens.splice(end..end, marker);
    tokens[at] = maker.token(Token::make_keyword("ASOF"));
}
