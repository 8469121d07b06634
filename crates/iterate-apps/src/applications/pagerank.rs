//! PageRank: rank(v) = (1 − d) ÷ n + d × (Σ rank(u) ÷ degree(u) over edges u → v + dangling ÷ n), where
//! dangling is the total rank of vertices without outgoing edges. Ranks sum to 1. It has converged when the
//! absolute changes of all ranks sum to at most the tolerance.
//!
//! Edges are cut in two dimensions (paper §5.1): vertices are dealt to s blocks, and edges to s × s partitions
//! by the blocks of their source and destination. A vertex thus has copies in at most 2 s − 1 of the s²
//! partitions. In an iteration, each block sends its vertices' shares to the s partitions with these sources,
//! each partition adds the shares along its edges, and each block adds the s partial sums in a fixed order.
//! Vertices are sorted by falling degree and dealt in turn, so that partitions are balanced.

use super::partition::Shared;
use super::{ApplicationError, Finished, Job, Precision, add, has_length, usage};
use crate::input::InputError;
use crate::input::edges::Graph;
use crate::kernels::pagerank::Tiles;
use crate::kernels::simd::Real;
use pellucid_iterate::{Data, DataError, Incoming, Outgoing, Program, Route};
use std::io;
use std::ops::AddAssign;
use std::sync::Arc;

/// Target number of edges per partition, and maximum number of blocks, which suffices for several machines.
const EDGES: usize = 1 << 22;
const MAX_BLOCKS: u32 = 8;

/// Options of the computation.
#[derive(Debug, Clone)]
pub struct Options {
    /// Damping factor: the share of a rank passed along edges.
    pub damping: f64,
    /// Converged when the absolute changes of all ranks sum to at most this.
    pub tolerance: f64,
    /// Maximum number of passes over the edges.
    pub iterations: u64,
    /// Precision of ranks in memory.
    pub precision: Precision,
    /// Number of partitions of the edges, rounded up to a square; `None` chooses it by the number of edges.
    pub partitions: Option<u32>,
}

/// The computed ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranks {
    /// Names of the vertices, in ascending order.
    pub vertices: Vec<u64>,
    /// Rank of each vertex.
    pub ranks: Vec<f64>,
}

