//! Work on two threads, whose results do not depend on their order.

use std::thread;

/// Runs both closures, the first on its own thread if one can be spawned. The results do not depend on
/// the order.
pub(crate) fn join<A: Send, B>(first: impl Fn() -> A + Sync, second: impl FnOnce() -> B) -> (A, B) {
    thread::scope(|scope| {
        let spawned = thread::Builder::new().spawn_scoped(scope, &first);
        let second = second();
        match spawned {
            Ok(spawned) => (spawned.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), second),
            Err(_) => (first(), second), // cannot spawn a thread
        }
    })
}

/// Maps items on two threads, preserving order.
pub(crate) fn map_parallel<T: Sync, R: Send>(items: &[T], map: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (first, second) = items.split_at(items.len() / 2);
    let of = |items: &[T]| items.iter().map(&map).collect::<Vec<R>>();
    let (mut all, rest) = join(|| of(first), || of(second));
    all.extend(rest);
    all
}
