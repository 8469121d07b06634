//! Vectors of one cache line, 8 `f64` or 16 `f32`, and the choice of instructions at run time.
//!
//! A kernel is written once over [`Vector`] and passed to [`run`], which compiles it for three instruction sets
//! (AVX-512, AVX2 with FMA, portable) and calls the best available one. All three do the same operations on the
//! same lanes in the same order, rounding a fused multiply-add once. Their results are therefore bit-identical:
//! workers on different machines agree, and the portable path is the oracle for the others.
//!
//! The vector types are private to this module: only [`run`] names them, after detecting the processor's
//! features. Their methods can therefore be safe.

pub use super::vector::{Exp, Four, Kernel, Level, Line, Real, Vector};

/// Returns eˣ for x ≤ 0, to about one unit in the last place.
#[inline(always)]
pub fn exp<T: Real, V: Vector<T>>(x: V) -> V {
    let constants = T::EXP;
    let x = x.max(V::splat(constants.lowest));
    let shifted = x.mul_add(V::splat(constants.log2_e), V::splat(constants.rounder));
    let n = shifted.sub(V::splat(constants.rounder));
    let rest = n.mul_add(V::splat(constants.ln_2[0]), x);
    let rest = n.mul_add(V::splat(constants.ln_2[1]), rest);
    let mut sum = V::splat(constants.terms[0]);
    for term in &constants.terms[1..] {
        sum = sum.mul_add(rest, V::splat(*term));
    }
    sum.mul_add(rest, V::splat(T::of(1.0))).mul(shifted.power_of_two())
}

/// Prefetches the value `ahead` elements after the first of `values` into the L1 cache; harmless beyond the end.
/// Without it, a kernel that computes between loads leaves the memory idle, since the processor looks only some
/// hundred instructions ahead.
#[inline(always)]
pub fn prefetch<T>(values: &[T], ahead: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint without visible effect that is valid for any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(values.as_ptr().wrapping_add(ahead).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (values, ahead);
}

impl Level {
    /// Returns the levels available on this machine, the best last.
    pub fn available() -> Vec<Level> {
        #[cfg(target_arch = "x86_64")]
        {
            let mut levels = vec![Level::Portable];
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                levels.push(Level::Avx2);
                if is_x86_feature_detected!("avx512f") {
                    levels.push(Level::Avx512);
                }
            }
            levels
        }
        #[cfg(not(target_arch = "x86_64"))]
        vec![Level::Portable]
    }

    /// Returns the best level of this machine; detected once.
    pub fn best() -> Level {
        static BEST: std::sync::OnceLock<Level> = std::sync::OnceLock::new();
        *BEST.get_or_init(|| Level::available().pop().unwrap_or(Level::Portable))
    }
}

/// The processor vendors that kernels are tuned for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Make {
    /// AMD.
    Amd,
    /// Intel, and any processor that was not measured.
    Other,
}

/// Returns the vendor of this machine's processor; detected once.
pub fn make() -> Make {
    static MAKE: std::sync::OnceLock<Make> = std::sync::OnceLock::new();
    *MAKE.get_or_init(|| {
        #[cfg(target_arch = "x86_64")]
        {
            let vendor = std::arch::x86_64::__cpuid(0);
            let words = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
            if words.concat() == b"AuthenticAMD" {
                return Make::Amd;
            }
        }
        Make::Other
    })
}

/// Runs a kernel with the best instruction set of this machine.
pub fn run<T: Real, K: Kernel<T>>(kernel: K) -> K::Output {
    T::run_at(Level::best(), kernel)
}

/// A portable vector of plain arrays; the fallback and the oracle for the others.
#[derive(Debug, Clone, Copy)]
struct Portable<T: Real>(Line<T>);

