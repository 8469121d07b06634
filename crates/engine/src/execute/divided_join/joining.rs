//! The join of a multitask: rows of the probe side that are looked up in tables of the build side, batch by batch.

use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt32Array, new_null_array};
use datafusion::arrow::compute::{BatchCoalescer, filter_record_batch, not, take};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::record_batch::RecordBatchOptions;
use datafusion::common::cast::as_boolean_array;
use datafusion::common::{JoinSide, JoinType, NullEquality, Result, internal_datafusion_err};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, Gauge};
use futures::future::OptionFuture;
use futures::{Stream, StreamExt};

use crate::execute::compact::interleaved;
use crate::execute::divided_join::table::{END, Equality, KeyExprs, Keys, Table};
use crate::execute::exchange::{BATCH_ROWS, coalescer};
use crate::plan::cut::Node;

/// The state that the multitasks of a join share.
pub(super) struct Shared {
    pub build: Node,
    /// Columns of the probe side.
    pub probe: SchemaRef,
    pub join_type: JoinType,
    pub nulls: NullEquality,
    pub build_keys: KeyExprs,
    pub probe_keys: KeyExprs,
    pub filter: Option<JoinFilter>,
    pub schema: SchemaRef,
    /// The origin of each column of the output.
    pub columns: Vec<ColumnIndex>,
    /// Maximum number of rows of each multitask.
    pub fetch: Option<usize>,
    /// By partition of the build side.
    pub tables: Vec<OnceLock<Arc<Table>>>,
    /// True if the probe side is divided like the build side.
    pub paired: bool,
    pub metrics: ExecutionPlanMetricsSet,
    pub table_bytes: Gauge,
}

impl Shared {
    /// Returns all tables.
    pub fn tables(&self) -> Result<Vec<Arc<Table>>> {
        let tables = self.tables.iter().map(|table| table.get().cloned()).collect::<Option<_>>();
        tables.ok_or_else(|| internal_datafusion_err!("a join started before its tables were built"))
    }
}

/// Returns true for joins that return rows of the build side after all rows of the probe side.
pub(super) fn emits_build_side(join_type: JoinType) -> bool {
    use JoinType::{Full, Left, LeftAnti, LeftMark, LeftSemi};
    matches!(join_type, Left | Full | LeftSemi | LeftAnti | LeftMark)
}

/// Returns true for joins that return pairs of rows.
fn emits_pairs(join_type: JoinType) -> bool {
    matches!(join_type, JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full)
}

/// Returns true for joins that return rows of the probe side by whether they have a partner.
fn emits_probe_side(join_type: JoinType) -> bool {
    use JoinType::{Full, Right, RightAnti, RightMark, RightSemi};
    matches!(join_type, Right | Full | RightSemi | RightAnti | RightMark)
}

/// The join of a multitask.
pub(super) struct Joining {
    pub shared: Arc<Shared>,
    /// `None` for the last partition.
    pub probe: Option<SendableRecordBatchStream>,
    pub tables: Vec<Arc<Table>>,
    pub step: Step,
    pub output: Output,
}

/// The next step of a multitask.
pub(super) enum Step {
    /// Ask for rows of the probe side.
    Ask,
    Probe(Box<Probed>),
    /// Return rows of the build side, of this table from this row on.
    Rest(usize, usize),
    End,
}

impl Joining {
    pub fn batches(self) -> impl Stream<Item = Result<RecordBatch>> {
        futures::stream::try_unfold(self, |mut joining| async move {
            Ok(joining.next().await?.map(|batch| (batch, joining)))
        })
    }

