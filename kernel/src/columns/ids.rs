//! Record ids as strings (docs/spec/stream.md#record-id): one canonical form per value, whatever the Arrow layout.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowDictionaryKeyType, ArrowPrimitiveType, Date32Type, Date64Type, Decimal128Type, Decimal32Type, Decimal64Type,
    Int16Type, Int32Type, Int64Type, Int8Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt16Type, UInt32Type, UInt64Type, UInt8Type,
};
use arrow_array::{Array, ArrayAccessor, ArrayRef};
use arrow_schema::{DataType, Field, TimeUnit};
use chrono::{DateTime, Datelike, NaiveDate, Timelike};

use crate::columns::c_data::{self, type_name, Chunked};
use crate::columns::strings::{Strings, StringsBuilder, NEVER_NULL};
use crate::errors::{Error, Result};
use crate::keys::canon;
use crate::keys::secrets::hex;

/// How the fields of a composite id are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fields {
    /// A canon array in the order of the fields: for callers that pin that order, as a ledger does.
    InOrder,
    /// A canon object: whatever order the fields have, a record keeps its id.
    ByName,
}

/// Ids of any allowed type as strings; strings are taken as they are, without a copy.
pub fn canonical(column: Chunked, fields: Fields) -> Result<Strings> {
    let strings = matches!(column.field.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let ids = if strings && c_data::extension(&column.field).is_none() {
        Strings::new(&column)?
    } else {
        let chunks = column.chunks.iter().map(|array| canonical_array(&column.field, array, fields));
        let mut texts = Chunked::one(Arc::new(StringsBuilder::default().finish()?));
        texts.chunks = chunks.collect::<Result<_>>()?;
        Strings::new(&texts)?
    };
    ids.expect_no_nulls()?;
    Ok(ids)
}

fn canonical_array(field: &Field, array: &dyn Array, fields: Fields) -> Result<ArrayRef> {
    if nulls(array) > 0 {
        return Err(Error::input(format!("{NEVER_NULL}; got {} nulls", nulls(array)))
            .hint("give every record an id that stays the same in every run"));
    }
    let ids = texts(field, array, fields)?;
    let mut out = StringsBuilder::with_capacity(ids.len(), 16 * ids.len());
    ids.iter().for_each(|id| out.push(id));
    Ok(Arc::new(out.finish()?))
}

/// The rows that are null; every row of an array without a type.
fn nulls(array: &dyn Array) -> usize {
    match array.data_type() {
        DataType::Null => array.len(),
        _ => array.null_count(),
    }
}

fn refused(field: &Field, reason: &str) -> Error {
    Error::input(format!("record ids of type {} are not allowed: {reason}", type_name(field)))
        .hint("use strings, integers, decimals, dates, timestamps with a time zone, binary, or a struct of these")
}

/// The rows of an array without nulls, each as its canonical string.
fn texts(field: &Field, array: &dyn Array, fields: Fields) -> Result<Vec<String>> {
    match c_data::extension(field) {
        Some(c_data::UUID) => return rows(field, array.as_fixed_size_binary_opt(), |id| Some(uuid(id))),
        Some(c_data::INT128) => return wide(field, array, |bytes| i128::from_le_bytes(bytes).to_string()),
        Some(c_data::UINT128) => return wide(field, array, |bytes| u128::from_le_bytes(bytes).to_string()),
        Some(_) => return Err(refused(field, "no canonical form is defined")),
        None => {}
    }
    match field.data_type() {
        DataType::Int8 => whole::<Int8Type>(field, array),
        DataType::Int16 => whole::<Int16Type>(field, array),
        DataType::Int32 => whole::<Int32Type>(field, array),
        DataType::Int64 => whole::<Int64Type>(field, array),
        DataType::UInt8 => whole::<UInt8Type>(field, array),
        DataType::UInt16 => whole::<UInt16Type>(field, array),
        DataType::UInt32 => whole::<UInt32Type>(field, array),
        DataType::UInt64 => whole::<UInt64Type>(field, array),
        DataType::Decimal32(_, scale) => decimals::<Decimal32Type>(field, array, *scale),
        DataType::Decimal64(_, scale) => decimals::<Decimal64Type>(field, array, *scale),
        DataType::Decimal128(_, scale) => decimals::<Decimal128Type>(field, array, *scale),
        DataType::Date32 => each::<Date32Type>(field, array, |days| date(i64::from(days))),
        DataType::Date64 => {
            each::<Date64Type>(field, array, |ms| (ms % 86_400_000 == 0).then_some(ms / 86_400_000).and_then(date))
        }
        DataType::Timestamp(unit, Some(_)) => instants(field, array, *unit),
        DataType::Timestamp(_, None) => Err(refused(field, "without a zone the instant is not known")),
        DataType::Binary => rows(field, array.as_binary_opt::<i32>(), |id| Some(hex(id))),
        DataType::LargeBinary => rows(field, array.as_binary_opt::<i64>(), |id| Some(hex(id))),
        DataType::BinaryView => rows(field, array.as_binary_view_opt(), |id| Some(hex(id))),
        DataType::FixedSizeBinary(_) => rows(field, array.as_fixed_size_binary_opt(), |id| Some(hex(id))),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let strings = Strings::new(&Chunked::one(array.slice(0, array.len())))?;
            (0..strings.len()).map(|i| strings.get(i).map(|id| id.unwrap_or_default().to_owned())).collect()
        }
        DataType::Dictionary(keys, values) => {
            dictionary(field, &c_data::dictionary_values(field, values), array, keys, fields)
        }
        DataType::Struct(_) => composite(field, array, fields),
        DataType::Float16 | DataType::Float32 | DataType::Float64 => Err(refused(field, "a float has no one spelling")),
        DataType::Boolean => Err(refused(field, "two values cannot name records")),
        DataType::Null => Err(refused(field, "a null names nothing")),
        _ => Err(refused(field, "no canonical form is defined")),
    }
}

