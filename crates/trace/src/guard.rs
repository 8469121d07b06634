//! Runs code of callers (closures, plans) and of libraries, and converts its panics to errors.
//!
//! A panic must end only its job, and some libraries panic on damaged files. Its message and location become the job's error. The default panic hook,
//! which would print a backtrace into a progress bar, is silenced for guarded code only. The hook is global
//! to the process, so it is wrapped once and forwards all other panics.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Once;
use std::task::{Context, Poll};

/// The error of guarded code.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `f` and converts a panic to an error with its message and location.
///
/// # Errors
/// Returns the error of `f`, or that of its panic.
pub fn guarded<T>(f: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    install_hook();
    let outer = GUARDED.replace(true);
    // Unwind safety: inconsistent state belongs to the job, which the panic ends.
    let result = catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| Err(describe(payload)));
    GUARDED.set(outer);
    result
}

/// Waits for `future` as [`guarded`] runs a function.
///
/// # Errors
/// Returns the error of a panic.
pub async fn guarded_future<F: Future>(future: F) -> Result<F::Output, Error> {
    let mut future = pin!(future);
    let poll = |context: &mut Context| match guarded(|| Ok(future.as_mut().poll(context))) {
        Ok(poll) => poll.map(Ok),
        Err(error) => Poll::Ready(Err(error)),
    };
    poll_fn(poll).await
}

fn describe(payload: Box<dyn Any + Send>) -> Error {
    let place = PLACE.with(|p| p.borrow_mut().take());
    let message = payload
        .downcast_ref::<&str>()
        .map(|s| (*s).to_string())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a value that is not text".to_string());
    // Dropping the payload is caller code, too; a payload that panics on drop is leaked.
    if let Err(again) = catch_unwind(AssertUnwindSafe(move || drop(payload))) {
        std::mem::forget(again);
    }
    match place {
        Some(place) => format!("panicked at {place}: {message}").into(),
        None => format!("panicked: {message}").into(),
    }
}

/// Drops `value`, whose `Drop` is caller code. A panic is ignored, since the value's job already has its
/// outcome.
pub fn drop_guarded<T>(value: T) {
    let _ = guarded(move || {
        drop(value);
        Ok(())
    });
}

fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if GUARDED.get() {
                let place = info.location().map(|l| format!("{}:{}", l.file(), l.line()));
                PLACE.with(|p| *p.borrow_mut() = place);
            } else {
                previous(info);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_becomes_error_with_message_and_location() {
        let error = guarded::<()>(|| panic!("row {} is odd", 7)).unwrap_err().to_string();
        assert!(error.starts_with("panicked at ") && error.contains("guard.rs:"), "{error}");
        assert!(error.ends_with(": row 7 is odd"), "{error}");
        let error = guarded::<()>(|| std::panic::panic_any(5)).unwrap_err().to_string();
        assert!(error.ends_with("a value that is not text"), "{error}");
    }

    #[test]
    fn panic_of_a_future_becomes_error() {
        let poll = |future: &mut dyn FnMut() -> u32| {
            let mut guarded = pin!(guarded_future(async { future() }));
            guarded.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop()))
        };
        assert!(matches!(poll(&mut || 3), Poll::Ready(Ok(3))));
        let Poll::Ready(Err(error)) = poll(&mut || panic!("a fault")) else { panic!("no error") };
        assert!(error.to_string().ends_with(": a fault"), "{error}");
    }

    #[test]
    fn panic_in_drop_is_ignored() {
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
