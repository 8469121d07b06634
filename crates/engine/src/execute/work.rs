//! The work of a stage's operators and expressions, summed over its compute monotasks and recorded in its trace.

use std::sync::{Arc, Mutex};

use datafusion::physical_plan::metrics::MetricValue;
use pellucid_trace::{Column, Operator, Part, Record, Recorder, StageIx};

use crate::execute::expressions::{Timer, most_expensive};
use crate::execute::timing::Work;
use crate::plan::cut::Node;
use crate::plan::operators::Operators;
use crate::scan::column_work;
use crate::scan::columns::ColumnsExec;
use crate::sync::lock;

/// The work of one operator.
#[derive(Debug, Clone, Default)]
struct Total {
    sum: Work,
    /// Core time in the monotask in which it took longest.
    max_cpu_ns: u64,
}

/// The work of a stage's operators.
#[derive(Default)]
pub(crate) struct StageWork {
    /// By operator.
    totals: Mutex<Vec<Total>>,
    /// Nodes of operators, which know the memory of their state and the names of their columns.
    pub nodes: Vec<(usize, Node)>,
    /// Timers of operators' expressions.
    pub timers: Vec<(usize, Arc<Timer>)>,
}

impl StageWork {
    /// Adds the work of a monotask, by operator.
    pub(crate) fn add(&self, work: &[Work]) {
        let mut totals = lock(&self.totals);
        if totals.len() < work.len() {
            totals.resize(work.len(), Total::default());
        }
        for (total, work) in totals.iter_mut().zip(work) {
            total.sum.cpu_ns += work.cpu_ns;
            total.sum.batches += work.batches;
            total.sum.rows += work.rows;
            total.sum.bytes += work.bytes;
            column_work::add_all(&mut total.sum.columns, &work.columns);
            total.max_cpu_ns = total.max_cpu_ns.max(work.cpu_ns);
        }
    }

    /// Records the operators of a stage that has ended. `stages` has the indices of the job's stages in the trace.
    pub(crate) fn record(
        &self,
        recorder: &Recorder,
        operators: &Operators,
        stage: StageIx,
        stages: &dyn Fn(usize) -> Option<StageIx>,
    ) {
        let totals = lock(&self.totals);
        for (at, operator) in operators.list.iter().enumerate() {
            let total = totals.get(at).cloned().unwrap_or_default();
            // Stages after an exchange have no input in files.
            if at == operators.input && total.sum.cpu_ns == 0 {
                continue;
            }
            // The build side of a join returns no rows, and the output is not asked for any.
            let emits = operator.part != Part::Encode && at != operators.input && !operator.builds;
            let counted = |count: u64| emits.then_some(count);
            let timers = self.timers.iter().filter(|(of, _)| *of == at).map(|(_, timer)| timer.as_ref());
            let in_columns = total.sum.columns.iter().map(|column| column.ns).sum();
            let (core_ns, limit_ns) = (total.sum.cpu_ns, total.sum.cpu_ns.saturating_sub(in_columns));
            let node = self.nodes.iter().find(|(of, _)| *of == at).map(|(_, node)| node);
            recorder.record(Record::Operator(Operator {
                stage,
                operator: operators.number(at),
                name: operator.name.clone(),
                detail: operator.detail.clone(),
                part: operator.part,
                inputs: operator.inputs.iter().map(|&input| operators.number(input)).collect(),
                from: operator.from.and_then(stages),
                cpu_ns: total.sum.cpu_ns,
                max_cpu_ns: total.max_cpu_ns,
                batches: counted(total.sum.batches),
                rows: counted(total.sum.rows),
                planned_rows: operator.planned_rows,
                bytes: counted(total.sum.bytes).filter(|bytes| *bytes > 0),
                peak_bytes: node.and_then(peak_bytes),
                columns: node.map_or_else(Vec::new, |node| columns(node, &total.sum)),
                expressions: most_expensive(timers, core_ns, limit_ns),
            }));
        }
    }
}

/// Returns the peak memory of a node's state in one partition, if it keeps count.
fn peak_bytes(node: &Node) -> Option<u64> {
    let metrics = node.metrics()?;
    let peaks = metrics.iter().filter_map(|metric| match metric.value() {
        MetricValue::PeakMemoryUsage { gauge, .. } => Some(gauge.value() as u64),
        _ => None,
    });
    peaks.max()
}

/// Returns the columns that a node has decoded, in the order of the table.
fn columns(node: &Node, work: &Work) -> Vec<Column> {
    let Some(scan) = node.downcast_ref::<ColumnsExec>() else { return Vec::new() };
    let columns = scan.names().into_iter().zip(&work.columns).map(|(name, work)| Column {
        name: name.to_string(),
        cpu_ns: work.ns,
        encoded_bytes: work.encoded_bytes,
        decoded_bytes: work.decoded_bytes,
    });
    columns.filter(|column| column.encoded_bytes > 0).collect()
}
