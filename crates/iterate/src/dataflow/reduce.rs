//! Tree reduce, built from exchanges along a fixed tree.
//!
//! Partition `i` of a level sends its partial result to the partition whose index is `i` rounded down to a
//! multiple of the level's stride. Once at most 16 remain, they go to the single partition of the result.
//! Levels are ordinary exchanges with fixed routes, so workers need no special support for reductions, and
//! the order of combination depends only on the indexes.

use std::sync::Arc;

use crate::dataflow::data::{Data, DataError};
use crate::dataflow::exchange::{Incoming, Outgoing, Scatter};
use crate::dataflow::program::Program;
use crate::dataflow::routes::Route;
use crate::dataflow::views::{Dataset, Reads};
use crate::error::KernelResult;

/// Number of partial results that one partition combines.
const FAN_IN: u32 = 16;

/// A partial result; `None` before the first reduction.
struct Partial<T>(Option<T>);

impl<T: Data> Data for Partial<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.0.is_some()));
        if let Some(value) = &self.0 {
            value.encode(out);
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, DataError> {
        match bytes.split_first() {
            Some((0, [])) => Ok(Self(None)),
            Some((1, value)) => T::decode(value).map(|value| Self(Some(value))),
            _ => Err(DataError::new("invalid partial result")),
        }
    }

    fn size_bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, Data::size_bytes)
    }
}

type Combine<T> = Arc<dyn Fn(&mut T, &T) + Send + Sync>;

impl Program {
    /// Reduces all partitions of `from` into the single partition of `into`, replacing its content. The tree is
    /// fixed by the partitions' indexes, with a fan-in of 16, so the result does not depend on placement.
    pub fn tree_reduce<T: Data + Clone>(
        &mut self,
        name: impl Into<String>,
        from: Dataset<T>,
        into: Dataset<T>,
        combine: impl Fn(&mut T, &T) + Send + Sync + 'static,
    ) {
        let name = name.into();
        self.require_single(&name, into);
        add(self, &name, from, into, Arc::new(combine));
    }
}

/// Adds the levels of a reduction of `from` into the one partition of `into`.
fn add<T: Data + Clone>(
    program: &mut Program,
    name: &str,
    from: Dataset<T>,
    into: Dataset<T>,
    combine: Combine<T>,
) {
    let mut stride = 1;
    let mut partial: Option<Dataset<Partial<T>>> = None;
    while from.partitions().div_ceil(stride) > FAN_IN {
        let above = stride;
        stride *= FAN_IN;
        let route = Route::fixed(from.partitions(), |source| {
            if source % above == 0 { vec![source - source % stride] } else { Vec::new() }
        });
        let title = format!("{name}: by {stride}");
        let combine = combine.clone();
        let to = partial.unwrap_or_else(|| {
            program.dataset(format!("{name}: partial"), from.partitions(), |_| Ok(Partial(None)))
        });
        level(program, title, from, partial, route).gather((), to, move |(), to, chunks| {
            to.0 = fold(&chunks, &combine);
            Ok(())
        });
        partial = Some(to);
    }
    let route =
        Route::fixed(from.partitions(), |source| if source % stride == 0 { vec![0] } else { Vec::new() });
    level(program, name.into(), from, partial, route).gather((), into, move |(), into, chunks| {
        if let Some(value) = fold(&chunks, &combine) {
            *into = value;
        }
        Ok(())
    });
}

/// Adds the scatter of a level: of the values at the first level, then of partial results.
fn level<T: Data + Clone>(
    program: &mut Program,
    name: String,
    from: Dataset<T>,
    partial: Option<Dataset<Partial<T>>>,
    route: Route,
) -> Scatter<'_, T> {
    fn all<R: Reads, T: Data + Clone>(
        value: impl for<'a> Fn(R::Views<'a>) -> Option<T> + Send + Sync + 'static,
    ) -> impl for<'a> Fn(R::Views<'a>, &mut Outgoing<'_, T>) -> KernelResult + Send + Sync + 'static {
        move |view, out| {
            if let Some(value) = value(view) {
                out.send_all(value);
            }
            Ok(())
        }
    }
    match partial {
        None => program.scatter(name, from, route, all::<Dataset<T>, T>(|value| Some(value.clone()))),
        Some(partial) => {
            program.scatter(name, partial, route, all::<Dataset<Partial<T>>, T>(|partial| partial.0.clone()))
        }
    }
}

fn fold<T: Data + Clone>(chunks: &Incoming<'_, T>, combine: &Combine<T>) -> Option<T> {
    let mut values = chunks.iter().map(|(_, value)| value);
    let first = values.next()?.clone();
    Some(values.fold(first, |mut sum, next| {
        combine(&mut sum, next);
        sum
    }))
}
