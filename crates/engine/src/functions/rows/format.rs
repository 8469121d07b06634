//! `format` and `printf`, which fill values into a text, and formats of PostgreSQL's `to_char`.

use std::borrow::Cow;

use crate::functions::rows::Kind::{Any, Text};
use crate::functions::rows::{Function, Value};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::new(&["format"], &[Text, Any], Text, |_, v| Ok(braces(v[0].text(), &v[1..])?.into()))
        .repeated(),
    Function::new(&["printf"], &[Text, Any], Text, |_, v| Ok(percents(v[0].text(), &v[1..])?.into()))
        .repeated(),
];

/// The layout of one value.
#[derive(Default)]
struct Layout {
    fill: Option<char>,
    /// `<`, `>` or `^`.
    align: Option<char>,
    plus: bool,
    zero: bool,
    /// Between groups of three digits.
    separator: Option<char>,
    width: usize,
    precision: Option<usize>,
    /// The letter of the type; none: that of the value.
    letter: Option<char>,
}

/// Fills values into `{}`, `{1}`, `{:>8.2f}`.
fn braces(format: &str, values: &[Value<'_>]) -> Result<String, String> {
    let mut text = String::new();
    let mut next = 0;
    let mut rest = format;
    while let Some(at) = rest.find(['{', '}']) {
        text.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(brace) {
            text.push_str(brace);
            rest = after;
            continue;
        }
        let end =
            rest.find('}').filter(|_| brace == "{").ok_or("a brace is not closed; write {{ for a brace")?;
        let (number, layout) = rest[..end].split_once(':').unwrap_or((&rest[..end], ""));
        rest = &rest[end + 1..];
        let index = match number.trim() {
            "" => next,
            number => number.parse().map_err(|_| format!("`{number}` is not the number of an argument"))?,
        };
        next = index + 1;
        text.push_str(&laid_out(value(values, index)?, &layout_of(layout)?)?);
    }
    text.push_str(rest);
    Ok(text)
}

/// Fills values into `%d`, `%-10s`, `%05.2f`.
fn percents(format: &str, values: &[Value<'_>]) -> Result<String, String> {
    let mut text = String::new();
    let mut next = 0;
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            text.push('%');
            rest = after;
            continue;
        }
        let letter = rest.find(|c: char| c.is_ascii_alphabetic());
        let end = letter.ok_or("the format ends within a specifier; write %% for a percent sign")?;
        let mut layout = Layout { align: Some('>'), ..Layout::default() };
        let flags = rest[..end].trim_start_matches(|c| {
            match c {
                '-' => layout.align = Some('<'),
                '+' => layout.plus = true,
                '0' => layout.zero = true,
                ',' | '\'' | '_' => layout.separator = Some(if c == '_' { '_' } else { ',' }),
                _ => return false,
            }
            true
        });
        let (width, precision) = flags.split_once('.').unwrap_or((flags, ""));
        layout.width = width.parse().unwrap_or(0);
        layout.precision = precision.parse().ok();
        layout.letter = rest[end..].chars().next().map(|c| if c == 'i' { 'd' } else { c });
        rest = &rest[end + 1..];
        text.push_str(&laid_out(value(values, next)?, &layout)?);
        next += 1;
    }
    text.push_str(rest);
    Ok(text)
}

fn value<'a, 'b>(values: &'a [Value<'b>], index: usize) -> Result<&'a Value<'b>, String> {
    values
        .get(index)
        .ok_or_else(|| format!("the format has a place for argument {}, which is missing", index + 1))
}

/// Reads `*^+08,.2f`.
fn layout_of(text: &str) -> Result<Layout, String> {
    let mut layout = Layout::default();
    let characters: Vec<char> = text.chars().collect();
    let mut at = 0;
    if characters.len() > 1 && matches!(characters[1], '<' | '>' | '^') {
        (layout.fill, layout.align, at) = (Some(characters[0]), Some(characters[1]), 2);
    } else if let Some(align @ ('<' | '>' | '^')) = characters.first() {
        (layout.align, at) = (Some(*align), 1);
    }
    let mut precise = false;
    let mut width = String::new();
    let mut precision = String::new();
    for &c in &characters[at..] {
        match c {
            '+' => layout.plus = true,
            '0' if width.is_empty() && !precise => layout.zero = true,
            // DuckDB's `{:tX}`: X is the separator.
            't' => {}
            ',' | '_' | '\'' => layout.separator = Some(c),
            '.' => precise = true,
            '0'..='9' if precise => precision.push(c),
            '0'..='9' => width.push(c),
            _ if c.is_ascii_alphabetic() => layout.letter = Some(c),
            _ => return Err(format!("`{text}` is not a layout; use the form 0>8.2f")),
        }
    }
    layout.width = width.parse().unwrap_or(0);
    layout.precision = precision.parse().ok();
    Ok(layout)
}

