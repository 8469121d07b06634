//! Pseudo-random numbers (SplitMix64: Steele, Lea and Flood, OOPSLA 2014). The sequence must stay the same on
//! every machine and in every version, since the k-means++ result for a seed must not change.

/// A pseudo-random number generator.
#[derive(Debug, Clone)]
pub struct Random(u64);

/// Mixes the bits of a number.
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Converts 64 random bits to a number above 0 and at most 1.
pub fn unit(bits: u64) -> f64 {
    ((bits >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

impl Random {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number above 0 and at most 1.
    pub fn unit(&mut self) -> f64 {
        unit(self.bits())
    }

    /// Returns a number below `end`, which must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// Returns an approximately normally distributed number, as a sum of twelve uniform ones.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}
