//! k-means by Lloyd's algorithm, from k-means++ or given centers.
//!
//! An iteration is one pass over the data: centers are sent to every partition, each assigns its rows and sums
//! them by center, a fixed tree adds up the sums, and the means become the next centers. The criterion is
//! scikit-learn's: converged when the squared lengths of all moves sum to at most the tolerance times the mean
//! variance of the columns. A center that loses its last row stays in place.
//!
//! Rows are shifted by the mean of the first rows before computing, so that data far from zero does not lose
//! precision; results are shifted back.

use super::{ApplicationError, Finished, Job, Precision, add, has_length, has_shape, pack, unpack, usage};
use crate::input::Table;
use crate::kernels::kmeans::{Candidate, Centers, MAX_CENTERS, assign, draw, inertia, squares};
use crate::kernels::rows::Rows;
use crate::kernels::simd::Real;
use pellucid_iterate::{Cause, Data, DataError, Dataset, Program};
use std::sync::Arc;

/// Number of rows whose mean becomes the origin.
const ORIGIN_ROWS: usize = 4096;

/// The choice of the initial centers.
#[derive(Debug, Clone)]
pub enum Init {
    /// k-means++: drawn from the rows (Arthur and Vassilvitskii, 2007).
    PlusPlus {
        /// Number of centers.
        k: usize,
        /// Seed of the draws.
        seed: u64,
    },
    /// The rows of a table with the same columns.
    Given(Arc<Table>),
}

/// Options of a clustering.
#[derive(Debug, Clone)]
pub struct Options {
    /// Columns to use; `None` uses all numeric columns.
    pub features: Option<Vec<String>>,
    /// The initial centers.
    pub init: Init,
    /// Tolerance for convergence; see the module documentation.
    pub tolerance: f64,
    /// Maximum number of passes over the data.
    pub iterations: u64,
    /// Precision of the data in memory.
    pub precision: Precision,
    /// Number of partitions; `None` chooses it by the number of rows.
    pub partitions: Option<u32>,
}

/// The clusters found.
#[derive(Debug, Clone, PartialEq)]
pub struct Clusters {
    /// Names of the columns.
    pub features: Vec<String>,
    /// Coordinates of each center.
    pub centers: Vec<Vec<f64>>,
    /// Sum of the squared distances between rows and their centers.
    pub inertia: f64,
    /// Index of each row's center.
    pub assignments: Vec<u32>,
}

/// Creates the job.
///
/// # Errors
/// If options or data are invalid.
pub fn job(table: Arc<Table>, options: &Options) -> Result<Job<Clusters>, ApplicationError> {
    if options.tolerance.is_nan() || options.tolerance < 0.0 {
        return usage(format!("invalid --tolerance {}: a tolerance is 0 or more", options.tolerance));
    }
    match options.precision {
        Precision::F64 => typed::<f64>(table, options),
        Precision::F32 => typed::<f32>(table, options),
    }
}