/// Formats one value.
fn laid_out(value: &Value<'_>, layout: &Layout) -> Result<String, String> {
    let wrong = |kind: &str| {
        let letter = layout.letter.unwrap_or_default();
        Err(format!("{letter} does not fit a value of type {kind}; CAST the argument"))
    };
    let (mut body, number) = match value {
        Value::Integer(n) => {
            if layout.precision.is_some() && layout.letter.is_none_or(|c| c == 'd') {
                return Err("a whole number has no decimals; CAST the argument AS DOUBLE".to_string());
            }
            let body = match layout.letter {
                None | Some('d') => grouped(&n.to_string(), layout.separator),
                Some('x') => format!("{n:x}"),
                Some('X') => format!("{n:X}"),
                Some('o') => format!("{n:o}"),
                Some('b') => format!("{n:b}"),
                Some('c') => {
                    u32::try_from(*n).ok().and_then(char::from_u32).map(String::from).unwrap_or_default()
                }
                Some(_) => return wrong("integer"),
            };
            (body, true)
        }
        Value::Double(_) | Value::Decimal(_) => {
            let x = value.double();
            let body = match (layout.letter, layout.precision) {
                (None, None) => match value {
                    Value::Decimal(text) => text.clone(),
                    _ => shortest(x),
                },
                (Some('f' | 'F'), precision) => format!("{x:.*}", precision.unwrap_or(6)),
                (Some('e'), precision) => exponent(x, precision.unwrap_or(6)),
                (Some('E'), precision) => exponent(x, precision.unwrap_or(6)).to_uppercase(),
                (None | Some('g' | 'G'), precision) => significant(x, precision.unwrap_or(6)),
                _ => return wrong("double"),
            };
            (grouped(&body, layout.separator), true)
        }
        Value::Boolean(is) => match layout.letter {
            Some('d') => (i64::from(*is).to_string(), true),
            None | Some('s') => (is.to_string(), false),
            _ => return wrong("boolean"),
        },
        other => match layout.letter {
            None | Some('s') => {
                let text = other.text();
                (layout.precision.map_or(text.to_string(), |n| text.chars().take(n).collect()), false)
            }
            _ => return wrong("text"),
        },
    };
    if layout.plus && number && !body.starts_with('-') {
        body.insert(0, '+');
    }
    let missing = layout.width.saturating_sub(body.chars().count());
    if layout.zero && number && layout.align.is_none_or(|align| align != '<') {
        let sign = usize::from(body.starts_with(['-', '+']));
        body.insert_str(sign, &"0".repeat(missing));
        return Ok(body);
    }
    let fill = |n: usize| layout.fill.unwrap_or(' ').to_string().repeat(n);
    Ok(match layout.align.unwrap_or(if number { '>' } else { '<' }) {
        '<' => body + &fill(missing),
        '^' => fill(missing / 2) + &body + &fill(missing - missing / 2),
        _ => fill(missing) + &body,
    })
}

/// Returns the shortest text that is read as the same number.
pub(crate) fn shortest(x: f64) -> String {
    if x != 0.0 && x.is_finite() && (x.abs() >= 1e16 || x.abs() < 1e-4) {
        return exponent_of(&format!("{x:e}"));
    }
    format!("{x:?}")
}

fn exponent(x: f64, precision: usize) -> String {
    exponent_of(&format!("{x:.precision$e}"))
}

/// Writes the exponent as C does: `1e7` becomes `1e+07`.
fn exponent_of(text: &str) -> String {
    let Some((digits, power)) = text.split_once('e') else { return text.to_string() };
    let (sign, power) = power.strip_prefix('-').map_or(('+', power), |power| ('-', power));
    format!("{digits}e{sign}{}", pad(power, 2))
}

