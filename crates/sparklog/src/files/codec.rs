//! Detection of a log's compression, and decompression.
//!
//! The codec is detected by the first bytes, not by the name: logs get renamed, `.gz` files are not always
//! gzip, and vendors use their own extensions. Spark frames LZ4, LZF and Snappy as its Java libraries do, not
//! by the standard formats. Its zstd files consist of many frames, since each flush ends a frame.
//!
//! Decompression is streaming, and its memory does not depend on lengths that the input claims.

use std::io::{self, BufRead, BufReader, Cursor, Read};

/// The compression of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// Uncompressed.
    Plain,
    /// gzip with one or more members.
    Gzip,
    /// zstd with one or more frames.
    Zstd,
    /// lz4-java's `LZ4BlockOutputStream`.
    Lz4,
    /// Ning's LZF chunks.
    Lzf,
    /// snappy-java's `SnappyOutputStream`.
    Snappy,
}

/// Number of bytes that [`Codec::of`] inspects.
const MAGIC_BYTES: usize = 8;
/// Maximum size of a Snappy or LZ4 chunk: lz4-java's largest block. Spark writes chunks of 32 kB.
const MAX_CHUNK_BYTES: usize = 32 << 20;

const LZ4_MAGIC: &[u8] = b"LZ4Block";
const SNAPPY_MAGIC: &[u8] = b"\x82SNAPPY\0";

impl Codec {
    /// Detects the codec of a log that begins with `start`.
    pub fn of(start: &[u8]) -> Codec {
        match start {
            [0x1f, 0x8b, ..] => Codec::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Codec::Zstd,
            // A skippable frame, which may precede others.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Codec::Zstd,
            [b'Z', b'V', 0 | 1, ..] => Codec::Lzf,
            _ if start.starts_with(LZ4_MAGIC) => Codec::Lz4,
            _ if start.starts_with(SNAPPY_MAGIC) => Codec::Snappy,
            _ => Codec::Plain,
        }
    }
}

/// Detects the codec and returns a decompressing reader. The reader of a truncated log returns the complete
/// part, then [`io::ErrorKind::UnexpectedEof`].
///
/// # Errors
/// Fails if the first bytes cannot be read.
pub fn open<'a>(mut reader: impl Read + 'a) -> io::Result<(Codec, Box<dyn Read + 'a>)> {
    let mut start = Vec::with_capacity(MAGIC_BYTES);
    reader.by_ref().take(MAGIC_BYTES as u64).read_to_end(&mut start)?;
    let codec = Codec::of(&start);
    let whole = Cursor::new(start).chain(reader);
    let decoded: Box<dyn Read + 'a> = match codec {
        Codec::Plain => Box::new(whole),
        Codec::Gzip => Box::new(flate2::read::MultiGzDecoder::new(whole)),
        Codec::Zstd => Box::new(zstd::stream::read::Decoder::new(whole)?),
        Codec::Lz4 => Box::new(Chunked::new(whole, lz4_block)),
        Codec::Lzf => Box::new(Chunked::new(whole, lzf_chunk)),
        Codec::Snappy => Box::new(Chunked::new(whole, snappy_chunk)),
    };
    Ok((codec, decoded))
}

/// Reads and decompresses one chunk into the vector; returns false at the end.
type NextChunk<R> = fn(&mut BufReader<R>, &mut Vec<u8>) -> io::Result<bool>;

/// A reader of a sequence of compressed chunks.
struct Chunked<R: Read> {
    reader: BufReader<R>,
    next: NextChunk<R>,
    chunk: Vec<u8>,
    at: usize,
}

impl<R: Read> Chunked<R> {
    fn new(reader: R, next: NextChunk<R>) -> Chunked<R> {
        Chunked { reader: BufReader::with_capacity(1 << 18, reader), next, chunk: Vec::new(), at: 0 }
    }
}

