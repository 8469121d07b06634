//! The manifest file of a job's snapshots.
//!
//! A line of JSON for each snapshot, the newest first, with the version of the format and a CRC-32 of both. A
//! damaged line costs only its own snapshot. Everything in a line is also compared with the plan: a checksum
//! does not protect against a snapshot of another build.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dataflow::plan::Plan;
use crate::protocol::records::Manifest;

/// Version of the format. Version 1 had neither checksums nor previous snapshots.
pub(crate) const FORMAT: u32 = 2;

#[derive(Serialize, Deserialize)]
struct Line {
    checksum: u32,
    format: u32,
    snapshot: Value,
}

/// The content of a manifest file.
#[derive(Debug, PartialEq)]
pub(crate) enum Content {
    /// The intact snapshots, the newest first, and the cause for each damaged one.
    Snapshots(Vec<Manifest>, Vec<String>),
    /// Another version wrote the file.
    OtherFormat(u32),
}

fn checksum(format: u32, snapshot: &Value) -> Result<u32, String> {
    let bytes = serde_json::to_vec(&(format, snapshot)).map_err(|error| error.to_string())?;
    Ok(crc32fast::hash(&bytes))
}

/// Encodes a manifest file.
///
/// # Errors
/// Never: the values are numbers and lists.
pub(crate) fn encode<'a>(snapshots: impl Iterator<Item = &'a Manifest>) -> Result<Vec<u8>, String> {
    let mut file = Vec::new();
    for snapshot in snapshots {
        let snapshot = serde_json::to_value(snapshot).map_err(|error| error.to_string())?;
        let line = Line { checksum: checksum(FORMAT, &snapshot)?, format: FORMAT, snapshot };
        serde_json::to_writer(&mut file, &line).map_err(|error| error.to_string())?;
        file.push(b'\n');
    }
    Ok(file)
}

/// Decodes and checks a manifest file.
pub(crate) fn decode(plan: &Plan, file: &[u8]) -> Content {
    let (mut intact, mut damaged) = (Vec::new(), Vec::new());
    let lines = file.strip_suffix(b"\n").unwrap_or(file);
    for (number, line) in (1..).zip(lines.split(|&byte| byte == b'\n')) {
        match decode_line(plan, line) {
            Ok(Ok(manifest)) => intact.push(manifest),
            Ok(Err(format)) => return Content::OtherFormat(format),
            Err(cause) => damaged.push(format!("line {number} of its manifest is damaged: {cause}")),
        }
    }
    Content::Snapshots(intact, damaged)
}

