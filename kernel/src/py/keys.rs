//! Secrets and release keys in Python: opaque, unprinted, unpickled.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::arrow_ffi::Text;
use super::{attached, detached};
use crate::errors::{Error, Result};
use crate::keys::releases::ReleaseKey;
use crate::keys::secrets::{ask, Secret};

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

    /// The secret behind a reference ("env:NAME", "file:PATH", or a provider's), read once per process unless `reread`.
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

    /// Writes the secret to a new file that only its owner may read.
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

/// The key that a provider of `dptext_etl.key_providers` holds; the interpreter's lock is taken for it.
fn provided(reference: &str) -> Result<Secret> {
    Python::attach(|py| {
        let key =
            py.import("dptext_etl.key_providers").and_then(|module| module.call_method1("provided", (reference,)));
        let key = key.map_err(|failure| {
            let said = |name: &str| failure.value(py).getattr(name).and_then(|part| part.extract::<String>());
            match (said("message"), said("hint")) {
                (Ok(message), Ok(hint)) => Error::key(message).hint(hint),
                _ => {
                    Error::key("a key provider failed").hint("what it said is not shown, because it may hold a secret")
                }
            }
        })?;
        let bytes = key.cast::<PyBytes>().map_err(|_| Error::key("a key provider returned no bytes"))?;
        Secret::from_bytes(bytes.as_bytes())
    })
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    ask(provided);
    module.add_class::<PySecret>()?;
    module.add_class::<PyReleaseKey>()?;
    module.add_function(wrap_pyfunction!(fingerprint, module)?)
}
