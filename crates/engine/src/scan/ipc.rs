//! Checks the lengths in Arrow IPC files and streams before they are decoded.
//!
//! The decoder allocates as many bytes as a file claims. A length that no allocator can serve aborts
//! the process, so a damaged file must be found out before. Only lengths are checked: the decoder
//! itself reports all other damage.

use std::ops::Range;

use bytes::Bytes;
use datafusion::arrow::ipc::{CompressionType, Message, root_as_footer, root_as_message};

/// The first and last bytes of a file in the IPC file format; streams have none.
pub(crate) const MAGIC: &[u8] = b"ARROW1";
/// Size of the footer length and the magic bytes at the end of a file.
pub(crate) const TAIL_BYTES: u64 = 10;
const CONTINUATION: [u8; 4] = [0xff; 4];
/// Maximum length of a buffer after decompression.
const MAX_BUFFER_BYTES: u64 = 4 << 30;
/// Number of rows that a batch may have without a stored bit for each: some types store no values.
const MAX_UNSTORED_ROWS: u64 = 1 << 28;

/// Reads a range of a file; `None` if it is not in memory.
type Read<'a> = &'a dyn Fn(Range<u64>) -> Option<Bytes>;

/// Checks the lengths of all messages of a file or stream of `size` bytes.
///
/// # Errors
/// Returns the first length that cannot be true.
pub(crate) fn check(size: u64, read: Read<'_>) -> Result<(), String> {
    match read(0..size.min(MAGIC.len() as u64)) {
        Some(start) if start == MAGIC => check_file(size, read),
        Some(_) => check_stream(size, read),
        None => Ok(()),
    }
}

fn check_file(size: u64, read: Read<'_>) -> Result<(), String> {
    let Some(end) = size.checked_sub(TAIL_BYTES) else { return Ok(()) };
    let Some(length) = read(end..end + 4).and_then(|bytes| Some(u32::from_le_bytes(*bytes.first_chunk()?)))
    else {
        return Ok(());
    };
    let Some(start) = end.checked_sub(length.into()) else {
        return Err(format!("its footer claims {length} bytes"));
    };
    let Some(footer) = read(start..end) else { return Ok(()) };
    let Ok(footer) = root_as_footer(&footer) else { return Ok(()) };
    for block in footer.dictionaries().iter().flatten().chain(footer.recordBatches().iter().flatten()) {
        let (at, head, body) = (block.offset(), block.metaDataLength(), block.bodyLength());
        let head_range = range(at, head.into(), size);
        let body_range = head_range.as_ref().and_then(|head| range(head.end as i64, body, size));
        let (Some(head_range), Some(body_range)) = (head_range, body_range) else {
            return Err(format!("it claims a block of {head} and {body} bytes at byte {at}"));
        };
        // The decoder looks for the message in the whole block, even if the length of its head is false.
        if let Some(message) = read(head_range.start..body_range.end) {
            check_message(&message, body_range, read)?;
        }
    }
    Ok(())
}

fn check_stream(size: u64, read: Read<'_>) -> Result<(), String> {
    let mut at = 0;
    loop {
        let word = |at: u64| read(at..at.checked_add(4)?.min(size))?.first_chunk::<4>().copied();
        let Some(mut length) = word(at) else { return Ok(()) };
        let mut head = 4;
        if length == CONTINUATION {
            let Some(next) = word(at + 4) else { return Ok(()) };
            (length, head) = (next, 8);
        }
        // The decoder ends at zero and refuses a negative length.
        let Ok(length @ 1..) = u64::try_from(i32::from_le_bytes(length)) else { return Ok(()) };
        let body_at = at + head + length;
        if body_at > size {
            return Err(format!("it claims a message of {length} bytes at byte {at}"));
        }
        let Some(message) = read(at..body_at) else { return Ok(()) };
        let Some(body) = parse(&message).map(|message| message.bodyLength()) else { return Ok(()) };
        let Some(body_range) = range(body_at as i64, body, size) else {
            return Err(format!("it claims a message body of {body} bytes at byte {body_at}"));
        };
        at = body_range.end;
        check_message(&message, body_range, read)?;
    }
}

/// Returns the range of `length` bytes at `start`; `None` if it is not within `size` bytes.
fn range(start: i64, length: i64, size: u64) -> Option<Range<u64>> {
    let start = u64::try_from(start).ok()?;
    let end = start.checked_add(u64::try_from(length).ok()?)?;
    (end <= size).then_some(start..end)
}

