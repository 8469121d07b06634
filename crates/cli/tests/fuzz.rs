//! Fuzz tests of `analyze`, `whatif`, `report` and `storage doctor` on damaged event logs: what the reader accepts,
//! all of them must answer for. `tests/run fuzz` runs them for longer.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use pellucid_fuzz::{Inputs, fuzz};
use pellucid_model::analyze;
use pellucid_model::doctor::of_trace;
use pellucid_report::*;

/// Returns the files below a folder, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries.into_iter().flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Returns the text of the shortest logs in the repository.
fn logs() -> Vec<Vec<u8>> {
    const MAX_BYTES: u64 = 200_000;
    let text = |path: PathBuf| {
        let mut text = Vec::new();
        let reader = pellucid_sparklog::decompressed(File::open(path).unwrap()).unwrap();
        reader.take(MAX_BYTES).read_to_end(&mut text).unwrap();
        text
    };
    let logs = files(Path::new("../../tests/event_logs")).into_iter().map(text);
    logs.filter(|text| text.starts_with(b"{\"Event\"") && (text.len() as u64) < MAX_BYTES).collect()
}

#[test]
fn damaged_log_shown() {
    let words: [&[u8]; 6] = [
        b"\"Event\":",
        b"\"Launch Time\":",
        b"\"Finish Time\":0",
        b"\"Stage ID\":",
        b"\"Parent IDs\":[0,1]",
        b"_Time\":",
    ];
    let inputs = Inputs::text(logs(), &words);
    fuzz("damaged_log_shown", |random| {
        let bytes = inputs.damaged(random);
        let Ok(mut trace) = pellucid_sparklog::read([pellucid_sparklog::Part::new("log", &bytes[..])]) else {
            return false;
        };
        // Malformed lines are skipped with a warning, so nearly every log can be read.
        let accepted = trace.warnings.is_empty();
        let analysis = analyze(&trace);
        terminal(&analysis, &trace, 80, true);
        timeline(&trace, 80, true);
        let what_if = WhatIf::of(&trace);
        let source = || Source::of_trace(&trace, Some("log"));
        analysis_json(&analysis, source()).to_string();
        html(&trace, &analysis, source(), what_if.as_ref().map_err(String::as_str));
        perfetto(&trace, &mut std::io::sink()).unwrap();
        otlp(&trace, &mut std::io::sink()).unwrap();
        parquet(&trace, |_| Ok(std::io::sink())).unwrap();
        of_trace(&trace, None);
        redact(&mut trace, &Salt::random());
        terminal(&analyze(&trace), &trace, 40, false);
        accepted
    });
}
