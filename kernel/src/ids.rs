//! Record ids as strings (`stream.md`, row `rid`): one canonical form per value, whatever the Arrow layout.

use arrow::array::{
    Array, BinaryArray, BinaryViewArray, DictionaryArray, FixedSizeBinaryArray, PrimitiveArray, StaticArray,
    StructArray,
};
use arrow::datatypes::{ArrowDataType, IntegerType, TimeUnit};
use arrow::types::NativeType;
use chrono::{DateTime, Datelike, NaiveDate, Timelike};

use crate::canon;
use crate::column::{type_name, Strings, StringsBuilder};
use crate::errors::{Error, Result};
use crate::keys::hex;

/// Ids of any allowed type as strings; strings are taken as they are, without a copy.
pub fn canonical(arrays: Vec<Box<dyn Array>>) -> Result<Strings> {
    let arrays = arrays.into_iter().map(canonical_array).collect::<Result<Vec<_>>>()?;
    let ids = Strings::new(&arrays)?;
    ids.expect_no_nulls()?;
    Ok(ids)
}

fn canonical_array(array: Box<dyn Array>) -> Result<Box<dyn Array>> {
    if matches!(array.dtype(), ArrowDataType::Utf8 | ArrowDataType::LargeUtf8 | ArrowDataType::Utf8View) {
        return Ok(array);
    }
    if array.null_count() > 0 {
        return Err(Error::input(format!("record ids are never null; got {} nulls", array.null_count()))
            .hint("give every record an id that stays the same in every run"));
    }
    let ids = texts(array.as_ref())?;
    let mut out = StringsBuilder::with_capacity(ids.len(), 16 * ids.len());
    ids.iter().for_each(|id| out.push(id));
    Ok(Box::new(StringsBuilder::join(vec![out])?))
}

fn refused(dtype: &ArrowDataType, reason: &str) -> Error {
    Error::input(format!("record ids of type {} are not allowed: {reason}", type_name(dtype)))
        .hint("use strings, integers, decimals, dates, timestamps with a time zone, binary, or a struct of these")
}

/// The rows of an array without nulls, each as its canonical string.
fn texts(array: &dyn Array) -> Result<Vec<String>> {
    let dtype = array.dtype();
    match dtype {
        ArrowDataType::Int8 => whole::<i8>(array),
        ArrowDataType::Int16 => whole::<i16>(array),
        ArrowDataType::Int32 => whole::<i32>(array),
        ArrowDataType::Int64 => whole::<i64>(array),
        ArrowDataType::Int128 => whole::<i128>(array),
        ArrowDataType::UInt8 => whole::<u8>(array),
        ArrowDataType::UInt16 => whole::<u16>(array),
        ArrowDataType::UInt32 => whole::<u32>(array),
        ArrowDataType::UInt64 => whole::<u64>(array),
        ArrowDataType::UInt128 => whole::<u128>(array),
        ArrowDataType::Decimal(_, scale) => decimals::<i128>(array, *scale, |v| v.to_string()),
        ArrowDataType::Decimal32(_, scale) => decimals::<i32>(array, *scale, |v| v.to_string()),
        ArrowDataType::Decimal64(_, scale) => decimals::<i64>(array, *scale, |v| v.to_string()),
        ArrowDataType::Date32 => each::<i32>(array, |days| date(i64::from(days))),
        ArrowDataType::Date64 => {
            each::<i64>(array, |ms| (ms % 86_400_000 == 0).then_some(ms / 86_400_000).and_then(date))
        }
        ArrowDataType::Timestamp(unit, Some(_)) => each::<i64>(array, |ticks| timestamp(*unit, ticks)),
        ArrowDataType::Timestamp(_, None) => Err(refused(dtype, "without a zone the instant is not known")),
        ArrowDataType::Binary => rows(array, |array: &BinaryArray<i32>, i| array.get(i).map(hex)),
        ArrowDataType::LargeBinary => rows(array, |array: &BinaryArray<i64>, i| array.get(i).map(hex)),
        ArrowDataType::BinaryView => rows(array, |array: &BinaryViewArray, i| array.get(i).map(hex)),
        ArrowDataType::FixedSizeBinary(_) => rows(array, |array: &FixedSizeBinaryArray, i| array.get(i).map(hex)),
        ArrowDataType::Utf8 | ArrowDataType::LargeUtf8 | ArrowDataType::Utf8View => {
            let strings = Strings::new(&[array.to_boxed()])?;
            (0..strings.len()).map(|i| strings.get(i).map(|id| id.unwrap_or_default().to_owned())).collect()
        }
        ArrowDataType::Extension(extension) if extension.name == "arrow.uuid" => {
            rows(array, |array: &FixedSizeBinaryArray, i| array.get(i).map(uuid))
        }
        ArrowDataType::Dictionary(keys, ..) => dictionary(array, *keys),
        ArrowDataType::Struct(_) => composite(array),
        ArrowDataType::Float16 | ArrowDataType::Float32 | ArrowDataType::Float64 => {
            Err(refused(dtype, "a float has no one spelling"))
        }
        ArrowDataType::Boolean => Err(refused(dtype, "two values cannot name records")),
        ArrowDataType::Null => Err(refused(dtype, "a null names nothing")),
        _ => Err(refused(dtype, "no canonical form is defined")),
    }
}

