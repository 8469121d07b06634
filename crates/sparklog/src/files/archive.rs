//! Reader of the ZIP archives in which a History Server sends logs.
//!
//! The entries are the files of one log, with their paths in the log folder. Only the features that Java's
//! `ZipOutputStream` uses are supported: stored and deflated entries, located by the central directory at the
//! archive's end, since the local headers do not have the lengths.

use std::io::{self, Read, Seek, SeekFrom};

/// A file in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Path, separated by `/`.
    pub name: String,
    compressed: u64,
    deflated: bool,
    header_at: u64,
}

/// Maximum length of the comment after the end of the central directory.
const MAX_COMMENT_BYTES: u64 = 0xffff;
const DIRECTORY_END: [u8; 4] = *b"PK\x05\x06";
const DIRECTORY_END_64: [u8; 4] = *b"PK\x06\x06";
const DIRECTORY_ENTRY: [u8; 4] = *b"PK\x01\x02";
/// Maximum size of the central directory, enough for some hundred thousand entries.
const MAX_DIRECTORY_BYTES: u64 = 64 << 20;

/// Returns the files in an archive.
///
/// # Errors
/// Fails if the archive is invalid or cannot be read.
pub fn entries(archive: &mut (impl Read + Seek)) -> io::Result<Vec<Entry>> {
    let (at, length) = directory(archive)?;
    if length > MAX_DIRECTORY_BYTES {
        return Err(invalid("its directory exceeds 64 MiB"));
    }
    archive.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    archive.take(length).read_to_end(&mut bytes)?;
    let mut found = Vec::new();
    let mut rest = &bytes[..];
    while rest.starts_with(&DIRECTORY_ENTRY) {
        let (entry, length) = entry(rest).ok_or_else(|| invalid("its directory is truncated"))?;
        if !entry.name.ends_with('/') {
            found.push(entry);
        }
        rest = &rest[length..];
    }
    Ok(found)
}

/// Returns a reader of an entry's decompressed content.
///
/// # Errors
/// Fails if the entry's header is invalid or cannot be read.
pub fn open<'a>(archive: &'a mut (impl Read + Seek), entry: &Entry) -> io::Result<Box<dyn Read + 'a>> {
    archive.seek(SeekFrom::Start(entry.header_at))?;
    let mut header = [0; 30];
    archive.read_exact(&mut header)?;
    if !header.starts_with(b"PK\x03\x04") {
        return Err(invalid("an entry has no header"));
    }
    let skipped = u64::from(two(&header, 26)) + u64::from(two(&header, 28));
    archive.seek(SeekFrom::Current(skipped as i64))?;
    let bytes = archive.take(entry.compressed);
    Ok(if entry.deflated { Box::new(flate2::read::DeflateDecoder::new(bytes)) } else { Box::new(bytes) })
}

/// Returns the offset and the length of the central directory.
fn directory(archive: &mut (impl Read + Seek)) -> io::Result<(u64, u64)> {
    let length = archive.seek(SeekFrom::End(0))?;
    let tail_at = length.saturating_sub(22 + MAX_COMMENT_BYTES + 76);
    archive.seek(SeekFrom::Start(tail_at))?;
    let mut tail = Vec::new();
    archive.take(length - tail_at).read_to_end(&mut tail)?;
    let end = memchr::memmem::rfind(&tail, &DIRECTORY_END).filter(|at| at + 22 <= tail.len());
    let end = end.ok_or_else(|| invalid("it has no directory; the download may be incomplete"))?;
    let (length, at) = (four(&tail, end + 12), four(&tail, end + 16));
    // Numbers beyond 4 GiB are in the ZIP64 record before.
    if (length == u32::MAX || at == u32::MAX)
        && let Some(end) =
            memchr::memmem::rfind(&tail[..end], &DIRECTORY_END_64).filter(|at| at + 56 <= tail.len())
    {
        return Ok((eight(&tail, end + 48), eight(&tail, end + 40)));
    }
    Ok((u64::from(at), u64::from(length)))
}

