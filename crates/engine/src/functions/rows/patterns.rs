//! Functions of regular expressions. Their syntax is that of RE2, without look-around and references.

use regex::Regex;

use crate::functions::rows::Kind::{Boolean, Integer, Text, Texts};
use crate::functions::rows::{Function, Memory, Value};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::new(&["regexp_extract"], &[Text, Text, Integer, Text], Text, |memory, v| {
        let pattern = with_options(memory, v[1].text(), v.get(3), false)?;
        let found = pattern.captures(v[0].text()).and_then(|found| found.get(group(v)));
        Ok(found.map_or(String::new(), |found| found.as_str().to_string()).into())
    })
    .optional(2),
    Function::new(&["regexp_extract_all"], &[Text, Text, Integer, Text], Texts, |memory, v| {
        let pattern = with_options(memory, v[1].text(), v.get(3), false)?;
        let all = pattern.captures_iter(v[0].text());
        let group = group(v);
        let text = |found: regex::Captures<'_>| {
            Some(found.get(group).map_or(String::new(), |found| found.as_str().to_string()))
        };
        Ok(Value::Texts(all.map(text).collect()))
    })
    .optional(2),
    Function::new(&["regexp_matches", "regexp_like"], &[Text, Text, Text], Boolean, |memory, v| {
        Ok(Value::Boolean(with_options(memory, v[1].text(), v.get(2), false)?.is_match(v[0].text())))
    })
    .optional(1),
    Function::new(&["regexp_full_match"], &[Text, Text, Text], Boolean, |memory, v| {
        Ok(Value::Boolean(with_options(memory, v[1].text(), v.get(2), true)?.is_match(v[0].text())))
    })
    .optional(1),
    Function::new(&["regexp_replace"], &[Text, Text, Text, Text], Text, |memory, v| {
        let pattern = with_options(memory, v[1].text(), v.get(3), false)?;
        let with = replacement(v[2].text());
        let limit = usize::from(!v.get(3).is_some_and(|options| options.text().contains('g')));
        Ok(pattern.replacen(v[0].text(), limit, with.as_str()).into_owned().into())
    })
    .optional(1),
    Function::new(
        &["regexp_split_to_array", "string_split_regex", "str_split_regex"],
        &[Text, Text, Text],
        Texts,
        |memory, v| {
            let pattern = with_options(memory, v[1].text(), v.get(2), false)?;
            Ok(Value::Texts(pattern.split(v[0].text()).map(|part| Some(part.to_string())).collect()))
        },
    )
    .optional(1),
    Function::new(&["regexp_escape"], &[Text], Text, |_, v| Ok(regex::escape(v[0].text()).into())),
    Function::new(&["pellucid_glob"], &[Text, Text], Boolean, |memory, v| {
        let pattern = format!("^(?s:{})$", from_glob(v[1].text()));
        Ok(Value::Boolean(memory.pattern(&pattern)?.is_match(v[0].text())))
    }),
];

