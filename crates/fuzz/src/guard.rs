//! Watches the running case: a signal or 10 s without an end print the command that repeats it.

use std::fmt::Arguments;
use std::io::Write;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::memory;

/// Seconds that a case may take, unless `PELLUCID_FUZZ_CASE_SECONDS` sets others.
const CASE_SECONDS: u64 = 10;

/// The running case: name, seed, and start in milliseconds, 0 if there is none. Atomics, since a signal handler
/// reads them.
static NAME: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static NAME_BYTES: AtomicUsize = AtomicUsize::new(0);
static SEED: AtomicU64 = AtomicU64::new(0);
static STARTED_MS: AtomicU64 = AtomicU64::new(0);

static INSTALL: Once = Once::new();

/// The signals of an abort: a panic while panicking, a stack overflow, and memory errors of unsafe code.
const SIGNALS: [libc::c_int; 5] = [libc::SIGABRT, libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];

/// Ends the watch of a case.
pub(crate) struct Watched;

impl Drop for Watched {
    fn drop(&mut self) {
        memory::lift_limit();
        STARTED_MS.store(0, Ordering::Release);
    }
}

/// Begins to watch a case.
pub(crate) fn watch(test: &'static str, seed: u64) -> Watched {
    INSTALL.call_once(install);
    NAME_BYTES.store(0, Ordering::Release);
    NAME.store(test.as_ptr().cast_mut(), Ordering::Release);
    NAME_BYTES.store(test.len(), Ordering::Release);
    SEED.store(seed, Ordering::Release);
    STARTED_MS.store(now_ms(), Ordering::Release);
    memory::limit_case();
    Watched
}

/// Returns milliseconds since some time, at least 1. An [`Instant`] has no number to store.
fn now_ms() -> u64 {
    static FIRST: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed().as_millis() as u64 + 1
}

/// Prints the command that repeats a case.
pub(crate) fn print_command(test: &str, seed: u64) {
    print(format_args!(
        "{test} failed with seed {seed}; repeat: PELLUCID_FUZZ_SEED={seed} PELLUCID_FUZZ_TEST={test} tests/run fuzz"
    ));
}

/// Ends the process because of the running case, and prints the cause and the command.
pub(crate) fn abort(cause: Arguments) -> ! {
    print(cause);
    std::process::abort();
}

/// Prints a line to standard error without allocating.
fn print(line: Arguments) {
    let mut buffer = [0; 512];
    let mut rest = &mut buffer[..];
    // A longer line is cut.
    let _ = writeln!(rest, "{line}");
    let left = rest.len();
    // SAFETY: the pointer and length are those of the written part of `buffer`.
    unsafe { libc::write(2, buffer.as_ptr().cast(), buffer.len() - left) };
}

fn print_running() {
    if STARTED_MS.swap(0, Ordering::AcqRel) > 0 {
        let name = (NAME.load(Ordering::Acquire), NAME_BYTES.load(Ordering::Acquire));
        // SAFETY: the pointer and length are those of a static string, which is UTF-8.
        let test = unsafe { std::str::from_utf8_unchecked(std::slice::from_raw_parts(name.0, name.1)) };
        print_command(test, SEED.load(Ordering::Acquire));
    }
}

/// Prints the running case, then lets the signal take its former effect: the faulting instruction, or `abort`,
/// raises it again. Rust's own handler of SIGSEGV then reports a stack overflow.
extern "C" fn on_signal(signal: libc::c_int) {
    print_running();
    for (number, former) in SIGNALS.iter().zip(&FORMER) {
        let former = former.load(Ordering::Acquire);
        if *number == signal && !former.is_null() {
            // SAFETY: `former` points to the action that `install` has stored, which is never freed.
            unsafe { libc::sigaction(signal, former, std::ptr::null_mut()) };
        }
    }
}

/// The actions that the signals had before.
static FORMER: [AtomicPtr<libc::sigaction>; SIGNALS.len()] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; SIGNALS.len()];

fn install() {
    for (signal, keep) in SIGNALS.iter().zip(&FORMER) {
        // SAFETY: zero is a valid value of every field.
        let (mut action, mut former) = unsafe { (std::mem::zeroed::<libc::sigaction>(), std::mem::zeroed()) };
        action.sa_sigaction = on_signal as *const () as libc::sighandler_t;
        // The standard library gives each of its threads a signal stack, since theirs may be exhausted.
        action.sa_flags = libc::SA_ONSTACK;
        // SAFETY: both pointers are valid, and the handler only uses async-signal-safe functions.
        unsafe { libc::sigaction(*signal, &raw const action, &raw mut former) };
        keep.store(Box::into_raw(Box::new(former)), Ordering::Release);
    }
    let limit = Duration::from_secs(crate::variable("PELLUCID_FUZZ_CASE_SECONDS").unwrap_or(CASE_SECONDS));
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(limit / 20);
            let started = STARTED_MS.load(Ordering::Acquire);
            if started > 0 && Duration::from_millis(now_ms().saturating_sub(started)) > limit {
                abort(format_args!("takes over {} s", limit.as_secs()));
            }
        }
    });
}
