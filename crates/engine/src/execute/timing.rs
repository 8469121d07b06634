//! Measures the core time of each operator within a compute monotask.
//!
//! A monotask runs on one thread from start to end, and operators call each other, so the open calls are a stack.
//! Where one operator calls another or returns, the core time since the last such place belongs to the operator that ran:
//! times are exclusive, and add up. [`TimedExec`] wraps every node of a stage's plan. The cost is two reads of a [`Clock`]
//! for each batch and operator, so nothing below a batch is measured.
//!
//! To compare a what-if with a real run, an operator can be slowed ([`Slowed`]): it keeps its core busy in proportion to
//! the core time of each call.

use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{Stream, StreamExt};
use pellucid_runtime::mark_operator;

use crate::error::panic_message;
use crate::execute::clock::{Clock, now_ns};
use crate::execute::compact::{batch_bytes, batch_without_rest};
use crate::execute::exchange::stopped;
use crate::execute::memory::ledger::Ledger;
use crate::scan::column_work::{self, ColumnWork, share};

/// The work of one operator in a monotask.
#[derive(Debug, Clone, Default)]
pub(crate) struct Work {
    pub cpu_ns: u64,
    pub batches: u64,
    pub rows: u64,
    pub bytes: u64,
    /// Of a scan that decodes its columns one by one.
    pub columns: Vec<ColumnWork>,
}

/// An operator that takes `factor` times its core time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slowed {
    pub operator: usize,
    pub factor: f64,
}

#[derive(Default)]
struct Frames {
    /// Operators whose calls are open, innermost last.
    open: Vec<usize>,
    /// Its laps end where `open` changes.
    clock: Clock,
    /// By operator.
    work: Vec<Work>,
    slowed: Option<Slowed>,
    /// Number in the job of the stage's first operator.
    first: u32,
    /// Core time of the slowed operator that it has not been slowed for yet.
    due_ns: u64,
}

impl Frames {
    /// Adds the time since the last change to the innermost operator.
    fn charge(&mut self) {
        let lap_ns = self.clock.lap();
        if let Some(&operator) = self.open.last() {
            self.of(operator).cpu_ns += lap_ns;
            if self.slowed.is_some_and(|slowed| slowed.operator == operator) {
                self.due_ns += lap_ns;
            }
        }
    }

    /// Slows the innermost operator, which is about to return or to become another, for its core time since the last
    /// time.
    fn slow(&mut self) {
        let Some(slowed) = self.slowed.filter(|slowed| self.open.last() == Some(&slowed.operator)) else {
            return;
        };
        let until = now_ns() + (self.due_ns as f64 * (slowed.factor - 1.0)) as u64;
        while now_ns() < until {}
        self.charge();
        self.due_ns = 0;
    }

    /// Tells samples of this thread which operator runs.
    fn mark(&self) {
        mark_operator(self.open.last().map(|operator| self.first + *operator as u32));
    }

    fn of(&mut self, operator: usize) -> &mut Work {
        if self.work.len() <= operator {
            self.work.resize_with(operator + 1, Work::default);
        }
        &mut self.work[operator]
    }
}

thread_local! {
    static FRAMES: RefCell<Frames> = RefCell::default();
}

/// Runs `work`, and adds its core time, minus that of operators that it calls, to `operator`.
pub(crate) fn timed<T>(operator: usize, work: impl FnOnce() -> T) -> T {
    changing(operator, None, work).0
}

/// Runs `work` like [`timed`]. The call that is open before becomes the work of `caller`, if given. Returns the operator
/// that the call of `operator` has become.
fn changing<T>(operator: usize, caller: Option<usize>, work: impl FnOnce() -> T) -> (T, usize) {
    FRAMES.with_borrow_mut(|frames| {
        frames.charge();
        if let Some(caller) = caller {
            frames.slow();
            if let Some(innermost) = frames.open.last_mut() {
                *innermost = caller;
            }
        }
        frames.open.push(operator);
        frames.mark();
    });
    let result = work();
    let left = FRAMES.with_borrow_mut(|frames| {
        frames.charge();
        frames.slow();
        let left = frames.open.pop();
        frames.mark();
        left
    });
    (result, left.unwrap_or(operator))
}

