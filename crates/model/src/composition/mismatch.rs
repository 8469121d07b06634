//! Impedance mismatches that a composition file alone reveals.
//!
//! CLOUD '16, §V-A and §V-B: layers that are efficient on their own can cost more together than
//! their path length suggests. Both layers replicate (GC-Vb), output is committed by a rename that
//! copies (SWI), or every byte passes one proxy (SWI). [`crate::doctor`] finds the mismatches that
//! need measurements.

use serde::Serialize;

use super::{Commit, Composition, Layer, Mediator};
use crate::finding::{Finding, number};

/// Number of times that each byte is written if tasks and driver both rename and a rename copies:
/// the output itself, the task's rename, and the driver's rename (§V-A.3).
pub const RENAME_COMMIT_WRITES: f64 = 3.0;

/// A finding about one composition, with its write amplification.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RankFinding {
    /// The finding.
    #[serde(flatten)]
    pub finding: Finding,
    /// Number of times that each byte is written; `None` for findings about something else.
    pub factor: Option<f64>,
}

/// Returns the mismatches in a composition, costliest first.
pub fn of_composition(composition: &Composition) -> Vec<RankFinding> {
    let found = [double_replication(composition), rename_commit(composition)];
    found.into_iter().flatten().chain(proxies(composition)).collect()
}

/// Finds layers that both keep copies on several machines.
pub(crate) fn double_replication(c: &Composition) -> Option<RankFinding> {
    let (data, storage) = (&c.data, &c.storage);
    if !(data.survives_machine_loss() && storage.survives_machine_loss()) {
        return None;
    }
    let factor = data.stored_per_byte() * storage.stored_per_byte();
    Some(RankFinding {
        finding: Finding::new(
            format!("{}: both layers replicate", c.name),
            format!(
                "{} keeps {} of each byte, and {} keeps {} of each of those: {} bytes are written for one, {} times what \
                 {} alone writes",
                data.system,
                copies(data),
                storage.system,
                copies(storage),
                number(factor),
                number(data.stored_per_byte()),
                storage.system,
            ),
            format!(
                "let one layer replicate: {} with one copy (HDFS: dfs.replication=1), or {} without replication",
                data.system, storage.system
            ),
        ),
        factor: Some(factor),
    })
}

fn copies(layer: &Layer) -> String {
    match layer.fragments {
        (0, _) => format!("{} copies", layer.copies),
        _ => format!("{} bytes", number(layer.stored_per_byte())),
    }
}

fn rename_commit(c: &Composition) -> Option<RankFinding> {
    if c.commit != Some(Commit::Rename) || c.rename_copies != Some(true) {
        return None;
    }
    Some(RankFinding {
        finding: Finding::new(
            format!("{}: output is committed by rename, and a rename copies", c.name),
            format!(
                "{} renames by copying: tasks and driver each copy the output again, so each byte is written {} times",
                c.data.system,
                number(RENAME_COMMIT_WRITES)
            ),
            "commit without rename: complete multipart uploads when the job commits (Spark: the magic or staging \
             committer of S3A)",
        ),
        factor: Some(RENAME_COMMIT_WRITES),
    })
}

/// Finds mediators on other machines that every byte passes.
fn proxies(c: &Composition) -> impl Iterator<Item = RankFinding> {
    [&c.data, &c.storage].into_iter().flat_map(|layer| {
        layer.mediators.iter().filter(|m| m.runs.is_remote()).map(|m| RankFinding {
            finding: Finding::new(
                format!("{}: every byte passes a {}", c.name, m.name),
                format!(
                    "{} sits between {} and {}, and every byte of a read or write crosses its link; it adds 2 \
                     links to each read and each write",
                    instances(m),
                    c.compute,
                    layer.system
                ),
                "let clients access the storage nodes directly, use a faster link, or add instances; \
                 `pellucid storage doctor FILE --probe probe.json` compares the measured rate with its link",
            ),
            factor: None,
        })
    })
}

fn instances(m: &Mediator) -> String {
    match m.instances {
        1 => format!("one {}", m.name),
        n => format!("a {} ({n} instances)", m.name),
    }
}
