//! Completion: the names that may stand at the cursor.

use super::commands;
use super::files;
use super::lexer::{Kind, Token, is_command, tokens};
use super::words::{KEYWORDS, TABLE_FUNCTIONS, as_written, is_reserved};
use pellucid_model::whatif::KEYS;
use std::ops::Range;

/// Names that the session knows.
pub trait Names {
    /// Returns the tables and views.
    fn tables(&self) -> Vec<String>;
    /// Returns the functions.
    fn functions(&self) -> Vec<String>;
    /// Returns the columns of a table as SQL writes it: a name, a path in quotes, a call, a subquery.
    fn columns(&self, table: &str) -> Vec<String>;
}

/// Texts that may replace a part of the input.
#[derive(Debug, PartialEq, Eq)]
pub struct Completions {
    /// The part, which ends at the cursor.
    pub replaced: Range<usize>,
    /// The texts, the most likely first.
    pub texts: Vec<String>,
}

/// Keywords before the name of a table.
const BEFORE_TABLE: [&str; 8] = ["FROM", "JOIN", "INTO", "UPDATE", "TABLE", "DESCRIBE", "DESC", "SUMMARIZE"];

/// Keywords before the path of a file in quotes.
const BEFORE_PATH: [&str; 5] = ["FROM", "JOIN", "TO", "DESCRIBE", "SUMMARIZE"];

/// Returns what may stand at the cursor, which is the byte `at`.
pub fn complete(text: &str, at: usize, names: &dyn Names) -> Completions {
    let before = &text[..at];
    if is_command(before) {
        return command(before, names);
    }
    let all = tokens(text);
    let statement = statement(&all, at);
    let typed: Vec<Token> =
        tokens(before).into_iter().filter(|token| token.start >= statement.start).collect();
    let completions = |from: usize, texts: Vec<String>| Completions { replaced: from..at, texts };
    let nothing = completions(at, Vec::new());
    let Some(last) = typed.last() else { return nothing };
    match (last.kind, last.closed) {
        (Kind::Text, false) => {
            let opened = last.start + 1;
            let is_path = significant(&typed[..typed.len() - 1])
                .last()
                .is_some_and(|token| may_precede_path(token, &typed));
            let closing = if text[at..].starts_with('\'') { "" } else { "'" };
            let path = |path: String| {
                let is_folder = path.ends_with('/');
                path.replace('\'', "''") + if is_folder { "" } else { closing }
            };
            match is_path && last.text.starts_with('\'') {
                true => {
                    let found = files::completions(&before[opened..].replace("''", "'"), true);
                    completions(opened, found.into_iter().map(path).collect())
                }
                false => nothing,
            }
        }
        (Kind::Comment | Kind::Number | Kind::Text, _) => nothing,
        (Kind::Quoted, true) => nothing,
        (kind, _) => {
            let (prefix, from) = match kind {
                Kind::Word => (last.text, last.start),
                Kind::Quoted => (&last.text[1..], last.start),
                _ => ("", at),
            };
            let before_prefix: Vec<Token> =
                significant(&typed).into_iter().filter(|token| token.start < from).collect();
            let current: Vec<Token> =
                significant(&all).into_iter().filter(|token| statement.contains(&token.start)).collect();
            let context = Context { text, before: &before_prefix, all: &current, names };
            completions(from, context.proposed(prefix, kind == Kind::Quoted))
        }
    }
}

fn significant<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    tokens.iter().filter(|token| token.is_significant()).copied().collect()
}

/// Returns the bytes of the statement at the cursor.
fn statement(all: &[Token], at: usize) -> Range<usize> {
    let mut semicolons = all.iter().filter(|token| token.text == ";");
    let start = semicolons.clone().rfind(|token| token.end() <= at).map_or(0, Token::end);
    start..semicolons.find(|token| token.start >= at).map_or(usize::MAX, |token| token.start)
}

/// Returns whether a text after `token` is the path of a file.
fn may_precede_path(token: &Token, typed: &[Token]) -> bool {
    let is_function = |token: &Token| TABLE_FUNCTIONS.iter().any(|function| token.is(function));
    BEFORE_PATH.iter().any(|one| token.is(one))
        || matches!(token.text, "(" | "[" | ",") && typed.iter().any(is_function)
}

