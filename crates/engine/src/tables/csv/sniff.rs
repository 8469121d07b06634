//! Finds the dialect, the header and the types of a CSV file from a sample.
//!
//! The dialect is the one that divides the first lines into the most even records. The header is a first line that does
//! not fit the types of the others. Types come from the whole sample, which has blocks from all over the file.

use std::collections::HashMap;

use bytes::Bytes;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result};

use crate::scan::text::newline_in_quotes;
use crate::tables::csv::records::{Field, Next, Separators, Splitter, unescaped};
use crate::tables::csv::types::Guess;
use crate::tables::csv::{CsvOptions, Encoding};
use crate::tables::text::line_ends;
use crate::tables::text::sample::Sample;

/// Number of records that the dialect is chosen by.
const DIALECT_RECORDS: usize = 1000;

/// The dialect, header and types of a file.
#[derive(Debug)]
pub(crate) struct Sniffed {
    pub separators: Separators,
    /// Position of the header, or of the first record without one, in the sample.
    pub start: usize,
    pub first_record: u64,
    pub has_header: bool,
    pub names: Vec<String>,
    pub guesses: Vec<Guess>,
    /// True if a quoted value has a line end.
    pub has_line_ends: bool,
}

/// Examines a file.
///
/// # Errors
/// Returns an error if the file is not text in its encoding, or does not have the columns of the options.
pub(crate) fn sniff(place: &str, sample: &Sample, options: &CsvOptions) -> Result<Sniffed> {
    check_text(place, sample, options)?;
    let text = &sample.head[..];
    let mark = if text.starts_with(b"\xef\xbb\xbf") && options.encoding == Encoding::Utf8 { 3 } else { 0 };
    let carriage_return = !text.contains(&b'\n') && text.contains(&b'\r') && sample.whole;
    let start = after_lines(text, mark, options.skip.unwrap_or(0), carriage_return);
    let dialect = choose(text, start, sample.whole, options, carriage_return);
    let splitter = Splitter::new(dialect.separators);
    let mut rows = Rows { splitter: &splitter, fields: Vec::new(), buffer: Vec::new() };
    let mut guesses: Vec<Guess> = (0..dialect.columns).map(|_| new_guess(options)).collect();
    let limit = usize::try_from(options.sample_rows).unwrap_or(usize::MAX);
    let mut first: Option<(Vec<Option<String>>, usize)> = None;
    let mut seen = 0;
    rows.each(text, dialect.start, sample.whole, |values, end| {
        match &first {
            // The first line may be the header.
            None => first = Some((texts(values, options), end)),
            Some(_) if values.len() <= guesses.len() => see(&mut guesses, values, options),
            Some(_) => {}
        }
        seen += 1;
        seen <= limit
    });
    for block in sample.blocks.iter().filter(|_| seen <= limit) {
        let from = splitter.line_end(block, 0).unwrap_or(block.len());
        rows.each(block, from, false, |values, _| {
            // A block may start within a quoted value.
            if values.len() == guesses.len() {
                see(&mut guesses, values, options);
            }
            true
        });
    }
    // Without records, only blank lines are left.
    let (header, after_header) =
        first.unwrap_or((Vec::new(), if sample.whole { text.len() } else { dialect.start }));
    let no_records = header.is_empty();
    let has_header = options.header.unwrap_or_else(|| is_header(&header, &guesses, options, seen));
    if !has_header {
        let values: Vec<Option<&[u8]>> =
            header.iter().map(|value| value.as_deref().map(str::as_bytes)).collect();
        guesses
            .iter_mut()
            .zip(&values)
            .for_each(|(guess, value)| value.iter().for_each(|value| guess.see(value)));
    }
    let names = names(&header, has_header, dialect.columns.max(header.len()), options);
    guesses.resize_with(names.len(), || new_guess(options));
    let in_quotes = |block: &Bytes| newline_in_quotes(&block[splitter.line_end(block, 0).unwrap_or(0)..]);
    let has_quotes = splitter.separators().quote == Some(b'"');
    Ok(Sniffed {
        has_line_ends: if has_quotes {
            newline_in_quotes(text) || sample.blocks.iter().any(in_quotes)
        } else {
            splitter.separators().quote.is_some()
        },
        separators: splitter.separators().clone(),
        start: dialect.start,
        first_record: if has_header || no_records { after_header } else { dialect.start } as u64,
        has_header,
        names,
        guesses,
    })
}

