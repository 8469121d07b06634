//! Errors of the engine as exceptions of the package, which are defined in `pellucid/errors.py`.

use pellucid_iterate::{JobError, ProgramError};
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;

/// A program that cannot be run.
pub fn program(py: Python<'_>, error: &ProgramError) -> PyErr {
    raise(py, "ProgramError", (error.to_string(),))
}

/// A job that did not end well.
pub fn job(py: Python<'_>, error: &JobError) -> PyErr {
    match error {
        JobError::Kernel { stage, partition, cause } => {
            raise(py, "KernelError", (stage.as_str(), *partition, cause.as_str()))
        }
        other => raise(py, "JobError", (other.to_string(),)),
    }
}

/// What a run was told cannot be: a place for snapshots that is none, a trace that cannot be written.
pub fn setting(py: Python<'_>, words: String) -> PyErr {
    raise(py, "ProgramError", (words,))
}

fn raise<'py>(py: Python<'py>, name: &str, arguments: impl PyCallArgs<'py>) -> PyErr {
    let made = py.import("pellucid.errors").and_then(|errors| errors.getattr(name)?.call1(arguments));
    made.map_or_else(|error| error, PyErr::from_value)
}
