//! A pull scanner for one line of JSON.
//!
//! An event has hundreds of fields, of which a dozen are needed; the end of a task is mostly a list of
//! accumulables that repeats its metrics. The scanner therefore builds no tree. It walks along the line,
//! returns borrowed values, and skips unused ones.
//!
//! The scanner accepts any valid JSON: keys in any order, whitespace, escapes, and nesting of any depth
//! (skipping uses no stack). It does not fully validate skipped values, but it counts brackets and quotes,
//! so that a value is never read from the wrong level.

use std::borrow::Cow;

use crate::json::brackets::closing;
use crate::json::escape::unescaped;

/// An error: the line is not valid JSON at this position, or not of the expected shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed {
    /// Offset in the line.
    pub offset: usize,
}

/// A position in a line.
#[derive(Debug, Clone)]
pub struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// The text of a value that is not parsed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raw<'a>(pub &'a [u8]);

impl<'a> Scanner<'a> {
    /// Creates a scanner at the beginning of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Scanner<'a> {
        Scanner { bytes, at: 0 }
    }

    fn malformed<T>(&self) -> Result<T, Malformed> {
        Err(Malformed { offset: self.at })
    }

    /// Skips whitespace and returns the next byte without consuming it.
    #[inline]
    fn peek(&mut self) -> Option<u8> {
        while let Some(&byte) = self.bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    #[inline]
    fn pass(&mut self, byte: u8) -> Result<(), Malformed> {
        if self.peek() != Some(byte) {
            return self.malformed();
        }
        self.at += 1;
        Ok(())
    }

    /// Returns the offset in the line.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Returns whether only whitespace is left.
    pub fn at_end(&mut self) -> bool {
        self.peek().is_none()
    }

    /// Reads an object and calls `field` for each field. Escapes in keys are not resolved, since no key of
    /// interest has any. `field` must consume the value.
    ///
    /// # Errors
    /// Fails if the next value is not an object, or if `field` fails.
    #[inline]
    pub fn object(
        &mut self,
        mut field: impl FnMut(&'a [u8], &mut Scanner<'a>) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        self.pass(b'{')?;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            let key = self.quoted()?;
            self.pass(b':')?;
            field(key, self)?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return self.malformed(),
            }
        }
    }

    /// Reads an array and calls `item` for each item, which `item` must consume.
    ///
    /// # Errors
    /// Fails if the next value is not an array, or if `item` fails.
    #[inline]
    pub fn array(
        &mut self,
        mut item: impl FnMut(&mut Scanner<'a>) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        self.pass(b'[')?;
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            item(self)?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return self.malformed(),
            }
        }
    }

    /// Reads an object like [`Scanner::object`], and skips any other value.
    ///
    /// # Errors
    /// As [`Scanner::object`].
    pub fn object_or_skip(
        &mut self,
        field: impl FnMut(&'a [u8], &mut Scanner<'a>) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        if self.peek() == Some(b'{') { self.object(field) } else { self.skip() }
    }

    /// Reads an array like [`Scanner::array`], and skips any other value.
    ///
    /// # Errors
    /// As [`Scanner::array`].
    pub fn array_or_skip(
        &mut self,
        item: impl FnMut(&mut Scanner<'a>) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        if self.peek() == Some(b'[') { self.array(item) } else { self.skip() }
    }

    /// Reads an unsigned integer, which may be in quotes, as Spark writes the values of SQL metrics. Any
    /// other value is skipped and returns `None`: a negative or fractional number, one beyond 64 bits,
    /// null.
    ///
    /// # Errors
    /// Fails if the scanner is not at a value.
    #[inline]
    pub fn number(&mut self) -> Result<Option<u64>, Malformed> {
        let quoted = self.peek() == Some(b'"');
        let begin = self.at + usize::from(quoted);
        let mut at = begin;
        let mut value = 0_u64;
        let mut fits = true;
        while let Some(digit) = self.bytes.get(at).map(|b| b.wrapping_sub(b'0')).filter(|d| *d < 10) {
            match value.checked_mul(10).and_then(|v| v.checked_add(u64::from(digit))) {
                Some(more) => value = more,
                None => fits = false,
            }
            at += 1;
        }
        let whole = match self.bytes.get(at) {
            Some(b'"') => quoted,
            Some(b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n') | None => !quoted,
            _ => false,
        };
        if at > begin && whole {
            self.at = at + usize::from(quoted);
            return Ok(Some(value).filter(|_| fits));
        }
        self.skip()?;
        Ok(None)
    }

    /// Reads a number of any kind. Any other value is skipped and returns `None`.
    ///
    /// # Errors
    /// Fails if the scanner is not at a value.
    pub fn float(&mut self) -> Result<Option<f64>, Malformed> {
        let Raw(raw) = self.raw()?;
        Ok(std::str::from_utf8(raw).ok().and_then(|text| text.parse().ok()).filter(|n: &f64| n.is_finite()))
    }

    /// Reads a boolean. Any other value is skipped and returns `None`.
    ///
    /// # Errors
    /// Fails if the scanner is not at a value.
    #[inline]
    pub fn boolean(&mut self) -> Result<Option<bool>, Malformed> {
        let Raw(raw) = self.raw()?;
        Ok(match raw {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        })
    }

    /// Reads a string and resolves its escapes. Any other value is skipped and returns `None`.
    ///
    /// # Errors
    /// Fails if the scanner is not at a value.
    pub fn text(&mut self) -> Result<Option<Cow<'a, str>>, Malformed> {
        if self.peek() != Some(b'"') {
            self.skip()?;
            return Ok(None);
        }
        Ok(Some(unescaped(self.quoted()?)))
    }

    /// Reads a string like [`Scanner::text`], and copies it.
    ///
    /// # Errors
    /// Fails if the scanner is not at a value.
    pub fn string(&mut self) -> Result<Option<String>, Malformed> {
        Ok(self.text()?.map(Cow::into_owned))
    }

    /// Reads a string without resolving its escapes. Any other value is skipped and returns `None`.
    ///
    /// # Errors
    /// Fails if the scanner is not at a value.
    #[inline]
    pub fn raw_text(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        if self.peek() != Some(b'"') {
            self.skip()?;
            return Ok(None);
        }
        self.quoted().map(Some)
    }

    /// Returns the text of a value, to be parsed later.
    ///
    /// # Errors
    /// Fails if the scanner is not at a value.
    #[inline]
    pub fn raw(&mut self) -> Result<Raw<'a>, Malformed> {
        self.peek();
        let begin = self.at;
        self.skip()?;
        Ok(Raw(&self.bytes[begin..self.at]))
    }

    /// Skips a value.
    ///
    /// # Errors
    /// Fails if the scanner is not at a value, or if quotes or brackets do not match.
    #[inline]
    pub fn skip(&mut self) -> Result<(), Malformed> {
        match self.peek() {
            Some(b'"') => self.quoted().map(drop),
            Some(b'{' | b'[') => match closing(&self.bytes[self.at..]) {
                Some(length) => {
                    self.at += length;
                    Ok(())
                }
                None => self.malformed(),
            },
            Some(byte) if byte.is_ascii_alphanumeric() || byte == b'-' => {
                let rest = &self.bytes[self.at..];
                let ends = |b: &u8| {
                    matches!(b, b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n' | b'"' | b'{' | b'[' | b':')
                };
                self.at += rest.iter().position(ends).unwrap_or(rest.len());
                Ok(())
            }
            _ => self.malformed(),
        }
    }

    /// Returns the text between quotes.
    #[inline]
    fn quoted(&mut self) -> Result<&'a [u8], Malformed> {
        self.pass(b'"')?;
        let begin = self.at;
        // Most keys and values are short, so the first bytes are checked one by one.
        let short = &self.bytes[begin..self.bytes.len().min(begin + 32)];
        let found = short.iter().position(|b| matches!(b, b'"' | b'\\'));
        let mut at = begin + found.unwrap_or(short.len());
        loop {
            let rest = self.bytes.get(at..).unwrap_or_default();
            match memchr::memchr2(b'"', b'\\', rest) {
                None => return self.malformed(),
                Some(offset) if rest[offset] == b'"' => {
                    self.at = at + offset + 1;
                    return Ok(&self.bytes[begin..at + offset]);
                }
                Some(offset) => at += offset + 2, // skips the escaped byte, which may be a quote
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_type_are_read() {
        let line = br#" { "a" : 12 , "b":"x\"y\u00e9\ud83d\ude00","c":[1,{"d":[]},"]"],"e":true,"f":null,"g":-1,"h":"34" } "#;
        let mut seen = Vec::new();
        let mut scanner = Scanner::new(line);
        scanner
            .object(|key, value| {
                let text = match key {
                    b"a" | b"f" | b"g" | b"h" => format!("{:?}", value.number()?),
                    b"b" => value.text()?.expect("a text").into_owned(),
                    b"e" => format!("{:?}", value.boolean()?),
                    _ => String::from_utf8_lossy(value.raw()?.0).into_owned(),
                };
                seen.push(text);
                Ok(())
            })
            .expect("valid");
        assert!(scanner.at_end());
        let expected =
            ["Some(12)", "x\"yé😀", r#"[1,{"d":[]},"]"]"#, "Some(true)", "None", "None", "Some(34)"];
        assert_eq!(seen, expected);
    }

    #[test]
    fn skip_finds_the_end_at_any_block_alignment() {
        for before in 0..130 {
            let text = format!(r#"{}\\\"}}]{{["#, "x".repeat(before));
            let value = format!(r#"{{"k":"{text}","l":[{{}},[],"{text}"]}}"#);
            let line = format!("{value},1");
            let mut scanner = Scanner::new(line.as_bytes());
            scanner.skip().expect("valid");
            assert_eq!(scanner.at, value.len(), "{line}");
        }
    }

    #[test]
    fn skip_uses_no_stack_for_deep_nesting() {
        let deep = "[".repeat(3_000_000) + &"]".repeat(3_000_000);
        assert_eq!(Scanner::new(deep.as_bytes()).skip(), Ok(()));
        assert!(Scanner::new(&deep.as_bytes()[..deep.len() - 1]).skip().is_err());
    }

    #[test]
    fn unbalanced_json_is_rejected() {
        for line in ["", "{", "[1,2", r#""abc"#, r#"{"a":}"#, "}", r#"{"a" 1}"#, r#"{"a":1"#, r#""\"#] {
            let mut scanner = Scanner::new(line.as_bytes());
            let whole = scanner.object_or_skip(|_, value| value.skip());
            assert!(whole.is_err(), "{line}");
        }
    }
}
