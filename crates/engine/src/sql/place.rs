//! Places in the text of statements, for messages.

use datafusion::common::{DataFusionError, Diagnostic, Span as DiagnosticSpan};
use datafusion::sql::sqlparser::tokenizer::{Location, Span};

/// Columns of a line that a message shows.
const SHOWN: usize = 76;

/// Adds the line of a span, with the span marked, to a message.
///
/// ```text
/// cannot find column nam; did you mean name?
///   line 2, column 8: SELECT nam FROM t
///                            ^^^
/// ```
pub(crate) fn mark(text: &str, span: Span, message: &str) -> String {
    let (start, end) = (span.start, span.end);
    let Some(line) = usize::try_from(start.line).ok().and_then(|n| text.lines().nth(n.checked_sub(1)?))
    else {
        return message.to_string();
    };
    // Tabs would shift the mark.
    let characters: Vec<char> = line.chars().map(|c| if c == '\t' { ' ' } else { c }).collect();
    let at = usize::try_from(start.column).unwrap_or(1).saturating_sub(1).min(characters.len());
    let until = match end.line == start.line {
        true => usize::try_from(end.column).unwrap_or(0).saturating_sub(1),
        false => characters.len(),
    };
    let from = if characters.len() <= SHOWN { 0 } else { at.saturating_sub(SHOWN / 2) };
    let to = characters.len().min(from + SHOWN);
    let marks = until.min(to).saturating_sub(at).max(1);
    let elided = |is: bool| if is { "…" } else { "" };
    let shown: String = characters[from..to].iter().collect();
    let label = format!("  line {}, column {}: {}", start.line, start.column, elided(from > 0));
    let indent = " ".repeat(label.chars().count() + at - from);
    format!(
        "{message}\n{label}{}{}\n{indent}{}",
        shown.trim_end(),
        elided(to < characters.len()),
        "^".repeat(marks)
    )
}

/// Returns the text of a span within a line.
pub(crate) fn text(text: &str, span: Span) -> Option<&str> {
    let line = text.lines().nth(usize::try_from(span.start.line).ok()?.checked_sub(1)?)?;
    let byte = |column: u64| {
        let at = usize::try_from(column).ok()?.checked_sub(1)?;
        line.char_indices().map(|(byte, _)| byte).chain([line.len()]).nth(at)
    };
    (span.start.line == span.end.line).then_some(())?;
    line.get(byte(span.start.column)?..byte(span.end.column)?)
}

/// Returns an error at a place of the statement.
pub(crate) fn error(span: Span, message: impl Into<String>) -> DataFusionError {
    let message = message.into();
    let diagnostic = Diagnostic::new_error(message.clone(), DiagnosticSpan::try_from_sqlparser_span(span));
    DataFusionError::Plan(message).with_diagnostic(diagnostic)
}

/// Returns the place of an error, if DataFusion knows it.
pub(crate) fn of(error: &DataFusionError) -> Option<Span> {
    if let Some(DiagnosticSpan { start, end }) = error.diagnostic().and_then(|d| d.span) {
        return Some(Span::new(Location::new(start.line, start.column), Location::new(end.line, end.column)));
    }
    None
}

/// Returns the place that ends a message of the parser ("… at Line: 2, Column: 14"), and the message before it.
pub(crate) fn of_parser(message: &str) -> Option<(&str, Location)> {
    let (before, after) = message.rsplit_once(" at Line: ")?;
    let (line, column) = after.split_once(", Column: ")?;
    Some((before, Location::new(line.trim().parse().ok()?, column.trim().parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(line: u64, from: u64, to: u64) -> Span {
        Span::new(Location::new(line, from), Location::new(line, to))
    }

    #[test]
    fn place_is_marked_below_its_line() {
        let marked = mark("SELECT 1;\nSELECT nam,\tage FROM t", span(2, 8, 11), "cannot find column nam");
        let expected = "cannot find column nam\n  line 2, column 8: SELECT nam, age FROM t\n                           ^^^";
        assert_eq!(marked, expected);
        // A span without a length has one mark, also at the end of the text.
        assert!(mark("SELECT", span(1, 7, 7), "x").ends_with(&format!("SELECT\n{}^", " ".repeat(26))));
        assert_eq!(mark("SELECT", span(9, 1, 1), "x"), "x");
    }

    #[test]
    fn long_line_is_elided_around_the_place() {
        let text = format!("{}here{}", "a".repeat(200), "b".repeat(200));
        let marked = mark(&text, span(1, 201, 205), "x");
        let lines: Vec<&str> = marked.lines().collect();
        assert!(
            lines[1].chars().count() < 110 && lines[1].contains("…a") && lines[1].ends_with("b…"),
            "{marked}"
        );
        let at = |line: &str, what: &str| line.find(what).map(|byte| line[..byte].chars().count());
        assert_eq!(at(lines[1], "here"), at(lines[2], "^^^^"));
    }

    #[test]
    fn place_of_the_parser_is_read() {
        let (message, place) = of_parser("Expected: x, found: y at Line: 3, Column: 17").unwrap();
        assert_eq!((message, place), ("Expected: x, found: y", Location::new(3, 17)));
        assert_eq!(of_parser("no place"), None);
    }
}
