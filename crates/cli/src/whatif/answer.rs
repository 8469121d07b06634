//! The predictions that the text and the document show.

use pellucid_model::whatif::{Point, Single, WhatIf};

/// The predictions of one invocation.
pub struct Answer {
    /// All changes combined; without changes, the baseline.
    pub whatif: WhatIf,
    /// The key and the points of a sweep.
    pub sweep: Option<(String, Vec<Point>)>,
    /// Single changes, if neither `--set` nor `--sweep` was given.
    pub singles: Option<Vec<Single>>,
}
