//! Bytes and lines that were flipped, cut, doubled or put in: never a panic,
//! never more memory than a block and what was read.
//!
//! `PELLUCID_FUZZ_ITERATIONS` runs more than the default, `PELLUCID_FUZZ_SEED`
//! runs one case again.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::*;
use pellucid_trace::*;

/// Counts what this thread holds, so that "bounded memory" is measured, not hoped.
struct Counting;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
    static MOST: Cell<i64> = const { Cell::new(0) };
}

fn count(change: i64) {
    // Not there any more while the thread ends, when nothing is measured.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + change);
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: hands everything on to the system's allocator, unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Blocks are at most 16 MiB; a buffer that grows to it doubles on the way.
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

/// One to four changes of `bytes`; put in are single bytes and `words`.
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

/// Reads and checks `bytes`, with how much memory that took at most.
fn survive(seed: u64, bytes: &[u8]) -> Result<Trace, TraceError> {
    let before = HELD.get();
    MOST.set(before);
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
    let took = MOST.get() - before;
    assert!(took <= MAX_BYTES, "{took} bytes held; again with PELLUCID_FUZZ_SEED={seed}");
    case.unwrap_or_else(|_| panic!("panicked; again with PELLUCID_FUZZ_SEED={seed}"))
}

#[test]
fn any_change_of_the_file_is_survived() {
    let records = whole(job(21, 3, 20));
    let blocks = blocks(&records, 16);
    let bytes: Vec<u8> = blocks.iter().flat_map(|b| b.0.clone()).collect();
    // A frame's magic number, and a skippable frame of 4 GiB.
    let words: [&[u8]; 3] = [b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18\xff\xff\xff\xff", b"\xff"];
    let (mut refused, mut partly) = (0, 0);
    for seed in seeds(3_000) {
        let mut random = Random(seed);
        let mut changed = bytes.clone();
        mutate(&mut changed, &mut random, &words);
        match survive(seed, &changed) {
            Err(_) => refused += 1,
            Ok(trace) if trace.truncated.is_some() => {
                partly += 1;
                // Its checksum vouches for each block: what was read was written.
                for monotask in &trace.monotasks {
                    let written = records.contains(&Record::Monotask(*monotask));
                    assert!(written, "PELLUCID_FUZZ_SEED={seed}: {monotask:?}");
                }
            }
            Ok(_) => {}
        }
    }
    if iterations(3_000) >= 1_000 && std::env::var("PELLUCID_FUZZ_SEED").is_err() {
        assert!(refused > 50 && partly > 500, "{refused} {partly}");
    }
}

#[test]
fn any_change_of_the_lines_is_survived() {
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
        match survive(seed, &frame(&changed)) {
            Err(TraceError::Malformed { .. }) => malformed += 1,
            Err(_) => {}
            Ok(_) => read += 1,
        }
    }
    if iterations(6_000) >= 1_000 && std::env::var("PELLUCID_FUZZ_SEED").is_err() {
        assert!(malformed > 200 && read > 100, "{malformed} {read}");
    }
}
