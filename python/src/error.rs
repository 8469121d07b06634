//! Conversion of the engine's errors to the package's exceptions, which `pellucid/errors.py` defines.

use pellucid_iterate::{JobError, ProgramError};
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;

/// Creates the exception for an invalid program.
pub fn program(py: Python<'_>, error: &ProgramError) -> PyErr {
    raise(py, "ProgramError", (error.to_string(),))
}

/// Creates the exception for a failed job.
pub fn job(py: Python<'_>, error: &JobError) -> PyErr {
    match error {
        JobError::Kernel { stage, partition, cause } => {
            raise(py, "KernelError", (stage.as_str(), *partition, cause.as_str()))
        }
        other => raise(py, "JobError", (other.to_string(),)),
    }
}

/// Creates the exception for an invalid option of a run, such as a trace that cannot be written.
pub fn setting(py: Python<'_>, message: String) -> PyErr {
    raise(py, "ProgramError", (message,))
}

fn raise<'py>(py: Python<'py>, name: &str, arguments: impl PyCallArgs<'py>) -> PyErr {
    let made = py.import("pellucid.errors").and_then(|errors| errors.getattr(name)?.call1(arguments));
    made.map_or_else(|error| error, PyErr::from_value)
}
