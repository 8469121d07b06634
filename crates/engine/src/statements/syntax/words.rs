//! The words of a statement, for syntax that the parser lacks.

use datafusion::sql::sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer};

use crate::sql::dialect::Pellucid;

pub(crate) use crate::sql::place::error as refused;

/// A cursor over the tokens of one statement that passes over spaces and comments.
#[derive(Clone)]
pub(crate) struct Words<'a> {
    tokens: &'a [TokenWithSpan],
    at: usize,
}

impl<'a> Words<'a> {
    pub(crate) fn new(tokens: &'a [TokenWithSpan]) -> Self {
        let end = tokens.iter().position(|t| matches!(t.token, Token::SemiColon | Token::EOF));
        let mut words = Self { tokens: &tokens[..end.unwrap_or(tokens.len())], at: 0 };
        words.skip();
        words
    }

    fn skip(&mut self) {
        while self.tokens.get(self.at).is_some_and(|t| matches!(t.token, Token::Whitespace(_))) {
            self.at += 1;
        }
    }

    /// Returns the next token; `None` at the end of the statement.
    pub(crate) fn peek(&self) -> Option<&'a TokenWithSpan> {
        self.tokens.get(self.at)
    }

    pub(crate) fn next(&mut self) -> Option<&'a TokenWithSpan> {
        let token = self.peek()?;
        self.at += 1;
        self.skip();
        Some(token)
    }

    /// Returns true if the next token is this word in any case, without quotes.
    pub(crate) fn is(&self, word: &str) -> bool {
        self.peek().is_some_and(|token| is_word(&token.token, word))
    }

    /// Takes the words if they come next.
    pub(crate) fn eat(&mut self, words: &[&str]) -> bool {
        let mut ahead = self.clone();
        for word in words {
            if !ahead.is(word) {
                return false;
            }
            ahead.next();
        }
        *self = ahead;
        true
    }

    /// Takes the token if it comes next.
    pub(crate) fn eat_token(&mut self, token: &Token) -> bool {
        let next = self.peek().is_some_and(|next| next.token == *token);
        if next {
            self.next();
        }
        next
    }

    /// Takes a text in single quotes.
    pub(crate) fn text(&mut self) -> Option<String> {
        let text = match &self.peek()?.token {
            Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => text.clone(),
            _ => return None,
        };
        self.next();
        Some(text)
    }

    /// Takes the tokens within parentheses, of which the opening one was taken, and the closing one.
    pub(crate) fn group(&mut self) -> &'a [TokenWithSpan] {
        let start = self.at;
        let mut depth = 0;
        while let Some(token) = self.tokens.get(self.at) {
            match token.token {
                Token::LParen => depth += 1,
                Token::RParen if depth == 0 => {
                    let inner = &self.tokens[start..self.at];
                    self.next();
                    return inner;
                }
                Token::RParen => depth -= 1,
                _ => {}
            }
            self.at += 1;
        }
        &self.tokens[start..]
    }

    /// Returns the tokens that are left.
    pub(crate) fn rest(&self) -> &'a [TokenWithSpan] {
        &self.tokens[self.at..]
    }

    /// Returns the tokens that were taken.
    pub(crate) fn taken(&self) -> &'a [TokenWithSpan] {
        &self.tokens[..self.at]
    }

    pub(crate) fn at_end(&self) -> bool {
        self.peek().is_none()
    }

    /// Returns the place of the next token, or the end of the statement.
    pub(crate) fn span(&self) -> Span {
        match (self.peek(), self.tokens.last()) {
            (Some(token), _) => token.span,
            (None, Some(last)) => Span::new(last.span.end, last.span.end),
            (None, None) => Span::new(Location::new(1, 1), Location::new(1, 1)),
        }
    }
}

/// Returns true if a token is this word in any case, without quotes.
pub(crate) fn is_word(token: &Token, word: &str) -> bool {
    matches!(token, Token::Word(w) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word))
}

/// Returns the tokens of a text, all at the place `span`.
pub(crate) fn spelled(text: &str, span: Span) -> Vec<TokenWithSpan> {
    let tokens = Tokenizer::new(&Pellucid, text).tokenize().unwrap_or_default();
    tokens.into_iter().map(|token| TokenWithSpan { token, span }).collect()
}

/// Returns a text as it is written in SQL.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