/// A table of the statement.
#[derive(Debug, PartialEq, Eq)]
struct Source<'a> {
    /// Its text in SQL.
    text: &'a str,
    /// Its alias, or the last part of its name.
    name: &'a str,
}

/// The place of the cursor.
struct Context<'a> {
    text: &'a str,
    /// The tokens of the statement before the word at the cursor.
    before: &'a [Token<'a>],
    /// All tokens of the statement.
    all: &'a [Token<'a>],
    names: &'a dyn Names,
}

impl Context<'_> {
    /// Returns the names and words that start with `prefix`.
    fn proposed(&self, prefix: &str, in_quotes: bool) -> Vec<String> {
        let starts =
            |name: &String| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
        let written = |name: String| match in_quotes {
            true => format!("\"{}\"", name.replace('"', "\"\"")),
            false => as_written(&name),
        };
        // SQL folds the names of tables to lower case.
        let table = |name: String| match name.chars().any(char::is_uppercase) {
            true => format!("\"{}\"", name.replace('"', "\"\"")),
            false => written(name),
        };
        let mut texts: Vec<String> = Vec::new();
        let last = self.before.last();
        let sources = sources(self.text, self.all);
        if last.is_some_and(|token| token.text == ".") {
            let qualifier = self.before.iter().rev().nth(1).map_or("", |token| token.text);
            let of_qualifier = sources.iter().filter(|source| source.name.eq_ignore_ascii_case(qualifier));
            let columns = of_qualifier.flat_map(|source| self.names.columns(source.text));
            texts.extend(columns.filter(starts).map(written));
        } else if last
            .is_some_and(|token| BEFORE_TABLE.iter().any(|word| token.is(word)) || self.is_in_from(token))
        {
            texts.extend(
                self.names.tables().into_iter().chain(common_tables(self.all)).filter(starts).map(table),
            );
            if !in_quotes {
                let functions = TABLE_FUNCTIONS.iter().map(ToString::to_string).filter(starts);
                texts.extend(functions.map(|name| format!("{name}(")));
            }
        } else {
            if last.is_some() {
                let columns = sources.iter().flat_map(|source| self.names.columns(source.text));
                texts.extend(columns.filter(starts).map(written));
                let names = sources.iter().map(|source| source.name.to_string());
                texts.extend(names.filter(|name| !name.contains(['\'', '(', '"'])).filter(starts));
            }
            if !in_quotes && !prefix.is_empty() {
                if last.is_some() {
                    let functions = self.names.functions().into_iter().filter(starts);
                    texts.extend(functions.map(|name| format!("{name}(")));
                }
                let lower = prefix.starts_with(|c: char| c.is_lowercase());
                let words = KEYWORDS.iter().map(ToString::to_string).filter(starts);
                texts.extend(words.map(|word| if lower { word.to_lowercase() } else { word }));
            }
        }
        let mut seen = std::collections::HashSet::new();
        texts.retain(|text| seen.insert(text.clone()));
        texts
    }

    /// Returns whether a comma is between tables: `FROM a, b`.
    fn is_in_from(&self, token: &Token) -> bool {
        let words = self.before.iter().rev();
        let mut clause = words.filter(|token| {
            ["SELECT", "FROM", "WHERE", "GROUP", "ORDER", "HAVING", "USING", "ON", "VALUES", "SET"]
                .iter()
                .any(|word| token.is(word))
                || token.text == "("
        });
        token.text == "," && clause.next().is_some_and(|token| token.is("FROM"))
    }
}

