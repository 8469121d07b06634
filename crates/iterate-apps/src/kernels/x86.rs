//! [`Vector`] with AVX2 and FMA (two registers), and with AVX-512F (one register).
//!
//! Every intrinsic here needs its instruction set, which [`super::simd::run`] guarantees: the types are
//! reachable only through it, inside functions compiled for these instructions.

use super::vector::{Four, Line, Vector};
use std::arch::x86_64::*;

/// 8 `f64` in two registers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Avx2F64(__m256d, __m256d);
/// 16 `f32` in two registers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Avx2F32(__m256, __m256);
/// 8 `f64` in one register.
#[derive(Debug, Clone, Copy)]
pub(super) struct Avx512F64(__m512d);
/// 16 `f32` in one register.
#[derive(Debug, Clone, Copy)]
pub(super) struct Avx512F32(__m512);

macro_rules! avx2 {
    ($name:ident, $real:ty, $half:literal, $set:ident, $load:ident, $store:ident, $add:ident, $sub:ident, $mul:ident,
     $div:ident, $fma:ident, $max:ident, $less:ident, $blend:ident, $bits:ident, $real_of:ident, $shift:ident,
     $by:literal, $add_bits:ident, $add_rows:ident) => {
        impl $name {
            #[inline(always)]
            fn zip<R>(self, other: Self, f: impl Fn(R, R) -> R) -> Self
            where
                Self: Halves<R>,
            {
                let ((a, b), (c, d)) = (self.halves(), other.halves());
                Self::of(f(a, c), f(b, d))
            }
        }

        impl Vector<$real> for $name {
            const REGISTERS: usize = 2;
            #[inline(always)]
            fn splat(value: $real) -> Self {
                // SAFETY: `run` guarantees the instruction set (see the module).
                unsafe { $name($set(value), $set(value)) }
            }
            #[inline(always)]
            fn load(line: &Line<$real>) -> Self {
                let start = line.lanes().as_ptr();
                // SAFETY: a line is twice `$half` values, aligned to 64 bytes.
                unsafe { $name($load(start), $load(start.add($half))) }
            }
            #[inline(always)]
            fn store(self, line: &mut Line<$real>) {
                let start = line.lanes_mut().as_mut_ptr();
                // SAFETY: as in `load`, and borrowed exclusively.
                unsafe {
                    $store(start, self.0);
                    $store(start.add($half), self.1);
                }
            }
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                // SAFETY: `run` guarantees the instruction set (see the module); so below.
                self.zip(other, |a, b| unsafe { $add(a, b) })
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                // SAFETY: as above.
                self.zip(other, |a, b| unsafe { $sub(a, b) })
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                // SAFETY: as above.
                self.zip(other, |a, b| unsafe { $mul(a, b) })
            }
            #[inline(always)]
            fn div(self, other: Self) -> Self {
                // SAFETY: as above.
                self.zip(other, |a, b| unsafe { $div(a, b) })
            }
            #[inline(always)]
            fn mul_add(self, factor: Self, addend: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name($fma(self.0, factor.0, addend.0), $fma(self.1, factor.1, addend.1)) }
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                // SAFETY: as above.
                self.zip(other, |a, b| unsafe { $max(a, b) })
            }
            #[inline(always)]
            fn if_less(self, than: Self, yes: Self, no: Self) -> Self {
                // SAFETY: as above.
                unsafe {
                    $name(
                        $blend(no.0, yes.0, $less::<_CMP_LT_OQ>(self.0, than.0)),
                        $blend(no.1, yes.1, $less::<_CMP_LT_OQ>(self.1, than.1)),
                    )
                }
            }
            #[inline(always)]
            fn power_of_two(self) -> Self {
                // SAFETY: as above.
                self.zip(self, |a, _| unsafe {
                    $real_of($add_bits($shift::<$by>($bits(a)), $bits($set(1.0))))
                })
            }
            #[inline(always)]
            fn add_rows(columns: [&Line<$real>; 4], at: &[u32; 16], sums: &mut [Four]) {
                $add_rows(columns, at, sums);
            }
        }
    };
}

