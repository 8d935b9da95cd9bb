//! What gates count of released texts, and what chance allows, in Python.

use pyo3::prelude::*;

use super::arrow_ffi::{Chunks, Column};
use super::numbers::{column, numbers};
use super::{attached, detached};
use crate::columns::strings::Strings;
use crate::errors::Error;
use crate::laws::successes;
use crate::text::written::{has_stretch, WordSet};
use crate::threads;

const ROWS_AT_ONCE: usize = 1024;

/// Words that released texts may consist of, byte for byte.
#[pyclass(frozen, name = "WordSet", module = "dptext_etl._kernel")]
struct PyWordSet(WordSet);

#[pymethods]
impl PyWordSet {
    #[new]
    fn new(py: Python<'_>, words: Vec<String>) -> PyResult<Self> {
        attached(py, || Ok(Self(WordSet::new(words.iter().map(String::as_str)))))
    }

    /// How many words the texts have, and how many of them are not in the set; nulls have none.
    #[pyo3(signature = (texts, threads=None))]
    fn outside(&self, py: Python<'_>, texts: Chunks, threads: Option<usize>) -> PyResult<(u64, u64)> {
        detached(py, || {
            let texts = Strings::new(&texts.0)?;
            let parts = threads::over_rows(texts.len(), ROWS_AT_ONCE, threads::count(threads)?, |rows| {
                let mut counts = (0, 0);
                for row in rows {
                    let (words, outside) = texts.get(row)?.map_or((0, 0), |text| self.0.outside(text));
                    counts = (counts.0 + words, counts.1 + outside);
                }
                Ok(counts)
            })?;
            Ok(parts.into_iter().fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1)))
        })
    }
}

/// The numbers of the texts that hold `least` bytes in a row that are no blanks (uint32); nulls hold none.
#[pyfunction]
#[pyo3(signature = (texts, least, threads=None))]
fn stretches(py: Python<'_>, texts: Chunks, least: usize, threads: Option<usize>) -> PyResult<Column> {
    detached(py, || {
        let texts = Strings::new(&texts.0)?;
        if least == 0 || u32::try_from(texts.len()).is_err() {
            return Err(Error::input("a stretch has a byte at least, and a batch fewer than 2^32 texts"));
        }
        let parts = threads::over_rows(texts.len(), ROWS_AT_ONCE, threads::count(threads)?, |rows| {
            let mut found = Vec::new();
            for row in rows {
                if texts.get(row)?.is_some_and(|text| has_stretch(text, least)) {
                    found.push(row as u32);
                }
            }
            Ok(found)
        })?;
        Ok(column(parts.concat()))
    })
}

/// How likely so many successes are at least, for 0 to `most` of them, without a bound of the rounding (float64).
#[pyfunction]
fn upper_tail(py: Python<'_>, chances: Chunks, most: usize) -> PyResult<Column> {
    detached(py, || Ok(column(successes::upper_tail(numbers(&chances, "chances")?, most))))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyWordSet>()?;
    module.add_function(wrap_pyfunction!(stretches, module)?)?;
    module.add_function(wrap_pyfunction!(upper_tail, module)?)
}