macro_rules! portable {
    ($real:ty, $bits:ty, $shift:expr) => {
        impl Portable<$real> {
            #[inline(always)]
            fn zip(self, other: Self, f: impl Fn($real, $real) -> $real) -> Self {
                let mut out = self;
                for (out, other) in out.0.0.iter_mut().zip(other.0.0) {
                    *out = f(*out, other);
                }
                out
            }
        }

        impl Vector<$real> for Portable<$real> {
            const REGISTERS: usize = 2;
            #[inline(always)]
            fn splat(value: $real) -> Self {
                Portable(Line::splat(value))
            }
            #[inline(always)]
            fn load(line: &Line<$real>) -> Self {
                Portable(*line)
            }
            #[inline(always)]
            fn store(self, line: &mut Line<$real>) {
                *line = self.0;
            }
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.zip(other, |a, b| a + b)
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self.zip(other, |a, b| a - b)
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                self.zip(other, |a, b| a * b)
            }
            #[inline(always)]
            fn div(self, other: Self) -> Self {
                self.zip(other, |a, b| a / b)
            }
            #[inline(always)]
            fn mul_add(self, factor: Self, addend: Self) -> Self {
                let mut out = self;
                for ((out, factor), addend) in out.0.0.iter_mut().zip(factor.0.0).zip(addend.0.0) {
                    *out = out.mul_add(factor, addend);
                }
                out
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                self.zip(other, |a, b| if a > b { a } else { b })
            }
            #[inline(always)]
            fn if_less(self, than: Self, yes: Self, no: Self) -> Self {
                let mut out = no;
                for lane in 0..<$real as Real>::LANES {
                    if self.0.0[lane] < than.0.0[lane] {
                        out.0.0[lane] = yes.0.0[lane];
                    }
                }
                out
            }
            #[inline(always)]
            fn power_of_two(self) -> Self {
                let one: $bits = (1.0 as $real).to_bits();
                self.zip(self, |a, _| <$real>::from_bits((a.to_bits() << $shift).wrapping_add(one)))
            }
        }
    };
}

portable!(f64, u64, 52);
portable!(f32, u32, 23);

