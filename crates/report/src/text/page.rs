//! Lines of styled text of limited width.
//!
//! Renderers give each piece of text a semantic style; this module decides about colours and line breaks.
//! Widths are terminal columns.

use std::borrow::Cow;

use pellucid_trace::kind;

use super::width::{columns, fit, prefix};

/// The semantic style of a piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Strong,
    Faint,
    Warning,
    Cores,
    Disk,
    Network,
    Other,
}

impl Style {
    /// Returns the style of a kind of resource or of a cause.
    pub fn of_kind(kind: &str) -> Style {
        match kind {
            kind::CPU => Style::Cores,
            kind::DISK | "disk input" => Style::Disk,
            kind::NETWORK | kind::STORE => Style::Network,
            "failure" => Style::Warning,
            "unexplained" => Style::Faint,
            _ => Style::Other,
        }
    }

    /// Returns the parameter of Select Graphic Rendition (ECMA-48 §8.3.117). Only the sixteen colours that
    /// terminal themes adapt are used.
    fn code(self) -> Option<&'static str> {
        match self {
            Style::Plain => None,
            Style::Strong => Some("1"),
            Style::Faint => Some("2"),
            Style::Warning => Some("31"),
            Style::Cores => Some("32"),
            Style::Disk => Some("36"),
            Style::Network => Some("35"),
            Style::Other => Some("33"),
        }
    }
}

/// A text of styled lines, none wider than a given width.
#[derive(Debug)]
pub(crate) struct Page {
    width: usize,
    color: bool,
    text: String,
}

impl Page {
    pub fn new(width: usize, color: bool) -> Page {
        Page { width, color, text: String::new() }
    }

    /// Returns the maximum width of a line, in columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Adds a line of pieces, without control characters. A line that is too long is truncated with an
    /// ellipsis.
    pub fn line(&mut self, pieces: &[(Style, &str)]) {
        let pieces: Vec<(Style, String)> = pieces.iter().map(|(style, text)| (*style, clean(text))).collect();
        let whole: usize = pieces.iter().map(|(_, text)| columns(text)).sum();
        let mut left = if whole > self.width { self.width.saturating_sub(1) } else { self.width };
        let mut end = self.text.len();
        for (style, text) in &pieces {
            let fitting = prefix(text, left);
            left -= columns(fitting);
            let code = style.code().filter(|_| self.color && !fitting.trim().is_empty());
            if let Some(code) = code {
                self.text += &format!("\x1b[{code}m{fitting}\x1b[0m");
            } else {
                self.text += fitting;
            }
            if !fitting.trim_end().is_empty() {
                end = self.text.len();
            }
            if fitting.len() < text.len() {
                break;
            }
        }
        if whole > self.width {
            self.text.extend((self.width > 0).then_some('…'));
        } else {
            self.text.truncate(end);
            self.text.truncate(self.text.trim_end_matches(' ').len());
        }
        self.text.push('\n');
    }

    /// Adds a line in one style.
    pub fn text(&mut self, style: Style, text: &str) {
        self.line(&[(style, text)]);
    }

    /// Adds wrapped text, with the first line indented by `first` and the rest by `later`. Lines break before
    /// a part (parts are separated by ` · `) that fits on one line, else at a space.
    pub fn wrapped(&mut self, style: Style, text: &str, first: usize, later: usize) {
        let text = clean(text);
        let room = self.width.saturating_sub(later);
        let mut parts: Vec<String> = text.split(" · ").map(|part| format!("{} ·", part.trim())).collect();
        if let Some(last) = parts.last_mut() {
            last.truncate(last.len() - " ·".len());
        }
        let broken = parts.iter().flat_map(|part| match columns(part) <= room {
            true => vec![part.as_str()],
            false => part.split(' ').collect(),
        });
        let pieces: Vec<&str> = broken.filter(|piece| !piece.is_empty()).collect();
        let (mut line, mut empty) = (" ".repeat(first), true);
        for piece in pieces {
            if !empty && columns(&line) + 1 + columns(piece) > self.width {
                self.text(style, &line);
                (line, empty) = (" ".repeat(later), true);
            }
            line.extend((!empty).then_some(' '));
            line += piece;
            empty = false;
        }
        if !empty {
            self.text(style, &line);
        }
    }

