//! Limits the size of traces: at most 40 bytes on disk per event, including everything else.

mod common;

use pellucid_trace::*;

/// Uses the recorder, so blocks have the sizes of its rounds.
#[test]
fn event_takes_at_most_40_bytes() {
    for (seed, stages, multitasks) in [(1, 4, 100), (2, 5, 4_000)] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("job.trace");
        let recorder = Recorder::start(RecorderOptions {
            producer: "engine".into(),
            path: Some(path.clone()),
            ..RecorderOptions::default()
        })
        .expect("a recorder");
        for record in common::job(seed, stages, multitasks) {
            recorder.record(record);
        }
        let events = recorder.events();
        let trace = recorder.finish().expect("written");
        let bytes = std::fs::metadata(&path).expect("the file").len();
        assert_eq!(trace.bytes, bytes, "seed {seed}");
        let each = bytes as f64 / events as f64;
        println!("seed {seed}: {events} events, {each:.1} bytes each");
        assert!(each <= 40.0, "seed {seed}: {each:.1} bytes per event");
        // Random digits cannot compress below this, so a smaller trace would have lost numbers.
        assert!(each >= 15.0, "seed {seed}: {each:.1} bytes per event");
    }
}
