//! Every type of record round-trips through a line, a file, and the files of
//! earlier versions.

mod common;

use std::path::Path;

use common::*;
use pellucid_trace::*;
use proptest::prelude::*;

fn back(record: &Record) -> Record {
    let line = serde_json::to_string(record).expect("a line");
    assert!(!line.contains('\n') && !line.contains("null"), "{line}");
    serde_json::from_str(&line).expect(&line)
}

#[test]
fn every_type_and_field_round_trips_and_is_specified() {
    let records = every_kind();
    let mut types = std::collections::BTreeSet::new();
    let mut keys = std::collections::BTreeSet::new();
    for record in &records {
        assert_eq!(&back(record), record);
        let value = serde_json::to_value(record).expect("a value");
        let object = value.as_object().expect("an object");
        let t = object["t"].as_str().expect("a type").to_owned();
        keys.extend(object.keys().map(|key| format!("{t}.{key}")));
        types.insert(t);
    }
    let known = Record::TYPES.map(str::to_owned).into_iter().collect();
    assert_eq!(types, known, "`every_kind` lacks a type, or `TYPES` is outdated");
    // The specification documents every field.
    let specification = include_str!("../../../docs/trace-format.md");
    for key in keys {
        let (t, field) = key.split_once('.').expect("a dot");
        let section = specification.split("\n### `").find(|s| s.starts_with(&format!("{t}`")));
        let section = section.unwrap_or_else(|| panic!("docs/trace-format.md has no {t}"));
        let row = format!("| `{field}` |");
        assert!(field == "t" || section.contains(&row), "docs/trace-format.md: {key}");
    }
}

#[test]
fn unmeasured_fields_are_not_written() {
    let record = Record::PipelinedTask(Box::default());
    let line = serde_json::to_string(&record).expect("a line");
    let minimal = r#"{"t":"pipelined_task","stage":0,"partition":0,"attempt":0,"resource":0,"launched_ns":0,"duration_ns":0}"#;
    assert_eq!(line, minimal);
    assert_eq!(back(&record), record);
}

/// A fixture is written once, by a build of its version, and never changed, since it
/// represents existing traces. `PELLUCID_WRITE_FIXTURE=1` writes the fixture of a new
/// version.
#[test]
fn traces_of_every_version_are_read_unchanged() {
    let folder = Path::new("tests/fixtures");
    let current = folder.join(format!("version-{FORMAT_MAJOR}.{FORMAT_MINOR}.trace"));
    if std::env::var_os("PELLUCID_WRITE_FIXTURE").is_some() && !current.exists() {
        let records = every_kind();
        let bytes: Vec<u8> = blocks(&records, 30).into_iter().flat_map(|b| b.0).collect();
        std::fs::write(&current, bytes).expect("written");
        std::fs::write(current.with_extension("jsonl"), lines(&records)).expect("written");
    }
    assert!(current.exists(), "the current version has no fixture; set PELLUCID_WRITE_FIXTURE=1");
    for entry in std::fs::read_dir(folder).expect("the fixtures") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|ending| ending == "trace") {
            reads_unchanged(&path);
        }
    }
}

/// Compares a fixture with the lines from which it was written, in a file next to it.
fn reads_unchanged(path: &Path) {
    let name = path.display();
    let trace = Trace::read(path).expect("readable");
    assert_eq!(trace.check(), Vec::<String>::new(), "{name}");
    assert_eq!(trace.truncated, None, "{name}");
    assert_eq!(trace.warnings, Vec::<String>::new(), "{name}");
    assert!(!trace.monotasks.is_empty() && !trace.pipelined_tasks.is_empty(), "{name}");
    assert!(!trace.sampled_tasks.is_empty() && !trace.storage_operations.is_empty(), "{name}");
    assert!(!trace.utilization_samples.is_empty(), "{name}");
    let text = std::fs::read_to_string(path.with_extension("jsonl")).expect("its lines");
    let unpacked = zstd::decode_all(&std::fs::read(path).expect("its bytes")[..]).expect("zstdcat");
    assert_eq!(String::from_utf8(unpacked).expect("text"), text, "{name}");
    let record = |line| serde_json::from_str(line).expect(line);
    let records: Vec<Record> = text.lines().map(record).collect();
    assert_eq!(contents(trace), pushed(&records), "{name}");
}

