//! A line reader with bounded memory.
//!
//! Plans of SQL executions can make lines of several megabytes. A line beyond [`MAX_LINE_BYTES`] is skipped
//! without being buffered, and reported.

use std::io::{self, Read};

/// Maximum length of a line. Lines of real logs stay below a tenth of it.
pub const MAX_LINE_BYTES: usize = 64 << 20;
/// Length at which a line stops the reader. Real logs have no such lines, but a few kilobytes of compressed
/// data could otherwise take hours to skip.
const ENDLESS_LINE_BYTES: u64 = 8 << 30;
const FIRST_BUFFER_BYTES: usize = 1 << 18;

/// A line of a log.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A complete line, without its terminator.
    Whole(&'a [u8]),
    /// The last line, without a terminator: it may be truncated.
    Unterminated(&'a [u8]),
    /// A line that exceeds the limit, with its length.
    TooLong(u64),
}

/// A reader of lines.
pub struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    /// Start of the unread bytes, which are `buffer[begin..end]`.
    begin: usize,
    end: usize,
    /// Number of lines returned.
    pub lines: u64,
    /// Number of bytes returned, including line terminators.
    pub bytes: u64,
}

impl<R: Read> Lines<R> {
    /// Creates a reader of the lines of `reader`.
    pub fn new(reader: R) -> Lines<R> {
        Lines { reader, buffer: vec![0; FIRST_BUFFER_BYTES], begin: 0, end: 0, lines: 0, bytes: 0 }
    }

    /// Returns the next line, or `None` at the end.
    ///
    /// # Errors
    /// Returns errors of the reader, after all lines before it.
    pub fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        let mut looked = 0;
        loop {
            let held = &self.buffer[self.begin..self.end];
            if let Some(at) = memchr::memchr(b'\n', &held[looked..]) {
                return Ok(Some(Line::Whole(self.consume(looked + at, 1))));
            }
            looked = held.len();
            if looked >= MAX_LINE_BYTES {
                return self.too_long().map(Some);
            }
            if self.fill()? == 0 {
                let rest = self.consume(looked, 0);
                return Ok(Some(Line::Unterminated(rest)).filter(|_| looked > 0));
            }
        }
    }

    fn consume(&mut self, length: usize, ending: usize) -> &[u8] {
        let begin = self.begin;
        self.begin += length + ending;
        self.bytes += (length + ending) as u64;
        self.lines += u64::from(length + ending > 0);
        &self.buffer[begin..begin + length]
    }

    /// Reads more bytes into the buffer and returns their number.
    fn fill(&mut self) -> io::Result<usize> {
        if self.begin > 0 {
            self.buffer.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        if self.end == self.buffer.len() {
            self.buffer.resize((self.end * 2).min(MAX_LINE_BYTES + FIRST_BUFFER_BYTES), 0);
        }
        loop {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(read) => {
                    self.end += read;
                    return Ok(read);
                }
            }
        }
    }

    /// Skips the rest of a line that fills the buffer.
    fn too_long(&mut self) -> io::Result<Line<'_>> {
        let mut length = 0;
        self.lines += 1;
        loop {
            let held = &self.buffer[self.begin..self.end];
            let found = memchr::memchr(b'\n', held);
            let passed = found.map_or(held.len(), |at| at + 1);
            length += passed as u64;
            self.begin += passed;
            self.bytes += passed as u64;
            if found.is_some() || length > ENDLESS_LINE_BYTES || self.fill()? == 0 {
                break;
            }
        }
        if length > ENDLESS_LINE_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("line {} exceeds {ENDLESS_LINE_BYTES} bytes", self.lines),
            ));
        }
        self.buffer.truncate(FIRST_BUFFER_BYTES.max(self.end));
        self.buffer.shrink_to_fit();
        Ok(Line::TooLong(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that returns its bytes in pieces of a given length.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let length = self.1.min(into.len()).min(self.0.len());
            into[..length].copy_from_slice(&self.0[..length]);
            self.0 = &self.0[length..];
            Ok(length)
        }
    }

    #[test]
    fn lines_do_not_depend_on_read_sizes() {
        let long = "y".repeat(FIRST_BUFFER_BYTES * 3);
        let text = format!("one\n\n{long}\ntwo\nrest");
        for piece in [1, 7, 4096, 1 << 20] {
            let mut lines = Lines::new(Pieces(text.as_bytes(), piece));
            let mut found = Vec::new();
            while let Some(line) = lines.next().expect("read") {
                found.push(match line {
                    Line::Whole(line) => String::from_utf8_lossy(line).into_owned(),
                    Line::Unterminated(line) => format!("{}…", String::from_utf8_lossy(line)),
                    Line::TooLong(length) => length.to_string(),
                });
            }
            assert_eq!(found, ["one", "", &long, "two", "rest…"]);
            assert_eq!((lines.lines, lines.bytes), (5, text.len() as u64));
        }
    }

    #[test]
    fn line_beyond_the_limit_is_skipped_without_buffering() {
        let endless = io::repeat(b'x').take(3 * MAX_LINE_BYTES as u64);
        let mut lines = Lines::new(b"a\n".chain(endless).chain(&b"\nb\n"[..]));
        assert_eq!(lines.next().expect("read"), Some(Line::Whole(b"a")));
        assert_eq!(lines.next().expect("read"), Some(Line::TooLong(3 * MAX_LINE_BYTES as u64 + 1)));
        assert!(lines.buffer.capacity() <= MAX_LINE_BYTES / 8);
        assert_eq!(lines.next().expect("read"), Some(Line::Whole(b"b")));
        assert_eq!(lines.next().expect("read"), None);
    }
}
