//! Console output: results go to standard output, everything else to standard error.
//! Colour and progress are shown on terminals only.

use crate::failure::Failure;
use crate::interrupt;
use crate::output::DisplayLimits;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pellucid_report::{escaped, write_document};
use serde_json::Value;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Work shorter than this shows no progress bar.
const PROGRESS_AFTER: Duration = Duration::from_secs(1);

/// Maximum number of rows shown on a terminal.
const MAX_SCREEN_ROWS: usize = 40;

/// Values of `--color`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set or TERM is `dumb`.
    Auto,
    /// Always, including in files and pipes.
    Always,
    /// Never.
    Never,
}

/// The output of a command, configured by the options that all commands share.
#[derive(Debug, Clone, Copy)]
pub struct Console {
    /// Print a single JSON document on standard output.
    pub json: bool,
    /// Print only errors on standard error.
    pub quiet: bool,
    color: Color,
}

impl Console {
    /// Creates a console from the shared options.
    pub fn new(json: bool, quiet: bool, color: Color) -> Self {
        Console { json, quiet, color }
    }

    /// Returns whether to use colour on standard output.
    pub fn color_stdout(&self) -> bool {
        self.colored(io::stdout().is_terminal())
    }

    fn colored(&self, terminal: bool) -> bool {
        match self.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
                terminal && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
            }
        }
    }

    /// Returns the width of the terminal on standard output, or 100 if it is not a terminal.
    pub fn width(&self) -> usize {
        terminal_width().unwrap_or(100)
    }

    /// Returns the limits for printing a result: none, except on a terminal. `max_rows` replaces the usual
    /// number of rows, on a terminal and elsewhere; 0 shows all.
    pub fn display_limits(&self, max_rows: Option<usize>) -> Option<DisplayLimits> {
        let terminal = io::stdout().is_terminal();
        if !terminal && max_rows.is_none() {
            return None;
        }
        let width = if terminal { self.width() } else { usize::MAX };
        let max_rows = max_rows.unwrap_or(MAX_SCREEN_ROWS);
        Some(DisplayLimits {
            max_rows: if max_rows == 0 { usize::MAX } else { max_rows },
            width,
            in_prompt: false,
        })
    }

    /// Writes to standard output, buffered. On a terminal, control characters are escaped, since results
    /// contain foreign text. A closed pipe becomes [`Failure::BrokenPipe`].
    pub fn print(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
        if !io::stdout().is_terminal() {
            return self.print_styled(write);
        }
        self.print_styled(|out| {
            let mut out = BufWriter::new(Escaping(out));
            write(&mut out)?;
            out.flush()
        })
    }

    /// Prints a JSON document, with its format as the first key.
    pub fn print_document(&self, format: &str, document: &Value) -> Result<(), Failure> {
        self.print(|out| write_document(out, format, document))
    }

    /// Writes text that has colours and no other control characters to standard output, as [`Self::print`]
    /// does.
    pub fn print_styled(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
        if STDOUT_CLOSED.load(Ordering::Relaxed) {
            let closed = "cannot write to standard output: it is closed; redirect it to a file or /dev/null";
            return Err(Failure::Failed(closed.to_string()));
        }
        let mut out = BufWriter::new(io::stdout().lock());
        write(&mut out).and_then(|()| out.flush()).map_err(|error| match interrupt::requested() {
            true => Failure::Interrupted,
            false => Failure::stdout(error),
        })
    }

    /// Prints a line on standard error, unless `--quiet`. Like all lines there, it may contain foreign text,
    /// so control characters are escaped.
    pub fn note(&self, text: &str) {
        self.line(&escaped(text));
    }

    fn line(&self, text: &str) {
        if !self.quiet {
            // Ignore errors: standard error may be closed.
            let _ = writeln!(io::stderr(), "{text}");
        }
    }

    /// Prints a heading on standard error, unless `--quiet`.
    pub fn heading(&self, text: &str) {
        if self.colored(io::stderr().is_terminal()) {
            self.line(&format!("\x1b[1m{}\x1b[0m", escaped(text)));
        } else {
            self.note(text);
        }
    }

    /// Prints a warning, unless `--quiet`.
    pub fn warn(&self, text: &str) {
        self.labelled("warning", "33", text, self.quiet);
    }

    /// Prints an error, even with `--quiet`.
    pub fn error(&self, text: &str) {
        self.labelled("error", "31", text, false);
    }

    fn labelled(&self, label: &str, code: &str, text: &str, hidden: bool) {
        if hidden {
            return;
        }
        let text = escaped(text);
        let _ = if self.colored(io::stderr().is_terminal()) {
            writeln!(io::stderr(), "\x1b[1;{code}m{label}:\x1b[0m {text}")
        } else {
            writeln!(io::stderr(), "{label}: {text}")
        };
    }

    /// Returns a progress bar that appears after one second, if standard error is a terminal.
    pub fn progress(&self) -> Progress {
        let enabled = io::stderr().is_terminal() && !self.quiet;
        Progress { bar: ProgressBar::hidden(), since: Instant::now(), enabled, shown: false }
    }
}

/// True if standard output was closed when the program started (`>&-`).
static STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// Runs before Rust's runtime, which replaces a closed stream with /dev/null: writes would then succeed
/// and be discarded.
#[cfg(target_os = "linux")]
#[used]
// SAFETY: the loader calls each function in this section once, before any other thread exists; this one
// reads a file descriptor's flags and sets an atomic.
#[unsafe(link_section = ".init_array")]
static CHECK_STDOUT: extern "C" fn() = {
    extern "C" fn check() {
        // SAFETY: fcntl with F_GETFD accepts any number and has no side effects.
        let closed = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } == -1;
        STDOUT_CLOSED.store(closed, Ordering::Relaxed);
    }
    check
};

/// A writer that escapes control characters, and stops at an interrupt. Each call writes whole characters: a [`BufWriter`] does not
/// divide what it is given.
struct Escaping<W>(W);

impl<W: Write> Write for Escaping<W> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if interrupt::requested() {
            return Err(io::Error::other("interrupted"));
        }
        self.0.write_all(escaped(&String::from_utf8_lossy(text)).as_bytes())?;
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A progress bar; cleared when dropped.
pub struct Progress {
    bar: ProgressBar,
    since: Instant,
    enabled: bool,
    shown: bool,
}

impl Progress {
    /// Updates the progress. The total may grow between calls.
    pub fn set(&mut self, done: u64, total: u64, message: &str) {
        if !self.shown && (!self.enabled || self.since.elapsed() < PROGRESS_AFTER) {
            return;
        }
        self.bar.set_length(total.max(done));
        self.bar.set_position(done);
        self.bar.set_message(escaped(message).into_owned());
        if !self.shown {
            self.shown = true;
            let style = ProgressStyle::with_template("{bar:30} {percent:>3} % · {elapsed} · {wide_msg}");
            self.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn terminal_width() -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ fills the given structure or fails.
    let status = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size) };
    (status == 0 && size.ws_col > 0).then_some(usize::from(size.ws_col))
}