fn time() -> impl Strategy<Value = u64> {
    prop_oneof![0..10_000_000_000_u64, any::<u64>()]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![Just(Outcome::Ok), Just(Outcome::Failed), Just(Outcome::Cancelled)]
}

fn some<T: std::fmt::Debug>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Option<T>> {
    proptest::option::of(value)
}

/// Numbers that are exact in decimal notation.
fn number() -> impl Strategy<Value = f64> {
    (1..1_000_000_000_u32).prop_map(|n| f64::from(n) / 8.0)
}

fn any_monotask() -> impl Strategy<Value = Record> {
    let phase = prop_oneof![
        Just(Phase::Read),
        Just(Phase::Fetch),
        Just(Phase::Compute),
        Just(Phase::Spill),
        Just(Phase::Write)
    ];
    let times = (time(), time(), time());
    let measured = proptest::collection::vec(some(time()), 9);
    (any::<u32>(), any::<u32>(), phase, times, measured, outcome()).prop_map(
        |(multitask, resource, phase, times, measured, outcome)| {
            Record::Monotask(Monotask {
                multitask,
                resource,
                phase,
                queued_ns: times.0,
                queue_ns: times.1,
                service_ns: times.2,
                bytes: measured[0],
                device_bytes: measured[1],
                cached_bytes: measured[2],
                cpu_ns: measured[3],
                decode_ns: measured[4],
                operator_ns: measured[5],
                encode_ns: measured[6],
                not_split_ns: measured[7],
                rows: measured[8],
                outcome,
            })
        },
    )
}

fn any_pipelined_task() -> impl Strategy<Value = Record> {
    let blocked = prop_oneof![time().prop_map(Blocked::MeasuredNs), time().prop_map(Blocked::AtMostNs)];
    let ids = (any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>());
    let measured = proptest::collection::vec(some(time()), 23);
    let blocked = proptest::collection::vec(some(blocked), 9);
    let locality = prop_oneof![Just(Locality::Process), Just(Locality::NoPreference), Just(Locality::Any)];
    let failure = prop_oneof![Just(Failure::Exception), Just(Failure::OutOfMemory), Just(Failure::Other)];
    let failed = (some(failure), some(any::<String>()));
    let rest = (time(), time(), any::<bool>(), outcome(), some(locality), failed);
    (ids, measured, blocked, rest).prop_map(|(ids, measured, blocked, rest)| {
        Record::PipelinedTask(Box::new(PipelinedTask {
            stage: ids.0,
            partition: ids.1,
            attempt: ids.2,
            resource: ids.3,
            launched_ns: rest.0,
            duration_ns: rest.1,
            id: measured[0],
            run_ns: measured[1],
            cpu_ns: measured[2],
            deserialize_cpu_ns: measured[3],
            result_serialize_ns: measured[4],
            getting_result_ns: measured[5],
            scan_ns: measured[6],
            input_bytes: measured[7],
            input_records: measured[8],
            output_bytes: measured[9],
            output_records: measured[10],
            shuffle_remote_bytes: measured[11],
            shuffle_local_bytes: measured[12],
            shuffle_read_records: measured[13],
            shuffle_write_bytes: measured[14],
            shuffle_write_records: measured[15],
            spill_bytes: measured[16],
            memory_spill_bytes: measured[17],
            result_bytes: measured[18],
            peak_memory_bytes: measured[19],
            commit_ns: measured[20],
            decode_ns: measured[21],
            queue_ns: measured[22],
            blocked_network: blocked[0],
            blocked_input: blocked[1],
            blocked_shuffle_read: blocked[2],
            blocked_shuffle_write: blocked[3],
            blocked_spill: blocked[4],
            blocked_output: blocked[5],
            gc: blocked[6],
            scheduler: blocked[7],
            deserialize: blocked[8],
            locality: rest.4,
            speculative: rest.2,
            outcome: rest.3,
            failure: rest.5.0,
            error: rest.5.1,
        }))
    })
}

