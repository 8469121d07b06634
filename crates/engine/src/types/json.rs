//! JSON text as a tree, and back. A number keeps its digits, and an object the order of its keys.

use std::borrow::Cow;
use std::fmt::Write;

use crate::tables::json::parse::{Kind, Malformed, Parser};

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Json<'a> {
    Null,
    Boolean(bool),
    Number(&'a str),
    Text(Cow<'a, str>),
    List(Vec<Json<'a>>),
    Object(Vec<(String, Json<'a>)>),
}

impl<'a> Json<'a> {
    /// Parses a text that is one JSON value.
    ///
    /// # Errors
    /// Returns the cause and its place if it is not.
    pub(crate) fn parse(text: &'a str) -> Result<Self, String> {
        let mut parser = Parser::new(text.as_bytes(), 0);
        let parsed = value(&mut parser).and_then(|value| match parser.is_at_end() {
            true => Ok(value),
            false => Err(Malformed { at: parser.at(), why: "text follows the value" }),
        });
        parsed.map_err(|Malformed { at, why }| {
            const SHOWN: usize = 40;
            let shown: String = text.chars().take(SHOWN).collect();
            let more = if shown.len() < text.len() { "…" } else { "" };
            format!(
                "cannot read '{shown}{more}' as JSON: {why} (byte {at}); find such texts with NOT json_valid(x)"
            )
        })
    }

    /// Returns the value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&Json<'a>> {
        match self {
            Json::Object(members) => members.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Returns the text of a string, and JSON for other values; `None` for null.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Json::Null => None,
            Json::Text(text) => Some(text.to_string()),
            other => Some(other.to_string()),
        }
    }

    /// Returns DuckDB's name of the value's type.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Json::Null => "NULL",
            Json::Boolean(_) => "BOOLEAN",
            Json::Number(digits) if digits.parse::<u64>().is_ok() => "UBIGINT",
            Json::Number(digits) if digits.parse::<i64>().is_ok() => "BIGINT",
            Json::Number(_) => "DOUBLE",
            Json::Text(_) => "VARCHAR",
            Json::List(_) => "ARRAY",
            Json::Object(_) => "OBJECT",
        }
    }

    /// Returns true if the value, or one within it, covers `other`: an object may have more keys, and a list more
    /// elements.
    pub(crate) fn contains(&self, other: &Json<'_>) -> bool {
        self.covers(other)
            || match self {
                Json::List(items) => items.iter().any(|item| item.contains(other)),
                Json::Object(members) => members.iter().any(|(_, value)| value.contains(other)),
                _ => false,
            }
    }

    fn covers(&self, other: &Json<'_>) -> bool {
        match (self, other) {
            (Json::List(items), Json::List(wanted)) => {
                wanted.iter().all(|wanted| items.iter().any(|item| item.covers(wanted)))
            }
            (Json::Object(_), Json::Object(wanted)) => {
                wanted.iter().all(|(key, wanted)| self.get(key).is_some_and(|value| value.covers(wanted)))
            }
            (Json::Number(a), Json::Number(b)) => number(a) == number(b),
            _ => self == other,
        }
    }

    /// Returns the value changed by a patch (RFC 7386): keys with null go, and objects are merged.
    pub(crate) fn patched(self, patch: Json<'a>) -> Json<'a> {
        let Json::Object(changes) = patch else { return patch };
        let mut members = match self {
            Json::Object(members) => members,
            _ => Vec::new(),
        };
        let mut changed = Vec::new();
        for (key, change) in changes {
            let before = members.iter().position(|(name, _)| *name == key).map(|at| members.remove(at).1);
            if change != Json::Null {
                changed.push((key, before.unwrap_or(Json::Null).patched(change)));
            }
        }
        members.extend(changed);
        Json::Object(members)
    }

    /// Writes the value over several lines.
    pub(crate) fn pretty(&self, depth: usize, out: &mut String) {
        const INDENT: &str = "    ";
        let line = |out: &mut String, first: bool| {
            out.push_str(if first { "\n" } else { ",\n" });
            out.push_str(&INDENT.repeat(depth + 1));
        };
        match self {
            Json::List(items) if !items.is_empty() => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    line(out, at == 0);
                    item.pretty(depth + 1, out);
                }
                out.extend(["\n", &INDENT.repeat(depth), "]"]);
            }
            Json::Object(members) if !members.is_empty() => {
                out.push('{');
                for (at, (key, value)) in members.iter().enumerate() {
                    line(out, at == 0);
                    quote(key, out);
                    out.push_str(": ");
                    value.pretty(depth + 1, out);
                }
                out.extend(["\n", &INDENT.repeat(depth), "}"]);
            }
            other => out.push_str(&other.to_string()),
        }
    }
}