fn typed<T: Real>(table: Arc<Table>, options: &Options) -> Result<Job<Clusters>, ApplicationError> {
    let features = match &options.features {
        Some(features) => features.clone(),
        None => table.numeric_columns(),
    };
    features.iter().try_for_each(|name| table.require(name))?;
    let width = features.len();
    if width == 0 {
        return usage("the data has no column of numbers; add at least one");
    }
    let partitions = table.partitions(options.partitions)?;
    let origin = Arc::new(origin(&table, &features)?);
    let (first, k, seed) = match &options.init {
        Init::PlusPlus { k, seed } => (Vec::new(), *k, *seed),
        Init::Given(given) => {
            let first = numbers(given, &features, &origin)?;
            let k = first.len() / width;
            (first, k, 0)
        }
    };
    if k == 0 || k > table.rows() || k > MAX_CENTERS {
        return usage(format!(
            "invalid --k {k}: use between 1 and {} centers, the number of rows",
            table.rows()
        ));
    }

    let mut program = Program::new("k-means");
    let limits = (options.tolerance, options.iterations, options.precision);
    program.made_from((table.identity(), &features, &first, k, seed, limits));
    let bytes_per_iteration = (table.rows() * width * size_of::<T>()) as u64;
    let state = State {
        max_iterations: options.iterations.max(1),
        ..State::new(table.rows(), first, options.tolerance)
    };
    let state = program.checked_dataset(
        "centers",
        1,
        move |_| Ok(state.clone()),
        move |_, state: &State| {
            let centers = state.centers.len() / width;
            has_length("centers", state.centers.len(), centers.min(k) * width)
        },
    );
    let ranges = table.clone();
    let starts = program.dataset("first rows", partitions, move |partition| {
        Ok(ranges.range(partition, partitions).start as u64)
    });
    let (columns, moved, ranges) = (features.clone(), origin.clone(), table.clone());
    let rows = program.checked_dataset(
        "rows",
        partitions,
        move |partition| {
            let range = table.range(partition, partitions);
            let mut rows = Rows::<T>::zeroed(range.len(), columns.len())?;
            table.read(range, &columns, &mut |row, column, value| {
                rows.set(row, column, T::of(value - moved[column]))
            })?;
            Ok(rows)
        },
        move |partition, rows| has_shape(rows, (ranges.range(partition, partitions).len(), width)),
    );
    let local = program.dataset("centers of each partition", partitions, |_| Ok(State::default()));
    let stages = Stages { rows, local, state, width, k };
    if let Init::PlusPlus { .. } = options.init {
        stages.seed(&mut program, starts, partitions, seed);
    }
    stages.descend(&mut program, partitions);
    let assigned = program.dataset("assignments", partitions, |_| Ok(Vec::<u32>::new()));
    let found = program.dataset("inertia of each partition", partitions, |_| Ok(Vec::<f64>::new()));
    let total = program.dataset("inertia", 1, |_| Ok(Vec::<f64>::new()));
    program.broadcast("final centers to all", state, local);
    program.transform(
        "final assignment",
        (rows, local),
        (assigned, found),
        |(rows, local), (assigned, found)| {
            let centers = local.centers(rows)?;
            assigned.resize(rows.rows(), 0);
            assign(rows, &centers, Some(&mut assigned[..]));
            *found = vec![inertia(rows, &centers, assigned)];
            Ok(())
        },
    );
    program.tree_reduce("sum inertia", found, total, add);
    program.output(state);
    program.output(total);
    program.output(assigned);
    let preparations = if matches!(options.init, Init::PlusPlus { .. }) { k as u64 } else { 0 };
    Ok(Job {
        plan: program.build()?,
        progress: "inertia",
        partitions,
        preparations,
        bytes_per_iteration,
        result: Box::new(move |outcome| {
            let state = outcome.single(state)?;
            let back = |center: &[f64]| center.iter().zip(&*origin).map(|(x, origin)| x + origin).collect();
            Ok(Finished {
                iterations: state.iterations,
                converged: state.converged,
                result: Clusters {
                    features,
                    centers: state.centers.chunks(width).map(back).collect(),
                    inertia: outcome.single(total)?.first().copied().unwrap_or(0.0),
                    assignments: outcome.partitions(assigned)?.concat(),
                },
            })
        }),
    })
}

/// The datasets shared by the stages.
#[derive(Clone, Copy)]
struct Stages<T: Real> {
    rows: Dataset<Rows<T>>,
    local: Dataset<State>,
    state: Dataset<State>,
    width: usize,
    k: usize,
}

impl<T: Real> Stages<T> {
    /// Draws the initial centers, one per round.
    fn seed(self, program: &mut Program, starts: Dataset<u64>, partitions: u32, seed: u64) {
        let Stages { rows, local, state, width, k, .. } = self;
        let closest = program.dataset("squared distances", partitions, |_| Ok(Vec::<f64>::new()));
        let none = || Candidate { key: f64::INFINITY, values: Vec::new() };
        let drawn = program.dataset("candidate of each partition", partitions, move |_| Ok(none()));
        let best = program.dataset("candidate", 1, move |_| Ok(none()));
        program.repeat("seeding", |body| {
            body.while_signal("centers are missing", state, move |state| state.centers.len() < k * width);
            body.broadcast("centers so far to all", state, local);
            body.transform(
                "draw",
                (rows, local, starts),
                (closest, drawn),
                move |(rows, local, start), (closest, drawn)| {
                    closest.resize(rows.rows(), f64::INFINITY);
                    let round = (local.centers.len() / width) as u64;
                    let last = local.centers.chunks(width).next_back();
                    *drawn = draw(
                        rows,
                        last,
                        closest,
                        *start,
                        seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(round),
                    );
                    if last.is_none() {
                        closest.fill(f64::INFINITY);
                    }
                    Ok(())
                },
            );
            body.tree_reduce("take the first", drawn, best, |best, next| {
                if next.key < best.key {
                    best.clone_from(next);
                }
            });
            body.transform("add a center", best, state, move |best, state| {
                if best.values.is_empty() {
                    let distinct = state.centers.len() / width;
                    return Err(format!(
                        "only {distinct} rows differ, too few for {k} centers; use a smaller --k"
                    )
                    .into());
                }
                state.centers.extend(&best.values);
                Ok(())
            });
        });
    }

