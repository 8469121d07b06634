//! The units in which kernels access memory: a cache line of numbers, and four sums.

use super::pages::Plain;
use super::simd::Real;
use std::ops::{Index, IndexMut};

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