impl<R: Read> Read for Chunked<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.at == self.chunk.len() {
            self.chunk.clear();
            self.at = 0;
            if !(self.next)(&mut self.reader, &mut self.chunk)? {
                return Ok(0);
            }
        }
        let read = (&self.chunk[self.at..]).read(into)?;
        self.at += read;
        Ok(read)
    }
}

/// Reads an LZ4 block. Its header of 21 bytes has the magic, a token (method and block size), the
/// compressed and the original length, and a checksum, all little-endian. The checksum is not verified:
/// damaged blocks rarely decompress to their length, and those that do produce malformed lines. An empty
/// block ends a stream, which another may follow.
fn lz4_block<R: Read>(reader: &mut BufReader<R>, into: &mut Vec<u8>) -> io::Result<bool> {
    const RAW: u8 = 0x10;
    const COMPRESSED: u8 = 0x20;
    loop {
        if reader.fill_buf()?.is_empty() {
            return Ok(false);
        }
        let header: [u8; 21] = exactly(reader)?;
        if !header.starts_with(LZ4_MAGIC) {
            return Err(damaged("LZ4 block has no magic number"));
        }
        let length =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (compressed, original) = (length(9) as usize, length(13) as usize);
        if original == 0 {
            continue;
        }
        if original > MAX_CHUNK_BYTES || compressed > MAX_CHUNK_BYTES + MAX_CHUNK_BYTES / 128 {
            return Err(damaged("LZ4 block exceeds 32 MiB"));
        }
        match header[8] & 0xf0 {
            RAW => take(reader, compressed, into)?,
            COMPRESSED => {
                let mut block = Vec::new();
                take(reader, compressed, &mut block)?;
                into.resize(original, 0);
                let written = lz4_flex::block::decompress_into(&block, into);
                if written.ok() != Some(original) {
                    return Err(damaged("LZ4 block does not decompress to its length"));
                }
            }
            _ => return Err(damaged("LZ4 block has an unknown compression method")),
        }
        return Ok(true);
    }
}

/// Reads an LZF chunk: `ZV`, a type (0: stored, 1: compressed), and big-endian lengths of two bytes.
fn lzf_chunk<R: Read>(reader: &mut BufReader<R>, into: &mut Vec<u8>) -> io::Result<bool> {
    if reader.fill_buf()?.is_empty() {
        return Ok(false);
    }
    let [z, v, method, high, low] = exactly(reader)?;
    if [z, v] != *b"ZV" || method > 1 {
        return Err(damaged("LZF chunk has no magic number"));
    }
    let length = usize::from(u16::from_be_bytes([high, low]));
    if method == 0 {
        take(reader, length, into)?;
        return Ok(true);
    }
    let original = usize::from(u16::from_be_bytes(exactly(reader)?));
    let mut chunk = Vec::new();
    take(reader, length, &mut chunk)?;
    match lzf::decompress(&chunk, original) {
        Ok(decompressed) if decompressed.len() == original => *into = decompressed,
        _ => return Err(damaged("LZF chunk does not decompress to its length")),
    }
    Ok(true)
}

/// Reads a Snappy chunk. A header of 16 bytes, which may be repeated, is followed by raw Snappy chunks, each
/// preceded by its big-endian length.
fn snappy_chunk<R: Read>(reader: &mut BufReader<R>, into: &mut Vec<u8>) -> io::Result<bool> {
    loop {
        if reader.fill_buf()?.is_empty() {
            return Ok(false);
        }
        let head: [u8; 4] = exactly(reader)?;
        if SNAPPY_MAGIC.starts_with(&head) {
            let rest: [u8; 12] = exactly(reader)?;
            if rest[..4] != SNAPPY_MAGIC[4..] {
                return Err(damaged("invalid Snappy header"));
            }
            continue;
        }
        let length = u32::from_be_bytes(head) as usize;
        if length > MAX_CHUNK_BYTES {
            return Err(damaged("Snappy chunk exceeds 32 MiB"));
        }
        let mut chunk = Vec::new();
        take(reader, length, &mut chunk)?;
        let original = snap::raw::decompress_len(&chunk).unwrap_or(usize::MAX);
        if original > MAX_CHUNK_BYTES {
            return Err(damaged("Snappy chunk exceeds 32 MiB"));
        }
        into.resize(original, 0);
        if snap::raw::Decoder::new().decompress(&chunk, into) != Ok(original) {
            return Err(damaged("cannot decompress a Snappy chunk"));
        }
        if original > 0 {
            return Ok(true);
        }
    }
}

