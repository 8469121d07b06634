//! Syntax of DuckDB that the parser lacks, rewritten to syntax that it has.
//!
//! The rewritten tokens keep the places of those that they replace, so that messages show the text as
//! it was written.

pub(crate) mod copy;
pub(crate) mod copy_options;
pub(crate) mod merge;
pub(crate) mod parameters;
mod script;
mod show;
pub(crate) mod words;

use datafusion::common::Result;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::logical::nearest::nearest;
use crate::statements::own::Own;
use crate::statements::syntax::words::{Words, is_word, refused};

/// The words that start a statement.
const STATEMENTS: [&str; 51] = [
    "ABORT",
    "ALTER",
    "ANALYZE",
    "ASSERT",
    "ATTACH",
    "BEGIN",
    "CACHE",
    "CALL",
    "CHECKPOINT",
    "CLOSE",
    "COMMENT",
    "COMMIT",
    "COPY",
    "CREATE",
    "DEALLOCATE",
    "DECLARE",
    "DELETE",
    "DESC",
    "DESCRIBE",
    "DETACH",
    "DROP",
    "END",
    "EXECUTE",
    "EXPLAIN",
    "EXPORT",
    "FETCH",
    "FORCE",
    "FROM",
    "GRANT",
    "IMPORT",
    "INSERT",
    "INSTALL",
    "LOAD",
    "MERGE",
    "PIVOT",
    "PIVOT_WIDER",
    "PRAGMA",
    "PREPARE",
    "RESET",
    "REVOKE",
    "ROLLBACK",
    "SELECT",
    "SET",
    "SHOW",
    "START",
    "SUMMARIZE",
    "TABLE",
    "TRUNCATE",
    "UNPIVOT",
    "UPDATE",
    "USE",
];

/// Rewrites the tokens of a statement. Returns what the tree cannot hold.
///
/// # Errors
/// Returns an error with its place if the statement is wrong.
pub(crate) fn rewritten(tokens: &[TokenWithSpan]) -> Result<(Vec<TokenWithSpan>, Option<Own>)> {
    let words = Words::new(tokens);
    check_first(&words)?;
    let mut copied = words.clone();
    let (tokens, own) = match copied.eat(&["COPY"]) {
        true => copy::rewrite(copied)?,
        false => match merge::rewrite(words.clone()) {
            Some(tokens) => Some((tokens, None)),
            None => script::rewrite(words)?,
        },
    }
    .unwrap_or_else(|| (tokens.to_vec(), None));
    let tokens = show::queries(&tokens);
    Ok((with_numbers(with_struct_types(tokens)), own))
}

/// Refuses a first word that no statement starts with, if it is near to one.
fn check_first(words: &Words<'_>) -> Result<()> {
    let Some(TokenWithSpan { token: Token::Word(word), span }) = words.peek() else { return Ok(()) };
    let known =
        ["WITH", "VALUES", "VACUUM", "RELEASE", "SAVEPOINT", "REPLACE", "LISTEN", "KILL", "FLUSH", "MSCK"];
    let upper = word.value.to_uppercase();
    let is_known = STATEMENTS.contains(&upper.as_str()) || known.contains(&upper.as_str());
    if is_known || word.quote_style.is_some() {
        return Ok(());
    }
    let names: Vec<String> = STATEMENTS.iter().chain(&known[..2]).map(|name| name.to_string()).collect();
    match &nearest(&upper, &names)[..] {
        [] => Ok(()),
        near => Err(refused(
            *span,
            format!(
                "cannot parse the SQL: no statement starts with {}; did you mean {}?",
                word.value,
                near.join(", ")
            ),
        )),
    }
}

/// Numbers the parameters that are written `?`.
fn with_numbers(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let questions = tokens.iter_mut().filter(|t| matches!(&t.token, Token::Placeholder(name) if name == "?"));
    for (index, question) in questions.enumerate() {
        question.token = Token::Placeholder(format!("${}", index + 1));
    }
    tokens
}

