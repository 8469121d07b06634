//! Damaged inputs, made from intact ones.

use std::ops::Range;

use crate::random::Random;

/// Numbers at which widths, signs and sizes change.
const NUMBERS: [u64; 16] = [
    0,
    1,
    2,
    7,
    127,
    128,
    255,
    256,
    65_535,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    (1 << 40) + 3,
    i64::MAX as u64,
    u64::MAX,
];

/// Texts that take the place of a token.
const TOKENS: [&[u8]; 24] = [
    b"0",
    b"-1",
    b"1",
    b"4294967296",
    b"9223372036854775807",
    b"18446744073709551615",
    b"18446744073709551616",
    b"1e999",
    b"-0.0",
    b"NaN",
    b"null",
    b"true",
    b"\"\"",
    b"\"",
    b"\\",
    b"\\ud800",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b"\n",
    b"\xff\xfe",
    b"[[[[[[[[",
];

/// Maximum length of a range that is removed, repeated, swapped or spliced.
const MAX_RANGE: usize = 300;

/// Intact inputs of one format.
#[derive(Debug, Clone)]
pub struct Inputs {
    intact: Vec<Vec<u8>>,
    /// Texts of the format, such as keys and magic numbers, which are inserted.
    words: Vec<Vec<u8>>,
    /// True for formats made of tokens.
    text: bool,
}

impl Inputs {
    /// Inputs of a binary format.
    pub fn binary(intact: Vec<Vec<u8>>, words: &[&[u8]]) -> Self {
        Self { intact, words: words.iter().map(|word| word.to_vec()).collect(), text: false }
    }

    /// Inputs of a text format, in which tokens are changed too.
    pub fn text(intact: Vec<Vec<u8>>, words: &[&[u8]]) -> Self {
        Self { text: true, ..Self::binary(intact, words) }
    }

    /// Returns an input with up to six changes; one in sixteen has none.
    ///
    /// # Panics
    /// If there are no intact inputs.
    pub fn damaged(&self, random: &mut Random) -> Vec<u8> {
        let mut bytes = random.pick(&self.intact).clone();
        if random.below(16) > 0 {
            self.damage(random, &mut bytes);
        }
        bytes
    }

    /// Changes an input in one to six places.
    pub fn damage(&self, random: &mut Random, bytes: &mut Vec<u8>) {
        for _ in 0..1 + random.below(6) {
            if self.text && random.below(2) == 0 {
                self.change_token(random, bytes);
            } else {
                self.change_bytes(random, bytes);
            }
        }
    }

    fn change_bytes(&self, random: &mut Random, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let at = random.below(bytes.len());
        match random.below(10) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.number() as u8,
            2 => {
                bytes.truncate(at);
            }
            3 => drop(bytes.drain(range(random, bytes.len()))),
            4 => {
                let repeated = bytes[range(random, bytes.len())].to_vec();
                let times = 1 + if random.below(8) == 0 { random.below(50) } else { 0 };
                bytes.splice(at..at, repeated.repeat(times));
            }
            5 => {
                let (one, other) = (range(random, bytes.len()), range(random, bytes.len()));
                swap(bytes, one, other);
            }
            6 | 7 => {
                // An integer, perhaps a length, of any width and order.
                let number = random.pick(&NUMBERS).wrapping_add(random.below(3) as u64).wrapping_sub(1);
                let width = 1 << random.below(4);
                let mut number = number.to_le_bytes()[..width].to_vec();
                if random.below(2) == 0 {
                    number.reverse();
                }
                let end = bytes.len().min(at + width);
                bytes.splice(at..end, number);
            }
            8 => {
                let other = random.pick(&self.intact);
                let spliced = other[range(random, other.len())].to_vec();
                let end = bytes.len().min(at + if random.below(2) == 0 { spliced.len() } else { 0 });
                bytes.splice(at..end, spliced);
            }
            _ if !self.words.is_empty() => {
                let word = random.pick(&self.words).clone();
                let end = bytes.len().min(at + if random.below(2) == 0 { word.len() } else { 0 });
                bytes.splice(at..end, word);
            }
            _ => {}
        }
    }

    fn change_token(&self, random: &mut Random, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let token = token(bytes, random.below(bytes.len()));
        match random.below(6) {
            0 => drop(bytes.drain(token)),
            1 => {
                let repeated = bytes[token.clone()].to_vec();
                bytes.splice(token.start..token.start, repeated);
            }
            2 => {
                let other = self::token(bytes, random.below(bytes.len()));
                swap(bytes, token, other);
            }
            3 => {
                let other = random.pick(&self.intact);
                let other = if other.is_empty() {
                    &[]
                } else {
                    &other[self::token(other, random.below(other.len()))]
                };
                let other = other.to_vec();
                bytes.splice(token, other);
            }
            4 if !self.words.is_empty() => {
                let word = random.pick(&self.words).clone();
                bytes.splice(token, word);
            }
            _ => {
                let other = *random.pick(&TOKENS);
                bytes.splice(token, other.iter().copied());
            }
        }
    }
}

/// Returns a random range of up to [`MAX_RANGE`] bytes.
fn range(random: &mut Random, length: usize) -> Range<usize> {
    let at = random.below(length);
    at..length.min(at + 1 + random.below(MAX_RANGE))
}

/// Returns the token around a byte: a word or number, or one other character.
fn token(bytes: &[u8], at: usize) -> Range<usize> {
    let part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.+-".contains(byte);
    if !part(&bytes[at]) {
        return at..at + 1;
    }
    let start = bytes[..at].iter().rposition(|byte| !part(byte)).map_or(0, |before| before + 1);
    let end = bytes[at..].iter().position(|byte| !part(byte)).map_or(bytes.len(), |length| at + length);
    start..end
}

/// Swaps two ranges, unless they overlap.
fn swap(bytes: &mut Vec<u8>, one: Range<usize>, other: Range<usize>) {
    let (first, second) = if one.start <= other.start { (one, other) } else { (other, one) };
    if first.end <= second.start {
        let swapped =
            [&bytes[second.clone()], &bytes[first.end..second.start], &bytes[first.clone()]].concat();
        bytes.splice(first.start..second.end, swapped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_inputs_and_most_differ_from_the_intact_one() {
        let intact = br#"{"key":[1,2,{"other":-3.5}],"text":"some words"}"#.to_vec();
        let inputs = Inputs::text(vec![intact.clone(), b"[]".to_vec(), Vec::new()], &[b"\"key\":"]);
        let made = |seed| inputs.damaged(&mut Random::new(seed));
        assert!((0..2000).all(|seed| made(seed) == made(seed)));
        assert!((0..2000).filter(|&seed| made(seed) == intact).count() < 200);
    }

    #[test]
    fn tokens_are_words_numbers_or_single_characters() {
        let text = br#"{"key":-3.5}"#;
        let at = |byte: usize| std::str::from_utf8(&text[token(text, byte)]).unwrap();
        assert_eq!([at(0), at(1), at(3), at(5), at(8), at(11)], ["{", "\"", "key", "\"", "-3.5", "}"]);
    }

    #[test]
    fn swap_exchanges_ranges_of_different_lengths() {
        let mut bytes = b"abcdefg".to_vec();
        swap(&mut bytes, 4..7, 1..2);
        assert_eq!(bytes, b"aefgcdb");
        swap(&mut bytes, 1..3, 2..4);
        assert_eq!(bytes, b"aefgcdb", "overlapping ranges stay");
    }
}
