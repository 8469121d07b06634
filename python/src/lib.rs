//! The native module of the Python package `pellucid`: programs of arrays, run by `pellucid-iterate`, and the
//! `pellucid` command.
//!
//! The package (`pellucid/*.py`) is the public interface. This module provides partitions as memory that kernels and
//! numpy share ([`array`]), calls of compiled kernels without the GIL ([`kernel`]), exchanges of arrays between
//! partitions ([`exchange`]), and the engine ([`program`], [`run`]). The command is that of the binary ([`command`]).

mod array;
mod command;
mod error;
mod exchange;
mod kernel;
mod program;
mod run;

/// The module `pellucid._native`.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::array::View;
    #[pymodule_export]
    use crate::command::main;
    #[pymodule_export]
    use crate::exchange::Outgoing;
    #[pymodule_export]
    use crate::program::Program;
    #[pymodule_export]
    use crate::run::Outcome;

    /// Checks the processor, and registers the storage backends, when the module is imported.
    #[pymodule_init]
    fn init(_module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        pellucid_cli::check_processor();
        pellucid_backends::register();
        Ok(())
    }
}
