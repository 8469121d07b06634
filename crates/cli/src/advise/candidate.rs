//! Candidates for advice: each is measured on a sample, predicted, and kept only if its whole interval is faster.

use super::table::Table;
use crate::failure::Failure;
use arrow::datatypes::DataType;
use parquet::basic::Type;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use pellucid_engine::PlannedScan;
use pellucid_layout::{
    Change, Codec, Effect, Layout, LayoutError, Limits, Narrow, Sample, TableChange, TableFile, effect,
};
use pellucid_model::units::{grouped, parse_rate};
use pellucid_model::whatif::{Changes, Prediction, WhatIfModel};
use pellucid_trace::{Operator, Trace, kind};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Minimum saving, as a share of the measured time.
pub const LEAST_SAVING: f64 = 0.02;
/// Difference between a sample and its table, as a share of the core time of decoding.
const SAMPLE_ERROR: f64 = 0.08;
/// The same for the rows that pruning leaves of a sorted table.
const ORDER_ERROR: f64 = 0.15;
/// The same for the bytes of a table that is not sorted.
const BYTES_ERROR: f64 = 0.03;
/// Rows of a row group that suit a multitask.
const ROW_GROUP_ROWS: usize = 122_880;
/// Rows of a page, of which a multitask has at least one.
const PAGE_ROWS: u64 = 20_000;
/// Multitasks of a scan for each thread, as the engine divides it.
const MULTITASKS_PER_THREAD: f64 = 4.0;
/// Limits of the sample of a filter's columns. They are few, and pruning needs more rows than decoding.
const FILTER_LIMITS: Limits = Limits { groups: 32, rows: 2_000_000, bytes: 128 << 20 };

/// Limits of the sample that decides whether a type is tried.
const FEW_ROWS: Limits = Limits { groups: 1, rows: 1_000, bytes: 16 << 20 };

/// A change that makes the query faster.
pub struct Advised {
    /// Its name, as `rewrite --like` takes it.
    pub id: String,
    /// In plain words.
    pub title: String,
    /// The measured figures behind it.
    pub evidence: String,
    /// The command that makes the change, or what to do.
    pub change: String,
    /// The same as settings of `whatif --set`.
    pub set: Changes,
    pub prediction: Prediction,
}

impl Advised {
    /// Returns its part of the document.
    pub fn document(&self, measured_ms: f64) -> Value {
        json!({
            "id": self.id,
            "title": self.title,
            "evidence": self.evidence,
            "change": self.change,
            "set": self.set.settings().iter().map(|setting| setting.to_string()).collect::<Vec<_>>(),
            "duration_ms": self.prediction.duration_ms,
            "low_ms": self.prediction.low_ms,
            "high_ms": self.prediction.high_ms,
            "saves_ms": measured_ms - self.prediction.duration_ms,
        })
    }
}

/// The effect of a change on one scan and the operators above it.
struct Scanned<'a> {
    operators: Vec<(&'a Operator, f64)>,
    scan: u32,
    bytes: f64,
    /// Multitasks, if there are more or fewer than now.
    multitasks: Option<u64>,
    /// Uncertainty of the factors on core time and on bytes, as shares.
    error: (f64, f64),
    /// Rows that are decoded before and after.
    rows: (u64, u64),
    effect: Effect,
    sampled: u64,
}

/// Returns the advice on a table: the best change that keeps the order of its rows, and each order that helps.
///
/// # Errors
/// Returns an error if the table cannot be read.
pub fn advised(
    table: &Table,
    trace: &Trace,
    model: &WhatIfModel<'_>,
    notes: &mut Vec<String>,
) -> Result<Vec<Advised>, Failure> {
    let measured_ms = model.baseline().measured_ms;
    if bound_ms(table, model)? > measured_ms * (1.0 - LEAST_SAVING) {
        return Ok(Vec::new());
    }
    let mut all = Vec::new();
    for change in encodings(table) {
        all.extend(one(table, &change, trace, model)?);
    }
    all.sort_by(|a, b| a.prediction.duration_ms.total_cmp(&b.prediction.duration_ms));
    all.truncate(1);
    for change in narrower(table)? {
        all.extend(one(table, &change, trace, model)?);
    }
    let filtered = |scan: &PlannedScan| scan.filter_columns.clone();
    let columns: BTreeSet<String> = table.scans.iter().flat_map(filtered).collect();
    for column in columns {
        if table.scans.iter().any(|scan| pruned_by_keys(table, scan, trace)) {
            notes.push(format!(
                "no advice on sorting {} by {column}: the keys of a join prune it, which another order would change",
                table.name
            ));
            continue;
        }
        all.extend(one(table, &Change::Sort(column), trace, model)?);
    }
    Ok(all)
}