/// Decodes a line; the inner error is the version of another format.
fn decode_line(plan: &Plan, line: &[u8]) -> Result<Result<Manifest, u32>, String> {
    let line: Value = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    if line.get("saved").is_some() {
        return Ok(Err(1));
    }
    let line: Line = serde_json::from_value(line).map_err(|error| error.to_string())?;
    if checksum(line.format, &line.snapshot)? != line.checksum {
        return Err("its checksum differs".into());
    }
    if line.format != FORMAT {
        return Ok(Err(line.format));
    }
    let manifest: Manifest = serde_json::from_value(line.snapshot).map_err(|error| error.to_string())?;
    manifest.check(plan)?;
    Ok(Ok(manifest))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Program;
    use crate::dataflow::index::{DatasetIx, StatementIx, Table};
    use crate::dataflow::plan::{Instance, Kind};
    use crate::protocol::records::Part;

    /// A program with an iteration, and a snapshot of it.
    pub fn example(epoch: u64) -> (std::sync::Arc<Plan>, Manifest) {
        let mut program = Program::new("manifest");
        let constant = program.dataset("constant", 2, |_| Ok(1u64));
        let data = program.dataset("data", 2, |_| Ok(0u64));
        program.times("rounds", 9, |body| {
            body.transform("add", constant, data, |constant, data| {
                *data += constant;
                Ok(())
            });
        });
        let plan = program.build().unwrap();
        let signal = |kind: &Kind| matches!(kind, Kind::Signal { iteration: true, .. });
        let statement = plan.statements.find(|statement| signal(&statement.kind)).unwrap();
        let saved = plan.bundles().map(|bundle| {
            let datasets = plan.saved_datasets(plan.locate(bundle).0);
            datasets.map(|dataset| Part::new(dataset, epoch, &[0; 8])).collect()
        });
        let position = Instance { epoch, statement };
        let manifest = Manifest { position, iteration: epoch, saved: saved.collect() };
        (plan, manifest)
    }

    #[test]
    fn any_flipped_bit_costs_at_most_the_snapshot_that_it_is_in() {
        let (plan, newest) = example(7);
        let older = example(5).1;
        let file = encode([&newest, &older].into_iter()).unwrap();
        let both = vec![newest.clone(), older.clone()];
        assert_eq!(decode(&plan, &file), Content::Snapshots(both.clone(), vec![]));
        for bit in 0..file.len() * 8 {
            let mut damaged = file.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let Content::Snapshots(intact, causes) = decode(&plan, &damaged) else {
                panic!("bit {bit}: mistaken for another format");
            };
            assert!(intact.iter().all(|snapshot| both.contains(snapshot)), "bit {bit}");
            assert!(intact == both || !causes.is_empty(), "bit {bit}");
        }
        for length in 0..file.len() - 1 {
            let Content::Snapshots(intact, causes) = decode(&plan, &file[..length]) else {
                panic!("length {length}: mistaken for another format");
            };
            assert!(both.starts_with(&intact), "length {length}");
            assert!(intact.len() == 1 || !causes.is_empty(), "length {length}");
        }
    }

    #[test]
    fn snapshot_outside_of_the_plan_is_refused() {
        let check = |change: fn(&mut Manifest), expect: &str| {
            let (plan, mut manifest) = example(7);
            change(&mut manifest);
            let file = encode(std::iter::once(&manifest)).unwrap();
            let Content::Snapshots(intact, causes) = decode(&plan, &file) else { panic!("{expect}") };
            assert!(intact.is_empty() && causes[0].contains(expect), "{causes:?} instead of {expect:?}");
        };
        check(
            |manifest| manifest.position.statement = StatementIx(700),
            "statement 700 does not end an iteration",
        );
        check(
            |manifest| manifest.position.statement = StatementIx(0),
            "statement 0 does not end an iteration",
        );
        check(|manifest| manifest.position.epoch = u64::MAX, "out of range");
        check(|manifest| manifest.iteration = 8, "iteration 8 is out of range");
        check(|manifest| manifest.saved = Table::new(), "it has 0 bundles of");
        check(|manifest| manifest.saved.iter_mut().for_each(Vec::clear), "are not those of the program");
        let dataset = |manifest: &mut Manifest| {
            manifest.saved.iter_mut().flatten().for_each(|part| part.dataset = DatasetIx(4_000_000_000));
        };
        check(dataset, "are not those of the program");
        let later = |manifest: &mut Manifest| {
            manifest.saved.iter_mut().flatten().for_each(|part| part.epoch = 8);
        };
        check(later, "a partition of epoch 8 is later than epoch 7");
    }

    #[test]
    fn other_formats_are_recognized() {
        let (plan, manifest) = example(7);
        let first = br#"{"position":{"epoch":3,"statement":1},"iteration":3,"saved":[[[1,3]],[[1,3]]]}"#;
        assert_eq!(decode(&plan, first), Content::OtherFormat(1));
        let snapshot = serde_json::to_value(&manifest).unwrap();
        let line = Line { checksum: checksum(3, &snapshot).unwrap(), format: 3, snapshot };
        assert_eq!(decode(&plan, &serde_json::to_vec(&line).unwrap()), Content::OtherFormat(3));
    }
}