/// Parses a message with its length prefix; `None` if it is malformed.
fn parse(bytes: &[u8]) -> Option<Message<'_>> {
    let start = if bytes.starts_with(&CONTINUATION) { 8 } else { 4 };
    root_as_message(bytes.get(start..)?).ok()
}

/// Checks the batch or dictionary in a message, whose body is `body` of the file.
fn check_message(message: &[u8], body: Range<u64>, read: Read<'_>) -> Result<(), String> {
    let Some(message) = parse(message) else { return Ok(()) };
    let dictionary = || message.header_as_dictionary_batch()?.data();
    let Some(batch) = message.header_as_record_batch().or_else(dictionary) else { return Ok(()) };
    let codec = batch.compression().map(|compression| compression.codec());
    let size = body.end - body.start;
    let mut bytes = 0u64;
    for buffer in batch.buffers().iter().flatten() {
        let Some(stored) = range(buffer.offset(), buffer.length(), size) else {
            let (length, at) = (buffer.length(), buffer.offset());
            return Err(format!("it claims a buffer of {length} bytes at byte {at} of a body of {size}"));
        };
        let stored = body.start + stored.start..body.start + stored.end;
        bytes += match codec {
            Some(codec) => check_compressed(codec, stored, read)?,
            None => stored.end - stored.start,
        };
    }
    let nodes = batch.nodes();
    let limit = MAX_UNSTORED_ROWS.max(bytes.saturating_mul(8));
    let mut rows = nodes.iter().flatten().map(|node| node.length()).chain([batch.length()]);
    // The decoder takes a negative number for a large one.
    if let Some(rows) = rows.find(|&rows| u64::try_from(rows).map_or(true, |rows| rows > limit)) {
        return Err(format!("it claims {rows} rows in a batch of {bytes} bytes"));
    }
    Ok(())
}

