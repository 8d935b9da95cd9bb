//! Keys, ids, digests and copies of whole columns, in parallel, without the interpreter's lock.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::Array;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::arrow_ffi::{hashes, Chunks, Column};
use super::detached;
use super::keys::{PyReleaseKey, PySecret};
use super::numbers::{column, numbers};
use crate::columns::ids::{self, Fields};
use crate::columns::strings::{Strings, StringsBuilder};
use crate::errors::{Error, Result};
use crate::keys::digests::{self, Hash, Padded};
use crate::keys::releases::ledger_id;
use crate::text::copies::{Copies, Room};
use crate::threads;

const ROWS_AT_ONCE: usize = 1024;

/// 32 bytes per row.
fn each_row(rows: usize, row: impl Fn(usize) -> Result<Hash> + Sync) -> Result<Column> {
    let parts = threads::over_rows(rows, ROWS_AT_ONCE, threads::count(None)?, |range| {
        range.map(&row).collect::<Result<Vec<_>>>()
    })?;
    hashes(joined(parts).into_flattened())
}

/// The rows of all parts; a single part is not copied.
fn joined(mut parts: Vec<Vec<Hash>>) -> Vec<Hash> {
    match parts.as_mut_slice() {
        [one] => std::mem::take(one),
        _ => parts.concat(),
    }
}

fn per_record(ids: Chunks, texts: Chunks, hash: impl Fn(&str, Option<&[u8]>) -> Hash + Sync) -> Result<Column> {
    let (ids, texts) = (ids::canonical(ids.0, Fields::InOrder)?, Strings::new(&texts.0)?);
    ids.expect_len(texts.len(), "texts")?;
    each_row(texts.len(), |row| {
        let id = ids.get(row)?.unwrap_or_default();
        Ok(hash(id, texts.get(row)?.map(str::as_bytes)))
    })
}

/// Record keys: `H(R, "dptext/rec/v1\0" || u64(len(rid)) || rid || fp || u64(nonce))`.
#[pyfunction]
#[pyo3(signature = (release_key, ids, texts, nonce=0))]
fn record_keys(py: Python<'_>, release_key: &PyReleaseKey, ids: Chunks, texts: Chunks, nonce: u64) -> PyResult<Column> {
    detached(py, || per_record(ids, texts, |id, text| *release_key.0.record(id, text, nonce)))
}

/// Sum modulo 2^256 of `H(R, "dptext/row/v1\0" || u64(len(rid)) || rid || fp || label)`, 32 bytes, little-endian.
#[pyfunction]
fn table_digest<'py>(
    py: Python<'py>,
    release_key: &PyReleaseKey,
    ids: Chunks,
    texts: Chunks,
    labels: Chunks,
) -> PyResult<Bound<'py, PyBytes>> {
    let sum = detached(py, || {
        let (ids, texts) = (ids::canonical(ids.0, Fields::InOrder)?, Strings::new(&texts.0)?);
        let labels = Strings::new(&labels.0)?;
        ids.expect_len(texts.len(), "texts")?;
        ids.expect_len(labels.len(), "labels")?;
        let parts = threads::over_rows(texts.len(), ROWS_AT_ONCE, threads::count(None)?, |range| {
            let mut sum = Hash::default();
            for row in range {
                let (text, label) = (texts.get(row)?, labels.get(row)?);
                let id = ids.get(row)?.unwrap_or_default();
                digests::add(&mut sum, &release_key.0.row(id, text.map(str::as_bytes), label.map(str::as_bytes)));
            }
            Ok(sum)
        })?;
        Ok(parts.iter().fold(Hash::default(), |mut sum, part| {
            digests::add(&mut sum, part);
            sum
        }))
    })?;
    Ok(PyBytes::new(py, &sum))
}

/// Keys by which the records of a person are ordered: `H(R, "dptext/order/v1\0" || rid)`.
#[pyfunction]
fn order_keys(py: Python<'_>, release_key: &PyReleaseKey, ids: Chunks) -> PyResult<Column> {
    detached(py, || {
        let ids = ids::canonical(ids.0, Fields::InOrder)?;
        each_row(ids.len(), |row| Ok(*release_key.0.order(ids.get(row)?.unwrap_or_default())))
    })
}

/// The noise key of a statistic: `H(R, "dptext/sum/v1\0" || table digest || sums as int64)`.
#[pyfunction]
fn noise_key<'py>(
    py: Python<'py>,
    release_key: &PyReleaseKey,
    table_digest: &[u8],
    sums: Chunks,
) -> PyResult<Bound<'py, PyBytes>> {
    let key = detached(py, || {
        let digest = table_digest.try_into().map_err(|_| Error::input("a table digest has 32 bytes"))?;
        Ok(release_key.0.noise(digest, numbers::<i64>(&sums, "sums")?))
    })?;
    Ok(PyBytes::new(py, key.as_slice()))
}