    /// Adds an empty line, unless the page is empty or already ends with one.
    pub fn gap(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }

    /// Returns the number of lines so far.
    pub fn lines(&self) -> usize {
        self.text.matches('\n').count()
    }

    pub fn finish(self) -> String {
        self.text
    }
}

/// Returns whether a character moves the cursor, starts an escape sequence, breaks a line or reorders text.
/// All such characters are below U+10000.
fn is_control(c: char) -> bool {
    let reorders =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}');
    c.is_control() || reorders || c == '\u{2028}' || c == '\u{2029}'
}

/// Replaces control and invisible characters by spaces, so that text cannot move the cursor or break a line.
pub(crate) fn clean(text: &str) -> String {
    let invisible = |c: char| matches!(c, '\u{ad}' | '\u{200b}'..='\u{200d}' | '\u{feff}');
    text.chars().map(|c| if is_control(c) || invisible(c) { ' ' } else { c }).collect()
}

/// Escapes control characters other than line breaks and tabs (`\u001b`), so that foreign text cannot control
/// the terminal. Joiners are kept, since scripts and emoji need them. In JSON, the escaped text has the same
/// meaning.
pub fn escaped(text: &str) -> Cow<'_, str> {
    let replaced = |c: char| is_control(c) && c != '\n' && c != '\t';
    if !text.contains(replaced) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if replaced(c) {
            out += &format!("\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Truncates or pads a text to exactly `width` columns, aligned left.
pub(crate) fn cell(text: &str, width: usize) -> String {
    let out = fit(&clean(text), width);
    let padding = width.saturating_sub(columns(&out));
    out + &" ".repeat(padding)
}

/// Pads a text to at least `width` columns, aligned right.
pub(crate) fn right(text: &str, width: usize) -> String {
    format!("{}{text}", " ".repeat(width.saturating_sub(columns(text))))
}

/// Draws a share as a bar of at most `width` columns, in eighths of a column. A share above zero is always
/// visible.
pub(crate) fn bar(share: f64, width: usize) -> String {
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    let part = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
    let text = "█".repeat((eighths / 8).min(width)) + part;
    prefix(&text, width).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Characters that clear the screen, begin a sequence, delete, and reorder text.
    const HOSTILE: &str = "a\u{1b}[2J\u{9b}31m\u{7f}\u{202e}b\u{2066}c\u{200f}\r";

    #[test]
    fn escaped_text_has_no_control_characters_but_breaks_and_tabs() {
        assert_eq!(escaped(HOSTILE), r"a\u001b[2J\u009b31m\u007f\u202eb\u2066c\u200f\u000d");
        for kept in ["line\n\tnext", "日本 é", "👩\u{200d}💻", ""] {
            assert!(matches!(escaped(kept), Cow::Borrowed(text) if text == kept), "{kept:?}");
        }
        let quoted = serde_json::to_string(HOSTILE).expect("it is JSON");
        assert_eq!(serde_json::from_str::<String>(&escaped(&quoted)).expect("it still is"), HOSTILE);
    }

    #[test]
    fn lines_hold_no_control_characters_but_colours() {
        let mut page = Page::new(80, true);
        page.line(&[(Style::Strong, HOSTILE), (Style::Plain, HOSTILE)]);
        page.text(Style::Plain, HOSTILE);
        page.wrapped(Style::Plain, HOSTILE, 0, 2);
        let text = page.finish().replace("\x1b[1m", "").replace("\x1b[0m", "");
        assert!(!text.contains(|c| is_control(c) && c != '\n'), "{text:?}");
    }
}
