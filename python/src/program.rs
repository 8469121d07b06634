//! A program built from Python, and its conversion to the engine's program.
//!
//! The package records statements, in nested loops and branches. [`Program::run`] then builds the engine's program
//! from them, on each call. Datasets are identified by their numbers.

use std::sync::Arc;

use pellucid_iterate::{Cause, Dataset, Incoming, Outgoing, Plan, ProgramError, Route};
use pyo3::prelude::*;

use crate::array::{Array, Operation};
use crate::exchange::Exchange;
use crate::kernel::{Kernel, MAX_ARRAYS};
use crate::run::{self, Options, Outcome};

/// A recorded statement, possibly with nested ones.
enum Step {
    Transform {
        name: String,
        kernel: Arc<Kernel>,
        reads: Vec<usize>,
        writes: Vec<usize>,
    },
    Broadcast {
        name: String,
        from: usize,
        to: usize,
    },
    Reduce {
        name: String,
        from: usize,
        into: usize,
        operation: Operation,
    },
    Exchange {
        name: String,
        halves: Arc<Exchange>,
        sources: Vec<usize>,
        /// Destinations by source; `None` is all to all.
        routes: Option<Vec<Vec<u32>>>,
        reads: Vec<usize>,
        writes: Vec<usize>,
    },
    Observe {
        name: String,
        on: usize,
    },
    /// Runs at most `max_iterations` times, and until the array `until` has a nonzero element.
    Loop {
        name: String,
        max_iterations: u64,
        until: Option<usize>,
        body: Vec<Step>,
    },
    Branch {
        name: String,
        on: usize,
        then: Vec<Step>,
        otherwise: Vec<Step>,
    },
}

/// A loop or branch whose body is being recorded.
enum Open {
    Loop { name: String, max_iterations: u64 },
    Then { name: String, on: usize },
    Otherwise { name: String, on: usize, then: Vec<Step> },
}

struct Content {
    name: String,
    partitions: Arc<[Array]>,
    /// True if any stage writes the dataset: then it is copied on load, and is an output.
    written: bool,
}

/// A plan, and its outputs by dataset number.
type Built = (Arc<Plan>, Vec<Option<Dataset<Array>>>);

/// A program under construction.
#[pyclass(module = "pellucid._native")]
pub struct Program {
    name: String,
    datasets: Vec<Content>,
    /// Statements of the open loops and branches, outermost first.
    steps: Vec<Vec<Step>>,
    open: Vec<Open>,
}

fn wrong(message: &str) -> PyErr {
    pyo3::exceptions::PyValueError::new_err(message.to_string())
}

#[pymethods]
impl Program {
    #[new]
    fn new(name: String) -> Self {
        Program { name, datasets: Vec::new(), steps: vec![Vec::new()], open: Vec::new() }
    }

    /// Adds a dataset from its partitions, and returns its number.
    fn dataset(&mut self, name: String, partitions: Vec<Bound<'_, PyAny>>) -> PyResult<usize> {
        let partitions = partitions.iter().map(Array::borrow).collect::<PyResult<_>>()?;
        self.datasets.push(Content { name, partitions, written: false });
        Ok(self.datasets.len() - 1)
    }

    fn transform(
        &mut self,
        name: String,
        callable: Py<PyAny>,
        address: Option<usize>,
        reads: Vec<usize>,
        writes: Vec<usize>,
    ) -> PyResult<()> {
        if reads.len() > MAX_ARRAYS || writes.len() > MAX_ARRAYS {
            return Err(wrong(&format!(
                "a stage reads at most {MAX_ARRAYS} datasets and writes at most {MAX_ARRAYS}"
            )));
        }
        writes.iter().for_each(|&dataset| self.datasets[dataset].written = true);
        let first = |&dataset: &usize| self.datasets[dataset].partitions.first().map(Array::signature);
        let signature = reads.iter().chain(&writes).filter_map(first).collect();
        let kernel = Arc::new(Kernel::new(callable, address, signature));
        self.push(Step::Transform { name, kernel, reads, writes });
        Ok(())
    }

    fn broadcast(&mut self, name: String, from: usize, to: usize) {
        self.datasets[to].written = true;
        self.push(Step::Broadcast { name, from, to });
    }