fn another_layout() -> Error {
    Error::internal("an id column has another layout")
}

/// Every row of an array of one layout through `form`.
fn rows<A: ArrayAccessor>(
    field: &Field,
    array: Option<A>,
    form: impl Fn(A::Item) -> Option<String>,
) -> Result<Vec<String>> {
    let array = array.ok_or_else(another_layout)?;
    (0..array.len()).map(|i| form(array.value(i)).ok_or_else(|| outside(field))).collect()
}

fn each<T: ArrowPrimitiveType>(
    field: &Field,
    array: &dyn Array,
    form: impl Fn(T::Native) -> Option<String>,
) -> Result<Vec<String>> {
    rows(field, array.as_primitive_opt::<T>(), form)
}

fn whole<T: ArrowPrimitiveType<Native: ToString>>(field: &Field, array: &dyn Array) -> Result<Vec<String>> {
    each::<T>(field, array, |value| Some(value.to_string()))
}

/// Integers of 128 bits, little-endian in rows of 16 bytes.
fn wide(field: &Field, array: &dyn Array, digits: impl Fn([u8; 16]) -> String) -> Result<Vec<String>> {
    rows(field, array.as_fixed_size_binary_opt(), |id| id.try_into().ok().map(&digits))
}

fn instants(field: &Field, array: &dyn Array, unit: TimeUnit) -> Result<Vec<String>> {
    let form = |ticks| timestamp(unit, ticks);
    match unit {
        TimeUnit::Second => each::<TimestampSecondType>(field, array, form),
        TimeUnit::Millisecond => each::<TimestampMillisecondType>(field, array, form),
        TimeUnit::Microsecond => each::<TimestampMicrosecondType>(field, array, form),
        TimeUnit::Nanosecond => each::<TimestampNanosecondType>(field, array, form),
    }
}

fn outside(field: &Field) -> Error {
    Error::input(format!("a record id of type {} has no canonical form", type_name(field)))
        .hint("dates are whole days of the years 1 to 9999, timestamps whole microseconds of the same years")
}

fn decimals<T: ArrowPrimitiveType<Native: ToString>>(
    field: &Field,
    array: &dyn Array,
    scale: i8,
) -> Result<Vec<String>> {
    let scale = usize::from(scale.unsigned_abs()); // negative ones are not read
    each::<T>(field, array, |value| Some(decimal(&value.to_string(), scale)))
}

/// A decimal from the digits of its unscaled integer: no trailing zeros, no exponent.
fn decimal(digits: &str, scale: usize) -> String {
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", digits),
    };
    let padded = format!("{digits:0>width$}", width = scale + 1);
    let (whole, fraction) = padded.split_at_checked(padded.len() - scale).unwrap_or((&padded, ""));
    match fraction.trim_end_matches('0') {
        "" => format!("{sign}{whole}"),
        fraction => format!("{sign}{whole}.{fraction}"),
    }
}

fn date(days: i64) -> Option<String> {
    let day = DateTime::from_timestamp(days.checked_mul(86_400)?, 0)?.date_naive();
    in_range(day).then(|| day.format("%Y-%m-%d").to_string())
}

fn timestamp(unit: TimeUnit, ticks: i64) -> Option<String> {
    let micros = match unit {
        TimeUnit::Second => ticks.checked_mul(1_000_000)?,
        TimeUnit::Millisecond => ticks.checked_mul(1_000)?,
        TimeUnit::Microsecond => ticks,
        TimeUnit::Nanosecond => (ticks % 1_000 == 0).then_some(ticks / 1_000)?,
    };
    let at = DateTime::from_timestamp_micros(micros)?;
    in_range(at.date_naive()).then(|| format!("{}.{:06}Z", at.format("%Y-%m-%dT%H:%M:%S"), at.nanosecond() / 1_000))
}

