//! Arrow's C data interface: columns from pyarrow and Polars, with the field that says what they hold.
//!
//! arrow-rs keeps the name of an extension type in the field, not in the array's type. Polars also sends 128-bit
//! integers, which Arrow has no type for; they are read as rows of 16 bytes under our extension name.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::ffi::{from_ffi_and_data_type, FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::{make_array, new_empty_array, ArrayRef, NullArray};
use arrow_schema::extension::EXTENSION_TYPE_NAME_KEY;
use arrow_schema::{ArrowError, DataType, Field, FieldRef};

/// The extension type of UUIDs.
pub const UUID: &str = "arrow.uuid";
/// Our name for Polars' signed integers of 128 bits.
pub const INT128: &str = "dptext.int128";
/// Our name for Polars' unsigned integers of 128 bits.
pub const UINT128: &str = "dptext.uint128";
/// Metadata of a dictionary's field: the extension type of its values.
const VALUES_EXTENSION: &str = "dptext.values_extension";

/// A column in chunks of one type.
pub struct Chunked {
    pub field: FieldRef,
    pub chunks: Vec<ArrayRef>,
}

/// The column cannot be read. What the reader said is dropped: it may quote.
#[derive(Debug)]
pub struct Unreadable;

impl From<ArrowError> for Unreadable {
    fn from(_: ArrowError) -> Self {
        Self
    }
}

impl Chunked {
    /// A column of one chunk.
    pub fn one(array: ArrayRef) -> Self {
        Self { field: Arc::new(Field::new("", array.data_type().clone(), true)), chunks: vec![array] }
    }

    /// Adds an array that came over the interface.
    ///
    /// # Safety
    /// The array agrees with the C data interface and has the type that the field was read from.
    pub unsafe fn push(&mut self, array: FFI_ArrowArray) -> Result<(), Unreadable> {
        if self.field.data_type().is_null() {
            // Polars sends a buffer with these too, which arrow-rs refuses.
            self.chunks.push(Arc::new(NullArray::new(array.len())));
            return Ok(());
        }
        // SAFETY: the caller's promise; 128-bit integers have the layout of fixed-size rows of 16 bytes.
        let data = unsafe { from_ffi_and_data_type(array, self.field.data_type().clone())? };
        self.chunks.push(make_array(data));
        Ok(())
    }

    /// Without chunks: one empty chunk.
    pub fn or_empty(mut self) -> Self {
        if self.chunks.is_empty() {
            self.chunks.push(new_empty_array(self.field.data_type()));
        }
        self
    }
}

/// The extension type that a field names.
pub fn extension(field: &Field) -> Option<&str> {
    field.metadata().get(EXTENSION_TYPE_NAME_KEY).map(String::as_str)
}

/// The field of a dictionary's values.
pub fn dictionary_values(field: &Field, values: &DataType) -> Field {
    let of_values = Field::new("", values.clone(), true);
    match field.metadata().get(VALUES_EXTENSION) {
        Some(name) => of_values.with_metadata(named(name)),
        None => of_values,
    }
}

/// The field that a schema of the C data interface describes.
pub fn field(schema: &FFI_ArrowSchema) -> Result<Field, Unreadable> {
    let mut metadata = schema.metadata()?;
    let data_type = if let Some(dictionary) = schema.dictionary() {
        let values = field(dictionary)?;
        if let Some(name) = extension(&values) {
            metadata.insert(VALUES_EXTENSION.to_owned(), name.to_owned());
        }
        let keys = key_type(schema.format()).ok_or(Unreadable)?;
        DataType::Dictionary(Box::new(keys), Box::new(values.data_type().clone()))
    } else {
        match schema.format() {
            "+s" => DataType::Struct(schema.children().map(field).collect::<Result<Vec<_>, _>>()?.into()),
            "_pli128" => {
                metadata.extend(named(INT128));
                DataType::FixedSizeBinary(16)
            }
            "_plu128" => {
                metadata.extend(named(UINT128));
                DataType::FixedSizeBinary(16)
            }
            _ => DataType::try_from(schema)?,
        }
    };
    if unread(&data_type) {
        return Err(Unreadable);
    }
    Ok(Field::new(schema.name().unwrap_or_default(), data_type, schema.nullable()).with_metadata(metadata))
}

/// Types that arrow-rs knows and the kernel has no form for.
fn unread(data_type: &DataType) -> bool {
    match data_type {
        DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) | DataType::Decimal128(_, scale) => *scale < 0,
        DataType::Decimal256(..) | DataType::RunEndEncoded(..) => true,
        DataType::ListView(_) | DataType::LargeListView(_) => true,
        _ => false,
    }
}

fn named(extension: &str) -> HashMap<String, String> {
    HashMap::from([(EXTENSION_TYPE_NAME_KEY.to_owned(), extension.to_owned())])
}

/// Types of a dictionary's keys.
fn key_type(format: &str) -> Option<DataType> {
    Some(match format {
        "c" => DataType::Int8,
        "C" => DataType::UInt8,
        "s" => DataType::Int16,
        "S" => DataType::UInt16,
        "i" => DataType::Int32,
        "I" => DataType::UInt32,
        "l" => DataType::Int64,
        "L" => DataType::UInt64,
        _ => return None,
    })
}

/// The name of a field's type for a message; no field names.
pub fn type_name(field: &Field) -> String {
    match extension(field) {
        Some(INT128) => "int128".to_owned(),
        Some(UINT128) => "uint128".to_owned(),
        Some(_) => format!("extension over {}", plain_name(field)),
        None => plain_name(field),
    }
}

fn plain_name(field: &Field) -> String {
    match field.data_type() {
        DataType::Dictionary(_, values) => {
            format!("dictionary of {}", type_name(&dictionary_values(field, values)))
        }
        DataType::Struct(_) => "struct".to_owned(),
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => "list".to_owned(),
        DataType::Map(..) => "map".to_owned(),
        DataType::Union(..) => "union".to_owned(),
        DataType::Timestamp(_, None) => "timestamp without time zone".to_owned(),
        DataType::Timestamp(..) => "timestamp".to_owned(),
        DataType::Decimal128(precision, scale) => format!("decimal({precision}, {scale})"),
        other => format!("{other:?}").to_lowercase(),
    }
}
