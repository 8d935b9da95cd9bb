//! Columns of strings as the kernel reads and writes them: any Arrow string layout in, LargeUtf8 out.

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, BinaryArray, BinaryViewArray, GenericBinaryArray, LargeBinaryArray, LargeStringArray, OffsetSizeTrait,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow_schema::DataType;

use crate::columns::c_data::{type_name, Chunked};
use crate::errors::{Error, Result};
use crate::pages::large_pages;

/// How each message about null ids begins.
pub const NEVER_NULL: &str = "record ids are never null";

/// One chunk; strings are held as bytes and checked when they are read, but where all are known to be text.
enum Chunk {
    Small(BinaryArray, AllText),
    Large(LargeBinaryArray, AllText),
    View(BinaryViewArray),
    Null(usize),
}

impl Chunk {
    fn len(&self) -> usize {
        match self {
            Self::Small(array, _) => array.len(),
            Self::Large(array, _) => array.len(),
            Self::View(array) => array.len(),
            Self::Null(len) => *len,
        }
    }

    fn null_count(&self) -> usize {
        match self {
            Self::Small(array, _) => array.null_count(),
            Self::Large(array, _) => array.null_count(),
            Self::View(array) => array.null_count(),
            Self::Null(len) => *len,
        }
    }

    /// Row `i` as text; null where the row is null.
    #[inline]
    fn get(&self, i: usize) -> Result<Option<&str>> {
        match self {
            Self::Small(array, text) => (i < array.len() && array.is_valid(i)).then(|| text.get(array.value(i))),
            Self::Large(array, text) => (i < array.len() && array.is_valid(i)).then(|| text.get(array.value(i))),
            Self::View(array) => (i < array.len() && array.is_valid(i)).then(|| utf8(array.value(i))),
            Self::Null(_) => None,
        }
        .transpose()
    }
}

/// Whether every row of a chunk is text: found at once, which takes a fraction of what short rows take one by one.
struct AllText(bool);

impl AllText {
    fn of<T: OffsetSizeTrait>(array: &GenericBinaryArray<T>) -> Self {
        let offsets = array.value_offsets();
        let (first, last) =
            (offsets.first().map_or(0, |at| at.as_usize()), offsets.last().map_or(0, |at| at.as_usize()));
        let text = array.value_data().get(first..last).and_then(|bytes| std::str::from_utf8(bytes).ok());
        let whole = |text: &str| offsets.iter().all(|at| text.is_char_boundary(at.as_usize().wrapping_sub(first)));
        Self(text.is_some_and(whole))
    }

    /// A row of the chunk as text.
    #[inline(always)]
    fn get<'a>(&self, row: &'a [u8]) -> Result<&'a str> {
        if self.0 {
            // SAFETY: the chunk's bytes are UTF-8 and every row begins and ends between two characters of them.
            return Ok(unsafe { std::str::from_utf8_unchecked(row) });
        }
        utf8(row)
    }
}

/// A column of strings in one or more chunks.
pub struct Strings {
    chunks: Vec<Chunk>,
    /// First row of each chunk.
    starts: Vec<usize>,
    len: usize,
    bytes: usize,
}

impl Strings {
    /// A column from chunks of strings (or only nulls); refuses other types by name.
    pub fn new(column: &Chunked) -> Result<Self> {
        let chunks = column.chunks.iter().map(|array| Self::chunk(array.as_ref())).collect::<Option<_>>();
        chunks.map(Self::from_chunks).ok_or_else(|| {
            Error::input(format!("a text column holds strings; got {}", type_name(&column.field)))
                .hint("cast the column to string first")
        })
    }

    fn from_chunks(chunks: Vec<Chunk>) -> Self {
        let (mut starts, mut len, mut bytes) = (Vec::with_capacity(chunks.len()), 0, 0);
        for chunk in &chunks {
            starts.push(len);
            len += chunk.len();
            bytes += match chunk {
                Chunk::Small(array, _) => span(array.value_offsets()),
                Chunk::Large(array, _) => span(array.value_offsets()),
                Chunk::View(array) => array.lengths().map(|length| length as usize).sum(),
                Chunk::Null(_) => 0,
            };
        }
        Self { chunks, starts, len, bytes }
    }

