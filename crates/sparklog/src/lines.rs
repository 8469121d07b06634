//! The lines of a log, in memory that is bounded whatever the log holds.
//!
//! A line is an event. Plans of SQL executions make lines of megabytes; a line
//! beyond [`MAX_LINE_BYTES`] is passed without being held, and said.

use std::io::{self, Read};

/// Longest line that is read. Real ones stay under a tenth of it.
pub const MAX_LINE_BYTES: usize = 64 << 20;
/// A line that goes on for so long ends the reading: no log has such lines, and
/// a few kilobytes of compressed bytes could otherwise keep us busy for hours.
const ENDLESS_LINE_BYTES: u64 = 8 << 30;
const FIRST_BUFFER_BYTES: usize = 1 << 18;

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A line, without its end.
    Whole(&'a [u8]),
    /// The last one, which has no end: cut, or its writer left it out.
    Unended(&'a [u8]),
    /// One that is too long; how long it is.
    TooLong(u64),
}

/// Reads lines.
pub struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    /// What was read and not yet handed out is `buffer[begin..end]`.
    begin: usize,
    end: usize,
    /// Lines handed out.
    pub lines: u64,
    /// Bytes handed out, line ends included.
    pub bytes: u64,
}

impl<R: Read> Lines<R> {
    /// Of `reader`.
    pub fn new(reader: R) -> Lines<R> {
        Lines { reader, buffer: vec![0; FIRST_BUFFER_BYTES], begin: 0, end: 0, lines: 0, bytes: 0 }
    }

    /// The next line; `None` at the end.
    ///
    /// # Errors
    /// What the reader says, once all that came before it was handed out.
    pub fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        let mut looked = 0;
        loop {
            let held = &self.buffer[self.begin..self.end];
            if let Some(at) = memchr::memchr(b'\n', &held[looked..]) {
                return Ok(Some(Line::Whole(self.hand_out(looked + at, 1))));
            }
            looked = held.len();
            if looked >= MAX_LINE_BYTES {
                return self.too_long().map(Some);
            }
            if self.fill()? == 0 {
                let rest = self.hand_out(looked, 0);
                return Ok(Some(Line::Unended(rest)).filter(|_| looked > 0));
            }
        }
    }

    fn hand_out(&mut self, length: usize, ending: usize) -> &[u8] {
        let begin = self.begin;
        self.begin += length + ending;
        self.bytes += (length + ending) as u64;
        self.lines += u64::from(length + ending > 0);
        &self.buffer[begin..begin + length]
    }

    /// Reads more behind what is held; how much came.
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

    /// Passes the rest of a line of which a buffer is full.
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
                format!("line {} goes on for more than {ENDLESS_LINE_BYTES} bytes", self.lines),
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

    /// Hands out its bytes in pieces of given lengths, over and over.
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
    fn lines_are_the_same_however_they_arrive() {
        let long = "y".repeat(FIRST_BUFFER_BYTES * 3);
        let text = format!("one\n\n{long}\ntwo\nrest");
        for piece in [1, 7, 4096, 1 << 20] {
            let mut lines = Lines::new(Pieces(text.as_bytes(), piece));
            let mut found = Vec::new();
            while let Some(line) = lines.next().expect("read") {
                found.push(match line {
                    Line::Whole(line) => String::from_utf8_lossy(line).into_owned(),
                    Line::Unended(line) => format!("{}…", String::from_utf8_lossy(line)),
                    Line::TooLong(length) => length.to_string(),
                });
            }
            assert_eq!(found, ["one", "", &long, "two", "rest…"]);
            assert_eq!((lines.lines, lines.bytes), (5, text.len() as u64));
        }
    }

    #[test]
    fn a_line_beyond_the_limit_is_passed_and_not_held() {
        let endless = io::repeat(b'x').take(3 * MAX_LINE_BYTES as u64);
        let mut lines = Lines::new(b"a\n".chain(endless).chain(&b"\nb\n"[..]));
        assert_eq!(lines.next().expect("read"), Some(Line::Whole(b"a")));
        assert_eq!(lines.next().expect("read"), Some(Line::TooLong(3 * MAX_LINE_BYTES as u64 + 1)));
        assert!(lines.buffer.capacity() <= MAX_LINE_BYTES / 8);
        assert_eq!(lines.next().expect("read"), Some(Line::Whole(b"b")));
        assert_eq!(lines.next().expect("read"), None);
    }
}
