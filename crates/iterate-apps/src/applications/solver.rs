//! Solvers that minimise a smooth convex function, as state machines.
//!
//! A solver requests value and gradient at a point ([`Solver::point`]), receives them ([`Solver::update`]),
//! and reports its status. Evaluating the function can thus be a pass of many workers over data, and the
//! solver a dataset with one partition that is sent as bytes.

use super::lbfgs::Lbfgs;
use super::{has_length, has_length_or_none, pack, unpack};
use pellucid_iterate::{Data, DataError};

/// The status of a solver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// The solver needs value and gradient at its point.
    Running,
    /// The largest component of the gradient is within the tolerance.
    Converged,
    /// No point along the direction improves the value: numeric precision is exhausted.
    Exhausted,
}

/// The method that chooses the next point.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Method {
    /// A step against the gradient.
    GradientDescent { step: f64 },
    /// Limited-memory quasi-Newton.
    Lbfgs(Lbfgs),
}

/// A running minimisation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Solver {
    pub method: Method,
    pub status: Status,
    /// Converged when no component of the gradient is larger.
    pub tolerance: f64,
    /// Number of evaluations received.
    pub evaluations: u64,
    /// The best point so far, with value and gradient.
    pub best: Vec<f64>,
    pub value: f64,
    pub gradient: Vec<f64>,
    /// The point to evaluate next.
    pub point: Vec<f64>,
}

impl Solver {
    pub fn new(method: Method, start: Vec<f64>, tolerance: f64) -> Self {
        Solver {
            method,
            status: Status::Running,
            tolerance,
            evaluations: 0,
            best: start.clone(),
            value: f64::INFINITY,
            gradient: Vec::new(),
            point: start,
        }
    }

    /// Checks that all vectors have `width` numbers.
    ///
    /// # Errors
    /// If one has another length.
    pub fn check(&self, width: usize) -> Result<(), DataError> {
        has_length("best point", self.best.len(), width)?;
        has_length("point", self.point.len(), width)?;
        has_length_or_none("gradient", self.gradient.len(), width)?;
        match &self.method {
            Method::GradientDescent { .. } => Ok(()),
            Method::Lbfgs(lbfgs) => {
                lbfgs.lengths().try_for_each(|length| has_length_or_none("direction", length, width))
            }
        }
    }

    /// Receives value and gradient at the point.
    pub fn update(&mut self, value: f64, gradient: Vec<f64>) {
        self.evaluations += 1;
        let accepted = match &mut self.method {
            Method::GradientDescent { .. } => true,
            Method::Lbfgs(_) if self.gradient.is_empty() => true,
            Method::Lbfgs(lbfgs) => {
                lbfgs.accept(&self.best, self.value, &self.gradient, &self.point, value, &gradient)
            }
        };
        if accepted {
            (self.value, self.gradient) = (value, gradient);
            self.best.clone_from(&self.point);
            let largest = self.gradient.iter().fold(0.0_f64, |largest, g| largest.max(g.abs()));
            if largest <= self.tolerance {
                self.status = Status::Converged;
                return;
            }
        }
        match &mut self.method {
            Method::GradientDescent { step } => {
                for (point, gradient) in self.point.iter_mut().zip(&self.gradient) {
                    *point -= *step * gradient;
                }
            }
            Method::Lbfgs(lbfgs) => {
                if accepted {
                    lbfgs.set_direction(&self.gradient);
                }
                match lbfgs.next(&self.best) {
                    Some(point) => self.point = point,
                    None => self.status = Status::Exhausted,
                }
            }
        }
    }
}