/// Returns the tables of a statement: names, paths, calls and subqueries after FROM, JOIN and the like.
fn sources<'a>(text: &'a str, all: &[Token<'a>]) -> Vec<Source<'a>> {
    let mut found = Vec::new();
    for (index, token) in all.iter().enumerate() {
        if !BEFORE_TABLE.iter().any(|word| token.is(word)) {
            continue;
        }
        let mut at = index + 1;
        while let Some((source, next)) = source(text, all, at) {
            found.push(source);
            if all.get(next).is_none_or(|token| token.text != ",") {
                break;
            }
            at = next + 1;
        }
    }
    found
}

/// Reads the table at a token. Returns it and the index of the token after it and its alias.
fn source<'a>(text: &'a str, all: &[Token<'a>], at: usize) -> Option<(Source<'a>, usize)> {
    let first = all.get(at).filter(|token| token.closed)?;
    let mut name = first.text;
    let mut next = at + 1;
    match first.kind {
        Kind::Text => {}
        Kind::Word | Kind::Quoted => {
            while all.get(next).is_some_and(|token| token.text == ".") {
                name = all.get(next + 1)?.text;
                next += 2;
            }
            if all.get(next).is_some_and(|token| token.text == "(") {
                next = after_parentheses(all, next)?;
            }
        }
        Kind::Mark if first.text == "(" => next = after_parentheses(all, at)?,
        _ => return None,
    }
    let relation = &text[first.start..all[next - 1].end()];
    if all.get(next).is_some_and(|token| token.is("AS")) {
        next += 1;
    }
    let alias = all.get(next).filter(|token| match token.kind {
        Kind::Word => !is_reserved(token.text),
        Kind::Quoted => token.closed,
        _ => false,
    });
    if let Some(alias) = alias {
        name = alias.text;
        next += 1;
    }
    Some((Source { text: relation, name }, next))
}

/// Returns the index after the parenthesis that closes the one at `at`.
fn after_parentheses(all: &[Token], at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (index, token) in all.iter().enumerate().skip(at) {
        match token.text {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(index + 1);
        }
    }
    None
}

/// Returns the names of WITH: `name AS (`.
fn common_tables(all: &[Token]) -> Vec<String> {
    let is_name = |three: &&[Token]| three[0].kind == Kind::Word && three[1].is("AS") && three[2].text == "(";
    let names = all.windows(3).filter(is_name).map(|three| three[0].text.to_string());
    if all.first().is_some_and(|token| token.is("WITH")) { names.collect() } else { Vec::new() }
}

/// Completes a dot command or its argument.
fn command(before: &str, names: &dyn Names) -> Completions {
    let from = before.rfind(char::is_whitespace).map_or(0, |at| at + 1);
    let typed = &before[from..];
    let command = before.split_whitespace().next().unwrap_or("");
    let texts: Vec<String> = match command {
        _ if before.trim_start().len() == typed.len() => {
            commands::ALL.iter().map(|command| command.name.to_string()).collect()
        }
        ".read" | ".open" | ".report" => {
            return Completions {
                replaced: from..before.len(),
                texts: files::completions(typed, command == ".open"),
            };
        }
        ".schema" => names.tables(),
        ".whatif" => KEYS.iter().map(|key| format!("{}=", key.name)).collect(),
        _ => commands::ALL.iter().filter(|one| one.name == command).flat_map(|one| one.values()).collect(),
    };
    let texts = texts.into_iter().filter(|text| text.starts_with(typed)).collect();
    Completions { replaced: from..before.len(), texts }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Known;

    impl Names for Known {
        fn tables(&self) -> Vec<String> {
            ["customers", "orders", "Mixed"].map(String::from).to_vec()
        }

        fn functions(&self) -> Vec<String> {
            ["count", "coalesce", "cos"].map(String::from).to_vec()
        }

        fn columns(&self, table: &str) -> Vec<String> {
            let columns: &[&str] = match table {
                "customers" => &["id", "Country", "order"],
                "orders" => &["id", "cost"],
                "'a b.csv'" | "read_csv('x', header => (true))" => &["file column"],
                "(SELECT 1 AS one)" => &["one"],
                _ => &[],
            };
            columns.iter().map(ToString::to_string).collect()
        }
    }

    /// Completes at `|`. Returns the text that would be replaced, and the proposals.
    fn at(text: &str) -> (String, Vec<String>) {
        let cursor = text.find('|').expect("a cursor");
        let text = text.replacen('|', "", 1);
        let found = complete(&text, cursor, &Known);
        (text[found.replaced].to_string(), found.texts)
    }

    fn texts(text: &str) -> Vec<String> {
        at(text).1
    }

    #[test]
    fn tables_follow_from_and_join() {
        assert_eq!(at("SELECT * FROM cu|"), ("cu".to_string(), vec!["customers".to_string()]));
        assert_eq!(texts("select * from orders join CUS|"), ["customers"]);
        assert_eq!(texts("SELECT * FROM orders o, c|"), ["customers"]);
        assert_eq!(texts("FROM \"M|"), ["\"Mixed\""]);
        assert_eq!(texts("FROM m|"), ["\"Mixed\""]);
        assert_eq!(texts("FROM read_p|"), ["read_parquet("]);
        assert_eq!(texts("WITH found AS (SELECT 1) FROM fo|"), ["found"]);
    }

    #[test]
    fn columns_are_those_of_the_tables_of_the_statement() {
        assert_eq!(
            texts("SELECT co| FROM customers"),
            [
                "Country",
                "count(",
                "coalesce(",
                "cos(",
                "column",
                "columns",
                "commit",
                "conflict",
                "constraint",
                "copy"
            ]
        );
        assert_eq!(texts("SELECT | FROM orders"), ["id", "cost", "orders"]);
        assert_eq!(texts("SELECT ord| FROM customers"), ["\"order\"", "order"]);
        assert_eq!(texts("SELECT \"or| FROM customers"), Vec::<String>::new());
        assert_eq!(texts("FROM customers SELECT \"or|"), ["\"order\""]);
        assert_eq!(texts("SELECT o.| FROM customers c JOIN orders AS o"), ["id", "cost"]);
        assert_eq!(texts("SELECT customers.co| FROM customers, orders"), ["Country"]);
        assert_eq!(texts("SELECT fi| FROM 'a b.csv'")[0], "\"file column\"");
        assert_eq!(texts("SELECT fi| FROM read_csv('x', header => (true)) r")[0], "\"file column\"");
        assert_eq!(texts("SELECT s.| FROM (SELECT 1 AS one) s"), ["one"]);
        // Another statement of the same text.
        assert_eq!(texts("SELECT x.| FROM orders; SELECT 1 FROM customers x"), Vec::<String>::new());
    }

    #[test]
    fn keywords_keep_the_case_of_what_was_typed() {
        assert_eq!(texts("sel|"), ["select"]);
        assert_eq!(texts("SEL|"), ["SELECT"]);
        assert_eq!(texts("SELECT 1; wh|"), ["when", "where"]);
        for nothing in ["|", "SELECT 'a|'", "SELECT 1 -- fr|", "SELECT 12|"] {
            assert_eq!(texts(nothing), Vec::<String>::new(), "{nothing}");
        }
    }

    #[test]
    fn paths_in_quotes_follow_from_and_functions() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().to_string_lossy().into_owned();
        std::fs::write(folder.path().join("it's.csv"), "a").expect("a file");
        std::fs::create_dir(folder.path().join("items")).expect("a folder");
        let expected = [format!("{path}/it''s.csv'"), format!("{path}/items/")];
        for before in ["FROM '", "SELECT * FROM t JOIN '", "FROM read_csv('", "FROM read_csv(['x', '"] {
            assert_eq!(texts(&format!("{before}{path}/it|")), expected, "{before}");
        }
        assert_eq!(texts(&format!("FROM '{path}/it''|'")), [format!("{path}/it''s.csv")]);
        assert_eq!(texts(&format!("SELECT * FROM t WHERE a = '{path}/it|")), Vec::<String>::new());
    }

    #[test]
    fn dot_commands_and_their_arguments_are_completed() {
        assert_eq!(texts(".re|"), [".read", ".report"]);
        assert_eq!(texts(".mode c|"), ["csv"]);
        assert_eq!(texts(".timer |"), ["on", "off"]);
        assert_eq!(texts(".schema cu|"), ["customers"]);
        assert_eq!(texts(".whatif cores=2 disk.r|"), ["disk.rate="]);
        assert_eq!(texts(".exit x|"), Vec::<String>::new());
    }
}
