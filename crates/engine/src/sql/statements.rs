//! SQL text, as statements that are parsed once.

use std::str::FromStr;
use std::sync::Arc;

use datafusion::common::DataFusionError;
use datafusion::sql::parser::{
    CopyToSource, CopyToStatement, DFParserBuilder, ResetStatement, Statement as Tree,
};
use datafusion::sql::sqlparser::ast::{ObjectName, Statement as SqlStatement, Value};
use datafusion::sql::sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer};

use crate::EngineError;
use crate::sql::dialect::Pellucid;
use crate::sql::stack::with_large_stack;
use crate::sql::{from_first, lambdas, mistakes, nesting, place, rewrites, struct_types, unsupported};
use crate::statements::own::Own;
use crate::statements::syntax;
use crate::statements::syntax::parameters::{literal, placeholders, substitute};

/// Maximum number of nested parentheses, subqueries and the like.
const MAX_PARENTHESES: usize = 50;

/// Number of operators that a thread with a usual stack can drop when they nest into each other.
const SHALLOW: usize = 500;

/// A statement that was parsed. It may be dropped on any thread.
#[derive(Debug, Clone)]
pub struct Statement {
    sql: String,
    /// The text that it is part of, for places in messages.
    text: Arc<str>,
    /// Its first word in upper case, or `(`.
    keyword: String,
    /// Place of the first word.
    span: Span,
    tree: Tree,
    /// Parts that the tree cannot hold.
    own: Option<Own>,
    /// True if an ordinary stack may not suffice to drop the tree.
    deep: bool,
}

impl Statement {
    /// Parses `text` into its statements, without empty ones.
    ///
    /// # Errors
    /// Returns an error with its place if any statement does not parse, so that a mistake in the last
    /// statement is found before the first one runs.
    pub fn parse_all(text: &str) -> Result<Vec<Statement>, EngineError> {
        with_large_stack(|| {
            let text: Arc<str> = Arc::from(text);
            let tokens = Tokenizer::new(&Pellucid, &text)
                .tokenize_with_location()
                .map_err(|e| unparsed(&text, &[], DataFusionError::SQL(Box::new(e.into()), None)))?;
            let mut at = Cursor { text: &text, byte: 0, location: Location { line: 1, column: 1 } };
            let mut statements = Vec::new();
            for tokens in tokens.split_inclusive(|t| t.token == Token::SemiColon) {
                let start = at.byte;
                let end = tokens.last().map_or(at.location, |last| match last.token {
                    Token::SemiColon => last.span.start,
                    _ => last.span.end,
                });
                let sql = text[start..at.advance(end)].trim().to_string();
                let parsed = Self::parse_tokens(sql, &text, tokens);
                statements.extend(parsed.map_err(|error| unparsed(&text, tokens, error))?);
                at.advance(tokens.last().map_or(end, |last| last.span.end));
            }
            Ok(statements)
        })
    }

    /// Parses the tokens of one statement; `None` if there are none but spaces and comments.
    fn parse_tokens(
        sql: String,
        text: &Arc<str>,
        tokens: &[TokenWithSpan],
    ) -> Result<Option<Self>, DataFusionError> {
        let first = tokens.iter().find(|token| !matches!(token.token, Token::Whitespace(_)));
        let (keyword, span) = match first {
            None => return Ok(None),
            Some(first) if matches!(first.token, Token::SemiColon | Token::EOF) => return Ok(None),
            Some(first) => (first.token.to_string().to_uppercase(), first.span),
        };
        let nested = nesting::check(tokens)?;
        let (tokens, own) = syntax::rewritten(tokens)?;
        let mut parser = DFParserBuilder::new(struct_types::with_brackets(from_first::with_select(
            &rewrites::rewrite(&tokens),
        )))
        .with_dialect(&Pellucid)
        .with_recursion_limit(MAX_PARENTHESES)
        .build()?;
        let Some(mut tree) = parser.parse_statements()?.pop_front() else { return Ok(None) };
        lambdas::find(&mut tree);
        unsupported::check(&tree)?;
        Ok(Some(Self { sql, text: Arc::clone(text), keyword, span, tree, own, deep: nested > SHALLOW }))
    }

    /// Returns the text, without the semicolon.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// Returns the first word in upper case, or `(`.
    pub fn keyword(&self) -> &str {
        &self.keyword
    }