    /// Returns the next batch; `None` at the end.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let ended = matches!(self.step, Step::End) || self.output.left == 0;
            if let Some(batch) = self.output.next(ended)? {
                return Ok(Some(batch));
            }
            if ended {
                return Ok(None);
            }
            self.step = match std::mem::replace(&mut self.step, Step::End) {
                Step::Ask => {
                    let next = OptionFuture::from(self.probe.as_mut().map(StreamExt::next)).await.flatten();
                    match next.transpose()? {
                        Some(batch) => Step::Probe(Box::new(Probed::new(&self.shared, &self.tables, batch)?)),
                        None if self.shared.paired && emits_build_side(self.shared.join_type) => {
                            Step::Rest(0, 0)
                        }
                        None => Step::End,
                    }
                }
                Step::Probe(mut probed) => {
                    if probed.join(&self.shared, &self.tables, &mut self.output)? {
                        Step::Probe(probed)
                    } else {
                        Step::Ask
                    }
                }
                Step::Rest(table, row) => self.rest(table, row)?,
                Step::End => Step::End,
            };
        }
    }

    /// Adds rows of the build side to the output, and returns the next step.
    fn rest(&mut self, index: usize, from: usize) -> Result<Step> {
        let Some(table) = self.tables.get(index) else { return Ok(Step::End) };
        let to = (from + BATCH_ROWS).min(table.rows);
        let join_type = self.shared.join_type;
        let wanted = |row: &usize| match join_type {
            JoinType::LeftMark => true,
            JoinType::LeftSemi => table.is_visited(*row),
            _ => !table.is_visited(*row),
        };
        let rows: Vec<(usize, usize)> = (from..to).filter(wanted).map(|row| (0, row)).collect();
        if !rows.is_empty() {
            let of_table = |column| Ok(interleaved(&[table.column(column)], &rows)?);
            let none = |column| Ok(nulls(&self.shared.probe, column, rows.len()));
            let mark = || -> ArrayRef {
                let visited = |&(_, row): &(usize, usize)| Some(table.is_visited(row));
                Arc::new(rows.iter().map(visited).collect::<BooleanArray>())
            };
            let (schema, columns) = (&self.shared.schema, &self.shared.columns);
            self.output.push(batch(schema, columns, rows.len(), of_table, none, mark)?)?;
        }
        Ok(if to < table.rows { Step::Rest(index, to) } else { Step::Rest(index + 1, 0) })
    }
}

/// The output of a multitask, as batches of about [`BATCH_ROWS`] rows.
pub(super) struct Output {
    /// `None` for rows without columns, which it cannot merge.
    coalescer: Option<BatchCoalescer>,
    /// Rows without columns.
    counted: usize,
    /// Rows that may still be added.
    left: usize,
    schema: SchemaRef,
}

impl Output {
    pub fn new(shared: &Shared) -> Self {
        let schema = Arc::clone(&shared.schema);
        let coalescer = (!schema.fields().is_empty()).then(|| coalescer(&schema));
        Self { coalescer, counted: 0, left: shared.fetch.unwrap_or(usize::MAX), schema }
    }

    fn push(&mut self, batch: RecordBatch) -> Result<()> {
        let rows = batch.num_rows().min(self.left);
        self.left -= rows;
        match &mut self.coalescer {
            Some(coalescer) => coalescer.push_batch(batch.slice(0, rows))?,
            None => self.counted += rows,
        }
        Ok(())
    }

    /// Returns the next full batch, or any batch once the rows have `ended`.
    fn next(&mut self, ended: bool) -> Result<Option<RecordBatch>> {
        let Some(coalescer) = &mut self.coalescer else {
            let rows = std::mem::take(&mut self.counted);
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let batch = || RecordBatch::try_new_with_options(Arc::clone(&self.schema), Vec::new(), &options);
            return if rows > 0 { Ok(Some(batch()?)) } else { Ok(None) };
        };
        if ended && !coalescer.has_completed_batch() {
            coalescer.finish_buffered_batch()?;
        }
        Ok(coalescer.next_completed_batch())
    }
}

/// Pairs of rows, in the order of the probe side.
#[derive(Default)]
struct Pairs {
    /// Table and row.
    build: Vec<(usize, usize)>,
    probe: Vec<u32>,
}

/// A batch of the probe side.
pub(super) struct Probed {
    batch: RecordBatch,
    keys: Keys,
    /// The table of each row.
    parts: Vec<u32>,
    /// The next row to look at in each row's table.
    chains: Vec<u32>,
    /// Rows before it have no more partners.
    row: usize,
    /// Rows that have a partner; empty if no one asks.
    matched: Vec<bool>,
}

