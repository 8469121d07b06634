//! Writes the page of a trace without the command, for work on the page: `page FILE.trace OUT.html`.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, input, output] = arguments.as_slice() else {
        return Err("usage: page FILE.trace OUT.html".into());
    };
    let trace = pellucid_trace::Trace::read(Path::new(input))?;
    let analysis = pellucid_model::analyze(&trace);
    let what_if = pellucid_report::WhatIf::of(&trace);
    let source = pellucid_report::Source::of_trace(&trace, Some(input));
    std::fs::write(
        output,
        pellucid_report::html(&trace, &analysis, source, what_if.as_ref().map_err(String::as_str)),
    )?;
    Ok(())
}
