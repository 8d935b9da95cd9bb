//! Draws by distance and uniforms of many draws, in Python; numbers come and go as Arrow arrays.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float32Type, Float64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, PrimitiveArray};
use arrow_buffer::ArrowNativeType;
use pyo3::prelude::*;

use super::arrow_ffi::{Chunks, Column};
use super::detached;
use crate::columns::c_data::type_name;
use crate::draw::near::{self, Block, Law};
use crate::draw::occurrences::Occurrences;
use crate::draw::radial;
use crate::draw::uniforms::{choices, signed_uniforms};
use crate::errors::{Error, Result};
use crate::threads;

/// The array's only chunk.
fn only<'a>(chunks: &'a Chunks, what: &str) -> Result<&'a dyn Array> {
    match chunks.0.chunks.as_slice() {
        [array] if array.null_count() == 0 => Ok(array.as_ref()),
        _ => Err(Error::input(format!("{what} come in one chunk without nulls"))),
    }
}

/// A number that Arrow has an array type for.
pub trait Number: ArrowNativeType {
    type Arrow: ArrowPrimitiveType<Native = Self>;
}

impl Number for f32 {
    type Arrow = Float32Type;
}

impl Number for f64 {
    type Arrow = Float64Type;
}

impl Number for u32 {
    type Arrow = UInt32Type;
}

impl Number for u64 {
    type Arrow = UInt64Type;
}

/// The numbers of an array of one type.
pub fn numbers<'a, T: Number>(chunks: &'a Chunks, what: &str) -> Result<&'a [T]> {
    let array = only(chunks, what)?;
    let wrong = || Error::input(format!("{what} are of another type; got {}", type_name(&chunks.0.field)));
    array.as_primitive_opt::<T::Arrow>().map(|array| array.values().as_ref()).ok_or_else(wrong)
}

pub fn keys(chunks: &Chunks) -> Result<&[[u8; 32]]> {
    let array = only(chunks, "record keys")?.as_fixed_size_binary_opt();
    let wrong = || Error::input("record keys are fixed-size binary rows of 32 bytes");
    let array = array.filter(|array| array.value_length() == 32).ok_or_else(wrong)?;
    Ok(array.value_data().as_chunks().0)
}

pub fn column<T: Number>(values: Vec<T>) -> Column {
    Column(Arc::new(PrimitiveArray::<T::Arrow>::from_iter_values(values)))
}

/// Minus the distance to every word as the score of the exponential mechanism: integer weights, and draws from them.
#[pyclass(frozen, module = "dptext_etl._kernel")]
struct NearLaw(Law);

#[pymethods]
impl NearLaw {
    #[new]
    fn new(
        py: Python<'_>,
        column_norms: Chunks,
        scale: f64,
        epsilon: f64,
        diameter: f64,
        least: u64,
    ) -> PyResult<Self> {
        detached(py, || {
            Law::new(numbers(&column_norms, "squared lengths")?.to_vec(), scale, epsilon, diameter, least).map(Self)
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
            let weights = match numbers::<f32>(&products, "products") {
                Ok(products) => near::weights(&self.0, &Block::new(&self.0, products, norms)?, threads),
                Err(_) => {
                    let products = numbers::<f64>(&products, "products")?;
                    near::weights(&self.0, &Block::new(&self.0, products, norms)?, threads)
                }
            }?;
            Ok(column(weights))
        })
    }

    /// The word that every occurrence draws from the weights of its row.
    #[pyo3(signature = (products, row_norms, rows, record_keys, records, positions, purpose=1, threads=None))]
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
    ) -> PyResult<Column> {
        detached(py, || {
            let (norms, threads) = (numbers(&row_norms, "squared lengths")?, threads::count(threads)?);
            let (rows, keys) = (numbers(&rows, "rows")?, keys(&record_keys)?);
            let draws = Occurrences::new(keys, numbers(&records, "records")?, numbers(&positions, "positions")?)?;
            let choices = match numbers::<f32>(&products, "products") {
                Ok(products) => {
                    near::draw(&self.0, &Block::new(&self.0, products, norms)?, rows, &draws, purpose, threads)
                }
                Err(_) => {
                    let products = numbers::<f64>(&products, "products")?;
                    near::draw(&self.0, &Block::new(&self.0, products, norms)?, rows, &draws, purpose, threads)
                }
            }?;
            Ok(column(choices))
        })
    }
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
        let keys = keys(&record_keys)?;
        let draws = Occurrences::new(keys, numbers(&records, "records")?, numbers(&positions, "positions")?)?;
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
        let keys = keys(&record_keys)?;
        let draws = Occurrences::new(keys, numbers(&records, "records")?, numbers(&positions, "positions")?)?;
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
        let keys = keys(&record_keys)?;
        let draws = Occurrences::new(keys, numbers(&records, "records")?, numbers(&positions, "positions")?)?;
        radial::radial_noise(&draws, purpose, dimensions, threads::count(threads)?).map(column)
    })
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<NearLaw>()?;
    module.add_function(wrap_pyfunction!(uniforms, module)?)?;
    module.add_function(wrap_pyfunction!(radial_noise, module)?)?;
    module.add_function(wrap_pyfunction!(uniform_choices, module)?)
}
