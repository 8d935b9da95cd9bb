//! Arrow columns in and out of Python by the Arrow PyCapsule interface.

use std::ffi::CStr;

use arrow::array::{Array, FixedSizeBinaryArray};
use arrow::datatypes::{ArrowDataType, Field};
use arrow::ffi;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyString, PyTuple};

use crate::errors::{Error, Result};
use crate::panics;

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";
const STREAM: &CStr = c"arrow_array_stream";

/// The chunks of a column handed over by Python.
pub struct Chunks(pub Vec<Box<dyn Array>>);

impl<'a, 'py> FromPyObject<'a, 'py> for Chunks {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        // The Arrow reader panics at layouts that it does not know.
        panics::caught(|| Ok(Self::read(object))).unwrap_or_else(|_| Err(unreadable(())))
    }
}

impl Chunks {
    fn read(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if object.hasattr("__arrow_c_array__")? {
            let pair = object.call_method0("__arrow_c_array__")?.cast_into::<PyTuple>()?;
            let (schema, array) = pair.extract::<(Bound<'_, PyCapsule>, Bound<'_, PyCapsule>)>()?;
            return Ok(Self(vec![array_from(&schema, &array)?]));
        }
        if object.hasattr("__arrow_c_stream__")? {
            return stream_from(&object.call_method0("__arrow_c_stream__")?.cast_into::<PyCapsule>()?).map(Self);
        }
        Err(PyTypeError::new_err(format!(
            "a column is an Arrow array (pyarrow.Array, pyarrow.ChunkedArray, polars.Series); got {}",
            object.get_type().name()?
        )))
    }
}

/// Messages of the Arrow reader are dropped: they may quote.
fn unreadable<E>(_: E) -> PyErr {
    PyValueError::new_err(
        "an Arrow column is of a type that the kernel cannot read\n\
         Hint: cast it first; texts are strings, 256-bit decimals become 128-bit ones or strings",
    )
}

fn array_from(schema: &Bound<'_, PyCapsule>, array: &Bound<'_, PyCapsule>) -> PyResult<Box<dyn Array>> {
    let schema = schema.pointer_checked(Some(SCHEMA))?.cast::<ffi::ArrowSchema>();
    let array = array.pointer_checked(Some(ARRAY))?.cast::<ffi::ArrowArray>();
    // SAFETY: by the PyCapsule interface the two names stand for valid structs of these types, alive while the
    // capsules are; the array is moved out and an empty one, already released, is left in its place.
    unsafe {
        let field = ffi::import_field_from_c(schema.as_ref()).map_err(unreadable)?;
        let array = array.replace(ffi::ArrowArray::empty());
        ffi::import_array_from_c(array, field.dtype).map_err(unreadable)
    }
}

fn stream_from(stream: &Bound<'_, PyCapsule>) -> PyResult<Vec<Box<dyn Array>>> {
    let stream = stream.pointer_checked(Some(STREAM))?.cast::<ffi::ArrowArrayStream>();
    let mut chunks = Vec::new();
    // SAFETY: by the PyCapsule interface the name stands for a valid stream; it is moved out and an empty one,
    // already released, is left in its place. The reader releases it when it is dropped.
    unsafe {
        let stream = Box::new(stream.replace(ffi::ArrowArrayStream::empty()));
        let mut reader = ffi::ArrowArrayStreamReader::try_new(stream).map_err(unreadable)?;
        let empty = arrow::array::new_empty_array(reader.field().dtype.clone());
        while let Some(chunk) = reader.next() {
            chunks.push(chunk.map_err(unreadable)?);
        }
        if chunks.is_empty() {
            chunks.push(empty);
        }
    }
    Ok(chunks)
}

/// A text handed over by Python; unpaired surrogates are refused without the exception that would hold the text.
pub struct Text(pub String);

impl<'a, 'py> FromPyObject<'a, 'py> for Text {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let text = object.cast::<PyString>().map_err(|_| PyTypeError::new_err("a text is a str"))?;
        text.to_str()
            .map(|text| Self(text.to_owned()))
            .map_err(|_| PyValueError::new_err("a text holds characters that are not Unicode (unpaired surrogates)"))
    }
}

/// A column of the kernel: `pa.array(column)` and `pl.Series(column)` take it without a copy.
#[pyclass(frozen, module = "dptext_etl._kernel")]
pub struct Column(pub Box<dyn Array>);

#[pymethods]
impl Column {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let field = Field::new("".into(), self.0.dtype().clone(), true);
        PyCapsule::new_with_value(py, ffi::export_field_to_c(&field), SCHEMA)
    }

    #[pyo3(signature = (requested_schema=None))]
    #[allow(unused_variables)]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let array = ffi::export_array_to_c(self.0.clone());
        Ok((self.__arrow_c_schema__(py)?, PyCapsule::new_with_value(py, array, ARRAY)?))
    }
}

/// Rows of 32 bytes.
pub fn hashes(values: Vec<u8>) -> Result<Column> {
    FixedSizeBinaryArray::try_new(ArrowDataType::FixedSizeBinary(32), values.into(), None)
        .map(|array| Column(Box::new(array)))
        .map_err(|_| Error::internal("hashes of another length"))
}
