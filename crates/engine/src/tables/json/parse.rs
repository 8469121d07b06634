//! Reads JSON text, one token after the other.

use std::borrow::Cow;

/// Maximum nesting of lists and objects.
const MAX_DEPTH: usize = 128;

/// Text that is not JSON, with the position of the first wrong byte.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    pub at: usize,
    pub why: &'static str,
}

/// A position in JSON text.
#[derive(Debug, Clone)]
pub(crate) struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

/// The kind of the next value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Null,
    Boolean,
    Number,
    Text,
    List,
    Object,
}

impl<'a> Parser<'a> {
    pub(crate) fn new(text: &'a [u8], at: usize) -> Self {
        Self { text, at, depth: 0 }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Returns the text from a position to this one.
    pub(crate) fn since(&self, start: usize) -> &'a [u8] {
        &self.text[start.min(self.at)..self.at.min(self.text.len())]
    }

    /// Returns true if only spaces are left, and skips them.
    pub(crate) fn is_at_end(&mut self) -> bool {
        self.spaces();
        self.at >= self.text.len()
    }

    fn spaces(&mut self) {
        while self.text.get(self.at).is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn malformed<T>(&self, why: &'static str) -> Result<T, Malformed> {
        let ended = self.at >= self.text.len();
        Err(Malformed {
            at: self.at.min(self.text.len()),
            why: if ended { "the text ends within a value" } else { why },
        })
    }

    /// Skips a byte after spaces, if it is the next one.
    pub(crate) fn accept(&mut self, byte: u8) -> bool {
        self.spaces();
        let found = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8, why: &'static str) -> Result<(), Malformed> {
        if self.accept(byte) { Ok(()) } else { self.malformed(why) }
    }

    pub(crate) fn kind(&mut self) -> Result<Kind, Malformed> {
        self.spaces();
        Ok(match self.text.get(self.at) {
            Some(b'n') => Kind::Null,
            Some(b't' | b'f') => Kind::Boolean,
            Some(b'"') => Kind::Text,
            Some(b'[') => Kind::List,
            Some(b'{') => Kind::Object,
            Some(b'-' | b'0'..=b'9') => Kind::Number,
            _ => return self.malformed("expected a value"),
        })
    }

    /// Reads `null`, `true` or `false`.
    pub(crate) fn word(&mut self) -> Result<&'a [u8], Malformed> {
        for word in [&b"null"[..], b"true", b"false"] {
            if self.text[self.at..].starts_with(word) {
                let found = &self.text[self.at..self.at + word.len()];
                self.at += word.len();
                return Ok(found);
            }
        }
        // The word may be cut.
        let left = &self.text[self.at..];
        if [&b"null"[..], b"true", b"false"].iter().any(|word| word.starts_with(left)) {
            self.at = self.text.len();
        }
        self.malformed("expected null, true or false")
    }

    pub(crate) fn number(&mut self) -> Result<&'a [u8], Malformed> {
        let start = self.at;
        while self
            .text
            .get(self.at)
            .is_some_and(|byte| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'))
        {
            self.at += 1;
        }
        let number = &self.text[start..self.at];
        let digits = number.strip_prefix(b"-").unwrap_or(number);
        let valid =
            digits.first().is_some_and(u8::is_ascii_digit) && digits.last().is_some_and(u8::is_ascii_digit);
        if valid { Ok(number) } else { self.malformed("expected a number") }
    }

