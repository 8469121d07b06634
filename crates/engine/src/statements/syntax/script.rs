//! Statements of scripts: variables, sequences, macros, transactions, INSERT … BY NAME.

use datafusion::common::Result;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::statements::own::{NewSequence, Own};
use crate::statements::syntax::copy::Rewritten;
use crate::statements::syntax::words::{Words, refused, spelled};

/// Rewrites a statement; `None` if the parser has its syntax.
///
/// # Errors
/// Returns an error with its place if the statement is wrong.
pub(crate) fn rewrite(words: Words<'_>) -> Result<Option<Rewritten>> {
    let span = words.span();
    let mut ahead = words.clone();
    let nothing = |own: Own| Ok(Some((spelled("SELECT 1", span), Some(own))));
    if ahead.eat(&["SET", "VARIABLE"]) {
        return set_variable(ahead, span).map(Some);
    }
    if ahead.eat(&["RESET", "VARIABLE"]) {
        return match ahead.next() {
            Some(TokenWithSpan { token: Token::Word(word), .. }) => {
                nothing(Own::ResetVariable(word.value.to_lowercase()))
            }
            _ => Err(refused(span, "RESET VARIABLE needs the name of a variable")),
        };
    }
    if ahead.eat(&["ABORT"]) {
        return Ok(Some((spelled("ROLLBACK", span), None)));
    }
    let idle = [&["FORCE", "CHECKPOINT"][..], &["CHECKPOINT"][..], &["VACUUM"][..]];
    if idle.iter().any(|phrase| ahead.eat(phrase)) {
        return nothing(Own::Nothing);
    }
    // ANALYZE TABLE is DataFusion's.
    if ahead.eat(&["ANALYZE"]) && !ahead.is("TABLE") {
        return nothing(Own::Nothing);
    }
    let mut ahead = words.clone();
    if ahead.eat(&["DROP"]) && (ahead.eat(&["MACRO"]) || ahead.eat(&["FUNCTION"])) {
        ahead.eat(&["TABLE"]);
        let if_exists = ahead.eat(&["IF", "EXISTS"]);
        let span = ahead.span();
        if let Some(TokenWithSpan { token: Token::Word(word), .. }) = ahead.next() {
            return nothing(Own::DropMacro { name: word.value.to_lowercase(), if_exists, span });
        }
    }
    if let Some(sequence) = sequence(words.clone())? {
        return nothing(Own::CreateSequence(sequence));
    }
    Ok(by_name(words))
}

/// `SET VARIABLE x = value` becomes a query of the value.
fn set_variable(
    mut words: Words<'_>,
    span: datafusion::sql::sqlparser::tokenizer::Span,
) -> Result<Rewritten> {
    let name = match words.next().map(|t| &t.token) {
        Some(Token::Word(word)) => word.value.to_lowercase(),
        _ => return Err(refused(span, "SET VARIABLE needs the name of a variable")),
    };
    if !words.eat_token(&Token::Eq) && !words.eat(&["TO"]) {
        return Err(refused(words.span(), "SET VARIABLE needs = after the name of the variable"));
    }
    let mut tokens = spelled("SELECT ", span);
    tokens.extend_from_slice(words.rest());
    Ok((tokens, Some(Own::SetVariable(name))))
}

/// Reads `CREATE SEQUENCE`, whose options may have any order.
fn sequence(mut words: Words<'_>) -> Result<Option<NewSequence>> {
    if !words.eat(&["CREATE"]) {
        return Ok(None);
    }
    let or_replace = words.eat(&["OR", "REPLACE"]);
    let _ = words.eat(&["TEMP"]) || words.eat(&["TEMPORARY"]);
    if !words.eat(&["SEQUENCE"]) {
        return Ok(None);
    }
    let if_not_exists = words.eat(&["IF", "NOT", "EXISTS"]);
    let span = words.span();
    let Some(TokenWithSpan { token: Token::Word(word), .. }) = words.next() else {
        return Err(refused(span, "CREATE SEQUENCE needs a name"));
    };
    let name = word.value.to_lowercase();
    let (mut start, mut increment, mut min, mut max, mut cycle) = (None, 1, None, None, false);
    while !words.at_end() {
        if words.eat(&["START"]) {
            words.eat(&["WITH"]);
            start = Some(integer(&mut words)?);
        } else if words.eat(&["INCREMENT"]) {
            words.eat(&["BY"]);
            increment = integer(&mut words)?;
        } else if words.eat(&["MINVALUE"]) {
            min = Some(integer(&mut words)?);
        } else if words.eat(&["MAXVALUE"]) {
            max = Some(integer(&mut words)?);
        } else if words.eat(&["CYCLE"]) {
            cycle = true;
        } else if !(words.eat(&["NO", "CYCLE"])
            || words.eat(&["NO", "MINVALUE"])
            || words.eat(&["NO", "MAXVALUE"]))
        {
            let found = words.peek().map_or(String::new(), |t| t.token.to_string());
            let known = "START, INCREMENT, MINVALUE, MAXVALUE or CYCLE";
            return Err(refused(
                words.span(),
                format!("cannot parse the SQL: Expected: {known}, found: {found}"),
            ));
        }
    }
    let down = increment < 0;
    let min = min.unwrap_or(if down { i64::MIN } else { 1 });
    let max = max.unwrap_or(if down { -1 } else { i64::MAX });
    let start = start.unwrap_or(if down { max } else { min });
    if increment == 0 || start < min || start > max {
        let cause = if increment == 0 {
            "INCREMENT must not be 0"
        } else {
            "START must lie between MINVALUE and MAXVALUE"
        };
        return Err(refused(span, format!("cannot create sequence {name}: {cause}")));
    }
    Ok(Some(NewSequence { name, or_replace, if_not_exists, start, increment, min, max, cycle, span }))
}

fn integer(words: &mut Words<'_>) -> Result<i64> {
    let span = words.span();
    let minus = words.eat_token(&Token::Minus);
    let text = match words.next().map(|t| &t.token) {
        Some(Token::Number(number, _)) => format!("{}{number}", if minus { "-" } else { "" }),
        _ => String::new(),
    };
    text.parse().map_err(|_| refused(span, "cannot parse the SQL: Expected: a whole number"))
}

/// Removes `BY NAME` from an INSERT.
fn by_name(words: Words<'_>) -> Option<Rewritten> {
    let mut ahead = words;
    if !ahead.eat(&["INSERT"]) {
        return None;
    }
    while !ahead.is("INTO") {
        ahead.next()?;
    }
    ahead.next();
    while !ahead.is("BY") {
        if ["SELECT", "FROM", "VALUES", "WITH", "DEFAULT"].iter().any(|word| ahead.is(word)) {
            return None;
        }
        if ahead.next()?.token == Token::LParen {
            ahead.group();
        }
    }
    let before = ahead.taken().to_vec();
    let by_name = ahead.eat(&["BY", "NAME"]);
    if !by_name && !ahead.eat(&["BY", "POSITION"]) {
        return None;
    }
    let tokens = [before, ahead.rest().to_vec()].concat();
    Some((tokens, by_name.then_some(Own::ByName)))
}
