//! Messages of the parser, with the word that was probably meant.

use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan};
use strsim::damerau_levenshtein;

/// Words that start a statement or a clause.
const KEYWORDS: &[&str] = &[
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "HAVING",
    "ORDER",
    "LIMIT",
    "OFFSET",
    "JOIN",
    "LEFT",
    "RIGHT",
    "INNER",
    "UNION",
    "VALUES",
    "WITH",
    "INSERT",
    "CREATE",
    "DELETE",
    "UPDATE",
    "DROP",
    "COPY",
    "DESCRIBE",
    "SHOW",
    "EXPLAIN",
    "SUMMARIZE",
    "PIVOT",
    "UNPIVOT",
    "BETWEEN",
    "DISTINCT",
    "QUALIFY",
    "WINDOW",
    "INTO",
    "TABLE",
    "VIEW",
    "USING",
];

/// Rewrites a message of the parser (`Expected: x, found: y`) about the token at a place. Returns it with the place to show.
pub(super) fn explain(message: &str, tokens: &[TokenWithSpan], span: Option<Span>) -> (String, Option<Span>) {
    let words: Vec<&TokenWithSpan> =
        tokens.iter().filter(|t| !matches!(t.token, Token::Whitespace(_))).collect();
    let mut at = span.and_then(|span| words.iter().position(|t| t.span.start == span.start));
    let mut span = span;
    let mut message = message.replace("found: EOF", "found: end of input");
    // The parser takes the period for part of a name of a statement.
    if let Some(period) = at.map(|at| at + 1)
        && message == "Expected: an SQL statement, found: SELECT"
        && words.get(period).is_some_and(|word| word.token == Token::Period)
    {
        message = "Expected: an expression, found: .".to_string();
        (at, span) = (Some(period), Some(words[period].span));
    }
    let message = match message.strip_prefix("Expected: ").and_then(|rest| rest.rsplit_once(", found: ")) {
        Some((expected, found)) => format!("expected {}, found {found}", expected.trim()),
        None => message,
    };
    if let Some(index) = at
        && let Some(clause) = excluded(&words, index)
    {
        let message = format!(
            "cannot use {clause} in a window frame: it is not supported; leave rows out by a CASE in the argument, or subtract them"
        );
        return (message, span);
    }
    let end = at.unwrap_or(words.len());
    if let Some(hint) = at.and_then(|at| hint(&words, at)) {
        return (format!("cannot parse the SQL: {message}; {hint}"), span);
    }
    let ends = at.is_none_or(|at| {
        matches!(words[at].token, Token::EOF | Token::SemiColon) || starts_clause(&words[at].token)
    });
    match open_parenthesis(&words[..end]).filter(|_| ends) {
        Some(open) => {
            (format!("cannot parse the SQL: {message}; this ( is not closed; add )"), Some(open.span))
        }
        None => (format!("cannot parse the SQL: {message}"), span),
    }
}

/// Returns the EXCLUDE clause of a window frame at a token.
fn excluded(words: &[&TokenWithSpan], at: usize) -> Option<&'static str> {
    let is = |at: usize, text: &str| words.get(at).is_some_and(|word| is_word(&word.token, text));
    const CLAUSES: [(&str, &str); 3] =
        [("CURRENT", "EXCLUDE CURRENT ROW"), ("GROUP", "EXCLUDE GROUP"), ("TIES", "EXCLUDE TIES")];
    let clause = CLAUSES.into_iter().find(|(word, _)| is(at, "EXCLUDE") && is(at + 1, word))?;
    Some(clause.1)
}

/// Returns true for a word that starts a clause of the query around a parenthesis.
fn starts_clause(token: &Token) -> bool {
    ["FROM", "WHERE", "GROUP", "ORDER"].into_iter().any(|word| is_word(token, word))
}