macro_rules! real {
    ($real:ty, $lanes:literal, $factors:literal, $avx2:ty, $avx512:ty, $exp:expr) => {
        impl Real for $real {
            const LANES: usize = $lanes;
            const FACTORS: usize = $factors;
            const ZEROS: [$real; $lanes] = [0.0; $lanes];
            const ONES: $real = (1u64 << (<$real>::MANTISSA_DIGITS - 1)) as $real;
            const EXP: Exp<$real> = $exp;
            type Lanes = [$real; $lanes];

            #[inline(always)]
            fn of(value: f64) -> Self {
                value as $real
            }
            #[inline(always)]
            fn wide(self) -> f64 {
                f64::from(self)
            }
            #[inline(always)]
            fn ones(self) -> u32 {
                // Truncates the bits above the number.
                (self.to_bits() - Self::ONES.to_bits()) as u32
            }
            #[inline(always)]
            fn put(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            #[inline(always)]
            fn take(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<$real>()];
                own.iter_mut().zip(bytes).for_each(|(own, byte)| *own = *byte);
                <$real>::from_le_bytes(own)
            }
            fn run_at<K: Kernel<Self>>(level: Level, kernel: K) -> K::Output {
                #[cfg(target_arch = "x86_64")]
                {
                    #[target_feature(enable = "avx2,fma")]
                    fn avx2<K: Kernel<$real>>(kernel: K) -> K::Output {
                        kernel.go::<$avx2>()
                    }
                    #[target_feature(enable = "avx512f,avx2,fma")]
                    fn avx512<K: Kernel<$real>>(kernel: K) -> K::Output {
                        kernel.go::<$avx512>()
                    }
                    let best = Level::best();
                    if level == Level::Avx512 && best == Level::Avx512 {
                        // SAFETY: `best` found AVX-512F, AVX2 and FMA on this machine.
                        return unsafe { avx512(kernel) };
                    }
                    if level == Level::Avx2 && best != Level::Portable {
                        // SAFETY: `best` found AVX2 and FMA on this machine.
                        return unsafe { avx2(kernel) };
                    }
                }
                let _ = level;
                kernel.go::<Portable<$real>>()
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
use super::x86::{Avx2F32, Avx2F64, Avx512F32, Avx512F64};

real!(
    f64,
    8,
    512,
    Avx2F64,
    Avx512F64,
    Exp {
        lowest: -708.0,
        log2_e: std::f64::consts::LOG2_E,
        rounder: 6_755_399_441_055_744.0, // 1.5 × 2⁵²
        ln_2: [-std::f64::consts::LN_2, -2.319_046_813_846_299_6e-17],
        terms: &[
            1.0 / 6_227_020_800.0,
            1.0 / 479_001_600.0,
            1.0 / 39_916_800.0,
            1.0 / 3_628_800.0,
            1.0 / 362_880.0,
            1.0 / 40_320.0,
            1.0 / 5_040.0,
            1.0 / 720.0,
            1.0 / 120.0,
            1.0 / 24.0,
            1.0 / 6.0,
            0.5,
            1.0,
        ],
    }
);
real!(
    f32,
    16,
    96,
    Avx2F32,
    Avx512F32,
    Exp {
        lowest: -87.0,
        log2_e: std::f32::consts::LOG2_E,
        rounder: 12_582_912.0, // 1.5 × 2²³
        ln_2: [-std::f32::consts::LN_2, 1.904_654_3e-9],
        terms: &[1.0 / 5_040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0],
    }
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::random::Random;

    struct ExpOf<'a, T: Real>(&'a [Line<T>]);

    impl<T: Real> Kernel<T> for ExpOf<'_, T> {
        type Output = Vec<Line<T>>;
        #[inline(always)]
        fn go<V: Vector<T>>(self) -> Vec<Line<T>> {
            let mut out = self.0.to_vec();
            for line in &mut out {
                exp::<T, V>(V::load(line)).store(line);
            }
            out
        }
    }

    fn lines<T: Real>(random: &mut Random, lowest: f64) -> Vec<Line<T>> {
        let mut out = vec![Line::splat(T::of(0.0)); 500];
        for (number, line) in out.iter_mut().enumerate() {
            let scale = if number % 2 == 0 { lowest } else { 1.0 / (1.0 + number as f64) };
            line.lanes_mut().fill_with(|| T::of(-(random.unit() * scale).abs()));
        }
        out
    }

    #[test]
    fn exp_is_accurate_to_the_last_places() {
        let mut random = Random::new(1);
        let wide = lines::<f64>(&mut random, 700.0);
        for (x, y) in wide.iter().zip(run(ExpOf(&wide))) {
            for (x, y) in x.lanes().iter().zip(y.lanes()) {
                assert!((y / x.exp() - 1.0).abs() < 5e-16, "exp({x}) = {y}, not {}", x.exp());
            }
        }
        let narrow = lines::<f32>(&mut random, 86.0);
        for (x, y) in narrow.iter().zip(run(ExpOf(&narrow))) {
            for (x, y) in x.lanes().iter().zip(y.lanes()) {
                let expected = f64::from(*x).exp();
                assert!((f64::from(*y) / expected - 1.0).abs() < 2.5e-7, "exp({x}) = {y}, not {expected}");
            }
        }
    }

    struct All<'a, T: Real>(&'a [Line<T>]);

    impl<T: Real> Kernel<T> for All<'_, T> {
        type Output = Vec<T>;
        #[inline(always)]
        fn go<V: Vector<T>>(self) -> Vec<T> {
            let mut out = Vec::new();
            for three in self.0.chunks_exact(3) {
                let [a, b, c] = [V::load(&three[0]), V::load(&three[1]), V::load(&three[2])];
                let all = [a.add(b), a.sub(b), a.mul(b), a.div(b), a.mul_add(b, c), a.max(b)];
                let chosen = [a.if_less(b, c, a), exp::<T, V>(a.mul(b).max(c).sub(V::splat(T::of(2.0))))];
                for vector in all.into_iter().chain(chosen) {
                    let mut line = Line::splat(T::of(0.0));
                    vector.store(&mut line);
                    out.extend_from_slice(line.lanes());
                }
            }
            out
        }
    }

    #[test]
    fn all_levels_are_bit_identical_to_portable() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let wide = lines::<f64>(&mut random, 1.0);
            let narrow = lines::<f32>(&mut random, 1.0);
            let bits_64 =
                |level| f64::run_at(level, All(&wide)).into_iter().map(f64::to_bits).collect::<Vec<_>>();
            let bits_32 =
                |level| f32::run_at(level, All(&narrow)).into_iter().map(f32::to_bits).collect::<Vec<_>>();
            for level in Level::available() {
                assert_eq!(bits_64(level), bits_64(Level::Portable), "{level:?}, seed {seed}");
                assert_eq!(bits_32(level), bits_32(Level::Portable), "{level:?}, seed {seed}");
            }
        }
    }
}
