//! Corpora in Python: whole texts drawn near others.

use std::collections::HashMap;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyType;

use super::arrow_ffi::{Chunks, Column, Text};
use super::keys::PyReleaseKey;
use super::numbers::{column, numbers};
use super::table::{counts, released};
use super::{attached, detached};
use crate::columns::choose::{ChoicePolicy, Source};
use crate::columns::ids::{self, Fields};
use crate::columns::strings::Strings;
use crate::errors::{Error, Result};
use crate::laws::corpus::{Corpus, Encoding};
use crate::threads;

/// A corpus file, mapped and verified; one per process and hash.
#[pyclass(frozen, name = "Corpus", module = "dptext_etl._kernel")]
pub struct PyCorpus {
    corpus: Arc<Corpus>,
    path: String,
    sha256: String,
}

/// The vectors that a model gave, or the corpus' own encoder.
fn source(vectors: Option<&Chunks>) -> Result<Source<'_>> {
    Ok(match vectors {
        Some(vectors) => Source::Given(numbers::<i8>(vectors, "vectors")?),
        None => Source::Words,
    })
}

#[pymethods]
impl PyCorpus {
    /// Maps the file and verifies its hash, or finds it already mapped.
    #[classmethod]
    fn open(_class: &Bound<'_, PyType>, py: Python<'_>, path: &str, sha256: &str) -> PyResult<Self> {
        let corpus = detached(py, || Corpus::open(path, sha256))?;
        Ok(Self { corpus, path: path.to_owned(), sha256: sha256.to_owned() })
    }

    fn __len__(&self) -> usize {
        self.corpus.len()
    }

    /// The file's own description of itself.
    fn metadata(&self) -> HashMap<String, String> {
        self.corpus.metadata().clone()
    }

    /// The text with this number.
    fn text(&self, py: Python<'_>, number: usize) -> PyResult<String> {
        attached(py, || Ok(self.corpus.text(number)?.to_owned()))
    }

    /// Releases a column: struct of text and positions. `vectors` come from a model, row after row.
    #[pyo3(signature = (release_key, texts, ids, policy, nonce=0, vectors=None, threads=None))]
    #[allow(clippy::too_many_arguments)]
    fn release(
        &self,
        py: Python<'_>,
        release_key: &PyReleaseKey,
        texts: Chunks,
        ids: Chunks,
        policy: &str,
        nonce: u64,
        vectors: Option<Chunks>,
        threads: Option<usize>,
    ) -> PyResult<Column> {
        detached(py, || {
            let (policy, texts) = (ChoicePolicy::from_json(policy)?, Strings::new(&texts.0)?);
            let ids = ids::canonical(ids.0, Fields::InOrder)?;
            ids.expect_len(texts.len(), "texts")?;
            let key = |row: usize, text: Option<&str>| {
                let id = ids.get(row)?.unwrap_or_default();
                Ok(release_key.0.record(id, text.map(str::as_bytes), nonce))
            };
            let source = source(vectors.as_ref())?;
            released(self.corpus.release(&policy, &texts, &source, &key, threads::count(threads)?)?)
        })
    }

    /// Releases a column under given record keys (tests of non-interference).
    #[pyo3(signature = (record_keys, texts, policy, vectors=None, threads=None))]
    fn release_with_keys(
        &self,
        py: Python<'_>,
        record_keys: Chunks,
        texts: Chunks,
        policy: &str,
        vectors: Option<Chunks>,
        threads: Option<usize>,
    ) -> PyResult<Column> {
        detached(py, || {
            let (policy, texts) = (ChoicePolicy::from_json(policy)?, Strings::new(&texts.0)?);
            let keys = super::vocabulary::record_keys(&record_keys, texts.len())?;
            let key = |row: usize, _: Option<&str>| {
                keys.get(row).cloned().ok_or_else(|| Error::internal("a record key is not there"))
            };
            let source = source(vectors.as_ref())?;
            released(self.corpus.release(&policy, &texts, &source, &key, threads::count(threads)?)?)
        })
    }

    /// How many draws each text takes.
    fn positions(&self, py: Python<'_>, texts: Chunks, policy: &str) -> PyResult<Column> {
        detached(py, || {
            let (policy, texts) = (ChoicePolicy::from_json(policy)?, Strings::new(&texts.0)?);
            self.corpus.positions(&policy, &texts).map(|rows| Column(counts(rows)))
        })
    }

    /// The vector of every part of every text, int8, row after row; zeros where a part says nothing.
    fn encode(&self, py: Python<'_>, texts: Chunks, parts: usize, n_max: usize) -> PyResult<Column> {
        detached(py, || {
            let (texts, mut encoding, mut vectors) = (Strings::new(&texts.0)?, Encoding::default(), Vec::new());
            for row in 0..texts.len() {
                self.corpus.read(texts.get(row)?.unwrap_or_default(), n_max, &mut encoding)?;
                for part in 0..parts {
                    self.corpus.encode(part, parts, &mut encoding)?;
                    vectors.extend_from_slice(&encoding.vector);
                }
            }
            Ok(column(vectors))
        })
    }

    /// The numbers of the texts near one text, in their order; none where it says nothing.
    fn near(&self, py: Python<'_>, text: Text, policy: &str) -> PyResult<Option<Vec<u32>>> {
        detached(py, || self.corpus.near(&text.0, &ChoicePolicy::from_json(policy)?))
    }

    fn __repr__(&self) -> String {
        format!("Corpus({}, sha256={})", self.path, self.sha256)
    }

    /// Pickled as its path and hash; mapped and verified again where it is loaded.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (String, String))> {
        let open = py.get_type::<Self>().getattr("open")?;
        Ok((open, (self.path.clone(), self.sha256.clone())))
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyCorpus>()
}