/// Returns a way out of a mistake at a token.
fn hint(words: &[&TokenWithSpan], at: usize) -> Option<String> {
    // A word that is an alias by mistake stands before the place of the error.
    let near = [Some(at), at.checked_sub(1), at.checked_sub(2)];
    for index in near.into_iter().flatten() {
        if let Some(keyword) = misspelt(&words[index].token) {
            return Some(format!("did you mean {keyword} instead of {}?", words[index].token));
        }
    }
    if let Token::Word(word) = &words[at].token {
        let upper = word.value.to_uppercase();
        let later = words[..at].iter().any(|t| is_word(&t.token, "GROUP") || is_word(&t.token, "ORDER"));
        if upper == "WHERE" && later {
            return Some("WHERE comes before GROUP BY and ORDER BY".to_string());
        }
    }
    let is = |at: Option<usize>, text: &str| at.is_some_and(|at| is_word(&words[at].token, text));
    if is(Some(at), "PARTITION") {
        return Some("write BY after PARTITION".to_string());
    }
    if is(at.checked_sub(3), "SELECT") && is(at.checked_sub(2), "ORDER") && is(at.checked_sub(1), "BY") {
        return Some("write columns between SELECT and ORDER BY".to_string());
    }
    // The parser takes the next word for the name, if it can.
    let without_name = |at: Option<usize>| {
        let after = at.and_then(|at| words.get(at + 1)).map(|word| &word.token);
        is(at, "AS") && after.is_some_and(|token| starts_clause(token) || *token == Token::Comma)
    };
    if without_name(Some(at)) || without_name(at.checked_sub(2)) {
        return Some("write a name after AS".to_string());
    }
    match &words[at].token {
        Token::RParen if open_parenthesis(&words[..at]).is_none() => {
            Some("no ( is open before it; add (, or remove this )".to_string())
        }
        Token::Char(c) if "“”„‘’‚«»".contains(*c) => {
            Some(format!("write straight quotes instead of {c}: 'text' and \"column\""))
        }
        _ => None,
    }
}

/// Returns the last parenthesis that is not closed.
pub(super) fn open_parenthesis<'a>(
    tokens: impl IntoIterator<Item = &'a &'a TokenWithSpan>,
) -> Option<&'a TokenWithSpan> {
    let mut open = Vec::new();
    for token in tokens {
        match token.token {
            Token::LParen => open.push(*token),
            Token::RParen => drop(open.pop()),
            _ => {}
        }
    }
    open.pop()
}

fn is_word(token: &Token, text: &str) -> bool {
    matches!(token, Token::Word(word) if word.value.eq_ignore_ascii_case(text))
}

/// Returns the keyword that a word is close to.
fn misspelt(token: &Token) -> Option<&'static str> {
    let Token::Word(word) = token else { return None };
    let upper = word.value.to_uppercase();
    if word.quote_style.is_some() || upper.len() < 3 || KEYWORDS.contains(&upper.as_str()) {
        return None;
    }
    // A word with the same letters, or one wrong letter of four.
    let close = |keyword: &&&str| damerau_levenshtein(&upper, keyword) <= upper.len().max(4) / 4;
    KEYWORDS.iter().filter(close).min_by_key(|keyword| damerau_levenshtein(&upper, keyword)).copied()
}

#[cfg(test)]
mod tests {
    use crate::sql::statements::Statement;

    #[test]
    fn misspelt_keywords_are_proposed() {
        for (sql, expected) in [
            ("SELEC * FROM t", "no statement starts with SELEC; did you mean SELECT?"),
            ("SELECT * FORM t", "did you mean FROM instead of FORM?"),
            ("SELECT a, count(*) FROM t GORUP BY a", "did you mean GROUP instead of GORUP?"),
            ("SELECT a FROM t ORDER BY a WHERE a > 1", "WHERE comes before"),
            ("SELECT rank() OVER (PARTITION a ORDER BY b) FROM t", "write BY after PARTITION"),
            ("SELECT (1 + 2 FROM t", "this ( is not closed; add )\n  line 1, column 8"),
            (
                "SELECT f(a) FROM (FROM t WHERE a IN (1, 2)",
                "this ( is not closed; add )\n  line 1, column 18",
            ),
            (
                "SELECT sum(a) OVER (ORDER BY b ROWS 2 PRECEDING EXCLUDE CURRENT ROW) FROM t",
                "cannot use EXCLUDE CURRENT ROW in a window frame: it is not supported; leave rows out by a CASE in the argument, or subtract them\n  line 1, column 49",
            ),
        ] {
            let error = sql.parse::<Statement>().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
