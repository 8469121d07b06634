//! Samples of text files, from which their columns are inferred while a statement is planned.

use bytes::Bytes;
use datafusion::common::{DataFusionError, Result};
use futures::{StreamExt, TryStreamExt};
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};

use crate::tables::csv::Encoding;
use crate::tables::csv::decode::transcoded;
use crate::tables::found::Found;

/// Files up to this size are examined whole.
const WHOLE_BYTES: u64 = 2 << 20;
/// Size of the start of a larger file that is examined.
const HEAD_BYTES: u64 = 512 << 10;
/// Size of each block from the rest of it.
const BLOCK_BYTES: u64 = 64 << 10;
/// Number of such blocks.
const BLOCKS: u64 = 8;
/// Parts of a file, decompressed and in UTF-8.
#[derive(Debug)]
pub(crate) struct Sample {
    /// The start of the file.
    pub head: Bytes,
    /// True if the head is the whole file.
    pub whole: bool,
    /// Blocks from anywhere in the rest of the file.
    pub blocks: Vec<Bytes>,
}

/// Reads a sample of a file: all of a small one, and the start and blocks all over a large one.
/// `whole` asks for all of a large file too.
///
/// # Errors
/// Returns an error if the file cannot be read, or is not in its encoding.
pub(crate) async fn sample(
    found: &Found,
    file: &ObjectMeta,
    whole: bool,
    encoding: Encoding,
) -> Result<Sample> {
    let unreadable = |why: String| {
        DataFusionError::Execution(format!(
            "cannot read {}: {why}; check that it is complete, its compression and its encoding",
            found.name(file)
        ))
    };
    let converted = |bytes: Bytes| transcoded(encoding, bytes).map_err(unreadable);
    if found.compression.is_compressed() {
        let bytes =
            found.store.get(&file.location).await?.into_stream().map_err(DataFusionError::from).boxed();
        let mut text = found.compression.convert_stream(bytes)?;
        let mut head = Vec::new();
        let limit = if whole { u64::MAX } else { WHOLE_BYTES };
        let mut ended = true;
        while let Some(bytes) = text.next().await {
            head.extend_from_slice(&bytes.map_err(|error| unreadable(error.strip_backtrace()))?);
            if head.len() as u64 >= limit {
                ended = false;
                break;
            }
        }
        return Ok(Sample { head: converted(head.into())?, whole: ended, blocks: Vec::new() });
    }
    let size = file.size;
    let head = if size <= WHOLE_BYTES || whole { size } else { HEAD_BYTES };
    if size == 0 {
        return Ok(Sample { head: Bytes::new(), whole: true, blocks: Vec::new() });
    }
    let mut ranges = Vec::new();
    ranges.push(0..head);
    if head < size && encoding == Encoding::Utf8 {
        let space = size - head - BLOCK_BYTES;
        ranges.extend((1..=BLOCKS).map(|at| {
            let start = head + (u128::from(space) * u128::from(at) / u128::from(BLOCKS)) as u64;
            start..start + BLOCK_BYTES
        }));
    }
    let mut blocks = found.store.get_ranges(&file.location, &ranges).await?;
    let first = if blocks.is_empty() { Bytes::new() } else { blocks.remove(0) };
    Ok(Sample { head: converted(first)?, whole: head == size, blocks })
}
