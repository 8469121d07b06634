//! Tokens of SQL, as far as the prompt needs them: to know where a statement ends, to highlight it, and to find the names
//! around the cursor. Unlike the engine's, they exist for text that is not finished.

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Spaces and line breaks.
    Space,
    /// `-- …` and `/* … */`, which nests.
    Comment,
    /// `'text'`, `E'text'`, `$$text$$`.
    Text,
    /// `"name"`.
    Quoted,
    /// A number.
    Number,
    /// A keyword or a name.
    Word,
    /// Any other character.
    Mark,
}

/// A part of a text. Together, the tokens are the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token<'a> {
    pub kind: Kind,
    pub text: &'a str,
    /// Its first byte.
    pub start: usize,
    /// False if its closing quote or end of comment is missing.
    pub closed: bool,
}

impl Token<'_> {
    /// Returns the byte after the token.
    pub fn end(&self) -> usize {
        self.start + self.text.len()
    }

    /// Returns whether it is this keyword.
    pub fn is(&self, keyword: &str) -> bool {
        self.kind == Kind::Word && self.text.eq_ignore_ascii_case(keyword)
    }

    /// Returns whether it has a meaning.
    pub fn is_significant(&self) -> bool {
        !matches!(self.kind, Kind::Space | Kind::Comment)
    }
}

/// Divides a text into tokens.
pub fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut start = 0;
    while let Some((kind, length, closed)) = first(&text[start..]) {
        tokens.push(Token { kind, text: &text[start..start + length], start, closed });
        start += length;
    }
    tokens
}

/// Returns kind, length and end of the first token; `None` at the end of the text.
fn first(text: &str) -> Option<(Kind, usize, bool)> {
    let c = text.chars().next()?;
    let run = |part: fn(char) -> bool| text.find(|c| !part(c)).unwrap_or(text.len());
    Some(match c {
        _ if c.is_whitespace() => (Kind::Space, run(char::is_whitespace), true),
        _ if text.starts_with("--") => (Kind::Comment, text.find('\n').unwrap_or(text.len()), true),
        _ if text.starts_with("/*") => comment(text),
        '\'' => quoted(Kind::Text, text, 1, false),
        'e' | 'E' if text[1..].starts_with('\'') => quoted(Kind::Text, text, 2, true),
        '"' => quoted(Kind::Quoted, text, 1, false),
        '$' => dollars(text).unwrap_or((Kind::Mark, 1, true)),
        _ if c.is_ascii_digit() => (Kind::Number, number(text), true),
        '.' if text[1..].starts_with(|c: char| c.is_ascii_digit()) => (Kind::Number, number(text), true),
        _ if c.is_alphabetic() || matches!(c, '_' | '@') => {
            (Kind::Word, run(|c| c.is_alphanumeric() || matches!(c, '_' | '@' | '$')), true)
        }
        _ => (Kind::Mark, c.len_utf8(), true),
    })
}

fn comment(text: &str) -> (Kind, usize, bool) {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        match &text.as_bytes()[at..] {
            [b'/', b'*', ..] => {
                depth += 1;
                at += 2;
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return (Kind::Comment, at, true);
                }
            }
            _ => at += 1,
        }
    }
    (Kind::Comment, text.len(), false)
}

/// Reads a text whose quote is its character before `from`, and is doubled inside it.
fn quoted(kind: Kind, text: &str, from: usize, escapes: bool) -> (Kind, usize, bool) {
    let bytes = text.as_bytes();
    let quote = bytes[from - 1];
    let mut at = from;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if escapes => at += 2,
            c if c == quote && bytes.get(at + 1) == Some(&quote) => at += 2,
            c if c == quote => return (kind, at + 1, true),
            _ => at += 1,
        }
    }
    (kind, text.len(), false)
}

/// Reads `$$text$$` or `$tag$text$tag$`; `None` for a parameter (`$1`).
fn dollars(text: &str) -> Option<(Kind, usize, bool)> {
    let tag = text[1..].find(|c: char| !c.is_alphanumeric() && c != '_')?;
    let open = tag + 2;
    if text.as_bytes()[open - 1] != b'$' || text[1..].starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    Some(match text[open..].find(&text[..open]) {
        Some(length) => (Kind::Text, open + length + open, true),
        None => (Kind::Text, text.len(), false),
    })
}

fn number(text: &str) -> usize {
    let mut before = ' ';
    let is_end = |c: char| {
        let sign = matches!(c, '+' | '-') && matches!(before, 'e' | 'E');
        before = c;
        !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_') || sign)
    };
    text.find(is_end).unwrap_or(text.len())
}

/// Returns whether Enter ends the input: a dot command is one line, and statements end with `;` outside quotes, comments
/// and parentheses. Blank text is complete.
pub fn is_complete(text: &str) -> bool {
    if is_command(text) {
        return true;
    }
    let mut open = 0_usize;
    let mut last = None;
    for token in tokens(text).iter().filter(|token| token.is_significant() || !token.closed) {
        if !token.closed {
            return false;
        }
        match token.text {
            "(" | "[" | "{" => open += 1,
            ")" | "]" | "}" => open = open.saturating_sub(1),
            _ => {}
        }
        last = Some(token.text);
    }
    last.is_none_or(|last| last == ";" && open == 0)
}

/// Returns whether the text is a command of the prompt: `.name`, or a word that leaves other prompts.
pub fn is_command(text: &str) -> bool {
    let text = text.trim();
    let word = text.trim_end_matches(';');
    text.starts_with('.') || ["exit", "quit", "help"].iter().any(|name| word.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statement_is_complete_at_a_semicolon_outside_quotes_and_parentheses() {
        for (text, complete) in [
            ("SELECT 1", false),
            ("SELECT 1;", true),
            ("SELECT 1; -- one", true),
            ("SELECT 1; SELECT 2", false),
            ("SELECT 1 -- ;", false),
            ("SELECT 1 /* ; */", false),
            ("SELECT 1; /* /* ; */", false),
            ("SELECT 'a;", false),
            ("SELECT 'it''s;'", false),
            ("SELECT 'it''s';", true),
            ("SELECT E'it\\';", false),
            ("SELECT \"a;", false),
            ("SELECT $$ ; $$", false),
            ("SELECT $x$ ' $$ $x$;", true),
            ("SELECT $1;", true),
            ("SELECT (1;", false),
            ("SELECT (1\n);", true),
            ("SELECT {'a': [1]};", true),
            ("", true),
            (" \n", true),
            ("-- note", true),
            (".tables", true),
            (" .mode csv", true),
            ("exit", true),
            ("Quit;", true),
            ("exits", false),
        ] {
            assert_eq!(is_complete(text), complete, "{text}");
        }
    }

    #[test]
    fn tokens_are_the_whole_text() {
        for text in [
            "SELECT 1.5e-3 + .5, 0x1F -- ü\n, 'ä''b', \"c\"\"d\"",
            "E'a\\",
            "'ü",
            "$ü$x$ü$ $",
            "/*/",
            "1_000.e",
        ] {
            let found = tokens(text);
            assert_eq!(found.iter().map(|token| token.text).collect::<String>(), text);
            assert!(found.iter().all(|token| &text[token.start..token.end()] == token.text));
        }
        let kinds: Vec<Kind> =
            tokens("a.b1 = 1.5e-3").iter().filter(|token| token.is_significant()).map(|t| t.kind).collect();
        assert_eq!(kinds, [Kind::Word, Kind::Mark, Kind::Word, Kind::Mark, Kind::Number]);
    }
}
