//! Logistic regression over one partition: loss and gradient in one pass over the rows.
//!
//! Each group of blocks is read twice, the second time from the L1 cache: once for the products with the
//! coefficients, once for the gradient, with e^−|z| and one division per block in between. Logarithms of the
//! loss are taken of products: Σ ln(1 + t) = ln Π (1 + t), where no factor exceeds 2, so each lane needs one
//! logarithm per chunk of blocks. After each chunk, sums move from the kernel's precision to `f64`, so that
//! `f32` keeps its precision over millions of rows. The order of all sums depends only on the partition's rows.

use super::rows::Rows;
use super::simd::{self, Kernel, Line, Make, Real, Vector, exp, prefetch, run};

/// Loss and gradient summed (not averaged) over rows, without the penalty.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// Σ ln(1 + eᶻ) − y z.
    pub loss: f64,
    /// By coefficient, with the intercept last.
    pub gradient: Vec<f64>,
}

/// Evaluates loss and gradient at `coefficients`, of which the last is the intercept. The last column of `rows`
/// is the label, 0 or 1, so there are as many coefficients as columns.
pub fn evaluate<T: Real>(rows: &Rows<T>, coefficients: &[f64]) -> Evaluation {
    let coefficients = coefficients.iter().map(|value| T::of(*value)).collect();
    run(Evaluate { rows, coefficients })
}

struct Evaluate<'a, T: Real> {
    rows: &'a Rows<T>,
    coefficients: Vec<T>,
}

/// Sums of a chunk, by lane.
struct Sums<T: Real> {
    /// By coefficient, with the intercept last.
    gradient: Vec<Line<T>>,
    /// Σ max(z, 0) − y z.
    linear: Line<T>,
    /// Π (1 + e^−|z|).
    product: Line<T>,
}

impl<T: Real> Sums<T> {
    fn new(coefficients: usize) -> Self {
        let zero = Line::splat(T::of(0.0));
        Sums { gradient: vec![zero; coefficients], linear: zero, product: Line::splat(T::of(1.0)) }
    }

    /// Adds the sums to `total` and resets them.
    fn flush(&mut self, total: &mut Evaluation) {
        for (total, sum) in total.gradient.iter_mut().zip(&mut self.gradient) {
            *total += sum.sum();
            *sum = Line::splat(T::of(0.0));
        }
        let logarithms = self.product.lanes().iter().map(|product| product.wide().ln()).sum::<f64>();
        total.loss += self.linear.sum() + logarithms;
        self.linear = Line::splat(T::of(0.0));
        self.product = Line::splat(T::of(1.0));
    }
}

impl<T: Real> Kernel<T> for Evaluate<'_, T> {
    type Output = Evaluation;

    #[inline(always)]
    fn go<V: Vector<T>>(self) -> Evaluation {
        match simd::make() {
            Make::Amd => self.with::<V, 2, 4>(),
            Make::Other => self.with::<V, 4, 2>(),
        }
    }
}

impl<T: Real> Evaluate<'_, T> {
    /// Computes `GROUP` blocks together, for enough independent additions to keep the adders busy. Lines are
    /// prefetched `AHEAD` groups ahead, half of a group in each of its two readings, to keep the memory busy. Both
    /// parameters affect only speed, not results. On AMD (family 26), 4 and 2 take 1.3 to 1.45 times the memory's
    /// limit, and 2 and 4 take 1.02 to 1.08 (`cargo bench --bench kernels`); on Intel, 4 and 2 reach the limit.
    #[inline(always)]
    fn with<V: Vector<T>, const GROUP: usize, const AHEAD: usize>(self) -> Evaluation {
        let columns = self.rows.columns();
        let coefficients = &self.coefficients[..];
        let mut total = Evaluation { loss: 0.0, gradient: vec![0.0; coefficients.len()] };
        let mut sums = Sums::new(coefficients.len());
        let (whole, rest) = self.rows.split();
        let ones = Line::splat(T::of(1.0));
        for chunk in whole.chunks(T::FACTORS * columns) {
            let mut groups = chunk.chunks_exact(GROUP * columns);
            for group in &mut groups {
                accumulate::<T, V, GROUP, AHEAD>(group, coefficients, &ones, &mut sums);
            }
            for block in groups.remainder().chunks_exact(columns) {
                accumulate::<T, V, 1, AHEAD>(block, coefficients, &ones, &mut sums);
            }
            sums.flush(&mut total);
        }
        if !rest.is_empty() {
            accumulate::<T, V, 1, AHEAD>(rest, coefficients, &self.rows.tail(), &mut sums);
            sums.flush(&mut total);
        }
        total
    }
}

