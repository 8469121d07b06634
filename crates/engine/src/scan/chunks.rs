//! The bytes of a Parquet file that a multitask has read, as the Parquet library asks for them.

use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;
use datafusion::parquet::errors::{ParquetError, Result};
use datafusion::parquet::file::reader::{ChunkReader, Length};
use pellucid_runtime::{Segment, slice};

use crate::scan::not_read;

/// The bytes of a file that a multitask has read.
#[derive(Clone)]
pub(crate) struct Chunks {
    /// Ascending by offset.
    segments: Arc<Vec<Segment>>,
    /// For messages.
    path: Arc<str>,
}

impl Chunks {
    pub(crate) fn new(segments: Vec<Segment>, path: &str) -> Self {
        Self { segments: Arc::new(segments), path: path.into() }
    }
}

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.segments.last().map_or(0, |last| last.offset + last.bytes.len() as u64)
    }
}

impl ChunkReader for Chunks {
    type T = ChunkRead;

    fn get_read(&self, start: u64) -> Result<ChunkRead> {
        Ok(ChunkRead { segments: Arc::clone(&self.segments), at: start })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let range = start..start.saturating_add(length as u64);
        slice(&self.segments, &range).ok_or_else(|| ParquetError::General(not_read(&self.path, &range)))
    }
}

/// Reads the bytes of a file from a place on, up to the first that were not read.
pub(crate) struct ChunkRead {
    segments: Arc<Vec<Segment>>,
    at: u64,
}

impl Read for ChunkRead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let ends_before = |segment: &Segment| segment.offset + segment.bytes.len() as u64 <= self.at;
        let next = self.segments.get(self.segments.partition_point(ends_before));
        let Some(segment) = next.filter(|segment| segment.offset <= self.at) else { return Ok(0) };
        let bytes = &segment.bytes[(self.at - segment.offset) as usize..];
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        self.at += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_cross_segments_and_end_at_gaps() {
        let segment = |offset: u64, bytes: &[u8]| Segment { offset, bytes: Bytes::copy_from_slice(bytes) };
        let chunks =
            Chunks::new(vec![segment(10, b"abc"), segment(13, b"de"), segment(20, b"f")], "t.parquet");
        let from = |start: u64| {
            let mut text = String::new();
            chunks.get_read(start).unwrap().read_to_string(&mut text).unwrap();
            text
        };
        assert_eq!(
            [from(10), from(12), from(14), from(15), from(20), from(3)],
            ["abcde", "cde", "e", "", "f", ""]
        );
        assert_eq!(chunks.get_bytes(11, 3).unwrap(), &b"bcd"[..]);
        assert_eq!(chunks.len(), 21);
        let missing = chunks.get_bytes(14, 2).unwrap_err().to_string();
        assert!(missing.contains("t.parquet: bytes 14 to 16 were not read in advance"), "{missing}");
    }
}