fn any_other_event() -> impl Strategy<Value = Record> {
    let operation = prop_oneof![
        Just(Operation::Read),
        Just(Operation::Write),
        Just(Operation::List),
        Just(Operation::Head),
        Just(Operation::Rename),
        Just(Operation::Copy),
        Just(Operation::Delete),
        Just(Operation::Commit)
    ];
    let ids = (any::<u32>(), any::<u32>(), any::<u32>());
    let times = (time(), time(), some(time()), some(time()));
    let sampled = (ids, times, number()).prop_map(|(ids, times, weight)| {
        Record::SampledTask(SampledTask {
            stage: ids.0,
            partition: ids.1,
            resource: ids.2,
            iteration: times.2,
            started_ns: times.0,
            service_ns: times.1,
            weight,
            bytes: times.3,
        })
    });
    let times = (time(), time(), some(time()), some(time()));
    let rest = (some(any::<u32>()), some(any::<String>()), outcome());
    let operation = (any::<u32>(), operation, times, rest).prop_map(|(resource, operation, times, rest)| {
        Record::StorageOperation(StorageOperation {
            resource,
            operation,
            started_ns: times.0,
            first_byte_ns: times.2,
            duration_ns: times.1,
            bytes: times.3,
            concurrency: rest.0,
            error: rest.1,
            outcome: rest.2,
        })
    });
    let counters = proptest::collection::vec(some(time()), 4);
    let sample =
        (any::<u32>(), time(), time(), counters).prop_map(|(resource, at_ns, interval_ns, counters)| {
            Record::UtilizationSample(UtilizationSample {
                resource,
                at_ns,
                interval_ns,
                busy_ns: counters[0],
                own_busy_ns: counters[1],
                read_bytes: counters[2],
                write_bytes: counters[3],
            })
        });
    let part =
        prop_oneof![Just(Part::Decode), Just(Part::Operators), Just(Part::Encode), Just(Part::NotSplit)];
    let texts = (any::<String>(), some(any::<String>()));
    let measured = proptest::collection::vec(some(time()), 5);
    let ids = (any::<u32>(), any::<u32>(), proptest::collection::vec(any::<u32>(), 0..3), some(any::<u32>()));
    let column = (any::<String>(), time(), time(), time());
    let column = column.prop_map(|(name, cpu_ns, encoded_bytes, decoded_bytes)| Column {
        name,
        cpu_ns,
        encoded_bytes,
        decoded_bytes,
    });
    let expression = (any::<String>(), time(), time());
    let expression = expression.prop_map(|(text, cpu_ns, rows)| Expression { text, cpu_ns, rows });
    let (columns, expressions) =
        (proptest::collection::vec(column, 0..3), proptest::collection::vec(expression, 0..3));
    let measured = (measured, columns, expressions);
    let operator =
        (ids, texts, part, (time(), time()), measured).prop_map(|(ids, texts, part, times, measured)| {
            Record::Operator(Operator {
                stage: ids.0,
                operator: ids.1,
                name: texts.0,
                detail: texts.1,
                part,
                inputs: ids.2,
                from: ids.3,
                cpu_ns: times.0,
                max_cpu_ns: times.1,
                batches: measured.0[0],
                rows: measured.0[1],
                bytes: measured.0[2],
                planned_rows: measured.0[4],
                peak_bytes: measured.0[3],
                columns: measured.1,
                expressions: measured.2,
            })
        });
    let unit = prop_oneof![Just(Unit::Count), Just(Unit::Bytes), Just(Unit::Ns)];
    let metric = (any::<String>(), unit, time()).prop_map(|(name, unit, value)| Metric { name, unit, value });
    let ids = (any::<u32>(), any::<u32>(), any::<u32>(), some(any::<u32>()), some(any::<u32>()));
    let texts = (any::<String>(), some(any::<String>()));
    let lists = (proptest::collection::vec(any::<u32>(), 0..3), proptest::collection::vec(metric, 0..3));
    let query_operator = (ids, texts, lists).prop_map(|(ids, texts, lists)| {
        Record::QueryOperator(QueryOperator {
            query: ids.0,
            operator: ids.1,
            name: texts.0,
            detail: texts.1,
            inputs: lists.0,
            within: ids.3,
            fragment: ids.2,
            stage: ids.4,
            metrics: lists.1,
        })
    });
    let stack = (any::<u32>(), some(any::<u32>()), time(), any::<String>());
    let stack = stack
        .prop_map(|(stage, operator, count, frames)| Record::Stack(Stack { stage, operator, count, frames }));
    prop_oneof![sampled, operation, sample, operator, query_operator, stack]
}

