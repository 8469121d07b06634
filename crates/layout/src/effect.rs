//! The measured effect of a layout on decoding.

use std::time::{Duration, Instant};

use crate::error::LayoutError;
use crate::layout::Layout;
use crate::sample::Sample;

/// Number of measurements, at most, of each layout, and the time after which no more are started.
const ROUNDS: usize = 9;
const LONGEST: Duration = Duration::from_millis(800);
/// Number of measurements, at least.
const LEAST_ROUNDS: usize = 3;

/// The effect of a layout, relative to the present one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effect {
    /// Core time of decoding all rows, as a factor.
    pub time: f64,
    /// Half of the distance between the quartiles of the measured factors, relative to `time`.
    pub spread: f64,
    /// Bytes to read for all rows, as a factor.
    pub bytes: f64,
    /// Share of the layout's bytes that are dictionaries, which a row group needs whole for any of its rows.
    pub dictionaries: f64,
}

impl Effect {
    /// Returns the factor on bytes and time if a share `rows` of the rows are decoded, from row groups with a share `groups`
    /// of them.
    pub fn decoded(&self, rows: f64, groups: f64) -> f64 {
        rows + self.dictionaries * (groups - rows).max(0.0)
    }
}

/// Measures the effect of a layout: writes the sample in it, and decodes both in turn. `None` if core time cannot be
/// measured here.
///
/// # Errors
/// Returns an error if the sample cannot be decoded or encoded.
pub fn effect(sample: &Sample, layout: &Layout) -> Result<Option<Effect>, LayoutError> {
    let other = sample.rewritten(layout)?;
    let began = Instant::now();
    let mut factors = Vec::new();
    // The first round warms caches.
    for round in 0..=ROUNDS {
        let Some((before, after)) = sample.decode_ns()?.zip(other.decode_ns()?) else { return Ok(None) };
        if round > 0 {
            factors.push(after as f64 / before.max(1) as f64);
        }
        if factors.len() >= LEAST_ROUNDS && began.elapsed() > LONGEST {
            break;
        }
    }
    factors.sort_by(f64::total_cmp);
    let at = |share: f64| factors[((factors.len() - 1) as f64 * share).round() as usize];
    let time = at(0.5);
    let bytes = other.size() / sample.size().max(1.0);
    let dictionaries = other.dictionaries_size() / other.size().max(1.0);
    Ok(Some(Effect { time, spread: (at(0.75) - at(0.25)) / 2.0 / time.max(1e-9), bytes, dictionaries }))
}
