//! Fuzz tests with damaged compositions, Spark settings and probe reports. `tests/run fuzz` runs them for longer.

use pellucid_fuzz::{Inputs, fuzz};
use pellucid_model::composition::Composition;
use pellucid_model::composition::rank::{self, Ranking};
use pellucid_model::doctor::{Diagnosis, SparkConfiguration, of_composition, of_spark};
use pellucid_trace::probe::{Commit, FirstByte, Pattern, ReadFrom, ReadRate, Rename, Report, Upload};

fn scenarios() -> Vec<Vec<u8>> {
    ["erasure", "gc-vb", "gc-vs", "gc", "nc", "s3", "swi"]
        .map(|name| std::fs::read(format!("../storage/scenarios/{name}.toml")).unwrap())
        .to_vec()
}

#[test]
fn damaged_composition() {
    let words: [&[u8]; 8] = [
        b"[[data.mediators]]\n",
        b"copies = 4294967295\n",
        b"replication = \"erasure\"\n",
        b"acknowledge = \"quorum\"\n",
        b"parity_fragments = 4294967295\n",
        b"data_fragments = 0\n",
        b"runs = \"elsewhere\"\n",
        b"[[[[[[[[",
    ];
    let inputs = Inputs::text(scenarios(), &words);
    fuzz("damaged_composition", |random| {
        let text = String::from_utf8_lossy(&inputs.damaged(random)).into_owned();
        let Ok(composition) = Composition::parse("x.toml", &text) else { return false };
        let (advice, compositions) = (of_composition(&composition, None), [composition]);
        serde_json::to_string(&Diagnosis::new(advice)).unwrap();
        let ranking = Ranking::of(&compositions);
        rank::text(&compositions, &ranking);
        serde_json::to_string(&ranking).unwrap();
        true
    });
}

#[test]
fn damaged_spark_settings() {
    let settings =
        b"# defaults\nspark.hadoop.fs.defaultFS s3a://bucket/x\nspark.hadoop.fs.s3a.committer.name=magic\n\
        spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version 2\nspark.speculation true\n\
        spark.sql.warehouse.dir: hdfs://name:8020/w\nspark.hadoop.fs.s3a.fast.upload.buffer disk\n"
            .to_vec();
    let words: [&[u8]; 4] =
        [b"spark.hadoop.fs.", b"s3a://", b"\\\n", b"spark.sql.sources.commitProtocolClass "];
    let inputs = Inputs::text(vec![settings], &words);
    fuzz("damaged_spark_settings", |random| {
        let text = String::from_utf8_lossy(&inputs.damaged(random)).into_owned();
        SparkConfiguration::recognizes(&text);
        SparkConfiguration::parse(&text)
            .is_ok_and(|conf| serde_json::to_string(&Diagnosis::new(of_spark(&conf, None))).is_ok())
    });
}

#[test]
fn damaged_probe_report() {
    let intact = serde_json::to_vec(&report()).unwrap();
    let words: [&[u8]; 3] = [b"\"concurrency\":4294967295", b"_ms\":", b"_per_s\":0"];
    let inputs = Inputs::text(vec![intact], &words);
    let scenarios = scenarios();
    let scenario = Composition::parse("x.toml", std::str::from_utf8(&scenarios[0]).unwrap()).unwrap();
    fuzz("damaged_probe_report", |random| {
        let text = String::from_utf8_lossy(&inputs.damaged(random)).into_owned();
        let Ok(report) = Report::parse(&text) else { return false };
        report.text();
        report.service();
        let advice = of_composition(&scenario, Some(&report));
        serde_json::to_string(&Diagnosis::new(advice)).unwrap();
        true
    });
}

/// Returns a report in which everything is measured.
fn report() -> Report {
    let rate = |concurrency, pattern| ReadRate {
        concurrency,
        pattern,
        request_bytes: 8 << 20,
        bytes_per_s: 1.25e8,
        first_byte_ms: FirstByte { median: 1.5, p99: 20.25 },
    };
    Report {
        read_from: ReadFrom::Existing,
        read: [1, 2, 4]
            .into_iter()
            .flat_map(|n| [rate(n, Pattern::Sequential), rate(n, Pattern::Random)])
            .collect(),
        chosen_concurrency: Some(4),
        write_bytes_per_s: Some(9e7),
        small_objects_per_s: Some(120.0),
        list_per_s: Some(200.0),
        rename: Some(Rename { ms: 80.0, is_copy: true, bytes: 8 << 20 }),
        commit: Commit { rename_ms: Some(400.0), multipart_ms: Some(20.0), request_ms: Some(3.0) },
        upload: Some(Upload { bytes: 40 << 20, sent_ms: 300.0, complete_ms: 9.0, complete_small_ms: 4.0 }),
        read_after_write: Some(true),
        ..Report::new("s3://bucket")
    }
}
