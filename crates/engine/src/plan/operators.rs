//! The operators of a stage, numbered for its trace.
//!
//! Each node of a stage is an operator, and a join with a build side is two: what it does before it first asks for a row
//! of the probe side, and the rest. Two more stand for work outside of the plan: holding the input (its copy from the page
//! cache, and freeing it), and the output. Operators are listed after their inputs.

use std::collections::HashMap;

use datafusion::datasource::physical_plan::FileSource;
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_expr::split_conjunction;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{DisplayFormatType, ExecutionPlan};
use pellucid_trace::Part;

use crate::plan::cut::{Node, Output, StagePlan, key};
use crate::scan::parquet::ParquetScan;
use crate::scan::text;

/// An operator.
pub(crate) struct Operator {
    pub name: String,
    pub detail: Option<String>,
    pub part: Part,
    /// Positions of its inputs in the list.
    pub inputs: Vec<usize>,
    /// The stage whose output it reads.
    pub from: Option<usize>,
    /// True for the build side of a join.
    pub builds: bool,
    /// Rows of output that the planner expected.
    pub planned_rows: Option<u64>,
}

/// The positions of a node's operators in the list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// The operator of the node, or that of a join's probe side.
    pub own: usize,
    /// The operator of a join's build side.
    pub build: Option<usize>,
    /// The operator of the keys that build sides have filled in, above a scan.
    pub keys: Option<usize>,
}

/// The operators of a stage.
pub(crate) struct Operators {
    /// Number of the first one in the job.
    first: usize,
    pub list: Vec<Operator>,
    /// Places by the [`key`] of a node.
    pub places: HashMap<usize, Place>,
    /// Position of the copy of input from the page cache, and of freeing it.
    pub input: usize,
    /// Position of the output.
    pub output: usize,
}

impl Operators {
    /// Lists the operators of every stage, also of those that may not run.
    pub(crate) fn of_stages(plan: &StagePlan) -> Vec<Self> {
        let mut first = 0;
        // One walk of the plan serves all estimates: the context keeps those of nodes below.
        let statistics = StatisticsContext::new();
        let of_stage = |index| {
            let operators = Self::of(plan, index, first, &statistics);
            first += operators.list.len();
            operators
        };
        (0..plan.stage_count()).map(of_stage).collect()
    }

    /// Lists the operators of stage `index` again, since it now reads what another stage has computed.
    pub(crate) fn again(&self, plan: &StagePlan, index: usize) -> Self {
        Self::of(plan, index, self.first, &StatisticsContext::new())
    }

    /// Returns the number of rows that the planner expects of the stage; 0 if it does not know.
    pub(crate) fn planned_rows(&self) -> u64 {
        let inputs = self.list[self.output].inputs.iter();
        inputs.filter_map(|input| self.list[*input].planned_rows).max().unwrap_or(0)
    }

    /// Returns the number of an operator in the job.
    pub(crate) fn number(&self, at: usize) -> u32 {
        (self.first + at) as u32
    }

    /// Returns the position of operator `number` of the job, if it is one of these.
    pub(crate) fn position(&self, number: u32) -> Option<usize> {
        (number as usize).checked_sub(self.first).filter(|at| *at < self.list.len())
    }

    fn of(plan: &StagePlan, index: usize, first: usize, statistics: &StatisticsContext) -> Self {
        let mut lister = Lister { plan, index, statistics, list: Vec::new(), places: HashMap::new() };
        let stage = plan.stage(index);
        let root = lister.node(&stage.root);
        let input = lister.add("Input", None, Part::Decode, Vec::new());
        let name = match &stage.output {
            Output::Divide(_) => "Partition",
            Output::Keep | Output::Gather { .. } | Output::Scalar(..) => "Output",
        };
        let to = match &stage.output {
            Output::Divide(partitioning) => Some(partitioning.to_string()),
            _ => None,
        };
        let output = lister.add(name, to, Part::Encode, vec![root]);
        Self { first, list: lister.list, places: lister.places, input, output }
    }
}

struct Lister<'a> {
    plan: &'a StagePlan,
    index: usize,
    statistics: &'a StatisticsContext,
    list: Vec<Operator>,
    places: HashMap<usize, Place>,
}

