//! Ctrl-C handling: cancels the running operation, cleans up, and exits with code 130.
//!
//! Cancelling may need locks, which a signal handler must not take, so a thread waits
//! for the signals. While no cancellable operation runs (parsing, planning, printing),
//! the first Ctrl-C exits at once. A second Ctrl-C always does.
//!
//! At the prompt ([`keep_running`]), Ctrl-C cancels the operation and not the program, which only a third Ctrl-C
//! before the next input ends. SIGTERM and a closed terminal (SIGHUP) end it.
//!
//! SIGTERM is handled in the same way, so that `timeout` and service managers leave no
//! partial files behind. An immediate exit removes unpublished outputs
//! ([`pellucid_trace::whole`]) and the folders registered with [`temporary`].

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

type Cancel = Box<dyn Fn() + Send>;

static RUNNING: Mutex<Option<Cancel>> = Mutex::new(None);
/// Number of signals since the start, or since [`reset`].
static REQUESTED: AtomicU32 = AtomicU32::new(0);
static TERMINATED: AtomicBool = AtomicBool::new(false);

/// The state of the terminal to restore, while the prompt runs. The line editor changes it.
static TERMINAL: Mutex<Option<libc::termios>> = Mutex::new(None);
static KEEP_RUNNING: AtomicBool = AtomicBool::new(false);

/// Folders to remove on an immediate exit.
static TEMPORARY: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Registers a folder for removal if an interrupt exits at once. Otherwise the caller removes it.
pub fn temporary(path: &Path) {
    TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner).push(path.to_path_buf());
}

fn end() -> ! {
    pellucid_trace::whole::discard_all();
    for path in TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        // It may have been removed already.
        let _ = fs::remove_dir_all(&path);
    }
    if let Some(terminal) = *TERMINAL.lock().unwrap_or_else(PoisonError::into_inner) {
        // SAFETY: sets the attributes that tcgetattr has returned; fails if the terminal is closed.
        unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &terminal) };
        // Ends bracketed paste.
        let _ = io::stdout().write_all(b"\x1b[?2004l\n").and_then(|()| io::stdout().flush());
    }
    exit(130)
}

fn running() -> MutexGuard<'static, Option<Cancel>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts listening for signals. Call once, at the start of `main`.
pub fn install() -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    std::thread::Builder::new().name("signals".to_string()).spawn(move || {
        for signal in signals.forever() {
            let keep = signal == SIGINT && KEEP_RUNNING.load(Ordering::SeqCst);
            TERMINATED.fetch_or(signal == SIGTERM, Ordering::SeqCst);
            let before_end = if keep { 2 } else { 1 };
            if REQUESTED.fetch_add(1, Ordering::SeqCst) >= before_end {
                end();
            }
            // Cancelling may block on a store, and a second signal must still be handled.
            std::thread::spawn(move || match running().as_ref() {
                Some(cancel) => cancel(),
                None if keep => {}
                None => end(),
            });
        }
    })?;
    Ok(())
}

/// Makes Ctrl-C cancel operations without ending the program, for the prompt.
///
/// # Errors
/// Returns an error if SIGHUP cannot be handled.
pub fn keep_running() -> io::Result<()> {
    let mut terminal = MaybeUninit::<libc::termios>::uninit();
    // SAFETY: tcgetattr fills the given structure or fails, and the structure is used only if it did not fail.
    let terminal = unsafe {
        (libc::tcgetattr(libc::STDIN_FILENO, terminal.as_mut_ptr()) == 0).then(|| terminal.assume_init())
    };
    *TERMINAL.lock().unwrap_or_else(PoisonError::into_inner) = terminal;
    KEEP_RUNNING.store(true, Ordering::SeqCst);
    let mut hangup = Signals::new([SIGHUP])?;
    std::thread::Builder::new().name("hangup".to_string()).spawn(move || {
        if hangup.forever().next().is_some() {
            end();
        }
    })?;
    Ok(())
}

/// Forgets the interrupts so far.
pub fn reset() {
    REQUESTED.store(0, Ordering::SeqCst);
}

/// Returns whether an interrupt was received.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::SeqCst) > 0
}

/// Returns whether SIGTERM was received.
pub fn terminated() -> bool {
    TERMINATED.load(Ordering::SeqCst)
}

/// Makes interrupts call `cancel`, instead of exiting, until the guard is dropped.
#[must_use]
pub fn on_interrupt(cancel: impl Fn() + Send + 'static) -> Guard {
    *running() = Some(Box::new(cancel));
    Guard(())
}

/// The guard that [`on_interrupt`] returns.
pub struct Guard(());

impl Drop for Guard {
    fn drop(&mut self) {
        *running() = None;
    }
}