/// Conversions between a vector and its two registers.
trait Halves<R> {
    fn of(low: R, high: R) -> Self;
    fn halves(self) -> (R, R);
}

macro_rules! halves {
    ($name:ident, $register:ty) => {
        impl Halves<$register> for $name {
            #[inline(always)]
            fn of(low: $register, high: $register) -> Self {
                $name(low, high)
            }
            #[inline(always)]
            fn halves(self) -> ($register, $register) {
                (self.0, self.1)
            }
        }
    };
}

halves!(Avx2F64, __m256d);
halves!(Avx2F32, __m256);

avx2!(
    Avx2F64,
    f64,
    4,
    _mm256_set1_pd,
    _mm256_load_pd,
    _mm256_store_pd,
    _mm256_add_pd,
    _mm256_sub_pd,
    _mm256_mul_pd,
    _mm256_div_pd,
    _mm256_fmadd_pd,
    _mm256_max_pd,
    _mm256_cmp_pd,
    _mm256_blendv_pd,
    _mm256_castpd_si256,
    _mm256_castsi256_pd,
    _mm256_slli_epi64,
    52,
    _mm256_add_epi64,
    add_rows_f64
);
avx2!(
    Avx2F32,
    f32,
    8,
    _mm256_set1_ps,
    _mm256_load_ps,
    _mm256_store_ps,
    _mm256_add_ps,
    _mm256_sub_ps,
    _mm256_mul_ps,
    _mm256_div_ps,
    _mm256_fmadd_ps,
    _mm256_max_ps,
    _mm256_cmp_ps,
    _mm256_blendv_ps,
    _mm256_castps_si256,
    _mm256_castsi256_ps,
    _mm256_slli_epi32,
    23,
    _mm256_add_epi32,
    add_rows_f32
);

macro_rules! avx512 {
    ($name:ident, $real:ty, $set:ident, $load:ident, $store:ident, $add:ident, $sub:ident, $mul:ident, $div:ident,
     $fma:ident, $max:ident, $less:ident, $blend:ident, $bits:ident, $real_of:ident, $shift:ident, $by:literal,
     $add_bits:ident, $add_rows:ident) => {
        impl Vector<$real> for $name {
            const REGISTERS: usize = 1;
            #[inline(always)]
            fn splat(value: $real) -> Self {
                // SAFETY: `run` guarantees the instruction set (see the module); so below.
                unsafe { $name($set(value)) }
            }
            #[inline(always)]
            fn load(line: &Line<$real>) -> Self {
                // SAFETY: a line is one register's width, aligned to it.
                unsafe { $name($load(line.lanes().as_ptr())) }
            }
            #[inline(always)]
            fn store(self, line: &mut Line<$real>) {
                // SAFETY: as in `load`, and borrowed exclusively.
                unsafe { $store(line.lanes_mut().as_mut_ptr(), self.0) }
            }
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                // SAFETY: `run` guarantees the instruction set (see the module); so below.
                unsafe { $name($add(self.0, other.0)) }
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name($sub(self.0, other.0)) }
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name($mul(self.0, other.0)) }
            }
            #[inline(always)]
            fn div(self, other: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name($div(self.0, other.0)) }
            }
            #[inline(always)]
            fn mul_add(self, factor: Self, addend: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name($fma(self.0, factor.0, addend.0)) }
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name($max(self.0, other.0)) }
            }
            #[inline(always)]
            fn if_less(self, than: Self, yes: Self, no: Self) -> Self {
                // SAFETY: as above.
                unsafe { $name($blend($less::<_CMP_LT_OQ>(self.0, than.0), no.0, yes.0)) }
            }
            #[inline(always)]
            fn power_of_two(self) -> Self {
                // SAFETY: as above.
                unsafe { $name($real_of($add_bits($shift::<$by>($bits(self.0)), $bits($set(1.0))))) }
            }
            #[inline(always)]
            fn add_rows(columns: [&Line<$real>; 4], at: &[u32; 16], sums: &mut [Four]) {
                $add_rows(columns, at, sums);
            }
        }
    };
}

