//! The line editor: reedline with our completion, highlighting and history.

use super::catalog::Catalog;
use super::complete::complete;
use super::lexer::{self, Kind};
use super::words::is_keyword;
use crate::console::Console;
use nu_ansi_term::{Color, Style};
use reedline::{
    ColumnarMenu, Completer, CompletionResult, DefaultHinter, Emacs, FileBackedHistory, Highlighter, KeyCode,
    KeyModifiers, MenuBuilder, Prompt, PromptEditMode, PromptHistorySearch, PromptHistorySearchStatus,
    Reedline, ReedlineEvent, ReedlineMenu, Signal, Span, StyledText, Suggestion, ValidationResult, Validator,
    default_emacs_keybindings,
};
use std::borrow::Cow;
use std::env;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Number of inputs that the history keeps.
const HISTORY_ENTRIES: usize = 10_000;

const MENU: &str = "completion";
const PROMPT: &str = "pellucid> ";
/// As wide as the prompt.
const CONTINUATION: &str = "     ...> ";

/// One input.
pub enum Input {
    /// A dot command, or statements.
    Text(String),
    /// Ctrl-C: the line was cleared.
    Cleared,
    /// Ctrl-D, or the terminal was closed.
    End,
}

/// A line editor.
pub enum Editor {
    Full(Box<Reedline>),
    /// For a terminal that cannot move its cursor.
    Plain,
}

impl Editor {
    /// Creates an editor for the terminal.
    pub fn new(catalog: &Arc<Catalog>, console: &Console) -> Self {
        if env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb") {
            return Editor::Plain;
        }
        let color = console.color_stdout();
        let mut keys = default_emacs_keybindings();
        let complete = vec![ReedlineEvent::Menu(MENU.to_string()), ReedlineEvent::MenuNext];
        keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, ReedlineEvent::UntilFound(complete));
        keys.add_binding(KeyModifiers::SHIFT, KeyCode::BackTab, ReedlineEvent::MenuPrevious);
        let menu = ColumnarMenu::default().with_name(MENU).with_marker("");
        let mut editor = Reedline::create()
            .with_ansi_colors(color)
            .with_validator(Box::new(Statements))
            .with_highlighter(Box::new(Sql))
            .with_completer(Box::new(Completion(Arc::clone(catalog))))
            .with_menu(ReedlineMenu::EngineCompleter(Box::new(menu)))
            .with_quick_completions(true)
            .with_partial_completions(true)
            .with_edit_mode(Box::new(Emacs::new(keys)))
            // As in a shell, an input after a space is not kept.
            .with_history_exclusion_prefix(Some(" ".to_string()))
            .use_bracketed_paste(true);
        if color {
            // Without colour, a hint looks like text.
            let hint = Style::new().fg(Color::DarkGray);
            editor = editor.with_hinter(Box::new(DefaultHinter::default().with_style(hint)));
        }
        match history() {
            Ok(history) => editor = editor.with_history(Box::new(history)),
            Err(why) => console.warn(&format!("the history ends with this session: {why}")),
        }
        Editor::Full(Box::new(editor))
    }

    /// Reads an input.
    ///
    /// # Errors
    /// Returns the errors of the terminal.
    pub fn read(&mut self) -> io::Result<Input> {
        let editor = match self {
            Editor::Full(editor) => editor,
            Editor::Plain => return read_plain(),
        };
        let read = editor.read_line(&Text);
        // Now, in case the process is killed later. A history that cannot be written does not end the session.
        let _ = editor.sync_history();
        Ok(match read? {
            Signal::Success(text) => Input::Text(text),
            Signal::CtrlC => Input::Cleared,
            _ => Input::End,
        })
    }
}

/// Reads lines until they are complete.
fn read_plain() -> io::Result<Input> {
    let mut text = String::new();
    loop {
        io::stderr().write_all(if text.is_empty() { PROMPT } else { CONTINUATION }.as_bytes())?;
        if io::stdin().read_line(&mut text)? == 0 {
            return Ok(Input::End);
        }
        if lexer::is_complete(&text) {
            return Ok(Input::Text(text));
        }
    }
}

/// Opens the history, which only its user may read: statements may have secrets.
fn history() -> Result<FileBackedHistory, String> {
    let path = history_path().ok_or("neither XDG_STATE_HOME nor HOME is an absolute path")?;
    let failed = |error: &dyn std::fmt::Display| format!("cannot use {}: {error}", path.display());
    private(&path).map_err(|error| failed(&error))?;
    FileBackedHistory::with_file(HISTORY_ENTRIES, path.clone()).map_err(|error| failed(&error))
}

fn history_path() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("pellucid/history"))
}

/// Creates the file if it does not exist, and withdraws permissions of others.
fn private(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))
}

/// The text before inputs.
struct Text;

impl Prompt for Text {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed(PROMPT)
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed(CONTINUATION)
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        let failing = match search.status {
            PromptHistorySearchStatus::Passing => "",
            PromptHistorySearchStatus::Failing => "nothing in ",
        };
        Cow::Owned(format!("({failing}history: {}) ", search.term))
    }
}

/// Continues a statement until its semicolon.
struct Statements;

impl Validator for Statements {
    fn validate(&self, text: &str) -> ValidationResult {
        if lexer::is_complete(text) { ValidationResult::Complete } else { ValidationResult::Incomplete }
    }
}

/// Colours of SQL.
struct Sql;

impl Highlighter for Sql {
    fn highlight(&self, text: &str, _: usize) -> StyledText {
        let mut styled = StyledText::new();
        if lexer::is_command(text) {
            styled.push((Style::new().fg(Color::Cyan), text.to_string()));
            return styled;
        }
        for token in lexer::tokens(text) {
            let style = match token.kind {
                Kind::Word if is_keyword(token.text) => Style::new().fg(Color::Blue).bold(),
                Kind::Text => Style::new().fg(Color::Green),
                Kind::Number => Style::new().fg(Color::Purple),
                Kind::Comment => Style::new().fg(Color::DarkGray),
                _ => Style::new(),
            };
            styled.push((style, token.text.to_string()));
        }
        styled
    }
}

/// Names of the session.
struct Completion(Arc<Catalog>);

impl Completer for Completion {
    fn complete(&mut self, text: &str, at: usize) -> CompletionResult {
        let found = complete(text, at, self.0.as_ref());
        let span = Span::new(found.replaced.start, found.replaced.end);
        let suggestion = |value| Suggestion { value, span, ..Suggestion::default() };
        CompletionResult::fresh(found.texts.into_iter().map(suggestion).collect::<Vec<_>>())
    }
}
