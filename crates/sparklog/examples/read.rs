//! Reads event logs and prints a summary of each as a line of JSON: `read LOG…`. Used by `bench` to measure
//! the reader alone.

use std::fs::File;
use std::path::Path;

use pellucid_sparklog::{Part, layout, read};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for argument in std::env::args().skip(1) {
        for log in layout::local(Path::new(&argument))? {
            let mut parts = Vec::new();
            for part in &log.parts {
                parts.push(Part::new(part, File::open(part)?));
            }
            let trace = read(parts)?;
            println!(
                r#"{{"log": {:?}, "bytes": {}, "tasks": {}, "stages": {}, "jobs": {}, "task_memory_bytes": {}, "warnings": {}}}"#,
                log.name,
                trace.bytes,
                trace.pipelined_tasks.len(),
                trace.stages.len(),
                trace.jobs.len(),
                trace.pipelined_tasks.memory_bytes(),
                trace.warnings.len(),
            );
        }
    }
    Ok(())
}
