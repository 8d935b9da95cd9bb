//! The check of CSV files before a run, in Python.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use super::detached;
use crate::csv_rows::{CsvRows, Problem};

/// Counts of the rows of a CSV file that comes chunk by chunk.
#[pyclass(frozen, name = "CsvRows", module = "dptext_etl._kernel")]
struct PyCsvRows(Mutex<CsvRows>);

impl PyCsvRows {
    fn with<T>(&self, work: impl FnOnce(&mut CsvRows) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[pymethods]
impl PyCsvRows {
    #[new]
    fn new(separator: u8, quote: Option<u8>) -> Self {
        Self(Mutex::new(CsvRows::new(separator, quote)))
    }

    /// Reads on; returns whether the rest can be read, too.
    fn feed(&self, py: Python<'_>, chunk: PyBackedBytes) -> PyResult<bool> {
        detached(py, || Ok(self.with(|rows| rows.feed(&chunk))))
    }

    /// Ends the last row, if no line break ended it.
    fn finish(&self) {
        self.with(CsvRows::finish);
    }

    /// The number of the line that comes next.
    #[getter]
    fn line(&self) -> u64 {
        self.with(|rows| rows.line)
    }

    /// The fields of the header.
    #[getter]
    fn header(&self) -> Vec<Vec<u8>> {
        self.with(|rows| rows.header.clone())
    }

    /// The number of rows of another width than the header's, and line and fields of the first.
    #[getter]
    fn others(&self) -> (u64, u64, u64) {
        self.with(|rows| (rows.others.count, rows.others.line, rows.others.fields))
    }

    /// The number of blank lines, and the line of the first.
    #[getter]
    fn blank(&self) -> (u64, u64) {
        self.with(|rows| (rows.blank.count, rows.blank.line))
    }

    /// The name of what ended the reading, and its line.
    #[getter]
    fn problem(&self) -> Option<(&'static str, u64)> {
        self.with(|rows| rows.problem).map(|(problem, line)| (name(problem), line))
    }
}

fn name(problem: Problem) -> &'static str {
    match problem {
        Problem::Inside => "inside",
        Problem::Behind => "behind",
        Problem::Open => "open",
        Problem::Return => "return",
        Problem::Mixed => "mixed",
        Problem::Header => "header",
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyCsvRows>()
}
