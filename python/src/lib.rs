//! The native half of the Python package `pellucid`: programs of arrays, run by `pellucid-iterate`.
//!
//! The package (`pellucid/*.py`) is what people see; here is what it cannot do itself: partitions as memory
//! that kernels and numpy share ([`array`]), compiled kernels called without Python's lock ([`kernel`]), arrays
//! sent from partition to partition ([`exchange`]), and the engine ([`program`], [`run`]). SQL is not in it, so that it builds without DataFusion.

mod array;
mod error;
mod exchange;
mod kernel;
mod program;
mod run;

/// What `pellucid._native` holds.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::array::View;
    #[pymodule_export]
    use crate::exchange::Outgoing;
    #[pymodule_export]
    use crate::program::Program;
    #[pymodule_export]
    use crate::run::Outcome;

    /// Registers the storage backends when the module is imported.
    #[pymodule_init]
    fn init(_module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        pellucid_backends::register();
        Ok(())
    }
}
