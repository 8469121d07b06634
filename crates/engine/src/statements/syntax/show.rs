//! DESCRIBE, SUMMARIZE, SHOW, TABLE and PRAGMA as queries, wherever a query may stand.
//!
//! `SUMMARIZE t` becomes `SELECT * FROM __summarize((SELECT * FROM t))`, which `crate::statements::describe`
//! replaces once the columns of the inner query are known.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::statements::syntax::words::{Words, is_word, quoted, spelled};

/// Words that start a query.
const QUERY: [&str; 8] = ["SELECT", "FROM", "WITH", "VALUES", "TABLE", "PIVOT", "UNPIVOT", "SUMMARIZE"];

/// Rewrites the statement and the queries within its parentheses.
pub(crate) fn queries(tokens: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let any = |t: &TokenWithSpan| {
        ["DESCRIBE", "DESC", "SUMMARIZE", "SHOW", "TABLE", "PRAGMA", "CALL"]
            .iter()
            .any(|word| is_word(&t.token, word))
    };
    if tokens.iter().any(any) { level(tokens, true) } else { tokens.to_vec() }
}

/// Rewrites the tokens of one level of parentheses, which may start a query.
fn level(tokens: &[TokenWithSpan], whole: bool) -> Vec<TokenWithSpan> {
    let head = head(Words::new(tokens), whole).or_else(|| if whole { created(tokens) } else { None });
    let tokens = head.as_deref().unwrap_or(tokens);
    let mut out = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        out.push(tokens[at].clone());
        if tokens[at].token == Token::LParen {
            let spaces = tokens[at + 1..].iter().take_while(|t| matches!(t.token, Token::Whitespace(_)));
            let first = spaces.count();
            let mut words = Words::new(&tokens[at + 1..]);
            let group = words.group();
            let closed = at + 1 + first + group.len();
            out.extend_from_slice(&tokens[at + 1..at + 1 + first]);
            out.extend(level(group, false));
            at = closed;
        } else {
            at += 1;
        }
    }
    out
}

/// Rewrites a query that these words start.
fn head(mut words: Words<'_>, whole: bool) -> Option<Vec<TokenWithSpan>> {
    let span = words.span();
    let first = match &words.next()?.token {
        Token::Word(word) if word.quote_style.is_none() => word.value.to_uppercase(),
        _ => return None,
    };
    let next = words.peek();
    // Within parentheses, the word may also be a column.
    let follows = next.is_some_and(|t| matches!(t.token, Token::Word(_) | Token::SingleQuotedString(_)));
    if !whole && !follows {
        return None;
    }
    let written = |text: &str| spelled(text, span);
    let call = |name: &str| Some(written(&format!("SELECT * FROM {name}()")));
    match first.as_str() {
        "DESCRIBE" | "DESC" if words.at_end() => call("__show_all_tables"),
        "DESCRIBE" | "DESC" => {
            words.eat(&["TABLE"]);
            Some(applied("__describe", &words))
        }
        "SUMMARIZE" if !words.at_end() => Some(applied("__summarize", &words)),
        "SHOW" => show(words, span),
        "TABLE" if follows => Some([written("SELECT * FROM "), words.rest().to_vec()].concat()),
        "PRAGMA" | "CALL" if whole => pragma(words, span, first == "CALL"),
        _ => None,
    }
}

/// Returns the call of a function of our own with the query that follows.
fn applied(function: &str, words: &Words<'_>) -> Vec<TokenWithSpan> {
    let span = words.span();
    let is_query =
        QUERY.iter().any(|word| words.is(word)) || words.peek().is_some_and(|t| t.token == Token::LParen);
    let before = if is_query { "" } else { "SELECT * FROM " };
    [
        spelled(&format!("SELECT * FROM {function}(({before}"), span),
        words.rest().to_vec(),
        spelled("))", span),
    ]
    .concat()
}

fn show(
    mut words: Words<'_>,
    span: datafusion::sql::sqlparser::tokenizer::Span,
) -> Option<Vec<TokenWithSpan>> {
    let call = |name: &str| Some(spelled(&format!("SELECT * FROM {name}()"), span));
    for (phrase, function) in [
        (&["TABLES"][..], "__show_tables"),
        (&["ALL", "TABLES"][..], "__show_all_tables"),
        (&["DATABASES"][..], "__show_databases"),
        (&["SCHEMAS"][..], "__show_schemas"),
        (&["VARIABLES"][..], "duckdb_variables"),
    ] {
        let mut ahead = words.clone();
        if ahead.eat(phrase) && ahead.at_end() {
            return call(function);
        }
    }
    // DataFusion's own forms.
    let own = [
        "ALL",
        "COLUMNS",
        "CREATE",
        "FIELDS",
        "FULL",
        "FUNCTIONS",
        "TABLES",
        "TIME",
        "TIMEZONE",
        "DATAFUSION",
    ];
    if own.iter().any(|word| words.is(word)) || words.at_end() {
        return None;
    }
    words.eat(&["TABLE"]);
    Some(applied("__describe", &words))
}

/// `PRAGMA name(arguments)` is a query of the function `pragma_name`; `PRAGMA name = value` a setting.
fn pragma(
    mut words: Words<'_>,
    span: datafusion::sql::sqlparser::tokenizer::Span,
    call: bool,
) -> Option<Vec<TokenWithSpan>> {
    let name = match &words.next()?.token {
        Token::Word(word) => word.value.to_lowercase(),
        _ => return None,
    };
    if call {
        return name
            .starts_with("pragma_")
            .then(|| [spelled(&format!("SELECT * FROM {name}"), span), words.rest().to_vec()].concat());
    }
    match words.peek().map(|t| &t.token) {
        Some(Token::Eq) => Some([spelled(&format!("SET {name} "), span), words.rest().to_vec()].concat()),
        Some(Token::LParen) => {
            words.next();
            let argument = match &words.next()?.token {
                Token::SingleQuotedString(text) => text.clone(),
                Token::Word(word) => word.value.clone(),
                Token::Number(number, _) => number.clone(),
                _ => return None,
            };
            Some(spelled(&format!("SELECT * FROM pragma_{name}({})", quoted(&argument)), span))
        }
        None if name == "show_tables" => Some(spelled("SELECT * FROM __show_tables()", span)),
        None if name == "show_databases" => Some(spelled("SELECT * FROM __show_databases()", span)),
        None => Some(spelled(&format!("SELECT * FROM pragma_{name}()"), span)),
        _ => None,
    }
}

/// Rewrites the query of `CREATE TABLE t AS SUMMARIZE u`.
fn created(tokens: &[TokenWithSpan]) -> Option<Vec<TokenWithSpan>> {
    let mut words = Words::new(tokens);
    if !words.eat(&["CREATE"]) {
        return None;
    }
    let mut is_macro = false;
    while let Some(token) = words.next() {
        is_macro = is_macro || is_word(&token.token, "MACRO") || is_word(&token.token, "FUNCTION");
        if is_word(&token.token, "AS") {
            let query = if is_macro && words.is("TABLE") { None } else { head(words.clone(), false) };
            return query.map(|query| [words.taken().to_vec(), query].concat());
        }
        if token.token == Token::LParen {
            words.group();
        }
    }
    None
}
