//! The memory budget of readers.
//!
//! Compression lets a few kilobytes unpack to gigabytes of records. A reader that keeps its records
//! therefore stops when they exceed [`MIN_BYTES`] plus [`BYTES_PER_INPUT_BYTE`] for each byte of the
//! compressed input. Records of real traces and event logs take at most ten bytes for each, so they
//! may have any number of tasks.

/// Memory that records may take whatever the size of the input.
const MIN_BYTES: u64 = 256 << 20;
/// Further memory for each byte of the input, as it is stored.
const BYTES_PER_INPUT_BYTE: u64 = 64;

/// Returns the budget in words if records of `kept_bytes` exceed that of an input of `input_bytes`.
pub fn exceeded(kept_bytes: u64, input_bytes: u64) -> Option<String> {
    let limit = input_bytes.saturating_mul(BYTES_PER_INPUT_BYTE).saturating_add(MIN_BYTES);
    (kept_bytes > limit).then(|| {
        format!(
            "its records need more than {} MiB of memory, the limit for an input of {input_bytes} bytes \
             ({} MiB and {BYTES_PER_INPUT_BYTE} bytes for each byte)",
            limit >> 20,
            MIN_BYTES >> 20
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_grows_with_the_input() {
        assert_eq!(exceeded(256 << 20, 0), None);
        assert_eq!(exceeded(320 << 20, 1 << 20), None);
        let why = exceeded((320 << 20) + 1, 1 << 20).expect("exceeded");
        assert!(why.contains("more than 320 MiB") && why.contains("1048576 bytes"), "{why}");
        assert_eq!(exceeded(u64::MAX - 1, u64::MAX), None);
    }
}
