//! Export of sampled call stacks as folded lines, which tools for flame graphs read.

use std::io::{self, Write};

use pellucid_trace::Trace;

use crate::html::stacks::place;

/// Writes a line for each stack: stage, operator and functions, separated by `;`, and the number of samples.
///
/// # Errors
/// Returns errors of the writer.
pub fn folded(trace: &Trace, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    for stack in &trace.stacks {
        let [stage, operator] = place(trace, stack).map(|name| clean(&name.replace(';', ",")));
        writeln!(out, "{stage};{operator};{} {}", clean(&stack.frames), stack.count)?;
    }
    Ok(())
}

/// Replaces control characters: a line is a stack.
fn clean(text: &str) -> String {
    text.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pellucid_trace::{Operator, Part, Stack};

    #[test]
    fn lines_have_the_stage_the_operator_and_the_functions() {
        let stack =
            |operator, count, frames: &str| Stack { stage: 3, operator, count, frames: frames.into() };
        let operator = Operator {
            stage: 3,
            operator: 7,
            name: "Scan a;b.parquet".into(),
            detail: None,
            part: Part::Decode,
            inputs: Vec::new(),
            from: None,
            cpu_ns: 0,
            max_cpu_ns: 0,
            batches: None,
            rows: None,
            planned_rows: None,
            bytes: None,
            peak_bytes: None,
            columns: Vec::new(),
            expressions: Vec::new(),
        };
        let stacks =
            vec![stack(Some(7), 2, "serve;run\nx"), stack(Some(8), 1, "serve"), stack(None, 5, "[lost]")];
        let trace = Trace { operators: vec![operator], stacks, ..Trace::default() };
        let mut written = Vec::new();
        folded(&trace, &mut written).unwrap();
        let expected = "stage 3;Scan a,b.parquet;serve;run x 2\nstage 3;operator 8;serve 1\nstage 3;no operator;[lost] 5\n";
        assert_eq!(String::from_utf8(written).unwrap(), expected);
    }
}