/// Parses the directory entry at the start of `bytes`. Also returns the entry's length in the directory.
fn entry(bytes: &[u8]) -> Option<(Entry, usize)> {
    if bytes.len() < 46 {
        return None;
    }
    let (name, extra, comment) =
        (usize::from(two(bytes, 28)), usize::from(two(bytes, 30)), usize::from(two(bytes, 32)));
    let length = 46 + name + extra + comment;
    if bytes.len() < length {
        return None;
    }
    let mut entry = Entry {
        name: String::from_utf8_lossy(&bytes[46..46 + name]).into_owned(),
        compressed: u64::from(four(bytes, 20)),
        deflated: two(bytes, 10) == 8,
        header_at: u64::from(four(bytes, 42)),
    };
    let mut rest = &bytes[46 + name..46 + name + extra];
    while rest.len() >= 4 {
        let (id, size) = (two(rest, 0), usize::from(two(rest, 2)));
        let field = rest.get(4..4 + size)?;
        if id == 1 {
            large(field, four(bytes, 24) == u32::MAX, &mut entry);
        }
        rest = &rest[4 + size..];
    }
    Some((entry, length))
}

/// Reads the ZIP64 extra field, which holds, in this order, the numbers that do not fit their 32-bit fields.
fn large(field: &[u8], original_too: bool, entry: &mut Entry) {
    let mut at = if original_too { 8 } else { 0 };
    for number in [&mut entry.compressed, &mut entry.header_at] {
        if *number == u64::from(u32::MAX) && field.len() >= at + 8 {
            *number = eight(field, at);
            at += 8;
        }
    }
}

fn two(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn four(bytes: &[u8], at: usize) -> u32 {
    u32::from(two(bytes, at)) | u32::from(two(bytes, at + 2)) << 16
}

fn eight(bytes: &[u8], at: usize) -> u64 {
    u64::from(four(bytes, at)) | u64::from(four(bytes, at + 4)) << 32
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("invalid ZIP archive: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Cursor, Write};

    /// Builds an archive as Java writes it, with lengths after each entry and in the directory.
    fn zip(files: &[(&str, &[u8], bool)]) -> Vec<u8> {
        let (mut bytes, mut directory) = (Vec::new(), Vec::new());
        for (name, content, deflated) in files {
            let at = bytes.len() as u32;
            let method: u16 = if *deflated { 8 } else { 0 };
            bytes.extend([&b"PK\x03\x04\x14\0\x08\0"[..], &method.to_le_bytes(), &[0; 16]].concat());
            bytes.extend([&(name.len() as u16).to_le_bytes()[..], &[0, 0], name.as_bytes()].concat());
            let begin = bytes.len();
            if *deflated {
                let mut encoder = flate2::write::DeflateEncoder::new(&mut bytes, flate2::Compression::fast());
                encoder.write_all(content).expect("memory");
                encoder.finish().expect("memory");
            } else {
                bytes.extend(*content);
            }
            let length = ((bytes.len() - begin) as u32).to_le_bytes();
            directory
                .extend([&DIRECTORY_ENTRY[..], &[0; 6], &method.to_le_bytes(), &[0; 8], &length].concat());
            directory.extend((content.len() as u32).to_le_bytes());
            directory.extend([&(name.len() as u16).to_le_bytes()[..], &[0; 12]].concat());
            directory.extend([&at.to_le_bytes()[..], name.as_bytes()].concat());
        }
        let at = (bytes.len() as u32).to_le_bytes();
        let length = (directory.len() as u32).to_le_bytes();
        bytes.extend([&directory[..], &DIRECTORY_END, &[0; 8], &length, &at, &[0, 0]].concat());
        bytes
    }

    #[test]
    fn entries_round_trip() {
        let files: [(&str, &[u8], bool); 3] = [
            ("eventlog_v2_a/", b"", false),
            ("eventlog_v2_a/events_1_a", b"one\n", true),
            ("x", b"two", false),
        ];
        let mut archive = Cursor::new(zip(&files));
        let found = entries(&mut archive).expect("an archive");
        let read = |entry: &Entry| {
            let mut content = Vec::new();
            open(&mut archive.clone(), entry).expect("an entry").read_to_end(&mut content).expect("read");
            (entry.name.clone(), content)
        };
        let read: Vec<_> = found.iter().map(read).collect();
        let expected =
            [("eventlog_v2_a/events_1_a".to_owned(), b"one\n".to_vec()), ("x".to_owned(), b"two".to_vec())];
        assert_eq!(read, expected);
    }

    #[test]
    fn damaged_archives_are_rejected_without_panic() {
        let whole = zip(&[("a", b"content", true)]);
        for cut in 0..whole.len() {
            let refused = entries(&mut Cursor::new(&whole[..cut]));
            assert!(refused.is_err(), "cut at {cut}");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            let mut archive = Cursor::new(damaged);
            for entry in entries(&mut archive).unwrap_or_default() {
                let opened = open(&mut archive, &entry);
                let _ = opened.and_then(|mut content| content.read_to_end(&mut Vec::new()));
            }
        }
    }
}