impl Lister<'_> {
    fn add(&mut self, name: &str, detail: Option<String>, part: Part, inputs: Vec<usize>) -> usize {
        let (name, from, builds, planned_rows) = (name.to_string(), None, false, None);
        self.list.push(Operator { name, detail, part, inputs, from, builds, planned_rows });
        self.list.len() - 1
    }

    /// Returns the number of rows that the planner expects of a node.
    fn planned_rows(&self, node: &Node) -> Option<u64> {
        let statistics = self.statistics.compute(node.as_ref(), &StatisticsArgs::new()).ok()?;
        statistics.num_rows.get_value().map(|rows| *rows as u64)
    }

    /// Lists a node after its inputs, and returns the position of the operator that has its rows.
    fn node(&mut self, node: &Node) -> usize {
        let whole = self.plan.stage(self.index).whole;
        if let Some(stage) = self.plan.cut(node, self.index) {
            let own = self.add("Exchange", None, Part::Operators, Vec::new());
            self.list[own].from = Some(stage);
            self.list[own].planned_rows = self.planned_rows(node);
            self.places.insert(key(node), Place { own, build: None, keys: None });
            return own;
        }
        if let Some(input) = self.plan.skipped(node).filter(|_| !whole) {
            return self.node(input);
        }
        let inputs: Vec<usize> = node.children().into_iter().map(|child| self.node(child)).collect();
        let (name, mut detail) = (short(node), detail(node));
        let part = match text::file_scan(node) {
            Some(_) => {
                detail = detail.map(|detail| without_pruning(&detail).to_string());
                Part::Decode
            }
            None if whole || !is_split(node) => Part::NotSplit,
            None => Part::Operators,
        };
        let builds =
            node.is::<HashJoinExec>() || node.is::<NestedLoopJoinExec>() || node.is::<CrossJoinExec>();
        let (own, build) = match inputs[..] {
            [left, right] if builds => {
                let build = self.add(&format!("{name} build"), None, part, vec![left]);
                self.list[build].builds = true;
                (self.add(&format!("{name} probe"), detail, part, vec![build, right]), Some(build))
            }
            _ => (self.add(&name, detail, part, inputs), None),
        };
        self.list[own].planned_rows = self.planned_rows(node);
        let keys = filled_by_joins(node).then(|| self.add("KeyFilter", None, Part::Operators, vec![own]));
        self.places.insert(key(node), Place { own, build, keys });
        keys.unwrap_or(own)
    }
}

/// Returns true for a scan that the keys of build sides filter.
fn filled_by_joins(node: &Node) -> bool {
    let filter = ParquetScan::of(node).and_then(|scan| scan.source.filter());
    filter.is_some_and(|filter| {
        split_conjunction(&filter).into_iter().any(|part| part.is::<DynamicFilterPhysicalExpr>())
    })
}

/// Returns true for operators whose work is split into single-resource monotasks.
pub(crate) fn is_split(node: &Node) -> bool {
    const SPLIT: [&str; 28] = [
        "AggregateExec",
        "BoundedWindowAggExec",
        "CoalesceBatchesExec",
        "CoalescePartitionsExec",
        "CooperativeExec",
        "CrossJoinExec",
        "DataSinkExec",
        "DataSourceExec",
        "EmptyExec",
        "FilterExec",
        "GlobalLimitExec",
        "GroupingSetsExec",
        "HashJoinExec",
        "InterleaveExec",
        "LocalLimitExec",
        "NestedLoopJoinExec",
        "PartialSortExec",
        "PartitionedTopKExec",
        "PlaceholderRowExec",
        "ProjectionExec",
        "RepartitionExec",
        "SharedExec",
        "SortExec",
        "SortMergeJoinExec",
        "SortPreservingMergeExec",
        "UnionExec",
        "WindowAggExec",
        "WindowLimitExec",
    ];
    SPLIT.contains(&node.name()) || node.is::<ScalarSubqueryExec>()
}

/// Returns a short name of a node.
pub(crate) fn short(node: &Node) -> String {
    if let Some(scan) = text::file_scan(node) {
        let first = scan.file_groups.iter().flat_map(|g| g.iter()).next();
        let count: usize = scan.file_groups.iter().map(|g| g.len()).sum();
        let file = first.and_then(|f| f.path().filename().map(str::to_string)).unwrap_or_default();
        return match count {
            0 | 1 => format!("Scan {file}"),
            _ => format!("Scan {file} …"),
        };
    }
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        return format!("Aggregate {:?}", aggregate.mode());
    }
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        return format!("HashJoin {}", join.join_type());
    }
    node.name().trim_end_matches("Exec").to_string()
}

/// Returns what a node does, as DataFusion prints it, without its name.
pub(crate) fn detail(node: &Node) -> Option<String> {
    let line = Line(node.as_ref()).to_string();
    // DataFusion's file groups are not how the scan is divided, and their list is long.
    let detail = match text::file_scan(node) {
        Some(_) => line.find("projection=").map(|at| &line[at..]),
        None => line.split_once(": ").map(|(_, detail)| detail),
    };
    detail.map(str::to_string)
}

/// Returns the detail of a scan up to what pruning derives from its predicate, which takes most of its space in a trace.
fn without_pruning(detail: &str) -> &str {
    [", pruning_predicate=", ", dynamic_rg_pruning="]
        .into_iter()
        .fold(detail, |detail, derived| detail.split_once(derived).map_or(detail, |(before, _)| before))
}

/// Displays a node on one line, as DataFusion prints it.
struct Line<'a>(&'a dyn ExecutionPlan);

impl std::fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt_as(DisplayFormatType::Default, f)
    }
}
