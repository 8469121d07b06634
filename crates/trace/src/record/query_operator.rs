//! An operator of a query's plan, with the metrics that its engine keeps.
//!
//! Engines such as Spark do not record core time by operator. Their metrics have names of their own, are summed over
//! tasks, and may overlap, so they are recorded as they are.

use serde::{Deserialize, Serialize};

use super::index::{QueryIx, StageIx};

/// The unit of a [`Metric`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Rows, files, tasks.
    Count,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Ns,
}

/// A metric of an operator, summed over the tasks that succeeded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// Name, in the engine's words (`sort time`).
    pub name: String,
    /// Unit of the value.
    pub unit: Unit,
    /// Sum.
    pub value: u64,
}

/// An operator of a query's plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueryOperator {
    /// Query of the operator.
    pub query: QueryIx,
    /// Its number, unique in the query.
    pub operator: u32,
    /// Name: `SortMergeJoin`, `Scan parquet`, `WholeStageCodegen (2)`.
    pub name: String,
    /// Its expressions, keys and columns, as the planner writes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Operators whose rows it takes, recorded before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<u32>,
    /// The operator that it is compiled into, recorded before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<u32>,
    /// The part of the plan between exchanges that it belongs to. That of an input has no higher number.
    pub fragment: u32,
    /// The stage that ran the fragment, if known; the last one of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<StageIx>,
    /// Metrics that have a value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<Metric>,
}
