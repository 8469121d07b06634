//! Stacks of threads that parse and plan.
//!
//! A generated statement may nest thousands of operators. DataFusion extends the stack in some of its
//! recursive functions, but not in those that print, compare or drop a plan.

use std::panic::resume_unwind;
use std::thread::{self, Builder};

use crate::EngineError;

/// Stack size. Unused stack costs only address space.
pub(crate) const STACK_BYTES: usize = 256 << 20;

/// Returns the builder of a thread with a large stack.
pub(crate) fn thread_builder(name: &str) -> Builder {
    Builder::new().name(name.to_string()).stack_size(STACK_BYTES)
}

/// Runs `work` on a thread with a large stack, and waits for it.
///
/// # Errors
/// Returns the error of `work`, or an error if the thread cannot start.
pub(crate) fn with_large_stack<T: Send>(
    work: impl FnOnce() -> Result<T, EngineError> + Send,
) -> Result<T, EngineError> {
    thread::scope(|scope| {
        let thread = thread_builder("parse").spawn_scoped(scope, work).map_err(|e| cannot_start(&e))?;
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Returns the error for a thread that cannot start.
pub(crate) fn cannot_start(error: &std::io::Error) -> EngineError {
    EngineError::Failed(format!("cannot start a thread: {error}; raise ulimit -u or ulimit -v"))
}
