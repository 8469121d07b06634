//! PIVOT and UNPIVOT, as statements and after a table.
//!
//! The parser knows one column with a list of values, so the columns of a PIVOT and its GROUP BY become markers among its
//! aggregates: `PIVOT (sum(x), __pivot_on(a IN (1, 2)), __pivot_group(b) FOR 1 IN (1))`.

use datafusion::sql::sqlparser::dialect::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::{Maker, closing, find, is, is_word, keyword_at, next, previous, split, trim};
use crate::sql::from_first::{Level, next_level};

/// Rewrites every PIVOT and UNPIVOT.
pub(super) fn rewrite(tokens: &mut Vec<TokenWithSpan>) {
    let mut levels = vec![Level::Start];
    let mut at = 0;
    while at < tokens.len() {
        let level = levels.last().copied().unwrap_or(Level::Body);
        let replaced = match is_pivot(tokens, at) {
            Some(pivot) if level == Level::Body => standard(tokens, at, pivot),
            Some(pivot) => statement(tokens, at, pivot),
            None => None,
        };
        if let Some((end, new)) = replaced {
            tokens.splice(at..end, new);
        }
        match &tokens[at].token {
            Token::Whitespace(_) => {}
            Token::SemiColon => levels = vec![Level::Start],
            Token::RParen if levels.len() > 1 => drop(levels.pop()),
            token => {
                let open = *token == Token::LParen;
                if let Some(level) = levels.last_mut() {
                    *level = next_level(*level, keyword_at(tokens, at));
                }
                if open {
                    levels.push(Level::Start);
                }
            }
        }
        at += 1;
    }
}

/// Returns true for PIVOT, false for UNPIVOT, and `None` for another token.
fn is_pivot(tokens: &[TokenWithSpan], at: usize) -> Option<bool> {
    match keyword_at(tokens, at) {
        Keyword::PIVOT => Some(true),
        Keyword::UNPIVOT => Some(false),
        _ if is_word(tokens, at, "pivot_wider") => Some(true),
        _ if is_word(tokens, at, "pivot_longer") => Some(false),
        _ => None,
    }
}

/// Replacement of the tokens up to an index.
type Replacement = Option<(usize, Vec<TokenWithSpan>)>;

/// Rewrites `PIVOT t ON …` and `UNPIVOT t ON …` to a SELECT.
fn statement(tokens: &[TokenWithSpan], at: usize, pivot: bool) -> Replacement {
    use Keyword::{AS, EXCEPT, GROUP, INTERSECT, INTO, LIMIT, OFFSET, ON, ORDER, UNION, USING};
    let starts_table = |t: &TokenWithSpan| {
        matches!(
            t.token,
            Token::Word(_) | Token::LParen | Token::SingleQuotedString(_) | Token::DoubleQuotedString(_)
        )
    };
    if !tokens.get(next(tokens, at + 1)).is_some_and(starts_table) {
        return None;
    }
    let end = find(tokens, at + 1, |at| {
        matches!(keyword_at(tokens, at), ORDER | LIMIT | OFFSET | UNION | EXCEPT | INTERSECT)
    });
    let clauses: &[Keyword] = if pivot { &[ON, USING, GROUP] } else { &[ON, INTO] };
    let body = &tokens[at + 1..end];
    // The clauses come in this order.
    let mut starts = Vec::new();
    let mut from = 0;
    for &clause in clauses {
        let start = find(body, from, |at| keyword_at(body, at) == clause);
        if start < body.len() {
            starts.push((clause, start));
            from = start + 1;
        }
    }
    let (_, first) = *starts.first()?;
    // A table or a CTE may be called pivot.
    let other = find(body, 0, |at| matches!(keyword_at(body, at), Keyword::SELECT | Keyword::FROM));
    if other < first || keyword_at(body, next(body, 0)) == AS {
        return None;
    }
    let clause = |which: Keyword| {
        let index = starts.iter().position(|(clause, _)| *clause == which)?;
        let end = starts.get(index + 1).map_or(body.len(), |(_, start)| *start);
        Some(trim(&body[starts[index].1 + 1..end]))
    };
    let maker = Maker(tokens[at].span);
    let mut new = maker.text("SELECT * FROM");
    new.extend_from_slice(trim(&body[..first]));
    if pivot {
        let on: Vec<_> = clause(ON).map(split).unwrap_or_default();
        let group = clause(GROUP).and_then(|group| group.strip_prefix(group.get(..=next_by(group)?)?));
        new.extend(pivot_tokens(&maker, clause(USING).unwrap_or_default(), &on, group));
        if let (None, Some((GROUP, start))) = (group, starts.last()) {
            // Without BY, it stays, and the parser refuses it.
            new.extend_from_slice(&body[*start..]);
        }
    } else {
        let on = clause(ON)?;
        let (name, value) = into(clause(INTO).unwrap_or_default())?;
        new.extend(maker.text("UNPIVOT ("));
        new.extend(match value.is_empty() {
            true => maker.text("value"),
            false if split(value).len() > 1 => parenthesized(&maker, value.to_vec()),
            false => value.to_vec(),
        });
        new.extend(maker.text("FOR"));
        new.extend(if name.is_empty() { maker.text("name") } else { name.to_vec() });
        new.extend(maker.text("IN"));
        new.extend(parenthesized(&maker, unpivoted(&maker, on)));
        new.extend(maker.text(")"));
    }
    new.push(maker.token(Token::Whitespace(datafusion::sql::sqlparser::tokenizer::Whitespace::Space)));
    Some((end, new))
}

