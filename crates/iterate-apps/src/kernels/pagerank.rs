//! PageRank over one partition of edges: adds every source's share to its edges' destinations.
//!
//! A pass over edges is bound by random accesses, so these are kept in caches. Edges are cut into tiles of
//! 65,536 sources by 4,096 destinations: the shares of a tile's sources fit in the L2 cache and the sums of
//! its destinations in the L1 cache. Within a tile an edge is one word, with 16 bits of source and 12 of
//! destination, ordered by source: 4 bytes per edge, read sequentially. Tiling pays if vertices of high degree
//! are adjacent, so number vertices by degree.
//!
//! Tiles are ordered by bands of 16,384 destinations, whose sums fit in the L2 cache beside the shares, and
//! within a band by sources. The shares of vertices of low degree are still far apart, so they are prefetched
//! some edges ahead.

use super::pages::Pages;
use super::simd::{Real, prefetch};
use std::io;

const DESTINATION_BITS: u32 = 12;
const SOURCE_BITS: u32 = 16;

/// Binary logarithm of the number of destination blocks in a band.
const BAND_BITS: u32 = 2;

/// Number of edges ahead that shares are prefetched.
const AHEAD: usize = 32;

/// The edges between a source block and a destination block; see the module documentation.
#[derive(Debug, PartialEq)]
pub struct Tiles {
    sources: usize,
    destinations: usize,
    tiles: Vec<Tile>,
    /// Source within the tile, shifted by [`DESTINATION_BITS`], and destination within the tile. The last edge is
    /// followed by [`AHEAD`] words of padding.
    edges: Pages<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tile {
    first_source: u32,
    first_destination: u32,
    /// End of the tile's edges, and start of the next tile's.
    end: usize,
}

impl Tiles {
    /// Cuts edges (source, destination) into tiles.
    ///
    /// # Errors
    /// If there is not enough memory.
    ///
    /// # Panics
    /// If a vertex is not below `sources` or `destinations`; kernels rely on that.
    pub fn new(sources: usize, destinations: usize, edges: Vec<(u32, u32)>) -> io::Result<Self> {
        for (source, destination) in &edges {
            let inside = (*source as usize) < sources && (*destination as usize) < destinations;
            assert!(inside, "edge {source} to {destination} is outside {sources} by {destinations} vertices");
        }
        // A sort key: band, source block, destination block, source, destination. Its low half is the edge's
        // word.
        const WORD_BITS: u32 = SOURCE_BITS + DESTINATION_BITS;
        let low = |number: u32, bits: u32| u64::from(number & ((1 << bits) - 1));
        let key = |(source, destination): (u32, u32)| {
            let block = destination >> DESTINATION_BITS;
            let (band, sources) = (u64::from(block >> BAND_BITS), u64::from(source >> SOURCE_BITS));
            let tile = (band << SOURCE_BITS | sources) << BAND_BITS | low(block, BAND_BITS);
            tile << WORD_BITS
                | low(source, SOURCE_BITS) << DESTINATION_BITS
                | low(destination, DESTINATION_BITS)
        };
        let mut keys: Vec<u64> = edges.into_iter().map(key).collect();
        keys.sort_unstable();
        let edges = Pages::zeroed(keys.len() + AHEAD)?;
        let mut out = Tiles { sources, destinations, tiles: Vec::new(), edges };
        for (at, key) in keys.into_iter().enumerate() {
            let tile = key >> WORD_BITS;
            let first_source = (tile >> BAND_BITS << SOURCE_BITS) as u32;
            let block = tile >> (SOURCE_BITS + BAND_BITS) << BAND_BITS | low(tile as u32, BAND_BITS);
            let first_destination = (block << DESTINATION_BITS) as u32;
            out.edges[at] = (key & ((1 << WORD_BITS) - 1)) as u32;
            let end = at + 1;
            match out.tiles.last_mut() {
                Some(tile)
                    if (tile.first_source, tile.first_destination) == (first_source, first_destination) =>
                {
                    tile.end = end;
                }
                _ => out.tiles.push(Tile { first_source, first_destination, end }),
            }
        }
        Ok(out)
    }

    /// Returns the number of source vertices.
    pub fn sources(&self) -> usize {
        self.sources
    }

    /// Returns the number of destination vertices.
    pub fn destinations(&self) -> usize {
        self.destinations
    }

    /// Returns the number of edges.
    pub fn edges(&self) -> usize {
        self.edges.len() - AHEAD
    }

    /// Iterates over all edges (source, destination), in the order of summation.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        let starts = std::iter::once(0).chain(self.tiles.iter().map(|tile| tile.end));
        self.tiles.iter().zip(starts).flat_map(|(tile, start)| {
            self.edges[start..tile.end].iter().map(|edge| {
                let destination = edge & ((1 << DESTINATION_BITS) - 1);
                (tile.first_source + (edge >> DESTINATION_BITS), tile.first_destination + destination)
            })
        })
    }

    /// Sets `sums` (one per destination) to the sums of the shares (one per source) over all edges, in a fixed
    /// order.
    ///
    /// # Panics
    /// If the lengths differ from those of the blocks.
    pub fn sum<T: Real + std::ops::AddAssign>(&self, shares: &[T], sums: &mut [T]) {
        assert_eq!((shares.len(), sums.len()), (self.sources, self.destinations), "vertices of the blocks");
        sums.fill(T::of(0.0));
        let mut start = 0;
        for tile in &self.tiles {
            let shares = &shares[tile.first_source as usize..];
            let sums = &mut sums[tile.first_destination as usize..];
            let later = &self.edges[start + AHEAD..tile.end + AHEAD];
            for (edge, later) in self.edges[start..tile.end].iter().zip(later) {
                // An edge of the next tile has its share elsewhere; prefetching the wrong address is harmless.
                prefetch(shares, (later >> DESTINATION_BITS) as usize);
                let source = (edge >> DESTINATION_BITS) as usize;
                let destination = (edge & ((1 << DESTINATION_BITS) - 1)) as usize;
                // SAFETY: `new` checked that first source + source and first destination + destination are
                // vertices of the blocks, edges are immutable, and the slices are as long as the blocks.
                unsafe { *sums.get_unchecked_mut(destination) += *shares.get_unchecked(source) };
            }
            start = tile.end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::random::Random;

    #[test]
    fn sums_equal_a_loop_over_edges() {
        for seed in 0..30 {
            let mut random = Random::new(seed);
            let size = [1, 10, 5_000, 200_000][seed as usize % 4];
            let (sources, destinations) = (1 + random.below(size), 1 + random.below(size));
            let edges: Vec<(u32, u32)> = (0..random.below(20_000))
                .map(|_| (random.below(sources) as u32, random.below(destinations) as u32))
                .collect();
            let shares: Vec<f64> = (0..sources).map(|_| random.below(1000) as f64).collect();
            let mut expected = vec![0.0; destinations as usize];
            for (source, destination) in &edges {
                expected[*destination as usize] += shares[*source as usize];
            }
            let tiles = Tiles::new(sources as usize, destinations as usize, edges).expect("memory");
            let mut sums = vec![f64::NAN; destinations as usize];
            tiles.sum(&shares, &mut sums);
            assert_eq!(sums, expected, "seed {seed}: sums of integers are exact");
        }
    }

    #[test]
    #[should_panic(expected = "edge 3 to 9 is outside 4 by 9 vertices")]
    fn edge_outside_of_the_blocks_panics() {
        let _ = Tiles::new(4, 9, vec![(0, 0), (3, 9)]);
    }
}
