//! Reads a log that Spark 4.3 wrote with Pellucid's plugin. The fixture holds four tasks of `pellucid sql
//! --on spark`; the rest of the log and all local paths were removed.

use std::fs::File;
use std::path::Path;

use pellucid_sparklog::{Part, read};
use pellucid_trace::{Blocked, Trace};

fn trace() -> Trace {
    let path = Path::new("tests/fixtures/plugin.zstd");
    let file = File::open(path).expect("the fixture");
    read(vec![Part::new(path.display().to_string(), file)]).expect("an event log")
}

#[test]
fn trace_has_the_waits_of_the_plugin() {
    let trace = trace();
    assert_eq!(trace.check(), Vec::<String>::new());
    let waits: Vec<_> =
        trace.pipelined_tasks.iter().map(|t| (t.blocked_input, t.queue_ns, t.input_bytes)).collect();
    let measured = |ns| Some(Blocked::MeasuredNs(ns));
    // The first task read Parquet bypassing the plugin. The bound is the total wait of its thread.
    assert_eq!(waits[0], (Some(Blocked::AtMostNs(100_318_169)), Some(30_040), Some(7_401)));
    assert_eq!(waits[1], (measured(6_003_503), Some(38_918), Some(438)));
    assert_eq!(waits[2], (measured(19_336_344), Some(35_447), Some(438)));
    assert_eq!(waits[3], (measured(17_986_874), Some(25_238), Some(438)));
}

#[test]
fn trace_has_the_concurrency_of_the_plugin() {
    let changes = trace().concurrency_changes;
    let found: Vec<_> = changes.iter().map(|c| (c.stage, c.concurrency, c.reason.as_deref())).collect();
    assert_eq!(found, (0..4).map(|stage| (stage, 2, Some("fixed"))).collect::<Vec<_>>());
}
