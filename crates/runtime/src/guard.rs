//! Runs foreign code (closures, plans) so that a panic in it becomes an error.
//!
//! A panic must end its job and nothing else. The message and place are kept for
//! the job's error; the default hook, which would print them with a backtrace
//! from the middle of a progress bar, stays silent for guarded code only. The
//! hook is the process's own, so it is wrapped once and hands every other panic on.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use crate::Error;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `f`; a panic becomes an error that says what it said, and where.
pub(crate) fn guarded<T>(f: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    install_hook();
    let outer = GUARDED.replace(true);
    // What a panic leaves half done belongs to the job, which it ends.
    let result = catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| Err(describe(payload)));
    GUARDED.set(outer);
    result
}

fn describe(payload: Box<dyn Any + Send>) -> Error {
    let place = PLACE.with(|p| p.borrow_mut().take());
    let said = payload
        .downcast_ref::<&str>()
        .map(|s| (*s).to_string())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a value that is not text".to_string());
    // Dropping the payload is foreign code too; one that panics is let go.
    if let Err(again) = catch_unwind(AssertUnwindSafe(move || drop(payload))) {
        std::mem::forget(again);
    }
    match place {
        Some(place) => format!("panicked at {place}: {said}").into(),
        None => format!("panicked: {said}").into(),
    }
}

/// Drops `value`, whose `Drop` is foreign code; a panic in it is let go, since
/// the job that it belonged to has its outcome already.
pub(crate) fn drop_guarded<T>(value: T) {
    let _ = guarded(move || {
        drop(value);
        Ok(())
    });
}

fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if GUARDED.get() {
                let place = info.location().map(|l| format!("{}:{}", l.file(), l.line()));
                PLACE.with(|p| *p.borrow_mut() = place);
            } else {
                others(info);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_says_what_and_where() {
        let error = guarded::<()>(|| panic!("row {} is odd", 7)).unwrap_err().to_string();
        assert!(error.starts_with("panicked at ") && error.contains("guard.rs:"), "{error}");
        assert!(error.ends_with(": row 7 is odd"), "{error}");
        let error = guarded::<()>(|| std::panic::panic_any(5)).unwrap_err().to_string();
        assert!(error.ends_with("a value that is not text"), "{error}");
    }

    #[test]
    fn what_panics_in_its_own_drop_is_let_go() {
        struct Bad;
        impl Drop for Bad {
            fn drop(&mut self) {
                if !std::thread::panicking() {
                    panic!("in drop");
                }
            }
        }
        drop_guarded(Bad);
        assert!(guarded::<()>(|| std::panic::panic_any(Bad)).is_err());
        assert_eq!(guarded(|| Ok(1)).unwrap(), 1);
    }
}
