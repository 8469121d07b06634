//! Finds the records and fields of CSV text.

/// Characters that divide CSV text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Separators {
    /// One to four bytes.
    pub delimiter: Vec<u8>,
    pub quote: Option<u8>,
    /// Within quotes, before a quote that belongs to the value; mostly the quote itself.
    pub escape: Option<u8>,
    /// Starts a comment, which the rest of the line belongs to.
    pub comment: Option<u8>,
    /// True if lines end with a carriage return alone.
    pub carriage_return: bool,
}

impl Separators {
    /// Returns the separators of usual files with another delimiter.
    pub(crate) fn with_delimiter(delimiter: &[u8]) -> Self {
        Self {
            delimiter: delimiter.to_vec(),
            quote: Some(b'"'),
            escape: Some(b'"'),
            comment: None,
            carriage_return: false,
        }
    }
}

/// A field of a record, as positions in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field {
    pub start: usize,
    pub end: usize,
    pub quoted: bool,
    /// True if the text has escapes, which [`unescaped`] removes.
    pub escaped: bool,
}

/// The next record of a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A record that ends before this position, with its line end.
    Record(usize),
    /// A line without a value, or with a comment alone.
    Blank(usize),
    /// The text ends within the record.
    Incomplete,
    /// A quoted value is not closed, or something follows it; the record ends before this position.
    Malformed(usize, &'static str),
}

const PLAIN: u8 = 0;
const DELIMITER: u8 = 1;
const LINE_FEED: u8 = 2;
const CARRIAGE_RETURN: u8 = 3;
const COMMENT: u8 = 4;

/// Divides text into records.
#[derive(Debug, Clone)]
pub(crate) struct Splitter {
    separators: Separators,
    classes: [u8; 256],
}

impl Splitter {
    pub(crate) fn new(separators: Separators) -> Self {
        let mut classes = [PLAIN; 256];
        if let Some(comment) = separators.comment {
            classes[usize::from(comment)] = COMMENT;
        }
        if let Some(first) = separators.delimiter.first() {
            classes[usize::from(*first)] = DELIMITER;
        }
        classes[usize::from(b'\n')] = LINE_FEED;
        classes[usize::from(b'\r')] = CARRIAGE_RETURN;
        Self { separators, classes }
    }

    pub(crate) fn separators(&self) -> &Separators {
        &self.separators
    }

    /// Finds the record that starts at `start`. `last` tells that no text follows.
    pub(crate) fn next(&self, text: &[u8], start: usize, last: bool, fields: &mut Vec<Field>) -> Next {
        fields.clear();
        let mut at = start;
        loop {
            let field = match self.field(text, at, last) {
                Ok(field) => field,
                Err(end) => return end,
            };
            at = field.1;
            fields.push(field.0);
            match text.get(at).map(|byte| self.classes[usize::from(*byte)]) {
                Some(DELIMITER) => at += self.separators.delimiter.len(),
                None if !last => return Next::Incomplete,
                None => {
                    return if fields.len() == 1 && at == start { Next::Blank(at) } else { Next::Record(at) };
                }
                class => {
                    let (end, comment) = match class {
                        Some(COMMENT) => match self.line_end(text, at) {
                            Some(end) => (end, true),
                            None if last => (text.len(), true),
                            None => return Next::Incomplete,
                        },
                        Some(CARRIAGE_RETURN) if text.get(at + 1) == Some(&b'\n') => (at + 2, false),
                        // The line feed may follow.
                        Some(CARRIAGE_RETURN) if at + 1 == text.len() && !last => return Next::Incomplete,
                        _ => (at + 1, false),
                    };
                    let blank = fields.len() == 1 && !fields[0].quoted && {
                        let only = &text[fields[0].start..fields[0].end];
                        only.is_empty() || (comment && only.trim_ascii().is_empty())
                    };
                    return if blank { Next::Blank(end) } else { Next::Record(end) };
                }
            }
        }
    }

    /// Returns the field that starts at `at`, and the position after it.
    fn field(&self, text: &[u8], at: usize, last: bool) -> Result<(Field, usize), Next> {
        if let Some(quote) = self.separators.quote {
            let mut opening = at;
            while text.get(opening) == Some(&b' ') && self.separators.delimiter != b" " {
                opening += 1;
            }
            if text.get(opening) == Some(&quote) {
                return self.quoted(text, opening, quote, last);
            }
        }
        let mut end = at;
        while let Some(byte) = text.get(end) {
            let class = self.classes[usize::from(*byte)];
            if class != PLAIN && self.ends_field(text, end, class) {
                break;
            }
            end += 1;
        }
        // A delimiter of several bytes may be cut.
        Ok((Field { start: at, end, quoted: false, escaped: false }, end))
    }

    /// Returns true if a byte that is not plain ends a field.
    fn ends_field(&self, text: &[u8], at: usize, class: u8) -> bool {
        match class {
            DELIMITER => {
                self.separators.delimiter.len() == 1 || text[at..].starts_with(&self.separators.delimiter)
            }
            CARRIAGE_RETURN => {
                self.separators.carriage_return || matches!(text.get(at + 1), Some(b'\n') | None)
            }
            _ => true,
        }
    }