    fn reduce(&mut self, name: String, from: usize, into: usize, operation: &str) -> PyResult<()> {
        let operation = match operation {
            "sum" => Operation::Sum,
            "min" => Operation::Min,
            "max" => Operation::Max,
            other => return Err(wrong(&format!("unknown reduction {other:?}; use sum, min or max"))),
        };
        self.datasets[into].written = true;
        self.push(Step::Reduce { name, from, into, operation });
        Ok(())
    }

    /// Adds an exchange; `halves` are the scatter and the gather.
    fn exchange(
        &mut self,
        name: String,
        halves: (Py<PyAny>, Py<PyAny>),
        sources: Vec<usize>,
        routes: Option<Vec<Vec<u32>>>,
        reads: Vec<usize>,
        writes: Vec<usize>,
    ) -> PyResult<()> {
        if [&sources, &reads, &writes].iter().any(|list| list.len() > MAX_ARRAYS) {
            return Err(wrong(&format!(
                "a stage reads at most {MAX_ARRAYS} datasets and writes at most {MAX_ARRAYS}"
            )));
        }
        writes.iter().for_each(|&dataset| self.datasets[dataset].written = true);
        let halves = Arc::new(Exchange { scatter: halves.0, gather: halves.1 });
        self.push(Step::Exchange { name, halves, sources, routes, reads, writes });
        Ok(())
    }

    fn observe(&mut self, name: String, on: usize) {
        self.push(Step::Observe { name, on });
    }

    fn begin_loop(&mut self, name: String, max_iterations: u64) {
        self.begin(Open::Loop { name, max_iterations });
    }

    fn end_loop(&mut self, until: Option<usize>) -> PyResult<()> {
        match self.close() {
            Some((Open::Loop { name, max_iterations }, body)) => {
                self.push(Step::Loop { name, max_iterations, until, body })
            }
            _ => return Err(wrong("cannot end a loop: none is open")),
        }
        Ok(())
    }

    fn begin_branch(&mut self, name: String, on: usize) {
        self.begin(Open::Then { name, on });
    }

    fn otherwise(&mut self) -> PyResult<()> {
        match self.close() {
            Some((Open::Then { name, on }, then)) => self.begin(Open::Otherwise { name, on, then }),
            _ => return Err(wrong("cannot begin `otherwise`: it must be inside a branch, once")),
        }
        Ok(())
    }

    fn end_branch(&mut self) -> PyResult<()> {
        match self.close() {
            Some((Open::Then { name, on }, then)) => {
                self.push(Step::Branch { name, on, then, otherwise: Vec::new() });
            }
            Some((Open::Otherwise { name, on, then }, otherwise)) => {
                self.push(Step::Branch { name, on, then, otherwise });
            }
            _ => return Err(wrong("cannot end a branch: none is open")),
        }
        Ok(())
    }

    /// Runs the program until it ends.
    fn run(&self, py: Python<'_>, options: Options) -> PyResult<Outcome> {
        if !self.open.is_empty() {
            return Err(crate::error::setting(
                py,
                "cannot run the program: a loop or branch is still open; call run after its body".to_string(),
            ));
        }
        let built = self.build(options.snapshot.is_some());
        let (plan, outputs) = built.map_err(|error| crate::error::program(py, &error))?;
        run::run(py, plan, outputs, options)
    }
}

impl Program {
    fn push(&mut self, step: Step) {
        if let Some(steps) = self.steps.last_mut() {
            steps.push(step);
        }
    }

    /// Closes the innermost loop or branch, and returns it with its statements.
    fn close(&mut self) -> Option<(Open, Vec<Step>)> {
        Some((self.open.pop()?, self.steps.pop()?))
    }

    fn begin(&mut self, open: Open) {
        self.open.push(open);
        self.steps.push(Vec::new());
    }

