//! Statistics of numbers, by the formulas of DuckDB.

/// Returns the value at a fraction of sorted numbers, between two of them by proportion; NaN of none.
pub(crate) fn quantile(sorted: &[f64], fraction: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = last as f64 * fraction;
    let (low, high) = (sorted[at.floor() as usize], sorted[(at.ceil() as usize).min(last)]);
    if low == high { low } else { low + (high - low) * at.fract() }
}

/// Returns the entropy in bits of values that occur `counts` times each.
pub(crate) fn entropy(counts: impl Iterator<Item = usize> + Clone) -> f64 {
    let total = counts.clone().sum::<usize>() as f64;
    counts.map(|count| count as f64 / total).map(|share| -share * share.log2()).sum::<f64>().abs()
}

/// Returns the sum of the `power`s of the distances from the mean.
fn moment(values: &[f64], mean: f64, power: i32) -> f64 {
    values.iter().map(|value| (value - mean).powi(power)).sum()
}

/// Returns the skewness of a sample; `None` of less than three values, NaN if all are equal.
pub(crate) fn skewness(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    if values.len() < 3 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n;
    let variance = moment(values, mean, 2) / n;
    let skewness = moment(values, mean, 3) / n / variance.powf(1.5);
    Some((n * (n - 1.0)).sqrt() / (n - 2.0) * skewness)
}

/// Returns the excess kurtosis of a sample (`None` of less than four values), or of a population (of less than two).
pub(crate) fn kurtosis(values: &[f64], sample: bool) -> Option<f64> {
    let n = values.len() as f64;
    if values.len() < if sample { 4 } else { 2 } {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n;
    let variance = moment(values, mean, 2) / n;
    let excess = moment(values, mean, 4) / n / (variance * variance) - 3.0;
    Some(if sample { (n - 1.0) / ((n - 2.0) * (n - 3.0)) * ((n + 1.0) * excess + 6.0) } else { excess })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_those_of_duckdb() {
        let values = [1.0, 2.0, 2.0, 7.0];
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(near(skewness(&values).unwrap(), 1.812_801_958_059_263_8));
        assert!(near(kurtosis(&values, true).unwrap(), 3.483_471_074_380_164));
        assert!(near(kurtosis(&values, false).unwrap(), -0.735_537_190_082_644_6));
        assert!(near(entropy([1, 2, 1].into_iter()), 1.5) && entropy([3].into_iter()) == 0.0);
        assert!(near(quantile(&values, 0.25), 1.75) && quantile(&[], 0.5).is_nan());
        assert_eq!((skewness(&[1.0, 2.0]), kurtosis(&[1.0, 2.0, 3.0], true)), (None, None));
    }
}