fn new_guess(options: &CsvOptions) -> Guess {
    let mut guess = Guess::new(&options.values, options.has_date_format, options.has_timestamp_format);
    if let Some(candidates) = &options.candidates {
        guess.only(candidates);
    }
    guess
}

/// Refuses a file whose start is not UTF-8.
fn check_text(place: &str, sample: &Sample, options: &CsvOptions) -> Result<()> {
    let Err(error) = std::str::from_utf8(&sample.head) else { return Ok(()) };
    // The sample may end within a character.
    if options.ignore_errors || (error.error_len().is_none() && !sample.whole) {
        return Ok(());
    }
    let line = line_ends(&sample.head[..error.valid_up_to()]) + 1;
    Err(DataFusionError::Execution(format!(
        "cannot read {place}, line {line}: the text is not UTF-8; give its encoding: read_csv('{place}', encoding = \
         'latin-1'), or 'utf-16'"
    )))
}

/// Returns the position after some lines.
fn after_lines(text: &[u8], from: usize, lines: usize, carriage_return: bool) -> usize {
    let end = if carriage_return { b'\r' } else { b'\n' };
    let mut at = from;
    for _ in 0..lines {
        match text[at..].iter().position(|byte| *byte == end) {
            Some(line) => at += line + 1,
            None => return text.len(),
        }
    }
    at
}

/// A way to divide the text, and the records that it gives.
struct Dialect {
    separators: Separators,
    /// Number of columns.
    columns: usize,
    /// Position of the first record, or the header.
    start: usize,
    /// How even the records are.
    score: f64,
}

fn choose(text: &[u8], start: usize, whole: bool, options: &CsvOptions, carriage_return: bool) -> Dialect {
    let delimiters = match &options.delimiter {
        Some(delimiter) => vec![delimiter.clone()],
        None => [b",", b"|", b";", b"\t"].map(|delimiter: &[u8; 1]| delimiter.to_vec()).to_vec(),
    };
    let quotes: Vec<Option<u8>> = match options.quote {
        Some(quote) => vec![quote],
        None => vec![Some(b'"'), Some(b'\''), None],
    };
    let comments = match options.comment {
        Some(comment) => vec![comment],
        None if text.starts_with(b"#") || text.windows(2).any(|pair| pair == b"\n#") => {
            vec![None, Some(b'#')]
        }
        None => vec![None],
    };
    let mut best: Option<Dialect> = None;
    for quote in quotes {
        // Without any, another quote changes nothing.
        if options.quote.is_none() && quote.is_some_and(|quote| quote != b'"' && !text.contains(&quote)) {
            continue;
        }
        let escapes = match (options.escape, quote) {
            (Some(escape), _) => vec![escape],
            (None, Some(quote)) if text.contains(&b'\\') => vec![Some(quote), Some(b'\\')],
            (None, quote) => vec![quote],
        };
        for escape in escapes {
            for delimiter in &delimiters {
                for comment in &comments {
                    let separators = Separators {
                        delimiter: delimiter.clone(),
                        quote,
                        escape,
                        comment: *comment,
                        carriage_return,
                    };
                    let dialect = rate(separators, text, start, whole, options);
                    let better = best.as_ref().is_none_or(|best| {
                        dialect.score > best.score
                            || (dialect.score == best.score && dialect.columns > best.columns)
                    });
                    if better {
                        best = Some(dialect);
                    }
                }
            }
        }
    }
    let separators = Separators { carriage_return, ..Separators::with_delimiter(b",") };
    best.unwrap_or(Dialect { separators, columns: 1, start, score: 0.0 })
}

