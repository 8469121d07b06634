//! Fuzz tests with damaged blocks and records: the reader must neither panic nor use more memory than a block and
//! the records read. `tests/run fuzz` runs them for longer.

mod common;

use common::*;
use pellucid_fuzz::{Inputs, fuzz, peak_memory};
use pellucid_trace::*;

/// Memory bound: blocks are at most 16 MiB, and a growing buffer doubles its size.
const MAX_BYTES: i64 = 64 << 20;

/// Reads and checks a trace within the memory bound.
fn read(bytes: &[u8]) -> Result<Trace, TraceError> {
    let (took, result) = peak_memory(|| {
        let result = Trace::from_reader(bytes);
        match &result {
            Ok(trace) => drop(trace.check()),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        result
    });
    assert!(took <= MAX_BYTES, "took {took} bytes");
    result
}

#[test]
fn damaged_trace_blocks() {
    let jobs = [whole(job(21, 3, 20)), whole(job(22, 1, 3)), every_kind()];
    let intact = |records: &Vec<Record>| blocks(records, 16).into_iter().flat_map(|block| block.0).collect();
    // A frame's magic number, and a skippable frame of 4 GiB.
    let words: [&[u8]; 3] = [b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18\xff\xff\xff\xff", b"\xff"];
    let inputs = Inputs::binary(jobs.iter().map(intact).collect(), &words);
    let written: Vec<&Record> = jobs.iter().flatten().collect();
    fuzz("damaged_trace_blocks", |random| {
        let Ok(trace) = read(&inputs.damaged(random)) else { return false };
        // Blocks have checksums, so every record read must be one that was written.
        for monotask in &trace.monotasks {
            assert!(written.contains(&&Record::Monotask(*monotask)), "{monotask:?}");
        }
        trace.truncated.is_none()
    });
}

#[test]
fn damaged_trace_records() {
    let intact = [every_kind(), whole(job(23, 2, 3))].map(|records| lines(&records).into_bytes());
    let words: [&[u8]; 6] = [
        b"{\"t\":",
        b"\"after\":[4294967295],",
        b"\"t\":\"end\",",
        b"\\u0000",
        b"\"resource\":",
        b"_ns\":18446744073709551615,",
    ];
    let inputs = Inputs::text(intact.to_vec(), &words);
    fuzz("damaged_trace_records", |random| read(&frame(&inputs.damaged(random))).is_ok());
}

#[test]
fn small_trace_that_unpacks_to_millions_of_monotasks_is_refused() {
    let records = whole(job(5, 1, 1));
    let monotask = records.iter().find(|record| matches!(record, Record::Monotask(_))).expect("a monotask");
    let before_end = &records[..records.len() - 1];
    let block = frame(lines(std::slice::from_ref(monotask)).repeat(50_000).as_bytes());
    let bomb = [frame(lines(before_end).as_bytes()), block.repeat(100)].concat();
    assert!(bomb.len() < 1 << 20);
    let error = Trace::from_reader(&bomb[..]).expect_err("over budget");
    assert!(matches!(error, TraceError::TooLarge { .. }), "{error}");
    let message = error.to_string();
    assert!(message.starts_with("cannot read trace: its records need more than"), "{message}");
    // A reader that keeps no records has no limit.
    assert_eq!(Reader::new(&bomb[..]).expect("a trace").count(), before_end.len() + 5_000_000);
}