/// Returns the index of BY at the start of what follows GROUP.
fn next_by(tokens: &[TokenWithSpan]) -> Option<usize> {
    let by = next(tokens, 0);
    (keyword_at(tokens, by) == Keyword::BY).then_some(by)
}

/// Returns the name and the values of `NAME n VALUE v`; nothing of both for no tokens.
fn into(tokens: &[TokenWithSpan]) -> Option<(&[TokenWithSpan], &[TokenWithSpan])> {
    if tokens.is_empty() {
        return Some((&[], &[]));
    }
    let name = next(tokens, 0);
    let value =
        find(tokens, name + 1, |at| matches!(keyword_at(tokens, at), Keyword::VALUE | Keyword::VALUES));
    (keyword_at(tokens, name) == Keyword::NAME && value < tokens.len())
        .then(|| (trim(&tokens[name + 1..value]), trim(&tokens[value + 1..])))
}

/// Rewrites `t PIVOT (… FOR a IN (…) b IN (…) GROUP BY …)`, and `*` in `UNPIVOT (… FOR … IN (*))`.
fn standard(tokens: &[TokenWithSpan], at: usize, pivot: bool) -> Replacement {
    let before = &tokens[previous(tokens, at)?].token;
    if !matches!(before, Token::Word(_) | Token::RParen | Token::SingleQuotedString(_)) {
        return None;
    }
    let open = match pivot {
        true => next(tokens, at + 1),
        // INCLUDE NULLS may precede it.
        false => find(tokens, at + 1, |at| tokens[at].token == Token::LParen),
    };
    if !is(tokens, open, &Token::LParen) {
        return None;
    }
    let close = closing(tokens, open)?;
    let inner = &tokens[open + 1..close];
    let start = find(inner, 0, |at| keyword_at(inner, at) == Keyword::FOR);
    // A number stands for the columns of a PIVOT that is rewritten already.
    if start == inner.len() || matches!(inner.get(next(inner, start + 1))?.token, Token::Number(..)) {
        return None;
    }
    let maker = Maker(tokens[at].span);
    if !pivot {
        let list = find(inner, start, |at| keyword_at(inner, at) == Keyword::IN);
        let list = next(inner, list + 1);
        let end = closing(inner, list)?;
        let mut new = tokens[at..=open + 1 + list].to_vec();
        new.extend(unpivoted(&maker, &inner[list + 1..end]));
        new.extend_from_slice(&inner[end..]);
        new.push(tokens[close].clone());
        return Some((close + 1, new));
    }
    let end = find(inner, start, |at| keyword_at(inner, at) == Keyword::GROUP);
    let mut on = Vec::new();
    let mut from = next(inner, start + 1);
    while from < end {
        let list = find(inner, from, |at| keyword_at(inner, at) == Keyword::IN);
        let list = next(inner, list + 1);
        if list >= end || !is(inner, list, &Token::LParen) {
            return None;
        }
        let last = closing(inner, list)?;
        on.push(&inner[from..=last]);
        from = next(inner, last + 1);
    }
    let group = inner.get(end + 1..).and_then(|group| group.strip_prefix(group.get(..=next_by(group)?)?));
    let new = pivot_tokens(&maker, trim(&inner[..start]), &on, group);
    Some((close + 1, new))
}

