//! Memory bandwidth, a resource in traces.

/// A measured memory bandwidth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bandwidth {
    /// Number of threads reading concurrently.
    pub threads: usize,
    /// Bytes per second over all threads, in the fastest round.
    pub bytes_per_s: f64,
}
