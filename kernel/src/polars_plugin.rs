//! Polars' interface to expression plugins, version 0.1, spoken directly.
//!
//! Facts, from the published sources of Polars 2.1 (`polars-ffi` 0.55 `version_0.rs`, `polars-plan` 0.55 `plugin.rs`) and
//! of `pyo3-polars-derive` 0.22:
//!
//! * A plugin exports `_polars_plugin_get_version` (major << 16 | minor), `_polars_plugin_get_last_error_message` (a C
//!   string of the calling thread), and per expression `_polars_plugin_<name>` and `_polars_plugin_field_<name>`.
//! * A series crosses as a [`SeriesExport`]. The importer removes every array and releases it; `release` then
//!   frees the schema and the boxes that held the arrays, and leaves the arrays in place.
//! * Inputs are the plugin's once it is called. Schemas given to the field function stay the caller's.
//! * Keyword arguments arrive pickled. An output that stays empty means failure: Polars then asks for the message.

use std::cell::RefCell;
use std::ffi::{c_char, c_void, CString};
use std::mem::ManuallyDrop;
use std::sync::Arc;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Field};
use serde::de::DeserializeOwned;

use crate::columns::c_data::{self, Chunked};
use crate::errors::{Error, Result};
use crate::panics;

/// Version 0.1 of the interface.
const VERSION: u32 = 1;

/// A series as it crosses between Polars and a plugin.
#[repr(C)]
pub struct SeriesExport {
    field: *mut FFI_ArrowSchema,
    arrays: *mut *mut FFI_ArrowArray,
    len: usize,
    release: Option<unsafe extern "C" fn(*mut SeriesExport)>,
    private_data: *mut c_void,
}

impl Drop for SeriesExport {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            // SAFETY: the maker of the export set `release` for exactly this call; it is taken, so it runs once.
            unsafe { release(self) }
        }
    }
}

/// What Polars says about a call.
#[repr(C)]
pub struct CallerContext {
    bits: u64,
}

impl CallerContext {
    /// Whether Polars runs the expression in parallel itself.
    pub fn parallel(&self) -> bool {
        self.bits & 1 == 1
    }
}

/// An input of an expression. Its arrays are released when they were read and dropped, or with the input.
pub struct Input(ManuallyDrop<SeriesExport>);

impl Input {
    /// Takes the inputs of a call.
    ///
    /// # Safety
    /// `inputs` points to `len` exports that Polars hands over, and nothing else uses them.
    unsafe fn all(inputs: *mut SeriesExport, len: usize) -> Vec<Self> {
        // SAFETY: the caller's promise; Polars forgets its own copies.
        (0..len).map(|i| Self(ManuallyDrop::new(unsafe { inputs.add(i).read() }))).collect()
    }

    fn arrays(&self) -> &[*mut FFI_ArrowArray] {
        if self.0.len == 0 {
            return &[];
        }
        // SAFETY: an export holds `len` pointers to arrays until it is released.
        unsafe { std::slice::from_raw_parts(self.0.arrays, self.0.len) }
    }

    /// The column; its arrays leave the input.
    pub fn read(&mut self) -> Result<Chunked> {
        // SAFETY: an export holds a valid schema until it is released.
        let field = field_of(unsafe { &*self.0.field })?;
        let mut column = Chunked { field: Arc::new(field), chunks: Vec::with_capacity(self.0.len) };
        for &array in self.arrays() {
            // SAFETY: the pointer is valid and the array of the schema's type; an empty one, already released, is left
            // in its place, so nothing is released twice.
            unsafe { column.push(FFI_ArrowArray::from_raw(array)) }.map_err(|_| unreadable())?;
        }
        Ok(column)
    }

    /// The input as an output, untouched.
    pub fn forward(self) -> SeriesExport {
        let this = ManuallyDrop::new(self);
        // SAFETY: the export is moved out of an input that is never used or dropped again.
        unsafe { std::ptr::read(&raw const *this.0) }
    }
}

/// Name and type of a column of Polars.
pub fn field_of(schema: &FFI_ArrowSchema) -> Result<Field> {
    let field = c_data::field(schema).map_err(|_| unreadable())?;
    if matches!(field.data_type(), DataType::FixedSizeBinary(_)) && c_data::extension(&field).is_none() {
        // Polars itself has no such type: these are addresses, which differ in every evaluation.
        return Err(Error::input("a column holds Python objects, which have no value that stays the same")
            .hint("make it a column of strings, integers or binary first"));
    }
    Ok(field)
}

/// What is said of a column of another type.
pub fn unreadable() -> Error {
    Error::input("a column is of a type that the kernel cannot read")
        .hint("cast it first; texts are strings, 256-bit decimals become 128-bit ones or strings")
}

