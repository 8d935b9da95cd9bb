//! The check of NDJSON files before a run, in Python.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use super::detached;
use crate::json_rows::{JsonRows, Problem};

/// What is in an NDJSON file that comes chunk by chunk.
#[pyclass(frozen, name = "JsonRows", module = "dptext_etl._kernel")]
struct PyJsonRows(Mutex<JsonRows>);

impl PyJsonRows {
    fn with<T>(&self, work: impl FnOnce(&mut JsonRows) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[pymethods]
impl PyJsonRows {
    #[new]
    fn new() -> Self {
        Self(Mutex::new(JsonRows::default()))
    }

    /// Reads on; returns whether the rest can be read, too.
    fn feed(&self, py: Python<'_>, chunk: PyBackedBytes) -> PyResult<bool> {
        detached(py, || Ok(self.with(|rows| rows.feed(&chunk))))
    }

    /// Reads the last line, if no line break ended it.
    fn finish(&self) {
        self.with(JsonRows::finish);
    }

    /// The kinds of the numbers and strings of each field, by the names that lead to it.
    #[getter]
    fn kinds(&self) -> Vec<(Vec<String>, u8)> {
        self.with(|rows| rows.kinds.clone().into_iter().collect())
    }

    /// The name of what ended the reading, and its line.
    #[getter]
    fn problem(&self) -> Option<(&'static str, u64)> {
        self.with(|rows| rows.problem).map(|(problem, line)| (name(problem), line))
    }
}

fn name(problem: Problem) -> &'static str {
    match problem {
        Problem::Array => "array",
        Problem::Other => "other",
        Problem::Syntax => "syntax",
        Problem::Cut => "cut",
        Problem::NotANumber => "not a number",
        Problem::TooLarge => "too large",
        Problem::Surrogate => "surrogate",
        Problem::Twice => "twice",
        Problem::Encoding => "encoding",
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyJsonRows>()
}
