//! Tests of the reader with truncated, damaged, foreign, newer and malformed traces.

mod common;

use common::*;
use pellucid_trace::*;

fn read(bytes: &[u8]) -> Result<Trace, TraceError> {
    Trace::from_reader(bytes)
}

fn text(text: &str) -> Result<Trace, TraceError> {
    read(&frame(text.as_bytes()))
}

#[test]
fn truncated_trace_reads_to_its_last_whole_block() {
    let records = whole(job(3, 2, 12));
    let blocks = blocks(&records, 7);
    let bytes: Vec<u8> = blocks.iter().flat_map(|b| b.0.clone()).collect();
    for cut in 0..bytes.len() {
        let (mut blocks_left, mut records_left, mut end) = (0, 0, 0);
        for (block, count) in &blocks {
            end += block.len();
            if end > cut {
                break;
            }
            blocks_left += 1;
            records_left += count;
        }
        let result = read(&bytes[..cut]);
        if blocks_left == 0 {
            let error = result.expect_err("no whole block");
            assert!(matches!(error, TraceError::NotATrace { .. }), "{error}");
            continue;
        }
        let trace = result.expect("the first block is whole");
        let why = trace.truncated.clone().expect("truncated");
        let place = format!("after block {blocks_left}, record {records_left}, of {cut} bytes");
        assert!(why.ends_with(&place), "cut at {cut}: {why}");
        assert_eq!(contents(trace), pushed(&records[..records_left]));
    }
    let trace = read(&bytes).expect("whole");
    assert_eq!(trace.truncated, None);
    assert_eq!(trace.bytes, bytes.len() as u64);
    assert_eq!(contents(trace), pushed(&records));
}

#[test]
fn damaged_trace_reads_to_the_block_before_the_damage() {
    let records = whole(job(4, 2, 12));
    let blocks = blocks(&records, 10);
    let mut bytes: Vec<u8> = blocks.iter().flat_map(|b| b.0.clone()).collect();
    let in_third = blocks[0].0.len() + blocks[1].0.len() + blocks[2].0.len() - 5;
    bytes[in_third] ^= 0x10;
    let trace = read(&bytes).expect("two blocks are whole");
    let why = trace.truncated.clone().expect("truncated");
    assert!(why.starts_with("damaged ("), "{why}");
    assert!(why.contains("after block 2, record 20"), "{why}");
    assert_eq!(contents(trace), pushed(&records[..20]));
}

#[test]
fn trace_without_an_end_is_truncated() {
    let mut records = whole(job(5, 1, 3));
    records.pop();
    let trace = text(&lines(&records)).expect("readable");
    let why = trace.truncated.expect("truncated");
    assert!(why.starts_with("no end record"), "{why}");
}

#[test]
fn other_files_are_rejected() {
    for bytes in [
        &b""[..],
        b"PAR1 and so on",
        b"{\"t\":\"header\"}\n",
        &frame(b""),
        &frame(b"{\"Event\":\"SparkListenerLogStart\"}\n"),
        &frame(b"{\"t\":\"header\",\"format\":\"other/1.0\"}\n"),
        &frame(b"{\"t\":\"header\",\"format\":\"pellucid.trace/one\"}\n"),
    ] {
        let error = read(bytes).expect_err("no trace");
        assert!(matches!(error, TraceError::NotATrace { .. }), "{error}");
        assert!(error.to_string().contains("pass a file"), "{error}");
    }
    assert!(read(b"").expect_err("no trace").to_string().contains("it is empty"));
}

#[test]
fn newer_major_version_is_rejected_and_older_ones_are_read() {
    let versioned = |version: &str| lines(&whole(vec![])).replace("/1.9", version);
    let error = text(&versioned("/2.0")).expect_err("newer");
    assert!(matches!(error, TraceError::NewerMajor { .. }), "{error}");
    assert!(error.to_string().contains("upgrade pellucid"), "{error}");
    for version in
        ["/0.9", "/1.0", "/1.1", "/1.2", "/1.3", "/1.4", "/1.5", "/1.6", "/1.7", "/1.8", "/1.9", "/1.17"]
    {
        let trace = text(&versioned(version)).expect("readable");
        assert_eq!(trace.warnings, Vec::<String>::new(), "{version}");
    }
}