/// Divides the first records and rates how even they are.
fn rate(separators: Separators, text: &[u8], start: usize, whole: bool, options: &CsvOptions) -> Dialect {
    let splitter = Splitter::new(separators);
    let (mut at, mut fields) = (start, Vec::new());
    // Number of fields, zero for a malformed record, and the start.
    let mut records: Vec<(usize, usize)> = Vec::new();
    let mut blank_lines = 0;
    while records.len() < DIALECT_RECORDS && at < text.len() {
        match splitter.next(text, at, whole, &mut fields) {
            Next::Record(end) => {
                records.push((fields.len(), at));
                at = end;
            }
            Next::Blank(end) => {
                blank_lines += usize::from(records.is_empty());
                at = end;
            }
            Next::Malformed(end, _) => {
                records.push((0, at));
                at = end;
            }
            Next::Incomplete => {
                // A quote that is never closed makes one record of everything.
                if records.is_empty() {
                    records.push((0, at));
                }
                break;
            }
        }
    }
    let mut counts: HashMap<usize, usize> = HashMap::new();
    for (count, _) in &records {
        *counts.entry(*count).or_default() += 1;
    }
    let usual =
        counts.iter().filter(|(count, _)| **count > 0).max_by_key(|(count, times)| (**times, **count));
    let mut columns = usual.map_or(1, |(count, _)| *count);
    if options.null_padding {
        columns = records.iter().map(|(count, _)| *count).max().unwrap_or(1).max(1);
    }
    // A report's title may precede the table.
    let mut skipped = 0;
    if options.skip.is_none() && !options.null_padding && columns > 1 {
        skipped = records.iter().position(|(count, _)| *count == columns).unwrap_or(0);
    }
    let rest = &records[skipped..];
    let even = |count: usize| count == columns || (options.null_padding && count > 0);
    let fits = rest.iter().filter(|(count, _)| even(*count)).count();
    let mut score = if rest.is_empty() { 0.5 } else { fits as f64 / rest.len() as f64 };
    if columns == 1 {
        score *= 0.6;
    }
    if skipped > 0 {
        score *= 0.9;
    }
    if options.columns.as_ref().is_some_and(|wanted| wanted.len() == columns) {
        score += 1.0;
    }
    let first = records.get(skipped).map_or(start, |(_, at)| *at);
    let start = if skipped > 0 || blank_lines > 0 { first } else { start };
    Dialect { separators: splitter.separators().clone(), columns, start, score }
}

/// Reads records of a sample.
struct Rows<'a> {
    splitter: &'a Splitter,
    fields: Vec<Field>,
    buffer: Vec<u8>,
}

impl Rows<'_> {
    /// Calls `visit` with the values of each record and the position after it, until it returns false.
    fn each(
        &mut self,
        text: &[u8],
        start: usize,
        whole: bool,
        mut visit: impl FnMut(&[(Vec<u8>, bool)], usize) -> bool,
    ) {
        let mut at = start;
        let mut values: Vec<(Vec<u8>, bool)> = Vec::new();
        while at < text.len() {
            match self.splitter.next(text, at, whole, &mut self.fields) {
                Next::Record(end) => {
                    values.clear();
                    for field in &self.fields {
                        let raw = &text[field.start..field.end];
                        let value = if field.escaped {
                            unescaped(raw, self.splitter.separators(), &mut self.buffer).to_vec()
                        } else {
                            raw.to_vec()
                        };
                        values.push((value, field.quoted));
                    }
                    if !visit(&values, end) {
                        return;
                    }
                    at = end;
                }
                Next::Blank(end) | Next::Malformed(end, _) => at = end,
                Next::Incomplete => return,
            }
        }
    }
}

fn is_null(value: &[u8], quoted: bool, options: &CsvOptions) -> bool {
    (!quoted || options.allow_quoted_nulls) && options.nulls.iter().any(|null| null == value)
}

fn see(guesses: &mut [Guess], values: &[(Vec<u8>, bool)], options: &CsvOptions) {
    for (guess, (value, quoted)) in guesses.iter_mut().zip(values) {
        if !is_null(value, *quoted, options) && !guess.is_text() {
            guess.see(value);
        }
    }
}

/// Returns the values of a record as text; `None` is NULL.
fn texts(values: &[(Vec<u8>, bool)], options: &CsvOptions) -> Vec<Option<String>> {
    let text = |(value, quoted): &(Vec<u8>, bool)| {
        (!is_null(value, *quoted, options) && !value.is_empty())
            .then(|| String::from_utf8_lossy(value).into_owned())
    };
    values.iter().map(text).collect()
}

