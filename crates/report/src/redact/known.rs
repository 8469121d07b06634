//! The closed lists of texts that redaction keeps. A text that is missing here is hashed, so an outdated
//! list makes a redacted trace less readable, but reveals nothing.

use std::collections::HashSet;
use std::sync::LazyLock;

use pellucid_trace::kind;

/// Kinds of resources.
pub const KINDS: [&str; 6] =
    [kind::CPU, kind::DISK, kind::NETWORK, kind::STORE, kind::MEMORY_BANDWIDTH, kind::SLOTS];

/// Producers of traces.
pub const PRODUCERS: [&str; 5] = ["engine", "plugin", "sparklog", "iterate", "storage"];

/// Engines of applications.
pub const ENGINES: [&str; 1] = ["Spark"];

/// Sources of capacities.
pub const CAPACITY_SOURCES: [&str; 5] = ["set", "probed", "counted", "quota", "observed"];

/// Kinds of memory.
pub const MEMORY: [&str; 7] = ["build side", "groups", "sort", "window", "exchange", "buffers", "other"];

/// Names of resources other than devices. Executors that run in the driver's process keep their name, which
/// tells analyses that the application is local.
pub const RESOURCES: [&str; 5] = ["cores", "link", "network", "executor driver", "executor <driver>"];

/// Functions in brackets: files of the system, and words of the sampler.
pub const FILES: [&str; 9] = [
    "libc.so.6",
    "libm.so.6",
    "libgcc_s.so.1",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
    "linux-vdso.so.1",
    "lost",
    "truncated",
    "unknown",
];

/// Events whose numbers analyses use.
pub const EVENTS: [&str; 4] = [
    "SparkListenerTaskEnd",
    "SparkListenerStageCompleted",
    "SparkListenerJobStart",
    "SparkListenerSQLExecutionStart",
];

/// Metrics of operators: Spark's own, and the frequent ones of native engines.
pub const METRICS: [&str; 66] = [
    "GPU decode time",
    "buffer time",
    "concat batch time",
    "cumulative time",
    "data sent to Python workers",
    "data returned from Python workers",
    "data size",
    "duration",
    "dynamic partition pruning time",
    "exclusive time",
    "fetch wait time",
    "job commit time",
    "local blocks read",
    "local bytes read",
    "local merged blocks fetched",
    "local merged bytes read",
    "local merged chunks fetched",
    "merged fetch fallback count",
    "corrupt merged block chunks",
    "metadata time",
    "number of coalesced partitions",
    "number of dynamic part",
    "number of files read",
    "number of input batches",
    "number of output batches",
    "number of output rows",
    "number of partitions",
    "number of partitions read",
    "number of skewed partition splits",
    "number of skewed partitions",
    "number of sort fallback tasks",
    "number of total state rows",
    "number of updated state rows",
    "number of written files",
    "op time",
    "output columnar batches",
    "output rows",
    "partition data size",
    "peak memory",
    "records read",
    "remote blocks read",
    "remote bytes read",
    "remote bytes read to disk",
    "remote merged blocks fetched",
    "remote merged bytes read",
    "remote merged chunks fetched",
    "remote merged reqs duration",
    "remote reqs duration",
    "rows scanned",
    "scan time",
    "shuffle bytes written",
    "shuffle records written",
    "shuffle write time",
    "size of files read",
    "sort time",
    "spill size",
    "static number of files read",
    "stage duration",
    "stream time",
    "task commit time",
    "time in aggregation build",
    "time in hash build",
    "time to broadcast",
    "time to build",
    "time to collect",
    "written output",
];

/// Begins the names of events of structured streaming.
pub const STREAMING: &str = "StreamingQueryListener";

