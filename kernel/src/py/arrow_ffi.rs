//! Arrow columns in and out of Python by the Arrow PyCapsule interface.

use std::ffi::CStr;

use std::sync::Arc;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{Array, ArrayRef, FixedSizeBinaryArray};
use arrow_buffer::Buffer;
use arrow_schema::Field;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyString, PyTuple};

use crate::columns::c_data::{self, Chunked, Unreadable};
use crate::errors::{Error, Result};
use crate::panics;

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";
const STREAM: &CStr = c"arrow_array_stream";

/// A column handed over by Python.
pub struct Chunks(pub Chunked);

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
            return array_from(&schema, &array).map(Self);
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

fn array_from(schema: &Bound<'_, PyCapsule>, array: &Bound<'_, PyCapsule>) -> PyResult<Chunked> {
    let schema = schema.pointer_checked(Some(SCHEMA))?.cast::<FFI_ArrowSchema>();
    let array = array.pointer_checked(Some(ARRAY))?.cast::<FFI_ArrowArray>();
    // SAFETY: by the PyCapsule interface the two names stand for valid structs of these types, alive while the
    // capsules are; the array is moved out and an empty one, already released, is left in its place.
    unsafe {
        let mut column = of_type(schema.as_ref())?;
        column.push(FFI_ArrowArray::from_raw(array.as_ptr())).map_err(unreadable)?;
        Ok(column)
    }
}

fn stream_from(stream: &Bound<'_, PyCapsule>) -> PyResult<Chunked> {
    let stream = stream.pointer_checked(Some(STREAM))?.cast::<FFI_ArrowArrayStream>();
    // SAFETY: by the PyCapsule interface the name stands for a valid stream; it is moved out and an empty one, already
    // released, is left in its place. The stream is released when it is dropped.
    let mut stream = unsafe { FFI_ArrowArrayStream::from_raw(stream.as_ptr()) };
    let (Some(get_schema), Some(get_next)) = (stream.get_schema(), stream.get_next()) else {
        return Err(unreadable(Unreadable)); // it was read before
    };
    let mut schema = FFI_ArrowSchema::empty();
    // SAFETY: the stream is alive, and a schema may be written over an empty one.
    if unsafe { get_schema(&raw mut stream, &raw mut schema) } != 0 {
        return Err(unreadable(Unreadable));
    }
    let mut column = of_type(&schema)?;
    loop {
        let mut array = FFI_ArrowArray::empty();
        // SAFETY: the stream is alive, and an array may be written over an empty one.
        if unsafe { get_next(&raw mut stream, &raw mut array) } != 0 {
            return Err(unreadable(Unreadable));
        }
        if array.is_released() {
            return Ok(column.or_empty()); // the stream's end
        }
        // SAFETY: the stream gives arrays of its schema's type.
        unsafe { column.push(array) }.map_err(unreadable)?;
    }
}

fn of_type(schema: &FFI_ArrowSchema) -> PyResult<Chunked> {
    let field = c_data::field(schema).map_err(unreadable)?;
    Ok(Chunked { field: Arc::new(field), chunks: Vec::new() })
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
pub struct Column(pub ArrayRef);

#[pymethods]
impl Column {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let field = Field::new("", self.0.data_type().clone(), true);
        let schema = FFI_ArrowSchema::try_from(field).map_err(unreadable)?;
        PyCapsule::new_with_value(py, schema, SCHEMA)
    }

    #[pyo3(signature = (requested_schema=None))]
    #[allow(unused_variables)]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let array = FFI_ArrowArray::new(&self.0.to_data());
        Ok((self.__arrow_c_schema__(py)?, PyCapsule::new_with_value(py, array, ARRAY)?))
    }
}

/// Rows of 32 bytes.
pub fn hashes(values: Vec<u8>) -> Result<Column> {
    FixedSizeBinaryArray::try_new(32, Buffer::from_vec(values), None)
        .map(|array| Column(Arc::new(array)))
        .map_err(|_| Error::internal("hashes of another length"))
}