impl std::fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Json::Null => f.write_str("null"),
            Json::Boolean(is) => write!(f, "{is}"),
            Json::Number(digits) => f.write_str(&number(digits)),
            Json::Text(text) => f.write_str(&quoted(text)),
            Json::List(items) => {
                f.write_char('[')?;
                for (at, item) in items.iter().enumerate() {
                    f.write_str(if at == 0 { "" } else { "," })?;
                    item.fmt(f)?;
                }
                f.write_char(']')
            }
            Json::Object(members) => {
                f.write_char('{')?;
                for (at, (key, value)) in members.iter().enumerate() {
                    f.write_str(if at == 0 { "" } else { "," })?;
                    write!(f, "{}:", quoted(key))?;
                    value.fmt(f)?;
                }
                f.write_char('}')
            }
        }
    }
}

fn value<'a>(parser: &mut Parser<'a>) -> Result<Json<'a>, Malformed> {
    let kind = parser.kind()?;
    let start = parser.at();
    let malformed = |why| Malformed { at: start, why };
    let utf8 = |bytes: &'a [u8]| {
        std::str::from_utf8(bytes).map_err(|_| malformed("the text is cut within a character"))
    };
    Ok(match kind {
        Kind::Null | Kind::Boolean => match parser.word()? {
            b"null" => Json::Null,
            word => Json::Boolean(word == b"true"),
        },
        Kind::Number => {
            let digits = utf8(parser.number()?)?;
            let whole = digits.trim_start_matches('-');
            if whole.len() > 1 && whole.starts_with('0') && whole.as_bytes()[1].is_ascii_digit() {
                return Err(malformed("a number starts with zero"));
            }
            if digits.parse::<f64>().is_err() || digits.contains(".e") || digits.contains(".E") {
                return Err(malformed("expected a number"));
            }
            Json::Number(digits)
        }
        Kind::Text => {
            let text = parser.string()?;
            if parser.since(start).iter().any(|byte| *byte < b' ') {
                return Err(malformed("a string has a control character; write it as \\u00XX"));
            }
            Json::Text(match text {
                Cow::Borrowed(bytes) => Cow::Borrowed(utf8(bytes)?),
                Cow::Owned(bytes) => Cow::Owned(owned(bytes)?),
            })
        }
        Kind::List => {
            let mut items = Vec::new();
            parser.list(|parser| value(parser).map(|item| items.push(item)))?;
            Json::List(items)
        }
        Kind::Object => {
            let mut members = Vec::new();
            parser.object(|parser, key| {
                let key = owned(key.to_vec())?;
                value(parser).map(|value| members.push((key, value)))
            })?;
            Json::Object(members)
        }
    })
}

fn owned(bytes: Vec<u8>) -> Result<String, Malformed> {
    String::from_utf8(bytes).map_err(|_| Malformed { at: 0, why: "a string is not UTF-8" })
}

/// Returns a number in DuckDB's form: `1e5` becomes `100000.0`. A whole number stays, whatever its size.
fn number(digits: &str) -> String {
    if !digits.contains(['.', 'e', 'E']) {
        return if digits == "-0" { "0".to_string() } else { digits.to_string() };
    }
    match digits.parse::<f64>() {
        Ok(x) if x.is_finite() => double(x),
        _ => digits.to_string(),
    }
}

/// Returns a float in the shortest form that has a point or an exponent.
pub(crate) fn double(x: f64) -> String {
    if x.is_nan() {
        return "NaN".to_string();
    }
    if x.is_infinite() {
        return if x > 0.0 { "Infinity" } else { "-Infinity" }.to_string();
    }
    let scientific = format!("{x:e}");
    let exponent = scientific.split_once('e').and_then(|(_, e)| e.parse::<i32>().ok()).unwrap_or(0);
    if !(-6..21).contains(&exponent) {
        return scientific;
    }
    let plain = x.to_string();
    if plain.contains('.') { plain } else { plain + ".0" }
}

/// Returns a text as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    quote(text, &mut out);
    out
}

fn quote(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_one_form() {
        for (text, form) in [
            (r#" { "a" : [ 1.50 , -0, 1e5 ] , "b":"\u00e9\/\n" } "#, r#"{"a":[1.5,0,100000.0],"b":"é/\n"}"#),
            ("12345678901234567890123", "12345678901234567890123"),
            ("[1e21,1e-7,0.00001,-0.0]", "[1e21,1e-7,0.00001,-0.0]"),
            (r#""\u0001\t""#, r#""\u0001\t""#),
        ] {
            assert_eq!(Json::parse(text).unwrap().to_string(), form);
        }
        for text in ["", "{a: 1}", "[1,]", "01", "5.", "\"x", "{} {}", "nul", "\"\t\"", "1.5.5"] {
            assert!(Json::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn patches_are_merged() {
        let of = |text| Json::parse(text).unwrap();
        let patched = of(r#"{"a":1,"b":{"c":1}}"#).patched(of(r#"{"b":{"d":2},"a":null}"#));
        assert_eq!(patched.to_string(), r#"{"b":{"c":1,"d":2}}"#);
        assert!(of("[1,[2,3]]").contains(&of("[2]")) && !of("1").contains(&of("1.0")));
    }
}
