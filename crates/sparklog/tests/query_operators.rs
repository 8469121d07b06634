//! The operators of a query have the metrics of completed stages and of the driver, by its last plan.

use pellucid_sparklog::{Part, read};
use pellucid_trace::{QueryOperator, Trace, Unit};

fn sql(event: &str) -> String {
    format!(r#"{{"Event":"org.apache.spark.sql.execution.ui.SparkListener{event}}}"#)
}

/// Returns a plan whose scan has a metric of tasks and one of the driver.
fn plan(root: &str) -> String {
    let metric = |name: &str, accumulator: u32, of_type: &str| {
        format!(r#"{{"name":"{name}","accumulatorId":{accumulator},"metricType":"{of_type}"}}"#)
    };
    let metrics = [metric("scan time", 1, "timing"), metric("number of files read", 2, "sum")].join(",");
    format!(
        r#"{{"nodeName":"{root}","simpleString":"{root}","metrics":[],"children":[{{"nodeName":"Scan parquet t","simpleString":"FileScan parquet t[a#1]","metrics":[{metrics}],"children":[]}}]}}"#
    )
}

fn trace() -> Trace {
    let stage = |value: &str| {
        format!(
            r#"{{"Event":"SparkListenerStageCompleted","Stage Info":{{"Stage ID":3,"Stage Name":"s","Number of Tasks":1,"Submission Time":1100,"Completion Time":1400,"Accumulables":[{{"ID":1,"Name":"scan time","Value":{value}}},{{"ID":99,"Value":5}}]}}}}"#
        )
    };
    let lines = [
        r#"{"Event":"SparkListenerApplicationStart","App Name":"a","App ID":"a","Timestamp":1000,"User":"u"}"#.to_owned(),
        sql(&format!(r#"SQLExecutionStart","executionId":7,"description":"q","time":1050,"sparkPlanInfo":{}"#, plan("First"))),
        sql(&format!(r#"SQLAdaptiveExecutionUpdate","executionId":7,"sparkPlanInfo":{}"#, plan("Last"))),
        sql(r#"DriverAccumUpdates","executionId":7,"accumUpdates":[[2,12],[2]]"#),
        r#"{"Event":"SparkListenerJobStart","Job ID":0,"Submission Time":1060,"Stage IDs":[3],"Properties":{"spark.sql.execution.id":"7"}}"#.to_owned(),
        stage("\"40\""),
        r#"{"Event":"SparkListenerJobEnd","Job ID":0,"Completion Time":1450,"Job Result":{"Result":"JobSucceeded"}}"#.to_owned(),
        sql(r#"SQLExecutionEnd","executionId":7,"time":1500"#),
        r#"{"Event":"SparkListenerApplicationEnd","Timestamp":1600}"#.to_owned(),
    ];
    read([Part::new("log", lines.join("\n").as_bytes())]).expect("a log")
}

#[test]
fn last_plan_has_the_metrics_of_stages_and_of_the_driver() {
    let trace = trace();
    assert_eq!((trace.check(), &trace.warnings), (Vec::new(), &Vec::new()));
    let names: Vec<&str> = trace.query_operators.iter().map(|operator| operator.name.as_str()).collect();
    assert_eq!(names, ["Scan parquet t", "Last"]);
    let [scan, root]: &[QueryOperator; 2] = trace.query_operators[..].try_into().expect("two");
    let metrics: Vec<_> = scan.metrics.iter().map(|m| (m.name.as_str(), m.unit, m.value)).collect();
    assert_eq!(metrics, [("scan time", Unit::Ns, 40_000_000), ("number of files read", Unit::Count, 12)]);
    assert_eq!(scan.detail.as_deref(), Some("FileScan parquet t[a#1]"));
    assert_eq!((scan.query, scan.stage, root.stage, root.detail.as_deref()), (0, Some(0), Some(0), None));
    assert_eq!(root.inputs, [scan.operator]);
    // The stage is named by its operators, as before.
    assert_eq!(trace.stages[0].name, "Scan parquet t");
}