/// Returns true if the first record is a header: it does not fit the types of the others, or all are text.
fn is_header(first: &[Option<String>], guesses: &[Guess], options: &CsvOptions, records: usize) -> bool {
    if first.is_empty() {
        return false;
    }
    let declared = |index: usize| options.columns.as_ref().and_then(|columns| columns.get(index));
    if let Some(columns) = &options.columns {
        let same = |(value, (name, _)): (&Option<String>, &(String, DataType))| {
            value.as_ref().is_some_and(|value| value.trim().eq_ignore_ascii_case(name))
        };
        if first.iter().zip(columns).all(same) {
            return true;
        }
    }
    let (mut all_text, mut fits, mut has_null) = (true, true, false);
    for (index, value) in first.iter().enumerate() {
        let Some(value) = value else {
            has_null = true;
            continue;
        };
        let fits_guess = match (declared(index), guesses.get(index)) {
            (Some((_, data_type)), _) => {
                let mut column = crate::tables::text::columns::column(data_type, &options.values, 1);
                let text = matches!(data_type, DataType::Utf8 | DataType::Utf8View);
                all_text &= text;
                text || column.as_mut().is_none_or(|column| column.append(value.as_bytes()))
            }
            (None, Some(guess)) => {
                // A single record has nothing to compare with.
                let (data_type, _) = match records {
                    0 | 1 => {
                        let mut own = guess.clone();
                        own.see(value.as_bytes());
                        own.decide()
                    }
                    _ => guess.decide(),
                };
                let text = data_type == DataType::Utf8View;
                all_text &= text;
                let mut with = guess.clone();
                with.see(value.as_bytes());
                text || with.decide().0 == data_type
                    || (data_type == DataType::Float64 && with.decide().0 == DataType::Float64)
            }
            (None, None) => continue,
        };
        fits &= fits_guess;
    }
    !fits || (all_text && !(has_null && records > 1 && first.iter().all(Option::is_none)))
}

/// Returns the names of the columns.
fn names(header: &[Option<String>], has_header: bool, count: usize, options: &CsvOptions) -> Vec<String> {
    let own = |index: usize| {
        let name = header.get(index).filter(|_| has_header).and_then(|name| name.as_deref());
        let name = name.map(str::trim).filter(|name| !name.is_empty() || options.normalize_names);
        match name {
            Some(name) if options.normalize_names => normalized(name),
            Some(name) => name.to_string(),
            None => format!("column{index}"),
        }
    };
    let wanted = (0..count).map(|index| options.names.get(index).cloned().unwrap_or_else(|| own(index)));
    unique(wanted)
}

/// Adds numbers to names that differ from an earlier one in case alone, or not at all.
pub(crate) fn unique(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut used: HashMap<String, usize> = HashMap::new();
    let mut all = Vec::new();
    for name in names {
        let mut candidate = name.clone();
        while used.contains_key(&candidate.to_lowercase()) {
            let times = used.entry(name.to_lowercase()).or_default();
            *times += 1;
            candidate = format!("{name}_{times}");
        }
        used.insert(candidate.to_lowercase(), 0);
        all.push(candidate);
    }
    all
}

/// Returns a name in lower case, with letters, digits and underscores only.
fn normalized(name: &str) -> String {
    let kept: String = name
        .trim()
        .chars()
        .flat_map(char::to_lowercase)
        .filter_map(|c| match c {
            ' ' | '_' => Some('_'),
            c if c.is_ascii_alphanumeric() => Some(c),
            c => plain_letter(c),
        })
        .collect();
    let keyword = [
        "select", "from", "where", "group", "order", "table", "limit", "union", "all", "and", "or", "not",
        "in", "as",
    ];
    match kept.chars().next() {
        None => "_".to_string(),
        Some(first) if first.is_ascii_digit() || keyword.contains(&kept.as_str()) => format!("_{kept}"),
        Some(_) => kept,
    }
}

/// Returns a letter without its accent.
fn plain_letter(letter: char) -> Option<char> {
    Some(match letter {
        'à'..='å' => 'a',
        'ç' => 'c',
        'è'..='ë' => 'e',
        'ì'..='ï' => 'i',
        'ñ' => 'n',
        'ò'..='ö' => 'o',
        'ù'..='ü' => 'u',
        'ý' | 'ÿ' => 'y',
        _ => return None,
    })
}
