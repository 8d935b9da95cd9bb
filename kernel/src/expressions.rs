//! The kernel's Polars expressions: `dptext_table(text, id)` releases, `dptext_released(text, id)` marks a release.
//!
//! Arguments are configuration, a table's path and hash, and a key reference. The key is resolved here, once per
//! process, so that no plan, however printed or sent, holds one.

use std::sync::Arc;

use arrow_array::ffi::FFI_ArrowSchema;
use arrow_array::{ArrayRef, Float64Array, StructArray, UInt32Array};
use arrow_schema::{DataType, Field, Fields};
use serde::Deserialize;

use crate::columns::c_data::{self, Chunked};
use crate::columns::choose::{ChoicePolicy, Source};
use crate::columns::ids;
use crate::columns::one_text;
use crate::columns::release::Released;
use crate::columns::strings::{Strings, NEVER_NULL};
use crate::errors::{Error, Result};
use crate::keys::releases::ReleaseKey;
use crate::keys::secrets::Secret;
use crate::laws::corpus::Corpus;
use crate::laws::law_file::LawFile;
use crate::polars_plugin::{arguments, call, call_field, export, field_of, CallerContext, Input, SeriesExport};
use crate::text::input_policy::InputPolicy;
use crate::threads;

/// What a plan carries.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    table_path: String,
    table_sha256: String,
    key_reference: String,
    dataset: String,
    column: String,
    release: String,
    cfg: String,
    /// How texts are read and, where whole texts are drawn, how they are.
    input_policy: String,
    /// A decimal number: pickled integers above 2^63 do not reach Rust.
    nonce: String,
    /// Declared epsilon of one draw, in millionths.
    unit_micro: u64,
    /// Declared epsilon of a text in addition to its draws, in millionths: the epsilon of a noisy length.
    base_micro: u64,
    delta: f64,
    spend: bool,
    /// Name and parameters of the mechanism, for guards that read the plan; the draw needs none of it.
    #[serde(default, rename = "mechanism")]
    _mechanism: String,
}

/// `Struct[text, positions, epsilon, delta]`.
fn spend_fields() -> Fields {
    let types = [DataType::LargeUtf8, DataType::UInt32, DataType::Float64, DataType::Float64];
    let names = ["text", "positions", "epsilon", "delta"];
    names.into_iter().zip(types).map(|(name, dtype)| Field::new(name, dtype, true)).collect()
}

/// Releases the first input's texts for the second input's record ids.
///
/// # Safety
/// Called by Polars as its plugin interface says.
#[no_mangle]
pub unsafe extern "C" fn _polars_plugin_dptext_table(
    inputs: *mut SeriesExport,
    inputs_len: usize,
    kwargs: *const u8,
    kwargs_len: usize,
    output: *mut SeriesExport,
    context: *const CallerContext,
) {
    // SAFETY: Polars' promises, handed on.
    unsafe {
        call(inputs, inputs_len, output, |inputs| {
            table(inputs, &arguments(kwargs, kwargs_len)?, (*context).parallel() || in_a_streaming_worker())
        });
    }
}

/// The type of `dptext_table`: the text's name; strings, or the struct with the spend.
///
/// # Safety
/// Called by Polars as its plugin interface says.
#[no_mangle]
pub unsafe extern "C" fn _polars_plugin_field_dptext_table(
    fields: *const FFI_ArrowSchema,
    fields_len: usize,
    output: *mut FFI_ArrowSchema,
    kwargs: *const u8,
    kwargs_len: usize,
) {
    // SAFETY: Polars' promises, handed on.
    unsafe {
        call_field(fields, fields_len, output, |fields| {
            require_types(fields.first(), fields.get(1))?;
            let name = fields.first().and_then(FFI_ArrowSchema::name).unwrap_or_default();
            let spend = arguments::<Arguments>(kwargs, kwargs_len)?.spend;
            let dtype = if spend { DataType::Struct(spend_fields()) } else { DataType::LargeUtf8 };
            Ok(Field::new(name, dtype, true))
        });
    }
}

/// Marks what was released elsewhere, so that a plan shows where raw text ends: the first series as it is. The second,
/// the record ids, is there for the plan to show too.
///
/// # Safety
/// Called by Polars as its plugin interface says.
#[no_mangle]
pub unsafe extern "C" fn _polars_plugin_dptext_released(
    inputs: *mut SeriesExport,
    inputs_len: usize,
    _kwargs: *const u8,
    _kwargs_len: usize,
    output: *mut SeriesExport,
    _context: *const CallerContext,
) {
    // SAFETY: Polars' promises, handed on.
    unsafe {
        call(inputs, inputs_len, output, |inputs| {
            inputs.into_iter().next().map(Input::forward).ok_or_else(|| Error::internal("the marker takes a series"))
        });
    }
}