/// Idempotency keys of the ledger: `SHA-256(canon([dataset, release, column, id, cfg, hex(fp), nonce]))`.
#[pyfunction]
#[pyo3(signature = (release_key, ids, texts, nonce=0))]
fn idem_keys(py: Python<'_>, release_key: &PyReleaseKey, ids: Chunks, texts: Chunks, nonce: u64) -> PyResult<Column> {
    detached(py, || per_record(ids, texts, |id, text| release_key.0.idempotency(id, text, nonce)))
}

/// Ids as a ledger stores them: `H(L, "dptext/id/v1\0" || kind || u64(len) || id)`, kind "rec", "sub" or "canary".
#[pyfunction]
fn hash_ids(py: Python<'_>, secret: &PySecret, kind: &str, ids: Chunks) -> PyResult<Column> {
    detached(py, || {
        if !matches!(kind, "rec" | "sub" | "canary") {
            return Err(Error::policy("ids are hashed as \"rec\", \"sub\" or \"canary\"; got another kind"));
        }
        let (ledger, ids) = (secret.0.prf()?, ids::canonical(ids.0, Fields::InOrder)?);
        each_row(ids.len(), |row| Ok(ledger_id(&ledger, kind, ids.get(row)?.unwrap_or_default())))
    })
}

/// Digests of released texts: `SHA-256(0x01 || utf8)`, `SHA-256(0x00)` for null.
#[pyfunction]
#[pyo3(name = "digests")]
fn text_digests(py: Python<'_>, texts: Chunks) -> PyResult<Column> {
    detached(py, || {
        let texts = Strings::new(&texts.0)?;
        each_row(texts.len(), |row| Ok(digests::text(texts.get(row)?)))
    })
}

/// Parts of originals in their releases: copies, words kept and compared, rows that share a stretch of a number of
/// words. Rows without a text are not counted.
#[pyfunction]
#[pyo3(signature = (raw, released, draws, words=None))]
fn count_copies(
    py: Python<'_>,
    raw: Chunks,
    released: Chunks,
    draws: Chunks,
    words: Option<usize>,
) -> PyResult<(u64, u64, u64, u64)> {
    let found = detached(py, || {
        let (raw, released) = (Strings::new(&raw.0)?, Strings::new(&released.0)?);
        let draws = numbers::<u32>(&draws, "draws")?;
        if raw.len() != released.len() || raw.len() != draws.len() {
            return Err(Error::input("originals, releases and draws have one row each"));
        }
        let parts = threads::over_rows(raw.len(), ROWS_AT_ONCE, threads::count(None)?, |range| {
            let (mut room, mut found) = (Room::default(), Copies::default());
            for row in range {
                let (Some(text), Some(release)) = (raw.get(row)?, released.get(row)?) else { continue };
                let draws = draws.get(row).copied().unwrap_or(0) as usize;
                found += room.count(text, release, draws, words);
            }
            Ok(found)
        })?;
        Ok(parts.into_iter().fold(Copies::default(), |mut all, found| {
            all += found;
            all
        }))
    })?;
    Ok((found.copies, found.kept, found.compared, found.shared))
}

/// A column of sealed rows: bytes of a fixed number per row, or whole numbers of which a number of bytes count; a number
/// that comes by itself is for every row.
struct Sealed<'a> {
    chunks: Vec<&'a [u8]>,
    held: usize,
    width: usize,
    constant: bool,
}

impl<'a> Sealed<'a> {
    fn of(column: &'a Chunks, width: usize, rows: usize) -> Result<Self> {
        let wrong = || Error::input("a Merkle root is over fixed-size binary rows without nulls");
        let (mut chunks, mut held) = (Vec::new(), width);
        for chunk in column.0.chunks.iter().filter(|chunk| !chunk.is_empty()) {
            if chunk.null_count() > 0 {
                return Err(wrong());
            }
            if let Some(array) = chunk.as_fixed_size_binary_opt().filter(|array| array.value_size() == width) {
                chunks.push(array.value_data());
            } else if let Some(array) = chunk.as_primitive_opt::<Int64Type>().filter(|_| width <= size_of::<i64>()) {
                held = size_of::<i64>();
                chunks.push(bytemuck::cast_slice(array.values()));
            } else {
                return Err(wrong());
            }
        }
        let len = chunks.iter().map(|chunk| chunk.len()).sum::<usize>() / held.max(1);
        let constant = rows != 1 && len == 1;
        if len == rows || constant {
            return Ok(Self { chunks, held, width, constant });
        }
        Err(Error::input("the columns of a Merkle root have one row each"))
    }

