//! Ctrl-C handling: cancels the running operation, cleans up, and exits with code 130.
//!
//! Cancelling may need locks, which a signal handler must not take, so a thread waits
//! for the signals. While no cancellable operation runs (parsing, planning, printing),
//! the first Ctrl-C exits at once. A second Ctrl-C always does.
//!
//! SIGTERM is handled in the same way, so that `timeout` and service managers leave no
//! partial files behind. An immediate exit removes unpublished outputs
//! ([`pellucid_trace::whole`]) and the folders registered with [`temporary`].

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
    exit(130)
}

fn running() -> MutexGuard<'static, Option<Cancel>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts listening for signals. Call once, at the start of `main`.
pub fn install() -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    std::thread::Builder::new().name("signals".to_string()).spawn(move || {
        for _ in signals.forever() {
            if REQUESTED.swap(true, Ordering::SeqCst) {
                end();
            }
            // Cancelling may block on a store, and a second signal must still be handled.
            std::thread::spawn(|| match running().as_ref() {
                Some(cancel) => cancel(),
                None => end(),
            });
        }
    })?;
    Ok(())
}

/// Returns whether an interrupt was received.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
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
