//! k-means over one partition: the nearest center of each row, and the sums for the next centers.
//!
//! The nearest center minimises ½‖c‖² − x·c, which takes one multiply-add per value and center. The difference
//! loses precision if rows are far from zero, so callers shift the data near zero first. Reported distances
//! ([`inertia`]) are computed by their definition.
//!
//! Adding rows to the sums value by value would take half of a pass, because a row's values are in as many
//! lines. Instead, four columns at a time are transposed into rows in registers ([`Vector::add_rows`]), and a
//! row is added to its center's sums four values at once. Each sum still adds its rows one by one, in order.
//!
//! k-means++ draws a row with probability proportional to D², its squared distance to the nearest center so
//! far (Arthur and Vassilvitskii, SODA 2007). Each row draws an exponential random number with rate D², derived
//! from its row number and the seed, and the smallest wins. This takes one pass without summing first, and
//! chooses the same row for any partitioning.

use super::random::{mix, unit};
use super::rows::Rows;
use super::simd::{Four, Kernel, Line, Real, Vector, prefetch, run};

/// Number of centers whose products with a block are computed together: their sums stay in registers.
const CENTERS_PER_GROUP: usize = 5;

/// Maximum number of centers: their indexes must be exact in `f32`.
pub const MAX_CENTERS: usize = 1 << 23;

/// The layout of centers for kernels.
#[derive(Debug, Clone)]
pub struct Centers<T: Real> {
    columns: usize,
    /// Negated coordinates, by group of [`CENTERS_PER_GROUP`] centers, column, and center within the group.
    negated: Vec<[T; CENTERS_PER_GROUP]>,
    /// Half of the squared norms, by group and center; infinite for the padding of the last group.
    half_norms: Vec<[T; CENTERS_PER_GROUP]>,
    /// Coordinates as given, center by center.
    values: Vec<f64>,
}

impl<T: Real> Centers<T> {
    /// Creates centers from `values`: center by center, with `columns` values each.
    pub fn new(values: &[f64], columns: usize) -> Self {
        let groups = (values.len() / columns.max(1)).div_ceil(CENTERS_PER_GROUP);
        let mut negated = vec![[T::of(0.0); CENTERS_PER_GROUP]; groups * columns];
        let mut half_norms = vec![[T::of(f64::INFINITY); CENTERS_PER_GROUP]; groups];
        for (number, center) in values.chunks_exact(columns.max(1)).enumerate() {
            let (group, at) = (number / CENTERS_PER_GROUP, number % CENTERS_PER_GROUP);
            for (column, value) in center.iter().enumerate() {
                negated[group * columns + column][at] = T::of(-value);
            }
            let norm: f64 = center.iter().map(|value| T::of(*value).wide().powi(2)).sum();
            half_norms[group][at] = T::of(norm / 2.0);
        }
        Centers { columns, negated, half_norms, values: values.to_vec() }
    }

    /// Returns the number of centers.
    pub fn len(&self) -> usize {
        self.values.len() / self.columns.max(1)
    }

    /// Returns whether there are no centers.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

/// The result of one pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Totals {
    /// Sums of each center's rows, center by center.
    pub sums: Vec<f64>,
    /// Number of rows of each center.
    pub counts: Vec<u64>,
    /// Σ ½‖c‖² − x·c over all rows and their nearest centers. Together with Σ ‖x‖² ([`squares`]) it gives the inertia.
    pub scores: f64,
}

/// Finds each row's nearest center (the first among equals), stores its index in `assignments` if given (one per
/// row), and sums rows by center. There must be at least one center and at most [`MAX_CENTERS`].
pub fn assign<T: Real>(rows: &Rows<T>, centers: &Centers<T>, assignments: Option<&mut [u32]>) -> Totals {
    run(Assign { rows, centers, assignments })
}

/// Returns Σ ‖x‖² over all rows.
pub fn squares<T: Real>(rows: &Rows<T>) -> f64 {
    let mut sums = [0.0; 16];
    for line in rows.lines() {
        for (sum, x) in sums.iter_mut().zip(line.lanes()) {
            *sum += x.wide() * x.wide();
        }
    }
    sums.iter().sum()
}