/// Labels and warnings, one per line: `#` is an amount, `@` a local device, `(s)` a plural. A sentence that
/// begins with `is` follows the name of a file.
const SENTENCES: &str = "\
page cache bypassed (direct I/O)
disk @ paced at # MB/s inside the engine
network paced at # MB/s inside the engine
# compute thread(s) on # core(s)
tables read into the page cache before the job
tables decoded into memory before the job
skipped line #: invalid JSON at byte # of #
skipped # further line(s): invalid JSON
skipped # line(s): JSON, but not a Spark event
skipped # event(s): no id of a stage or SQL execution
skipped line # of # bytes: longer than # MiB
# job(s) ended without a recorded start
# SQL plan(s) deeper than # operators: read to that depth
# SQL plan(s) of short executions not kept: the plans exceed # MiB
# task(s): input bytes ignored, since Spark does not count vectored reads of local Parquet files
# task(s) with more garbage collection than run time: limited to the run time
# task(s) with a part longer than the whole: limited to the whole
# task(s) with an end before the launch: duration set to zero
# stages precede the application's start: moved to its start
the log contains several applications; they are read as one
the log is compacted: Spark dropped the events of finished jobs from its oldest parts
the log begins with part #: earlier parts are missing
part # exists twice
parts between # and # are missing
the end counts # records, but the trace has #
is truncated within line #
is truncated: its compressed data ends early, after line #
is readable up to line # only: corrupt input";

/// Operators of DataFusion (without `Exec`) and their modes, operators and formats of Spark, and actions and
/// transformations of its RDDs.
const OPERATORS: &str = "\
… Aggregate Analyze Barrier BoundedWindowAgg Buffer CoalesceBatches CoalescePartitions Cooperative CrossJoin
DataSink DataSource DmlResult Empty Exchange Explain Filter GlobalLimit HashJoin Interleave LazyMemory
LocalLimit NestedLoopJoin OutputRequirement PartialSort PartitionedTopK PiecewiseMergeJoin PlaceholderRow
Projection RecursiveQuery Repartition ScalarSubquery Scan Sort SortMergeJoin SortPreservingMerge
StreamingTable SymmetricHashJoin Union Unnest WindowAgg WorkTable

Input KeyFilter Output Partition build probe

ReusedExchange ReusedSubquery ResultStage ShuffleCoalesce ShuffleExchangeSink ShuffleExchangeSource ShuffleMapStage
WholeStageCodegen Agg Execute

Partial PartialReduce Final FinalPartitioned Single SinglePartitioned Inner Left Right Full LeftSemi
RightSemi LeftAnti RightAnti LeftMark RightMark

AQEShuffleRead AdaptiveSparkPlan AggregateInPandas AppendColumns AppendColumnsWithObject AppendData
ArrowAggregatePython ArrowEvalPython ArrowEvalPythonUDTF ArrowWindowPython AtomicCreateTableAsSelect
AtomicReplaceTableAsSelect BatchEvalPython BatchEvalPythonUDTF BatchScan BroadcastExchange BroadcastHashJoin
BroadcastNestedLoopJoin CartesianProduct CoGroup Coalesce CollectLimit CollectMetrics CollectTail
ColumnarExchange ColumnarToRow CreateTableAsSelect CustomShuffleReader DataWritingCommand
DeserializeToObject EmptyRelation EventTimeWatermark ExistingRDD Expand ExternalRDD FileScan
FlatMapCoGroupsInArrow FlatMapCoGroupsInPandas FlatMapGroupsInArrow FlatMapGroupsInPandas
FlatMapGroupsInPandasWithState FlatMapGroupsWithState Generate HashAggregate InMemoryTableScan
InsertIntoHadoopFsRelationCommand Limit LocalTableScan MapElements MapGroups MapInArrow MapInPandas
MapPartitions MergeRows MergingSessions MergingSortWindow MicroBatchScan NativeScan ObjectHashAggregate
OneRowRelation OverwriteByExpression OverwritePartitionsDynamic Project PythonMapInArrow Range ReplaceData
ReplaceTableAsSelect RowToColumnar Sample SerializeFromObject SessionWindowStateStoreRestore
SessionWindowStateStoreSave ShuffleExchange ShuffledHashJoin SortAggregate StateStoreRestore StateStoreSave
StreamingDeduplicate StreamingLocalLimit StreamingGlobalLimit StreamingSymmetricHashJoin Subquery
SubqueryAdaptiveBroadcast SubqueryBroadcast TakeOrderedAndProject TransformWithState UpdatingSessions Window
WindowGroupLimit WindowInPandas WriteDelta WriteFiles WriteToDataSourceV2

avro binaryFile csv delta hudi iceberg jdbc json kafka orc parquet text

