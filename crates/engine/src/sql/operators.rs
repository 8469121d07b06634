//! Operators of DuckDB that the parser lacks or binds otherwise: `x ** y`, `x ^ y`, `x IN list`, `s GLOB p`, `j -> path`,
//! `j ->> path`, and `[x + 1 FOR x IN list IF x > 0]`.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, LambdaFunction, LambdaFunctionParameter, LambdaSyntax, OneOrManyWithParens,
    UnaryOperator,
};
use datafusion::sql::sqlparser::dialect::{Dialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::sql::dialect::Pellucid;
use crate::sql::tree::call;

/// Precedence of a power, above that of `*`.
const POWER: u8 = 5;

/// Precedence of `->` and `->>`, below that of all others: as in DuckDB, `NOT j -> 'a'` is `(NOT j) -> 'a'`.
const ARROW: u8 = 1;

type Parsed<T> = Result<T, ParserError>;

/// Returns how strongly the next operator binds, if it is one of these.
pub(crate) fn precedence(dialect: &dyn Dialect, parser: &Parser<'_>) -> Option<u8> {
    match operator(parser)? {
        Operator::Power => Some(dialect.prec_value(Precedence::MulDivModOp) + POWER),
        Operator::Glob => Some(dialect.prec_value(Precedence::Like)),
        Operator::InList(_) => Some(dialect.prec_value(Precedence::Between)),
        Operator::Arrow | Operator::LongArrow => Some(ARROW),
    }
}

/// Parses the next operator and what follows it, if it is one of these.
pub(crate) fn infix(parser: &mut Parser<'_>, left: &Expr, precedence: u8) -> Option<Parsed<Expr>> {
    let operator = operator(parser)?;
    if let Operator::Arrow | Operator::LongArrow = operator
        && is_condition(left)
    {
        let token = parser.peek_token_ref();
        return Some(Err(ParserError::ParserError(format!(
            "{0} binds less tightly than AND, NOT and comparisons; write (json {0} 'key') in parentheses at Line: {1}, Column: {2}",
            token.token, token.span.start.line, token.span.start.column
        ))));
    }
    for _ in 0..operator.tokens(parser) {
        parser.next_token();
    }
    let right = match operator {
        Operator::LongArrow => path(parser),
        _ => parser.parse_subexpr(precedence),
    };
    Some(right.map(|right| match operator {
        Operator::Arrow => binary(left, BinaryOperator::Arrow, right),
        Operator::LongArrow => binary(left, BinaryOperator::LongArrow, right),
        Operator::Power => binary(left, BinaryOperator::PGExp, right),
        Operator::Glob => binary(left, BinaryOperator::Custom("GLOB".to_string()), right),
        Operator::InList(negated) => {
            let found = call("list_contains", vec![right, left.clone()]);
            if negated { Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(found) } } else { found }
        }
    }))
}

/// Parses a list comprehension or a minus, if one begins here.
pub(crate) fn prefix(dialect: &dyn Dialect, parser: &mut Parser<'_>) -> Option<Parsed<Expr>> {
    if parser.peek_token_ref().token == Token::Minus {
        parser.next_token();
        // It binds more strongly than a power: -2 ^ 2 is 4.
        let operand = parser.parse_subexpr(dialect.prec_value(Precedence::MulDivModOp) + POWER + 1);
        let negative = |operand| Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(operand) };
        return Some(operand.map(negative));
    }
    let token = |n| &parser.peek_nth_token_ref(n).token;
    match [token(0), token(1), token(2), token(3)] {
        // The parser would read a lambda, also where a value is expected.
        [Token::Word(_), Token::Arrow, ..] => Some(parser.parse_identifier().map(Expr::Identifier)),
        [Token::LParen, Token::Word(_), Token::RParen, Token::Arrow] => {
            parser.next_token();
            let name = parser.parse_identifier();
            parser.next_token();
            Some(name.map(|name| Expr::Nested(Box::new(Expr::Identifier(name)))))
        }
        _ => is_comprehension(parser).then(|| comprehension(parser)),
    }
}

/// Returns true for an expression that can only be true, false or NULL.
fn is_condition(expr: &Expr) -> bool {
    use BinaryOperator::{And, Eq, Gt, GtEq, Lt, LtEq, NotEq, Or};
    matches!(
        expr,
        Expr::BinaryOp { op: And | Or | Eq | NotEq | Lt | LtEq | Gt | GtEq, .. }
            | Expr::UnaryOp { op: UnaryOperator::Not, .. }
            | Expr::IsNull(_)
            | Expr::IsNotNull(_)
            | Expr::Like { .. }
            | Expr::InList { .. }
            | Expr::Between { .. }
    )
}

/// Parses what follows `->>`: up to a comparison or `||`.
fn path(parser: &mut Parser<'_>) -> Parsed<Expr> {
    let mut path = parser.parse_subexpr(Pellucid.prec_value(Precedence::MulDivModOp))?;
    loop {
        let precedence = parser.get_next_precedence()?;
        let ends = parser.peek_token_ref().token == Token::StringConcat;
        if ends || precedence <= Pellucid.prec_value(Precedence::Xor) {
            return Ok(path);
        }
        path = parser.parse_infix(path, precedence)?;
    }
}

enum Operator {
    Power,
    Glob,
    /// True for NOT IN.
    InList(bool),
    Arrow,
    LongArrow,
}