impl Probed {
    fn new(shared: &Shared, tables: &[Arc<Table>], batch: RecordBatch) -> Result<Self> {
        let keys = Keys::of(&shared.probe_keys, &batch, shared.nulls)?;
        let parts: Vec<u32> = match tables.len() as u64 {
            count if count.is_power_of_two() => {
                keys.hashes.iter().map(|hash| (hash & (count - 1)) as u32).collect()
            }
            count => keys.hashes.iter().map(|hash| (hash % count) as u32).collect(),
        };
        // All at once, so that the memory accesses overlap.
        let first = |(row, (hash, part)): (usize, (&u64, &u32))| match keys.may_match(row) {
            true => tables[*part as usize].first(*hash),
            false => END,
        };
        let chains = keys.hashes.iter().zip(&parts).enumerate().map(first).collect();
        let matched = if emits_probe_side(shared.join_type) { batch.num_rows() } else { 0 };
        Ok(Self { batch, keys, parts, chains, row: 0, matched: vec![false; matched] })
    }

    /// Joins some rows. Returns true if there are more.
    fn join(&mut self, shared: &Shared, tables: &[Arc<Table>], output: &mut Output) -> Result<bool> {
        let mut pairs = self.pairs(shared, tables)?;
        if let Some(filter) = &shared.filter {
            pairs = self.filtered(filter, tables, pairs)?;
        }
        if emits_build_side(shared.join_type) {
            pairs.build.iter().for_each(|&(table, row)| tables[table].visit(row));
        }
        if !self.matched.is_empty() {
            pairs.probe.iter().for_each(|&row| self.matched[row as usize] = true);
        }
        if emits_pairs(shared.join_type) && !pairs.probe.is_empty() {
            let (build, probe) = (self.build_columns(tables, &pairs), self.probe_columns(&pairs));
            output.push(batch(&shared.schema, &shared.columns, pairs.probe.len(), build, probe, no_mark)?)?;
        }
        let more = self.row < self.batch.num_rows();
        if !more && !self.matched.is_empty() {
            output.push(self.by_match(shared)?)?;
        }
        Ok(more)
    }

    /// Returns the next pairs of rows with equal keys.
    fn pairs(&mut self, shared: &Shared, tables: &[Arc<Table>]) -> Result<Pairs> {
        use JoinType::{RightAnti, RightMark, RightSemi};
        let one = shared.filter.is_none() && matches!(shared.join_type, RightAnti | RightMark | RightSemi);
        let mut pairs = Pairs::default();
        let (parts, chains, row) = (&self.parts, &mut self.chains, &mut self.row);
        match Equality::new(tables, &self.keys, shared.nulls)? {
            Equality::Narrow(of_tables, keys) => {
                let equal = |part: usize, at: usize, row: usize| of_tables[part][at] == keys[row];
                find(tables, parts, chains, row, one, &mut pairs, equal);
            }
            Equality::Wide(of_tables, keys) => {
                let equal = |part: usize, at: usize, row: usize| of_tables[part][at] == keys[row];
                find(tables, parts, chains, row, one, &mut pairs, equal);
            }
            Equality::Any(of_tables, hashes) => {
                let equal = |part: usize, at: usize, row: usize| {
                    let (of_table, keys) = &of_tables[part];
                    of_table[at] == hashes[row] && keys.is_equal(at, row)
                };
                find(tables, parts, chains, row, one, &mut pairs, equal);
            }
        }
        Ok(pairs)
    }

    /// Returns the pairs that meet a condition.
    fn filtered(&self, filter: &JoinFilter, tables: &[Arc<Table>], mut pairs: Pairs) -> Result<Pairs> {
        let (build, probe) = (self.build_columns(tables, &pairs), self.probe_columns(&pairs));
        let rows = pairs.probe.len();
        let columns = batch(filter.schema(), filter.column_indices(), rows, build, probe, no_mark)?;
        let kept = filter.expression().evaluate(&columns)?.into_array(rows)?;
        let kept = as_boolean_array(&kept)?;
        let is_kept = |at: usize| kept.is_valid(at) && kept.value(at);
        let mut at = 0..;
        pairs.build.retain(|_| at.next().is_some_and(is_kept));
        let mut at = 0..;
        pairs.probe.retain(|_| at.next().is_some_and(is_kept));
        Ok(pairs)
    }

