//! Routes of exchanges, and the chunks that travel on them.
//!
//! A *route* of a scatter task lists the partitions that it may send to. A chunk is found by its place on the route
//! of its source, or by the place of its source among those that send to a destination.

use std::sync::Arc;

use crate::dataflow::data::{AnyData, Chunk, DataError};
use crate::dataflow::views::Partitions;
use crate::error::KernelResult;

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
    pub fn new(route: Route, sources: u32, destinations: u32) -> Result<Self, (u32, String)> {
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
    pub fn source(&self, destination: u32, place: usize) -> u32 {
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

    /// Returns the place of a destination on a source's route.
    pub fn place_of(&self, source: u32, destination: u32) -> Option<usize> {
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

/// The chunks that a gather task receives.
#[derive(Clone, Copy)]
pub(crate) struct Gathered<'a> {
    pub routes: &'a Routes,
    pub destination: u32,
    /// By place among the sources.
    pub chunks: &'a [Option<Chunk>],
}

pub(crate) type ScatterKernel =
    Box<dyn Fn(Partitions, &Routes, u32, &mut Sent) -> KernelResult + Send + Sync>;
pub(crate) type GatherKernel = Box<dyn Fn(Partitions, Gathered<'_>) -> KernelResult + Send + Sync>;

pub(crate) type Decode = fn(&[u8]) -> Result<Arc<dyn AnyData>, DataError>;
