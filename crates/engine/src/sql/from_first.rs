//! FROM-first queries: `FROM t WHERE x > 1` means `SELECT * FROM t WHERE x > 1`.
//!
//! The parser supports `FROM t SELECT x`, but parses `FROM t` alone as a query without columns that
//! only ORDER BY and LIMIT may follow. So `SELECT *` is inserted into the tokens. The inserted tokens
//! have the location of the FROM, so that locations in messages stay those of the text.

use datafusion::sql::sqlparser::dialect::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// The parser state within one level of parentheses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// No tokens yet; FROM starts a query.
    Start,
    /// After the prefix of a query, such as `WITH x AS (…)` or `CREATE VIEW v AS`; FROM starts a query.
    Prefix,
    /// Within a query or another statement; FROM is one of its clauses.
    Body,
}

/// Inserts `SELECT *` before every query that starts with FROM and has no SELECT.
pub(crate) fn with_select(tokens: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let mut levels = vec![Level::Start];
    let mut insert_before = Vec::new();
    for (at, token) in tokens.iter().map(|t| &t.token).enumerate() {
        match token {
            Token::Whitespace(_) => continue,
            Token::SemiColon => levels = vec![Level::Start],
            Token::RParen if levels.len() > 1 => drop(levels.pop()),
            _ => {
                let Some(level) = levels.last_mut() else { continue };
                let keyword = keyword(token);
                if keyword == Keyword::FROM && *level != Level::Body && !has_select(&tokens[at + 1..]) {
                    insert_before.push(at);
                }
                *level = next_level(*level, keyword);
                if *token == Token::LParen {
                    levels.push(Level::Start);
                }
            }
        }
    }
    let mut out = Vec::with_capacity(tokens.len() + 2 * insert_before.len());
    for (at, token) in tokens.iter().enumerate() {
        if insert_before.contains(&at) {
            let words = [Token::make_keyword("SELECT"), Token::Mul];
            out.extend(words.map(|word| TokenWithSpan { token: word, span: token.span }));
        }
        out.push(token.clone());
    }
    out
}

/// Returns the keyword of a token; [`Keyword::NoKeyword`] for other tokens and quoted names.
pub(crate) fn keyword(token: &Token) -> Keyword {
    match token {
        Token::Word(word) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    }
}

pub(crate) fn next_level(level: Level, keyword: Keyword) -> Level {
    use Keyword::{
        ALL, BY, CREATE, DELETE, DESC, DESCRIBE, DISTINCT, EXCEPT, EXPLAIN, FROM, INSERT, INTERSECT, MERGE,
        MINUS, NAME, PREPARE, SELECT, SHOW, UNION, UPDATE, VALUES, WITH,
    };
    match (level, keyword) {
        (Level::Start, WITH | EXPLAIN | CREATE | INSERT | PREPARE) => Level::Prefix,
        // Part of a set operation, whose second query follows.
        (Level::Start, ALL | DISTINCT | BY | NAME) => Level::Start,
        (Level::Start, _) => Level::Body,
        (Level::Prefix, FROM | SELECT | VALUES | DELETE | UPDATE | MERGE | SHOW | DESCRIBE | DESC) => {
            Level::Body
        }
        (Level::Body, UNION | EXCEPT | INTERSECT | MINUS) => Level::Start,
        _ => level,
    }
}

/// Returns true if the rest of a query has a SELECT at the same level.
fn has_select(rest: &[TokenWithSpan]) -> bool {
    let mut depth = 0;
    for token in rest.iter().map(|t| &t.token) {
        match token {
            Token::LParen => depth += 1,
            Token::RParen if depth == 0 => return false,
            Token::RParen => depth -= 1,
            Token::SemiColon => return false,
            _ if depth == 0 => match keyword(token) {
                Keyword::SELECT => return true,
                Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT | Keyword::MINUS => return false,
                _ => {}
            },
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::dialect::Pellucid;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    fn rewritten(sql: &str) -> String {
        let tokens = Tokenizer::new(&Pellucid, sql).tokenize_with_location().unwrap();
        let words = |t: TokenWithSpan| match t.token {
            Token::Whitespace(_) => " ".to_string(),
            Token::Mul => " * ".to_string(),
            other => other.to_string(),
        };
        let text: String = with_select(&tokens).into_iter().map(words).collect();
        text.replace("EOF", "").split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn query_that_starts_with_from_selects_everything() {
        for (sql, expected) in [
            ("FROM t", "SELECT * FROM t"),
            ("from 't.csv' WHERE a > 1 LIMIT 2", "SELECT * from 't.csv' WHERE a > 1 LIMIT 2"),
            (
                "FROM (FROM t) x WHERE a IN (SELECT 1)",
                "SELECT * FROM (SELECT * FROM t) x WHERE a IN (SELECT 1)",
            ),
            ("FROM t UNION ALL BY NAME FROM u", "SELECT * FROM t UNION ALL BY NAME SELECT * FROM u"),
            ("(FROM t) EXCEPT DISTINCT FROM u", "(SELECT * FROM t) EXCEPT DISTINCT SELECT * FROM u"),
            ("WITH x AS (FROM t) FROM x", "WITH x AS (SELECT * FROM t) SELECT * FROM x"),
            ("CREATE VIEW v AS FROM t; FROM v", "CREATE VIEW v AS SELECT * FROM t; SELECT * FROM v"),
            ("EXPLAIN ANALYZE FROM t", "EXPLAIN ANALYZE SELECT * FROM t"),
            ("INSERT INTO u FROM t", "INSERT INTO u SELECT * FROM t"),
            ("COPY (FROM t) TO 'x.csv'", "COPY (SELECT * FROM t) TO 'x.csv'"),
        ] {
            assert_eq!(rewritten(sql), expected);
        }
    }

    #[test]
    fn other_uses_of_from_are_unchanged() {
        for sql in [
            "SELECT a FROM t",
            "FROM t SELECT a",
            "FROM t JOIN u USING (a) SELECT a WHERE a > 1",
            "SELECT * EXCEPT (a) FROM t",
            "SELECT extract(day FROM d), trim(BOTH ' ' FROM s), substring(s FROM 2) FROM t",
            "SELECT a IS DISTINCT FROM b, count(DISTINCT a) FROM t",
            "WITH x AS (SELECT 1) SELECT a FROM x",
            "DELETE FROM t; EXPLAIN DELETE FROM t",
            "SHOW COLUMNS FROM t",
            "SELECT 'FROM t', \"FROM\" FROM t -- FROM u",
        ] {
            assert_eq!(rewritten(sql), sql.replace(" -- FROM u", ""));
        }
    }
}