fn exactly<const N: usize>(reader: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Appends exactly `length` bytes. Memory grows with the bytes read, not with `length`.
fn take(reader: &mut impl Read, length: usize, into: &mut Vec<u8>) -> io::Result<()> {
    let read = reader.take(length as u64).read_to_end(into)?;
    if read < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> (Codec, io::Result<Vec<u8>>) {
        let (codec, mut reader) = open(bytes).expect("opened");
        let mut all = Vec::new();
        (codec, reader.read_to_end(&mut all).map(|_| all))
    }

    fn lz4(text: &[u8]) -> Vec<u8> {
        let block = lz4_flex::block::compress(text);
        let mut bytes = LZ4_MAGIC.to_vec();
        bytes.push(0x25);
        for number in [block.len() as u32, text.len() as u32, 0] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(block);
        bytes
    }

    fn snappy(text: &[u8]) -> Vec<u8> {
        let chunk = snap::raw::Encoder::new().compress_vec(text).expect("compressed");
        let mut bytes = SNAPPY_MAGIC.to_vec();
        bytes.extend([0, 0, 0, 1, 0, 0, 0, 1]);
        bytes.extend((chunk.len() as u32).to_be_bytes());
        bytes.extend(chunk);
        bytes
    }

    fn lzf(text: &[u8]) -> Vec<u8> {
        let chunk = lzf::compress(text).expect("compressed");
        let mut bytes = b"ZV\x01".to_vec();
        bytes.extend((chunk.len() as u16).to_be_bytes());
        bytes.extend((text.len() as u16).to_be_bytes());
        bytes.extend(chunk);
        bytes.extend(b"ZV\0\0\x02!\n");
        bytes
    }

    #[test]
    fn each_codec_is_detected_and_reads_concatenated_streams() {
        let text = b"{\"Event\":\"SparkListenerLogStart\"}\n".repeat(40);
        let zstd = zstd::encode_all(&text[..], 3).expect("compressed");
        for (codec, once, tail) in [
            (Codec::Zstd, zstd, &b""[..]),
            (Codec::Lz4, lz4(&text), b""),
            (Codec::Snappy, snappy(&text), b""),
            (Codec::Lzf, lzf(&text), b"!\n"),
            (Codec::Plain, text.clone(), b""),
        ] {
            let (found, all) = read(&[once.clone(), once.clone()].concat());
            let expected = [&text[..], tail].concat().repeat(2);
            assert_eq!((found, all.ok()), (codec, Some(expected)));
        }
    }

    #[test]
    fn truncated_stream_returns_its_complete_chunks() {
        let text = b"0123456789abcdef\n".repeat(2000);
        for bytes in [lz4(&text), snappy(&text)] {
            let twice = [&bytes[..], &bytes[..bytes.len() - 1]].concat();
            let (_, mut reader) = open(&twice[..]).expect("opened");
            let mut whole = vec![0; text.len()];
            reader.read_exact(&mut whole).expect("the first stream");
            assert_eq!(whole, text);
            let end = reader.read(&mut [0; 9]).expect_err("cut");
            assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn false_lengths_are_rejected_without_allocating() {
        let mut lying = SNAPPY_MAGIC.to_vec();
        lying.extend([0, 0, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0]);
        assert_eq!(read(&lying).1.map_err(|e| e.kind()), Err(io::ErrorKind::InvalidData));
        let mut lying = lz4(b"x");
        lying[13..17].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(read(&lying).1.map_err(|e| e.kind()), Err(io::ErrorKind::InvalidData));
    }
}
