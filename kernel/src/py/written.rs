//! What gates count of released texts, and what chance allows, in Python.

use pyo3::prelude::*;

use super::arrow_ffi::{Chunks, Column};
use super::numbers::{column, numbers};
use super::{attached, detached};
use crate::columns::strings::Strings;
use crate::errors::{Error, Result};
use crate::laws::successes;
use crate::text::patterns::{Form, Patterns};
use crate::text::written::WordSet;
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

/// Patterns without a blank by form of writing: bytes, and whether they are found in any case.
#[pyclass(frozen, name = "Patterns", module = "dptext_etl._kernel")]
struct PyPatterns(Patterns);

#[pymethods]
impl PyPatterns {
    #[new]
    fn new(py: Python<'_>, forms: Vec<(Vec<Vec<u8>>, bool)>) -> PyResult<Self> {
        attached(py, || {
            let forms = forms.into_iter().map(|(patterns, any_case)| Form { patterns, any_case }).collect::<Vec<_>>();
            Ok(Self(Patterns::new(&forms)?))
        })
    }

    /// How many occurrences of each form end behind the first `after` bytes.
    fn occurrences(&self, py: Python<'_>, data: &[u8], after: usize) -> PyResult<Vec<u64>> {
        detached(py, || Ok(self.0.occurrences(data, after)))
    }

    /// How many texts hold a pattern of each form; nulls hold none.
    #[pyo3(signature = (texts, threads=None))]
    fn holding(&self, py: Python<'_>, texts: Chunks, threads: Option<usize>) -> PyResult<Vec<u64>> {
        detached(py, || {
            let texts = Strings::new(&texts.0)?;
            self.sums(texts.len(), threads, |row, counts| {
                self.0.count_in(texts.get(row)?.unwrap_or_default().as_bytes(), counts);
                Ok(())
            })
        })
    }

    /// In how many rows a pattern of each form begins in the left text and ends in the right one.
    #[pyo3(signature = (left, right, threads=None))]
    fn across(&self, py: Python<'_>, left: Chunks, right: Chunks, threads: Option<usize>) -> PyResult<Vec<u64>> {
        detached(py, || {
            let (left, right) = (Strings::new(&left.0)?, Strings::new(&right.0)?);
            if left.len() != right.len() {
                return Err(Error::input("columns of one table have as many rows"));
            }
            self.sums(left.len(), threads, |row, counts| {
                let (left, right) = (left.get(row)?.unwrap_or_default(), right.get(row)?.unwrap_or_default());
                self.0.count_across(left.as_bytes(), right.as_bytes(), counts);
                Ok(())
            })
        })
    }
}

impl PyPatterns {
    /// Adds up what `count` counts of every row, by form.
    fn sums(
        &self,
        rows: usize,
        threads: Option<usize>,
        count: impl Fn(usize, &mut [u64]) -> Result<()> + Sync,
    ) -> Result<Vec<u64>> {
        let parts = threads::over_rows(rows, ROWS_AT_ONCE, threads::count(threads)?, |rows| {
            let mut counts = self.0.none();
            for row in rows {
                count(row, &mut counts)?;
            }
            Ok(counts)
        })?;
        let add = |sum: Vec<u64>, part: Vec<u64>| sum.iter().zip(part).map(|(one, other)| one + other).collect();
        Ok(parts.into_iter().fold(self.0.none(), add))
    }
}

/// How likely at least this number of successes is, for 0 to `most` of them, without a bound of the rounding (float64).
#[pyfunction]
fn upper_tail(py: Python<'_>, chances: Chunks, most: usize) -> PyResult<Column> {
    detached(py, || Ok(column(successes::upper_tail(numbers(&chances, "chances")?, most))))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyWordSet>()?;
    module.add_class::<PyPatterns>()?;
    module.add_function(wrap_pyfunction!(upper_tail, module)?)
}
