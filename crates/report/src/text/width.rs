//! The width of text on a terminal, in columns, as Unicode defines it (UAX #11): wide characters take two,
//! combining marks none.
//!
//! A sequence of emoji counts as the sum of its characters. Terminals differ, and the sum is never too small.

use unicode_width::UnicodeWidthChar;

/// Returns the width of a text without line breaks or tabs.
pub fn columns(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().map(char_columns).sum() }
}

/// Returns the width of a character. Control characters, which have none, count as one.
fn char_columns(c: char) -> usize {
    c.width().unwrap_or(1)
}

/// Returns the longest prefix of a text that fits `width` columns.
pub(crate) fn prefix(text: &str, width: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += char_columns(c);
        if used > width {
            return &text[..at];
        }
    }
    text
}

/// Truncates a text to at most `width` columns, with an ellipsis at the end if it is truncated.
pub fn fit(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut out = prefix(text, width.saturating_sub(1)).to_owned();
    out.extend((width > 0).then_some('…'));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_take_two_columns_and_combining_marks_none() {
        for (text, expected) in [("abc", 3), ("日本", 4), ("e\u{301}", 1), ("µ → …", 5), ("█▁━│", 4), ("", 0)]
        {
            assert_eq!(columns(text), expected, "{text}");
        }
    }

    #[test]
    fn truncated_text_ends_in_an_ellipsis() {
        assert_eq!(fit("abc", 3), "abc");
        assert_eq!(fit("abcd", 3), "ab…");
        assert_eq!(fit("日本語", 4), "日…");
        assert_eq!(fit("日本語", 1), "…");
        assert_eq!(fit("abc", 0), "");
        assert_eq!(fit("e\u{301}e\u{301}", 1), "…");
    }
}