fn any_entity() -> impl Strategy<Value = Record> {
    let resource = (any::<String>(), any::<String>(), some(number()), some(any::<u32>()));
    let resource = resource.prop_map(|(name, kind, capacity, small)| {
        Record::Resource(Resource {
            name,
            kind,
            machine: small.unwrap_or(0),
            capacity,
            capacity_from: capacity.map(|_| "probed".into()),
            concurrency: small,
            link: small,
            ..Default::default()
        })
    });
    let after = proptest::collection::vec(any::<u32>(), 0..4);
    let texts = proptest::collection::vec(any::<String>(), 0..3);
    let stage = (any::<u32>(), any::<String>(), after, texts, time());
    let stage = stage.prop_map(|(number, name, after, texts, submitted_ns)| {
        Record::Stage(Stage {
            job: number,
            name,
            attempt: number / 2,
            call_site: texts.first().cloned(),
            after,
            submitted_ns,
            not_split: texts,
            ..Default::default()
        })
    });
    let multitask = (any::<u32>(), any::<u32>(), time(), some(time()));
    let multitask = multitask.prop_map(|(stage, partition, admitted_ns, memory_bytes)| {
        Record::Multitask(Multitask { stage, partition, admitted_ns, memory_bytes })
    });
    let ended = (any::<u32>(), time(), outcome(), some(any::<String>()), some(time()));
    let ended = ended.prop_map(|(job, ended_ns, outcome, error, rows)| {
        let held = |bytes| HeldMemory { stage: job, what: "groups".to_string(), bytes };
        let peak = rows.map(|bytes| Peak { bytes, stage: job, held_by: vec![held(bytes)] });
        let spill = rows.map(|write_bytes| Spill { write_bytes, ..Spill::default() });
        Record::JobEnd(JobEnd {
            job,
            ended_ns,
            outcome,
            error,
            rows,
            memory_high_water_bytes: rows,
            peak,
            spill,
        })
    });
    prop_oneof![resource, stage, multitask, ended]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_record_round_trips(
        record in prop_oneof![any_monotask(), any_pipelined_task(), any_other_event(), any_entity()]
    ) {
        prop_assert_eq!(back(&record), record);
    }

    #[test]
    fn packed_tasks_round_trip(tasks in proptest::collection::vec(any_pipelined_task(), 0..50)) {
        prop_assert_eq!(unpacked(&tasks), tasks);
    }

    /// The distribution of records over blocks must not matter.
    #[test]
    fn events_round_trip_through_a_file(
        events in proptest::collection::vec(prop_oneof![any_monotask(), any_pipelined_task(), any_other_event()], 0..40),
        per_block in 1_usize..50,
    ) {
        let mut records = job(1, 1, 1);
        records.push(Record::Query(Query { name: "query".into(), submitted_ns: 1, id: None, root: None }));
        records.extend(events.into_iter().map(to_first));
        let records = whole(records);
        let bytes: Vec<u8> = blocks(&records, per_block).into_iter().flat_map(|b| b.0).collect();
        let trace = Trace::from_reader(&bytes[..]).expect("readable");
        prop_assert_eq!(&trace.truncated, &None);
        trace.check();
        prop_assert_eq!(contents(trace), pushed(&records));
    }
}

/// Packs and unpacks the tasks in `records`.
fn unpacked(records: &[Record]) -> Vec<Record> {
    let task = |record: &Record| match record {
        Record::PipelinedTask(task) => Some(task.as_ref().clone()),
        _ => None,
    };
    let packed: PipelinedTasks = records.iter().filter_map(task).collect();
    packed.iter().map(|task| Record::PipelinedTask(Box::new(task))).collect()
}

/// Changes the indices of a record to the first entities, which are registered.
fn to_first(mut record: Record) -> Record {
    match &mut record {
        Record::Monotask(r) => (r.multitask, r.resource) = (0, 0),
        Record::PipelinedTask(r) => (r.stage, r.resource) = (0, 0),
        Record::SampledTask(r) => (r.stage, r.resource) = (0, 0),
        Record::Operator(r) => (r.stage, r.from) = (0, None),
        Record::QueryOperator(r) => (r.query, r.stage) = (0, None),
        Record::Stack(r) => r.stage = 0,
        Record::StorageOperation(r) => r.resource = 0,
        Record::UtilizationSample(r) => r.resource = 0,
        _ => {}
    }
    record
}