impl Drop for Input {
    fn drop(&mut self) {
        for &array in self.arrays() {
            // SAFETY: the pointer is valid; arrays that were read left an empty one behind, which releases nothing.
            drop(unsafe { FFI_ArrowArray::from_raw(array) });
        }
        // SAFETY: dropped once, here; then the export frees its schema and its boxes.
        unsafe { ManuallyDrop::drop(&mut self.0) }
    }
}

/// The data behind an export of ours.
struct Output {
    schema: FFI_ArrowSchema,
    /// The importer of the series removes and releases it.
    array: ManuallyDrop<FFI_ArrowArray>,
    arrays: [*mut FFI_ArrowArray; 1],
}

/// A series of one chunk for Polars.
pub fn export(name: &str, array: &ArrayRef) -> Result<SeriesExport> {
    let output = Box::into_raw(Box::new(Output {
        schema: schema(&Field::new(name, array.data_type().clone(), true))?,
        array: ManuallyDrop::new(FFI_ArrowArray::new(&array.to_data())),
        arrays: [std::ptr::null_mut()],
    }));
    // SAFETY: `output` was just made; its parts stay where they are until `release_output` takes the box back.
    unsafe {
        (*output).arrays = [(&raw mut (*output).array).cast::<FFI_ArrowArray>()];
        Ok(SeriesExport {
            field: &raw mut (*output).schema,
            arrays: (&raw mut (*output).arrays).cast(),
            len: 1,
            release: Some(release_output),
            private_data: output.cast(),
        })
    }
}

/// Frees the data behind an export of ours, except the array, which the importer of the series owns.
unsafe extern "C" fn release_output(series: *mut SeriesExport) {
    // SAFETY: `export` set this function together with a box of this type, and it is called once.
    drop(unsafe { Box::from_raw((*series).private_data.cast::<Output>()) });
}

/// A field for Polars.
pub fn schema(field: &Field) -> Result<FFI_ArrowSchema> {
    FFI_ArrowSchema::try_from(field).map_err(|_| Error::internal("a field cannot be handed to Polars"))
}

/// Runs an expression: its output is written, or the thread's message is set.
///
/// # Safety
/// The pointers come from a call of Polars; `kwargs` may be null where `kwargs_len` is 0.
pub unsafe fn call(
    inputs: *mut SeriesExport,
    inputs_len: usize,
    output: *mut SeriesExport,
    expression: impl FnOnce(Vec<Input>) -> Result<SeriesExport>,
) {
    panics::install_hook();
    // SAFETY: the caller's promise.
    let inputs = unsafe { Input::all(inputs, inputs_len) };
    match panics::caught(|| expression(inputs)) {
        // SAFETY: Polars gives a valid, empty export to write to.
        Ok(series) => unsafe { *output = series },
        Err(error) => set_message(&error),
    }
}

/// Says the type of an expression's output: it is written, or the thread's message is set.
///
/// # Safety
/// The pointers come from a call of Polars.
pub unsafe fn call_field(
    fields: *const FFI_ArrowSchema,
    fields_len: usize,
    output: *mut FFI_ArrowSchema,
    output_field: impl FnOnce(&[FFI_ArrowSchema]) -> Result<Field>,
) {
    panics::install_hook();
    // SAFETY: Polars gives `fields_len` valid schemas, which stay its own.
    let fields = if fields_len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(fields, fields_len) } };
    match panics::caught(|| output_field(fields).and_then(|field| schema(&field))) {
        // SAFETY: Polars gives a valid, empty schema to write to.
        Ok(schema) => unsafe { *output = schema },
        Err(error) => set_message(&error),
    }
}

/// The keyword arguments of a call.
///
/// # Safety
/// `bytes` points to `len` bytes, or `len` is 0.
pub unsafe fn arguments<T: DeserializeOwned>(bytes: *const u8, len: usize) -> Result<T> {
    // SAFETY: the caller's promise.
    let bytes = if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(bytes, len) } };
    serde_pickle::from_slice(bytes, serde_pickle::DeOptions::default())
        .map_err(|_| Error::internal("the plugin's arguments are of another version than the plugin"))
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// The message that Polars raises; it names no text, as all errors of the kernel.
fn set_message(error: &Error) {
    let message = CString::new(error.to_string().replace('\0', "")).unwrap_or_default();
    MESSAGE.with(|slot| *slot.borrow_mut() = message);
}

/// The interface's version.
#[no_mangle]
pub extern "C" fn _polars_plugin_get_version() -> u32 {
    VERSION
}

/// The calling thread's last message, valid until the thread's next failure.
#[no_mangle]
pub extern "C" fn _polars_plugin_get_last_error_message() -> *const c_char {
    MESSAGE.with(|slot| slot.borrow().as_ptr())
}
