//! Scatter and gather: the two halves of an exchange between partitionings (paper §4.2).
//!
//! A scatter task runs once per partition that it reads, and sends at most one chunk to each partition on its
//! *route*. A gather task runs once per partition that it writes, after hearing from every source whose route
//! includes it, and sees the chunks in the order of the sources. A scatter that sends nothing along a route
//! reports that too, so a gather knows without asking when it is complete.

use std::sync::Arc;

use crate::dataflow::data::{AnyData, Chunk, Data};
use crate::dataflow::plan::Kind;
use crate::dataflow::program::{KernelResult, Program};
use crate::dataflow::views::{Reads, Writes};
use crate::error::ProgramError;

/// The partitions that a scatter may send to.
#[derive(Debug, Clone)]
pub enum Route {
    /// Every partition to every partition.
    All,
    /// By source partition: the partitions that it may send to. A gather on a partition that no route includes
    /// does not run. Fixed routes save messages in sparse exchanges, such as a two-dimensional vertex cut or a tree.
    Fixed(Vec<Vec<u32>>),
}

impl Route {
    /// Creates fixed routes for `sources` partitions.
    pub fn fixed(sources: u32, to: impl FnMut(u32) -> Vec<u32>) -> Self {
        Self::Fixed((0..sources).map(to).collect())
    }
}

/// Routes indexed for lookups by workers.
#[derive(Debug)]
pub(crate) struct Routes {
    pub sources: u32,
    pub destinations: u32,
    fixed: Option<Fixed>,
}

#[derive(Debug)]
struct Fixed {
    to: Vec<Vec<u32>>,
    from: Vec<Vec<u32>>,
}

impl Routes {
    fn new(route: Route, sources: u32, destinations: u32) -> Result<Self, (u32, String)> {
        let Route::Fixed(mut to) = route else { return Ok(Self { sources, destinations, fixed: None }) };
        if to.len() != sources as usize {
            return Err((
                to.len() as u32,
                format!("{} routes for {sources} partitions; give one route per partition", to.len()),
            ));
        }
        let mut from = vec![Vec::new(); destinations as usize];
        for (source, list) in to.iter_mut().enumerate() {
            list.sort_unstable();
            list.dedup();
            for &destination in list.iter() {
                let Some(from) = from.get_mut(destination as usize) else {
                    return Err((
                        source as u32,
                        format!(
                            "partition {destination} is out of range; there are {destinations} partitions"
                        ),
                    ));
                };
                from.push(source as u32);
            }
        }
        Ok(Self { sources, destinations, fixed: Some(Fixed { to, from }) })
    }

    /// Returns the number of sources that send to a destination.
    pub fn expected(&self, destination: u32) -> usize {
        self.fixed.as_ref().map_or(self.sources as usize, |fixed| fixed.from[destination as usize].len())
    }

    /// Returns the place of a source among those that send to a destination.
    pub fn place(&self, destination: u32, source: u32) -> Option<usize> {
        match &self.fixed {
            None => (source < self.sources).then_some(source as usize),
            Some(fixed) => fixed.from.get(destination as usize)?.binary_search(&source).ok(),
        }
    }

    /// Returns the source at a place; the inverse of [`Self::place`].
    fn source(&self, destination: u32, place: usize) -> u32 {
        self.fixed.as_ref().map_or(place as u32, |fixed| fixed.from[destination as usize][place])
    }

    /// Returns the number of destinations of a source.
    pub fn width(&self, source: u32) -> usize {
        self.fixed.as_ref().map_or(self.destinations as usize, |fixed| fixed.to[source as usize].len())
    }

    /// Returns the destination at a place of a source's route.
    pub fn destination(&self, source: u32, place: usize) -> u32 {
        self.fixed.as_ref().map_or(place as u32, |fixed| fixed.to[source as usize][place])
    }

    fn place_of(&self, source: u32, destination: u32) -> Option<usize> {
        match &self.fixed {
            None => (destination < self.destinations).then_some(destination as usize),
            Some(fixed) => fixed.to[source as usize].binary_search(&destination).ok(),
        }
    }
}

/// The chunks sent by one scatter task.
#[derive(Default)]
pub(crate) struct Sent {
    /// The chunk for all destinations without an entry in `chunks`.
    pub all: Option<Arc<dyn AnyData>>,
    /// By place on the route; may be shorter than the route.
    pub chunks: Vec<Option<Arc<dyn AnyData>>>,
}

impl Sent {
    pub fn clear(&mut self) {
        self.all = None;
        self.chunks.clear();
    }

    /// Returns the chunk for a place on the route.
    pub fn chunk(&self, place: usize) -> Option<Chunk> {
        let own = self.chunks.get(place).and_then(Option::as_ref);
        own.or(self.all.as_ref()).map(|data| Chunk::Typed(data.clone()))
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

/// [`Incoming`] without the type of its chunks.
#[derive(Clone, Copy)]
pub(crate) struct Gathered<'a> {
    pub routes: &'a Routes,
    pub destination: u32,
    /// By place among the sources.
    pub chunks: &'a [Option<Chunk>],
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
    reads: Vec<(u32, u32)>,
    route: Route,
    kernel: ScatterKernel,
    holds: std::marker::PhantomData<fn() -> C>,
}

pub(crate) type ScatterKernel =
    Box<dyn Fn(crate::dataflow::views::Partitions, &Routes, u32, &mut Sent) -> KernelResult + Send + Sync>;
pub(crate) type GatherKernel =
    Box<dyn Fn(crate::dataflow::views::Partitions, Gathered<'_>) -> KernelResult + Send + Sync>;

impl<'p, C: Data> Scatter<'p, C> {
    pub(crate) fn begin<R: Reads>(
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
        let count = |list: &[(u32, u32)]| {
            list.first().and_then(|d| program.datasets.get(d.0 as usize)).map_or(0, |d| d.partitions)
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

pub(crate) type Decode = fn(&[u8]) -> Result<Arc<dyn AnyData>, crate::dataflow::data::DataError>;
