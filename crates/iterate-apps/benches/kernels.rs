//! Compares the time of the kernels' passes with the memory's limit: the time to read and sum the same bytes.
//!
//! Run `cargo bench -p pellucid-iterate-apps --bench kernels [-- ROWS]` on an idle machine. Kernel and limit alternate
//! in rounds. Each line shows a kernel, the number of threads, the median ratio of pass to limit, and the range of
//! the middle half of the rounds.

use std::sync::Barrier;
use std::time::Instant;

use pellucid_iterate_apps::kernels::bandwidth;
use pellucid_iterate_apps::kernels::kmeans::{Centers, assign};
use pellucid_iterate_apps::kernels::logistic::evaluate;
use pellucid_iterate_apps::kernels::random::Random;
use pellucid_iterate_apps::kernels::rows::Rows;
use pellucid_iterate_apps::kernels::simd::Real;

const FEATURES: usize = 20;
const CENTERS: usize = 10;
const ROUNDS: usize = 9;
/// Passes per round, of which the fastest counts, as for the limit.
const PASSES: usize = 5;

/// Creates rows with a label of 0 or 1 in the last column.
fn table<T: Real>(rows: usize, seed: u64) -> Rows<T> {
    let (mut table, mut random) = (Rows::zeroed(rows, FEATURES + 1).expect("memory"), Random::new(seed));
    // Reuses a few values: drawing all of them would take longer than measuring.
    let values: Vec<f64> = (0..4093).map(|_| random.normal()).collect();
    for row in 0..rows {
        for column in 0..FEATURES {
            table.set(row, column, T::of(values[(row * FEATURES + column) % values.len()]));
        }
        table.set(row, FEATURES, T::of((row % 2) as f64));
    }
    table
}

/// Returns the seconds of the fastest pass, as the maximum over threads.
fn pass<T: Real>(tables: &[Rows<T>], kernel: &(impl Fn(&Rows<T>) + Sync)) -> f64 {
    let barrier = Barrier::new(tables.len());
    let of_thread = |table: &Rows<T>| {
        let timed = || {
            barrier.wait();
            let start = Instant::now();
            kernel(table);
            barrier.wait();
            start.elapsed().as_secs_f64()
        };
        (0..PASSES).map(|_| timed()).fold(f64::INFINITY, f64::min)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = tables.iter().map(|table| scope.spawn(move || of_thread(table))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a kernel")).fold(0.0, f64::max)
    })
}

fn compare<T: Real>(name: &str, threads: usize, rows: usize, kernel: impl Fn(&Rows<T>) + Sync) {
    let tables: Vec<Rows<T>> = (0..threads).map(|thread| table(rows, thread as u64)).collect();
    let bytes = tables[0].bytes();
    let mut ratios: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let limit = bandwidth::measure(threads, bytes, PASSES).expect("memory");
            pass(&tables, &kernel) * limit.bytes_per_s / (bytes * threads) as f64
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    let at = |share: f64| ratios[((ROUNDS - 1) as f64 * share) as usize];
    println!("{name:32} {threads} threads  {:.3}  ({:.3} to {:.3})", at(0.5), at(0.25), at(0.75));
}

fn all<T: Real>(precision: &str, threads: usize, rows: usize) {
    let coefficients: Vec<f64> = (0..=FEATURES).map(|c| c as f64 / 100.0).collect();
    compare::<T>(&format!("logistic regression, {precision}"), threads, rows, |table| {
        std::hint::black_box(evaluate(table, &coefficients));
    });
    let mut random = Random::new(7);
    let values: Vec<f64> = (0..CENTERS * (FEATURES + 1)).map(|_| random.normal()).collect();
    let centers = Centers::<T>::new(&values, FEATURES + 1);
    compare::<T>(&format!("k-means, {CENTERS} centers, {precision}"), threads, rows, |table| {
        std::hint::black_box(assign(table, &centers, None));
    });
}

fn main() {
    // Cargo also passes `--bench`.
    let rows = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(2_000_000);
    for threads in [1, 2] {
        all::<f64>("f64", threads, rows);
        all::<f32>("f32", threads, rows);
    }
}
