//! Indexes of ids in Python.

use pyo3::prelude::*;

use super::arrow_ffi::{Chunks, Column};
use super::detached;
use super::numbers::{column, numbers};
use crate::columns::id_index::IdIndex;
use crate::errors::Error;
use crate::threads;

const ROWS_AT_ONCE: usize = 1 << 15;
const HALVES: &str = "halves of ids";

/// Distinct ids of 128 bits, numbered in the order in which each came first.
#[pyclass(frozen, name = "IdIndex", module = "dptext_etl._kernel")]
pub struct PyIdIndex(IdIndex);

#[pymethods]
impl PyIdIndex {
    /// An index of ids, and the number of each row (int64), from both halves of the ids (uint64).
    #[staticmethod]
    fn of(py: Python<'_>, hi: Chunks, lo: Chunks) -> PyResult<(Self, Column)> {
        detached(py, || {
            let (index, given) = IdIndex::new(numbers(&hi, HALVES)?, numbers(&lo, HALVES)?)?;
            Ok((Self(index), column(given)))
        })
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// The rows of other ids that are among these, in ascending order, and their numbers (int64).
    fn find(&self, py: Python<'_>, hi: Chunks, lo: Chunks) -> PyResult<(Column, Column)> {
        detached(py, || {
            let (hi, lo) = (numbers::<u64>(&hi, HALVES)?, numbers::<u64>(&lo, HALVES)?);
            if hi.len() != lo.len() {
                return Err(Error::input("ids have two halves each"));
            }
            let parts = threads::over_rows(hi.len(), ROWS_AT_ONCE, threads::count(None)?, |range| {
                let (start, hi, lo) = (range.start, hi.get(range.clone()), lo.get(range));
                Ok(self.0.find(hi.unwrap_or_default(), lo.unwrap_or_default(), start))
            })?;
            let (mut rows, mut found) = (Vec::new(), Vec::new());
            for (some_rows, some) in parts {
                rows.extend(some_rows);
                found.extend(some);
            }
            Ok((column(rows), column(found)))
        })
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyIdIndex>()
}
