//! Logistic regression with an L2 penalty, as defined by scikit-learn. It minimises
//! Σ ln(1 + e^−yz) + ½ · l2 · ‖w‖² with z = w · x + b and y = ±1; the intercept b is not penalised.
//! (`l2` is 1 ÷ `C` in scikit-learn.) Loss, gradient and tolerance refer to this sum divided by the number of
//! rows.
//!
//! An iteration is one pass over the data: coefficients are sent to every partition, each computes loss and
//! gradient of its rows, a fixed tree adds these up, and the solver chooses the next point. L-BFGS may need
//! several points for one step. Features are not scaled: if their scales differ by orders of magnitude, scale
//! them first or allow many iterations.

use super::lbfgs::Lbfgs;
use super::solver::{Method, Solver, Status};
use super::{ApplicationError, Finished, Job, Precision, add, has_length, has_shape, usage};
use crate::input::{InputError, Table};
use crate::kernels::logistic;
use crate::kernels::rows::Rows;
use crate::kernels::simd::Real;
use pellucid_iterate::{Cause, Program};
use std::sync::Arc;

/// The optimisation algorithm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Algorithm {
    /// Limited-memory quasi-Newton.
    Lbfgs,
    /// Gradient descent. Without a step, it uses one that is guaranteed to converge.
    GradientDescent {
        /// Step size along the gradient of the mean loss.
        step: Option<f64>,
    },
}

/// Options of a fit.
#[derive(Debug, Clone)]
pub struct Options {
    /// Column of labels: 0 and 1, −1 and 1, or false and true.
    pub label: String,
    /// Columns of features; `None` uses all other numeric columns.
    pub features: Option<Vec<String>>,
    /// Weight of the penalty; must not be negative.
    pub l2: f64,
    /// Solver.
    pub algorithm: Algorithm,
    /// Converged when no component of the gradient is larger.
    pub tolerance: f64,
    /// Maximum number of passes over the data.
    pub iterations: u64,
    /// Precision of the data in memory.
    pub precision: Precision,
    /// Number of partitions; `None` chooses it by the number of rows.
    pub partitions: Option<u32>,
}

/// A fitted model.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Names of the features.
    pub features: Vec<String>,
    /// One coefficient per feature.
    pub coefficients: Vec<f64>,
    /// The constant term.
    pub intercept: f64,
    /// Mean loss over the rows, including the penalty.
    pub loss: f64,
}

/// Creates the job.
///
/// # Errors
/// If options or data are invalid.
pub fn job(table: Arc<Table>, options: &Options) -> Result<Job<Model>, ApplicationError> {
    let positive = |value: f64| value.is_finite() && value > 0.0;
    if !(options.l2 >= 0.0 && options.l2.is_finite()) {
        return usage(format!("invalid --l2 {}: a penalty is 0 or more", options.l2));
    }
    if let Algorithm::GradientDescent { step: Some(step) } = options.algorithm
        && !positive(step)
    {
        return usage(format!("invalid --step {step}: a step is more than 0"));
    }
    if options.tolerance.is_nan() || options.tolerance < 0.0 {
        return usage(format!("invalid --tolerance {}: a tolerance is 0 or more", options.tolerance));
    }
    match options.precision {
        Precision::F64 => typed::<f64>(table, options, 1e-13),
        Precision::F32 => typed::<f32>(table, options, 1e-7),
    }
}

