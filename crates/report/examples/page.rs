//! Writes report pages without the `pellucid` command, for development and browser tests.
//! `page FILE.trace OUT.html` renders a trace; `page FOLDER` renders the handmade traces of the tests.

#[path = "../tests/cases/mod.rs"]
mod cases;

use std::path::Path;

use pellucid_trace::Trace;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.as_slice() {
        [_, input, output] => write(&Trace::read(Path::new(input))?, Some(input), Path::new(output)),
        [_, folder] => cases::all().iter().try_for_each(|(name, trace)| {
            write(trace, None, &Path::new(folder).join(format!("{name}.html")))
        }),
        _ => Err("usage: page FILE.trace OUT.html, or page FOLDER".into()),
    }
}

fn write(trace: &Trace, input: Option<&str>, output: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let analysis = pellucid_model::analyze(trace);
    let what_if = pellucid_report::WhatIf::of(trace);
    let source = pellucid_report::Source::of_trace(trace, input);
    let page = pellucid_report::html(trace, &analysis, source, what_if.as_ref().map_err(String::as_str));
    Ok(std::fs::write(output, page)?)
}