/// Adds `N` blocks to the sums, weighting each row.
#[inline(always)]
fn accumulate<T: Real, V: Vector<T>, const N: usize, const AHEAD: usize>(
    group: &[Line<T>],
    coefficients: &[T],
    weights: &Line<T>,
    sums: &mut Sums<T>,
) {
    let columns = coefficients.len();
    let blocks: [&[Line<T>]; N] = std::array::from_fn(|n| &group[n * columns..][..columns]);
    let features = columns - 1;
    let mut z = [V::splat(coefficients[features]); N];
    for (column, coefficient) in coefficients[..features].iter().enumerate() {
        let coefficient = V::splat(*coefficient);
        for n in 0..N {
            z[n] = V::load(&blocks[n][column]).mul_add(coefficient, z[n]);
            if n < N / 2 {
                prefetch(blocks[n], AHEAD * N * columns + column);
            }
        }
    }
    let (zero, one, weight) = (V::splat(T::of(0.0)), V::splat(T::of(1.0)), V::load(weights));
    let (mut linear, mut product) = (V::load(&sums.linear), V::load(&sums.product));
    let mut residual = [zero; N];
    for n in 0..N {
        let label = V::load(&blocks[n][features]);
        let t = exp::<T, V>(zero.sub(z[n]).if_less(z[n], zero.sub(z[n]), z[n]));
        let probability = z[n].if_less(zero, t, one).div(one.add(t));
        residual[n] = probability.sub(label).mul(weight);
        linear = z[n].max(zero).sub(label.mul(z[n])).mul_add(weight, linear);
        product = product.mul(one.add(t.mul(weight)));
    }
    linear.store(&mut sums.linear);
    product.store(&mut sums.product);
    let intercept = (0..N).fold(V::load(&sums.gradient[features]), |sum, n| sum.add(residual[n]));
    intercept.store(&mut sums.gradient[features]);
    for (column, line) in sums.gradient[..features].iter_mut().enumerate() {
        let mut sum = V::load(line);
        for n in 0..N {
            sum = V::load(&blocks[n][column]).mul_add(residual[n], sum);
            if n >= N / 2 {
                prefetch(blocks[n], AHEAD * N * columns + column);
            }
        }
        sum.store(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::random::Random;
    use crate::kernels::simd::Level;

    fn random_rows<T: Real>(random: &mut Random, rows: usize, columns: usize) -> (Rows<T>, Vec<f64>) {
        let mut table = Rows::zeroed(rows, columns).expect("memory for a test");
        for row in 0..rows {
            for column in 0..columns - 1 {
                table.set(row, column, T::of(random.normal()));
            }
            table.set(row, columns - 1, T::of(random.below(2) as f64));
        }
        (table, (0..columns).map(|_| random.normal()).collect())
    }

    /// Computes the definition in `f64`.
    fn naive<T: Real>(rows: &Rows<T>, coefficients: &[f64]) -> Evaluation {
        let features = rows.columns() - 1;
        let mut out = Evaluation { loss: 0.0, gradient: vec![0.0; features + 1] };
        for row in 0..rows.rows() {
            let x: Vec<f64> = (0..features).map(|column| rows.get(row, column).wide()).collect();
            let y = rows.get(row, features).wide();
            let z = coefficients[features] + x.iter().zip(coefficients).map(|(x, w)| x * w).sum::<f64>();
            let residual = 1.0 / (1.0 + (-z).exp()) - y;
            out.loss += z.max(0.0) + (-z.abs()).exp().ln_1p() - y * z;
            for (gradient, x) in out.gradient.iter_mut().zip(x.iter().chain([&1.0])) {
                *gradient += residual * x;
            }
        }
        out
    }

    fn check<T: Real>(tolerance: f64) {
        for seed in 0..60 {
            let mut random = Random::new(seed);
            let (rows, columns) = (random.below(3000) as usize, 1 + random.below(24) as usize);
            let (table, coefficients) = random_rows::<T>(&mut random, rows, columns);
            let (found, expected) = (evaluate(&table, &coefficients), naive(&table, &coefficients));
            let near = |a: f64, b: f64| (a - b).abs() <= tolerance * (1.0 + rows as f64);
            assert!(near(found.loss, expected.loss), "seed {seed}: {} not {}", found.loss, expected.loss);
            for (a, b) in found.gradient.iter().zip(&expected.gradient) {
                assert!(near(*a, *b), "seed {seed}: {a} not {b}");
            }
            for level in Level::available() {
                let coefficients = coefficients.iter().map(|value| T::of(*value)).collect();
                let at_level = T::run_at(level, Evaluate { rows: &table, coefficients });
                assert_eq!(at_level, found, "{level:?}, seed {seed}: not bit-identical");
            }
        }
    }

    #[test]
    fn evaluation_equals_the_definition_in_f64() {
        check::<f64>(1e-13);
    }

    #[test]
    fn evaluation_equals_the_definition_in_f32() {
        check::<f32>(1e-5);
    }

    #[test]
    fn grouping_and_prefetching_do_not_change_results() {
        struct Tuned<'a, const GROUP: usize, const AHEAD: usize>(Evaluate<'a, f64>);
        impl<const GROUP: usize, const AHEAD: usize> Kernel<f64> for Tuned<'_, GROUP, AHEAD> {
            type Output = Evaluation;
            #[inline(always)]
            fn go<V: Vector<f64>>(self) -> Evaluation {
                self.0.with::<V, GROUP, AHEAD>()
            }
        }
        let mut random = Random::new(11);
        for _ in 0..20 {
            let (rows, columns) = (random.below(9000) as usize, 1 + random.below(24) as usize);
            let (table, coefficients) = random_rows::<f64>(&mut random, rows, columns);
            let evaluate = || Evaluate { rows: &table, coefficients: coefficients.clone() };
            assert_eq!(run(Tuned::<2, 4>(evaluate())), run(Tuned::<4, 2>(evaluate())), "{rows} rows");
        }
    }

    #[test]
    fn extreme_inputs_do_not_overflow() {
        for z in [-1e4, -800.0, 800.0, 1e4] {
            let mut table = Rows::<f64>::zeroed(9, 2).expect("memory for a test");
            for row in 0..9 {
                table.set(row, 0, z);
                table.set(row, 1, 1.0);
            }
            let found = evaluate(&table, &[1.0, 0.0]);
            let expected = if z < 0.0 { -9.0 * z } else { 0.0 };
            assert!((found.loss - expected).abs() < 1e-9, "{z}: {}", found.loss);
            assert!(found.gradient.iter().all(|value| value.is_finite()));
        }
    }
}
