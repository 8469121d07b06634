//! Pseudo-random numbers that are the same on every machine and in every version: k-means++ draws with
//! them, and the answer to a seed is a promise. SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).

/// A stream of numbers from a seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

/// Spreads the bits of a number over all of its 64.
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A number above 0 and at most 1 from 64 random bits.
pub fn unit(bits: u64) -> f64 {
    ((bits >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Above 0, at most 1.
    pub fn unit(&mut self) -> f64 {
        unit(self.bits())
    }

    /// Below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// Normally distributed, by the sum of twelve.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}
