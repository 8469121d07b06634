//! Exchanges between partitionings, whose two halves are Python callables.
//!
//! A scatter receives the arrays that it reads and an [`Outgoing`], which keeps copies of the sent arrays until the
//! callable returns. A gather receives its arrays and a list of sources with the arrays that they sent, which share
//! the engine's memory. Both run under the GIL, except for code that releases it.

use std::sync::{Mutex, PoisonError};

use pellucid_iterate::{Incoming, KernelResult, Outgoing as Engine};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyTuple};

use crate::array::Array;
use crate::kernel::{MAX_ARRAYS, describe};

/// The two halves of an exchange.
pub struct Exchange {
    pub scatter: Py<PyAny>,
    pub gather: Py<PyAny>,
}

impl Exchange {
    /// Runs the scatter on one partition.
    pub fn scatter(&self, reads: [Option<&Array>; MAX_ARRAYS], out: &mut Engine<'_, Array>) -> KernelResult {
        let (source, partitions) = (out.source(), out.partitions());
        let sent = Python::attach(|py| {
            let scatter = || -> PyResult<Vec<(Option<u32>, Array)>> {
                let outgoing = Bound::new(py, Outgoing { source, partitions, sent: Mutex::default() })?;
                let mut arguments = views(py, reads, true)?;
                arguments.push(outgoing.clone().into_any());
                self.scatter.bind(py).call1(PyTuple::new(py, arguments)?)?;
                let mut sent = outgoing.get().sent.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(std::mem::take(&mut *sent))
            };
            scatter().map_err(|error| describe(py, &error))
        })?;
        for (to, array) in sent {
            match to {
                Some(to) => out.send(to, array),
                None => out.send_all(array),
            }
        }
        Ok(())
    }

    /// Runs the gather on one partition.
    pub fn gather(
        &self,
        reads: [Option<&Array>; MAX_ARRAYS],
        writes: [Option<&mut Array>; MAX_ARRAYS],
        chunks: &Incoming<'_, Array>,
    ) -> KernelResult {
        Python::attach(|py| {
            let gather = || -> PyResult<()> {
                let mut arguments = views(py, reads, true)?;
                arguments.extend(views(py, writes.map(|array| array.map(|array| &*array)), false)?);
                let arrived = chunks.iter().map(|(source, chunk)| Ok((source, chunk.view(py, true)?)));
                let arrived = PyList::new(py, arrived.collect::<PyResult<Vec<_>>>()?)?;
                arguments.push(arrived.into_any());
                self.gather.bind(py).call1(PyTuple::new(py, arguments)?)?;
                Ok(())
            };
            gather().map_err(|error| describe(py, &error).into())
        })
    }
}

fn views<'py>(
    py: Python<'py>,
    arrays: [Option<&Array>; MAX_ARRAYS],
    readonly: bool,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    arrays.iter().flatten().map(|array| array.view(py, readonly)).collect()
}

/// The output of a scatter.
#[pyclass(frozen, module = "pellucid._native")]
pub struct Outgoing {
    source: u32,
    partitions: u32,
    /// Arrays with their destination; `None` is all partitions that are sent nothing else.
    sent: Mutex<Vec<(Option<u32>, Array)>>,
}

impl Outgoing {
    fn put(&self, to: Option<u32>, array: &Bound<'_, PyAny>) -> PyResult<()> {
        static CONTIGUOUS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let array = CONTIGUOUS.import(array.py(), "numpy", "ascontiguousarray")?.call1((array,))?;
        let copy = Array::borrow(&array)?.copied()?;
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).push((to, copy));
        Ok(())
    }
}

#[pymethods]
impl Outgoing {
    /// Sends an array to one partition. At most one array can be sent to each.
    fn send(&self, to: u32, array: &Bound<'_, PyAny>) -> PyResult<()> {
        self.put(Some(to), array)
    }

    /// Sends an array to every partition on the route that is sent no other.
    fn send_all(&self, array: &Bound<'_, PyAny>) -> PyResult<()> {
        self.put(None, array)
    }

    /// The partition that sends.
    #[getter]
    fn source(&self) -> u32 {
        self.source
    }

    /// Number of destination partitions.
    #[getter]
    fn partitions(&self) -> u32 {
        self.partitions
    }
}