#[test]
fn records_of_a_newer_minor_version_are_skipped_with_a_warning() {
    let with = |version: &str| {
        let header = lines(&[header()]).replace("/1.9", version);
        let machine = r#"{"t":"machine","name":"box","colour":"blue"}"#;
        let new = r#"{"t":"checkpoint","at_ns":5}"#;
        let end = lines(&[end(3)]);
        text(&format!("{header}{machine}\n{new}\n{end}"))
    };
    let trace = with("/1.10").expect("readable");
    assert_eq!(trace.machines.len(), 1);
    assert_eq!(trace.truncated, None);
    assert_eq!(trace.warnings.len(), 1);
    assert!(trace.warnings[0].contains("line 3: skipped a `checkpoint`"));
    let error = with("/1.9").expect_err("this version has no such record");
    assert!(matches!(error, TraceError::Malformed { line: 3, .. }));
}

#[test]
fn malformed_line_error_names_the_line() {
    let head = lines(&[header()]);
    for (tail, why) in [
        ("{\"t\":\"machine\",\"name\":7}\n", "not a record"),
        ("not json\n", "not a record"),
        ("\n", "not a record"),
        ("{\"t\":\"job_end\",\"job\":0,\"ended_ns\":1}\n", "job 0 is not registered"),
        (head.as_str(), "second header"),
        ("{\"t\":\"end\",\"records\":1}", "ends within a line"),
    ] {
        let error = text(&format!("{head}{tail}")).expect_err(why);
        assert!(matches!(error, TraceError::Malformed { line: 2, .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    let after = format!("{}{}", lines(&whole(vec![])), lines(&[end(2)]));
    let error = text(&after).expect_err("a record after the end");
    assert!(error.to_string().contains("after the end"), "{error}");
}

#[test]
fn large_block_reads_like_small_ones() {
    // Two threads parse the frequent records of a large block in advance; the others are parsed in turn.
    let records = whole(job(6, 40, 60));
    let small: Vec<u8> = blocks(&records, 7).iter().flat_map(|b| b.0.clone()).collect();
    let lines = lines(&records);
    assert!(lines.len() > 256 << 10, "{} bytes are not large", lines.len());
    let trace = text(&lines).expect("whole");
    assert_eq!(trace.records(), read(&small).expect("whole").records());
    assert_eq!(contents(trace), pushed(&records));
    let wrong = lines.trim_end().lines().count() - 3;
    let cut: Vec<&str> = lines.lines().take(wrong - 1).collect();
    let error = text(&format!("{}\nnot json\n", cut.join("\n"))).expect_err("the last line is not a record");
    assert!(matches!(error, TraceError::Malformed { line, .. } if line == wrong as u64), "{error}");
}

#[test]
fn wrong_count_in_the_end_record_is_a_warning() {
    let trace = text(&lines(&[header(), end(7)])).expect("readable");
    assert!(trace.warnings[0].contains("counts 7 records, but the trace has 1"));
}

#[test]
fn missing_file_error_names_the_file() {
    let error = Trace::read("/nowhere/job.trace".as_ref()).expect_err("missing");
    let message = error.to_string();
    assert!(message.starts_with("cannot read trace /nowhere/job.trace"), "{message}");
}

/// A small file that decompresses to a large one takes at most the memory of one block.
#[test]
fn decompression_bomb_is_rejected() {
    let bomb = zstd::encode_all(&vec![b' '; 64 << 20][..], 19).expect("memory");
    assert!(bomb.len() < 64 << 10);
    let error = read(&bomb).expect_err("too large");
    assert!(error.to_string().contains("16 MiB"), "{error}");
    let mut bytes = frame(lines(&[header()]).as_bytes());
    bytes.extend(bomb);
    let trace = read(&bytes).expect("one block is whole");
    assert!(trace.truncated.expect("truncated").contains("16 MiB"));
}
