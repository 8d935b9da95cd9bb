//! Numbers and record keys between Arrow arrays and slices.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int16Type, Int64Type, Int8Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, PrimitiveArray};
use arrow_buffer::ArrowNativeType;

use super::arrow_ffi::{Chunks, Column};
use crate::columns::c_data::type_name;
use crate::draw::occurrences::Occurrences;
use crate::errors::{Error, Result};

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

impl Number for i8 {
    type Arrow = Int8Type;
}

impl Number for i16 {
    type Arrow = Int16Type;
}

impl Number for i64 {
    type Arrow = Int64Type;
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

/// The record keys of an array.
pub fn keys(chunks: &Chunks) -> Result<&[[u8; 32]]> {
    let array = only(chunks, "record keys")?.as_fixed_size_binary_opt();
    let wrong = || Error::input("record keys are fixed-size binary rows of 32 bytes");
    let array = array.filter(|array| array.value_length() == 32).ok_or_else(wrong)?;
    Ok(array.value_data().as_chunks().0)
}

/// An Arrow array of numbers.
pub fn column<T: Number>(values: Vec<T>) -> Column {
    Column(Arc::new(PrimitiveArray::<T::Arrow>::new(values.into(), None)))
}

/// Draws of many records: the record and the position of each, and the keys of the records.
pub fn occurrences<'a>(record_keys: &'a Chunks, records: &'a Chunks, positions: &'a Chunks) -> Result<Occurrences<'a>> {
    Occurrences::new(keys(record_keys)?, numbers(records, "records")?, numbers(positions, "positions")?)
}
