//! Rewrites of tokens for syntax that analysts know from DuckDB and the parser does not.
//!
//! Each rewrite replaces tokens by others that the parser accepts. A construct that has no equivalent becomes a marker:
//! a call or a join condition whose name starts with `__`, which `crate::queries` replaces. New tokens have
//! the location of those that they replace, so that locations in messages stay those of the text.

mod joins;
mod pivot;
mod prefix_alias;
mod sample;
mod stars;
mod words;

use datafusion::sql::sqlparser::dialect::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan};

use crate::sql::from_first::keyword;

/// Rewrites the tokens of one statement.
pub(crate) fn rewrite(tokens: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let mut tokens = tokens.to_vec();
    stars::rewrite(&mut tokens);
    words::rewrite(&mut tokens);
    pivot::rewrite(&mut tokens);
    prefix_alias::rewrite(&mut tokens);
    sample::rewrite(&mut tokens);
    joins::rewrite(&mut tokens);
    tokens
}

/// New tokens at one location.
struct Maker(Span);

impl Maker {
    fn token(&self, token: Token) -> TokenWithSpan {
        TokenWithSpan { token, span: self.0 }
    }

    /// Returns the tokens of a text of words, numbers and punctuation that are separated by spaces.
    fn text(&self, text: &str) -> Vec<TokenWithSpan> {
        let token = |word: &str| match word {
            "(" => Token::LParen,
            ")" => Token::RParen,
            "," => Token::Comma,
            "*" => Token::Mul,
            "->" => Token::Arrow,
            number if number.starts_with(|c: char| c.is_ascii_digit()) => {
                Token::Number(number.to_string(), false)
            }
            word => Token::make_word(word, None),
        };
        text.split(' ').map(|word| self.token(token(word))).collect()
    }
}

fn is_space(token: &TokenWithSpan) -> bool {
    matches!(token.token, Token::Whitespace(_))
}

fn keyword_at(tokens: &[TokenWithSpan], at: usize) -> Keyword {
    tokens.get(at).map_or(Keyword::NoKeyword, |t| keyword(&t.token))
}

fn is(tokens: &[TokenWithSpan], at: usize, token: &Token) -> bool {
    tokens.get(at).is_some_and(|t| t.token == *token)
}

/// Returns true for an unquoted word, in any case.
fn is_word(tokens: &[TokenWithSpan], at: usize, text: &str) -> bool {
    let word = tokens.get(at).map(|t| &t.token);
    matches!(word, Some(Token::Word(word)) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(text))
}

/// Returns the index of the first token at or after `at` that is not a space; the end if there is none.
fn next(tokens: &[TokenWithSpan], at: usize) -> usize {
    (at..tokens.len()).find(|&at| !is_space(&tokens[at])).unwrap_or(tokens.len())
}

/// Returns the index of the last token before `at` that is not a space.
fn previous(tokens: &[TokenWithSpan], at: usize) -> Option<usize> {
    (0..at).rev().find(|&at| !is_space(&tokens[at]))
}

/// Returns the index of the first token from `at` on, outside of parentheses that open after it, for which
/// `found` is true; otherwise the index of the token that ends the level.
fn find(tokens: &[TokenWithSpan], at: usize, found: impl Fn(usize) -> bool) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(at) {
        match &token.token {
            _ if depth == 0 && found(index) => return index,
            Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
            Token::RParen | Token::RBracket | Token::RBrace if depth == 0 => return index,
            Token::RParen | Token::RBracket | Token::RBrace => depth -= 1,
            Token::SemiColon | Token::EOF => return index,
            _ => {}
        }
    }
    tokens.len()
}

/// Returns the index of the parenthesis that closes the one at `open`; `None` if it is not closed.
fn closing(tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    let close = find(tokens, open + 1, |_| false);
    tokens
        .get(close)
        .filter(|t| matches!(t.token, Token::RParen | Token::RBracket | Token::RBrace))
        .map(|_| close)
}

/// Returns the parts between the commas outside of parentheses, without spaces around them.
fn split(tokens: &[TokenWithSpan]) -> Vec<&[TokenWithSpan]> {
    let mut parts = Vec::new();
    let mut start = 0;
    while start <= tokens.len() {
        let comma = find(tokens, start, |at| tokens[at].token == Token::Comma);
        let part = trim(&tokens[start..comma]);
        if !part.is_empty() {
            parts.push(part);
        }
        start = comma + 1;
    }
    parts
}

