//! The program whose jobs a trace holds, and the queries that those jobs are parts of.
//!
//! A trace of one query needs neither: its job is the query. A long-running
//! program (a Spark application) submits many jobs, and one SQL statement of it
//! may run several.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::record::{Outcome, QueryIx};

/// The program that submitted the jobs; at most one a trace, anywhere after the header.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Application {
    /// What ran it (`Spark`).
    pub engine: String,
    /// Version of the engine, as it says itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_version: Option<String>,
    /// Name that its author gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Name that the cluster gave it (`application_1516285256255_0012`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Attempt, where the cluster starts it again; a text, as Spark has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<String>,
    /// Who ran it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// When it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ns: Option<u64>,
    /// When it ended; absent: still running, died, or was not seen to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ns: Option<u64>,
    /// Its settings, secrets redacted by the producer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
    /// How often each kind of event stands in the log that this was made from,
    /// by its name without its package (`SparkListenerTaskEnd`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub events: BTreeMap<String, u64>,
}

impl Application {
    /// How often an event stands in the log; 0 for one that is not there.
    pub fn events_named(&self, name: &str) -> u64 {
        self.events.get(name).copied().unwrap_or(0)
    }
}

/// A statement or action that may run several jobs (an SQL execution of Spark).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Query {
    /// What it is called: its text, description or call site.
    pub name: String,
    /// When it was submitted.
    pub submitted_ns: u64,
    /// Its number where it came from (Spark's execution id).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// The query that runs this one as a part of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<QueryIx>,
}

/// A query ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueryEnd {
    /// The query.
    pub query: QueryIx,
    /// When.
    pub ended_ns: u64,
    /// How.
    #[serde(default, skip_serializing_if = "Outcome::is_ok")]
    pub outcome: Outcome,
    /// The cause, where it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
