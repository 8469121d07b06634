//! Reads 64-bit Roaring bitmaps in their portable format, in which Delta writes deletion vectors.
//!
//! Source: <https://github.com/RoaringBitmap/RoaringFormatSpec>.

use bytes::Buf;

/// First two bytes of a 32-bit bitmap with runs.
const WITH_RUNS: u32 = 12347;
/// First four bytes of a 32-bit bitmap without runs.
const WITHOUT_RUNS: u32 = 12346;
/// Number of containers from which on a bitmap with runs has offsets.
const OFFSETS_FROM: usize = 4;
/// Number of values up to which a container is an array.
const MAX_ARRAY: usize = 4096;
/// Number of values of a container.
const MAX_CONTAINER: usize = 1 << 16;
/// Bytes of a container that is a bitmap.
const BITMAP_BYTES: usize = 8192;

/// Returns the values of a bitmap, ascending; `None` if the bytes are damaged.
pub(super) fn values(bytes: &[u8]) -> Option<Vec<u64>> {
    let mut reader = bytes;
    let mut values = Vec::new();
    for _ in 0..reader.try_get_u64_le().ok()? {
        let high = u64::from(reader.try_get_u32_le().ok()?) << 32;
        part(&mut reader, high, &mut values)?;
    }
    values.is_sorted_by(|a, b| a < b).then_some(values)
}

/// Returns the values of 32-bit bitmaps that follow each other, each after its size, as Delta's first format has them.
pub(super) fn native_values(bytes: &[u8]) -> Option<Vec<u64>> {
    let mut reader = bytes;
    let mut values = Vec::new();
    for index in 0..u64::from(reader.try_get_u32().ok()?) {
        let size = reader.try_get_u32().ok()? as usize;
        part(&mut reader.split_off(..size)?, index << 32, &mut values)?;
    }
    values.is_sorted_by(|a, b| a < b).then_some(values)
}

/// Reads a 32-bit bitmap.
fn part(reader: &mut &[u8], high: u64, values: &mut Vec<u64>) -> Option<()> {
    let cookie = reader.try_get_u32_le().ok()?;
    let (count, runs) = if cookie & 0xffff == WITH_RUNS {
        let count = (cookie >> 16) as usize + 1;
        (count, Some(reader.split_off(..count.div_ceil(8))?))
    } else if cookie == WITHOUT_RUNS {
        (reader.try_get_u32_le().ok()? as usize, None)
    } else {
        return None;
    };
    let mut descriptions = reader.split_off(..count.checked_mul(4)?)?;
    if runs.is_none() || count >= OFFSETS_FROM {
        reader.split_off(..count * 4)?;
    }
    for index in 0..count {
        let base = high | u64::from(descriptions.try_get_u16_le().ok()?) << 16;
        let cardinality = usize::from(descriptions.try_get_u16_le().ok()?) + 1;
        let before = values.len();
        if runs.is_some_and(|runs| runs[index / 8] >> (index % 8) & 1 == 1) {
            for _ in 0..reader.try_get_u16_le().ok()? {
                let (start, more) =
                    (u64::from(reader.try_get_u16_le().ok()?), u64::from(reader.try_get_u16_le().ok()?));
                if values.len() - before > MAX_CONTAINER {
                    return None;
                }
                values.extend((start..=start + more).map(|low| base + low));
            }
        } else if cardinality <= MAX_ARRAY {
            for _ in 0..cardinality {
                values.push(base | u64::from(reader.try_get_u16_le().ok()?));
            }
        } else {
            for (at, byte) in reader.split_off(..BITMAP_BYTES)?.iter().enumerate() {
                let set = (0..8).filter(|bit| byte >> bit & 1 == 1);
                values.extend(set.map(|bit| base | (at as u64 * 8 + bit)));
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(high: u32, cookie: &[u8], rest: &[u8]) -> Vec<u8> {
        let mut bytes = 1u64.to_le_bytes().to_vec();
        bytes.extend(high.to_le_bytes());
        bytes.extend(cookie);
        bytes.extend(rest);
        bytes
    }

    fn shorts(values: &[u16]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    #[test]
    fn arrays_runs_and_bitmaps_are_read() {
        let mut cookie = WITHOUT_RUNS.to_le_bytes().to_vec();
        cookie.extend(1u32.to_le_bytes());
        // Key 0, three values, an offset, the values.
        let array = [shorts(&[0, 2]), vec![0; 4], shorts(&[1, 5, 9])].concat();
        assert_eq!(values(&bytes(0, &cookie, &array)), Some(vec![1, 5, 9]));
        assert_eq!(values(&bytes(2, &cookie, &array)).unwrap()[0], (2 << 32) + 1);
        // One container, which is of runs: no offsets.
        let run = [vec![1], shorts(&[1, 4, 1, 10, 4])].concat();
        assert_eq!(
            values(&bytes(0, &WITH_RUNS.to_le_bytes(), &run)),
            Some((10..15).map(|low| 65536 + low).collect())
        );
        let mut bits = vec![0; BITMAP_BYTES];
        bits[..700].fill(0xff);
        let bitmap = [shorts(&[0, 5599]), vec![0; 4], bits].concat();
        assert_eq!(values(&bytes(0, &cookie, &bitmap)), Some((0..5600).collect()));
    }

    #[test]
    fn damaged_bitmaps_are_refused() {
        let mut cookie = WITHOUT_RUNS.to_le_bytes().to_vec();
        cookie.extend(1u32.to_le_bytes());
        let array = [shorts(&[0, 2]), vec![0; 4], shorts(&[1, 5, 9])].concat();
        let whole = bytes(0, &cookie, &array);
        for length in 0..whole.len() {
            assert_eq!(values(&whole[..length]), None, "{length}");
        }
        assert_eq!(values(&bytes(0, &[9; 8], &array)), None);
        // Values that are not ascending.
        let array = [shorts(&[0, 1]), vec![0; 4], shorts(&[5, 1])].concat();
        assert_eq!(values(&bytes(0, &cookie, &array)), None);
    }
}