    fn chunk(array: &dyn Array) -> Option<Chunk> {
        Some(match array.data_type() {
            DataType::Utf8 => {
                let array: BinaryArray = array.as_string::<i32>().clone().into();
                let text = AllText::of(&array);
                Chunk::Small(array, text)
            }
            DataType::LargeUtf8 => {
                let array: LargeBinaryArray = array.as_string::<i64>().clone().into();
                let text = AllText::of(&array);
                Chunk::Large(array, text)
            }
            DataType::Utf8View => Chunk::View(array.as_string_view().clone().to_binary_view()),
            DataType::Null => Chunk::Null(array.len()),
            _ => return None,
        })
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes of all strings, as a hint for sizes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn null_count(&self) -> usize {
        self.chunks.iter().map(Chunk::null_count).sum()
    }

    /// Row `i` as text; null where the row is null.
    #[inline]
    pub fn get(&self, i: usize) -> Result<Option<&str>> {
        let chunk = self.starts.partition_point(|&start| start <= i).saturating_sub(1);
        let (Some(chunk), Some(start)) = (self.chunks.get(chunk), self.starts.get(chunk)) else { return Ok(None) };
        chunk.get(i - start)
    }

    /// Refuses another length than `len`, by counts.
    pub fn expect_len(&self, len: usize, what: &str) -> Result<()> {
        if self.len == len {
            return Ok(());
        }
        Err(Error::input(format!("{what} need one id each; got {len} of one and {} of the other", self.len)))
    }

    /// Refuses nulls, by their number.
    pub fn expect_no_nulls(&self) -> Result<()> {
        match self.null_count() {
            0 => Ok(()),
            nulls => Err(Error::input(format!("{NEVER_NULL}; got {nulls} nulls"))
                .hint("give every record an id that stays the same in every run")),
        }
    }
}

/// The bytes from the first offset to the last.
fn span<T: Copy + TryInto<usize>>(offsets: &[T]) -> usize {
    let at = |offset: Option<&T>| offset.and_then(|&offset| offset.try_into().ok()).unwrap_or_default();
    at(offsets.last()).saturating_sub(at(offsets.first()))
}

fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| Error::input("a string column holds bytes that are not UTF-8"))
}

/// Strings being written, row by row.
pub struct StringsBuilder {
    pub values: Vec<u8>,
    /// Where every row begins, and the last one ends.
    offsets: Vec<i64>,
    valid: Vec<bool>,
    nulls: usize,
}

impl Default for StringsBuilder {
    fn default() -> Self {
        Self::with_capacity(0, 0)
    }
}

impl StringsBuilder {
    pub fn with_capacity(rows: usize, bytes: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Self { values: large_pages(bytes), offsets, valid: Vec::with_capacity(rows), nulls: 0 }
    }

    /// Ends a row that was appended to `values`.
    #[inline]
    pub fn end_row(&mut self, valid: bool) {
        self.offsets.push(self.values.len() as i64);
        self.valid.push(valid);
        self.nulls += usize::from(!valid);
    }

    pub fn push(&mut self, text: &str) {
        self.values.extend_from_slice(text.as_bytes());
        self.end_row(true);
    }

    /// Appends all rows of another part.
    pub fn append(&mut self, part: &Self) {
        let before = self.values.len() as i64;
        self.values.extend_from_slice(&part.values);
        self.offsets.extend(part.offsets.iter().skip(1).map(|end| before + end));
        self.valid.extend_from_slice(&part.valid);
        self.nulls += part.nulls;
    }

    /// Forgets all rows and keeps the memory.
    pub fn clear(&mut self) {
        self.values.clear();
        self.offsets.truncate(1);
        self.valid.clear();
        self.nulls = 0;
    }

    /// The rows as an array.
    pub fn finish(self) -> Result<LargeStringArray> {
        // Offsets only grow: every row ends where the bytes written so far end.
        let offsets = OffsetBuffer::new(self.offsets.into());
        let nulls = (self.nulls > 0).then(|| NullBuffer::from(self.valid));
        LargeStringArray::try_new(offsets, Buffer::from_vec(self.values), nulls)
            .map_err(|_| Error::internal("a released column is not UTF-8"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// What is read of rows of some bytes, which may be no text.
    fn read(bytes: &[u8], ends: &[i64], valid: &[bool]) -> Vec<Option<Option<String>>> {
        let offsets = OffsetBuffer::new([&[0], ends].concat().into());
        // SAFETY: the bytes are only read as bytes, which is what is tested.
        let array = unsafe {
            LargeStringArray::new_unchecked(offsets, Buffer::from(bytes), Some(NullBuffer::from(valid.to_vec())))
        };
        let sliced = array.slice(1, array.len() - 1);
        let rows = |array: LargeStringArray| {
            let strings = Strings::new(&Chunked::one(Arc::new(array))).unwrap();
            (0..strings.len()).map(|i| strings.get(i).ok().map(|row| row.map(str::to_owned))).collect::<Vec<_>>()
        };
        let all = rows(array);
        assert_eq!(rows(sliced), all[1..]);
        all
    }

    #[test]
    fn every_row_is_text_or_refused() {
        let text = |row: &str| Some(Some(row.to_owned()));
        assert_eq!(read("aéb".as_bytes(), &[1, 3, 4], &[true; 3]), [text("a"), text("é"), text("b")]);
        assert_eq!(read("aéb".as_bytes(), &[2, 3, 4], &[true; 3]), [None, None, text("b")], "cut inside a character");
        assert_eq!(read(b"a\xffb", &[1, 2, 3], &[true; 3]), [text("a"), None, text("b")]);
        assert_eq!(read(b"a\xffb", &[1, 2, 3], &[true, false, true]), [text("a"), Some(None), text("b")]);
        assert_eq!(read(b"\xffab", &[1, 2, 3], &[true; 3]), [None, text("a"), text("b")]);
    }
}