/// Returns the changes to a table that keep the order of its rows.
fn encodings(table: &Table) -> Vec<Change> {
    let other = |codec: &Change| table.present.with(codec).compression != table.present.compression;
    let mut changes: Vec<Change> = Codec::ALL.map(Change::Codec).into_iter().filter(other).collect();
    let groups = || table.files.iter().flat_map(|file| file.metadata.row_groups());
    if !table.is_indexed() || table.present.row_group_rows > 2 * ROW_GROUP_ROWS {
        changes.push(Change::RowGroups(ROW_GROUP_ROWS));
    }
    let plain_text = |chunk: &ColumnChunkMetaData| {
        chunk.column_type() == Type::BYTE_ARRAY && chunk.dictionary_page_offset().is_none()
    };
    if groups().flat_map(|group| group.columns()).any(plain_text) {
        changes.push(Change::Dictionary);
    }
    changes
}

/// Returns the narrower types that some values of the scans' columns have.
///
/// # Errors
/// Returns an error if the table cannot be read.
fn narrower(table: &Table) -> Result<Vec<Change>, Failure> {
    let mut changes: Vec<Change> = Vec::new();
    for scan in &table.scans {
        for field in scan.schema.fields().iter().filter(|field| scan.columns.contains(field.name())) {
            let narrow = match field.data_type() {
                DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Narrow::Date,
                DataType::Decimal128(_, scale) if *scale > 0 => Narrow::Integer,
                _ => continue,
            };
            let change = Change::Type(field.name().clone(), narrow);
            let groups = TableFile::row_groups(&table.files);
            let few = Sample::read(&groups, &[field.name().clone()], Some(&scan.schema), FEW_ROWS)?;
            let layout = table.present.with(&change);
            let fits = few.batches()?.into_iter().all(|batch| layout.typed(batch).is_ok());
            if fits && !changes.contains(&change) {
                changes.push(change);
            }
        }
    }
    Ok(changes)
}

/// Predicts the query as if reading the table took no time.
fn bound_ms(table: &Table, model: &WhatIfModel<'_>) -> Result<f64, Failure> {
    let mut set = Changes::default();
    for scan in &table.scans {
        set.add(&format!("operator.{}.time=x0.001", scan.operator), parse_rate)?;
        set.add(&format!("operator.{}.bytes=x0.001", scan.operator), parse_rate)?;
    }
    // Scans that share a stage have no bytes of their own; nothing is advised about them.
    Ok(model.predict(&set).map_or(f64::INFINITY, |whatif| whatif.prediction.duration_ms))
}

/// Row groups, by number, with their files.
type Groups<'t> = Vec<(&'t TableFile, usize)>;

/// Returns the row groups that the filter of a scan leaves of the files as they are, and the rows of their pages.
fn kept<'t>(table: &'t Table, scan: &PlannedScan) -> Result<(Groups<'t>, u64), Failure> {
    let (mut groups, mut all) = (Vec::new(), 0);
    for file in &table.files {
        for (group, rows) in scan.kept(&file.metadata)?.into_iter().enumerate().filter(|(_, rows)| *rows > 0)
        {
            groups.push((file, group));
            all += rows;
        }
    }
    Ok((groups, all))
}

/// Returns true if a scan decoded fewer rows than its filter explains.
fn pruned_by_keys(table: &Table, scan: &PlannedScan, trace: &Trace) -> bool {
    let recorded = operator(trace, scan.operator).and_then(|operator| operator.rows);
    let kept = kept(table, scan).ok();
    recorded.zip(kept).is_none_or(|(rows, (_, kept))| (rows as f64) < kept as f64 * 0.98)
}

fn operator(trace: &Trace, number: u32) -> Option<&Operator> {
    trace.operators.iter().find(|operator| operator.operator == number)
}

/// Measures and predicts one change; `None` if it does not help for certain.
fn one(
    table: &Table,
    change: &Change,
    trace: &Trace,
    model: &WhatIfModel<'_>,
) -> Result<Option<Advised>, Failure> {
    let layout = table.present.with(change);
    let mut scans = Vec::new();
    for scan in &table.scans {
        match scanned(table, scan, &layout, trace)? {
            Some(scanned) => scans.push(scanned),
            None => return Ok(None),
        }
    }
    let set = settings(&scans, 0.0)?;
    // Tables that share a stage cannot be predicted.
    let Ok(whatif) = model.predict(&set) else { return Ok(None) };
    let worse = model.predict(&settings(&scans, 1.0)?)?.prediction.duration_ms;
    let prediction = whatif.prediction;
    let uncertainty = (worse / prediction.duration_ms).ln().abs();
    let prediction = prediction.widened(uncertainty);
    let measured_ms = model.baseline().measured_ms;
    let helps =
        prediction.high_ms < measured_ms && prediction.duration_ms < measured_ms * (1.0 - LEAST_SAVING);
    let change = TableChange { table: table.name.clone(), change: change.clone() };
    Ok(helps.then(|| Advised {
        title: title(&change, table, &scans),
        evidence: evidence(&scans),
        change: command(&change, table),
        id: change.to_string(),
        set,
        prediction,
    }))
}