struct Assign<'a, T: Real> {
    rows: &'a Rows<T>,
    centers: &'a Centers<T>,
    assignments: Option<&'a mut [u32]>,
}

/// Accumulators of [`Totals`].
struct Sums {
    /// Sums by group of four columns and center. An extra center receives the padding of the last block.
    sums: Vec<Four>,
    /// Counts by center, with an extra one as above.
    counts: Vec<u64>,
    /// Scores by lane.
    scores: [f64; 16],
}

impl Sums {
    fn new(centers: usize, columns: usize) -> Self {
        let sums = vec![Four::default(); columns.div_ceil(4) * (centers + 1)];
        Sums { sums, counts: vec![0; centers + 1], scores: [0.0; 16] }
    }

    fn into_totals(mut self, columns: usize) -> Totals {
        let stride = self.counts.len();
        self.counts.pop();
        let value = |center: usize, column: usize| self.sums[column / 4 * stride + center].0[column % 4];
        let values = (0..stride - 1).flat_map(|center| (0..columns).map(move |column| (center, column)));
        Totals {
            sums: values.map(|(center, column)| value(center, column)).collect(),
            counts: self.counts,
            scores: self.scores.iter().sum(),
        }
    }
}

impl<T: Real> Kernel<T> for Assign<'_, T> {
    type Output = Totals;

    #[inline(always)]
    fn go<V: Vector<T>>(self) -> Totals {
        // As many blocks as fit in registers: 16 of half a vector, or 32 of a whole one.
        if V::REGISTERS == 1 { self.with::<V, 4>() } else { self.with::<V, 1>() }
    }
}

impl<T: Real> Assign<'_, T> {
    #[inline(always)]
    fn with<V: Vector<T>, const N: usize>(self) -> Totals {
        let Assign { rows, centers, assignments } = self;
        let columns = rows.columns();
        let mut sums = Sums::new(centers.len(), columns);
        let (whole, rest) = rows.split();
        let mut places = AssignmentSink { assignments, scratch: [0; MAX_ROWS] };
        let mut groups = whole.chunks_exact(N * columns);
        for group in &mut groups {
            assign_blocks::<T, V, N>(group, centers, places.next(N * T::LANES), &mut sums);
        }
        for block in groups.remainder().chunks_exact(columns) {
            assign_blocks::<T, V, 1>(block, centers, places.next(T::LANES), &mut sums);
        }
        if !rest.is_empty() {
            let left = rows.rows() % T::LANES;
            assign_blocks::<T, V, 1>(rest, centers, places.next(left), &mut sums);
        }
        sums.into_totals(columns)
    }
}

/// Maximum number of rows in a group of blocks.
const MAX_ROWS: usize = 64;

/// The destination of center indexes, group by group; discards them if none is given.
struct AssignmentSink<'a> {
    assignments: Option<&'a mut [u32]>,
    scratch: [u32; MAX_ROWS],
}

impl AssignmentSink<'_> {
    /// Returns the destination for the next rows.
    #[inline(always)]
    fn next(&mut self, rows: usize) -> &mut [u32] {
        match self.assignments.take() {
            Some(all) => {
                let (next, rest) = all.split_at_mut(rows);
                self.assignments = Some(rest);
                next
            }
            None => &mut self.scratch[..rows],
        }
    }
}

