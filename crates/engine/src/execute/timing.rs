//! Measures the parts of a compute monotask's time: decode, operators, encode, not split.
//!
//! A monotask runs on one thread from start to end, so its parts are measured in a thread-local stack of
//! frames. Entering a part pushes a frame. Leaving it adds the elapsed time minus that of its inner parts.
//! [`TimedExec`] wraps scans, nodes that are not split, and the children of those. All other operators
//! are the remainder. The cost is two clock reads per batch, so nothing below a batch is measured.

use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{Stream, StreamExt};

use crate::error::panic_message;
use crate::execute::exchange::{Ledger, stopped};

/// A part of a compute monotask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Decoding of input.
    Decode,
    /// Operators that are split into monotasks.
    Operators,
    /// Partitioning or encoding of output.
    Encode,
    /// Operators that are not split into monotasks.
    NotSplit,
}

/// Time of each part within one monotask.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Parts {
    pub decode_ns: u64,
    pub encode_ns: u64,
    pub not_split_ns: u64,
}

#[derive(Default)]
struct Frames {
    /// Time of inner parts, one entry per open part.
    inner: Vec<u64>,
    parts: Parts,
}

thread_local! {
    static FRAMES: RefCell<Frames> = RefCell::default();
}

/// Runs `work` and adds its time, minus that of inner parts, to `part`.
pub(crate) fn timed<T>(part: Part, work: impl FnOnce() -> T) -> T {
    FRAMES.with_borrow_mut(|f| f.inner.push(0));
    let start = Instant::now();
    let result = work();
    let elapsed = start.elapsed().as_nanos() as u64;
    FRAMES.with_borrow_mut(|f| {
        let own = elapsed.saturating_sub(f.inner.pop().unwrap_or(0));
        match part {
            Part::Decode => f.parts.decode_ns += own,
            Part::Encode => f.parts.encode_ns += own,
            Part::NotSplit => f.parts.not_split_ns += own,
            Part::Operators => {}
        }
        if let Some(outer) = f.inner.last_mut() {
            *outer += elapsed;
        }
    });
    result
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

/// Runs `work` like [`timed`]. A panic of a decoder becomes an error with a [`DecoderPanic`].
fn timed_and_caught<T>(part: Part, work: impl FnOnce() -> T) -> Result<T> {
    if part != Part::Decode {
        return Ok(timed(part, work));
    }
    // Unwind safety: the error ends the job, and with it the decoder.
    timed(part, || catch_unwind(AssertUnwindSafe(work))).map_err(|panic| {
        let panic = DecoderPanic(panic_message(panic.as_ref()).to_string());
        DataFusionError::External(Box::new(panic))
    })
}

/// Clears the measurements of this thread, which an earlier monotask or a panic may have left.
pub(crate) fn reset() {
    FRAMES.take();
}

/// Returns the parts measured on this thread since [`reset`].
pub(crate) fn parts() -> Parts {
    FRAMES.with_borrow(|f| f.parts)
}

/// A wrapper that adds the time of a node's polls to one [`Part`].
pub(crate) struct TimedExec {
    input: Arc<dyn ExecutionPlan>,
    part: Part,
    /// Checked before each batch, to stop if the job has ended early.
    ledger: Arc<dyn Ledger>,
}

impl fmt::Debug for TimedExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.part, self.input)
    }
}

impl TimedExec {
    pub(crate) fn wrap(
        input: Arc<dyn ExecutionPlan>,
        part: Part,
        ledger: &Arc<dyn Ledger>,
    ) -> Arc<dyn ExecutionPlan> {
        Arc::new(Self { input, part, ledger: Arc::clone(ledger) })
    }
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
        self.input.properties()
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
            Some(child) => Self::wrap(child, self.part, &self.ledger),
            None => self,
        })
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let stream = timed_and_caught(self.part, || self.input.execute(partition, context))??;
        Ok(Box::pin(TimedStream { stream, part: self.part, ledger: Arc::clone(&self.ledger) }))
    }
}

struct TimedStream {
    stream: SendableRecordBatchStream,
    part: Part,
    ledger: Arc<dyn Ledger>,
}

impl Stream for TimedStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ledger.is_stopped() {
            return Poll::Ready(Some(Err(stopped())));
        }
        let part = self.part;
        let polled = timed_and_caught(part, || self.stream.poll_next_unpin(cx));
        polled.unwrap_or_else(|error| Poll::Ready(Some(Err(error))))
    }
}

impl RecordBatchStream for TimedStream {
    fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_of_a_decoder_is_an_error() {
        let error = timed_and_caught::<()>(Part::Decode, || panic!("index 7 out of range")).unwrap_err();
        assert!(matches!(error.find_root(), DataFusionError::External(e) if e.is::<DecoderPanic>()));
        assert!(error.to_string().contains("index 7 out of range"), "{error}");
        assert_eq!(timed_and_caught(Part::Decode, || 7).unwrap(), 7);
        assert!(catch_unwind(|| timed_and_caught::<()>(Part::Operators, || panic!("a fault"))).is_err());
    }

    #[test]
    fn inner_parts_are_subtracted_from_outer_parts() {
        reset();
        let spin = |n: u64| (0..n).fold(0u64, |a, b| std::hint::black_box(a ^ b));
        timed(Part::NotSplit, || {
            timed(Part::Decode, || spin(200_000));
            timed(Part::Operators, || timed(Part::Encode, || spin(1000)));
        });
        let all = parts();
        assert!(all.decode_ns > 0 && all.encode_ns > 0);
        // The time outside the inner parts is negligible compared to 200,000 rounds.
        assert!(all.not_split_ns < all.decode_ns);
        reset();
        assert_eq!(parts().decode_ns, 0);
    }
}
