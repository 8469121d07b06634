//! A pull scanner for one line of JSON.
//!
//! An event has hundreds of fields, of which a dozen are needed; the end of a task is mostly a list of
//! accumulables that repeats its metrics. The scanner therefore builds no tree. It walks along the line,
//! returns borrowed values, and skips unused ones, 32 bytes at a time if the build targets AVX2.
//!
//! The scanner accepts any valid JSON: keys in any order, whitespace, escapes, and nesting of any depth
//! (skipping uses no stack). It does not fully validate skipped values, but it counts brackets and quotes,
//! so that a value is never read from the wrong level.

use std::borrow::Cow;

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

/// Returns the length of the object or array at the start of `bytes`, including its closing bracket.
#[inline]
fn closing(bytes: &[u8]) -> Option<usize> {
    let mut depth = 0_i64;
    let mut inside = false; // within a string
    let mut escaped = false; // the first byte of the next block is escaped
    let mut at = 0;
    while at < bytes.len() {
        let mut last = [0_u8; 64];
        let block: &[u8; 64] = match bytes[at..].first_chunk() {
            Some(block) => block,
            None => {
                last[..bytes.len() - at].copy_from_slice(&bytes[at..]);
                &last
            }
        };
        let masks = Masks::of(block);
        let quotes = masks.quotes & !escaped_bits(masks.backslashes, &mut escaped);
        // Bits between an odd quote and the next are within a string.
        let texts = prefix_xor(quotes) ^ if inside { u64::MAX } else { 0 };
        inside = texts >> 63 == 1;
        let opens = masks.opens & !texts;
        let mut closes = masks.closes & !texts;
        let closing = i64::from(closes.count_ones());
        if depth > closing {
            depth += i64::from(opens.count_ones()) - closing;
        } else {
            // The closing bracket may be in this block.
            while closes != 0 {
                let place = closes.trailing_zeros();
                let before = opens & ((1_u64 << place) - 1);
                closes &= closes - 1;
                let done = masks.closes & !texts & ((1_u64 << place) - 1);
                let level = depth + i64::from(before.count_ones()) - i64::from(done.count_ones());
                if level <= 1 {
                    return (level == 1).then_some(at + place as usize + 1);
                }
            }
            depth += i64::from(opens.count_ones()) - closing;
        }
        at += 64;
    }
    None
}

/// Returns the bits of bytes that follow an odd run of backslashes. `carry` is the state between blocks.
#[inline]
fn escaped_bits(backslashes: u64, carry: &mut bool) -> u64 {
    if backslashes == 0 {
        let escaped = u64::from(*carry);
        *carry = false;
        return escaped;
    }
    let mut escaped = u64::from(*carry);
    let mut left = backslashes & !escaped;
    *carry = false;
    while left != 0 {
        let place = left.trailing_zeros();
        if place == 63 {
            *carry = true;
            break;
        }
        escaped |= 1 << (place + 1);
        left &= !(3_u64 << place); // an escaped backslash does not escape the byte after it
    }
    escaped
}

/// Replaces each bit by the parity of the bits up to and including it.
#[inline]
fn prefix_xor(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

/// Bit masks of the structural characters in 64 bytes.
struct Masks {
    quotes: u64,
    backslashes: u64,
    opens: u64,
    closes: u64,
}

impl Masks {
    #[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
    #[inline]
    fn of(block: &[u8; 64]) -> Masks {
        use std::arch::x86_64::*;
        // SAFETY: the `cfg` above guarantees AVX2, and each load reads 32 of the 64 bytes.
        let (low, high) = unsafe {
            let begin = block.as_ptr().cast::<__m256i>();
            (_mm256_loadu_si256(begin), _mm256_loadu_si256(begin.add(1)))
        };
        let equal = |half: __m256i, byte: u8| {
            // SAFETY: the `cfg` above guarantees AVX2.
            unsafe { _mm256_movemask_epi8(_mm256_cmpeq_epi8(half, _mm256_set1_epi8(byte as i8))) as u32 }
        };
        // `[` and `{` differ in one bit only, as do `]` and `}`.
        let folded = |half: __m256i| {
            // SAFETY: the `cfg` above guarantees AVX2.
            unsafe { _mm256_or_si256(half, _mm256_set1_epi8(0x20)) }
        };
        let both = |of: &dyn Fn(__m256i) -> u32| u64::from(of(low)) | u64::from(of(high)) << 32;
        Masks {
            quotes: both(&|half| equal(half, b'"')),
            backslashes: both(&|half| equal(half, b'\\')),
            opens: both(&|half| equal(folded(half), b'{')),
            closes: both(&|half| equal(folded(half), b'}')),
        }
    }

    #[cfg(not(all(target_arch = "x86_64", target_feature = "avx2")))]
    fn of(block: &[u8; 64]) -> Masks {
        Masks::scalar(block)
    }

    #[cfg(any(test, not(all(target_arch = "x86_64", target_feature = "avx2"))))]
    fn scalar(block: &[u8; 64]) -> Masks {
        let mut masks = Masks { quotes: 0, backslashes: 0, opens: 0, closes: 0 };
        for (at, byte) in block.iter().enumerate() {
            match byte {
                b'"' => masks.quotes |= 1 << at,
                b'\\' => masks.backslashes |= 1 << at,
                b'{' | b'[' => masks.opens |= 1 << at,
                b'}' | b']' => masks.closes |= 1 << at,
                _ => {}
            }
        }
        masks
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

    #[test]
    fn simd_and_scalar_masks_agree() {
        let mut block = [b'a'; 64];
        for (at, byte) in block.iter_mut().enumerate() {
            *byte = b"\"\\{}[]az,:;\x5b\x7d0\xdb\xfb"[at % 16];
        }
        let (simd, scalar) = (Masks::of(&block), Masks::scalar(&block));
        assert_eq!(
            (simd.quotes, simd.backslashes, simd.opens, simd.closes),
            (scalar.quotes, scalar.backslashes, scalar.opens, scalar.closes)
        );
    }
}
