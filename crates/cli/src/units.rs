//! Parses and formats the sizes, rates and counts of the command line.
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
//!
//! A unit is required, since `--memory 4` is unlikely to mean four bytes. Units are
//! case-insensitive, but `Mb` is rejected because it could mean megabit or megabyte.

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
pub const SIZES: &str =
    "a number with B, kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024)";

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

/// Formats bytes with three significant digits and decimal units: `812 MB`, `1.48 GB`.
pub fn format_bytes(bytes: u64) -> String {
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

/// Formats a count with thousands separators: `6,001,215`.
pub fn format_count(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
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
    fn bytes_and_counts_are_formatted_compactly() {
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
            assert_eq!(format_bytes(bytes), text);
        }
        assert_eq!(format_count(6_001_215), "6,001,215");
        assert_eq!(format_count(999), "999");
        assert_eq!(format_count(1000), "1,000");
    }
}
