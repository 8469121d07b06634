//! Compute monotasks that wait for I/O.
//!
//! A core must not wait for a disk. So an operator that needs I/O while it computes asks for monotasks with [`ask`] and
//! returns `Pending`. The compute monotask then ends, the monotasks run, and after them another compute monotask of the
//! multitask goes on where this one has stopped.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use datafusion::common::{DataFusionError, Result};
use pellucid_runtime::Monotask;
use tokio::runtime::{Builder, Runtime};

use crate::execute::spill::{self, Load};
use crate::sync::lock;

/// The requests of the work on this thread.
#[derive(Default)]
struct Asked {
    io: Vec<Monotask>,
    /// Blocks to read, with those that are needed later.
    loads: Vec<Arc<Load>>,
    /// Of the futures that wait for it.
    wakers: Vec<Waker>,
    /// Of the whole work.
    whole: Option<Waker>,
}

thread_local! {
    static ASKED: RefCell<Asked> = RefCell::default();
}

impl Asked {
    fn is_empty(&self) -> bool {
        self.io.is_empty() && self.loads.is_empty()
    }

    fn wake_after_io(&mut self, waker: &Waker) {
        self.wakers.push(waker.clone());
        // The future that asks may be a task that an operator has spawned.
        self.whole.iter().for_each(Waker::wake_by_ref);
    }
}

/// Asks for I/O, after which `waker` is woken.
pub(crate) fn ask(io: Vec<Monotask>, waker: &Waker) {
    ASKED.with_borrow_mut(|asked| {
        asked.wake_after_io(waker);
        asked.io.extend(io);
    });
}

/// Asks for those blocks that are not in memory. They are read when the work next waits for I/O.
pub(crate) fn read(loads: &[Arc<Load>]) {
    ASKED.with_borrow_mut(|asked| {
        asked.loads.extend(loads.iter().filter(|load| !load.is_done()).cloned());
    });
}

/// Waits for a block that must be read, and for those that [`read`] asked for, after which `waker` is woken.
pub(crate) fn wait_for(load: &Arc<Load>, waker: &Waker) {
    ASKED.with_borrow_mut(|asked| {
        // It may have been in the page cache before.
        asked.loads.push(Arc::clone(load));
        asked.wake_after_io(waker);
    });
}

/// Waits until I/O is done.
pub(crate) async fn done(io: Vec<Monotask>) {
    let mut io = Some(io).filter(|io| !io.is_empty());
    poll_fn(|context| match io.take() {
        Some(io) => {
            ask(io, context.waker());
            Poll::Pending
        }
        None => Poll::Ready(()),
    })
    .await;
}

/// Idle executors of work. One executor serves a piece of work from its start to its end, since operators may spawn tasks
/// in it.
static IDLE: Mutex<Vec<Runtime>> = Mutex::new(Vec::new());

/// Work in one or more compute monotasks.
pub(crate) struct Work<T> {
    future: Pin<Box<dyn Future<Output = T> + Send>>,
    /// Futures that wait for I/O.
    wakers: Vec<Waker>,
    /// `None` only after the end.
    executor: Option<Runtime>,
}

/// The result of a compute monotask, and the I/O that follows it.
pub(crate) struct Ran<T> {
    /// `None` if the work goes on after the I/O.
    pub result: Option<T>,
    pub io: Vec<Monotask>,
}

impl<T> Work<T> {
    /// Creates work.
    ///
    /// # Errors
    /// Returns an error if the system has no more files for an executor.
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'static) -> Result<Self> {
        let idle = lock(&IDLE).pop();
        let new = || Builder::new_current_thread().enable_all().build();
        let executor = idle.map_or_else(new, Ok);
        let executor =
            executor.map_err(|e| DataFusionError::Execution(format!("cannot poll streams: {e}")))?;
        Ok(Self { future: Box::pin(future), wakers: Vec::new(), executor: Some(executor) })
    }

    /// Works until the end, or until there is I/O to wait for.
    pub(crate) fn run(&mut self) -> Ran<T> {
        ASKED.set(Asked::default());
        self.wakers.drain(..).for_each(Waker::wake);
        let future = &mut self.future;
        let poll = poll_fn(|context| {
            ASKED.with_borrow_mut(|asked| asked.whole = Some(context.waker().clone()));
            match future.as_mut().poll(context) {
                Poll::Ready(result) => Poll::Ready(Some(result)),
                Poll::Pending if ASKED.with_borrow(Asked::is_empty) => Poll::Pending,
                Poll::Pending => Poll::Ready(None),
            }
        });
        let result = self.executor.as_ref().and_then(|executor| executor.block_on(poll));
        let asked = ASKED.take();
        self.wakers = asked.wakers;
        if result.is_some() {
            lock(&IDLE).extend(self.executor.take());
        }
        let mut io = asked.io;
        if result.is_none() {
            io.extend(spill::read(asked.loads));
        }
        Ran { result, io }
    }
}

impl<T> Drop for Work<T> {
    fn drop(&mut self) {
        // Work that has failed may be dropped where nothing may block.
        self.executor.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use pellucid_runtime::{Done, Options, Phase};

    fn io() -> Vec<Monotask> {
        let runtime = pellucid_runtime::Runtime::new(Options { cores: 1, ..Options::default() }).unwrap();
        let disk = runtime.disk_of(std::path::Path::new(".")).unwrap();
        vec![Monotask::new(&disk, Phase::Read, Vec::new(), 0, |_| Ok(Done::default()))]
    }

    #[test]
    fn work_goes_on_after_io_on_another_thread() {
        let mut work = Work::new(async {
            done(io()).await;
            // A task that an operator spawns waits as well.
            let spawned = tokio::spawn(done(io()));
            let (both, _) = futures::join!(spawned, done(io()));
            both.unwrap();
            7
        })
        .unwrap();
        let ran = work.run();
        assert!(ran.result.is_none() && ran.io.len() == 1);
        let (ran, mut work) = std::thread::spawn(move || (work.run(), work)).join().unwrap();
        // The task may ask only when it is first polled.
        let mut asked = ran.io.len();
        let mut result = ran.result;
        while result.is_none() {
            let ran = work.run();
            asked += ran.io.len();
            result = ran.result;
        }
        assert_eq!((result, asked), (Some(7), 2));
    }

    #[test]
    fn work_without_io_ends_at_once() {
        let ran = Work::new(async { tokio::task::yield_now().await }).unwrap().run();
        assert!(ran.result.is_some() && ran.io.is_empty());
    }
}