/// Writes the types `STRUCT(a INT)` as `STRUCT<a INT>`.
fn with_struct_types(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let significant: Vec<usize> =
        (0..tokens.len()).filter(|at| !matches!(tokens[*at].token, Token::Whitespace(_))).collect();
    for (position, at) in significant.iter().enumerate() {
        let ahead = |n: usize| significant.get(position + n).map(|at| &tokens[*at].token);
        let is_type = is_word(&tokens[*at].token, "STRUCT")
            && ahead(1) == Some(&Token::LParen)
            && matches!(ahead(2), Some(Token::Word(_)))
            && matches!(ahead(3), Some(word @ Token::Word(_)) if !is_word(word, "AS"));
        if !is_type {
            continue;
        }
        let mut depth = 0;
        let closing = significant[position + 1..].iter().copied().find(|at| {
            match tokens[*at].token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        if let Some(closing) = closing {
            tokens[significant[position + 1]].token = Token::Lt;
            tokens[closing].token = Token::Gt;
        }
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::dialect::Pellucid;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    fn tokens(sql: &str) -> Vec<TokenWithSpan> {
        Tokenizer::new(&Pellucid, sql).tokenize_with_location().unwrap()
    }

    fn shown(sql: &str) -> String {
        let tokens = rewritten(&tokens(sql)).unwrap().0;
        let words = tokens.iter().map(|t| match &t.token {
            Token::Whitespace(_) => " ".to_string(),
            other => other.to_string(),
        });
        words.collect::<String>().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn statements_of_duckdb_become_those_of_the_parser() {
        for (sql, expected) in [
            ("TABLE t", "SELECT * FROM t"),
            ("SUMMARIZE t", "SELECT * FROM __summarize((SELECT * FROM t))"),
            ("DESCRIBE SELECT 1", "SELECT * FROM __describe((SELECT 1))"),
            (
                "SELECT x FROM (DESCRIBE t) WHERE a",
                "SELECT x FROM (SELECT * FROM __describe((SELECT * FROM t))) WHERE a",
            ),
            ("SHOW TABLES", "SELECT * FROM __show_tables()"),
            ("PRAGMA table_info('t')", "SELECT * FROM pragma_table_info('t')"),
            ("PRAGMA threads = 2", "SET threads = 2"),
            ("SET VARIABLE x = 1 + 2", "SELECT 1 + 2"),
            ("INSERT INTO t BY NAME SELECT 1 AS a", "INSERT INTO t SELECT 1 AS a"),
            (
                "COPY t TO 'f' (FORMAT parquet)",
                "COPY (SELECT * FROM t) TO 'f' STORED AS PARQUET OPTIONS ('format.compression' 'snappy')",
            ),
            ("SELECT ? + ?", "SELECT $1 + $2"),
            (
                "CREATE TABLE t (s STRUCT(a INT, b STRUCT(c INT)))",
                "CREATE TABLE t (s STRUCT<a INT, b STRUCT<c INT>>)",
            ),
            (
                "SELECT struct(a, b), struct(a AS b), show, describe FROM t",
                "SELECT struct(a, b), struct(a AS b), show, describe FROM t",
            ),
        ] {
            assert_eq!(shown(sql), expected, "{sql}");
        }
    }

    #[test]
    fn unknown_words_have_candidates() {
        for (sql, near) in [
            ("SELEC 2", "did you mean SELECT?"),
            ("COPY t TO 'o.csv' (HEADR)", "did you mean HEADER?"),
            ("COPY t TO 'o.csv' (ROW_GROUP_SIZE 5)", "a csv file cannot honour it"),
            ("COPY t TO 'o.csv' (HEADER maybe)", "it must be true or false"),
        ] {
            let error = rewritten(&tokens(sql)).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(error.contains(near), "{sql}: {error}");
        }
    }
}
