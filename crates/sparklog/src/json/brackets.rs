//! The search for the bracket that closes an object or array.
//!
//! Most bytes of a line are skipped, so this is the inner loop of the reader. It looks at 64 bytes at a time, with
//! AVX2 if the build targets it, and uses no stack for nested values.

/// Returns the length of the object or array at the start of `bytes`, including its closing bracket.
#[inline]
pub fn closing(bytes: &[u8]) -> Option<usize> {
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
