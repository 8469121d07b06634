//! Where output goes and how it may look: results to standard output, everything
//! else to standard error; colour and progress only where someone watches.

use crate::failure::Failure;
use crate::output::Cut;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Work shorter than this shows no progress bar.
const PROGRESS_AFTER: Duration = Duration::from_secs(1);

/// Rows of a result that a screen shows.
const SCREEN_ROWS: usize = 40;

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set or TERM is `dumb`.
    Auto,
    /// Always, also into files and pipes.
    Always,
    /// Never.
    Never,
}

/// What all commands print through.
#[derive(Debug, Clone, Copy)]
pub struct Console {
    /// One JSON document on standard output, and nothing else there.
    pub json: bool,
    /// Nothing on standard error but errors.
    pub quiet: bool,
    color: Color,
}

impl Console {
    /// From the options that every command has.
    pub fn new(json: bool, quiet: bool, color: Color) -> Self {
        Console { json, quiet, color }
    }

    /// Whether standard output takes colour.
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

    /// Columns of the terminal that shows standard output; 100 without one.
    pub fn width(&self) -> usize {
        terminal_width().unwrap_or(100)
    }

    /// How much of a result to print: all of it, except on a screen.
    pub fn cut(&self) -> Option<Cut> {
        io::stdout().is_terminal().then(|| Cut { rows: SCREEN_ROWS, width: self.width() })
    }

    /// Writes to standard output, buffered. The end of a reader is a quiet end.
    pub fn print(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
        if STDOUT_CLOSED.load(Ordering::Relaxed) {
            let closed = "cannot write to standard output: it is closed; redirect it to a file or /dev/null";
            return Err(Failure::Failed(closed.to_string()));
        }
        let mut out = BufWriter::new(io::stdout().lock());
        write(&mut out).and_then(|()| out.flush()).map_err(Failure::stdout)
    }

    /// A line for people on standard error, unless `--quiet`.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            // Whoever closed standard error does not want to know.
            let _ = writeln!(io::stderr(), "{text}");
        }
    }

    /// A heading on standard error, unless `--quiet`.
    pub fn heading(&self, text: &str) {
        if self.colored(io::stderr().is_terminal()) {
            self.note(&format!("\x1b[1m{text}\x1b[0m"));
        } else {
            self.note(text);
        }
    }

    /// A warning, unless `--quiet`.
    pub fn warn(&self, text: &str) {
        self.labelled("warning", "33", text, self.quiet);
    }

    /// An error; printed even with `--quiet`.
    pub fn error(&self, text: &str) {
        self.labelled("error", "31", text, false);
    }

    fn labelled(&self, label: &str, code: &str, text: &str, hidden: bool) {
        if hidden {
            return;
        }
        let _ = if self.colored(io::stderr().is_terminal()) {
            writeln!(io::stderr(), "\x1b[1;{code}m{label}:\x1b[0m {text}")
        } else {
            writeln!(io::stderr(), "{label}: {text}")
        };
    }

    /// A progress bar that appears once the work has taken a second, if someone watches.
    pub fn progress(&self) -> Progress {
        let watched = io::stderr().is_terminal() && !self.quiet;
        Progress { bar: ProgressBar::hidden(), since: Instant::now(), watched, shown: false }
    }
}

/// Standard output was closed when the program was started (`>&-`).
static STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// Runs before Rust's runtime, which opens /dev/null in place of a closed stream: writes would then succeed
/// and be discarded.
#[cfg(target_os = "linux")]
#[used]
// SAFETY: the loader calls each function in this section once, with nothing else running; this one
// asks for a file descriptor's flags and sets an atomic.
#[unsafe(link_section = ".init_array")]
static LOOK_AT_STDOUT: extern "C" fn() = {
    extern "C" fn look() {
        // SAFETY: fcntl with F_GETFD takes any number and changes nothing.
        let closed = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } == -1;
        STDOUT_CLOSED.store(closed, Ordering::Relaxed);
    }
    look
};

/// Progress of one piece of work; cleared when dropped.
pub struct Progress {
    bar: ProgressBar,
    since: Instant,
    watched: bool,
    shown: bool,
}

impl Progress {
    /// Says how far the work is; the total may still grow.
    pub fn set(&mut self, done: u64, total: u64, message: &str) {
        if !self.shown && (!self.watched || self.since.elapsed() < PROGRESS_AFTER) {
            return;
        }
        self.bar.set_length(total.max(done));
        self.bar.set_position(done);
        self.bar.set_message(message.to_string());
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
    // SAFETY: TIOCGWINSZ fills the structure that it is given, or fails.
    let status = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size) };
    (status == 0 && size.ws_col > 0).then_some(usize::from(size.ws_col))
}
