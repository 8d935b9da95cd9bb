//! Table mechanisms in Python.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, StructArray, UInt32Array};
use arrow_schema::{DataType, Field};
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use super::arrow_ffi::{Chunks, Column, Text};
use super::keys::PyReleaseKey;
use super::{attached, detached};
use crate::columns::ids::{self, Fields};
use crate::columns::release::Released;
use crate::columns::strings::Strings;
use crate::errors::{Error, Result};
use crate::laws::law_file::LawFile;
use crate::text::input_policy::InputPolicy;
use crate::threads;

/// A table file, mapped and verified; one per process and hash.
#[pyclass(frozen, name = "Table", module = "dptext_etl._kernel")]
pub struct PyTable {
    file: Arc<LawFile>,
    path: String,
    sha256: String,
}

pub fn counts(values: Vec<u32>) -> ArrayRef {
    Arc::new(UInt32Array::from(values))
}

pub fn released(out: Released) -> Result<Column> {
    let fields = vec![Field::new("text", DataType::LargeUtf8, true), Field::new("positions", DataType::UInt32, false)];
    StructArray::try_new(fields.into(), vec![Arc::new(out.text), counts(out.positions)], None)
        .map(|array| Column(Arc::new(array)))
        .map_err(|_| Error::internal("columns of different lengths"))
}

/// The weights of a mixture of rows in equal shares: each row's are raised to the rows' common total, the least
/// common multiple.
fn mixture<'py>(py: Python<'py>, rows: &[Vec<u64>]) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let int = |number: u128| -> PyResult<_> { Ok(number.into_pyobject(py)?.into_any()) };
    let totals = rows.iter().map(|row| row.iter().map(|&weight| u128::from(weight)).sum()).collect::<Vec<u128>>();
    let common = py.import("math")?.getattr("lcm")?.call1(PyTuple::new(py, &totals)?)?;
    let factors = totals.iter().map(|&total| common.floor_div(int(total)?)).collect::<PyResult<Vec<_>>>()?;
    let outputs = rows.first().map_or(0, Vec::len);
    let sum = |output: usize| {
        let mut sum = int(0)?;
        for (row, factor) in rows.iter().zip(&factors) {
            sum = sum.add(factor.mul(row.get(output).copied().unwrap_or(0))?)?;
        }
        Ok(sum)
    };
    (0..outputs).map(sum).collect()
}

#[pymethods]
impl PyTable {
    /// Maps the file and verifies its hash, or finds it already mapped.
    #[classmethod]
    fn open(_class: &Bound<'_, PyType>, py: Python<'_>, path: &str, sha256: &str) -> PyResult<Self> {
        let file = detached(py, || LawFile::open(path, sha256))?;
        Ok(Self { file, path: path.to_owned(), sha256: sha256.to_owned() })
    }

    fn input_words(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        attached(py, || Ok(self.file.inputs()?.map(str::to_owned).collect()))
    }

    fn output_words(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        attached(py, || Ok(self.file.outputs()?.map(str::to_owned).collect()))
    }

    /// Words that are released unchanged.
    fn kept_words(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        attached(py, || Ok(self.file.kept()?.map(str::to_owned).collect()))
    }

    /// The file's own description of itself.
    fn metadata(&self) -> HashMap<String, String> {
        self.file.metadata().clone()
    }

    /// The law's name: "table", "tem" or "geometric".
    #[getter]
    fn law(&self) -> &'static str {
        self.file.law.facts().name
    }

    /// How many lists the law draws from; 0 for tables.
    #[getter]
    fn lists(&self) -> usize {
        self.file.law.facts().lists
    }

    /// Number of output sets.
    #[getter]
    fn sets(&self) -> usize {
        self.file.law.facts().sets
    }

    /// Words per slot: 2 if any output set exceeds 4,096, else 1.
    #[getter]
    fn width(&self) -> usize {
        self.file.law.facts().width
    }

    /// Size of the largest output set.
    #[getter]
    fn max_set(&self) -> usize {
        self.file.law.facts().max_set
    }

    /// Releases a column: struct of text and positions.
    #[pyo3(signature = (release_key, texts, ids, input_policy, nonce=0, threads=None))]
    #[allow(clippy::too_many_arguments)]
    fn release(
        &self,
        py: Python<'_>,
        release_key: &PyReleaseKey,
        texts: Chunks,
        ids: Chunks,
        input_policy: &str,
        nonce: u64,
        threads: Option<usize>,
    ) -> PyResult<Column> {
        detached(py, || {
            let (policy, texts, ids) = (
                InputPolicy::from_json(input_policy)?,
                Strings::new(&texts.0)?,
                ids::canonical(ids.0, Fields::InOrder)?,
            );
            ids.expect_len(texts.len(), "texts")?;
            let key = |row: usize, text: Option<&str>| {
                let id = ids.get(row)?.unwrap_or_default();
                Ok(release_key.0.record(id, text.map(str::as_bytes), nonce))
            };
            released(self.file.release(&policy, &texts, &key, threads::count(threads)?)?)
        })
    }

    /// Releases a column under given record keys (tests of non-interference).
    #[pyo3(signature = (record_keys, texts, input_policy, threads=None))]
    fn release_with_keys(
        &self,
        py: Python<'_>,
        record_keys: Chunks,
        texts: Chunks,
        input_policy: &str,
        threads: Option<usize>,
    ) -> PyResult<Column> {
        detached(py, || {
            let (policy, texts) = (InputPolicy::from_json(input_policy)?, Strings::new(&texts.0)?);
            let keys = super::vocabulary::record_keys(&record_keys, texts.len())?;
            let key = |row: usize, _: Option<&str>| {
                keys.get(row).cloned().ok_or_else(|| Error::internal("a record key is not there"))
            };
            released(self.file.release(&policy, &texts, &key, threads::count(threads)?)?)
        })
    }

    /// How many draws each text takes.
    #[pyo3(signature = (texts, input_policy, threads=None))]
    fn positions(&self, py: Python<'_>, texts: Chunks, input_policy: &str, threads: Option<usize>) -> PyResult<Column> {
        detached(py, || {
            let (policy, texts) = (InputPolicy::from_json(input_policy)?, Strings::new(&texts.0)?);
            self.file.positions(&policy, &texts, threads::count(threads)?).map(|rows| Column(counts(rows)))
        })
    }

    /// The exact law of one word: output words and integer weights, for a mixture over their common total.
    fn row<'py>(
        &self,
        py: Python<'py>,
        word: Text,
        input_policy: &str,
    ) -> PyResult<(Vec<String>, Vec<Bound<'py, PyAny>>)> {
        let (words, rows) = detached(py, || self.file.row(&InputPolicy::from_json(input_policy)?, &word.0))?;
        Ok((words, mixture(py, &rows)?))
    }

    fn __repr__(&self) -> String {
        format!("Table({}, sha256={})", self.path, self.sha256)
    }

    /// Pickled as its path and hash; mapped and verified again where it is loaded.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (String, String))> {
        let open = py.get_type::<Self>().getattr("open")?;
        Ok((open, (self.path.clone(), self.sha256.clone())))
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyTable>()
}