/// Adds rows to the innermost operator, beside those of the batches that it returns.
pub(crate) fn count_rows(rows: u64) {
    FRAMES.with_borrow_mut(|frames| {
        if let Some(&operator) = frames.open.last() {
            frames.of(operator).rows += rows;
        }
    });
}

/// Clears the measurements of this thread, which an earlier monotask or a panic may have left. `first`, the number in
/// the job of the stage's first operator, and `slowed` hold until the next call.
pub(crate) fn reset(first: u32, slowed: Option<Slowed>) {
    FRAMES.set(Frames { first, slowed, ..Frames::default() });
    mark_operator(None);
    column_work::reset();
}

/// Takes the work by operator on this thread since [`reset`], in which the thread had `core_ns` of core time.
///
/// The last laps may have been counted as longer than they were, and no lap after them corrects that.
pub(crate) fn take(core_ns: u64) -> Vec<Work> {
    let mut work = FRAMES.with_borrow_mut(|frames| std::mem::take(&mut frames.work));
    let sum: u64 = work.iter().map(|work| work.cpu_ns).sum();
    if sum > core_ns {
        for work in &mut work {
            work.cpu_ns = share(work.cpu_ns, core_ns, sum);
            work.columns.iter_mut().for_each(|column| column.ns = share(column.ns, core_ns, sum));
        }
    }
    work
}

/// A panic of a decoder, which some damaged files cause.
#[derive(Debug)]
pub(crate) struct DecoderPanic(String);

impl fmt::Display for DecoderPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DecoderPanic {}

/// Turns a panic of a decoder into an error with a [`DecoderPanic`].
fn caught<T>(work: impl FnOnce() -> T) -> Result<T> {
    // Unwind safety: the error ends the job, and with it the decoder.
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let panic = DecoderPanic(panic_message(panic.as_ref()).to_string());
        DataFusionError::External(Box::new(panic))
    })
}

/// How a node is measured.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Measure {
    /// The operator that the node is.
    pub operator: usize,
    /// The operator that the caller becomes when it first asks for a row of this node.
    pub caller: Option<usize>,
    /// True for a decoder, whose panics are errors.
    pub decodes: bool,
    /// True if the bytes of its batches are counted.
    pub counts_bytes: bool,
    /// True if its batches go to a sort, which reserves all buffers that a batch refers to.
    pub sorted: bool,
}

impl Measure {
    fn run<T>(self, operator: usize, work: impl FnOnce() -> T) -> (Result<T>, usize) {
        changing(operator, self.caller, || if self.decodes { caught(work) } else { Ok(work()) })
    }
}

/// A wrapper that measures a node.
pub(crate) struct TimedExec {
    input: Arc<dyn ExecutionPlan>,
    /// Those of the node as planned: a node whose expressions are timed does not know its own.
    properties: Arc<PlanProperties>,
    measure: Measure,
    /// Checked before each batch, to stop if the job has ended early.
    ledger: Arc<dyn Ledger>,
}

impl fmt::Debug for TimedExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.measure.operator, self.input)
    }
}

impl TimedExec {
    pub(crate) fn wrap(
        input: Arc<dyn ExecutionPlan>,
        properties: &Arc<PlanProperties>,
        measure: Measure,
        ledger: &Arc<dyn Ledger>,
    ) -> Arc<dyn ExecutionPlan> {
        Arc::new(Self { input, properties: Arc::clone(properties), measure, ledger: Arc::clone(ledger) })
    }

    /// Returns `node` with another measure, if it has one.
    pub(crate) fn remeasured(
        node: Arc<dyn ExecutionPlan>,
        change: impl FnOnce(&mut Measure),
    ) -> Arc<dyn ExecutionPlan> {
        let Some(timed) = node.downcast_ref::<Self>() else { return node };
        let mut measure = timed.measure;
        change(&mut measure);
        Self::wrap(Arc::clone(&timed.input), &timed.properties, measure, &timed.ledger)
    }
}

/// Returns `node` without its known values and order of rows, if it has a measure.
pub(crate) fn unordered(node: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let unknown = EquivalenceProperties::new(node.schema());
    known_as(unknown, node)
}