/// The type of `dptext_released`: the type of its first input.
///
/// # Safety
/// Called by Polars as its plugin interface says.
#[no_mangle]
pub unsafe extern "C" fn _polars_plugin_field_dptext_released(
    fields: *const FFI_ArrowSchema,
    fields_len: usize,
    output: *mut FFI_ArrowSchema,
    _kwargs: *const u8,
    _kwargs_len: usize,
) {
    // SAFETY: Polars' promises, handed on.
    unsafe {
        call_field(fields, fields_len, output, |fields| {
            require_types(fields.get(2), fields.get(1))?;
            let field = fields.first().and_then(|schema| c_data::field(schema).ok());
            field.ok_or_else(|| Error::internal("the marker takes a series of texts"))
        });
    }
}

/// Refuses columns that can hold no texts or no record ids, as soon as a plan's schema is known. A null type passes:
/// Polars also says it of columns whose type it does not know yet.
fn require_types(text: Option<&FFI_ArrowSchema>, id: Option<&FFI_ArrowSchema>) -> Result<()> {
    let empty =
        |schema: &FFI_ArrowSchema| Ok(Chunked { field: Arc::new(field_of(schema)?), chunks: vec![] }.or_empty());
    if let Some(schema) = text {
        Strings::new(&empty(schema)?)?;
    }
    match id.map(empty).transpose()? {
        Some(id) if !id.field.data_type().is_null() => ids::canonical(id, ids::Fields::ByName).map(|_| ()),
        _ => Ok(()),
    }
}

fn table(inputs: Vec<Input>, arguments: &Arguments, polars_is_parallel: bool) -> Result<SeriesExport> {
    let Ok([mut text, mut id]) = <[Input; 2]>::try_from(inputs) else {
        return Err(Error::internal("the plugin takes a text and an id"));
    };
    let (text, id) = (text.read()?, id.read()?);
    let name = text.field.name().clone();
    let threads = if polars_is_parallel { 1 } else { threads::count(None)? };
    let released = release(&text, id, arguments, threads)?;
    let texts: ArrayRef = Arc::new(released.text);
    if !arguments.spend {
        return export(&name, &texts);
    }
    let charged = |per_draw: &dyn Fn(u32) -> f64| -> ArrayRef {
        Arc::new(released.positions.iter().map(|&n| if n == 0 { 0.0 } else { per_draw(n) }).collect::<Float64Array>())
    };
    let epsilon = charged(&|n| (arguments.base_micro + u64::from(n) * arguments.unit_micro) as f64 / 1e6);
    let delta = charged(&|_| arguments.delta);
    let positions = Arc::new(UInt32Array::from(released.positions));
    let spends = StructArray::try_new(spend_fields(), vec![texts, positions, epsilon, delta], None)
        .map_err(|_| Error::internal("columns of different lengths"))?;
    export(&name, &(Arc::new(spends) as ArrayRef))
}

/// Names the usual cause of null ids: Polars sets the inputs of a branch to null in rows that `when` does not give it.
fn masked(error: Error) -> Error {
    if !error.message.starts_with(NEVER_NULL) {
        return error;
    }
    error.hint(
        "every record needs an id of its own; select rows before the release, not by `when` around it, because Polars \
         sets ids to null around it",
    )
}

fn release(text: &Chunked, id: Chunked, arguments: &Arguments, threads: usize) -> Result<Released> {
    let secret = Secret::resolve(&arguments.key_reference, false)?;
    let key = ReleaseKey::new(&secret, &arguments.dataset, &arguments.column, &arguments.release, &arguments.cfg)?;
    let nonce = arguments.nonce.parse().map_err(|_| Error::policy("the nonce is a whole number below 2^64"))?;
    let (texts, ids) = (Strings::new(text)?, ids::canonical(id, ids::Fields::ByName).map_err(masked)?);
    ids.expect_len(texts.len(), "texts")?;
    one_text::require(&texts, &ids)?;
    let record = |row: usize, text: Option<&str>| {
        let id = ids.get(row)?.unwrap_or_default();
        Ok(key.record(id, text.map(str::as_bytes), nonce))
    };
    let (path, sha256) = (&arguments.table_path, &arguments.table_sha256);
    if ChoicePolicy::is_one(&arguments.input_policy) {
        let policy = ChoicePolicy::from_json(&arguments.input_policy)?;
        return Corpus::open(path, sha256)?.release(&policy, &texts, &Source::Words, &record, threads);
    }
    let policy = InputPolicy::from_json(&arguments.input_policy)?;
    LawFile::open(path, sha256)?.release(&policy, &texts, &record, threads)
}

/// Whether this is one of several threads that Polars runs the expression on, one per morsel.
fn in_a_streaming_worker() -> bool {
    std::fs::read_to_string("/proc/thread-self/comm").is_ok_and(|name| name.starts_with("async-executor"))
}
