//! Scatter and gather: the two halves of an exchange between partitionings (paper §4.2).
//!
//! A scatter task runs once per partition that it reads, and sends at most one chunk to each partition on its
//! *route*. A gather task runs once per partition that it writes, after hearing from every source whose route
//! includes it, and sees the chunks in the order of the sources. A scatter that sends nothing along a route
//! reports that too, so a gather knows without asking when it is complete.

use std::sync::Arc;

use crate::dataflow::data::{AnyData, Chunk, Data};
use crate::dataflow::index::DatasetIx;
use crate::dataflow::plan::Kind;
use crate::dataflow::program::Program;
use crate::dataflow::routes::{Decode, GatherKernel, Gathered, Route, Routes, ScatterKernel, Sent};
use crate::dataflow::views::{Dataset, Reads, Writes};
use crate::error::{KernelResult, ProgramError};

impl Program {
    /// Starts an exchange between partitionings: `kernel` runs once per partition of `reads` and sends chunks to
    /// partitions of the datasets passed to [`Scatter::gather`].
    pub fn scatter<R: Reads, C: Data>(
        &mut self,
        name: impl Into<String>,
        reads: R,
        route: Route,
        kernel: impl for<'a> Fn(R::Views<'a>, &mut Outgoing<'_, C>) -> KernelResult + Send + Sync + 'static,
    ) -> Scatter<'_, C> {
        Scatter::begin(self, name.into(), reads, route, kernel)
    }

    /// Copies the single partition of `from` to every partition of `to`.
    pub fn broadcast<T: Data + Clone>(&mut self, name: impl Into<String>, from: Dataset<T>, to: Dataset<T>) {
        let name = name.into();
        self.require_single(&name, from);
        self.scatter(name, from, Route::All, |value, out: &mut Outgoing<'_, T>| {
            out.send_all(value.clone());
            Ok(())
        })
        .gather((), to, |(), to, chunks: Incoming<'_, T>| {
            if let Some((_, value)) = chunks.iter().next() {
                to.clone_from(value);
            }
            Ok(())
        });
    }
}

/// The output of a scatter task.
pub struct Outgoing<'a, C> {
    pub(crate) routes: &'a Routes,
    pub(crate) source: u32,
    pub(crate) sent: &'a mut Sent,
    pub(crate) wrong: &'a mut Option<String>,
    pub(crate) holds: std::marker::PhantomData<fn(C)>,
}

impl<C: Data> Outgoing<'_, C> {
    /// Returns the partition of this task.
    pub fn source(&self) -> u32 {
        self.source
    }

    /// Returns the number of destination partitions.
    pub fn partitions(&self) -> u32 {
        self.routes.destinations
    }

    /// Sends a chunk to one partition. The task fails if it sends twice to a partition, or to one that is not on its
    /// route.
    pub fn send(&mut self, to: u32, chunk: C) {
        let Some(place) = self.routes.place_of(self.source, to) else {
            self.wrong
                .get_or_insert_with(|| format!("cannot send to partition {to}: it is not on the route"));
            return;
        };
        if self.sent.chunks.len() <= place {
            self.sent.chunks.resize(place + 1, None);
        }
        if self.sent.chunks[place].replace(Arc::new(chunk)).is_some() {
            self.wrong.get_or_insert_with(|| format!("cannot send to partition {to} twice"));
        }
    }

    /// Sends one shared chunk to every partition on the route that is sent no other.
    pub fn send_all(&mut self, chunk: C) {
        if self.sent.all.replace(Arc::new(chunk)).is_some() {
            self.wrong.get_or_insert_with(|| "cannot send to all partitions twice".into());
        }
    }
}

/// The input of a gather task.
pub struct Incoming<'a, C> {
    pub(crate) gathered: Gathered<'a>,
    pub(crate) holds: std::marker::PhantomData<fn() -> C>,
}

