//! Draws by distance, uniforms of many draws and output sets, in Python; numbers come and go as Arrow arrays.

use pyo3::prelude::*;

use super::arrow_ffi::{Chunks, Column};
use super::detached;
use super::numbers::{column, numbers, occurrences};
use crate::draw::distances::Law;
use crate::draw::groups;
use crate::draw::kept::Kept;
use crate::draw::near::{self, Block, Products};
use crate::draw::radial;
use crate::draw::uniforms::{choices, signed_uniforms};
use crate::errors::{Error, Result};
use crate::laws::exact::{within, MOST_DIMENSIONS};
use crate::laws::output_sets::{output_sets as partition, Metric};
use crate::threads;

/// Minus the distance to every word as the score of the exponential mechanism: integer weights, and draws from them.
#[pyclass(frozen, module = "dptext_etl._kernel")]
struct NearLaw(Law, Option<Kept>);

/// Products of either width.
fn either(chunks: &Chunks) -> Result<Products<'_>> {
    let single = numbers(chunks, "products").map(Products::Single);
    single.or_else(|_| numbers(chunks, "products").map(Products::Double))
}

#[pymethods]
impl NearLaw {
    /// With vectors, flat and of this number of dimensions each, rows are kept from call to call.
    #[new]
    #[pyo3(signature = (column_norms, scale, epsilon, diameter, least, vectors=None))]
    fn new(
        py: Python<'_>,
        column_norms: Chunks,
        scale: f64,
        epsilon: f64,
        diameter: f64,
        least: u64,
        vectors: Option<(Chunks, Chunks, usize)>,
    ) -> PyResult<Self> {
        detached(py, || {
            let norms = numbers(&column_norms, "squared lengths")?.to_vec();
            let law = Law::new(norms, scale, epsilon, diameter, least)?;
            let kept = vectors.map(|(inputs, outputs, dimensions)| {
                Kept::new(&law, numbers(&inputs, "vectors")?, numbers(&outputs, "vectors")?, dimensions)
            });
            Ok(Self(law, kept.transpose()?))
        })
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// Words of a slot: 2 above 4,096 words, else 1.
    #[getter]
    fn width(&self) -> usize {
        self.0.width()
    }

    /// The integer weights of every row, one row after the other.
    #[pyo3(signature = (products, row_norms, threads=None))]
    fn weights(&self, py: Python<'_>, products: Chunks, row_norms: Chunks, threads: Option<usize>) -> PyResult<Column> {
        detached(py, || {
            let (norms, threads) = (numbers(&row_norms, "squared lengths")?, threads::count(threads)?);
            let block = Block::new(&self.0, either(&products)?, norms)?;
            near::weights(&self.0, &block, threads).map(column)
        })
    }

    /// The word that every occurrence draws from the weights of its row; `some` are the numbers of those that draw.
    #[pyo3(signature = (products, row_norms, rows, record_keys, records, positions, purpose=1, threads=None, some=None, words=None))]
    #[allow(clippy::too_many_arguments)]
    fn draw(
        &self,
        py: Python<'_>,
        products: Chunks,
        row_norms: Chunks,
        rows: Chunks,
        record_keys: Chunks,
        records: Chunks,
        positions: Chunks,
        purpose: u32,
        threads: Option<usize>,
        some: Option<Chunks>,
        words: Option<Chunks>,
    ) -> PyResult<Column> {
        detached(py, || {
            let (norms, threads) = (numbers(&row_norms, "squared lengths")?, threads::count(threads)?);
            let rows = numbers(&rows, "rows")?;
            let some = some.as_ref().map(|some| numbers::<i64>(some, "numbers of draws")).transpose()?;
            let draws = occurrences(&record_keys, &records, &positions)?;
            let words = words.as_ref().map(|words| numbers(words, "words")).transpose()?;
            let keep = self.1.as_ref().zip(words);
            let block = Block::new(&self.0, either(&products)?, norms)?;
            near::draw(&self.0, &block, rows, &draws, some, purpose, threads, keep).map(column)
        })
    }

    /// 1 for each word whose kept row serves this number of draws, else 0 (uint32).
    fn kept(&self, py: Python<'_>, words: Chunks, counts: Chunks) -> PyResult<Column> {
        detached(py, || {
            let (words, counts) = (numbers(&words, "words")?, numbers(&counts, "counts")?);
            let none = || vec![0; words.len()];
            Ok(column(self.1.as_ref().map_or_else(none, |kept| kept.serves(&self.0, words, counts))))
        })
    }

    /// The word that every occurrence draws from the kept row of its word; `some` are their numbers.
    #[pyo3(signature = (words, record_keys, records, positions, some, purpose=1, threads=None))]
    #[allow(clippy::too_many_arguments)]
    fn draw_kept(
        &self,
        py: Python<'_>,
        words: Chunks,
        record_keys: Chunks,
        records: Chunks,
        positions: Chunks,
        some: Chunks,
        purpose: u32,
        threads: Option<usize>,
    ) -> PyResult<Column> {
        detached(py, || {
            let draws = occurrences(&record_keys, &records, &positions)?;
            let (words, some) = (numbers(&words, "words")?, numbers(&some, "numbers of draws")?);
            let kept = self.1.as_ref().ok_or_else(|| Error::internal("a law without vectors keeps no rows"))?;
            kept.draw(&self.0, words, &draws, some, purpose, threads::count(threads)?).map(column)
        })
    }
}

/// The numbers of draws ordered by word, unknown words (2^32 - 1) last (int64).
#[pyfunction]
fn by_word(py: Python<'_>, words: Chunks) -> PyResult<Column> {
    detached(py, || groups::by_word(numbers(&words, "words")?).map(column))
}

/// `count` signed uniforms of every draw, from the words of its slot from `first` on.
#[pyfunction]
#[pyo3(signature = (record_keys, records, positions, purpose, width, first, count, threads=None))]
#[allow(clippy::too_many_arguments)]
fn uniforms(
    py: Python<'_>,
    record_keys: Chunks,
    records: Chunks,
    positions: Chunks,
    purpose: u32,
    width: usize,
    first: usize,
    count: usize,
    threads: Option<usize>,
) -> PyResult<Column> {
    detached(py, || {
        let draws = occurrences(&record_keys, &records, &positions)?;
        signed_uniforms(&draws, purpose, width, first, count, threads::count(threads)?).map(column)
    })
}

/// An integer below `bound` for every draw, from word 0 of its slot; from the overflow where `width` is 0.
#[pyfunction]
#[pyo3(signature = (record_keys, records, positions, purpose, width, bound, threads=None))]
#[allow(clippy::too_many_arguments)]
fn uniform_choices(
    py: Python<'_>,
    record_keys: Chunks,
    records: Chunks,
    positions: Chunks,
    purpose: u32,
    width: usize,
    bound: u64,
    threads: Option<usize>,
) -> PyResult<Column> {
    detached(py, || {
        let draws = occurrences(&record_keys, &records, &positions)?;
        choices(&draws, purpose, width, bound, threads::count(threads)?).map(column)
    })
}

/// Noise of density exp(-|eta|) for every draw, `dimensions` coordinates each; a slot is 4 words per dimension.
#[pyfunction]
#[pyo3(signature = (record_keys, records, positions, purpose, dimensions, threads=None))]
fn radial_noise(
    py: Python<'_>,
    record_keys: Chunks,
    records: Chunks,
    positions: Chunks,
    purpose: u32,
    dimensions: usize,
    threads: Option<usize>,
) -> PyResult<Column> {
    detached(py, || {
        let draws = occurrences(&record_keys, &records, &positions)?;
        radial::radial_noise(&draws, purpose, dimensions, threads::count(threads)?).map(column)
    })
}

/// Disjoint sets of `k` words, one after the other: the next free word and its nearest free words; the rest comes last.
#[pyfunction]
fn output_sets(py: Python<'_>, vectors: Chunks, dimensions: usize, k: usize, cosine: bool) -> PyResult<Column> {
    detached(py, || {
        let metric = if cosine { Metric::Cosine } else { Metric::Euclidean };
        partition(numbers(&vectors, "vectors")?, dimensions, k, metric).map(column)
    })
}

/// The inner products of all pairs of each set of `members` vectors, exact, one row of a set after the other (float64).
#[pyfunction]
fn products_within(py: Python<'_>, vectors: Chunks, dimensions: usize, members: usize) -> PyResult<Column> {
    detached(py, || {
        let vectors = numbers(&vectors, "vectors")?;
        let sized = (1..MOST_DIMENSIONS).contains(&dimensions) && members > 0;
        if !sized || !vectors.len().is_multiple_of(dimensions * members) {
            return Err(Error::artifact("vectors have from 1 to 65,535 dimensions each, and sets one size"));
        }
        Ok(column(within(vectors, dimensions, members)))
    })
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<NearLaw>()?;
    module.add_function(wrap_pyfunction!(by_word, module)?)?;
    module.add_function(wrap_pyfunction!(uniforms, module)?)?;
    module.add_function(wrap_pyfunction!(radial_noise, module)?)?;
    module.add_function(wrap_pyfunction!(output_sets, module)?)?;
    module.add_function(wrap_pyfunction!(products_within, module)?)?;
    module.add_function(wrap_pyfunction!(uniform_choices, module)?)
}