/// Formats like C's `%g`.
fn significant(x: f64, precision: usize) -> String {
    let precision = precision.max(1);
    let power = if x == 0.0 { 0 } else { x.abs().log10().floor() as i64 };
    if power < -4 || power >= precision as i64 {
        let text = exponent(x, precision - 1);
        let (digits, rest) = text.split_once('e').unwrap_or((&text, ""));
        let digits =
            if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits };
        return format!("{digits}e{rest}");
    }
    let text = format!("{x:.*}", (precision as i64 - 1 - power).max(0) as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

/// Puts a separator between groups of three digits before the point.
fn grouped(number: &str, separator: Option<char>) -> String {
    let Some(separator) = separator else { return number.to_string() };
    let (whole, fraction) = number.find('.').map_or((number, ""), |at| number.split_at(at));
    let digits = whole.trim_start_matches('-');
    let mut text = whole[..whole.len() - digits.len()].to_string();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(separator);
        }
        text.push(digit);
    }
    text + fraction
}

/// Fills a number with zeros from the left.
pub(crate) fn pad(number: &str, width: usize) -> String {
    format!("{number:0>width$}")
}

/// Converts a format of PostgreSQL's `to_char` for timestamps to one of `strftime`.
pub(crate) fn from_postgres(format: &str) -> String {
    const PATTERNS: [(&str, &str); 27] = [
        ("HH24", "%H"),
        ("HH12", "%I"),
        ("HH", "%I"),
        ("MI", "%M"),
        ("SS", "%S"),
        ("MS", "%g"),
        ("US", "%f"),
        ("AM", "%p"),
        ("PM", "%p"),
        ("IYYY", "%G"),
        ("YYYY", "%Y"),
        ("YY", "%y"),
        ("Month", "%B"),
        ("Mon", "%b"),
        ("MM", "%m"),
        ("Day", "%A"),
        ("Dy", "%a"),
        ("DDD", "%j"),
        ("DD", "%d"),
        ("IW", "%V"),
        ("ID", "%u"),
        ("hh24", "%H"),
        ("mi", "%M"),
        ("ss", "%S"),
        ("yyyy", "%Y"),
        ("mm", "%m"),
        ("dd", "%d"),
    ];
    let mut made = String::new();
    let mut rest = format;
    while let Some(c) = rest.chars().next() {
        // `FM` takes the padding of the pattern after it.
        let bare = rest.starts_with("FM");
        let start = if bare { &rest[2..] } else { rest };
        if let Some((pattern, specifier)) = PATTERNS.iter().find(|(pattern, _)| start.starts_with(pattern)) {
            made.push_str(&if bare { specifier.replace('%', "%-") } else { specifier.to_string() });
            rest = &start[pattern.len()..];
        } else if let Some((quoted, after)) = rest.strip_prefix('"').and_then(|rest| rest.split_once('"')) {
            made.push_str(&Cow::Borrowed(quoted).replace('%', "%%"));
            rest = after;
        } else {
            made.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_filled_into_braces() {
        let made = |format, value| braces(format, &[value]).unwrap();
        assert_eq!(braces("{1} {0}", &[Value::Integer(1), Value::Integer(2)]).unwrap(), "2 1");
        assert_eq!(made("{:.2f}|{{}}", Value::Double(2.71459)), "2.71|{}");
        assert_eq!(made("{:*^7}", Value::Text("ab".into())), "**ab***");
        assert_eq!(made("{:,}", Value::Integer(-1_234_567)), "-1,234,567");
        assert_eq!(made("{:05d}", Value::Integer(42)), "00042");
        assert_eq!(made("{:e}", Value::Double(1234.5)), "1.234500e+03");
        assert!(braces("{} {}", &[Value::Integer(1)]).is_err());
        assert!(braces("{:d}", &[Value::Double(1.5)]).is_err());
    }

    #[test]
    fn values_are_filled_into_percents() {
        let made = |format, value| percents(format, &[value]).unwrap();
        assert_eq!(made("%05.2f%%", Value::Double(2.51459)), "02.51%");
        assert_eq!(made("%-5d|", Value::Integer(2)), "2    |");
        assert_eq!(made("%5s|", Value::Text("a".into())), "    a|");
        assert_eq!(made("%g", Value::Double(0.1)), "0.1");
        assert_eq!(made("%,d", Value::Integer(1_234_567)), "1,234,567");
    }

    #[test]
    fn formats_of_postgres_become_specifiers() {
        assert_eq!(from_postgres("DD.MM.YYYY HH24:MI:SS"), "%d.%m.%Y %H:%M:%S");
        assert_eq!(from_postgres("FMDD Mon YY \"at\" HH12 AM"), "%-d %b %y at %I %p");
    }
}