/// Returns `PIVOT (…)` with markers for the columns and the groups.
fn pivot_tokens(
    maker: &Maker,
    aggregates: &[TokenWithSpan],
    on: &[&[TokenWithSpan]],
    group: Option<&[TokenWithSpan]>,
) -> Vec<TokenWithSpan> {
    let mut new = maker.text("PIVOT (");
    new.extend(if aggregates.is_empty() { maker.text("count ( * )") } else { aggregates.to_vec() });
    for column in on {
        new.extend(maker.text(", __pivot_on"));
        new.extend(parenthesized(maker, named_values(maker, column)));
    }
    if let Some(group) = group {
        new.extend(maker.text(", __pivot_group"));
        new.extend(parenthesized(maker, trim(group).to_vec()));
    }
    new.extend(maker.text("FOR 1 IN ( 1 ) )"));
    new
}

/// Replaces `a IN (1 AS one)` by `a IN (__pivot_named(1, one))`.
fn named_values(maker: &Maker, column: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let list = find(column, 0, |at| keyword_at(column, at) == Keyword::IN);
    let list = next(column, list + 1);
    let Some(close) = closing(column, list).filter(|_| is(column, list, &Token::LParen)) else {
        return column.to_vec();
    };
    let mut new = column[..=list].to_vec();
    for (index, value) in split(&column[list + 1..close]).into_iter().enumerate() {
        if index > 0 {
            new.push(maker.token(Token::Comma));
        }
        match alias(value) {
            Some((value, name)) => {
                new.extend(maker.text("__pivot_named ("));
                new.extend_from_slice(value);
                new.push(maker.token(Token::Comma));
                new.push(name.clone());
                new.push(maker.token(Token::RParen));
            }
            None => new.extend_from_slice(value),
        }
    }
    new.extend_from_slice(&column[close..]);
    new
}

/// Returns a value and the alias after it.
fn alias(value: &[TokenWithSpan]) -> Option<(&[TokenWithSpan], &TokenWithSpan)> {
    let (last, before) = value.split_last()?;
    let before = trim(before);
    let follows = match keyword_at(before, before.len().checked_sub(1)?) {
        Keyword::AS => return Some((trim(&before[..before.len() - 1]), last)),
        _ => &before.last()?.token,
    };
    // A word after a complete value.
    let complete = matches!(follows, Token::Number(..) | Token::SingleQuotedString(_) | Token::RParen);
    (complete && matches!(last.token, Token::Word(_))).then_some((before, last))
}

/// Returns the columns of an UNPIVOT, with `COLUMNS(*)` for `*` and AS before aliases.
fn unpivoted(maker: &Maker, list: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let mut new = Vec::new();
    for (index, column) in split(list).into_iter().enumerate() {
        if index > 0 {
            new.push(maker.token(Token::Comma));
        }
        if is(column, 0, &Token::Mul) {
            new.extend(maker.text("COLUMNS"));
            new.extend(parenthesized(maker, column.to_vec()));
            continue;
        }
        let last = column.len() - 1;
        let follows = previous(column, last).map(|before| &column[before].token);
        let unmarked = matches!(column[last].token, Token::Word(_))
            && (matches!(follows, Some(Token::RParen | Token::Number(..)))
                || matches!(follows, Some(Token::Word(_))) && last == 2);
        new.extend_from_slice(&column[..last]);
        if unmarked {
            new.extend(maker.text("AS"));
        }
        new.push(column[last].clone());
    }
    new
}

fn parenthesized(maker: &Maker, tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut new = maker.text("(");
    new.extend(tokens);
    new.push(maker.token(Token::RParen));
    new
}
