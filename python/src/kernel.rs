//! Kernels: functions compiled by numba, or any Python callables.
//!
//! A compiled kernel is the address of a function `int32 (void **arrays, intptr_t *lengths)`. Its arguments are
//! pointers to the arrays' first elements, and the lengths of all dimensions of all arrays in order. It runs without
//! the GIL. Such a function can only report that it failed, so the same function is then called again through
//! Python, with the same arrays, to get its exception.

use pellucid_iterate::KernelResult;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::array::{Array, MAX_DIMENSIONS, Type};

/// Maximum number of arrays that a kernel reads, and that it writes.
pub const MAX_ARRAYS: usize = 8;

type Compiled = unsafe extern "C" fn(*const *mut u8, *const isize) -> i32;

/// A kernel. See the [module](self).
pub struct Kernel {
    /// The Python function.
    callable: Py<PyAny>,
    compiled: Option<Compiled>,
    /// Types and dimensions of the arrays that it reads and writes.
    signature: Box<[(Type, usize)]>,
}

impl Kernel {
    /// Creates a kernel from a callable, the address of its machine code, which the callable keeps alive, and the
    /// types and dimensions for which it was compiled.
    pub fn new(callable: Py<PyAny>, address: Option<usize>, signature: Box<[(Type, usize)]>) -> Self {
        // SAFETY: the address is that of numba's compiled function, which the callable keeps alive.
        let compiled = address.map(|address| unsafe { std::mem::transmute::<usize, Compiled>(address) });
        Kernel { callable, compiled, signature }
    }

    /// Runs the kernel on one partition.
    pub fn run(
        &self,
        reads: [Option<&Array>; MAX_ARRAYS],
        writes: [Option<&mut Array>; MAX_ARRAYS],
    ) -> KernelResult {
        let writes = writes.map(|array| array.map(|array| &*array));
        let status = match self.compiled {
            Some(compiled) => {
                let given = reads.iter().chain(&writes).flatten().map(|array| array.signature());
                if !given.eq(self.signature.iter().copied()) {
                    return Err(
                        "cannot run the compiled kernel: an array has another type or number of dimensions \
                                than its dataset; delete the job's snapshots if it resumed from one"
                            .into(),
                    );
                }
                let mut starts = [std::ptr::null_mut(); 2 * MAX_ARRAYS];
                let mut lengths = [0isize; 2 * MAX_ARRAYS * MAX_DIMENSIONS];
                let mut slots = lengths.iter_mut();
                for (start, array) in starts.iter_mut().zip(reads.iter().chain(&writes).flatten()) {
                    *start = array.start();
                    array.shape().iter().zip(&mut slots).for_each(|(length, slot)| *slot = *length as isize);
                }
                // SAFETY: the function was compiled for arrays of these types and dimensions, as checked above.
                unsafe { compiled(starts.as_ptr(), lengths.as_ptr()) }
            }
            None => -1,
        };
        if status == 0 {
            return Ok(());
        }
        Python::attach(|py| self.call(py, reads, writes).map_err(|error| describe(py, &error)))?;
        match self.compiled {
            Some(_) => Err(format!(
                "the compiled kernel failed with status {status}, but not when called from Python"
            )
            .into()),
            None => Ok(()),
        }
    }

    fn call(
        &self,
        py: Python<'_>,
        reads: [Option<&Array>; MAX_ARRAYS],
        writes: [Option<&Array>; MAX_ARRAYS],
    ) -> PyResult<()> {
        let read = reads.iter().flatten().map(|array| array.view(py, true));
        let write = writes.iter().flatten().map(|array| array.view(py, false));
        let arguments: Vec<_> = read.chain(write).collect::<PyResult<_>>()?;
        self.callable.bind(py).call1(PyTuple::new(py, arguments)?)?;
        Ok(())
    }
}

/// Formats an exception as `ValueError: text (script.py, line 12)`.
pub fn describe(py: Python<'_>, error: &PyErr) -> String {
    let place = || -> PyResult<String> {
        let mut innermost = error.traceback(py).map(|traceback| traceback.into_any());
        let mut place = String::new();
        while let Some(traceback) = innermost.filter(|traceback| !traceback.is_none()) {
            let code = traceback.getattr("tb_frame")?.getattr("f_code")?;
            let file: String = code.getattr("co_filename")?.extract()?;
            let name = file.rsplit('/').next().unwrap_or_default();
            place = format!(" ({name}, line {})", traceback.getattr("tb_lineno")?);
            innermost = Some(traceback.getattr("tb_next")?);
        }
        Ok(place)
    };
    format!("{error}{}", place().unwrap_or_default())
}
