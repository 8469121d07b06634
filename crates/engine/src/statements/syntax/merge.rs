//! MERGE: forms of DuckDB that the parser lacks, rewritten to assignments of and values for marked columns.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::statements::syntax::words::{Words, spelled};

/// Call in place of the condition of `USING (a, b)`.
pub(crate) const USING: &str = "__using";
/// Column in place of all columns of the source's names.
pub(crate) const BY_NAME: &str = "__by_name";
/// Column in place of all columns in their order.
pub(crate) const BY_POSITION: &str = "__by_position";
/// Column in place of `DO NOTHING`.
pub(crate) const NOTHING: &str = "__nothing";
/// Column in place of `ERROR`.
pub(crate) const ERROR: &str = "__error";
/// Column in place of `DEFAULT VALUES`.
pub(crate) const DEFAULTS: &str = "__defaults";

/// Rewrites a MERGE; `None` if the statement is another one.
pub(crate) fn rewrite(mut words: Words<'_>) -> Option<Vec<TokenWithSpan>> {
    let mut made = Vec::new();
    if !words.eat(&["MERGE"]) {
        return None;
    }
    made.extend_from_slice(words.taken());
    let (mut usings, mut not) = (0, false);
    while let Some(token) = words.peek() {
        let span = token.span;
        let mut take = |words: &mut Words<'_>| {
            let before = words.taken().len();
            words.next();
            made.extend_from_slice(&words.taken()[before..]);
        };
        match &token.token {
            Token::LParen => {
                take(&mut words);
                let before = words.taken().len();
                words.group();
                made.extend_from_slice(&words.taken()[before..]);
            }
            _ if words.is("USING") => {
                usings += 1;
                if usings == 2 && words.eat(&["USING"]) {
                    made.extend(spelled(&format!("ON {USING}"), span));
                } else {
                    take(&mut words);
                }
            }
            _ if words.is("WHEN") => {
                take(&mut words);
                not = words.is("NOT") && {
                    let mut ahead = words.clone();
                    !(ahead.eat(&["NOT", "MATCHED", "BY", "SOURCE"]))
                };
            }
            _ if words.eat(&["THEN"]) => {
                let text = action(&mut words, not).map(|text| format!("THEN {text} "));
                made.extend(spelled(text.as_deref().unwrap_or("THEN "), span));
            }
            _ => take(&mut words),
        }
    }
    Some(made)
}

/// Takes an action that the parser lacks, and returns another one. `not` is true for rows that are not in the table.
fn action(words: &mut Words<'_>, not: bool) -> Option<String> {
    let marked = |column: &str| match not {
        true => format!("INSERT ({column}) ROW"),
        false => format!("UPDATE SET {column} = 1"),
    };
    if words.eat(&["DO", "NOTHING"]) {
        return Some(marked(NOTHING));
    }
    if words.eat(&["ERROR"]) {
        // A message may follow.
        words.text();
        return Some(marked(ERROR));
    }
    let mut ahead = words.clone();
    if !ahead.eat(&[if not { "INSERT" } else { "UPDATE" }]) {
        return None;
    }
    if not && ahead.eat(&["DEFAULT", "VALUES"]) {
        *words = ahead;
        return Some(marked(DEFAULTS));
    }
    let by_name = ahead.eat(&["BY", "NAME"]);
    let by_position = ahead.eat(&["BY", "POSITION"]);
    let mut all = ahead.clone();
    all.eat(&["SET"]);
    if all.eat_token(&Token::Mul) {
        ahead = all;
    }
    let ends = ahead.at_end() || ahead.is("WHEN") || ahead.is("RETURNING");
    if !(by_name || by_position || ends) {
        return None;
    }
    *words = ahead;
    Some(marked(if by_name { BY_NAME } else { BY_POSITION }))
}