    /// Builds the engine's plan and its outputs by dataset number. With `identified`, the data and the parameters of
    /// statements become part of the fingerprint, so that snapshots of other data are not used.
    fn build(&self, identified: bool) -> Result<Built, ProgramError> {
        let mut program = pellucid_iterate::Program::new(&self.name);
        if identified {
            let contents = self.datasets.iter().flat_map(|content| content.partitions.iter());
            program.made_from(contents.map(Array::identity).collect::<Vec<_>>());
        }
        let mut datasets = Vec::new();
        for content in &self.datasets {
            let (partitions, written) = (content.partitions.clone(), content.written);
            let load = move |index: u32| -> Result<Array, Cause> {
                let initial = &partitions[index as usize];
                if written { Ok(initial.copied()?) } else { Ok(initial.share()) }
            };
            let (expected, count) = (content.partitions.clone(), content.partitions.len() as u32);
            let check = move |index: u32, array: &Array| array.check_form(&expected[index as usize]);
            let dataset = program.checked_dataset(&content.name, count, load, check);
            if written {
                program.output(dataset);
            }
            datasets.push(dataset);
        }
        add(&mut program, &datasets, self.steps.first().map_or(&[][..], Vec::as_slice));
        let marked = datasets.iter().zip(&self.datasets).map(|(dataset, of)| of.written.then_some(*dataset));
        Ok((program.build()?, marked.collect()))
    }
}

/// Adds statements to the engine's program.
fn add(program: &mut pellucid_iterate::Program, datasets: &[Dataset<Array>], steps: &[Step]) {
    let list = |numbers: &[usize]| {
        let mut list = [None; MAX_ARRAYS];
        list.iter_mut().zip(numbers).for_each(|(slot, &number)| *slot = Some(datasets[number]));
        list
    };
    for step in steps {
        match step {
            Step::Transform { name, kernel, reads, writes } => {
                let kernel = kernel.clone();
                program.transform(name, list(reads), list(writes), move |reads, writes| {
                    kernel.run(reads, writes)
                });
            }
            Step::Broadcast { name, from, to } => program.broadcast(name, datasets[*from], datasets[*to]),
            Step::Reduce { name, from, into, operation } => {
                let operation = *operation;
                program.made_from(operation);
                program.tree_reduce(name, datasets[*from], datasets[*into], move |sum, next| {
                    sum.combine(next, operation);
                });
            }
            Step::Exchange { name, halves, sources, routes, reads, writes } => {
                let (scatter, gather) = (halves.clone(), halves.clone());
                let route = routes.clone().map_or(Route::All, Route::Fixed);
                let scatters = move |reads: [Option<&Array>; MAX_ARRAYS], out: &mut Outgoing<'_, Array>| {
                    scatter.scatter(reads, out)
                };
                program.scatter(name, list(sources), route, scatters).gather(
                    list(reads),
                    list(writes),
                    move |reads, writes, chunks: Incoming<'_, Array>| gather.gather(reads, writes, &chunks),
                );
            }
            Step::Observe { name, on } => program.observe(name, datasets[*on], Array::first),
            Step::Loop { name, max_iterations, until, body } => {
                let until = until.map(|number| datasets[number]);
                add_loop(program, name, *max_iterations, until, |program| add(program, datasets, body));
            }
            Step::Branch { name, on, then, otherwise } => program.if_signal(
                name,
                datasets[*on],
                Array::is_set,
                |program| add(program, datasets, then),
                |program| add(program, datasets, otherwise),
            ),
        }
    }
}

/// Adds a loop with one signal per iteration. A single dataset holds the iteration count and the result of `until`.
fn add_loop(
    program: &mut pellucid_iterate::Program,
    name: &str,
    max_iterations: u64,
    until: Option<Dataset<Array>>,
    body: impl FnOnce(&mut pellucid_iterate::Program),
) {
    program.made_from(max_iterations);
    let count = program.dataset(format!("{name}: iterations, end"), 1, |_| Ok((0u64, false)));
    program.transform(format!("{name}: from 0"), (), count, |(), count| {
        *count = (0, false);
        Ok(())
    });
    program.repeat(name, |program| {
        body(program);
        let mut reads = [None; MAX_ARRAYS];
        reads[0] = until;
        program.transform(format!("{name}: count"), reads, count, |reads, count| {
            *count = (count.0 + 1, reads[0].is_some_and(|until: &Array| until.is_set()));
            Ok(())
        });
        program
            .while_signal(format!("{name}: again"), count, move |count| count.0 < max_iterations && !count.1);
    });
}