fn group(values: &[Value<'_>]) -> usize {
    usize::try_from(values.get(2).map_or(0, Value::integer)).unwrap_or(usize::MAX)
}

/// Compiles a pattern with DuckDB's options.
///
/// # Errors
/// Returns the cause if the pattern or an option is wrong.
pub(crate) fn compiled(memory: &mut Memory, pattern: &str, options: &str) -> Result<Regex, String> {
    with_options(memory, pattern, Some(&Value::Text(options.into())), false)
}

/// Returns the number of groups of a pattern.
///
/// # Errors
/// Returns the cause if it is wrong.
pub(crate) fn groups(pattern: &str) -> Result<usize, String> {
    Ok(compiled(&mut Memory::default(), pattern, "")?.captures_len() - 1)
}

/// Compiles a pattern with DuckDB's options: `c`, `i`, `l`, `m`, `n`, `p`, `s` and `g`.
fn with_options(
    memory: &mut Memory,
    given: &str,
    options: Option<&Value<'_>>,
    full: bool,
) -> Result<Regex, String> {
    let mut flags = String::new();
    let mut pattern = of_re2(given);
    for option in options.map_or("", Value::text).chars() {
        match option {
            'i' | 's' => flags.push(option),
            'm' | 'n' | 'p' => flags.push('m'),
            'l' => pattern = regex::escape(given),
            'c' | 'g' => {}
            other => return Err(format!("`{other}` is not an option; use c, g, i, l, m or s")),
        }
    }
    if full {
        pattern = format!(r"\A(?:{pattern})\z");
    }
    if !flags.is_empty() {
        pattern = format!("(?{flags}){pattern}");
    }
    memory.pattern(&pattern)
}

/// Converts a pattern of RE2, whose `\w`, `\d`, `\s` and `\b` are of ASCII letters, and whose `[` in brackets is a
/// character.
fn of_re2(pattern: &str) -> String {
    let mut made = String::new();
    let mut characters = pattern.chars().peekable();
    let mut within = false;
    while let Some(c) = characters.next() {
        match c {
            '\\' => match characters.next() {
                Some('w') => made.push_str("[0-9A-Za-z_]"),
                Some('W') => made.push_str("[^0-9A-Za-z_]"),
                Some('d') => made.push_str("[0-9]"),
                Some('D') => made.push_str("[^0-9]"),
                Some('s') => made.push_str(r"[\t\n\f\r ]"),
                Some('S') => made.push_str(r"[^\t\n\f\r ]"),
                Some(bound @ ('b' | 'B')) if !within => made.push_str(&format!(r"(?-u:\{bound})")),
                Some(other) => made.extend(['\\', other]),
                None => made.push('\\'),
            },
            '[' if within && characters.peek() == Some(&':') => {
                made.push('[');
                // The name of a class, `[:alpha:]`.
                for c in characters.by_ref() {
                    made.push(c);
                    if c == ']' {
                        break;
                    }
                }
            }
            '[' if within => made.push_str(r"\["),
            '&' | '~' if within => made.extend(['\\', c]),
            '[' => {
                within = true;
                made.push('[');
                made.extend(characters.next_if_eq(&'^'));
                // A bracket at the start is a character.
                if characters.next_if_eq(&']').is_some() {
                    made.push_str(r"\]");
                }
            }
            ']' => {
                within = false;
                made.push(']');
            }
            _ => made.push(c),
        }
    }
    made
}

/// Converts a replacement with `\1` to one with `${1}`.
fn replacement(text: &str) -> String {
    let mut made = String::new();
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match c {
            '$' => made.push_str("$$"),
            '\\' => match characters.next() {
                Some(digit) if digit.is_ascii_digit() => made.push_str(&format!("${{{digit}}}")),
                Some(other) => made.push(other),
                None => made.push('\\'),
            },
            _ => made.push(c),
        }
    }
    made
}

/// Converts a pattern of GLOB (`*`, `?`, `[a-z]`) to a regular expression.
fn from_glob(glob: &str) -> String {
    let mut made = String::new();
    let mut characters = glob.chars();
    while let Some(c) = characters.next() {
        match c {
            '*' => made.push_str(".*"),
            '?' => made.push('.'),
            '[' => {
                let inside: String = characters.by_ref().take_while(|c| *c != ']').collect();
                let (not, inside) =
                    inside.strip_prefix('!').map_or(("", inside.as_str()), |rest| ("^", rest));
                made.push_str(&format!("[{not}{}]", inside.replace('\\', r"\\").replace('[', r"\[")));
            }
            '\\' => made.push_str(&regex::escape(&characters.next().map(String::from).unwrap_or_default())),
            _ => made.push_str(&regex::escape(&c.to_string())),
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacements_and_globs_are_converted() {
        assert_eq!(replacement(r"[\1] $0 \\"), r"[${1}] $$0 \");
        assert_eq!(from_glob("a*[!x-z]?.csv"), r"a.*[^x-z].\.csv");
    }

    #[test]
    fn classes_are_those_of_re2() {
        assert_eq!(of_re2(r"\w+[^\d[.&-]\["), r"[0-9A-Za-z_]+[^[0-9]\[.\&-]\[");
        assert_eq!(of_re2(r"[]x[:alpha:]]\b"), r"[\]x[:alpha:]](?-u:\b)");
        assert!(Memory::default().pattern(&of_re2(r"[\W_]|\bä")).unwrap().is_match("é"));
    }

    #[test]
    fn options_become_flags() {
        let mut memory = Memory::default();
        let pattern = with_options(&mut memory, "b.", Some(&Value::Text("is".into())), true).unwrap();
        assert!(pattern.is_match("B\n") && !pattern.is_match("aB\n"));
        let error = with_options(&mut memory, "(", None, false).unwrap_err();
        assert!(error.contains("`(` is not a regular expression"), "{error}");
    }
}