fn typed<T: Real>(table: Arc<Table>, options: &Options, noise: f64) -> Result<Job<Model>, ApplicationError> {
    let columns = columns(&table, options)?;
    let partitions = table.partitions(options.partitions)?;
    let low = low_label(&table, &options.label)?;
    let (n, width) = (table.rows() as f64, columns.len());
    let features = columns[..width - 1].to_vec();
    let (l2, max_iterations) = (options.l2, options.iterations.max(1));
    let method = match options.algorithm {
        Algorithm::Lbfgs => Method::Lbfgs(Lbfgs::new(noise)),
        // NaN stands for a step computed from the data.
        Algorithm::GradientDescent { step } => Method::GradientDescent { step: step.unwrap_or(f64::NAN) },
    };
    let finds_step = matches!(options.algorithm, Algorithm::GradientDescent { step: None });

    let mut program = Program::new("logistic regression");
    // The limit of iterations is not part of the fingerprint, so that a job can resume with a larger one.
    program.made_from((table.identity(), Options { iterations: 0, ..options.clone() }));
    let bytes_per_iteration = (table.rows() * width * size_of::<T>()) as u64;
    let ranges = table.clone();
    let rows = program.checked_dataset(
        "rows",
        partitions,
        move |partition| load::<T>(&table, table.range(partition, partitions), &columns, low),
        move |partition, rows| has_shape(rows, (ranges.range(partition, partitions).len(), width)),
    );
    let local = program.dataset("coefficients of each partition", partitions, |_| Ok(Vec::<f64>::new()));
    let evaluation =
        program.dataset("loss and gradient of each partition", partitions, |_| Ok(Vec::<f64>::new()));
    let total = program.dataset("loss and gradient", 1, |_| Ok(Vec::<f64>::new()));
    let point = program.checked_dataset(
        "coefficients",
        1,
        move |_| Ok(vec![0.0; width]),
        move |_, point| has_length("coefficients", point.len(), width),
    );
    let tolerance = options.tolerance;
    let solver = program.checked_dataset(
        "solver",
        1,
        move |_| Ok(Solver::new(method.clone(), vec![0.0; width], tolerance)),
        move |_, solver: &Solver| solver.check(width),
    );
    if finds_step {
        program.transform("square", rows, evaluation, |rows: &Rows<T>, squares| {
            let features = rows.columns() - 1;
            let lines = rows.lines().iter().enumerate().filter(|(at, _)| at % rows.columns() < features);
            let sum = |line: &crate::kernels::simd::Line<T>| {
                line.lanes().iter().map(|x| x.wide().powi(2)).sum::<f64>()
            };
            *squares = vec![lines.map(|(_, line)| sum(line)).sum()];
            Ok(())
        });
        program.tree_reduce("sum squares", evaluation, total, add);
        program.transform("choose the step", total, solver, move |squares, solver| {
            // The curvature is at most ¼ of the mean squared norm of a row, including the constant.
            solver.method = Method::GradientDescent { step: 1.0 / (0.25 * (squares[0] / n + 1.0) + l2 / n) };
            Ok(())
        });
    }
    program.repeat("descent", |body| {
        body.broadcast("coefficients to all", point, local);
        body.transform("evaluate", (rows, local), evaluation, |(rows, point): (&Rows<T>, &Vec<f64>), out| {
            let found = logistic::evaluate(rows, point);
            out.clear();
            out.push(found.loss);
            out.extend(found.gradient);
            Ok(())
        });
        body.tree_reduce("sum", evaluation, total, add);
        body.transform("step", total, (solver, point), move |total, (solver, point)| {
            let (value, gradient) = penalised(total, &solver.point, l2, n);
            if !value.is_finite() {
                return Err(
                    "the loss is not finite: features are too large; scale them or use a smaller --step"
                        .into(),
                );
            }
            solver.update(value, gradient);
            point.clone_from(&solver.point);
            Ok(())
        });
        body.observe("loss", solver, |solver| solver.value);
        body.while_signal("not converged", solver, move |solver| {
            solver.status == Status::Running && solver.evaluations < max_iterations
        });
    });
    program.output(solver);
    Ok(Job {
        plan: program.build()?,
        progress: "loss",
        partitions,
        preparations: 0,
        bytes_per_iteration,
        result: Box::new(move |outcome| {
            let solver = outcome.single(solver)?;
            let (intercept, coefficients) = solver.best.split_last().map_or((0.0, &[][..]), |(b, w)| (*b, w));
            Ok(Finished {
                iterations: solver.evaluations,
                converged: solver.status == Status::Converged,
                result: Model {
                    features,
                    coefficients: coefficients.to_vec(),
                    intercept,
                    loss: solver.value,
                },
            })
        }),
    })
}

/// Computes mean loss and gradient, including the penalty, from sums over rows.
fn penalised(total: &[f64], point: &[f64], l2: f64, rows: f64) -> (f64, Vec<f64>) {
    let features = point.len() - 1;
    let norm = point[..features].iter().map(|w| w * w).sum::<f64>();
    let weights = point.iter().enumerate().map(|(at, w)| if at < features { l2 * w } else { 0.0 });
    let gradient = total[1..].iter().zip(weights).map(|(g, w)| (g + w) / rows).collect();
    ((total[0] + 0.5 * l2 * norm) / rows, gradient)
}

/// Returns the columns to read: the features, and the label last.
fn columns(table: &Table, options: &Options) -> Result<Vec<String>, ApplicationError> {
    table.require(&options.label)?;
    let mut columns = match &options.features {
        Some(features) => features.clone(),
        None => table.numeric_columns().into_iter().filter(|name| *name != options.label).collect(),
    };
    if columns.contains(&options.label) {
        return usage(format!(
            "column {} is the label and cannot also be a feature; remove it from --features",
            options.label
        ));
    }
    columns.iter().try_for_each(|name| table.require(name))?;
    if columns.is_empty() {
        return usage(format!(
            "no column of numbers but the label, {}; add at least one numeric feature",
            options.label
        ));
    }
    columns.push(options.label.clone());
    Ok(columns)
}

/// Finds the label that is not 1, which must be 0 or −1. Stops reading once it has seen both labels.
fn low_label(table: &Table, label: &str) -> Result<f64, ApplicationError> {
    let (mut low, mut high) = (None, false);
    for start in (0..table.rows()).step_by(1 << 16) {
        let end = (start + (1 << 16)).min(table.rows());
        table.read(start..end, &[label.to_string()], &mut |_, _, value| {
            if value == 1.0 {
                high = true;
            } else {
                low.get_or_insert(value);
            }
        })?;
        if let (Some(low), true) = (low, high) {
            return match low {
                0.0 | -1.0 => Ok(low),
                _ => Err(InputError::Failed(format!(
                    "column {label} holds {low}; labels are 0 and 1, -1 and 1, or false and true"
                ))
                .into()),
            };
        }
    }
    let one = low.unwrap_or(1.0);
    Err(InputError::Failed(format!(
        "column {label} holds only label {one}; labels are 0 and 1, -1 and 1, or false and true, and both must occur"
    ))
    .into())
}

/// Loads a partition's rows, with labels 0 and 1 in the last column.
fn load<T: Real>(
    table: &Table,
    range: std::ops::Range<usize>,
    columns: &[String],
    low: f64,
) -> Result<Rows<T>, Cause> {
    let mut rows = Rows::zeroed(range.len(), columns.len())?;
    let (first, last) = (range.start, columns.len() - 1);
    let mut bad = None;
    table.read(range, columns, &mut |row, column, value| {
        let mut value = value;
        if column == last && value != 1.0 {
            if value != low {
                bad.get_or_insert((row, value));
            }
            value = 0.0;
        }
        rows.set(row, column, T::of(value));
    })?;
    match bad {
        None => Ok(rows),
        Some((row, value)) => Err(format!(
            "row {}: label {} is {value}, where others are {low} and 1; use exactly two labels",
            first + row + 1,
            columns[last]
        )
        .into()),
    }
}