impl Data for Solver {
    fn encode(&self, out: &mut Vec<u8>) {
        let status = match self.status {
            Status::Running => 0.0,
            Status::Converged => 1.0,
            Status::Exhausted => 2.0,
        };
        let head = [status, self.tolerance, self.evaluations as f64, self.value];
        let lists = [&head[..], &self.best, &self.gradient, &self.point];
        let method = match &self.method {
            Method::GradientDescent { step } => vec![vec![*step]],
            Method::Lbfgs(lbfgs) => lbfgs.vectors(),
        };
        pack(&lists.into_iter().chain(method.iter().map(Vec::as_slice)).collect::<Vec<_>>(), out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, DataError> {
        let broken = || DataError::new(format!("invalid solver of {} bytes", bytes.len()));
        let mut vectors = unpack(bytes)?;
        let mut next = || vectors.next().ok_or_else(broken);
        let (head, best, gradient, point, first) = (next()?, next()?, next()?, next()?, next()?);
        let &[status, tolerance, evaluations, value] = &head[..] else { return Err(broken()) };
        let status = match status {
            0.0 => Status::Running,
            1.0 => Status::Converged,
            _ => Status::Exhausted,
        };
        let method = match &first[..] {
            [step] => Method::GradientDescent { step: *step },
            _ => Method::Lbfgs(Lbfgs::from_vectors(&first, vectors).ok_or_else(broken)?),
        };
        Ok(Solver {
            method,
            status,
            tolerance,
            evaluations: evaluations as u64,
            best,
            value,
            gradient,
            point,
        })
    }

    fn size_bytes(&self) -> u64 {
        let pairs = if let Method::Lbfgs(lbfgs) = &self.method { lbfgs.numbers() } else { 0 };
        8 * (3 * self.best.len() + pairs) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rosenbrock's function: a curved, narrow valley with minimum 0 at (1, 1).
    fn valley(x: &[f64]) -> (f64, Vec<f64>) {
        let (a, b) = (1.0 - x[0], x[1] - x[0] * x[0]);
        (a * a + 100.0 * b * b, vec![-2.0 * a - 400.0 * x[0] * b, 200.0 * b])
    }

    fn solve(
        mut solver: Solver,
        max_evaluations: u64,
        function: impl Fn(&[f64]) -> (f64, Vec<f64>),
    ) -> Solver {
        while solver.status == Status::Running && solver.evaluations < max_evaluations {
            let (value, gradient) = function(&solver.point);
            solver.update(value, gradient);
            let mut bytes = Vec::new();
            solver.encode(&mut bytes);
            assert_eq!(Solver::decode(&bytes), Ok(solver.clone()), "encoding is not lossless");
        }
        solver
    }

    #[test]
    fn lbfgs_follows_a_curved_valley() {
        let lbfgs = Method::Lbfgs(Lbfgs::new(1e-12));
        let solver = solve(Solver::new(lbfgs, vec![-1.2, 1.0], 1e-9), 200, valley);
        assert_eq!(solver.status, Status::Converged, "{solver:?}");
        assert!(solver.best.iter().all(|x| (x - 1.0).abs() < 1e-8), "{solver:?}");
        assert!(solver.evaluations < 80, "{} evaluations", solver.evaluations);
    }

    #[test]
    fn lbfgs_stops_when_precision_is_exhausted() {
        // Noise in the last digits makes the tolerance unreachable.
        let rough = |x: &[f64]| {
            let (value, gradient) = valley(x);
            (f64::from((1.0 + value) as f32), gradient)
        };
        let lbfgs = Method::Lbfgs(Lbfgs::new(1e-7));
        let solver = solve(Solver::new(lbfgs, vec![-1.2, 1.0], 1e-300), 2000, rough);
        assert_ne!(solver.status, Status::Running);
        assert!(solver.best.iter().all(|x| (x - 1.0).abs() < 1e-2), "{solver:?}");
    }

    #[test]
    fn gradient_descent_converges_on_a_quadratic() {
        let bowl = |x: &[f64]| (x[0] * x[0] + 3.0 * x[1] * x[1], vec![2.0 * x[0], 6.0 * x[1]]);
        let method = Method::GradientDescent { step: 0.1 };
        let solver = solve(Solver::new(method, vec![3.0, -2.0], 1e-10), 1000, bowl);
        assert_eq!(solver.status, Status::Converged);
        assert!(solver.best.iter().all(|x| x.abs() < 1e-10));
    }
}
