//! The prompt: reads statements and dot commands from a terminal, and runs them in one session.
//!
//! `editor` reads the lines (with reedline), `lexer` and `complete` know their text, `commands` their dot commands.
//! `catalog` holds the engine, which opens while the first statement is typed. `session` runs the input. Tables, variables,
//! macros and prepared statements live in the engine until the session ends.

mod catalog;
mod commands;
mod complete;
mod editor;
mod files;
mod lexer;
mod session;
mod words;

use crate::console::Console;
use crate::failure::Failure;
use crate::interrupt;
use crate::output::Format;
use catalog::Catalog;
use editor::{Editor, Input};
use pellucid_engine::EngineOptions;
use session::Session;

/// Options of the prompt, which are those of `sql`.
pub struct Options {
    pub engine: EngineOptions,
    /// Names and paths of tables.
    pub tables: Vec<(String, String)>,
    pub format: Format,
    pub max_rows: Option<usize>,
}

/// Runs the prompt until its user leaves. A statement that fails does not end it.
///
/// # Errors
/// Returns an error if a table cannot be opened, or the terminal fails.
pub fn run(mut options: Options, console: &Console) -> Result<(), Failure> {
    let terminal = |error| Failure::Failed(format!("cannot read from the terminal: {error}"));
    let tables = std::mem::take(&mut options.tables);
    let has_tables = !tables.is_empty();
    let catalog = Catalog::new(options.engine.clone(), tables);
    if has_tables {
        catalog.engine()?;
    }
    let mut session = Session::new(catalog.clone(), &options, console)?;
    let mut editor = Editor::new(&catalog, console);
    interrupt::keep_running().map_err(terminal)?;
    console.note(concat!(
        "Pellucid ",
        env!("CARGO_PKG_VERSION"),
        " · statements end with ; · .help lists commands · Ctrl-D leaves"
    ));
    loop {
        let text = match editor.read().map_err(terminal)? {
            Input::Text(text) => text,
            Input::Cleared => continue,
            Input::End => return Ok(()),
        };
        interrupt::reset();
        match session.run(&text) {
            Ok(flow) if flow.is_break() => return Ok(()),
            Ok(_) => {}
            Err(Failure::Interrupted) if !interrupt::terminated() => console.note("cancelled"),
            Err(end @ (Failure::Interrupted | Failure::BrokenPipe)) => return Err(end),
            Err(Failure::Usage(message) | Failure::Failed(message)) => console.error(&message),
        }
        interrupt::reset();
    }
}