impl Operator {
    fn tokens(&self, parser: &Parser<'_>) -> usize {
        match self {
            Operator::Power if parser.peek_token_ref().token == Token::Caret => 1,
            Operator::Power | Operator::InList(true) => 2,
            Operator::Glob | Operator::InList(false) | Operator::Arrow | Operator::LongArrow => 1,
        }
    }
}

fn operator(parser: &Parser<'_>) -> Option<Operator> {
    let token = |n| &parser.peek_nth_token_ref(n).token;
    let is_in = |n| matches!(token(n), Token::Word(word) if word.keyword == Keyword::IN);
    // A list in brackets, or a column or a function.
    let is_list = |n| match token(n) {
        Token::LBracket => true,
        Token::Word(word) => !matches!(word.keyword, Keyword::UNNEST | Keyword::SELECT | Keyword::WITH),
        _ => false,
    };
    match token(0) {
        Token::Caret => Some(Operator::Power),
        Token::Arrow => Some(Operator::Arrow),
        Token::LongArrow => Some(Operator::LongArrow),
        Token::Mul if *token(1) == Token::Mul => Some(Operator::Power),
        Token::Word(word)
            if word.value.eq_ignore_ascii_case("glob")
                && word.quote_style.is_none()
                && matches!(token(1), Token::SingleQuotedString(_) | Token::LParen) =>
        {
            Some(Operator::Glob)
        }
        Token::Word(word) if word.keyword == Keyword::IN && is_list(1) => Some(Operator::InList(false)),
        Token::Word(word) if word.keyword == Keyword::NOT && is_in(1) && is_list(2) => {
            Some(Operator::InList(true))
        }
        _ => None,
    }
}

fn binary(left: &Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left.clone()), op, right: Box::new(right) }
}

/// Returns true at a `[` with a FOR before the `]`.
fn is_comprehension(parser: &Parser<'_>) -> bool {
    if parser.peek_token_ref().token != Token::LBracket {
        return false;
    }
    let mut depth = 0_usize;
    for n in 0.. {
        match &parser.peek_nth_token_ref(n).token {
            Token::LBracket | Token::LParen | Token::LBrace => depth += 1,
            Token::RBracket | Token::RParen | Token::RBrace => depth -= 1,
            Token::Word(word) if depth == 1 && word.keyword == Keyword::FOR => return true,
            Token::EOF | Token::SemiColon => return false,
            _ => {}
        }
        if depth == 0 {
            return false;
        }
    }
    false
}

fn comprehension(parser: &mut Parser<'_>) -> Parsed<Expr> {
    parser.next_token();
    let value = parser.parse_expr()?;
    parser.expect_keyword_is(Keyword::FOR)?;
    let mut names = vec![parser.parse_identifier()?];
    while parser.consume_token(&Token::Comma) {
        names.push(parser.parse_identifier()?);
    }
    parser.expect_keyword_is(Keyword::IN)?;
    let mut list = parser.parse_expr()?;
    let lambda = |body: Expr| {
        let parameter = |name| LambdaFunctionParameter { name, data_type: None };
        Expr::Lambda(LambdaFunction {
            params: OneOrManyWithParens::Many(names.iter().cloned().map(parameter).collect()),
            body: Box::new(body),
            syntax: LambdaSyntax::Arrow,
        })
    };
    if parser.parse_keyword(Keyword::IF) {
        let condition = parser.parse_expr()?;
        if names.len() > 1 {
            let message = "a list comprehension with an index cannot have IF; use list_filter before it";
            return Err(ParserError::ParserError(message.to_string()));
        }
        list = call("list_filter", vec![list, lambda(condition)]);
    }
    parser.expect_token(&Token::RBracket)?;
    Ok(call("list_transform", vec![list, lambda(value)]))
}

#[cfg(test)]
mod tests {
    use crate::sql::statements::Statement;

    #[test]
    fn operators_of_duckdb_are_parsed() {
        for (sql, expected) in [
            ("SELECT 2 ** 3 + 1", "SELECT 2 ^ 3 + 1"),
            ("SELECT - 2 * 3 ^ 2", "SELECT -2 * 3 ^ 2"),
            ("SELECT 'a' IN l, b NOT IN [1]", "SELECT list_contains(l, 'a'), NOT list_contains([1], b)"),
            ("SELECT a IN (1, 2), b NOT IN (SELECT 1)", "SELECT a IN (1, 2), b NOT IN (SELECT 1)"),
            ("SELECT a GLOB 'x*' AND b", "SELECT a GLOB 'x*' AND b"),
            ("SELECT glob FROM t glob", "SELECT glob FROM t glob"),
            (
                "SELECT [x * 2 FOR x IN [1, 2] IF x > 1]",
                "SELECT list_transform(list_filter([1, 2], (x) -> x > 1), (x) -> x * 2)",
            ),
            ("SELECT [[1], [2]]", "SELECT [[1], [2]]"),
            ("SELECT list_transform(l, x -> x + 1)", "SELECT list_transform(l, x -> x + 1)"),
            (
                "SELECT list_transform(l, x -> x.a.b + t.c)",
                "SELECT list_transform(l, x -> x['a']['b'] + t.c)",
            ),
        ] {
            let parsed: Statement = sql.parse().unwrap();
            assert_eq!(parsed.tree().to_string(), expected);
        }
    }
}
