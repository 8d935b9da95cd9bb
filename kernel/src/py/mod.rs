//! The Python module `dptext_etl._kernel`.

mod arrow_ffi;
mod columns;
mod corpus;
mod csv_rows;
mod draws;
mod id_index;
mod json_rows;
mod keys;
mod near;
mod numbers;
mod scores;
mod table;
mod vocabulary;
mod written;

use std::path::PathBuf;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use rustix::fs::{renameat_with, RenameFlags, CWD};
use rustix::io::Errno;

use self::arrow_ffi::Text;
use crate::errors::{Error, Kind, Result};
use crate::panics;
use crate::text::words;
use crate::threads;

/// Runs `work` without the interpreter's lock; errors become classes of `dptext_etl.errors`, panics lose their text.
fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    py.detach(|| panics::caught(work)).map_err(|error| raised(py, error))
}

/// As `detached`, for work that is too short to hand the lock over, or that touches Python objects.
fn attached<T>(py: Python<'_>, work: impl FnOnce() -> Result<T>) -> PyResult<T> {
    panics::caught(work).map_err(|error| raised(py, error))
}

/// The Python exception for a kernel error; a `ValueError` where the library's own classes cannot be had.
fn raised(py: Python<'_>, error: Error) -> PyErr {
    let class = match error.kind {
        Kind::Key => "KeyReferenceError",
        Kind::Artifact => "ArtifactError",
        Kind::Input => "InputError",
        Kind::Policy => "PolicyError",
        Kind::Internal => return PyRuntimeError::new_err(error.to_string()),
    };
    let made = py
        .import("dptext_etl.errors")
        .and_then(|errors| errors.getattr(class))
        .and_then(|class| class.call1((error.message.as_ref(), error.hint.as_deref())));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(_) => PyValueError::new_err(error.to_string()),
    }
}

/// All segments of a text with whether each is a word; joined they are the text.
#[pyfunction]
fn split(py: Python<'_>, text: Text) -> PyResult<Vec<(String, bool)>> {
    detached(py, || Ok(words::segments(&text.0).map(|(segment, is_word)| (segment.to_owned(), is_word)).collect()))
}

/// Says that one more piece of work runs next to others in this process, each with its share of the threads.
#[pyfunction]
fn begin_sharing() {
    threads::begin_sharing();
}

/// Says that a parallel piece of work has ended.
#[pyfunction]
fn end_sharing() {
    threads::end_sharing();
}

/// Exchanges two files or folders in one step, and returns whether the file system can do so.
#[pyfunction]
fn exchange(one: PathBuf, other: PathBuf) -> PyResult<bool> {
    match renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(true),
        Err(Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(std::io::Error::from(error).into()),
    }
}

/// Panics on purpose, for the test that shows what of it can be seen.
#[pyfunction]
#[allow(clippy::panic)]
fn _defect(py: Python<'_>, message: &str) -> PyResult<()> {
    detached(py, || panic!("{message}"))
}

#[pymodule]
fn _kernel(module: &Bound<'_, PyModule>) -> PyResult<()> {
    panics::install_hook();
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add("UNICODE_VERSION", words::unicode_version())?;
    module.add_function(wrap_pyfunction!(split, module)?)?;
    module.add_function(wrap_pyfunction!(begin_sharing, module)?)?;
    module.add_function(wrap_pyfunction!(end_sharing, module)?)?;
    module.add_function(wrap_pyfunction!(exchange, module)?)?;
    module.add_function(wrap_pyfunction!(_defect, module)?)?;
    keys::register(module)?;
    draws::register(module)?;
    id_index::register(module)?;
    columns::register(module)?;
    corpus::register(module)?;
    csv_rows::register(module)?;
    json_rows::register(module)?;
    near::register(module)?;
    scores::register(module)?;
    table::register(module)?;
    vocabulary::register(module)?;
    written::register(module)
}