    /// Reads a string without its quotes and escapes.
    pub(crate) fn string(&mut self) -> Result<Cow<'a, [u8]>, Malformed> {
        let raw = self.raw_string()?;
        if !raw.contains(&b'\\') {
            return Ok(Cow::Borrowed(raw));
        }
        match unescaped(raw) {
            Some(text) => Ok(Cow::Owned(text)),
            None => self.malformed("a string has an invalid escape"),
        }
    }

    fn raw_string(&mut self) -> Result<&'a [u8], Malformed> {
        self.expect(b'"', "expected a string in double quotes")?;
        let start = self.at;
        loop {
            match self.text.get(self.at) {
                Some(b'"') => break,
                Some(b'\\') => self.at += 2,
                Some(b'\n') => return self.malformed("a string has a line end; write it as \\n"),
                Some(_) => self.at += 1,
                None => return self.malformed("a string is not closed"),
            }
        }
        self.at += 1;
        Ok(&self.text[start..self.at - 1])
    }

    /// Calls `item` at the start of each element of a list.
    pub(crate) fn list<E: From<Malformed>>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.expect(b'[', "expected a list")?;
        self.nest()?;
        if !self.accept(b']') {
            loop {
                item(self)?;
                if self.accept(b']') {
                    break;
                }
                self.expect(b',', "expected , or ] in a list")?;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Calls `value` with each key of an object, before its value.
    pub(crate) fn object<E: From<Malformed>>(
        &mut self,
        mut value: impl FnMut(&mut Self, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.expect(b'{', "expected an object")?;
        self.nest()?;
        if !self.accept(b'}') {
            loop {
                self.spaces();
                let key = self.string()?;
                self.expect(b':', "expected : after a key")?;
                value(self, &key)?;
                if self.accept(b'}') {
                    break;
                }
                self.expect(b',', "expected , or } in an object")?;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn nest(&mut self) -> Result<(), Malformed> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            self.malformed("values are nested more than 128 levels deep")
        } else {
            Ok(())
        }
    }

    /// Skips a value and returns its text.
    pub(crate) fn skip(&mut self) -> Result<&'a [u8], Malformed> {
        let kind = self.kind()?;
        let start = self.at;
        match kind {
            Kind::Null | Kind::Boolean => {
                self.word()?;
            }
            Kind::Number => {
                self.number()?;
            }
            Kind::Text => {
                self.raw_string()?;
            }
            Kind::List => self.list(|parser| parser.skip().map(|_| ()))?,
            Kind::Object => self.object(|parser, _| parser.skip().map(|_| ()))?,
        }
        Ok(&self.text[start..self.at])
    }
}

/// Replaces the escapes in a string.
fn unescaped(raw: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'\\' {
            text.push(*first);
            continue;
        }
        let (escape, after) = rest.split_first()?;
        rest = after;
        text.push(match escape {
            b'"' | b'\\' | b'/' => *escape,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let mut unit = hex(&mut rest)?;
                if (0xd800..0xdc00).contains(&unit) {
                    rest = rest.strip_prefix(b"\\u")?;
                    let low = hex(&mut rest)?.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
                    unit = 0x10000 + (unit - 0xd800) * 0x400 + low;
                }
                let letter = char::from_u32(unit)?;
                text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            _ => return None,
        });
    }
    Some(text)
}

fn hex(text: &mut &[u8]) -> Option<u32> {
    let (digits, rest) = text.split_at_checked(4)?;
    *text = rest;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_skipped_and_strings_unescaped() {
        let text = br#" {"a": [1, -2.5e3, {}], "b\u00e9\ud83d\ude00": null} true"#;
        let mut parser = Parser::new(text, 0);
        assert_eq!(parser.skip().unwrap(), &text[1..text.len() - 5]);
        assert_eq!((parser.kind().unwrap(), parser.word().unwrap()), (Kind::Boolean, &b"true"[..]));
        assert!(parser.is_at_end());
        assert_eq!(Parser::new(br#""a\n\"\u00e9\ud83d\ude00""#, 0).string().unwrap(), "a\n\"é😀".as_bytes());
    }

    #[test]
    fn malformed_text_is_refused_at_its_place() {
        for (text, at) in
            [("{\"a\" 1}", 5), ("[1,]", 3), ("[1", 2), ("oops", 0), ("\"a\nb\"", 2), ("-", 1), ("nul", 3)]
        {
            assert_eq!(Parser::new(text.as_bytes(), 0).skip().unwrap_err().at, at, "{text}");
        }
        let deep = "[".repeat(100_000);
        assert!(Parser::new(deep.as_bytes(), 0).skip().is_err());
    }
}