/// Returns `node` with other knowledge of the values and the order of its rows, if it has a measure.
pub(crate) fn known_as(known: EquivalenceProperties, node: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let Some(timed) = node.downcast_ref::<TimedExec>() else { return node };
    let properties = Arc::new(timed.properties.as_ref().clone().with_eq_properties(known));
    TimedExec::wrap(Arc::clone(&timed.input), &properties, timed.measure, &timed.ledger)
}

impl DisplayAs for TimedExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.input.fmt_as(t, f)
    }
}

impl ExecutionPlan for TimedExec {
    fn name(&self) -> &str {
        self.input.name()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(match children.pop() {
            Some(child) => Self::wrap(child, &self.properties, self.measure, &self.ledger),
            None => self,
        })
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        // Preparing a probe side is not yet asking it for rows.
        let preparing = Measure { caller: None, ..self.measure };
        let (stream, _) = preparing.run(self.measure.operator, || self.input.execute(partition, context));
        let (measure, ledger, schema) = (self.measure, Arc::clone(&self.ledger), self.input.schema());
        Ok(Box::pin(TimedStream {
            stream: Some(stream??),
            schema,
            operator: measure.operator,
            measure,
            ledger,
        }))
    }
}

struct TimedStream {
    /// `None` while it is dropped.
    stream: Option<SendableRecordBatchStream>,
    schema: SchemaRef,
    /// The operator whose work the next call is.
    operator: usize,
    measure: Measure,
    ledger: Arc<dyn Ledger>,
}

impl Stream for TimedStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ledger.is_stopped() {
            return Poll::Ready(Some(Err(stopped())));
        }
        let (measure, operator) = (self.measure, self.operator);
        let Some(stream) = &mut self.stream else { return Poll::Ready(None) };
        let core_ns = |frames: &mut Frames, operator| frames.of(operator).cpu_ns;
        let before_ns =
            if measure.decodes { FRAMES.with_borrow_mut(|frames| core_ns(frames, operator)) } else { 0 };
        let (polled, became) = measure.run(operator, || stream.poll_next_unpin(cx));
        self.operator = became;
        if measure.decodes {
            FRAMES.with_borrow_mut(|frames| {
                let core_ns = core_ns(frames, became) - before_ns;
                column_work::settle(&mut frames.of(became).columns, core_ns);
            });
        }
        if let Ok(Poll::Ready(Some(Ok(batch)))) = &polled {
            FRAMES.with_borrow_mut(|frames| {
                let work = frames.of(became);
                work.batches += 1;
                work.rows += batch.num_rows() as u64;
                if measure.counts_bytes {
                    work.bytes += batch_bytes(batch);
                }
            });
        }
        match polled {
            Ok(Poll::Ready(Some(Ok(batch)))) if measure.sorted => {
                Poll::Ready(Some(Ok(batch_without_rest(batch)?)))
            }
            polled => polled.unwrap_or_else(|error| Poll::Ready(Some(Err(error)))),
        }
    }
}