aggregate aggregateByKey broadcast cache cartesian checkpoint coalesce cogroup collect collectAsMap
combineByKey count countApprox countApproxDistinct countByKey countByValue distinct filter first flatMap
flatMapValues fold foldByKey foreach foreachPartition fullOuterJoin glom groupBy groupByKey groupWith head
histogram insertInto intersection isEmpty join keyBy keys leftOuterJoin load localCheckpoint lookup makeRDD
map mapPartitions mapPartitionsWithIndex mapToPair mapValues max mean min parallelize partitionBy persist
pipe randomSplit range reduce reduceByKey reduceByKeyLocally repartition repartitionAndSortWithinPartitions
rightOuterJoin runJob sample sampleByKey save saveAsHadoopDataset saveAsHadoopFile saveAsNewAPIHadoopDataset
saveAsNewAPIHadoopFile saveAsObjectFile saveAsSequenceFile saveAsTable saveAsTextFile show sortBy sortByKey
stats stdev subtract subtractByKey sum take takeAsList takeOrdered takeSample textFile toLocalIterator
toPandas top treeAggregate treeReduce union values variance zip zipPartitions zipWithIndex zipWithUniqueId";

/// Returns whether a word names an operator, one of its modes, a format, or is its number (`(2)`). Native engines for Spark add a
/// prefix or suffix to Spark's names.
pub fn is_operator(word: &str) -> bool {
    static WORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| OPERATORS.split_whitespace().collect());
    if word
        .strip_prefix('(')
        .and_then(|word| word.strip_suffix(')'))
        .is_some_and(|n| n.len() <= 4 && digits(n))
    {
        return true;
    }
    let engines = ["Comet", "Gpu", "Photon"];
    let ends = ["ExecTransformer", "Transformer", "Exec"];
    let word = engines.iter().find_map(|engine| word.strip_prefix(engine)).unwrap_or(word);
    let word = ends.iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word);
    WORDS.contains(word)
}

/// Returns whether a text is one of the known sentences.
pub fn is_sentence(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    SENTENCES.lines().any(|sentence| {
        let known = sentence.split(' ');
        known.clone().count() == words.len() && known.zip(&words).all(|(known, word)| is_word(known, word))
    })
}

/// Returns whether a word matches one of a sentence.
fn is_word(known: &str, word: &str) -> bool {
    let value =
        |(before, after): (&str, &str)| word.strip_prefix(before).and_then(|word| word.strip_suffix(after));
    if let Some(around) = known.split_once('#') {
        return value(around).is_some_and(is_amount);
    }
    if let Some(around) = known.split_once('@') {
        return value(around).is_some_and(is_device);
    }
    known.replace("(s)", "") == word || known.replace("(s)", "s") == word
}

/// Returns whether a text is a number with at most 15 characters (`1,234`, `1.5`).
fn is_amount(text: &str) -> bool {
    text.len() <= 15
        && text.bytes().all(|c| c.is_ascii_digit() || c == b',' || c == b'.')
        && text.replace(',', "").parse::<f64>().is_ok()
}

/// Returns whether a text is the kernel's name of a disk or a link (`vda1`, `nvme0n1`, `eth0`).
pub fn is_device(name: &str) -> bool {
    let letter =
        ["sd", "vd", "xvd", "hd"].iter().find_map(|prefix| name.strip_prefix(prefix)).is_some_and(|rest| {
            let partition = rest.trim_start_matches(|c: char| c.is_ascii_lowercase());
            rest.len() == partition.len() + 1 && partition.len() <= 3 && digits(partition)
        });
    let numbered =
        ["nvme", "mmcblk", "md", "dm-", "loop", "disk", "eth", "ens", "eno", "enp", "en", "wlan", "bond"];
    let number = numbered.iter().filter_map(|prefix| name.strip_prefix(prefix)).any(|rest| {
        rest.len() <= 8
            && rest.starts_with(|c: char| c.is_ascii_digit())
            && rest.split(['n', 'p', 's', 'f']).all(|number| !number.is_empty() && digits(number))
    });
    name == "lo" || letter || number
}

/// Returns whether a text consists of digits.
pub fn digits(text: &str) -> bool {
    text.bytes().all(|c| c.is_ascii_digit())
}
