//! Escape sequences of JSON strings.

use std::borrow::Cow;

/// Resolves the escapes of a string. Invalid escapes and invalid UTF-8 become `U+FFFD`, so that a damaged
/// name does not discard its event.
pub fn unescaped(raw: &[u8]) -> Cow<'_, str> {
    if !raw.contains(&b'\\') {
        return String::from_utf8_lossy(raw);
    }
    let mut out = Vec::with_capacity(raw.len());
    let mut at = 0;
    while at < raw.len() {
        if raw[at] != b'\\' {
            out.push(raw[at]);
            at += 1;
            continue;
        }
        let (character, length) = escape(&raw[at..]);
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        at += length;
    }
    Cow::Owned(String::from_utf8_lossy(&out).into_owned())
}

/// Returns the character of the escape at the start of `raw`, and the escape's length.
fn escape(raw: &[u8]) -> (char, usize) {
    let simple = match raw.get(1) {
        Some(b'n') => '\n',
        Some(b't') => '\t',
        Some(b'r') => '\r',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'u') => return unicode(raw),
        Some(&byte @ (b'"' | b'\\' | b'/')) => byte as char,
        Some(_) => return (char::REPLACEMENT_CHARACTER, 2),
        None => return (char::REPLACEMENT_CHARACTER, 1),
    };
    (simple, 2)
}

fn unicode(raw: &[u8]) -> (char, usize) {
    let unit = |from: usize| {
        let digits = std::str::from_utf8(raw.get(from..from + 4)?).ok()?;
        u32::from_str_radix(digits, 16).ok()
    };
    let Some(first) = unit(2) else { return (char::REPLACEMENT_CHARACTER, 2) };
    if (0xd800..0xdc00).contains(&first)
        && raw.get(6..8) == Some(b"\\u")
        && let Some(second) = unit(8).filter(|second| (0xdc00..0xe000).contains(second))
    {
        let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        return (char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), 12);
    }
    (char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), 6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_escapes_become_replacement_characters() {
        assert_eq!(unescaped(br"a\qb\u12"), "a\u{fffd}b\u{fffd}12");
        assert_eq!(unescaped(br"\ud83dx"), "\u{fffd}x");
        assert_eq!(unescaped(b"\xff"), "\u{fffd}");
    }
}