    /// Runs Lloyd's iterations. Assignments are computed afterwards, from the final centers.
    fn descend(self, program: &mut Program, partitions: u32) {
        let Stages { rows, local, state, width, .. } = self;
        let sums = program.dataset("sums of each partition", partitions, |_| Ok(Vec::<f64>::new()));
        let total = program.dataset("sums", 1, |_| Ok(Vec::<f64>::new()));
        let squared = program.dataset("squares of each partition", partitions, |_| Ok(0.0));
        program.transform("squares", rows, squared, |rows, squared| {
            *squared = squares(rows);
            Ok(())
        });
        program.repeat("descent", |body| {
            body.broadcast("centers to all", state, local);
            body.transform("assign", (rows, local, squared), sums, |(rows, local, squared), sums| {
                let totals = assign(rows, &local.centers(rows)?, None);
                sums.clear();
                sums.extend([totals.scores, *squared]);
                sums.extend(totals.counts.iter().map(|count| *count as f64));
                sums.extend(totals.sums);
                Ok(())
            });
            body.tree_reduce("sum", sums, total, add);
            body.transform("move centers", total, state, move |total, state| {
                state.step(total, width);
                Ok(())
            });
            body.observe("inertia", state, |state| state.inertia);
            body.while_signal("not converged", state, |state| {
                !state.converged && state.iterations < state.max_iterations
            });
        });
    }
}

/// The centers and the state of convergence.
#[derive(Debug, Clone, Default, PartialEq)]
struct State {
    centers: Vec<f64>,
    inertia: f64,
    iterations: u64,
    converged: bool,
    rows: f64,
    tolerance: f64,
    max_iterations: u64,
}

impl State {
    fn new(rows: usize, centers: Vec<f64>, tolerance: f64) -> Self {
        State { centers, inertia: f64::INFINITY, rows: rows as f64, tolerance, ..State::default() }
    }

    /// Returns the centers for a kernel, which needs at least one. A snapshot may have none.
    fn centers<T: Real>(&self, rows: &Rows<T>) -> Result<Centers<T>, Cause> {
        if self.centers.is_empty() {
            return Err("there are no centers; if the job resumed from a snapshot, delete it".into());
        }
        Ok(Centers::new(&self.centers, rows.columns()))
    }

    /// Moves the centers to the means of their rows. `total` holds scores, squares, counts and sums.
    fn step(&mut self, total: &[f64], width: usize) {
        let (scores, squares) = (total[0], total[1]);
        let (counts, sums) = total[2..].split_at(self.centers.len() / width);
        let mut moved = 0.0;
        let mut means = vec![0.0; width];
        for ((center, sum), count) in self.centers.chunks_mut(width).zip(sums.chunks(width)).zip(counts) {
            for ((x, sum), mean) in center.iter_mut().zip(sum).zip(&mut means) {
                *mean += sum / self.rows;
                if *count > 0.0 {
                    moved += (sum / count - *x).powi(2);
                    *x = sum / count;
                }
            }
        }
        let spread = squares / self.rows - means.iter().map(|mean| mean * mean).sum::<f64>();
        self.inertia = (2.0 * scores + squares).max(0.0);
        self.iterations += 1;
        self.converged = moved <= self.tolerance * spread.max(0.0) / width as f64;
    }
}

impl Data for State {
    fn encode(&self, out: &mut Vec<u8>) {
        let head = [
            self.inertia,
            self.iterations as f64,
            f64::from(u8::from(self.converged)),
            self.rows,
            self.tolerance,
            self.max_iterations as f64,
        ];
        pack(&[&head, &self.centers], out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, DataError> {
        let mut vectors = unpack(bytes)?;
        let (head, centers) = (vectors.next().unwrap_or_default(), vectors.next().unwrap_or_default());
        let &[inertia, iterations, converged, rows, tolerance, max_iterations] = &head[..] else {
            return Err(DataError::new(format!("invalid centers of {} bytes", bytes.len())));
        };
        let (iterations, converged, max_iterations) =
            (iterations as u64, converged != 0.0, max_iterations as u64);
        Ok(State { centers, inertia, iterations, converged, rows, tolerance, max_iterations })
    }

    fn size_bytes(&self) -> u64 {
        self.centers.size_bytes() + 48
    }
}

/// Returns the mean of the first rows.
fn origin(table: &Table, columns: &[String]) -> Result<Vec<f64>, ApplicationError> {
    let rows = table.rows().min(ORIGIN_ROWS);
    let mut sums = vec![0.0; columns.len()];
    table.read(0..rows, columns, &mut |_, column, value| sums[column] += value)?;
    Ok(sums.into_iter().map(|sum| sum / rows as f64).collect())
}

/// Reads all rows of a small table, shifted by the origin.
fn numbers(table: &Table, columns: &[String], origin: &[f64]) -> Result<Vec<f64>, ApplicationError> {
    let mut out = vec![0.0; table.rows() * columns.len()];
    table.read(0..table.rows(), columns, &mut |row, column, value| {
        out[row * columns.len() + column] = value - origin[column];
    })?;
    Ok(out)
}
