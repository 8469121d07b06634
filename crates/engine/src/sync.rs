//! Access to data that several threads use.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also if a thread has panicked meanwhile: data are consistent after each statement that changes them.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