    fn build_columns<'a>(
        &self,
        tables: &'a [Arc<Table>],
        pairs: &'a Pairs,
    ) -> impl Fn(usize) -> Result<ArrayRef> + use<'a> {
        move |column| {
            let of_tables: Vec<_> = tables.iter().map(|table| table.column(column)).collect();
            Ok(interleaved(&of_tables, &pairs.build)?)
        }
    }

    fn probe_columns(&self, pairs: &Pairs) -> impl Fn(usize) -> Result<ArrayRef> + use<> {
        let batch = self.batch.clone();
        // Often each row has one partner.
        let all =
            pairs.probe.len() == batch.num_rows() && pairs.probe.iter().zip(0..).all(|(row, at)| *row == at);
        let indices = (!all).then(|| UInt32Array::from(pairs.probe.clone()));
        move |column| {
            let column = batch.column(column);
            Ok(match &indices {
                Some(indices) => take(column, indices, None)?,
                None => Arc::clone(column),
            })
        }
    }

    /// Returns the rows of the batch that the join keeps by whether they have a partner.
    fn by_match(&self, shared: &Shared) -> Result<RecordBatch> {
        let matched = BooleanArray::from(self.matched.clone());
        let kept = match shared.join_type {
            JoinType::RightMark => self.batch.clone(),
            JoinType::RightSemi => filter_record_batch(&self.batch, &matched)?,
            _ => filter_record_batch(&self.batch, &not(&matched)?)?,
        };
        let rows = kept.num_rows();
        let build = |column| Ok(nulls(&shared.build.schema(), column, rows));
        let probe = |column: usize| Ok(Arc::clone(kept.column(column)));
        batch(&shared.schema, &shared.columns, rows, build, probe, || Arc::new(matched.clone()))
    }
}

/// Adds pairs until there are enough or all rows have been looked up.
fn find(
    tables: &[Arc<Table>],
    parts: &[u32],
    chains: &mut [u32],
    row: &mut usize,
    one: bool,
    pairs: &mut Pairs,
    equal: impl Fn(usize, usize, usize) -> bool,
) {
    while *row < chains.len() && pairs.probe.len() < BATCH_ROWS {
        let part = parts[*row] as usize;
        let mut at = chains[*row];
        while at != END && pairs.probe.len() < BATCH_ROWS {
            let is_equal = equal(part, at as usize, *row);
            if is_equal {
                pairs.build.push((part, at as usize));
                pairs.probe.push(*row as u32);
            }
            at = if is_equal && one { END } else { tables[part].after(at) };
        }
        chains[*row] = at;
        *row += usize::from(at == END);
    }
}

/// Returns a batch of `rows` rows, with columns of either side, and the mark of a mark join.
fn batch(
    schema: &SchemaRef,
    columns: &[ColumnIndex],
    rows: usize,
    build: impl Fn(usize) -> Result<ArrayRef>,
    probe: impl Fn(usize) -> Result<ArrayRef>,
    mark: impl Fn() -> ArrayRef,
) -> Result<RecordBatch> {
    let column = |column: &ColumnIndex| match column.side {
        JoinSide::Left => build(column.index),
        JoinSide::Right => probe(column.index),
        JoinSide::None => Ok(mark()),
    };
    let columns = columns.iter().map(column).collect::<Result<_>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

/// Returns `rows` NULLs instead of a column of one side.
fn nulls(schema: &SchemaRef, column: usize, rows: usize) -> ArrayRef {
    new_null_array(schema.field(column).data_type(), rows)
}

/// The mark of rows that have none.
fn no_mark() -> ArrayRef {
    new_null_array(&DataType::Boolean, 0)
}
