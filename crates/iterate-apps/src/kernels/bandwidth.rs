//! Measures memory bandwidth, which is the reference for kernels and the capacity of the `memory_bandwidth`
//! resource in traces.
//!
//! Each thread sums its own buffer, far larger than its caches, from start to end with the widest
//! instructions: the access pattern of kernels, without other work. Rounds are timed between barriers. The
//! fastest round counts, since other processes can only slow it down.

use super::pages::Pages;
use super::simd::{Kernel, Line, Vector, run};
use std::io;
use std::sync::Barrier;
use std::time::Instant;

pub use pellucid_iterate::Bandwidth;

/// Measures the bandwidth by reading `bytes` of memory per thread, `rounds` times.
///
/// # Errors
/// If the buffers cannot be allocated.
pub fn measure(threads: usize, bytes: usize, rounds: usize) -> io::Result<Bandwidth> {
    let threads = threads.max(1);
    let mut buffers = (0..threads).map(|_| Pages::zeroed(bytes / 64)).collect::<io::Result<Vec<_>>>()?;
    let barrier = Barrier::new(threads);
    let read = |buffer: &mut Pages<Line<f64>>| {
        // First touched by the thread that reads it.
        buffer.fill(Line::splat(1.0));
        let mut times = Vec::with_capacity(rounds);
        let mut sum = 0.0;
        for _ in 0..rounds {
            barrier.wait();
            let start = Instant::now();
            sum += run(Sum(buffer));
            barrier.wait();
            times.push(start.elapsed().as_secs_f64());
        }
        std::hint::black_box(sum);
        times
    };
    let times: Vec<Vec<f64>> = std::thread::scope(|scope| {
        let handles: Vec<_> = buffers.iter_mut().map(|buffer| scope.spawn(|| read(buffer))).collect();
        handles.into_iter().filter_map(|handle| handle.join().ok()).collect()
    });
    // The duration of a round is that of its slowest thread.
    let round = |number: usize| times.iter().map(|times| times[number]).fold(0.0, f64::max);
    let best = (0..rounds).map(round).fold(f64::INFINITY, f64::min);
    Ok(Bandwidth { threads, bytes_per_s: (bytes / 64 * 64 * threads) as f64 / best })
}

struct Sum<'a>(&'a [Line<f64>]);

impl Kernel<f64> for Sum<'_> {
    type Output = f64;

    #[inline(always)]
    fn go<V: Vector<f64>>(self) -> f64 {
        let mut sums = [V::splat(0.0); 8];
        for lines in self.0.chunks_exact(8) {
            for (sum, line) in sums.iter_mut().zip(lines) {
                *sum = sum.add(V::load(line));
            }
        }
        let mut line = Line::splat(0.0);
        sums.into_iter().fold(V::splat(0.0), V::add).store(&mut line);
        line.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_bandwidth_is_positive_and_finite() -> io::Result<()> {
        let found = measure(2, 1 << 20, 3)?;
        assert_eq!(found.threads, 2);
        assert!(found.bytes_per_s.is_finite() && found.bytes_per_s > 0.0);
        Ok(())
    }
}
