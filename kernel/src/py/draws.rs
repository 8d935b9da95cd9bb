//! Words and draws of one record, for tests and for samplers on the Python side.

use pyo3::prelude::*;

use super::detached;
use crate::draw::gaussian;
use crate::draw::laplace;
use crate::draw::sampler::Draws;
use crate::draw::stream::{keystream, Stream};
use crate::draw::weights::{running_sums, Weights};
use crate::errors::{Error, Result};
use crate::keys::secrets::Key;

pub fn record_key(bytes: &[u8]) -> Result<Key> {
    let mut key = Key::default();
    if bytes.len() != key.len() {
        return Err(Error::input(format!("a record key has 32 bytes; got {}", bytes.len())));
    }
    key.copy_from_slice(bytes);
    Ok(key)
}

/// Words `first_word ..` of ChaCha20 under the nonce `u32(purpose) || u64(position)`.
#[pyfunction]
fn stream_words(
    py: Python<'_>,
    record_key: &[u8],
    purpose: u32,
    position: u64,
    first_word: u64,
    n: usize,
) -> PyResult<Vec<u64>> {
    detached(py, || {
        let mut out = vec![0; n];
        keystream(&*self::record_key(record_key)?, purpose, position, first_word, &mut out)?;
        Ok(out)
    })
}

/// An integer below `bound`, from slot word 0 of a position.
#[pyfunction]
fn below(py: Python<'_>, record_key: &[u8], purpose: u32, position: u64, bound: u64, width: usize) -> PyResult<u64> {
    detached(py, || {
        let key = self::record_key(record_key)?;
        let mut draws = Draws::new(Stream::new(&key, purpose)?, width);
        let mut slot = vec![0; width.max(1)];
        draws.slots(position, &mut slot)?;
        draws.uniform(position, &slot, bound)
    })
}

/// The index drawn at a position from integer weights; two levels above 4,096.
#[pyfunction]
fn draw(
    py: Python<'_>,
    record_key: &[u8],
    purpose: u32,
    position: u64,
    weights: Vec<u64>,
    width: usize,
) -> PyResult<usize> {
    let drawn = draw_positions(py, record_key, purpose, position, 1, weights, width)?;
    drawn.first().copied().ok_or_else(|| super::raised(py, Error::internal("nothing was drawn")))
}

/// The indices drawn at `count` positions from `first` on.
#[pyfunction]
fn draw_positions(
    py: Python<'_>,
    record_key: &[u8],
    purpose: u32,
    first: u64,
    count: usize,
    weights: Vec<u64>,
    width: usize,
) -> PyResult<Vec<usize>> {
    detached(py, || {
        let key = self::record_key(record_key)?;
        let sums = running_sums(&weights)?;
        let mut draws = Draws::new(Stream::new(&key, purpose)?, width);
        let width = width.max(1);
        let mut slots = vec![0; count.checked_mul(width).ok_or_else(|| Error::input("too many positions"))?];
        draws.slots(first, &mut slots)?;
        (first..)
            .zip(slots.chunks_exact(width))
            .map(|(position, slot)| draws.choose(position, slot, Weights::from_running(&sums)))
            .collect()
    })
}

/// The discrete Laplace draw of rate `num / den` at a position: an integer, only from the overflow words.
#[pyfunction]
fn discrete_laplace(
    py: Python<'_>,
    record_key: &[u8],
    purpose: u32,
    position: u64,
    num: u64,
    den: u64,
) -> PyResult<i64> {
    let drawn = discrete_laplaces(py, record_key, purpose, position, 1, num, den)?;
    drawn.first().copied().ok_or_else(|| super::raised(py, Error::internal("nothing was drawn")))
}

/// The discrete Laplace draws at `count` positions from `first` on.
#[pyfunction]
fn discrete_laplaces(
    py: Python<'_>,
    record_key: &[u8],
    purpose: u32,
    first: u64,
    count: u64,
    num: u64,
    den: u64,
) -> PyResult<Vec<i64>> {
    detached(py, || {
        let key = self::record_key(record_key)?;
        let stream = Stream::new(&key, purpose)?;
        let end = first.checked_add(count).ok_or_else(|| Error::input("a position is too large"))?;
        (first..end).map(|position| laplace::discrete_laplace(num, den, &mut stream.overflow(position))).collect()
    })
}

/// The discrete Gaussian draws of variance `num / den` at `count` positions from `first` on, only from overflow words.
#[pyfunction]
fn discrete_gaussians(
    py: Python<'_>,
    record_key: &[u8],
    purpose: u32,
    first: u64,
    count: u64,
    num: u64,
    den: u64,
) -> PyResult<Vec<i64>> {
    detached(py, || {
        let key = self::record_key(record_key)?;
        let stream = Stream::new(&key, purpose)?;
        let end = first.checked_add(count).ok_or_else(|| Error::input("a position is too large"))?;
        (first..end).map(|position| gaussian::discrete_gaussian(num, den, &mut stream.overflow(position))).collect()
    })
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(stream_words, module)?)?;
    module.add_function(wrap_pyfunction!(below, module)?)?;
    module.add_function(wrap_pyfunction!(draw, module)?)?;
    module.add_function(wrap_pyfunction!(draw_positions, module)?)?;
    module.add_function(wrap_pyfunction!(discrete_laplace, module)?)?;
    module.add_function(wrap_pyfunction!(discrete_laplaces, module)?)?;
    module.add_function(wrap_pyfunction!(discrete_gaussians, module)?)
}