impl<'a, C: Data> Incoming<'a, C> {
    /// Returns the partition of this task.
    pub fn destination(&self) -> u32 {
        self.gathered.destination
    }

    /// Iterates over the chunks and the partitions that sent them, in the order of the partitions.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &'a C)> + use<'a, C> {
        let Gathered { routes, destination, chunks } = self.gathered;
        chunks.iter().enumerate().filter_map(move |(place, chunk)| match chunk {
            Some(Chunk::Typed(data)) => {
                let data: *const dyn AnyData = &**data;
                // SAFETY: all chunks of a scatter have the type that its gather was built with; chunks from
                // other processes are decoded as that type.
                Some((routes.source(destination, place), unsafe { &*data.cast::<C>() }))
            }
            Some(Chunk::Encoded(_)) | None => None,
        })
    }
}

/// A scatter without its gather.
#[must_use = "a scatter has no effect without a gather"]
pub struct Scatter<'p, C> {
    program: &'p mut Program,
    name: String,
    reads: Vec<(DatasetIx, u32)>,
    route: Route,
    kernel: ScatterKernel,
    holds: std::marker::PhantomData<fn() -> C>,
}

impl<'p, C: Data> Scatter<'p, C> {
    fn begin<R: Reads>(
        program: &'p mut Program,
        name: String,
        reads: R,
        route: Route,
        kernel: impl for<'a> Fn(R::Views<'a>, &mut Outgoing<'_, C>) -> KernelResult + Send + Sync + 'static,
    ) -> Self {
        let erased: ScatterKernel = Box::new(move |partitions, routes, source, sent| {
            let mut wrong = None;
            let holds = std::marker::PhantomData;
            let mut out = Outgoing { routes, source, sent, wrong: &mut wrong, holds };
            // SAFETY: as in `Program::transform`.
            unsafe { kernel(reads.views(partitions), &mut out)? };
            wrong.map_or(Ok(()), |wrong| Err(wrong.into()))
        });
        let reads = reads.datasets();
        Self { program, name, reads, route, kernel: erased, holds: std::marker::PhantomData }
    }

    /// Completes the exchange: `kernel` runs once per partition of `writes` and `reads`, which have the same
    /// partitioning, after all of its chunks have arrived.
    pub fn gather<R: Reads, W: Writes>(
        self,
        reads: R,
        writes: W,
        kernel: impl for<'a> Fn(R::Views<'a>, W::Views<'a>, Incoming<'a, C>) -> KernelResult
        + Send
        + Sync
        + 'static,
    ) {
        let Self { program, name, reads: sources, route, kernel: scatter, .. } = self;
        let gather: GatherKernel = Box::new(move |partitions, gathered| {
            let incoming = Incoming { gathered, holds: std::marker::PhantomData };
            // SAFETY: as in `Program::transform`.
            unsafe { kernel(reads.views(partitions), writes.views(partitions), incoming) }
        });
        let (reads, writes) = (reads.datasets(), writes.datasets());
        let count = |list: &[(DatasetIx, u32)]| {
            list.first().and_then(|d| program.datasets.get(d.0)).map_or(0, |d| d.partitions)
        };
        let destinations = count(if writes.is_empty() { &reads } else { &writes });
        let routes = match Routes::new(route, count(&sources), destinations) {
            Ok(routes) => Arc::new(routes),
            Err((source, message)) => {
                program.fail(ProgramError::Route { stage: name, source, message });
                return;
            }
        };
        let kind = Kind::Scatter { kernel: scatter, routes: routes.clone() };
        program.stage(format!("{name}: scatter"), &sources, &[], kind);
        let decode: Decode = |bytes| C::decode(bytes).map(|chunk| Arc::new(chunk) as Arc<dyn AnyData>);
        program.stage(
            format!("{name}: gather"),
            &reads,
            &writes,
            Kind::Gather { kernel: gather, routes, decode },
        );
    }
}
