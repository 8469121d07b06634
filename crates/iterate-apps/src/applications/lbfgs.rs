//! L-BFGS: quasi-Newton directions from the last ten steps (Nocedal and Wright, *Numerical Optimization*,
//! algorithm 7.4), with a line search by bisection for the weak Wolfe conditions (Lewis and Overton, 2013).
//! The search needs one value and one gradient per trial and always ends on convex functions.

use std::collections::VecDeque;

/// Number of steps kept.
const MEMORY: usize = 10;
/// Wolfe conditions: minimum share of the decrease predicted by the slope, and maximum share of the slope left.
const DECREASE: f64 = 1e-4;
const SLOPE: f64 = 0.9;
/// Maximum number of points tried along one direction.
const TRIALS: u32 = 40;

/// A step and the change of the gradient along it.
#[derive(Debug, Clone, PartialEq)]
struct Pair {
    step: Vec<f64>,
    change: Vec<f64>,
    /// 1 ÷ (step · change), which is positive.
    rho: f64,
}

/// The search direction, and the state of the line search along it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Lbfgs {
    pairs: VecDeque<Pair>,
    direction: Vec<f64>,
    /// Slope of the function along the direction at its start; negative.
    slope: f64,
    /// Current distance, and the bounds of the bisection.
    distance: f64,
    low: f64,
    high: f64,
    trials: u32,
    /// Relative differences of values below this are noise.
    noise: f64,
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

impl Lbfgs {
    pub fn new(noise: f64) -> Self {
        Lbfgs {
            pairs: VecDeque::new(),
            direction: Vec::new(),
            slope: 0.0,
            distance: 0.0,
            low: 0.0,
            high: f64::INFINITY,
            trials: 0,
            noise,
        }
    }

    /// Returns whether a trial point is acceptable. If not, narrows the search.
    pub fn accept(
        &mut self,
        best: &[f64],
        best_value: f64,
        best_gradient: &[f64],
        point: &[f64],
        value: f64,
        gradient: &[f64],
    ) -> bool {
        let slope = dot(gradient, &self.direction);
        let decreased = value <= best_value + DECREASE * self.distance * self.slope
            // Near the minimum, noise hides differences of values, but slopes stay usable (Hager and Zhang, 2005).
            || value <= best_value + self.noise * best_value.abs() && slope <= (2.0 * DECREASE - 1.0) * self.slope;
        if !decreased || !value.is_finite() {
            self.high = self.distance;
        } else if slope < SLOPE * self.slope {
            self.low = self.distance;
        } else {
            let step: Vec<f64> = point.iter().zip(best).map(|(a, b)| a - b).collect();
            let change: Vec<f64> = gradient.iter().zip(best_gradient).map(|(a, b)| a - b).collect();
            let curvature = dot(&step, &change);
            if curvature > 0.0 {
                self.pairs.truncate(MEMORY - 1);
                self.pairs.push_front(Pair { step, change, rho: 1.0 / curvature });
            }
            return true;
        }
        self.distance = if self.high.is_finite() { (self.low + self.high) / 2.0 } else { 2.0 * self.low };
        false
    }

    /// Computes a new direction from the gradient at a new best point.
    pub fn set_direction(&mut self, gradient: &[f64]) {
        let mut direction: Vec<f64> = gradient.iter().map(|g| -g).collect();
        let mut shares = Vec::with_capacity(self.pairs.len());
        for pair in &self.pairs {
            let share = pair.rho * dot(&pair.step, &direction);
            direction.iter_mut().zip(&pair.change).for_each(|(d, change)| *d -= share * change);
            shares.push(share);
        }
        if let Some(newest) = self.pairs.front() {
            let scale = 1.0 / (newest.rho * dot(&newest.change, &newest.change));
            direction.iter_mut().for_each(|d| *d *= scale);
        }
        for (pair, share) in self.pairs.iter().zip(shares).rev() {
            let back = share - pair.rho * dot(&pair.change, &direction);
            direction.iter_mut().zip(&pair.step).for_each(|(d, step)| *d += back * step);
        }
        self.slope = dot(&direction, gradient);
        if self.slope >= 0.0 || !self.slope.is_finite() {
            // Rounding errors made the pairs useless; restart from the gradient.
            self.pairs.clear();
            direction = gradient.iter().map(|g| -g).collect();
            self.slope = -dot(gradient, gradient);
        }
        let length = direction.iter().map(|d| d.abs()).sum::<f64>();
        self.distance = if self.pairs.is_empty() { (1.0 / length).min(1.0) } else { 1.0 };
        (self.low, self.high, self.trials) = (0.0, f64::INFINITY, 0);
        self.direction = direction;
    }

    /// Returns the next trial point, or `None` if the search is exhausted.
    pub fn next(&mut self, best: &[f64]) -> Option<Vec<f64>> {
        self.trials += 1;
        let point: Vec<f64> = best.iter().zip(&self.direction).map(|(x, d)| x + self.distance * d).collect();
        (self.trials <= TRIALS && point != best).then_some(point)
    }

    /// Returns the whole state, for [`Lbfgs::from_vectors`].
    pub fn vectors(&self) -> Vec<Vec<f64>> {
        let head = vec![self.slope, self.distance, self.low, self.high, f64::from(self.trials), self.noise];
        let mut vectors = vec![head, self.direction.clone()];
        for pair in &self.pairs {
            vectors.extend([pair.step.clone(), pair.change.clone(), vec![pair.rho]]);
        }
        vectors
    }

    /// Restores the state from the vectors of [`Lbfgs::vectors`], of which `head` is the first.
    pub fn from_vectors(head: &[f64], mut rest: impl Iterator<Item = Vec<f64>>) -> Option<Self> {
        let &[slope, distance, low, high, trials, noise] = head else { return None };
        let direction = rest.next()?;
        let mut pairs = VecDeque::new();
        while let Some(step) = rest.next() {
            pairs.push_back(Pair { step, change: rest.next()?, rho: *rest.next()?.first()? });
        }
        Some(Lbfgs { pairs, direction, slope, distance, low, high, trials: trials as u32, noise })
    }

    /// Returns the lengths of all vectors.
    pub fn lengths(&self) -> impl Iterator<Item = usize> {
        let pairs = self.pairs.iter().flat_map(|pair| [pair.step.len(), pair.change.len()]);
        pairs.chain([self.direction.len()])
    }

    /// Returns the number of stored values.
    pub fn numbers(&self) -> usize {
        self.direction.len() * (1 + 2 * self.pairs.len())
    }
}
