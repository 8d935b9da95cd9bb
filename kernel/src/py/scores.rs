//! Draws from scores and noise of latents in Python; numbers come and go as Arrow arrays.

use pyo3::prelude::*;

use super::arrow_ffi::{Chunks, Column};
use super::detached;
use super::numbers::{column, keys, numbers, occurrences};
use crate::draw::latents::{self, Clip, Noise, Norm};
use crate::draw::scores::{self, Law};
use crate::draw::uniforms;
use crate::errors::{Error, Result};
use crate::threads;

/// One id per row of `m` scores from the exponential mechanism, by the slot of each row.
#[pyfunction]
#[pyo3(signature = (scores, m, epsilon, low, high, least, record_keys, records, positions, purpose=1, threads=None))]
#[allow(clippy::too_many_arguments)]
fn choose_scores(
    py: Python<'_>,
    scores: Chunks,
    m: usize,
    epsilon: f64,
    low: f64,
    high: f64,
    least: u64,
    record_keys: Chunks,
    records: Chunks,
    positions: Chunks,
    purpose: u32,
    threads: Option<usize>,
) -> PyResult<Column> {
    detached(py, || {
        let (law, threads) = (Law::new(m, epsilon, low, high, least)?, threads::count(threads)?);
        let draws = occurrences(&record_keys, &records, &positions)?;
        let chosen = match numbers::<f32>(&scores, "scores") {
            Ok(scores) => scores::choose(&law, scores, &draws, purpose, threads),
            Err(_) => scores::choose(&law, numbers::<f64>(&scores, "scores")?, &draws, purpose, threads),
        }?;
        Ok(column(chosen))
    })
}

/// One id per row of `m` scores, each at its own epsilon and least weight.
#[pyfunction]
#[pyo3(signature = (scores, m, epsilons, low, high, leasts, record_keys, records, positions, purpose=1, threads=None))]
#[allow(clippy::too_many_arguments)]
fn choose_scores_each(
    py: Python<'_>,
    scores: Chunks,
    m: usize,
    epsilons: Chunks,
    low: f64,
    high: f64,
    leasts: Chunks,
    record_keys: Chunks,
    records: Chunks,
    positions: Chunks,
    purpose: u32,
    threads: Option<usize>,
) -> PyResult<Column> {
    detached(py, || {
        let (each, least) = (numbers::<f64>(&epsilons, "epsilons")?, numbers::<u64>(&leasts, "least weights")?);
        let draws = occurrences(&record_keys, &records, &positions)?;
        if each.len() != draws.len() || least.len() != draws.len() {
            return Err(Error::input("every draw has its own epsilon and least weight"));
        }
        let laws = each.iter().zip(least).map(|(&epsilon, &least)| Law::new(m, epsilon, low, high, least));
        let (laws, threads) = (laws.collect::<Result<Vec<_>>>()?, threads::count(threads)?);
        let chosen = match numbers::<f32>(&scores, "scores") {
            Ok(scores) => scores::choose_each(&laws, scores, &draws, purpose, threads),
            Err(_) => scores::choose_each(&laws, numbers::<f64>(&scores, "scores")?, &draws, purpose, threads),
        }?;
        Ok(column(chosen))
    })
}

/// The integer weights that `choose_scores` draws from, row after row.
#[pyfunction]
#[pyo3(signature = (scores, m, epsilon, low, high, least, threads=None))]
#[allow(clippy::too_many_arguments)]
fn score_weights(
    py: Python<'_>,
    scores: Chunks,
    m: usize,
    epsilon: f64,
    low: f64,
    high: f64,
    least: u64,
    threads: Option<usize>,
) -> PyResult<Column> {
    detached(py, || {
        let (law, threads) = (Law::new(m, epsilon, low, high, least)?, threads::count(threads)?);
        let weights = match numbers::<f32>(&scores, "scores") {
            Ok(scores) => scores::weights(&law, scores, threads),
            Err(_) => scores::weights(&law, numbers::<f64>(&scores, "scores")?, threads),
        }?;
        Ok(column(weights))
    })
}

/// An integer below each draw's own total from word 0 of its slot; or, for the second level of the same draws, one
/// below `totals` from word 1, once the first level, below `before`, has taken what it needs of the overflow.
#[pyfunction]
#[pyo3(signature = (record_keys, records, positions, purpose, width, totals, before=None, threads=None))]
#[allow(clippy::too_many_arguments)]
fn bounded(
    py: Python<'_>,
    record_keys: Chunks,
    records: Chunks,
    positions: Chunks,
    purpose: u32,
    width: usize,
    totals: Chunks,
    before: Option<Chunks>,
    threads: Option<usize>,
) -> PyResult<Column> {
    detached(py, || {
        let draws = occurrences(&record_keys, &records, &positions)?;
        let totals = numbers(&totals, "totals")?;
        let before = before.as_ref().map(|before| numbers(before, "totals")).transpose()?;
        uniforms::bounded(&draws, purpose, width, totals, before, threads::count(threads)?).map(column)
    })
}

fn norm_named(name: &str) -> Result<Norm> {
    match name {
        "value" => Ok(Norm::Value),
        "l1" => Ok(Norm::L1),
        "l2" => Ok(Norm::L2),
        _ => Err(Error::policy("a clip bounds \"value\", \"l1\" or \"l2\"; got another name")),
    }
}

/// Latents with noise on the grid of 2^-16, row after row of `dimensions` coordinates.
#[pyfunction]
#[pyo3(signature = (latents, dimensions, record_keys, clip=None, norm="value", sigma=None, rate=None, purpose=4, threads=None))]
#[allow(clippy::too_many_arguments)]
fn noisy_latents(
    py: Python<'_>,
    latents: Chunks,
    dimensions: usize,
    record_keys: Chunks,
    clip: Option<f64>,
    norm: &str,
    sigma: Option<f64>,
    rate: Option<(u64, u64)>,
    purpose: u32,
    threads: Option<usize>,
) -> PyResult<Column> {
    detached(py, || {
        let noise = match (sigma, rate) {
            (Some(sigma), None) => Noise::gaussian(sigma)?,
            (None, Some((num, den))) => Noise::laplace(num, den)?,
            _ => {
                return Err(Error::policy(
                    "noise is Gaussian with a sigma, or discrete Laplace with a rate: one of them",
                ))
            }
        };
        let clip = clip.map(|bound| Clip::new(bound, norm_named(norm)?)).transpose()?;
        let (keys, threads) = (keys(&record_keys)?, threads::count(threads)?);
        let noisy = match numbers::<f32>(&latents, "latents") {
            Ok(latents) => latents::noisy(latents, dimensions, keys, purpose, clip, noise, threads),
            Err(_) => {
                latents::noisy(numbers::<f64>(&latents, "latents")?, dimensions, keys, purpose, clip, noise, threads)
            }
        }?;
        Ok(column(noisy))
    })
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(choose_scores, module)?)?;
    module.add_function(wrap_pyfunction!(choose_scores_each, module)?)?;
    module.add_function(wrap_pyfunction!(score_weights, module)?)?;
    module.add_function(wrap_pyfunction!(bounded, module)?)?;
    module.add_function(wrap_pyfunction!(noisy_latents, module)?)
}