    fn quoted(&self, text: &[u8], opening: usize, quote: u8, last: bool) -> Result<(Field, usize), Next> {
        let start = opening + 1;
        let (mut at, mut escaped) = (start, false);
        let end = loop {
            let Some(byte) = text.get(at) else {
                return Err(if last {
                    Next::Malformed(text.len(), "a quoted value is not closed before the end of the file")
                } else {
                    Next::Incomplete
                });
            };
            if Some(*byte) == self.separators.escape {
                match text.get(at + 1) {
                    Some(next)
                        if *next == quote || (Some(*next) == self.separators.escape && *byte != quote) =>
                    {
                        escaped = true;
                        at += 2;
                        continue;
                    }
                    None if !last => return Err(Next::Incomplete),
                    _ => {}
                }
            }
            if *byte == quote {
                break at;
            }
            at += 1;
        };
        let mut after = end + 1;
        while text.get(after) == Some(&b' ') && self.separators.delimiter != b" " {
            after += 1;
        }
        if let Some(byte) = text.get(after) {
            let class = self.classes[usize::from(*byte)];
            if class == PLAIN || !self.ends_field(text, after, class) {
                let line_end = self.line_end(text, after);
                return Err(match line_end {
                    Some(end) => Next::Malformed(end, "text follows a quoted value"),
                    None if last => Next::Malformed(text.len(), "text follows a quoted value"),
                    None => Next::Incomplete,
                });
            }
        }
        Ok((Field { start, end, quoted: true, escaped }, after))
    }

    /// Returns the position after the next line end.
    pub(crate) fn line_end(&self, text: &[u8], from: usize) -> Option<usize> {
        let end = if self.separators.carriage_return { b'\r' } else { b'\n' };
        text[from..].iter().position(|byte| *byte == end).map(|at| from + at + 1)
    }
}

/// Returns the value of a field with escapes, without them.
pub(crate) fn unescaped<'a>(text: &[u8], separators: &Separators, buffer: &'a mut Vec<u8>) -> &'a [u8] {
    buffer.clear();
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let next = text.get(at + 1);
        if Some(*byte) == separators.escape
            && next.is_some()
            && (next == separators.quote.as_ref() || next == separators.escape.as_ref())
        {
            at += 1;
        }
        buffer.push(text[at]);
        at += 1;
    }
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(separators: &Separators, text: &str) -> Vec<Vec<String>> {
        let splitter = Splitter::new(separators.clone());
        let (mut at, mut fields, mut found) = (0, Vec::new(), Vec::new());
        while at < text.len() {
            match splitter.next(text.as_bytes(), at, true, &mut fields) {
                Next::Record(end) => {
                    let value = |field: &Field| {
                        let raw = &text.as_bytes()[field.start..field.end];
                        let mut buffer = Vec::new();
                        let value = if field.escaped { unescaped(raw, separators, &mut buffer) } else { raw };
                        String::from_utf8(value.to_vec()).unwrap()
                    };
                    found.push(fields.iter().map(value).collect());
                    at = end;
                }
                Next::Blank(end) => {
                    found.push(Vec::new());
                    at = end;
                }
                Next::Malformed(end, why) => {
                    found.push(vec![why.to_string()]);
                    at = end;
                }
                Next::Incomplete => unreachable!("no text follows"),
            }
        }
        found
    }

    #[test]
    fn records_have_their_fields() {
        let comma = Separators::with_delimiter(b",");
        let all = records(&comma, "a,b\r\n1, \"x, \"\"y\"\"\" ,\n\n\"line\nend\",\"\"");
        let expected = [vec!["a", "b"], vec!["1", "x, \"y\"", ""], vec![], vec!["line\nend", ""]];
        assert_eq!(all, expected);
        let backslash = Separators { escape: Some(b'\\'), ..comma.clone() };
        assert_eq!(records(&backslash, "\"a\\\"b\\\\\",2"), [["a\"b\\", "2"]]);
        let wide = Separators::with_delimiter(b"||");
        assert_eq!(records(&wide, "a||b|c\n"), [["a", "b|c"]]);
        let comment = Separators { comment: Some(b'#'), ..comma.clone() };
        assert_eq!(records(&comment, "# x\n1,2 # y\n"), [vec![], vec!["1", "2 "]]);
        let mac = Separators { carriage_return: true, ..comma };
        assert_eq!(records(&mac, "a,b\r1,2\r"), [["a", "b"], ["1", "2"]]);
    }

    #[test]
    fn text_that_ends_within_a_record_is_incomplete() {
        let splitter = Splitter::new(Separators::with_delimiter(b","));
        let mut fields = Vec::new();
        for text in ["a,b", "a,\"b", "a,\"b\"", "a,\"b\"\"", "a,b\r"] {
            assert_eq!(splitter.next(text.as_bytes(), 0, false, &mut fields), Next::Incomplete, "{text}");
        }
        let malformed = splitter.next(b"\"a\" b,c\nd", 0, false, &mut fields);
        assert_eq!(malformed, Next::Malformed(8, "text follows a quoted value"));
        let open = splitter.next(b"\"a", 0, true, &mut fields);
        assert!(matches!(open, Next::Malformed(2, _)));
    }
}