impl RecordBatchStream for TimedStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// An operator's state is freed when its stream is, which takes long for large ones.
impl Drop for TimedStream {
    fn drop(&mut self) {
        let stream = self.stream.take();
        // A thread that ends may have dropped its measurements before a stream.
        if FRAMES.try_with(|_| ()).is_ok() {
            timed(self.operator, || drop(stream));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::execute::memory::ledger::Unlimited;

    #[test]
    fn panic_of_a_decoder_is_an_error() {
        let error = caught::<()>(|| panic!("index 7 out of range")).unwrap_err();
        assert!(matches!(error.find_root(), DataFusionError::External(e) if e.is::<DecoderPanic>()));
        assert!(error.to_string().contains("index 7 out of range"), "{error}");
        assert_eq!(caught(|| 7).unwrap(), 7);
    }

    fn spin(rounds: u64) -> u64 {
        (0..rounds).fold(0, |a, b| std::hint::black_box(a ^ b))
    }

    #[test]
    fn times_are_exclusive_and_add_up() {
        reset(0, None);
        let begin = Instant::now();
        timed(0, || {
            timed(1, || spin(2_000_000));
            timed(2, || timed(1, || spin(1000)));
        });
        let elapsed = begin.elapsed().as_nanos() as u64;
        let work = take(u64::MAX);
        let sum: u64 = work.iter().map(|w| w.cpu_ns).sum();
        // The kernel's two clocks differ by some millionths; a time that were counted twice would be twice as much.
        assert!(sum <= elapsed + elapsed / 100 && work[1].cpu_ns > 0, "{sum} of {elapsed}");
        // The time outside of operator 1 is negligible compared to two million rounds.
        assert!(work[0].cpu_ns + work[2].cpu_ns < work[1].cpu_ns);
        assert!(take(u64::MAX).is_empty());
    }

    /// A stream that spins when it is dropped.
    struct Slow;

    impl Stream for Slow {
        type Item = Result<RecordBatch>;

        fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            column_work::add(1, ColumnWork { ns: 7, encoded_bytes: 3, decoded_bytes: 5 });
            Poll::Ready(None)
        }
    }

    impl RecordBatchStream for Slow {
        fn schema(&self) -> SchemaRef {
            Arc::new(datafusion::arrow::datatypes::Schema::empty())
        }
    }

    impl Drop for Slow {
        fn drop(&mut self) {
            spin(2_000_000);
        }
    }

    #[test]
    fn dropping_a_stream_and_its_columns_are_work_of_its_operator() {
        reset(0, None);
        let stream: SendableRecordBatchStream = Box::pin(Slow);
        let measure = Measure { operator: 3, decodes: true, ..Measure::default() };
        let (schema, ledger) = (stream.schema(), Arc::new(Unlimited));
        let mut timed = TimedStream { stream: Some(stream), schema, operator: 3, measure, ledger };
        assert!(futures::executor::block_on(timed.next()).is_none());
        let polled = take(u64::MAX);
        let column = polled[3].columns[1];
        assert_eq!((column.encoded_bytes, column.decoded_bytes), (3, 5));
        assert!(column.ns <= 7.min(polled[3].cpu_ns), "{column:?}");
        drop(timed);
        assert!(take(u64::MAX)[3].cpu_ns > polled[3].cpu_ns);
    }

    #[test]
    fn operators_share_no_more_than_the_core_time() {
        reset(0, None);
        timed(0, || timed(1, || spin(10_000)));
        FRAMES.with_borrow_mut(|frames| {
            let column = ColumnWork { ns: frames.work[1].cpu_ns / 2, ..ColumnWork::default() };
            frames.of(1).columns.push(column);
        });
        let work = take(1_000);
        assert!(work[0].cpu_ns + work[1].cpu_ns <= 1_000, "{work:?}");
        assert!(work[1].columns[0].ns > 0 && work[1].columns[0].ns <= work[1].cpu_ns, "{work:?}");
    }

    #[test]
    fn call_becomes_the_work_of_another_operator() {
        reset(0, None);
        let ((), became) = changing(0, None, || {
            spin(1000);
            changing(2, Some(1), || spin(10));
            spin(2_000_000);
        });
        let work = take(u64::MAX);
        assert_eq!(became, 1);
        assert!(work[0].cpu_ns < work[1].cpu_ns);
    }

    #[test]
    fn slowed_operator_takes_a_multiple_of_its_own_time() {
        reset(0, Some(Slowed { operator: 1, factor: 3.0 }));
        let mut own_ns = 0;
        timed(0, || {
            changing(1, None, || {
                let begin = now_ns();
                spin(60_000_000);
                own_ns += now_ns() - begin;
                // The slowed operator calls another and becomes a third; neither is slowed.
                changing(2, Some(3), || spin(1000));
                spin(2_000_000);
            });
        });
        let work = take(u64::MAX);
        // A preempted lap before it may shorten the time by 200 µs ([`Clock`]), of about 30 ms.
        assert!(work[1].cpu_ns * 100 >= 297 * own_ns, "{} of {own_ns}", work[1].cpu_ns);
        assert!(work[3].cpu_ns < 3 * own_ns, "{} of {own_ns}", work[3].cpu_ns);
        assert!(work[2].cpu_ns < own_ns && work[0].cpu_ns < own_ns);
    }
}