/// Returns the settings of a change, with factors that are `errors` times their uncertainty larger.
fn settings(scans: &[Scanned<'_>], errors: f64) -> Result<Changes, Failure> {
    let mut set = Changes::default();
    for scan in scans {
        for (operator, factor) in &scan.operators {
            let factor = factor * (1.0 + errors * scan.error.0);
            set.add(&format!("operator.{}.time=x{:.3}", operator.operator, factor.max(0.001)), parse_rate)?;
        }
        let bytes = scan.bytes * (1.0 + errors * scan.error.1);
        set.add(&format!("operator.{}.bytes=x{:.3}", scan.scan, bytes.max(0.001)), parse_rate)?;
        if let Some(multitasks) = scan.multitasks {
            set.add(&format!("operator.{}.multitasks={multitasks}", scan.scan), parse_rate)?;
        }
    }
    Ok(set)
}

/// Measures a layout on a sample of the columns of a scan.
fn scanned<'a>(
    table: &Table,
    scan: &PlannedScan,
    layout: &Layout,
    trace: &'a Trace,
) -> Result<Option<Scanned<'a>>, Failure> {
    let Some(own) = operator(trace, scan.operator) else { return Ok(None) };
    let with_order = |columns: &[String]| -> Vec<String> {
        let missing = layout.sort.iter().filter(|column| !columns.contains(column));
        columns.iter().chain(missing).cloned().collect()
    };
    let columns = with_order(&scan.columns);
    if scan.columns.is_empty() {
        return Ok(None);
    }
    let schema = Some(&scan.schema);
    let (groups, before) = kept(table, scan)?;
    let sample = Sample::read(&groups, &columns, schema, Limits::default())?;
    if sample.rows == 0 {
        return Ok(None);
    }
    let effect = match effect(&sample, layout) {
        // The values do not have the narrower type.
        Err(LayoutError::Type(_)) => return Ok(None),
        effect => effect?,
    };
    let Some(effect) = effect else { return Ok(None) };
    // Rows that are decoded, and those of the row groups that have them.
    let (mut after, mut touched, mut partial) = (before, before, None);
    let mut error = (effect.spread.hypot(SAMPLE_ERROR), BYTES_ERROR);
    let filtered = with_order(&scan.filter_columns);
    if let (Some(column), Some(_)) = (&layout.sort, &scan.filter) {
        let groups = TableFile::row_groups(&table.files);
        let sample = Sample::read(&groups, &filtered, schema, FILTER_LIMITS)?;
        if sample.is_sorted_by(column)? {
            return Ok(None);
        }
        let miniature = sample.miniature(layout)?;
        let rows = scan.kept(&miniature)?;
        after = scaled(rows.iter().sum(), &sample);
        touched = scaled(touched_rows(&rows, &miniature), &sample);
        let whole = |group: usize| rows[group] as i64 == miniature.row_group(group).num_rows();
        let groups: Vec<usize> = (0..rows.len()).filter(|group| rows[*group] > 0).collect();
        // A row group that is decoded in part is not divided among the cores.
        partial = (!groups.iter().any(|group| whole(*group))).then_some(groups.len().max(1) as u64);
        error = (error.0.hypot(ORDER_ERROR), error.1.hypot(ORDER_ERROR));
    } else if scan.filter.is_some() {
        // Other row groups, and a page index that the files may lack, prune differently. The filter has the present types.
        let layout = &Layout { types: Vec::new(), ..layout.clone() };
        let sample = Sample::read(&groups, &filtered, schema, FILTER_LIMITS)?;
        let footer = sample.footer(layout)?;
        let rows = scan.kept(&footer)?;
        after = scaled(rows.iter().sum(), &sample);
        touched = scaled(touched_rows(&rows, &footer), &sample);
    }
    let share = |rows: u64| if before > 0 { rows as f64 / before as f64 } else { 1.0 };
    let fewer = share(after);
    let decoded = effect.decoded(fewer, share(touched));
    let time = effect.time * decoded;
    let bytes = effect.bytes * decoded;
    let mut operators = vec![(own, time)];
    let of_stage = || trace.operators.iter().filter(|operator| operator.stage == own.stage);
    operators.extend(of_stage().filter(|operator| operator.name == "Input").map(|copy| (copy, bytes)));
    // The operators up to the first filter have as many rows as the scan.
    let mut below = own;
    while let Some(above) = of_stage().find(|operator| operator.inputs == [below.operator]) {
        let (rows_in, rows_out) = (below.rows.unwrap_or(0) as f64, above.rows.unwrap_or(0) as f64);
        match above.name.as_str() {
            // A filter evaluates every row and copies those that it keeps.
            "Filter" if rows_in > 0.0 => {
                operators.push((above, (fewer * rows_in + rows_out) / (rows_in + rows_out)));
                break;
            }
            "KeyFilter" | "Projection" | "Cooperative" => operators.push((above, fewer)),
            _ => break,
        }
        below = above;
    }
    let there = trace.multitasks.iter().filter(|multitask| multitask.stage == own.stage).count() as u64;
    let multitasks = match layout.sort {
        Some(_) => partial.filter(|groups| *groups < there),
        // With a page index, which all files get, row groups are divided among the cores.
        None if !table.is_indexed() && (there as f64) < threads(trace) => {
            let most = (threads(trace) * MULTITASKS_PER_THREAD) as u64;
            Some((after / PAGE_ROWS).clamp(1, most)).filter(|divided| *divided > there)
        }
        None => None,
    };
    let sampled = sample.rows;
    Ok(Some(Scanned {
        operators,
        scan: scan.operator,
        bytes,
        multitasks,
        error,
        rows: (before, after),
        effect,
        sampled,
    }))
}