    #[inline(always)]
    fn bytes(&self, row: usize) -> &'a [u8] {
        let mut at = if self.constant { 0 } else { row * self.held };
        for chunk in &self.chunks {
            if let Some(bytes) = chunk.get(at..at + self.width) {
                return bytes;
            }
            at -= chunk.len();
        }
        &[]
    }
}

/// Merkle root over rows that columns make, `rows` of them: leaves `SHA-256(0x00 || row)`, nodes `SHA-256(0x01 || left
/// || right)`. A column is an array and its bytes per row; numbers are little-endian.
#[pyfunction]
fn merkle_root<'py>(py: Python<'py>, columns: Vec<(Chunks, usize)>, rows: usize) -> PyResult<Bound<'py, PyBytes>> {
    let root = detached(py, || {
        let columns =
            columns.iter().map(|(column, width)| Sealed::of(column, *width, rows)).collect::<Result<Vec<_>>>()?;
        let leaf = Padded::leaf(columns.iter().map(|column| column.width).sum());
        let parts = threads::over_rows(rows, ROWS_AT_ONCE, threads::count(None)?, |range| {
            let mut leaf = leaf.clone();
            let hashed = range.map(|row| {
                let mut room = leaf.item();
                for column in &columns {
                    let (place, rest) = std::mem::take(&mut room).split_at_mut(column.width);
                    place.copy_from_slice(column.bytes(row));
                    room = rest;
                }
                leaf.hash()
            });
            Ok(hashed.collect::<Vec<_>>())
        })?;
        Ok(digests::root(joined(parts)))
    })?;
    Ok(PyBytes::new(py, &root))
}

/// Digests of the first words of texts, as many as asked for, of all texts that have this number; U+0020 separates words.
#[pyfunction]
fn prefix_digests(py: Python<'_>, texts: Chunks, words: usize) -> PyResult<Column> {
    detached(py, || {
        let texts = Strings::new(&texts.0)?;
        let parts = threads::over_rows(texts.len(), ROWS_AT_ONCE, threads::count(None)?, |range| {
            let mut found = Vec::new();
            for row in range {
                let Some(text) = texts.get(row)? else { continue };
                let mut ends = memchr::memchr_iter(b' ', text.as_bytes()).chain([text.len()]);
                if let Some(prefix) =
                    words.checked_sub(1).and_then(|skip| ends.nth(skip)).and_then(|end| text.get(..end))
                {
                    found.push(digests::text(Some(prefix)));
                }
            }
            Ok(found)
        })?;
        hashes(joined(parts).into_flattened())
    })
}

/// How many words each text has that U+0020 separates: 0 for one that is empty or null.
#[pyfunction]
fn spaced_words(py: Python<'_>, texts: Chunks) -> PyResult<Column> {
    detached(py, || {
        let texts = Strings::new(&texts.0)?;
        let count = |row| {
            let text = texts.get(row)?.filter(|text| !text.is_empty());
            Ok(text.map_or(0, |text| 1 + memchr::memchr_iter(b' ', text.as_bytes()).count() as u32))
        };
        Ok(column((0..texts.len()).map(count).collect::<Result<_>>()?))
    })
}

/// Record ids as strings, one canonical form per value; composites by the names of their fields if asked.
#[pyfunction]
#[pyo3(signature = (ids, by_name=false))]
fn canonical_ids(py: Python<'_>, ids: Chunks, by_name: bool) -> PyResult<Column> {
    detached(py, || {
        let ids = ids::canonical(ids.0, if by_name { Fields::ByName } else { Fields::InOrder })?;
        let mut out = StringsBuilder::with_capacity(ids.len(), ids.bytes());
        for row in 0..ids.len() {
            out.push(ids.get(row)?.unwrap_or_default());
        }
        Ok(Column(Arc::new(out.finish()?)))
    })
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Column>()?;
    module.add_function(wrap_pyfunction!(record_keys, module)?)?;
    module.add_function(wrap_pyfunction!(idem_keys, module)?)?;
    module.add_function(wrap_pyfunction!(table_digest, module)?)?;
    module.add_function(wrap_pyfunction!(order_keys, module)?)?;
    module.add_function(wrap_pyfunction!(noise_key, module)?)?;
    module.add_function(wrap_pyfunction!(hash_ids, module)?)?;
    module.add_function(wrap_pyfunction!(text_digests, module)?)?;
    module.add_function(wrap_pyfunction!(count_copies, module)?)?;
    module.add_function(wrap_pyfunction!(merkle_root, module)?)?;
    module.add_function(wrap_pyfunction!(prefix_digests, module)?)?;
    module.add_function(wrap_pyfunction!(spaced_words, module)?)?;
    module.add_function(wrap_pyfunction!(canonical_ids, module)?)
}
