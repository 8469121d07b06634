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

/// Rewrites a message of the parser (`Expected: x, found: y`) about the token at a place.
pub(super) fn explain(message: &str, tokens: &[TokenWithSpan], span: Option<Span>) -> String {
    let message = message.replace("found: EOF", "found: end of input");
    let message = match message.strip_prefix("Expected: ").and_then(|rest| rest.rsplit_once(", found: ")) {
        Some((expected, found)) => format!("expected {}, found {found}", expected.trim()),
        None => message,
    };
    let words: Vec<&TokenWithSpan> =
        tokens.iter().filter(|t| !matches!(t.token, Token::Whitespace(_))).collect();
    let at = span.and_then(|span| words.iter().position(|t| t.span.start == span.start));
    let hint = at.map_or_else(|| open_parentheses(&words, words.len()), |at| hint(&words, at));
    match hint {
        Some(hint) => format!("cannot parse the SQL: {message}; {hint}"),
        None => format!("cannot parse the SQL: {message}"),
    }
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
        if upper == "FROM" || upper == "WHERE" || upper == "GROUP" || upper == "ORDER" {
            return open_parentheses(words, at);
        }
    }
    match &words[at].token {
        Token::Char(c) if "“”„‘’‚«»".contains(*c) => {
            Some(format!("write straight quotes instead of {c}: 'text' and \"column\""))
        }
        Token::EOF => open_parentheses(words, at),
        _ => None,
    }
}

/// Proposes a parenthesis if one is open before a token.
fn open_parentheses(words: &[&TokenWithSpan], at: usize) -> Option<String> {
    let count = |token: Token| words[..at].iter().filter(|t| t.token == token).count();
    (count(Token::LParen) > count(Token::RParen)).then(|| "a ( is not closed; add )".to_string())
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
            ("SELECT (1 + 2 FROM t", "a ( is not closed"),
        ] {
            let error = sql.parse::<Statement>().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