    /// Returns true for a query, which has rows: SELECT, FROM, WITH, VALUES.
    pub fn is_query(&self) -> bool {
        matches!(&self.tree, Tree::Statement(inner) if matches!(**inner, SqlStatement::Query(_)))
    }

    /// Returns the statement that writes the rows of this query to a file; itself if it is not a query.
    /// `format` and `options` are those of `COPY … STORED AS … OPTIONS (…)`.
    pub fn into_copy(mut self, target: &str, format: &str, options: &[(&str, &str)]) -> Self {
        if let Tree::Statement(inner) = &mut self.tree
            && let SqlStatement::Query(query) = &mut **inner
        {
            let option =
                |(key, value): &(&str, &str)| (key.to_string(), Value::SingleQuotedString(value.to_string()));
            let source = CopyToSource::Query(query.clone());
            self.tree = Tree::CopyTo(CopyToStatement {
                source,
                target: target.to_string(),
                partitioned_by: Vec::new(),
                stored_as: Some(format.to_string()),
                options: options.iter().map(option).collect(),
            });
        }
        self
    }

    /// Returns the text that the statement is part of.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns the statement with another tree and nothing else to do.
    pub(crate) fn with_tree(&self, tree: Tree) -> Self {
        Self {
            sql: self.sql.clone(),
            text: Arc::clone(&self.text),
            keyword: self.keyword.clone(),
            span: self.span,
            tree,
            own: self.own.clone(),
            deep: self.deep,
        }
    }

    pub(crate) fn own(&self) -> Option<&Own> {
        self.own.as_ref()
    }

    pub(crate) fn set_own(&mut self, own: Option<Own>) {
        self.own = own;
    }

    /// Returns the place of the first word.
    pub(crate) fn span(&self) -> Span {
        self.span
    }

    /// Returns an error with a place of the statement.
    pub(crate) fn refuse(&self, span: Span, message: &str) -> EngineError {
        EngineError::Usage(place::mark(&self.text, span, message))
    }

    /// Returns the line on which the statement starts.
    pub fn line(&self) -> u64 {
        self.span.start.line
    }

    /// Returns the names of the parameters that [`Statement::bind`] can set: `1` for `$1` and the first `?`.
    pub fn parameters(&self) -> Vec<String> {
        if self.keyword == "PREPARE" {
            return Vec::new();
        }
        placeholders(&self.tree).iter().map(|name| name.trim_start_matches('$').to_string()).collect()
    }

    /// Sets parameters. A value is a number, `true`, `false`, `null`, or a text, which may have single quotes.
    pub fn bind(&mut self, values: &[(String, String)]) {
        if self.keyword != "PREPARE" {
            let value =
                |(name, text): &(String, String)| (format!("${}", name.to_lowercase()), literal(text));
            substitute(&mut self.tree, &values.iter().map(value).collect());
        }
    }
}

impl Drop for Statement {
    fn drop(&mut self) {
        if self.deep {
            let nothing = Tree::Reset(ResetStatement::Variable(ObjectName(Vec::new())));
            let tree = std::mem::replace(&mut self.tree, nothing);
            // Without a thread, the tree is dropped here.
            let _ = with_large_stack(|| {
                drop(tree);
                Ok(())
            });
        }
    }
}

impl FromStr for Statement {
    type Err = EngineError;

    fn from_str(text: &str) -> Result<Self, EngineError> {
        let mut statements = Self::parse_all(text)?;
        match (statements.pop(), statements.len()) {
            (Some(statement), 0) => Ok(statement),
            (None, _) => Err(EngineError::Usage("expected one statement, found none".to_string())),
            (Some(_), more) => Err(EngineError::Usage(format!("expected one statement, found {}", more + 1))),
        }
    }
}

/// Converts an error of the parser, which names a place at the end of its message, or none at the end of
/// the text.
fn unparsed(text: &str, tokens: &[TokenWithSpan], error: DataFusionError) -> EngineError {
    let DataFusionError::SQL(inner, _) = error.find_root() else {
        let span = place::of(&error);
        let error = EngineError::from(error);
        return match span {
            Some(span) => EngineError::Usage(place::mark(text, span, &error.to_string())),
            None => error,
        };
    };
    let message = inner.to_string();
    let message = message.strip_prefix("sql parser error: ").unwrap_or(&message);
    let end = || {
        let last = tokens.iter().rfind(|t| !matches!(t.token, Token::EOF | Token::Whitespace(_)));
        last.map(|last| Span::new(last.span.end, last.span.end))
    };
    let (message, span) = match place::of_parser(message) {
        Some((message, at)) => {
            let token = tokens.iter().find(|token| token.span.start == at);
            let found = message.strip_prefix("Expected: ), found: ");
            // A token that is not in the text was inserted after a parenthesis.
            let inserted =
                found.is_some_and(|found| token.is_some_and(|token| token.token.to_string() != found));
            let open = inserted && mistakes::open_parenthesis(&tokens.iter().collect::<Vec<_>>()).is_some();
            match open {
                true => ("Expected: ), found: EOF", end()),
                false => (message, Some(token.map_or(Span::new(at, at), |token| token.span))),
            }
        }
        None => (message, end()),
    };
    let (message, span) = mistakes::explain(message, tokens, span);
    EngineError::Syntax(match span {
        Some(span) => place::mark(text, span, &message),
        None => message,
    })
}

