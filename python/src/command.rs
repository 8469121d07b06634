//! The `pellucid` command as a function.

use std::ffi::OsString;
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::process::exit;

use pellucid_cli::Program;
use pyo3::prelude::*;

/// Exit code of a binary whose main thread panicked.
const PANICKED: i32 = 101;

/// Runs the command with the arguments after its name, and exits with its code.
///
/// It exits here, as the binary does, since Python would wait for threads and handle an interrupt again.
#[pyfunction]
pub fn main(py: Python<'_>, arguments: Vec<OsString>, interpreter: PathBuf, module: PathBuf) {
    let program = Program::in_python(arguments, interpreter, module);
    py.detach(|| exit(catch_unwind(|| pellucid_cli::main(program)).map_or(PANICKED, i32::from)))
}
