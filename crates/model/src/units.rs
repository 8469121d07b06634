//! Units: parses and formats sizes, rates, shares, durations and counts.
//!
//! # Parsing
//!
//! A misread unit changes a value by a factor of 8 or 1.07, which is easy to miss. Each
//! unit in this table therefore has one meaning, and other units are rejected with a list
//! of the valid ones.
//!
//! | unit | meaning |
//! |---|---|
//! | `B` | bytes |
//! | `kB` `MB` `GB` `TB` | powers of 1000 bytes |
//! | `KiB` `MiB` `GiB` `TiB` | powers of 1024 bytes |
//! | a size and `/s` | bytes per second |
//! | `kbit/s` `Mbit/s` `Gbit/s` | powers of 1000 bits per second (rates only) |
//! | `%` | hundredths |
//!
//! A unit is required, since `--memory 4` is unlikely to mean four bytes. Units are
//! case-insensitive, but `Mb` is rejected because it could mean megabit or megabyte. A share
//! may be a percentage or a fraction below 1.
//!
//! # Formatting
//!
//! Text for people has at most three significant digits and a unit. The report page formats
//! the same quantities in JavaScript (`words.js`); both are tested on `tests/units.tsv`.

const SIZE_UNITS: &[(&str, f64)] = &[
    ("b", 1.0),
    ("kb", 1e3),
    ("mb", 1e6),
    ("gb", 1e9),
    ("tb", 1e12),
    ("kib", 1024.0),
    ("mib", 1024.0 * 1024.0),
    ("gib", 1024.0 * 1024.0 * 1024.0),
    ("tib", 1024.0 * 1024.0 * 1024.0 * 1024.0),
];

const BIT_UNITS: &[(&str, f64)] = &[("bit", 0.125), ("kbit", 125.0), ("mbit", 125e3), ("gbit", 125e6)];

/// Describes the valid sizes in messages.
const SIZES: &str = "a number with B, kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024)";

/// Parses a size such as `4GiB`, `1.5 GB` or `4096B`, in bytes. Zero is rejected, since no
/// command-line option accepts it.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = split_number(text)?;
    let factor = lookup(SIZE_UNITS, unit).ok_or_else(|| {
        let cause = if unit.is_empty() { "no unit".to_string() } else { format!("unknown unit `{unit}`") };
        format!("{cause}; a size is {SIZES}, for example 4GiB")
    })?;
    whole_bytes(number * factor)
}

/// Parses a rate such as `50MB/s` or `1Gbit/s`, in bytes per second.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let explain = || {
        "a rate is a size per second, for example 50MB/s or 100MiB/s, or bits per second, for example 1Gbit/s"
            .to_string()
    };
    let per_second = text.trim().strip_suffix("/s").ok_or_else(explain)?;
    let (number, unit) = split_number(per_second)?;
    let factor = lookup(SIZE_UNITS, unit)
        .or_else(|| lookup(BIT_UNITS, unit))
        .ok_or_else(|| format!("unknown unit `{unit}/s`; {}", explain()))?;
    whole_bytes(number * factor)
}

/// Parses a share: a percentage (`10%`) or a fraction below 1 (`0.1`). Larger numbers need the `%`, since `10`
/// could mean 10 % or tenfold.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let (number, whole) = match text.strip_suffix('%') {
        Some(percent) => (percent.trim_end(), 100.0),
        None => (text, 1.0),
    };
    match number.parse::<f64>() {
        Ok(number) if !number.is_finite() || number < 0.0 => {}
        Ok(number) if number >= 1.0 && whole == 1.0 => {
            return Err(format!("ambiguous share {text}; write {text}%, or a fraction below 1"));
        }
        Ok(number) => return Ok(number / whole),
        Err(_) => {}
    }
    Err("expected a share of at least 0, for example 10% or 0.1".to_string())
}

fn split_number(text: &str) -> Result<(f64, &str), String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let number = digits
        .parse()
        .map_err(|_| format!("`{text}` does not start with a number; use a value like 1.5GB"))?;
    Ok((number, unit.trim()))
}

fn lookup(units: &[(&str, f64)], unit: &str) -> Option<f64> {
    let ambiguous =
        unit.len() == 2 && unit.ends_with('b') && unit.starts_with(|c: char| c.is_ascii_uppercase());
    let unit = unit.to_ascii_lowercase();
    units.iter().find(|(name, _)| !ambiguous && *name == unit).map(|(_, factor)| *factor)
}

fn whole_bytes(bytes: f64) -> Result<u64, String> {
    // u64::MAX as f64 rounds up to 2^64, so the comparison must exclude it.
    if bytes >= u64::MAX as f64 {
        Err("too large: the number of bytes does not fit in 64 bits".to_string())
    } else if bytes < 1.0 {
        Err("too small: it must be at least one byte".to_string())
    } else {
        Ok(bytes.round() as u64)
    }
}

/// Formats a duration: `1.84 s`, `85 ms`, `12 min 5 s`. A duration that is not finite, or negative, is `?`.
pub fn time(ms: f64) -> String {
    let s = ms / 1000.0;
    match ms {
        _ if !ms.is_finite() || ms < 0.0 => "?".into(),
        _ if s >= 3599.5 => {
            let minutes = (s / 60.0).round() as u64;
            format!("{} h {} min", grouped(minutes / 60), minutes % 60)
        }
        _ if s >= 599.5 => {
            let s = s.round() as u64;
            format!("{} min {} s", s / 60, s % 60)
        }
        _ if s >= 99.95 => format!("{s:.0} s"),
        _ if s >= 9.995 => format!("{s:.1} s"),
        _ if ms >= 99.5 => format!("{s:.2} s"),
        _ if ms >= 9.95 => format!("{ms:.0} ms"),
        _ if ms >= 0.9995 => format!("{ms:.1} ms"),
        _ if ms >= 0.0009995 => format!("{:.0} µs", ms * 1000.0),
        0.0 => "0 s".into(),
        _ => format!("{:.0} ns", (ms * 1e6).max(1.0)),
    }
}

