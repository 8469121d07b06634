//! Ctrl-C: whatever runs is told to stop, cleans up, and the process ends with 130.
//!
//! Cancelling may need locks, which a signal handler must not take; so a thread
//! waits for the signals. While nothing that can be cancelled runs (parsing,
//! planning, printing) it ends the process at once: there is nothing to clean up.
//! A second Ctrl-C always does.
//!
//! SIGTERM is treated the same, so that `timeout` and service managers leave no
//! half-written files behind. Before the process ends at once, what was announced as
//! [`temporary`] is removed.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

type Cancel = Box<dyn Fn() + Send>;

static RUNNING: Mutex<Option<Cancel>> = Mutex::new(None);
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Files and folders.
static TEMPORARY: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// This is removed where an interrupt ends the process at once; else whoever made it does that.
pub fn temporary(path: &Path) {
    TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner).push(path.to_path_buf());
}

fn end() -> ! {
    for path in TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        // It may be gone, or have its own name by now.
        let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
    }
    exit(130)
}

fn running() -> MutexGuard<'static, Option<Cancel>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts to listen; once, at the start of `main`.
pub fn install() -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    std::thread::Builder::new().name("signals".to_string()).spawn(move || {
        for _ in signals.forever() {
            if REQUESTED.swap(true, Ordering::SeqCst) {
                end();
            }
            // It may wait for a store; a second signal must be heard meanwhile.
            std::thread::spawn(|| match running().as_ref() {
                Some(cancel) => cancel(),
                None => end(),
            });
        }
    })?;
    Ok(())
}

/// Whether the user asked to stop.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}

/// While the guard lives, an interrupt calls `cancel` instead of ending the process.
#[must_use]
pub fn on_interrupt(cancel: impl Fn() + Send + 'static) -> Guard {
    *running() = Some(Box::new(cancel));
    Guard(())
}

/// See [`on_interrupt`].
pub struct Guard(());

impl Drop for Guard {
    fn drop(&mut self) {
        *running() = None;
    }
}
