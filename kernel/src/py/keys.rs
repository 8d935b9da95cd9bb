//! Secrets and release keys in Python: opaque, unprinted, unpickled.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::arrow_ffi::Text;
use super::{attached, detached};
use crate::keys::secrets::{ReleaseKey, Secret};

/// A secret of 32 bytes.
#[pyclass(frozen, name = "Secret", module = "dptext_etl._kernel")]
pub struct PySecret(pub Arc<Secret>);

#[pymethods]
impl PySecret {
    /// A new secret from the operating system.
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        attached(py, Secret::random).map(|secret| Self(Arc::new(secret)))
    }

    /// The secret behind "env:NAME" or "file:PATH", read once per process unless `reread`.
    #[staticmethod]
    #[pyo3(signature = (reference, *, reread=false))]
    fn resolve(py: Python<'_>, reference: &str, reread: bool) -> PyResult<Self> {
        detached(py, || Secret::resolve(reference, reread)).map(Self)
    }

    /// A secret from its bytes, for tests.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, key: &[u8]) -> PyResult<Self> {
        attached(py, || Secret::from_bytes(key)).map(|secret| Self(Arc::new(secret)))
    }

    /// Writes the secret to a new file that its owner alone may read.
    fn write(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        detached(py, || self.0.write(path))
    }

    /// Whether the key is printed in documents.
    #[getter]
    fn published(&self) -> bool {
        self.0.published()
    }

    /// A key for another use: label "canary" or "seal".
    fn derive<'py>(&self, py: Python<'py>, label: &str, message: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        attached(py, || self.0.derive(label, message)).map(|key| PyBytes::new(py, key.as_slice()))
    }

    fn __repr__(&self) -> &'static str {
        "Secret(...)"
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a Secret is never pickled or copied\nHint: send its reference, \"env:NAME\" or \"file:PATH\", instead",
        ))
    }
}

/// The key of one release of one column.
#[pyclass(frozen, name = "ReleaseKey", module = "dptext_etl._kernel")]
pub struct PyReleaseKey(pub Arc<ReleaseKey>);

#[pymethods]
impl PyReleaseKey {
    #[new]
    fn new(py: Python<'_>, secret: &PySecret, dataset: &str, column: &str, release: &str, cfg: &str) -> PyResult<Self> {
        attached(py, || ReleaseKey::new(&secret.0, dataset, column, release, cfg)).map(|key| Self(Arc::new(key)))
    }

    fn __repr__(&self) -> &'static str {
        "ReleaseKey(...)"
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a ReleaseKey is never pickled or copied\nHint: send the policy, which holds a key reference, instead",
        ))
    }
}

/// `H(K_fp, 0x01 || utf8(text))`, or `H(K_fp, 0x00)` for None.
#[pyfunction]
fn fingerprint<'py>(py: Python<'py>, secret: &PySecret, text: Option<Text>) -> PyResult<Bound<'py, PyBytes>> {
    attached(py, || secret.0.fingerprint(text.as_ref().map(|text| text.0.as_bytes())))
        .map(|print| PyBytes::new(py, print.as_slice()))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PySecret>()?;
    module.add_class::<PyReleaseKey>()?;
    module.add_function(wrap_pyfunction!(fingerprint, module)?)
}
