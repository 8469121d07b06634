//! A key swept over a range: `disk.rate=25MB/s..200MB/s`, `cores=1..8`, `disk.rate=x0.5..x4:8`.

use super::change::Amount;
use super::changes::{Changes, ReadRate};
use super::error::WhatIfError;
use super::keys::Key;

/// Maximum points of a sweep; each takes a simulation.
const MAX_POINTS: usize = 200;

/// The values of one key, ascending, in the form that `--set` takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    /// The key.
    pub key: String,
    /// Each value as text and as a number.
    pub values: Vec<(String, f64)>,
}

impl Sweep {
    /// Parses `KEY=A..B` (doubling) or `KEY=A..B:N` (`N` even steps, both ends included).
    ///
    /// # Errors
    /// Returns an error for any other text, with an example.
    pub fn parse(text: &str, rate: ReadRate) -> Result<Sweep, WhatIfError> {
        let wrong = |why: &str| {
            WhatIfError::Usage(format!(
                "--sweep {text}: {why}; write KEY=A..B (doubling) or KEY=A..B:N (N even steps), \
                 for example disk.rate=25MB/s..200MB/s"
            ))
        };
        let (key, range) = text.split_once('=').ok_or_else(|| wrong("missing `=`"))?;
        let (from, to) = range.split_once("..").ok_or_else(|| wrong("missing `..`"))?;
        let (to, steps) = match to.rsplit_once(':') {
            Some((to, steps)) => match steps.parse::<usize>() {
                Ok(steps) if (2..=MAX_POINTS).contains(&steps) => (to, Some(steps)),
                _ => return Err(wrong(&format!("the number of steps must be from 2 to {MAX_POINTS}"))),
            },
            None => (to, None),
        };
        let (from, to) = (end(key, from, rate)?, end(key, to, rate)?);
        let (first, last, relative) = match (from, to) {
            (Amount::Absolute(a), Amount::Absolute(b)) => (a, b, false),
            (Amount::Times(a), Amount::Times(b)) => (a, b, true),
            _ => return Err(wrong("both ends must be absolute, or both relative")),
        };
        if first >= last {
            return Err(wrong("it must go from a smaller to a larger value"));
        }
        let numbers = match steps {
            Some(n) => (0..n).map(|i| first + (last - first) * i as f64 / (n - 1) as f64).collect(),
            None => doubling(first, last),
        };
        if numbers.len() > MAX_POINTS {
            return Err(wrong(&format!("the range has over {MAX_POINTS} values")));
        }
        let known = Key::find(key).map(|(known, _)| known);
        let whole = known.is_some_and(Key::is_whole) && !relative;
        let rate = known.is_some_and(Key::is_rate) && !relative;
        let mut values: Vec<(String, f64)> = Vec::new();
        for number in numbers {
            let number = if whole { number.round() } else { number };
            let value = written(number, rate, relative);
            if values.last().is_none_or(|(last, _)| *last != value) {
                values.push((value, number));
            }
        }
        Ok(Sweep { key: key.to_string(), values })
    }

    /// Returns `base` with this key set to one of the values.
    ///
    /// # Errors
    /// As [`Changes::set`].
    pub fn at(&self, base: &Changes, value: &str, rate: ReadRate) -> Result<Changes, WhatIfError> {
        let mut changes = base.clone();
        changes.set(&self.key, value, rate)?;
        Ok(changes)
    }
}

fn doubling(first: f64, last: f64) -> Vec<f64> {
    let mut numbers = Vec::new();
    let mut at = first;
    while at < last * 0.999 && numbers.len() <= MAX_POINTS {
        numbers.push(at);
        at *= 2.0;
    }
    numbers.push(last);
    numbers
}

fn end(key: &str, value: &str, rate: ReadRate) -> Result<Amount, WhatIfError> {
    let changes = Changes::parse(&[format!("{key}={value}")], rate)?;
    changes.iter().next().and_then(|change| change.amount()).ok_or_else(|| {
        WhatIfError::Usage(format!(
            "cannot sweep {key}: its values are not numbers; sweep a numeric key such as cores"
        ))
    })
}

fn written(number: f64, rate: bool, relative: bool) -> String {
    let number = if rate { number / 1e6 } else { number };
    let mut digits = format!("{number:.3}");
    while digits.contains('.') && (digits.ends_with('0') || digits.ends_with('.')) {
        digits.pop();
    }
    match (relative, rate) {
        (true, _) => format!("x{digits}"),
        (false, true) => format!("{digits}MB/s"),
        (false, false) => digits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> Result<u64, String> {
        let number = text.strip_suffix("MB/s").ok_or("a rate is a size a second, for example 50MB/s")?;
        number.parse::<f64>().map(|n| (n * 1e6) as u64).map_err(|e| e.to_string())
    }

    fn values(text: &str) -> Result<Vec<String>, String> {
        let sweep = Sweep::parse(text, rate).map_err(|r| r.message().to_string())?;
        Ok(sweep.values.into_iter().map(|(value, _)| value).collect())
    }

    #[test]
    fn sweep_doubles_or_takes_even_steps() {
        let doubled = values("disk.rate=25MB/s..150MB/s").unwrap();
        assert_eq!(doubled, ["25MB/s", "50MB/s", "100MB/s", "150MB/s"]);
        assert_eq!(values("disk.rate=x0.5..x2").unwrap(), ["x0.5", "x1", "x2"]);
        assert_eq!(values("cores=1..2:3").unwrap(), ["1", "1.5", "2"]);
        assert_eq!(values("disks=1..4:7").unwrap(), ["1", "2", "3", "4"]);
    }

    #[test]
    fn invalid_sweep_explains_the_syntax() {
        for (text, part) in [
            ("cores", "missing `=`"),
            ("cores=4", "missing `..`"),
            ("cores=4..2", "smaller to a larger"),
            ("cores=1..x4", "both relative"),
            ("cores=1..8:1", "from 2 to 200"),
            ("cores=0..8", "over 0"),
            ("input=memory..memory-decoded", "not numbers"),
            ("colour=1..2", "the keys are"),
        ] {
            let message = values(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
