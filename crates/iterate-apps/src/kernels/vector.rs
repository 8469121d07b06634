//! The types over which kernels are written: numbers, cache lines of them, and vectors in registers.

use super::pages::Plain;
use std::ops::{Index, IndexMut};

/// The number type of a kernel, either `f64` or `f32`.
pub trait Real: Plain + PartialOrd + Default + std::fmt::Debug + std::fmt::Display {
    /// Number of values in a [`Line`].
    const LANES: usize;
    /// Number of factors of at most 2 whose product is far from overflow; a multiple of 8.
    const FACTORS: usize;
    /// A line of zeros.
    const ZEROS: Self::Lanes;
    /// The value from which the unit in the last place is 1: adding n puts n into the lowest bits.
    const ONES: Self;
    /// Constants of [`exp`](super::simd::exp).
    const EXP: Exp<Self>;
    /// The array type of a line.
    type Lanes: Copy + AsRef<[Self]> + AsMut<[Self]> + std::fmt::Debug + Send + Sync;

    /// Rounds to the nearest value of this precision.
    fn of(value: f64) -> Self;
    /// Converts to `f64`.
    fn wide(self) -> f64;
    /// Returns n for the value [`Real::ONES`] + n.
    fn ones(self) -> u32;
    /// Appends the value's bytes in little-endian order.
    fn put(self, out: &mut Vec<u8>);
    /// Reads the bytes written by [`Real::put`]; missing bytes count as 0.
    fn take(bytes: &[u8]) -> Self;
    /// Runs a kernel compiled for `level`, or the portable one if the machine lacks that level.
    fn run_at<K: Kernel<Self>>(level: Level, kernel: K) -> K::Output;
}

/// Constants of [`exp`](super::simd::exp) for a precision.
#[derive(Debug, Clone, Copy)]
pub struct Exp<T: 'static> {
    /// Smallest argument whose result is a normal number.
    pub(super) lowest: T,
    pub(super) log2_e: T,
    /// 1.5 times the power of two whose unit in the last place is 1: adding it rounds to an integer.
    pub(super) rounder: T,
    /// −ln 2 as a sum of two numbers.
    pub(super) ln_2: [T; 2],
    /// Taylor coefficients from the highest down to 1/1!, exact to the last bit for |r| ≤ ln 2 ÷ 2.
    pub(super) terms: &'static [T],
}

/// A kernel over vectors of any type. Mark `go` with `#[inline(always)]`, so that it is compiled for the
/// instruction set of its caller.
pub trait Kernel<T: Real> {
    /// Result of the kernel.
    type Output;
    /// Runs the kernel.
    fn go<V: Vector<T>>(self) -> Self::Output;
}

/// A line of numbers in registers.
pub trait Vector<T: Real>: Copy {
    /// Number of registers per vector; a machine has 16 of half width and 32 of full width.
    const REGISTERS: usize;
    /// Creates a vector with the same value in all lanes.
    fn splat(value: T) -> Self;
    /// Loads from memory.
    fn load(line: &Line<T>) -> Self;
    /// Stores to memory.
    fn store(self, line: &mut Line<T>);
    /// Returns `self + other`.
    fn add(self, other: Self) -> Self;
    /// Returns `self − other`.
    fn sub(self, other: Self) -> Self;
    /// Returns `self × other`.
    fn mul(self, other: Self) -> Self;
    /// Returns `self ÷ other`.
    fn div(self, other: Self) -> Self;
    /// Returns `self × factor + addend`, rounded once.
    fn mul_add(self, factor: Self, addend: Self) -> Self;
    /// Returns the maximum, or `other` if either is NaN.
    fn max(self, other: Self) -> Self;
    /// Selects lanes of `yes` where `self < than`, else of `no`.
    fn if_less(self, than: Self, yes: Self, no: Self) -> Self;
    /// Returns 2ⁿ for `self` = [`Exp::rounder`] + n, which has n in its lowest bits.
    fn power_of_two(self) -> Self;
    /// Adds rows of four columns to sums: row `l` is lane `l` of the four lines and is added to `sums[at[l]]`. Rows
    /// with the same target are added in order.
    fn add_rows(columns: [&Line<T>; 4], at: &[u32; 16], sums: &mut [Four]) {
        for (lane, at) in at.iter().enumerate().take(T::LANES) {
            let sums = &mut sums[*at as usize].0;
            for (sum, column) in sums.iter_mut().zip(columns) {
                *sum += column[lane].wide();
            }
        }
    }
}

/// The instruction sets that kernels are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Available on every machine.
    Portable,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512F.
    Avx512,
}

/// The numbers of one cache line.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub struct Line<T: Real>(pub(super) T::Lanes);

// SAFETY: 64 bytes of numbers without padding, and every bit pattern is valid: `Real` is only `f64` and `f32`.
unsafe impl<T: Real> Plain for Line<T> {}

impl<T: Real> Line<T> {
    /// Creates a line with the same value in all lanes.
    pub fn splat(value: T) -> Self {
        let mut line = Line(T::ZEROS);
        line.lanes_mut().fill(value);
        line
    }

    /// Returns the lanes.
    pub fn lanes(&self) -> &[T] {
        self.0.as_ref()
    }

    /// Returns the lanes, mutably.
    pub fn lanes_mut(&mut self) -> &mut [T] {
        self.0.as_mut()
    }

    /// Returns the sum of the lanes in `f64`, in a fixed order: halves, quarters, eighths.
    pub fn sum(&self) -> f64 {
        let mut sums = [0.0; 16];
        for (sum, lane) in sums.iter_mut().zip(self.lanes()) {
            *sum = lane.wide();
        }
        let mut width = T::LANES / 2;
        while width > 0 {
            for lane in 0..width {
                sums[lane] += sums[lane + width];
            }
            width /= 2;
        }
        sums[0]
    }
}

/// Four sums that are updated together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(C, align(32))]
pub struct Four(pub [f64; 4]);

impl<T: Real> Index<usize> for Line<T> {
    type Output = T;
    fn index(&self, lane: usize) -> &T {
        &self.lanes()[lane]
    }
}

impl<T: Real> IndexMut<usize> for Line<T> {
    fn index_mut(&mut self, lane: usize) -> &mut T {
        &mut self.lanes_mut()[lane]
    }
}