impl Ranks {
    /// Returns the `count` vertices with the highest ranks; among equal ranks, the lower name comes first.
    pub fn top(&self, count: usize) -> Vec<(u64, f64)> {
        let mut all: Vec<(u64, f64)> =
            self.vertices.iter().copied().zip(self.ranks.iter().copied()).collect();
        let order = |a: &(u64, f64), b: &(u64, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if all.len() > count {
            all.select_nth_unstable_by(count, order);
            all.truncate(count);
        }
        all.sort_by(order);
        all
    }
}

/// Creates the job.
///
/// # Errors
/// If options are invalid.
pub fn job(graph: Graph, options: &Options) -> Result<Job<Ranks>, ApplicationError> {
    if !(0.0..1.0).contains(&options.damping) {
        return usage(format!("invalid --damping {}: it must be at least 0 and below 1", options.damping));
    }
    if options.tolerance.is_nan() || options.tolerance < 0.0 {
        return usage(format!("invalid --tolerance {}: a tolerance is 0 or more", options.tolerance));
    }
    match options.precision {
        Precision::F64 => typed::<f64>(graph, options),
        Precision::F32 => typed::<f32>(graph, options),
    }
}

/// Returns the number of vertex blocks, the square root of the number of edge partitions.
fn blocks(graph: &Graph, requested: Option<u32>) -> Result<u32, ApplicationError> {
    let root =
        |partitions: usize| (1..).find(|side: &u32| (*side as usize).pow(2) >= partitions).unwrap_or(1);
    let vertices = graph.vertices.len();
    match requested {
        // A power of two gives equal shares to a power-of-two number of workers.
        None => {
            let side = root(graph.edges.len().div_ceil(EDGES)).next_power_of_two();
            Ok(side.min(MAX_BLOCKS).min(vertices as u32))
        }
        Some(requested)
            if requested as usize > graph.edges.len() || root(requested as usize) as usize > vertices =>
        {
            usage(format!(
                "cannot divide the graph of {} edges and {vertices} vertices into {requested} partitions; use fewer",
                graph.edges.len()
            ))
        }
        Some(requested) => Ok(root(requested as usize)),
    }
}

/// Returns the numbers of a block's vertices: `block`, `block + blocks`, and so on.
fn vertices_of_block(vertices: usize, block: u32, blocks: u32) -> impl Iterator<Item = usize> {
    (block as usize..vertices).step_by(blocks as usize)
}

/// A block's ranks and inverse degrees.
#[derive(Debug, Clone)]
struct Block<T> {
    ranks: Vec<T>,
    /// 1 ÷ out-degree, or 0 for a dangling vertex.
    inverse: Vec<T>,
}

fn typed<T: Real + AddAssign>(graph: Graph, options: &Options) -> Result<Job<Ranks>, ApplicationError>
where
    Vec<T>: Data,
{
    let side = blocks(&graph, options.partitions)?;
    // The limit of iterations is not part of the fingerprint, so that a job can resume with a larger one.
    let made_from = (graph.identity(), Options { iterations: 0, ..options.clone() });
    let Graph { vertices, edges, out_degrees } = graph;
    let count = vertices.len();
    let n = count as f64;
    let bytes_per_iteration = edges.len() as u64 * 4;
    let tiles = cut(edges, count, side).map_err(|e| InputError::Failed(e.to_string()))?;
    let degrees = Arc::new(out_degrees);
    let dangling = degrees.iter().filter(|degree| **degree == 0).count() as f64 / n;
    let base = move |dangling: f64, damping: f64| ((1.0 - damping) + damping * dangling) / n;
    let (damping, tolerance, max_iterations) =
        (options.damping, options.tolerance, options.iterations.max(1));

    let mut program = Program::new("PageRank");
    program.made_from(made_from);
    let square = side * side;
    let length = move |block: u32| vertices_of_block(count, block, side).count();
    let edges = program.checked_dataset(
        "edges",
        square,
        move |partition| Ok(tiles[partition as usize].clone()),
        move |partition, tiles| {
            has_length("tile", tiles.sources(), length(partition % side))?;
            has_length("tile", tiles.destinations(), length(partition / side))
        },
    );
    let incoming = program.dataset("shares of sources", square, |_| Ok(Shared(Arc::new(Vec::<T>::new()))));
    let partial = program.dataset("partial sums", square, |_| Ok(Shared(Arc::new(Vec::<T>::new()))));
    let of_block = move |degrees: &[u32], block: u32| Block::<T> {
        ranks: vec![T::of(1.0 / n); vertices_of_block(count, block, side).count()],
        inverse: vertices_of_block(count, block, side)
            .map(|vertex| T::of(if degrees[vertex] == 0 { 0.0 } else { 1.0 / f64::from(degrees[vertex]) }))
            .collect(),
    };
    let for_ranks = degrees.clone();
    let ranks = program.checked_dataset(
        "ranks",
        side,
        move |block| Ok(of_block(&for_ranks, block)),
        move |block, Block { ranks, inverse }| {
            has_length("ranks", ranks.len(), length(block))?;
            has_length("degrees", inverse.len(), length(block))
        },
    );
    let shares = program.checked_dataset(
        "shares",
        side,
        move |block| {
            let Block { ranks, inverse } = of_block(&degrees, block);
            let shares = ranks.iter().zip(inverse).map(|(rank, inverse)| T::of(rank.wide() * inverse.wide()));
            Ok(Shared(Arc::new(shares.collect::<Vec<T>>())))
        },
        move |block, shares| has_length("shares", shares.len(), length(block)),
    );
    let first = base(dangling, damping);
    let local = program.dataset("base of each block", side, move |_| Ok(first));
    // Sum of the changes of ranks, and total rank of dangling vertices.
    let summary = program.dataset("summary of each block", side, |_| Ok(Vec::<f64>::new()));
    let total = program.dataset("summary", 1, |_| Ok(Vec::<f64>::new()));
    // Number of iterations, last change, next base.
    let state = program.checked_dataset(
        "state",
        1,
        move |_| Ok(vec![0.0, f64::INFINITY, first]),
        |_, state| has_length("state", state.len(), 3),
    );
    let next = program.dataset("base", 1, move |_| Ok(first));
    program.repeat("iterations", |body| {
        body.broadcast("base to all", next, local);
        let to_row = Route::fixed(side, move |block| (0..side).map(|row| row * side + block).collect());
        body.scatter("shares to edges", shares, to_row, |shares, out: &mut Outgoing<'_, Shared<Vec<T>>>| {
            out.send_all(shares.clone());
            Ok(())
        })
        .gather((), incoming, |(), incoming, chunks: Incoming<'_, Shared<Vec<T>>>| {
            if let Some((_, shares)) = chunks.iter().next() {
                incoming.clone_from(shares);
            }
            Ok(())
        });
        body.transform("add along edges", (edges, incoming), partial, |(edges, incoming), partial| {
            let sums = owned(partial, edges.destinations());
            edges.sum(incoming, sums);
            Ok(())
        });
        let to_block = Route::fixed(square, move |partition| vec![partition / side]);
        body.scatter(
            "sums to blocks",
            partial,
            to_block,
            |partial, out: &mut Outgoing<'_, Shared<Vec<T>>>| {
                out.send_all(partial.clone());
                Ok(())
            },
        )
        .gather(local, (ranks, shares, summary), move |base, (block, shares, summary), chunks| {
            let partials: Vec<&[T]> =
                chunks.iter().map(|(_, chunk): (_, &Shared<Vec<T>>)| &chunk[..]).collect();
            *summary = update(block, owned(shares, block.inverse.len()), &partials, *base, damping);
            Ok(())
        });
        body.tree_reduce("sum", summary, total, add);
        body.transform("next", total, (state, next), move |total, (state, next)| {
            *next = base(total[1], damping);
            *state = vec![state[0] + 1.0, total[0], *next];
            Ok(())
        });
        body.observe("residual", state, |state| state[1]);
        body.while_signal("not converged", state, move |state| {
            state[1] > tolerance && state[0] < max_iterations as f64
        });
    });
    program.output(ranks);
    program.output(state);
    Ok(Job {
        plan: program.build()?,
        progress: "residual",
        partitions: square,
        preparations: 0,
        bytes_per_iteration,
        result: Box::new(move |outcome| {
            let state = outcome.single(state)?;
            let mut named = Vec::with_capacity(vertices.len());
            for (block, content) in outcome.partitions(ranks)?.into_iter().enumerate() {
                let numbers = vertices_of_block(vertices.len(), block as u32, side);
                named
                    .extend(numbers.zip(content.ranks).map(|(vertex, rank)| (vertices[vertex], rank.wide())));
            }
            named.sort_unstable_by_key(|(vertex, _)| *vertex);
            let (vertices, ranks) = named.into_iter().unzip();
            Ok(Finished {
                iterations: state[0] as u64,
                converged: state[1] <= tolerance,
                result: Ranks { vertices, ranks },
            })
        }),
    })
}