/// Every row through `form`, from an array of the concrete type `A`.
fn rows<A: Array>(array: &dyn Array, form: impl Fn(&A, usize) -> Option<String>) -> Result<Vec<String>> {
    let typed = array.as_any().downcast_ref::<A>().ok_or_else(|| Error::internal("an id column has another layout"))?;
    (0..typed.len()).map(|i| form(typed, i).ok_or_else(|| outside(array.dtype()))).collect()
}

fn each<T: NativeType>(array: &dyn Array, form: impl Fn(T) -> Option<String>) -> Result<Vec<String>> {
    rows(array, |array: &PrimitiveArray<T>, i| array.get(i).and_then(&form))
}

fn whole<T: NativeType + ToString>(array: &dyn Array) -> Result<Vec<String>> {
    each::<T>(array, |value| Some(value.to_string()))
}

fn outside(dtype: &ArrowDataType) -> Error {
    Error::input(format!("a record id of type {} has no canonical form", type_name(dtype)))
        .hint("dates are whole days of the years 1 to 9999, timestamps whole microseconds of the same years")
}

fn decimals<T: NativeType>(array: &dyn Array, scale: usize, digits: impl Fn(T) -> String) -> Result<Vec<String>> {
    each::<T>(array, |value| Some(decimal(&digits(value), scale)))
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

fn dictionary(array: &dyn Array, keys: IntegerType) -> Result<Vec<String>> {
    match keys {
        IntegerType::Int8 => taken::<i8>(array),
        IntegerType::Int16 => taken::<i16>(array),
        IntegerType::Int32 => taken::<i32>(array),
        IntegerType::Int64 => taken::<i64>(array),
        IntegerType::UInt8 => taken::<u8>(array),
        IntegerType::UInt16 => taken::<u16>(array),
        IntegerType::UInt32 => taken::<u32>(array),
        IntegerType::UInt64 => taken::<u64>(array),
        _ => Err(refused(array.dtype(), "its keys are of an unknown type")),
    }
}

fn taken<K: arrow::array::DictionaryKey>(array: &dyn Array) -> Result<Vec<String>> {
    let array = array
        .as_any()
        .downcast_ref::<DictionaryArray<K>>()
        .ok_or_else(|| Error::internal("an id column has another layout"))?;
    let entries = array.values();
    if entries.null_count() > 0 {
        return Err(Error::input("record ids are never null; the dictionary holds a null"));
    }
    let entries = texts(entries.as_ref())?;
    (0..array.len())
        .map(|i| {
            let key = array.keys().get(i).and_then(|key| TryInto::<usize>::try_into(key).ok());
            key.and_then(|key| entries.get(key))
                .cloned()
                .ok_or_else(|| Error::input("a dictionary of ids is malformed"))
        })
        .collect()
}

/// A struct as the canon array of its fields' canonical strings.
fn composite(array: &dyn Array) -> Result<Vec<String>> {
    let array = array
        .as_any()
        .downcast_ref::<StructArray>()
        .ok_or_else(|| Error::internal("an id column has another layout"))?;
    let mut fields = Vec::with_capacity(array.values().len());
    for field in array.values() {
        if field.null_count() > 0 {
            return Err(Error::input(format!("record ids are never null; a field has {} nulls", field.null_count())));
        }
        fields.push(texts(field.as_ref())?);
    }
    if fields.is_empty() {
        return Err(refused(array.dtype(), "it has no fields"));
    }
    Ok((0..array.len())
        .map(|i| canon::array(fields.iter().filter_map(|field| field.get(i)).map(String::as_str)))
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
