//! The options of COPY in DuckDB's form: `(FORMAT csv, HEADER, DELIMITER '|')`, or the older
//! `CSV HEADER DELIMITER '|'`.

use datafusion::common::{DataFusionError, Result};
use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan};

use crate::logical::nearest::hint;
use crate::statements::syntax::words::{Words, refused};

/// All options that have a meaning, for messages.
const KNOWN: [&str; 27] = [
    "APPEND",
    "ARRAY",
    "COMPRESSION",
    "COMPRESSION_LEVEL",
    "DATEFORMAT",
    "DELIMITER",
    "ENCODING",
    "ESCAPE",
    "FORCE_QUOTE",
    "FORMAT",
    "HEADER",
    "NULLSTR",
    "NULL",
    "OVERWRITE",
    "OVERWRITE_OR_IGNORE",
    "PARQUET_VERSION",
    "PARTITION_BY",
    "PER_THREAD_OUTPUT",
    "QUOTE",
    "ROW_GROUP_SIZE",
    "ROW_GROUP_SIZE_BYTES",
    "SEP",
    "DELIM",
    "SKIP",
    "TIMESTAMPFORMAT",
    "USE_TMP_FILE",
    "WRITE_PARTITION_COLUMNS",
];

/// An option as written.
#[derive(Debug, Clone)]
pub(crate) struct CopyOption {
    /// In upper case.
    pub name: String,
    /// The values in order; empty for `HEADER` alone, several for a list.
    pub values: Vec<String>,
    pub span: Span,
}

impl CopyOption {
    /// Returns the only value.
    pub(crate) fn value(&self) -> Result<&str> {
        match &self.values[..] {
            [one] => Ok(one),
            [] => Err(self.wrong("it needs a value")),
            _ => Err(self.wrong("it has more than one value; write one")),
        }
    }

    /// Returns the only value, which must be a single byte.
    pub(crate) fn byte(&self) -> Result<&str> {
        let value = self.value()?;
        if value.len() == 1 { Ok(value) } else { Err(self.wrong("it must be one ASCII character")) }
    }

    pub(crate) fn number(&self) -> Result<u64> {
        self.value()?.parse().map_err(|_| self.wrong("it must be a whole number"))
    }

    /// Returns true for an option without a value too.
    pub(crate) fn is_true(&self) -> Result<bool> {
        match self.values.first().map(|v| v.to_ascii_lowercase()).as_deref() {
            None | Some("true" | "1" | "on" | "t" | "yes") if self.values.len() < 2 => Ok(true),
            Some("false" | "0" | "off" | "f" | "no") if self.values.len() == 1 => Ok(false),
            _ => Err(self.wrong("it must be true or false")),
        }
    }

    /// Returns an error about the option's value.
    pub(crate) fn wrong(&self, cause: &str) -> DataFusionError {
        let value =
            if self.values.is_empty() { String::new() } else { format!(" {}", self.values.join(", ")) };
        refused(self.span, format!("cannot use the option {}{value}: {cause}", self.name))
    }
}

/// Reads the options up to the end of the statement.
///
/// # Errors
/// Returns an error with its place if they are not a list of options, or one of them is unknown.
pub(crate) fn parse(words: &mut Words<'_>) -> Result<Vec<CopyOption>> {
    words.eat(&["WITH"]);
    if words.at_end() {
        return Ok(Vec::new());
    }
    let options = if words.eat_token(&Token::LParen) {
        let inner = words.group();
        listed(inner)?
    } else {
        plain(words)?
    };
    if !words.at_end() {
        let message = format!("cannot parse the SQL: expected end of statement, found {}", found(words));
        return Err(refused(words.span(), message));
    }
    for option in &options {
        if !KNOWN.contains(&option.name.as_str()) {
            let near = hint(&option.name, KNOWN.map(str::to_string).to_vec(), "the options are");
            return Err(refused(option.span, format!("COPY has no option {}; {near}", option.name)));
        }
    }
    Ok(options)
}

fn found(words: &Words<'_>) -> String {
    words.peek().map_or("end of input".to_string(), |token| token.token.to_string())
}

/// Reads `FORMAT csv, HEADER, PARTITION_BY (a, b)`.
fn listed(tokens: &[TokenWithSpan]) -> Result<Vec<CopyOption>> {
    let mut words = Words::new(tokens);
    let mut options = Vec::new();
    while let Some(name) = words.next() {
        let mut option = named(name)?;
        words.eat_token(&Token::Eq);
        if words.eat_token(&Token::LParen) {
            option.values = Words::new(words.group()).filter_values();
        } else if words.peek().is_some_and(|token| token.token != Token::Comma) {
            option.values = words.next().map(|token| value(&token.token)).into_iter().collect();
        }
        options.push(option);
        if !words.eat_token(&Token::Comma) && !words.at_end() {
            let message =
                format!("cannot parse the SQL: Expected: , or ) after an option, found: {}", found(&words));
            return Err(refused(words.span(), message));
        }
    }
    Ok(options)
}

/// Reads `CSV HEADER DELIMITER '|'`, PostgreSQL's older form.
fn plain(words: &mut Words<'_>) -> Result<Vec<CopyOption>> {
    let mut options = Vec::new();
    while let Some(name) = words.next() {
        let mut option = named(name)?;
        match option.name.as_str() {
            "CSV" | "PARQUET" | "JSON" => {
                option.values = vec![std::mem::replace(&mut option.name, "FORMAT".to_string())];
            }
            "HEADER" => {}
            "FORCE" => {
                words.eat(&["QUOTE"]);
                option.name = "FORCE_QUOTE".to_string();
                option.values = words.next().map(|token| value(&token.token)).into_iter().collect();
            }
            _ => {
                words.eat(&["AS"]);
                option.values = words.next().map(|token| value(&token.token)).into_iter().collect();
            }
        }
        options.push(option);
    }
    Ok(options)
}

fn named(token: &TokenWithSpan) -> Result<CopyOption> {
    let name = match &token.token {
        Token::Word(word) => word.value.to_uppercase(),
        Token::SingleQuotedString(text) => text.to_uppercase(),
        other => {
            let message = format!("cannot parse the SQL: Expected: the name of an option, found: {other}");
            return Err(refused(token.span, message));
        }
    };
    Ok(CopyOption { name, values: Vec::new(), span: token.span })
}

/// Returns a value without its quotes.
fn value(token: &Token) -> String {
    match token {
        Token::Word(word) => word.value.clone(),
        Token::SingleQuotedString(text)
        | Token::EscapedStringLiteral(text)
        | Token::DoubleQuotedString(text) => text.clone(),
        Token::Number(number, _) => number.clone(),
        other => other.to_string(),
    }
}

impl Words<'_> {
    /// Returns the values of a list.
    fn filter_values(mut self) -> Vec<String> {
        let mut values = Vec::new();
        while let Some(token) = self.next() {
            if token.token != Token::Comma {
                values.push(value(&token.token));
            }
        }
        values
    }
}