/// Cuts edges into partitions, in row-major order with a row per destination block.
fn cut(edges: Vec<(u32, u32)>, vertices: usize, side: u32) -> io::Result<Vec<Shared<Tiles>>> {
    let mut parts = vec![Vec::with_capacity(edges.len() / (side * side) as usize); (side * side) as usize];
    for (source, destination) in edges {
        parts[(destination % side * side + source % side) as usize].push((source / side, destination / side));
    }
    let length = |block: u32| vertices_of_block(vertices, block, side).count();
    let parts =
        parts.into_iter().zip(0..).map(|(edges, partition)| (edges, partition / side, partition % side));
    parts
        .map(|(edges, row, column)| Tiles::new(length(column), length(row), edges))
        .map(|tiles| tiles.map(|tiles| Shared(Arc::new(tiles))))
        .collect()
}

/// Returns a vector for the next result, reusing the old one's memory if it is no longer shared.
fn owned<T: Real>(shared: &mut Shared<Vec<T>>, length: usize) -> &mut [T] {
    if Arc::get_mut(&mut shared.0).is_none_or(|vector| vector.len() != length) {
        shared.0 = Arc::new(vec![T::of(0.0); length]);
    }
    Arc::get_mut(&mut shared.0).map_or(&mut [], |vector| &mut vector[..])
}

/// Updates a block's ranks and shares. Returns the sum of changes and the total rank of dangling vertices.
fn update<T: Real>(
    block: &mut Block<T>,
    shares: &mut [T],
    partials: &[&[T]],
    base: f64,
    damping: f64,
) -> Vec<f64> {
    /// Number of vertices whose sums stay in the L1 cache.
    const PIECE: usize = 512;
    let (mut change, mut dangling) = (0.0, 0.0);
    let mut sums = [0.0; PIECE];
    let pieces = block.ranks.chunks_mut(PIECE).zip(block.inverse.chunks(PIECE)).zip(shares.chunks_mut(PIECE));
    for (number, ((ranks, inverse), shares)) in pieces.enumerate() {
        let sums = &mut sums[..ranks.len()];
        sums.fill(0.0);
        for partial in partials {
            for (sum, part) in sums.iter_mut().zip(&partial[number * PIECE..]) {
                *sum += part.wide();
            }
        }
        for (((rank, inverse), share), sum) in ranks.iter_mut().zip(inverse).zip(shares).zip(sums) {
            let new = base + damping * *sum;
            change += (new - rank.wide()).abs();
            if inverse.wide() == 0.0 {
                dangling += new;
            }
            *rank = T::of(new);
            *share = T::of(new * inverse.wide());
        }
    }
    vec![change, dangling]
}

impl<T: Real> Data for Block<T>
where
    Vec<T>: Data,
{
    fn encode(&self, out: &mut Vec<u8>) {
        (self.ranks.len() as u64).encode(out);
        self.ranks.encode(out);
        self.inverse.encode(out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, DataError> {
        let broken = || DataError::new(format!("invalid ranks of {} bytes", bytes.len()));
        let (length, rest) = bytes.split_first_chunk().ok_or_else(broken)?;
        let length = u64::from_le_bytes(*length) as usize * size_of::<T>();
        let (ranks, inverse) = rest.split_at_checked(length).ok_or_else(broken)?;
        Ok(Block { ranks: Vec::decode(ranks)?, inverse: Vec::decode(inverse)? })
    }

    fn size_bytes(&self) -> u64 {
        self.ranks.size_bytes() + self.inverse.size_bytes()
    }
}
