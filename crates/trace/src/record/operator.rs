//! The work of an operator of a stage's plan.

use serde::{Deserialize, Serialize};

use super::index::StageIx;

/// The part of a compute monotask that an operator belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Decoding of the input.
    Decode,
    /// Operators.
    Operators,
    /// Partitioning and encoding of the output.
    Encode,
    /// Operators that are not split into monotasks.
    NotSplit,
}

impl Part {
    /// Returns its name, as in the trace.
    pub fn name(self) -> &'static str {
        match self {
            Part::Decode => "decode",
            Part::Operators => "operators",
            Part::Encode => "encode",
            Part::NotSplit => "not_split",
        }
    }
}

/// The work of decoding one column of a scan, over all compute monotasks of its stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Its name in the table; a nested column has the name of its outermost field.
    pub name: String,
    /// Core time, a part of that of the scan.
    pub cpu_ns: u64,
    /// Bytes in the file: its pages as they were read.
    pub encoded_bytes: u64,
    /// Bytes in memory after decoding.
    pub decoded_bytes: u64,
}

/// The evaluation of an expression of an operator, over all compute monotasks of its stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expression {
    /// The expression, as the planner writes it, cut if it is long.
    pub text: String,
    /// Core time, a part of that of the operator, estimated from some of the batches.
    pub cpu_ns: u64,
    /// Rows that it was evaluated for.
    pub rows: u64,
}

/// The work of one operator over all compute monotasks of its stage. Times are exclusive: those of its inputs are not
/// in them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Operator {
    /// Stage of the operator.
    pub stage: StageIx,
    /// Its number, unique in the job.
    pub operator: u32,
    /// Name: `Filter`, `HashJoin Inner build`, `Scan lineitem.parquet`.
    pub name: String,
    /// Its expressions, keys and columns, as the planner writes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The part of the monotasks that it belongs to.
    pub part: Part,
    /// Operators of the same stage whose rows it takes, recorded before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<u32>,
    /// The stage whose output it reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<StageIx>,
    /// Core time, summed over monotasks.
    pub cpu_ns: u64,
    /// Core time in the monotask in which it took longest.
    pub max_cpu_ns: u64,
    /// Batches of output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batches: Option<u64>,
    /// Rows of output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Rows of output that the planner expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_rows: Option<u64>,
    /// Bytes of output in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Peak memory of its state in one monotask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<u64>,
    /// The columns that it decodes, if they were measured one by one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<Column>,
    /// Its most expensive expressions, if they were measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expressions: Vec<Expression>,
}

/// Actual rows differ from planned ones by this factor, in either direction, in a misestimate.
const MISESTIMATE_FACTOR: u64 = 4;
/// The larger of both numbers is at least this in a misestimate.
const MISESTIMATE_ROWS: u64 = 10_000;

impl Operator {
    /// Returns whether the planner was so wrong about the operator's rows that another plan may have been better.
    pub fn is_misestimate(&self) -> bool {
        let Some((planned, rows)) = self.planned_rows.zip(self.rows) else { return false };
        let (less, more) = (planned.min(rows), planned.max(rows));
        more >= MISESTIMATE_ROWS && more / MISESTIMATE_FACTOR >= less
    }

    /// Returns the rows that the operator takes from its inputs, which are some of `of_stage`; `None` for a leaf.
    pub fn rows_in(&self, of_stage: &[&Operator]) -> Option<u64> {
        let inputs = of_stage.iter().filter(|o| self.inputs.contains(&o.operator));
        // A build side returns no rows: what its join takes are the rows of the probe side.
        (!self.inputs.is_empty()).then(|| inputs.filter_map(|input| input.rows).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misestimates_are_large_in_factor_and_in_rows() {
        let misestimate = |planned_rows, rows| {
            let operator =
                r#"{"stage":0,"operator":0,"name":"Filter","part":"operators","cpu_ns":1,"max_cpu_ns":1}"#;
            let operator: Operator = serde_json::from_str(operator).expect("an operator");
            Operator { planned_rows, rows, ..operator }.is_misestimate()
        };
        assert!(misestimate(Some(2_500), Some(10_000)) && misestimate(Some(40_000), Some(10_000)));
        assert!(misestimate(Some(0), Some(10_000)) && misestimate(Some(10_000), Some(0)));
        assert!(!misestimate(Some(2_501), Some(10_000)) && !misestimate(Some(1), Some(9_999)));
        assert!(!misestimate(None, Some(10_000)) && !misestimate(Some(10_000), None));
    }
}
