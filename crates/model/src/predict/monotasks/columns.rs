//! `columns.TABLE=a,b`: the job if its scans of a table read no other columns.

use std::sync::Arc;

use pellucid_trace::{Part, Phase};

use super::recorded::{Operator, Recorded};
use super::rework::is_input;
use super::scenario::Scenario;
use crate::index::{StageIx, Table};
use crate::whatif::WhatIfError;

/// The share of a stage's work that no longer takes place.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Saved {
    /// Share of the bytes of its input.
    bytes: f64,
    /// Share of the core time of its compute monotasks.
    core: f64,
}

/// Returns the name of the file that an operator scans: `Scan lineitem.parquet …`.
fn file(operator: &Operator) -> &str {
    let name = operator.name.strip_prefix("Scan ").unwrap_or(&operator.name);
    name.strip_suffix(" …").unwrap_or(name)
}

fn names_file(table: &str, file: &str) -> bool {
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    [file, stem].iter().any(|name| name.eq_ignore_ascii_case(table))
}

/// Lists names once, in alphabetical order.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}

/// Returns what is saved in each stage.
fn saved(recorded: &Recorded, scans: &[&Operator], kept: &[String]) -> Table<StageIx, Saved> {
    let is_kept = |name: &str| kept.iter().any(|kept| kept.eq_ignore_ascii_case(name));
    let mut saved = Table::<StageIx, Saved>::filled(recorded.stages.len(), Saved::default());
    for scan in scans {
        let Some(of_stage) = saved.get_mut(scan.stage) else { continue };
        for column in scan.columns.iter().filter(|column| !is_kept(&column.name)) {
            of_stage.bytes += column.bytes;
            of_stage.core += column.core;
        }
    }
    for stage in saved.indices() {
        let of_stage = &mut saved[stage];
        of_stage.bytes = of_stage.bytes.min(1.0);
        // Input that is not read is not copied from the page cache either.
        let copies = recorded
            .operators
            .iter()
            .filter(|o| o.stage == stage && o.part == Part::Decode && o.name == "Input");
        of_stage.core += of_stage.bytes * copies.map(|o| o.share).sum::<f64>();
        of_stage.core = of_stage.core.min(1.0);
    }
    saved
}

/// Reads and computes less in each stage.
fn read_less(recorded: &mut Recorded, saved: &Table<StageIx, Saved>) {
    let services = &recorded.services;
    for task in Arc::make_mut(&mut recorded.tasks).iter_mut() {
        let Some(saved) = saved.get(task.stage).filter(|saved| **saved != Saved::default()) else { continue };
        for monotask in &mut task.monotasks {
            if is_input(monotask, services) {
                monotask.work *= 1.0 - saved.bytes;
            }
            if monotask.phase == Phase::Compute {
                let core = monotask.work * saved.core;
                monotask.work -= core;
                monotask.decode = (monotask.decode - core).clamp(0.0, monotask.work);
                monotask.waits = monotask.waits.min(monotask.work);
                monotask.cached_bytes *= 1.0 - saved.bytes;
            }
        }
    }
}

impl Scenario {
    pub(super) fn columns(&mut self, table: &str, kept: &[String]) -> Result<(), WhatIfError> {
        let operators = self.recorded.operators.clone();
        let measured = || operators.iter().filter(|operator| !operator.columns.is_empty());
        let key = format!("columns.{table}");
        if measured().next().is_none() {
            return Err(self.unsupported(&format!("{key}: this trace does not tell columns apart")));
        }
        let scans: Vec<&Operator> = measured().filter(|scan| names_file(table, file(scan))).collect();
        if scans.is_empty() {
            return Err(WhatIfError::Usage(format!(
                "{key}: this trace has no scan of {table} by column; it has scans of {}",
                listed(measured().map(file))
            )));
        }
        let read = || scans.iter().flat_map(|scan| &scan.columns).map(|column| column.name.as_str());
        if let Some(unknown) = kept.iter().find(|kept| !read().any(|name| name.eq_ignore_ascii_case(kept))) {
            return Err(WhatIfError::Usage(format!(
                "{key}: the job reads no column {unknown} of {table}; it reads {}",
                listed(read())
            )));
        }
        let saved = saved(&self.recorded, &scans, kept);
        self.rework(|recorded| read_less(recorded, &saved));
        self.assume(format!(
            "every multitask that scans {table} reads and decodes the same share less; operators above the scan take as long \
             as before, although they would copy fewer columns"
        ));
        Ok(())
    }
}
