//! Impedance mismatches that a composition shows by itself, before anything is measured.
//!
//! CLOUD '16, §V-A and §V-B: layers that are each well made cost more together than their
//! path says: both replicate (GC-Vb), output is renamed where a rename copies (SWI), every
//! byte passes one proxy (SWI). What needs numbers is [`crate::doctor`]'s.

use crate::composition::{Commit, Composition, Layer, Mediator};
use crate::finding::Finding;
use crate::rank::RankFinding;

/// Times that each byte is written where tasks and driver both rename and a rename copies:
/// the output itself, the task's rename, the driver's (§V-A.3).
pub const RENAME_COMMIT_WRITES: f64 = 3.0;

/// What is odd about a composition, costliest first.
pub fn of_composition(composition: &Composition) -> Vec<RankFinding> {
    let found = [double_replication(composition), rename_commit(composition)];
    found.into_iter().flatten().chain(proxies(composition)).collect()
}

/// Both layers keep copies on several machines.
pub(crate) fn double_replication(c: &Composition) -> Option<RankFinding> {
    let (data, storage) = (&c.data, &c.storage);
    if !(data.survives_a_loss() && storage.survives_a_loss()) {
        return None;
    }
    let factor = data.stored_per_byte() * storage.stored_per_byte();
    Some(RankFinding {
        finding: Finding::new(
            format!("{}: both layers replicate", c.name),
            format!(
                "{} keeps {} of each byte and {} {} of each of those: {} bytes are written for one, {} times what \
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

/// A number without needless digits.
pub(crate) fn number(value: f64) -> String {
    let rounded = (value * 100.0).round() / 100.0;
    format!("{rounded}")
}

fn rename_commit(c: &Composition) -> Option<RankFinding> {
    if c.commit != Some(Commit::Rename) || c.rename_copies != Some(true) {
        return None;
    }
    Some(RankFinding {
        finding: Finding::new(
            format!("{}: output is committed by rename, and a rename copies", c.name),
            format!(
                "{} cannot rename: tasks and driver each copy the output once more, so that each byte is written {} times",
                c.data.system,
                number(RENAME_COMMIT_WRITES)
            ),
            "commit without rename: complete multipart uploads when the job commits (Spark: the magic or staging \
             committer of S3A)",
        ),
        factor: Some(RENAME_COMMIT_WRITES),
    })
}

/// Mediators on other machines that all bytes pass.
fn proxies(c: &Composition) -> impl Iterator<Item = RankFinding> {
    [&c.data, &c.storage].into_iter().flat_map(|layer| {
        layer.mediators.iter().filter(|m| m.runs.is_remote()).map(|m| RankFinding {
            finding: Finding::new(
                format!("{}: every byte passes a {}", c.name, m.name),
                format!(
                    "{} stands between {} and {}, and every byte of a read or a write crosses its link; it adds 2 \
                     links to a read and to a write",
                    instances(m),
                    c.compute,
                    layer.system
                ),
                "let clients talk to the storage nodes themselves, give it a faster link, or run more of it; \
                 `pellucid storage doctor FILE --probe probe.json` says how near its link it is",
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
