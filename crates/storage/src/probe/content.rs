//! The content of the objects that a probe writes.

use bytes::Bytes;

/// Returns pseudorandom bytes for a seed.
pub fn content(seed: u64, bytes: usize) -> Bytes {
    let mut state = seed;
    let word = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    let words = std::iter::repeat_with(word).take(bytes.div_ceil(4));
    let mut all: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    all.truncate(bytes);
    all.into()
}