/// Assigns the rows of `N` blocks, as many as `places` holds, and adds them to the sums.
#[inline(always)]
fn assign_blocks<T: Real, V: Vector<T>, const N: usize>(
    group: &[Line<T>],
    centers: &Centers<T>,
    places: &mut [u32],
    sums: &mut Sums,
) {
    let columns = centers.columns;
    let blocks: [&[Line<T>]; N] = std::array::from_fn(|n| &group[n * columns..][..columns]);
    let nearest = nearest::<T, V, N>(&blocks, centers);
    for (n, places) in places.chunks_mut(T::LANES).enumerate() {
        let (best, which) = nearest[n];
        let (mut scores, mut numbers) = (Line::splat(T::of(0.0)), Line::splat(T::of(0.0)));
        best.store(&mut scores);
        which.store(&mut numbers);
        let mut at = [centers.len() as u32; 16];
        if places.len() == T::LANES {
            for (at, number) in at.iter_mut().zip(numbers.lanes()) {
                *at = number.ones();
            }
            for (sum, score) in sums.scores.iter_mut().zip(scores.lanes()) {
                *sum += score.wide();
            }
        } else {
            for (lane, at) in at.iter_mut().enumerate().take(places.len()) {
                *at = numbers[lane].ones();
                sums.scores[lane] += scores[lane].wide();
            }
        }
        places.copy_from_slice(&at[..places.len()]);
        for center in &at[..T::LANES] {
            sums.counts[*center as usize] += 1;
        }
        let left = N.saturating_sub(centers.half_norms.len());
        let next = (2 * N - left) * columns + n * left * columns / N;
        let upcoming = Prefetch { lines: group, next, each: 4 * left / N };
        add_block::<T, V>(blocks[n], upcoming, &at, centers.len() + 1, &mut sums.sums);
    }
}

/// Lines to prefetch while a block is added: those of the next blocks that [`nearest`] did not prefetch.
struct Prefetch<'a, T: Real> {
    /// The lines, and the index of the first one to prefetch.
    lines: &'a [Line<T>],
    next: usize,
    /// Number of lines to prefetch per four lines added.
    each: usize,
}

/// Adds each row of a block to the sums of the center `at` its lane, with `stride` centers per group of columns.
#[inline(always)]
fn add_block<T: Real, V: Vector<T>>(
    block: &[Line<T>],
    upcoming: Prefetch<'_, T>,
    at: &[u32; 16],
    stride: usize,
    sums: &mut [Four],
) {
    let mut groups = block.chunks_exact(4);
    let mut places = sums.chunks_exact_mut(stride);
    let mut next = upcoming.next;
    for (group, sums) in (&mut groups).zip(&mut places) {
        for _ in 0..upcoming.each {
            prefetch(upcoming.lines, next);
            next += 1;
        }
        V::add_rows([&group[0], &group[1], &group[2], &group[3]], at, sums);
    }
    if let (rest @ [first, ..], Some(sums)) = (groups.remainder(), places.next()) {
        let zero = Line::splat(T::of(0.0));
        V::add_rows([first, rest.get(1).unwrap_or(&zero), rest.get(2).unwrap_or(&zero), &zero], at, sums);
    }
}

/// Returns the smallest ½‖c‖² − x·c of each row, and its center's index encoded as [`Real::ONES`] + index.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "indices of small arrays that stay in registers")]
fn nearest<T: Real, V: Vector<T>, const N: usize>(
    blocks: &[&[Line<T>]; N],
    centers: &Centers<T>,
) -> [(V, V); N] {
    let columns = centers.columns;
    let mut found = [(V::splat(T::of(f64::INFINITY)), V::splat(T::ONES)); N];
    for (group, half_norms) in centers.half_norms.iter().enumerate() {
        let negated = &centers.negated[group * columns..][..columns];
        let mut scores = [half_norms.map(V::splat); N];
        for (column, values) in negated.iter().enumerate() {
            let x: [V; N] = std::array::from_fn(|n| V::load(&blocks[n][column]));
            for c in 0..CENTERS_PER_GROUP {
                let value = V::splat(values[c]);
                for n in 0..N {
                    scores[n][c] = x[n].mul_add(value, scores[n][c]);
                }
            }
            // Prefetch one block per group of centers; the rest is prefetched while rows are added, to keep the
            // memory busy.
            if let Some(&block) = blocks.get(group) {
                prefetch(block, N * columns + column);
            }
        }
        for c in 0..CENTERS_PER_GROUP {
            let number = V::splat(T::of(T::ONES.wide() + (group * CENTERS_PER_GROUP + c) as f64));
            for n in 0..N {
                let ((best, which), score) = (found[n], scores[n][c]);
                found[n] = (score.if_less(best, score, best), score.if_less(best, number, which));
            }
        }
    }
    found
}