fn in_range(day: NaiveDate) -> bool {
    (1..=9999).contains(&day.year())
}

/// 16 bytes as 8-4-4-4-12 lower-case hex digits.
fn uuid(bytes: &[u8]) -> String {
    let digits = hex(bytes);
    let mut out = String::with_capacity(36);
    for (i, digit) in digits.chars().enumerate() {
        if matches!(i, 8 | 12 | 16 | 20) {
            out.push('-');
        }
        out.push(digit);
    }
    out
}

fn dictionary(
    field: &Field,
    values: &Field,
    array: &dyn Array,
    keys: &DataType,
    fields: Fields,
) -> Result<Vec<String>> {
    match keys {
        DataType::Int8 => taken::<Int8Type>(values, array, fields),
        DataType::Int16 => taken::<Int16Type>(values, array, fields),
        DataType::Int32 => taken::<Int32Type>(values, array, fields),
        DataType::Int64 => taken::<Int64Type>(values, array, fields),
        DataType::UInt8 => taken::<UInt8Type>(values, array, fields),
        DataType::UInt16 => taken::<UInt16Type>(values, array, fields),
        DataType::UInt32 => taken::<UInt32Type>(values, array, fields),
        DataType::UInt64 => taken::<UInt64Type>(values, array, fields),
        _ => Err(refused(field, "its keys are of an unknown type")),
    }
}

fn taken<K: ArrowDictionaryKeyType>(values: &Field, array: &dyn Array, fields: Fields) -> Result<Vec<String>>
where
    K::Native: TryInto<usize>,
{
    let array = array.as_dictionary_opt::<K>().ok_or_else(another_layout)?;
    if nulls(array.values()) > 0 {
        return Err(Error::input(format!("{NEVER_NULL}; the dictionary holds a null")));
    }
    let entries = texts(values, array.values(), fields)?;
    let entry = |key: K::Native| key.try_into().ok().and_then(|key: usize| entries.get(key)).cloned();
    array
        .keys()
        .values()
        .iter()
        .map(|&key| entry(key).ok_or_else(|| Error::input("a dictionary of ids is malformed")))
        .collect()
}

/// A struct as the canon array of its fields' canonical strings, or as the canon object of them by name.
fn composite(field: &Field, array: &dyn Array, fields: Fields) -> Result<Vec<String>> {
    let array = array.as_struct_opt().ok_or_else(another_layout)?;
    let mut columns = Vec::with_capacity(array.num_columns());
    for (field, column) in array.fields().iter().zip(array.columns()) {
        if nulls(column) > 0 {
            return Err(Error::input(format!("{NEVER_NULL}; a field has {} nulls", nulls(column))));
        }
        columns.push((field.name().as_str(), texts(field, column, fields)?));
    }
    if columns.is_empty() {
        return Err(refused(field, "it has no fields"));
    }
    if fields == Fields::ByName {
        columns.sort_by_key(|(one, _)| *one);
        if columns.windows(2).any(|pair| matches!(pair, [(one, _), (other, _)] if one == other)) {
            return Err(refused(field, "two of its fields have one name"));
        }
    }
    let row = |i: usize| columns.iter().filter_map(move |(name, column)| Some((*name, column.get(i)?.as_str())));
    Ok((0..array.len())
        .map(|i| match fields {
            Fields::InOrder => canon::array(row(i).map(|(_, value)| value)),
            Fields::ByName => canon::object(row(i)),
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_have_one_spelling() {
        for (digits, scale, expected) in [
            ("150", 2, "1.5"),
            ("200", 2, "2"),
            ("0", 2, "0"),
            ("-5", 3, "-0.005"),
            ("-1500", 3, "-1.5"),
            ("12", 0, "12"),
        ] {
            assert_eq!(decimal(digits, scale), expected);
        }
    }

    #[test]
    fn instants_are_utc_with_microseconds() {
        assert_eq!(timestamp(TimeUnit::Second, 0).unwrap(), "1970-01-01T00:00:00.000000Z");
        assert_eq!(timestamp(TimeUnit::Microsecond, -1).unwrap(), "1969-12-31T23:59:59.999999Z");
        assert_eq!(timestamp(TimeUnit::Nanosecond, 1_000).unwrap(), "1970-01-01T00:00:00.000001Z");
        assert_eq!(timestamp(TimeUnit::Nanosecond, 1_001), None);
        assert_eq!(timestamp(TimeUnit::Second, i64::MAX), None);
        assert_eq!(date(-719_162).unwrap(), "0001-01-01");
        assert_eq!(date(-719_163), None);
        assert_eq!(uuid(&[0xAB; 16]), "abababab-abab-abab-abab-abababababab");
    }
}
