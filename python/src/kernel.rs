//! What a task calls: a function that numba has compiled, or any callable of Python's.
//!
//! A compiled kernel is an address of `int32 (void **arrays, intptr_t *lengths)`: the arrays' first numbers, and
//! the lengths of all dimensions of all arrays, one after the other. It runs without Python's lock. Since
//! such a function can say no more than that it failed, the same function is then called once more through
//! Python, with the same arrays, for what it raises.

use pellucid_iterate::program::KernelResult;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::array::{Array, MAX_DIMENSIONS};

/// Arrays that a kernel reads, and that it writes, at most.
pub const MOST: usize = 8;

type Compiled = unsafe extern "C" fn(*const *mut u8, *const isize) -> i32;

/// A kernel. See the [module](self).
pub struct Kernel {
    /// What Python calls.
    callable: Py<PyAny>,
    compiled: Option<Compiled>,
}

impl Kernel {
    /// From a callable, and the address of what it was compiled to, which lives as long.
    pub fn new(callable: Py<PyAny>, address: Option<usize>) -> Self {
        // SAFETY: the package takes it from numba's compiled function, which the callable keeps.
        let compiled = address.map(|address| unsafe { std::mem::transmute::<usize, Compiled>(address) });
        Kernel { callable, compiled }
    }

    /// Runs it on one partition.
    pub fn run(&self, reads: [Option<&Array>; MOST], writes: [Option<&mut Array>; MOST]) -> KernelResult {
        let writes = writes.map(|array| array.map(|array| &*array));
        let status = match self.compiled {
            Some(compiled) => {
                let mut starts = [std::ptr::null_mut(); 2 * MOST];
                let mut lengths = [0isize; 2 * MOST * MAX_DIMENSIONS];
                let mut slots = lengths.iter_mut();
                for (start, array) in starts.iter_mut().zip(reads.iter().chain(&writes).flatten()) {
                    *start = array.start();
                    array.shape().iter().zip(&mut slots).for_each(|(length, slot)| *slot = *length as isize);
                }
                // SAFETY: the package compiled it for arrays of these types and dimensions.
                unsafe { compiled(starts.as_ptr(), lengths.as_ptr()) }
            }
            None => -1,
        };
        if status == 0 {
            return Ok(());
        }
        Python::attach(|py| self.call(py, reads, writes).map_err(|error| describe(py, &error)))?;
        match self.compiled {
            Some(_) => Err(format!("it failed with status {status}").into()),
            None => Ok(()),
        }
    }

    fn call(
        &self,
        py: Python<'_>,
        reads: [Option<&Array>; MOST],
        writes: [Option<&Array>; MOST],
    ) -> PyResult<()> {
        let read = reads.iter().flatten().map(|array| array.view(py, true));
        let write = writes.iter().flatten().map(|array| array.view(py, false));
        let arguments: Vec<_> = read.chain(write).collect::<PyResult<_>>()?;
        self.callable.bind(py).call1(PyTuple::new(py, arguments)?)?;
        Ok(())
    }
}

/// `ValueError: text (script.py, line 12)`.
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