/// Returns the sum of squared distances between rows and their assigned centers, by definition.
pub fn inertia<T: Real>(rows: &Rows<T>, centers: &Centers<T>, assignments: &[u32]) -> f64 {
    let columns = rows.columns();
    let mut total = 0.0;
    for (lines, places) in rows.lines().chunks_exact(columns.max(1)).zip(assignments.chunks(T::LANES)) {
        for (lane, center) in places.iter().enumerate() {
            let center = &centers.values[*center as usize * columns..][..columns];
            total += lines.iter().zip(center).map(|(line, c)| (line[lane].wide() - c).powi(2)).sum::<f64>();
        }
    }
    total
}

/// A candidate row for the next center of k-means++. The candidate with the smallest key wins.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Key; infinite if all rows are already centers.
    pub key: f64,
    /// The row's values.
    pub values: Vec<f64>,
}

/// Draws this partition's candidate. `closest` holds D² by row and is updated with the center chosen last; before
/// the first center (`last` is `None`) all rows are equally likely. `first_row` is the index of the partition's
/// first row in the whole data.
pub fn draw<T: Real>(
    rows: &Rows<T>,
    last: Option<&[f64]>,
    closest: &mut [f64],
    first_row: u64,
    seed: u64,
) -> Candidate {
    let columns = rows.columns();
    let mut best = Candidate { key: f64::INFINITY, values: Vec::new() };
    let mut best_row = None;
    let lines = rows.lines().chunks_exact(columns.max(1));
    for (block, (lines, closest)) in lines.zip(closest.chunks_mut(T::LANES)).enumerate() {
        // Size of the longest line.
        let mut squared = [1.0; 16];
        if let Some(center) = last {
            squared = [0.0; 16];
            for (line, c) in lines.iter().zip(center) {
                for (squared, x) in squared.iter_mut().zip(line.lanes()) {
                    *squared += (x.wide() - c).powi(2);
                }
            }
        }
        for (lane, (closest, squared)) in closest.iter_mut().zip(squared).enumerate() {
            *closest = closest.min(squared);
            let row = (block * T::LANES + lane) as u64;
            let uniform = unit(mix(seed ^ mix(first_row + row)));
            // −ln u is at least 1 − u, so most rows need no logarithm.
            if 1.0 - uniform < best.key * *closest {
                let key = -uniform.ln() / *closest;
                if key < best.key {
                    best.key = key;
                    best_row = Some(row as usize);
                }
            }
        }
    }
    if let Some(row) = best_row {
        best.values = (0..columns).map(|column| rows.get(row, column).wide()).collect();
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::random::Random;
    use crate::kernels::simd::Level;

    fn table<T: Real>(random: &mut Random, rows: usize, columns: usize) -> Rows<T> {
        let mut table = Rows::zeroed(rows, columns).expect("memory for a test");
        for row in 0..rows {
            for column in 0..columns {
                table.set(row, column, T::of(random.normal()));
            }
        }
        table
    }

    fn distance<T: Real>(rows: &Rows<T>, row: usize, center: &[f64]) -> f64 {
        center.iter().enumerate().map(|(column, c)| (rows.get(row, column).wide() - c).powi(2)).sum()
    }

    fn check<T: Real>(tolerance: f64) {
        for seed in 0..60 {
            let mut random = Random::new(seed);
            let (n, d, k) =
                (random.below(800) as usize, 1 + random.below(24) as usize, 1 + random.below(17) as usize);
            let rows = table::<T>(&mut random, n, d);
            let values: Vec<f64> = (0..k * d).map(|_| T::of(random.normal()).wide()).collect();
            let centers = Centers::<T>::new(&values, d);
            let mut assignments = vec![0; n];
            let totals = assign(&rows, &centers, Some(&mut assignments));
            assert_eq!(assign(&rows, &centers, None), totals, "seed {seed}");
            let (mut sums, mut counts, mut expected) = (vec![0.0; k * d], vec![0; k], 0.0);
            for (row, assigned) in assignments.iter().enumerate() {
                let assigned = *assigned as usize;
                let found = distance(&rows, row, &values[assigned * d..][..d]);
                let smallest =
                    values.chunks(d).map(|c| distance(&rows, row, c)).fold(f64::INFINITY, f64::min);
                assert!(
                    found <= smallest + tolerance * (1.0 + smallest),
                    "seed {seed}, row {row}: {found}, not {smallest}"
                );
                expected += found;
                counts[assigned] += 1;
                for column in 0..d {
                    sums[assigned * d + column] += rows.get(row, column).wide();
                }
            }
            assert_eq!((&totals.sums, &totals.counts), (&sums, &counts), "seed {seed}");
            assert!((inertia(&rows, &centers, &assignments) - expected).abs() <= 1e-12 * (1.0 + expected));
            let near = 2.0 * totals.scores + squares(&rows);
            assert!(
                (near - expected).abs() <= tolerance * (1.0 + expected),
                "seed {seed}: {near}, not {expected}"
            );
            for level in Level::available() {
                let mut again = vec![0; n];
                let kernel = Assign { rows: &rows, centers: &centers, assignments: Some(&mut again) };
                assert_eq!(T::run_at(level, kernel), totals, "{level:?}, seed {seed}: not bit-identical");
                assert_eq!(again, assignments, "{level:?}, seed {seed}");
            }
        }
    }

    #[test]
    fn assignment_equals_the_definition_in_f64() {
        check::<f64>(1e-11);
    }

    #[test]
    fn assignment_equals_the_definition_in_f32() {
        check::<f32>(1e-3);
    }

    #[test]
    fn ties_go_to_the_first_center() {
        let rows = table::<f64>(&mut Random::new(3), 50, 2);
        let centers = Centers::new(&[1.0, 2.0, 1.0, 2.0], 2);
        let mut assignments = vec![9; 50];
        assign(&rows, &centers, Some(&mut assignments));
        assert!(assignments.iter().all(|center| *center == 0));
    }

    #[test]
    fn draws_do_not_depend_on_partitioning() {
        let mut random = Random::new(5);
        let whole = table::<f32>(&mut random, 1000, 3);
        let mut parts: Vec<(Rows<f32>, Vec<f64>, u64)> = Vec::new();
        for (first, rows) in [(0, 123), (123, 400), (523, 477)] {
            let mut part = Rows::zeroed(rows, 3).expect("memory for a test");
            for row in 0..rows {
                for column in 0..3 {
                    part.set(row, column, whole.get(first + row, column));
                }
            }
            parts.push((part, vec![f64::INFINITY; rows], first as u64));
        }
        let mut closest = vec![f64::INFINITY; 1000];
        let mut last: Option<Vec<f64>> = None;
        for round in 0..20 {
            let found = draw(&whole, last.as_deref(), &mut closest, 0, round);
            let candidates = parts
                .iter_mut()
                .map(|(part, closest, first)| draw(part, last.as_deref(), closest, *first, round));
            let smallest = candidates.min_by(|a, b| a.key.total_cmp(&b.key)).expect("three candidates");
            assert_eq!(found, smallest, "round {round}");
            last = Some(found.values);
        }
        let centers = closest.iter().filter(|squared| **squared == 0.0).count();
        assert_eq!(centers, 19, "a center was drawn twice");
    }

    #[test]
    fn draws_are_proportional_to_squared_distance() {
        // Rows at 1, 2 and 3 from the center: 1, 4 and 9 of 14.
        let mut rows = Rows::<f64>::zeroed(3, 1).expect("memory for a test");
        (0..3).for_each(|row| rows.set(row, 0, (row + 1) as f64));
        let mut counts = [0.0; 3];
        let draws = 20_000;
        for seed in 0..draws {
            let drawn = draw(&rows, Some(&[0.0]), &mut [f64::INFINITY; 3], 0, seed);
            counts[drawn.values[0] as usize - 1] += 1.0 / draws as f64;
        }
        for (count, expected) in counts.into_iter().zip([1.0 / 14.0, 4.0 / 14.0, 9.0 / 14.0]) {
            assert!((count - expected).abs() < 0.015, "{counts:?}");
        }
    }
}
