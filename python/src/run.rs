//! Running a program from Python, with the GIL released, and Ctrl-C ending the job.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pellucid_iterate::{Dataset, JobControl, Plan, Progress, RunOptions, Snapshots};
use pellucid_trace::{Recorder, RecorderOptions};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::array::Array;

/// Options for running a program, passed as a dictionary.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Options {
    pub threads: Option<usize>,
    pub trace: Option<String>,
    pub snapshot: Option<String>,
    pub snapshot_every: u32,
    pub progress: Option<Py<PyAny>>,
    pub wait_limit_s: f64,
}

/// The outcome of a run.
#[pyclass(frozen, module = "pellucid._native")]
pub struct Outcome {
    outcome: pellucid_iterate::Outcome,
    outputs: Vec<Option<Dataset<Array>>>,
}

#[pymethods]
impl Outcome {
    /// Returns the partitions of a dataset that a stage writes.
    fn partitions<'py>(&self, py: Python<'py>, dataset: usize) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let marked = self.outputs.get(dataset).copied().flatten();
        let marked = marked.ok_or_else(|| pyo3::exceptions::PyKeyError::new_err(dataset))?;
        let partitions = self.outcome.shared(marked).map_err(|error| crate::error::job(py, &error))?;
        partitions.iter().map(|array| array.view(py, false)).collect()
    }

    /// Number of iterations of outermost loops.
    #[getter]
    fn iterations(&self) -> u64 {
        self.outcome.iterations
    }

    /// Iteration of the earlier run's snapshot that it resumed from, or `None` if it started from the beginning.
    #[getter]
    fn resumed_at(&self) -> Option<u64> {
        self.outcome.resumed_at
    }

    /// Number of tasks run.
    #[getter]
    fn tasks(&self) -> u64 {
        self.outcome.tasks
    }

    /// Seconds from start to end, including loading.
    #[getter]
    fn elapsed_s(&self) -> Option<f64> {
        self.outcome.elapsed_ns.map(|ns| ns as f64 / 1e9)
    }

    /// Seconds of each iteration except the first.
    #[getter]
    fn iteration_s(&self) -> Vec<f64> {
        self.outcome.iterations_ns.iter().map(|ns| *ns as f64 / 1e9).collect()
    }

    /// Core time spent in tasks, in seconds, over all workers.
    #[getter]
    fn busy_s(&self) -> Option<f64> {
        self.outcome.busy_ns.map(|ns| ns as f64 / 1e9)
    }

    /// Latest observed values by name.
    #[getter]
    fn observed(&self) -> BTreeMap<String, f64> {
        self.outcome.observed.clone()
    }
}

/// Runs a plan.
pub fn run(
    py: Python<'_>,
    plan: Arc<Plan>,
    outputs: Vec<Option<Dataset<Array>>>,
    options: Options,
) -> PyResult<Outcome> {
    let recorder = options.trace.as_ref().map(|path| record(py, path)).transpose()?;
    let snapshots = match &options.snapshot {
        None => None,
        Some(place) => Some(Snapshots {
            place: place.parse().map_err(|error| {
                crate::error::setting(py, format!("invalid snapshot location {place}: {error}"))
            })?,
            every_iterations: options.snapshot_every,
        }),
    };
    let control = JobControl::default();
    let raised = Arc::new(Mutex::new(None));
    let watch = Watch { control: control.clone(), raised: raised.clone(), callback: options.progress };
    let defaults = RunOptions::default();
    let run_options = RunOptions {
        threads: options.threads.unwrap_or(defaults.threads),
        snapshots,
        recorder: recorder.clone(),
        memory: Vec::new(),
        progress: Some(Box::new(move |progress| watch.show(progress))),
        control: Some(control),
        // Longer than a duration can hold means no limit.
        wait_limit: Duration::try_from_secs_f64(options.wait_limit_s).unwrap_or(Duration::MAX),
    };
    let ran = py.detach(|| {
        let ran = pellucid_iterate::run(plan, run_options);
        // Finish the trace of a failed job too.
        (ran, recorder.map_or(Ok(()), |recorder| recorder.finish().map(drop)))
    });
    if let Some(error) = raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(error);
    }
    let outcome = ran.0.map_err(|error| crate::error::job(py, &error))?;
    if let Err(error) = ran.1 {
        // The job succeeded, so only warn.
        let message = CString::new(error.to_string()).unwrap_or_default();
        PyErr::warn(py, &py.get_type::<pyo3::exceptions::PyRuntimeWarning>(), &message, 1)?;
    }
    Ok(Outcome { outcome, outputs })
}

fn record(py: Python<'_>, path: &str) -> PyResult<Recorder> {
    let options = RecorderOptions {
        producer: "iterate".to_string(),
        producer_version: env!("CARGO_PKG_VERSION").to_string(),
        path: Some(path.into()),
        ..RecorderOptions::default()
    };
    Recorder::start(options).map_err(|error| crate::error::setting(py, error.to_string()))
}

/// A progress callback that handles Python signals on the calling thread while the job runs.
struct Watch {
    control: JobControl,
    /// Exception raised by a signal or by the callback.
    raised: Arc<Mutex<Option<PyErr>>>,
    callback: Option<Py<PyAny>>,
}

impl Watch {
    fn show(&self, progress: &Progress) {
        let shown = Python::attach(|py| -> PyResult<()> {
            py.check_signals()?;
            let Some(callback) = &self.callback else { return Ok(()) };
            let document = PyDict::new(py);
            document.set_item("iteration", progress.iteration)?;
            document.set_item("tasks", progress.tasks)?;
            document.set_item("observed", progress.observed.clone())?;
            callback.call1(py, (document,)).map(drop)
        });
        if let Err(error) = shown {
            self.raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            self.control.cancel();
        }
    }
}
