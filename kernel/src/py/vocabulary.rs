//! Vocabularies in Python: texts into word numbers, chosen outputs into texts.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, BooleanArray, LargeStringArray, UInt64Array};
use pyo3::prelude::*;

use super::arrow_ffi::{Chunks, Column};
use super::draws::record_key;
use super::numbers::Number;
use super::table::{counts, released};
use super::{attached, detached};
use crate::columns::encode;
use crate::columns::release;
use crate::columns::strings::Strings;
use crate::errors::{Error, Result};
use crate::keys::secrets::Key;
use crate::text::input_policy::InputPolicy;
use crate::text::vocabulary::Vocabulary;
use crate::threads;

/// Words that a mechanism takes, keeps unchanged, and releases.
#[pyclass(frozen, name = "Vocabulary", module = "dptext_etl._kernel")]
pub struct PyVocabulary(Vocabulary);

/// Record keys of a column: fixed-size binary rows of 32 bytes, one per text.
pub fn record_keys(keys: &Chunks, texts: usize) -> Result<Vec<Key>> {
    let mut all = Vec::with_capacity(texts);
    for chunk in &keys.0.chunks {
        let rows = chunk.as_fixed_size_binary_opt().filter(|rows| rows.null_count() == 0);
        let rows = rows.ok_or_else(|| Error::input("record keys are fixed-size binary rows of 32 bytes"))?;
        for row in 0..rows.len() {
            all.push(record_key(rows.value(row))?);
        }
    }
    if all.len() != texts {
        return Err(Error::input(format!("texts need one key each; got {} and {texts}", all.len())));
    }
    Ok(all)
}

/// The numbers of a column without nulls; copied only if it comes in several chunks.
fn numbers<'a, T: Number>(column: &'a Chunks, what: &str) -> Result<Cow<'a, [T]>> {
    let mut parts: Vec<&[T]> = Vec::with_capacity(column.0.chunks.len());
    for chunk in &column.0.chunks {
        let array = chunk.as_primitive_opt::<T::Arrow>().filter(|array| array.null_count() == 0);
        parts.push(array.ok_or_else(|| Error::input(format!("{what} without nulls were expected")))?.values());
    }
    Ok(match parts.as_slice() {
        [one] => Cow::Borrowed(one),
        many => Cow::Owned(many.concat()),
    })
}

#[pymethods]
impl PyVocabulary {
    /// Words by number: `inputs` and, where they are others, `outputs`; words of `kept` are released unchanged.
    #[new]
    #[pyo3(signature = (inputs, kept=vec![], outputs=None))]
    fn new(py: Python<'_>, inputs: Vec<String>, kept: Vec<String>, outputs: Option<Vec<String>>) -> PyResult<Self> {
        attached(py, || {
            let outputs = outputs.as_ref().unwrap_or(&inputs);
            if inputs.iter().chain(outputs).chain(&kept).any(String::is_empty) {
                return Err(Error::artifact("a vocabulary holds no empty word"));
            }
            let (inputs, outputs, kept) = (inputs.iter(), outputs.iter(), kept.iter());
            Vocabulary::new(inputs.map(String::as_str), outputs.map(String::as_str), kept.map(String::as_str)).map(Self)
        })
    }

    /// The numbers of all words that are drawn (uint32) and the row offsets (uint64, one more than rows).
    #[pyo3(signature = (texts, input_policy, record_keys=None, threads=None))]
    fn encode(
        &self,
        py: Python<'_>,
        texts: Chunks,
        input_policy: &str,
        record_keys: Option<Chunks>,
        threads: Option<usize>,
    ) -> PyResult<(Column, Column)> {
        detached(py, || {
            let (policy, texts) = (InputPolicy::from_json(input_policy)?, Strings::new(&texts.0)?);
            let keys = record_keys.map(|keys| self::record_keys(&keys, texts.len())).transpose()?;
            let key = |row: usize| {
                let keys = keys.as_ref().and_then(|keys| keys.get(row));
                keys.cloned().ok_or_else(|| Error::internal("a record key is not there"))
            };
            let key: Option<&(dyn Fn(usize) -> Result<Key> + Sync)> = if keys.is_some() { Some(&key) } else { None };
            let encoded = encode::encode(&self.0, &policy, &texts, key, threads::count(threads)?)?;
            let offsets = Column(Arc::new(UInt64Array::from(encoded.offsets)));
            Ok((Column(counts(encoded.words)), offsets))
        })
    }

    /// All words that are drawn or released unchanged, as texts hold them: the distinct ones, whether each is drawn, the
    /// number of every word among them (uint32), and the row offsets (uint64, one more than rows).
    #[pyo3(signature = (texts, input_policy, threads=None))]
    fn words(
        &self,
        py: Python<'_>,
        texts: Chunks,
        input_policy: &str,
        threads: Option<usize>,
    ) -> PyResult<(Column, Column, Column, Column)> {
        detached(py, || {
            let (policy, texts) = (InputPolicy::from_json(input_policy)?, Strings::new(&texts.0)?);
            let found = encode::words(&self.0, &policy, &texts, threads::count(threads)?)?;
            Ok((
                Column(Arc::new(LargeStringArray::from(found.distinct))),
                Column(Arc::new(BooleanArray::from(found.drawn))),
                Column(counts(found.numbers)),
                Column(Arc::new(UInt64Array::from(found.offsets))),
            ))
        })
    }

    /// Released texts from chosen outputs (uint32, by the offsets of `encode`): struct of text and positions.
    #[pyo3(signature = (texts, offsets, choices, input_policy, threads=None))]
    fn assemble(
        &self,
        py: Python<'_>,
        texts: Chunks,
        offsets: Chunks,
        choices: Chunks,
        input_policy: &str,
        threads: Option<usize>,
    ) -> PyResult<Column> {
        detached(py, || {
            let (policy, texts) = (InputPolicy::from_json(input_policy)?, Strings::new(&texts.0)?);
            let offsets = numbers::<u64>(&offsets, "offsets of uint64")?;
            let choices = numbers::<u32>(&choices, "choices of uint32")?;
            released(encode::assemble(&self.0, &policy, &texts, &offsets, &choices, threads::count(threads)?)?)
        })
    }

    /// How many draws each text is charged.
    #[pyo3(signature = (texts, input_policy, threads=None))]
    fn positions(&self, py: Python<'_>, texts: Chunks, input_policy: &str, threads: Option<usize>) -> PyResult<Column> {
        detached(py, || {
            let (policy, texts) = (InputPolicy::from_json(input_policy)?, Strings::new(&texts.0)?);
            release::positions(&self.0, &policy, &texts, threads::count(threads)?).map(|rows| Column(counts(rows)))
        })
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyVocabulary>()
}