/// Formats a part of a duration. A unit that both share is given once: `1.2 of 2.1 ms`, `45 µs of 2.1 ms`.
pub fn time_of(part_ms: f64, whole_ms: f64) -> String {
    let (part, whole) = (time(part_ms), time(whole_ms));
    match (part.split_once(' '), whole.split_once(' ')) {
        (Some((number, unit)), Some((_, same))) if unit == same => format!("{number} of {whole}"),
        _ => format!("{part} of {whole}"),
    }
}

/// Formats a size in powers of 1000: `812 MB`, `9.6 kB`.
pub fn size(bytes: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let (mut value, mut unit) = (bytes, 0);
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && value < 9.95);
    format!("{value:.digits$} {}", units[unit])
}

/// Formats a size with three significant digits: `812 MB`, `1.48 GB`.
pub fn size_in_full(bytes: u64) -> String {
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1000.0;
    for unit in ["kB", "MB", "GB", "TB", "PB"] {
        // 999.5 would round to four digits.
        if value < 999.5 || unit == "PB" {
            let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
            return format!("{value:.decimals$} {unit}");
        }
        value /= 1000.0;
    }
    unreachable!("the last unit takes every value")
}

/// Formats a fraction as a percentage: `92 %`, `0.3 %`, `<0.01 %`.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".into(),
        p if p < 0.01 => "<0.01 %".into(),
        p if p < 0.095 => format!("{p:.2} %"),
        p if p < 9.95 => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    }
}

/// Formats a resource's utilization. A value above 1 is a measurement error: it is shown as 100 %, while the
/// JSON keeps the measured value.
pub fn used(share: f64) -> String {
    percent(share.min(1.0))
}

/// Formats an integer in groups of three digits: `6,001,215`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (ix, digit) in digits.chars().enumerate() {
        if ix > 0 && (digits.len() - ix).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a count with its noun: `1 row`, `4 rows`.
pub fn count(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(n), if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_accept_every_unit() {
        for (text, bytes) in [
            ("4096B", 4096),
            ("4GiB", 4 << 30),
            ("1.5 GB", 1_500_000_000),
            ("64kb", 64_000),
            ("2KiB", 2048),
            (" 1tib ", 1 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn invalid_sizes_are_rejected_with_the_reason() {
        for (text, reason) in [
            ("4", "no unit"),
            ("4G", "unknown unit `G`"),
            ("4Gb", "unknown unit `Gb`"),
            ("GiB", "does not start with a number"),
            ("-1GB", "does not start with a number"),
            ("1.2.3GB", "does not start with a number"),
            ("0B", "at least one byte"),
            ("1Gbit", "unknown unit `Gbit`"),
            ("99999999999TiB", "64 bits"),
        ] {
            let error = parse_size(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn rates_are_sizes_or_bits_per_second() {
        assert_eq!(parse_rate("50MB/s"), Ok(50_000_000));
        assert_eq!(parse_rate("100 MiB/s"), Ok(100 << 20));
        assert_eq!(parse_rate("1Gbit/s"), Ok(125_000_000));
        assert!(parse_rate("50MB").unwrap_err().contains("50MB/s"));
        assert!(parse_rate("50/s").unwrap_err().contains("50MB/s"));
        assert!(parse_rate("5Mb/s").unwrap_err().contains("unknown unit `Mb/s`"));
    }

    #[test]
    fn share_is_a_percentage_or_a_fraction() {
        for (text, share) in
            [("10%", 0.1), ("10 %", 0.1), ("0.25", 0.25), ("150%", 1.5), ("0%", 0.0), ("0", 0.0)]
        {
            assert_eq!(parse_share(text), Ok(share), "{text}");
        }
        for (text, reason) in [("10", "write 10%"), ("1", "write 1%"), ("much", "10% or 0.1")] {
            let error = parse_share(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        for text in ["", "%", "-1%", "-0.1", "inf", "inf%", "NaN", "10%%"] {
            assert!(parse_share(text).is_err(), "{text}");
        }
    }

    #[test]
    fn full_size_has_three_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (9_996, "10.0 kB"),
            (99_960, "100 kB"),
            (812_400_000, "812 MB"),
            (999_600_000, "1.00 GB"),
            (1_480_000_000, "1.48 GB"),
            (u64::MAX, "18447 PB"),
        ] {
            assert_eq!(size_in_full(bytes), text);
        }
    }

    #[test]
    fn time_of_gives_a_shared_unit_once() {
        assert_eq!(time_of(1.2, 2.1), "1.2 of 2.1 ms");
        assert_eq!(time_of(0.045, 2.1), "45 µs of 2.1 ms");
        assert_eq!(time_of(599.0, 605_000.0), "0.60 s of 10 min 5 s");
    }

    #[test]
    fn invalid_time_is_a_question_mark() {
        assert_eq!([time(-1.0), time(f64::NAN), time(f64::INFINITY)], ["?", "?", "?"]);
    }
}