/// Checks the decompressed length of a buffer, which its first eight bytes claim, and returns it.
fn check_compressed(codec: CompressionType, stored: Range<u64>, read: Read<'_>) -> Result<u64, String> {
    const PREFIX_BYTES: u64 = 8;
    let Some(compressed) = (stored.end - stored.start).checked_sub(PREFIX_BYTES) else { return Ok(0) };
    let prefix = read(stored.start..stored.start + PREFIX_BYTES);
    let Some(claimed) = prefix.and_then(|bytes| Some(i64::from_le_bytes(*bytes.first_chunk()?))) else {
        return Ok(0);
    };
    // The highest ratio of the codec: bytes of run length in LZ4, blocks of one repeated byte in zstd.
    let ratio = if codec == CompressionType::LZ4_FRAME { 255 } else { 32 << 10 };
    let limit = compressed.saturating_mul(ratio).min(MAX_BUFFER_BYTES);
    // A negative length means that the buffer is not compressed, or is refused by the decoder.
    let claimed = u64::try_from(claimed).unwrap_or(compressed);
    if claimed > limit {
        return Err(format!("it claims {claimed} bytes for a buffer of {compressed} compressed bytes"));
    }
    Ok(claimed)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, DictionaryArray, Int64Array, RecordBatch, StringArray};
    use datafusion::arrow::datatypes::Int32Type;
    use datafusion::arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};

    use super::*;

    fn batch() -> RecordBatch {
        let words: DictionaryArray<Int32Type> = (0..1000).map(|i| ["a", "b", "c"][i % 3]).collect();
        let texts = StringArray::from_iter_values((0..1000).map(|i| format!("row {}", i % 10)));
        RecordBatch::try_from_iter([
            ("x", Arc::new(Int64Array::from_iter_values(0..1000)) as ArrayRef),
            ("words", Arc::new(words)),
            ("texts", Arc::new(texts)),
        ])
        .unwrap()
    }

    fn options(codec: Option<CompressionType>) -> IpcWriteOptions {
        IpcWriteOptions::default().try_with_compression(codec).unwrap()
    }

    fn file(codec: Option<CompressionType>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer =
            FileWriter::try_new_with_options(&mut bytes, &batch().schema(), options(codec)).unwrap();
        writer.write(&batch()).unwrap();
        writer.finish().unwrap();
        drop(writer);
        bytes
    }

    fn stream(codec: Option<CompressionType>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer =
            StreamWriter::try_new_with_options(&mut bytes, &batch().schema(), options(codec)).unwrap();
        writer.write(&batch()).unwrap();
        writer.finish().unwrap();
        drop(writer);
        bytes
    }

    fn checked(bytes: &[u8]) -> Result<(), String> {
        let bytes = Bytes::copy_from_slice(bytes);
        check(bytes.len() as u64, &|range| {
            let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
            (range.start <= range.end && range.end <= bytes.len()).then(|| bytes.slice(range))
        })
    }

    #[test]
    fn true_lengths_are_accepted() {
        for codec in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
            for bytes in [file(codec), stream(codec)] {
                assert_eq!(checked(&bytes), Ok(()), "{codec:?}");
            }
        }
        for other in [&b""[..], b"ARROW1", b"ARROW1ARROW1", b"a,b\n1,2\n", &[0xff; 64]] {
            let _ = checked(other);
        }
    }

    #[test]
    fn false_decompressed_length_is_refused() {
        for (codec, magic) in [
            (CompressionType::LZ4_FRAME, [0x04, 0x22, 0x4d, 0x18]),
            (CompressionType::ZSTD, [0x28, 0xb5, 0x2f, 0xfd]),
        ] {
            for mut bytes in [file(Some(codec)), stream(Some(codec))] {
                let frame = bytes.windows(4).position(|bytes| bytes == magic).unwrap();
                bytes[frame - 8..frame].copy_from_slice(&(1u64 << 60).to_le_bytes());
                let error = checked(&bytes).unwrap_err();
                assert!(error.starts_with("it claims 1152921504606846976 bytes for a buffer"), "{error}");
            }
        }
    }

    #[test]
    fn false_decompressed_length_is_refused_behind_a_false_length_of_the_head() {
        let mut bytes = file(Some(CompressionType::ZSTD));
        let end = bytes.len() - TAIL_BYTES as usize;
        let start = end - u32::from_le_bytes(*bytes[end..].first_chunk().unwrap()) as usize;
        let copy = bytes.clone();
        let block = *root_as_footer(&copy[start..end]).unwrap().recordBatches().unwrap().get(0);
        let (block_at, head) = (block.offset() as usize, block.metaDataLength());
        let message = parse(&copy[block_at..]).unwrap();
        let buffers = message.header_as_record_batch().unwrap().buffers().unwrap();
        let buffer = buffers.iter().rfind(|buffer| buffer.length() > 8).unwrap();
        // A head of 8 bytes moves the body back, and with it the claimed length of the last buffer.
        let head_at = start + copy[start..end].windows(4).rposition(|at| at == head.to_le_bytes()).unwrap();
        bytes[head_at..head_at + 4].copy_from_slice(&8i32.to_le_bytes());
        let claim_at = block_at + 8 + buffer.offset() as usize;
        assert!(claim_at > block_at + head as usize, "within the head");
        bytes[claim_at..claim_at + 8].copy_from_slice(&(1u64 << 60).to_le_bytes());
        let error = checked(&bytes).unwrap_err();
        assert!(error.contains("it claims"), "{error}");
    }

    #[test]
    fn false_number_of_rows_is_refused() {
        let mut bytes = stream(None);
        // The number of rows stands in the batch, and in the node of each column.
        let rows = 1000i64.to_le_bytes();
        let found: Vec<usize> = (0..bytes.len() - 8).filter(|&at| bytes[at..at + 8] == rows).collect();
        for claim in [1i64 << 40, -1 << 48] {
            let expected = format!("it claims {claim} rows in a batch of");
            let refused = found.iter().filter(|&&at| {
                bytes[at..at + 8].copy_from_slice(&claim.to_le_bytes());
                let error = checked(&bytes).err();
                bytes[at..at + 8].copy_from_slice(&rows);
                error.is_some_and(|error| error.contains(&expected))
            });
            assert!(refused.count() >= 4, "{found:?}");
        }
    }

    /// The check must neither panic nor read outside of the file, whatever the damage.
    #[test]
    fn damage_anywhere_is_survived() {
        let (mut refused, mut seed) = (0, 1u64);
        for bytes in [file(None), stream(None)] {
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                damaged[at] ^= (seed >> 33) as u8 | 1;
                refused += usize::from(checked(&damaged).is_err());
                let _ = checked(&bytes[..at]);
            }
        }
        assert!(refused > 100, "{refused}");
    }
}
