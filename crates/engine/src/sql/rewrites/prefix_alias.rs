//! Aliases before what they name: `SELECT total: sum(x) FROM t: sales`.

use datafusion::sql::sqlparser::dialect::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::{Maker, closing, find, is, keyword_at, next, previous};

/// The clause that the tokens of a level belong to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clause {
    Select,
    From,
    Other,
}

/// Moves prefix aliases behind what they name.
pub(super) fn rewrite(tokens: &mut Vec<TokenWithSpan>) {
    let mut clauses = vec![Clause::Other];
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at].token {
            Token::LParen | Token::LBracket | Token::LBrace => clauses.push(Clause::Other),
            Token::RParen | Token::RBracket | Token::RBrace if clauses.len() > 1 => drop(clauses.pop()),
            Token::SemiColon => clauses = vec![Clause::Other],
            Token::Word(_) => {
                let clause = clauses.last_mut();
                let colon = next(tokens, at + 1);
                match clause {
                    // In `{a: 1}` and `x[a:b]`, a colon has another meaning.
                    Some(clause)
                        if *clause != Clause::Other
                            && is(tokens, colon, &Token::Colon)
                            && starts_item(tokens, at) =>
                    {
                        move_alias(tokens, at, colon, *clause);
                        // The place of the alias now has the expression that it names.
                        continue;
                    }
                    Some(clause) => *clause = after(*clause, tokens, at),
                    None => {}
                }
            }
            _ => {}
        }
        at += 1;
    }
}

fn after(clause: Clause, tokens: &[TokenWithSpan], at: usize) -> Clause {
    use Keyword::{FROM, GROUP, HAVING, LIMIT, ORDER, QUALIFY, SELECT, WHERE, WINDOW};
    match keyword_at(tokens, at) {
        SELECT => Clause::Select,
        FROM if !is_distinct_from(tokens, at) => Clause::From,
        WHERE | GROUP | HAVING | ORDER | LIMIT | QUALIFY | WINDOW => Clause::Other,
        _ => clause,
    }
}

fn is_distinct_from(tokens: &[TokenWithSpan], from: usize) -> bool {
    previous(tokens, from).is_some_and(|before| keyword_at(tokens, before) == Keyword::DISTINCT)
}

/// Returns true for the first token of an item of a SELECT or FROM.
fn starts_item(tokens: &[TokenWithSpan], at: usize) -> bool {
    use Keyword::{ALL, DISTINCT, FROM, JOIN, SELECT};
    let Some(before) = previous(tokens, at) else { return false };
    is(tokens, before, &Token::Comma)
        || matches!(keyword_at(tokens, before), SELECT | DISTINCT | ALL | FROM | JOIN)
}

/// Moves the alias at `at`, which precedes a colon, behind its item.
fn move_alias(tokens: &mut Vec<TokenWithSpan>, at: usize, colon: usize, clause: Clause) {
    let start = next(tokens, colon + 1);
    let end = if clause == Clause::From { table(tokens, start) } else { select_item(tokens, start) };
    let alias = tokens[at].clone();
    let mut renamed = Maker(alias.span).text("AS");
    renamed.push(alias);
    tokens.splice(end..end, renamed);
    tokens.drain(at..start);
}

fn select_item(tokens: &[TokenWithSpan], start: usize) -> usize {
    use Keyword::{
        EXCEPT, FROM, GROUP, HAVING, INTERSECT, INTO, LIMIT, OFFSET, ORDER, QUALIFY, UNION, WHERE, WINDOW,
    };
    let ends = |at: usize| match keyword_at(tokens, at) {
        FROM => !is_distinct_from(tokens, at),
        WHERE | GROUP | HAVING | ORDER | LIMIT | OFFSET | QUALIFY | WINDOW | UNION | EXCEPT | INTERSECT
        | INTO => true,
        _ => tokens[at].token == Token::Comma,
    };
    let end = find(tokens, start, ends);
    previous(tokens, end).map_or(end, |last| last + 1)
}

fn table(tokens: &[TokenWithSpan], start: usize) -> usize {
    let mut end = start;
    // A name may have several parts, and a function has arguments.
    while end < tokens.len() {
        let follows = next(tokens, end + 1);
        end = match tokens[end].token {
            Token::LParen => return closing(tokens, end).map_or(tokens.len(), |close| close + 1),
            _ if is(tokens, follows, &Token::LParen) || is(tokens, follows, &Token::Period) => follows,
            Token::Period => follows,
            _ => return end + 1,
        };
    }
    end
}