/// Removes spaces around tokens.
fn trim(tokens: &[TokenWithSpan]) -> &[TokenWithSpan] {
    let start = next(tokens, 0);
    let end = previous(tokens, tokens.len()).map_or(start, |last| last + 1);
    &tokens[start..end.max(start)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::dialect::Pellucid;
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    pub(super) fn rewritten(sql: &str) -> String {
        let tokens = Tokenizer::new(&Pellucid, sql).tokenize_with_location().unwrap();
        let words: Vec<String> =
            rewrite(&tokens).iter().filter(|t| !is_space(t)).map(|t| t.token.to_string()).collect();
        words.join(" ").replace(" EOF", "")
    }

    #[test]
    fn rewritten_tokens_are_sql_with_markers() {
        for (sql, expected) in [
            (
                "PIVOT t ON a IN (1, 2 AS two), b USING sum(x) AS s GROUP BY g ORDER BY 1",
                "SELECT * FROM t PIVOT ( sum ( x ) AS s , __pivot_on ( a IN ( 1 , __pivot_named ( 2 , two ) ) ) , \
                 __pivot_on ( b ) , __pivot_group ( g ) FOR 1 IN ( 1 ) ) ORDER BY 1",
            ),
            (
                "FROM (PIVOT t ON a) PIVOT (count(*) FOR b IN (1) c IN (2) GROUP BY g) p",
                "FROM ( SELECT * FROM t PIVOT ( count ( * ) , __pivot_on ( a ) FOR 1 IN ( 1 ) ) ) PIVOT ( count ( * ) , \
                 __pivot_on ( b IN ( 1 ) ) , __pivot_on ( c IN ( 2 ) ) , __pivot_group ( g ) FOR 1 IN ( 1 ) ) p",
            ),
            (
                "UNPIVOT t ON a, * EXCLUDE (b) INTO NAME n VALUE v LIMIT 1",
                "SELECT * FROM t UNPIVOT ( v FOR n IN ( a , COLUMNS ( * EXCLUDE ( b ) ) ) ) LIMIT 1",
            ),
            ("FROM t UNPIVOT (v FOR n IN (*))", "FROM t UNPIVOT ( v FOR n IN ( COLUMNS ( * ) ) )"),
            ("SELECT a: 1, b : f(x, y) FROM e: t", "SELECT 1 AS a , f ( x , y ) AS b FROM t AS e"),
            ("FROM t TABLESAMPLE reservoir(5 ROWS)", "FROM t TABLESAMPLE ROW ( 5 ROWS )"),
            ("FROM t TABLESAMPLE 10%", "FROM t TABLESAMPLE SYSTEM ( 10 PERCENT )"),
            (
                "FROM t WHERE a USING SAMPLE 10% (bernoulli, 42)",
                "FROM t ASOF JOIN ( SELECT 1 ) MATCH_CONDITION ( __sample ( 10 , bernoulli , percent , 42 ) ) WHERE a",
            ),
            (
                "FROM a ASOF LEFT JOIN b ON x > y",
                "FROM a ASOF JOIN b MATCH_CONDITION ( __asof_left ) ON x > y",
            ),
            (
                "SELECT a ISNULL, (b) isnull, isnull, t.isnull, isnull(a) FROM t WHERE isnull ISNULL",
                "SELECT a IS NULL , ( b ) IS NULL , isnull , t . isnull , isnull ( a ) FROM t WHERE isnull IS NULL",
            ),
            (
                "WITH a AS MATERIALIZED (FROM t), b AS NOT MATERIALIZED (FROM t) FROM a",
                "WITH a AS ( FROM t ) , b AS ( FROM t ) FROM a",
            ),
            (
                "SELECT sum(a) OVER (ORDER BY b ROWS 1 PRECEDING EXCLUDE NO OTHERS) FROM t",
                "SELECT sum ( a ) OVER ( ORDER BY b ROWS 1 PRECEDING ) FROM t",
            ),
            ("FROM a POSITIONAL JOIN b", "FROM a ASOF JOIN b MATCH_CONDITION ( __positional )"),
            ("SELECT * NOT LIKE 'a%', x FROM t", "SELECT COLUMNS ( c -> c NOT LIKE 'a%' ) , x FROM t"),
            ("SELECT f(*COLUMNS('a'))", "SELECT f ( __unpacked ( 'a' ) )"),
        ] {
            assert_eq!(rewritten(sql), expected);
        }
    }

    #[test]
    fn similar_words_are_unchanged() {
        for sql in [
            "SELECT pivot , unpivot FROM t",
            "SELECT a * b , count ( * ) FROM positional WHERE asof",
            "SELECT { 'a' : 1 } , m [ 1 : 2 ]",
            "SELECT 1 FROM a JOIN b USING ( sample )",
        ] {
            assert_eq!(rewritten(sql), sql);
        }
    }
}
