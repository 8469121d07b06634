//! Records of an application and its queries.
//!
//! A trace of a single query needs neither, since its job is the query. A
//! long-running program (a Spark application) submits many jobs, and one of its
//! SQL statements may run several.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::index::QueryIx;
use super::outcome::Outcome;

/// The program that submitted the jobs; at most one per trace, anywhere after the header.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Application {
    /// Engine that ran it (`Spark`).
    pub engine: String,
    /// Version of the engine, as reported by the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_version: Option<String>,
    /// Name given by its author.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// ID given by the cluster (`application_1516285256255_0012`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Attempt, if the cluster restarts applications; a string, as in Spark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<String>,
    /// User who ran it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Start time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ns: Option<u64>,
    /// End time; absent if it is still running, crashed, or its end was not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ns: Option<u64>,
    /// Its settings, secrets redacted by the producer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
    /// Number of events of each kind in the source log, by the event's name
    /// without its package (`SparkListenerTaskEnd`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub events: BTreeMap<String, u64>,
}

impl Application {
    /// Returns the number of events of a kind in the log; 0 if there are none.
    pub fn events_named(&self, name: &str) -> u64 {
        self.events.get(name).copied().unwrap_or(0)
    }
}

/// A statement or action that may run several jobs (an SQL execution of Spark).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Query {
    /// Its text, description or call site.
    pub name: String,
    /// Time of submission.
    pub submitted_ns: u64,
    /// ID in the source system (Spark's execution ID).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// The query that runs this one as part of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<QueryIx>,
}

/// The end of a query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueryEnd {
    /// The query.
    pub query: QueryIx,
    /// End time.
    pub ended_ns: u64,
    /// Outcome.
    #[serde(default, skip_serializing_if = "Outcome::is_ok")]
    pub outcome: Outcome,
    /// Cause of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