/// Converts the tokenizer's locations, which count characters, to byte offsets.
struct Cursor<'a> {
    text: &'a str,
    byte: usize,
    location: Location,
}

impl Cursor<'_> {
    fn advance(&mut self, to: Location) -> usize {
        for c in self.text[self.byte..].chars() {
            if self.location >= to {
                break;
            }
            self.byte += c.len_utf8();
            if c == '\n' {
                self.location = Location { line: self.location.line + 1, column: 1 };
            } else {
                self.location.column += 1;
            }
        }
        self.byte
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Result<Vec<String>, EngineError> {
        Ok(Statement::parse_all(text)?.iter().map(|s| s.sql().to_string()).collect())
    }

    #[test]
    fn semicolons_in_strings_and_comments_do_not_split() {
        let sql = "SELECT 'a;b', \"c;d\" -- e;f\n;\n /* g;h */ ;; SELECT 'ü;' FROM t;\nSELECT 3 -- end";
        let got = split(sql).unwrap();
        assert_eq!(got, ["SELECT 'a;b', \"c;d\" -- e;f", "SELECT 'ü;' FROM t", "SELECT 3 -- end"]);
    }

    #[test]
    fn empty_text_has_no_statements_and_open_string_is_an_error() {
        assert!(split(" ; -- x").unwrap().is_empty());
        assert!(split("SELECT 'x").is_err());
    }

    #[test]
    fn query_becomes_a_copy() {
        let copy = |sql: &str| {
            let statement: Statement = sql.parse().unwrap();
            assert!(statement.is_query(), "{sql}");
            statement.into_copy("o.csv", "CSV", &[("format.has_header", "true")]).tree().to_string()
        };
        let written = "COPY (SELECT 1) TO o.csv STORED AS CSV OPTIONS ('format.has_header' 'true')";
        assert_eq!(copy("SELECT 1 -- one"), written);
        for query in ["(SELECT 1) UNION SELECT 2", "WITH x AS (SELECT 1) FROM x", "VALUES (1)"] {
            assert!(copy(query).starts_with("COPY ("), "{query}");
        }
        let view: Statement = "-- why\n /* how */ create VIEW v AS SELECT 1".parse().unwrap();
        assert_eq!((view.keyword(), view.is_query()), ("CREATE", false));
    }

    #[test]
    fn deep_statement_is_dropped_on_a_small_stack() {
        let sql = format!("SELECT 1 {}", "+ 1 ".repeat(9_000));
        let dropped = move || drop(sql.parse::<Statement>().unwrap());
        std::thread::Builder::new().stack_size(128 << 10).spawn(dropped).unwrap().join().unwrap();
    }

    #[test]
    fn syntax_error_has_its_location_in_the_whole_text() {
        for (sql, place) in [
            ("SELECT 1;\nSELECT 2;\n  SELECT 3 FORM x y", "line 3, column 17"),
            ("SELECT 1;\n SELECT 'x", "line 2, column 9"),
            ("SELECT (1 +", "line 1, column 8"),
            ("FROM t;\nFROM t WHERE a = 1 LIMIT 1 x", "line 2, column 28"),
            ("SELECT a FROM (FROM t WHERE a > 1", "line 1, column 15"),
        ] {
            let error = split(sql).unwrap_err().to_string();
            assert!(error.contains(place), "{error}");
        }
        assert!(split("SELECT 1 UNION ALL SELECT 2 EXCEPT SELECT 3").is_ok());
        let error = split("SET datafusion.sql_parser.dialect = 'mysql'").unwrap_err().to_string();
        assert!(error.contains("cannot set datafusion.sql_parser.dialect"), "{error}");
    }
}