avx512!(
    Avx512F64,
    f64,
    _mm512_set1_pd,
    _mm512_load_pd,
    _mm512_store_pd,
    _mm512_add_pd,
    _mm512_sub_pd,
    _mm512_mul_pd,
    _mm512_div_pd,
    _mm512_fmadd_pd,
    _mm512_max_pd,
    _mm512_cmp_pd_mask,
    _mm512_mask_blend_pd,
    _mm512_castpd_si512,
    _mm512_castsi512_pd,
    _mm512_slli_epi64,
    52,
    _mm512_add_epi64,
    add_rows_f64
);
avx512!(
    Avx512F32,
    f32,
    _mm512_set1_ps,
    _mm512_load_ps,
    _mm512_store_ps,
    _mm512_add_ps,
    _mm512_sub_ps,
    _mm512_mul_ps,
    _mm512_div_ps,
    _mm512_fmadd_ps,
    _mm512_max_ps,
    _mm512_cmp_ps_mask,
    _mm512_mask_blend_ps,
    _mm512_castps_si512,
    _mm512_castsi512_ps,
    _mm512_slli_epi32,
    23,
    _mm512_add_epi32,
    add_rows_f32
);

/// Adds a row to its sums.
#[inline(always)]
fn add_row(row: __m256d, at: u32, sums: &mut [Four]) {
    let sum = sums[at as usize].0.as_mut_ptr();
    // SAFETY: `run` guarantees the instruction set (see the module); four values, aligned to 32 bytes.
    unsafe { _mm256_store_pd(sum, _mm256_add_pd(_mm256_load_pd(sum), row)) };
}

/// [`Vector::add_rows`]: two rows of four columns at a time. Loading halves of registers replaces shuffles, of
/// which fewer can run per cycle.
#[inline(always)]
fn add_rows_f64(columns: [&Line<f64>; 4], at: &[u32; 16], sums: &mut [Four]) {
    let starts = columns.map(|column| column.lanes().as_ptr());
    for lane in [0, 2, 4, 6] {
        // SAFETY: `run` guarantees the instruction set (see the module); a line is 8 values, aligned to 64 bytes.
        let (first, second) = unsafe {
            let two = |column: usize| _mm_load_pd(starts[column].add(lane));
            let even = _mm256_insertf128_pd::<1>(_mm256_castpd128_pd256(two(0)), two(2));
            let odd = _mm256_insertf128_pd::<1>(_mm256_castpd128_pd256(two(1)), two(3));
            (_mm256_unpacklo_pd(even, odd), _mm256_unpackhi_pd(even, odd))
        };
        add_row(first, at[lane], sums);
        add_row(second, at[lane + 1], sums);
    }
}

/// [`Vector::add_rows`]: four rows of four columns at a time, widened on loading.
#[inline(always)]
fn add_rows_f32(columns: [&Line<f32>; 4], at: &[u32; 16], sums: &mut [Four]) {
    let starts = columns.map(|column| column.lanes().as_ptr());
    for lane in [0, 4, 8, 12] {
        // SAFETY: `run` guarantees the instruction set (see the module); a line is 16 values, aligned to 64 bytes.
        unsafe {
            let four = |column: usize| _mm256_cvtps_pd(_mm_load_ps(starts[column].add(lane)));
            let (a, b, c, d) = (four(0), four(1), four(2), four(3));
            let (ab_even, ab_odd) = (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
            let (cd_even, cd_odd) = (_mm256_unpacklo_pd(c, d), _mm256_unpackhi_pd(c, d));
            add_row(_mm256_permute2f128_pd::<0x20>(ab_even, cd_even), at[lane], sums);
            add_row(_mm256_permute2f128_pd::<0x20>(ab_odd, cd_odd), at[lane + 1], sums);
            add_row(_mm256_permute2f128_pd::<0x31>(ab_even, cd_even), at[lane + 2], sums);
            add_row(_mm256_permute2f128_pd::<0x31>(ab_odd, cd_odd), at[lane + 3], sums);
        }
    }
}
