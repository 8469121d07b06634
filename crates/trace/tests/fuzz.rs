//! Fuzz tests with flipped, truncated, duplicated and inserted bytes and lines. The
//! reader must not panic or use more memory than a block and the records read.
//!
//! `PELLUCID_FUZZ_ITERATIONS` sets the number of cases, `PELLUCID_FUZZ_SEED`
//! repeats one case.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::*;
use pellucid_trace::*;

/// An allocator that counts the memory of each thread, to verify the memory bound.
struct Counting;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

fn count(change: i64) {
    // The counters are destroyed before the thread's last deallocations, which are not measured.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + change);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

// SAFETY: delegates to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Memory bound: blocks are at most 16 MiB, and a growing buffer doubles its size.
const MAX_BYTES: i64 = 64 << 20;

fn iterations(default: u64) -> u64 {
    let set = std::env::var("PELLUCID_FUZZ_ITERATIONS").ok();
    set.and_then(|n| n.parse().ok()).unwrap_or(default)
}

fn seeds(default: u64) -> std::ops::Range<u64> {
    let one = std::env::var("PELLUCID_FUZZ_SEED").ok();
    match one.and_then(|seed| seed.parse::<u64>().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..iterations(default),
    }
}

/// Applies one to four random changes to `bytes`; inserts single bytes and `words`.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random, words: &[&[u8]]) {
    for _ in 0..1 + random.below(4) {
        let length = bytes.len() as u64;
        let at = random.below(length) as usize;
        let span = at..(at + random.between(1, 200) as usize).min(bytes.len());
        match random.below(6) {
            _ if bytes.is_empty() => return,
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => bytes.truncate(at),
            3 => {
                bytes.drain(span);
            }
            4 => {
                let doubled = bytes[span.clone()].to_vec();
                bytes.splice(at..at, doubled);
            }
            _ => {
                let word = words[random.below(words.len() as u64) as usize];
                bytes.splice(at..at, word.iter().copied());
            }
        }
    }
}

/// Reads and checks `bytes`, and asserts that this neither panics nor exceeds the memory bound.
fn read_safely(seed: u64, bytes: &[u8]) -> Result<Trace, TraceError> {
    let before = HELD.get();
    PEAK.set(before);
    let case = std::panic::catch_unwind(|| {
        let result = Trace::from_reader(bytes);
        if let Ok(trace) = &result {
            trace.check();
        }
        if let Err(error) = &result {
            assert!(!error.to_string().is_empty());
        }
        result
    });
    let took = PEAK.get() - before;
    assert!(took <= MAX_BYTES, "took {took} bytes; repeat with PELLUCID_FUZZ_SEED={seed}");
    case.unwrap_or_else(|_| panic!("panicked; repeat with PELLUCID_FUZZ_SEED={seed}"))
}

#[test]
fn reader_handles_changed_bytes() {
    let records = whole(job(21, 3, 20));
    let blocks = blocks(&records, 16);
    let bytes: Vec<u8> = blocks.iter().flat_map(|b| b.0.clone()).collect();
    // A frame's magic number, and a skippable frame of 4 GiB.
    let words: [&[u8]; 3] = [b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18\xff\xff\xff\xff", b"\xff"];
    let (mut rejected, mut truncated) = (0, 0);
    for seed in seeds(3_000) {
        let mut random = Random(seed);
        let mut changed = bytes.clone();
        mutate(&mut changed, &mut random, &words);
        match read_safely(seed, &changed) {
            Err(_) => rejected += 1,
            Ok(trace) if trace.truncated.is_some() => {
                truncated += 1;
                // Blocks have checksums, so every record read must be one that was written.
                for monotask in &trace.monotasks {
                    let written = records.contains(&Record::Monotask(*monotask));
                    assert!(written, "PELLUCID_FUZZ_SEED={seed}: {monotask:?}");
                }
            }
            Ok(_) => {}
        }
    }
    if iterations(3_000) >= 1_000 && std::env::var("PELLUCID_FUZZ_SEED").is_err() {
        assert!(rejected > 50 && truncated > 500, "{rejected} {truncated}");
    }
}

#[test]
fn reader_handles_changed_lines() {
    let records = every_kind();
    let text = lines(&records);
    let words: [&[u8]; 10] = [
        b"18446744073709551615",
        b"-1",
        b"1e999",
        b"null",
        b"{\"t\":",
        b"[[[[[[[[",
        b"\n",
        b"\\u0000",
        b"\"after\":[4294967295],",
        b"\"t\":\"end\",",
    ];
    let (mut malformed, mut read) = (0, 0);
    for seed in seeds(6_000) {
        let mut random = Random(seed);
        let mut changed = text.clone().into_bytes();
        mutate(&mut changed, &mut random, &words);
        match read_safely(seed, &frame(&changed)) {
            Err(TraceError::Malformed { .. }) => malformed += 1,
            Err(_) => {}
            Ok(_) => read += 1,
        }
    }
    if iterations(6_000) >= 1_000 && std::env::var("PELLUCID_FUZZ_SEED").is_err() {
        assert!(malformed > 200 && read > 100, "{malformed} {read}");
    }
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
