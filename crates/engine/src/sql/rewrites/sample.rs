//! `TABLESAMPLE`, in the forms that the parser knows, and `USING SAMPLE`, as a marker that ends the FROM clause.

use datafusion::sql::sqlparser::dialect::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::{Maker, closing, find, is, is_word, keyword_at, next, previous};

/// Rewrites every sample.
pub(super) fn rewrite(tokens: &mut Vec<TokenWithSpan>) {
    let mut at = 0;
    while at < tokens.len() {
        let follows = next(tokens, at + 1);
        if keyword_at(tokens, at) == Keyword::TABLESAMPLE {
            if let Some((sample, end)) = sample(tokens, follows) {
                let method = match sample.method.as_str() {
                    "reservoir" => "ROW",
                    other => other,
                };
                let maker = Maker(tokens[at].span);
                let mut new = maker.text(&format!("TABLESAMPLE {} (", method.to_uppercase()));
                new.push(sample.count);
                new.extend(maker.text(if sample.percent { "PERCENT )" } else { "ROWS )" }));
                if let Some(seed) = sample.seed {
                    new.extend(maker.text("REPEATABLE ("));
                    new.push(seed);
                    new.extend(maker.text(")"));
                }
                tokens.splice(at..end, new);
            }
        } else if keyword_at(tokens, at) == Keyword::USING
            && is_word(tokens, follows, "sample")
            && let Some((sample, end)) = sample(tokens, next(tokens, follows + 1))
            && let Some(from) = end_of_from(tokens, at)
        {
            let maker = Maker(tokens[follows].span);
            let mut new = maker.text("ASOF JOIN ( SELECT 1 ) MATCH_CONDITION ( __sample (");
            new.push(sample.count);
            let unit = if sample.percent { "percent" } else { "rows" };
            new.extend(maker.text(&format!(", {} , {unit}", sample.method)));
            if let Some(seed) = sample.seed {
                new.extend(maker.text(","));
                new.push(seed);
            }
            new.extend(maker.text(") )"));
            tokens.drain(at..end);
            tokens.splice(from..from, new);
        }
        at += 1;
    }
}

/// The size and method of a sample.
struct Sample {
    count: TokenWithSpan,
    percent: bool,
    method: String,
    seed: Option<TokenWithSpan>,
}

/// Reads `10%`, `10 ROWS (reservoir, 42)`, `bernoulli(10 PERCENT) REPEATABLE (42)` and the like. Returns the sample and
/// the index after it.
fn sample(tokens: &[TokenWithSpan], at: usize) -> Option<(Sample, usize)> {
    let mut method = None;
    let mut at = at;
    if matches!(tokens.get(at)?.token, Token::Word(_)) {
        method = Some(method_at(tokens, at)?);
        at = next(tokens, at + 1);
    }
    let enclosed = is(tokens, at, &Token::LParen);
    if enclosed {
        at = next(tokens, at + 1);
    }
    let count = number(tokens, at)?;
    at = next(tokens, at + 1);
    let percent = is(tokens, at, &Token::Mod) || keyword_at(tokens, at) == Keyword::PERCENT;
    if percent || keyword_at(tokens, at) == Keyword::ROWS {
        at = next(tokens, at + 1);
    }
    let mut seed = None;
    if enclosed {
        if !is(tokens, at, &Token::RParen) {
            return None;
        }
        at += 1;
    } else if is(tokens, at, &Token::LParen) {
        let close = closing(tokens, at)?;
        let name = next(tokens, at + 1);
        method = Some(method_at(tokens, name)?);
        let comma = next(tokens, name + 1);
        if is(tokens, comma, &Token::Comma) {
            seed = Some(number(tokens, next(tokens, comma + 1))?);
        }
        at = close + 1;
    }
    let repeatable = next(tokens, at);
    if keyword_at(tokens, repeatable) == Keyword::REPEATABLE {
        let open = next(tokens, repeatable + 1);
        seed = Some(number(tokens, next(tokens, open + 1))?);
        at = closing(tokens, open)? + 1;
    }
    let method = method.unwrap_or_else(|| if percent { "system" } else { "reservoir" }.to_string());
    Some((Sample { count, percent, method, seed }, at))
}

fn number(tokens: &[TokenWithSpan], at: usize) -> Option<TokenWithSpan> {
    tokens.get(at).filter(|t| matches!(t.token, Token::Number(..))).cloned()
}

fn method_at(tokens: &[TokenWithSpan], at: usize) -> Option<String> {
    ["reservoir", "bernoulli", "system"]
        .into_iter()
        .find(|name| is_word(tokens, at, name))
        .map(str::to_string)
}

/// Returns the index after the FROM clause of the query that has a clause at `at`.
fn end_of_from(tokens: &[TokenWithSpan], at: usize) -> Option<usize> {
    use Keyword::{FROM, GROUP, HAVING, QUALIFY, SELECT, WHERE, WINDOW};
    let mut depth = 0_usize;
    let mut from = None;
    for index in (0..at).rev() {
        match &tokens[index].token {
            Token::RParen | Token::RBracket | Token::RBrace => depth += 1,
            Token::LParen | Token::LBracket | Token::LBrace => depth = depth.checked_sub(1)?,
            Token::SemiColon => return None,
            _ if depth == 0 && keyword_at(tokens, index) == FROM => {
                let before = previous(tokens, index);
                if before.is_none_or(|before| keyword_at(tokens, before) != Keyword::DISTINCT) {
                    from = Some(index);
                    break;
                }
            }
            _ => {}
        }
    }
    let ends = |index| {
        index == at || matches!(keyword_at(tokens, index), WHERE | GROUP | HAVING | WINDOW | QUALIFY | SELECT)
    };
    let end = find(tokens, from? + 1, ends);
    Some(previous(tokens, end)? + 1)
}