/// Returns the rows of the row groups of which some rows are kept.
fn touched_rows(kept: &[u64], of: &ParquetMetaData) -> u64 {
    let touched = of.row_groups().iter().zip(kept).filter(|(_, kept)| **kept > 0);
    touched.map(|(group, _)| group.num_rows().max(0) as u64).sum()
}

/// Returns as many rows of a table as there are of its sample.
fn scaled(rows: u64, sample: &Sample) -> u64 {
    (rows as f64 * sample.of_rows as f64 / sample.rows.max(1) as f64) as u64
}

/// Returns the number of compute threads.
fn threads(trace: &Trace) -> f64 {
    let cores = trace.resources.iter().filter(|resource| resource.kind == kind::CPU);
    cores.filter_map(|cores| cores.concurrency).map(f64::from).sum::<f64>().max(1.0)
}

fn title(change: &TableChange, table: &Table, scans: &[Scanned<'_>]) -> String {
    let name = &change.table;
    match &change.change {
        Change::Codec(Codec::None) => format!("store {name} without compression"),
        Change::Codec(codec) => format!("compress {name} with {}", codec.name()),
        Change::Dictionary => format!("store {name} with dictionaries where text repeats"),
        Change::Type(column, Narrow::Date) => format!("store {column} of {name} as dates instead of text"),
        Change::Type(column, Narrow::Integer) => {
            format!(
                "store {column} of {name} as whole numbers instead of decimals, without digits after the point"
            )
        }
        Change::RowGroups(rows) => format!("store {name} in row groups of {} rows", grouped(*rows as u64)),
        Change::Sort(column) => {
            let share = |rows: u64| rows as f64 / (table.rows().max(1) * scans.len() as u64) as f64 * 100.0;
            let (before, after) =
                scans.iter().fold((0, 0), |(b, a), scan| (b + scan.rows.0, a + scan.rows.1));
            format!(
                "sort {name} by {column}: {:.1} % of its rows are then decoded, now {:.1} %",
                share(after),
                share(before)
            )
        }
    }
}

fn evidence(scans: &[Scanned<'_>]) -> String {
    let of = |scan: &Scanned<'_>| {
        format!(
            "decoding {} sampled rows takes {:.2} times the core time and {:.2} times the bytes",
            grouped(scan.sampled),
            scan.effect.time,
            scan.effect.bytes
        )
    };
    scans.iter().map(of).collect::<Vec<_>>().join("; ")
}

fn command(change: &TableChange, table: &Table) -> String {
    let folder = match &change.change {
        Change::Codec(codec) => format!("{}-{}", change.table, codec.name()),
        Change::Sort(column) => format!("{}-by-{column}", change.table),
        Change::RowGroups(rows) => format!("{}-rows-{rows}", change.table),
        Change::Dictionary => format!("{}-dictionary", change.table),
        Change::Type(column, narrow) => format!("{}-{column}-{}", change.table, narrow.name()),
    };
    let place = table.place.to_string_lossy();
    format!(
        "pellucid rewrite {} --like {} -o {}",
        quoted(&place),
        quoted(&change.to_string()),
        quoted(&folder)
    )
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests;
