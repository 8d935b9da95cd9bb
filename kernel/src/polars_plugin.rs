//! The Polars expression plugin: `dptext_table(text, id)` inside any Polars engine.
//!
//! Its arguments are configuration, a table's path and hash, and a key reference. The key is resolved here, once per
//! process, so that no plan, however printed or sent, holds one.

use pyo3_polars::derive::{polars_expr, CallerContext};
use pyo3_polars::export::polars_core::prelude::{
    CompatLevel, DataType, Field, IntoSeries, NamedFrom, PlSmallStr, PolarsError, PolarsResult, Series, StructChunked,
};
use serde::Deserialize;

use crate::column::Strings;
use crate::errors::{Error, Result};
use crate::ids;
use crate::keys::{ReleaseKey, Secret};
use crate::lawfile::LawFile;
use crate::panics;
use crate::policy::InputPolicy;
use crate::release::Released;
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
    input_policy: String,
    /// A decimal number: pickled integers above 2^63 do not reach Rust.
    nonce: String,
    /// Declared epsilon of one draw, in millionths.
    unit_micro: u64,
    /// Declared epsilon of a text beside its draws, in millionths: that of a noisy length.
    base_micro: u64,
    delta: f64,
    spend: bool,
}

fn spend_fields() -> Vec<Field> {
    vec![
        Field::new("text".into(), DataType::String),
        Field::new("positions".into(), DataType::UInt32),
        Field::new("epsilon".into(), DataType::Float64),
        Field::new("delta".into(), DataType::Float64),
    ]
}

/// The text's name; strings, or the struct with the spend.
fn output_field(inputs: &[Field], kwargs: Arguments) -> PolarsResult<Field> {
    let name = inputs.first().map_or(PlSmallStr::EMPTY, |text| text.name().clone());
    let dtype = if kwargs.spend { DataType::Struct(spend_fields()) } else { DataType::String };
    Ok(Field::new(name, dtype))
}

fn failed(error: Error) -> PolarsError {
    PolarsError::ComputeError(error.to_string().into())
}

fn chunks(series: &Series) -> Vec<Box<dyn arrow::array::Array>> {
    (0..series.n_chunks()).map(|chunk| series.to_arrow(chunk, CompatLevel::newest())).collect()
}

/// Releases the first input's texts for the second input's record ids.
#[polars_expr(output_type_func_with_kwargs=output_field)]
fn dptext_table(inputs: &[Series], context: CallerContext, kwargs: Arguments) -> PolarsResult<Series> {
    panics::install_hook();
    let [text, id] = inputs else { return Err(failed(Error::internal("the plugin takes a text and an id"))) };
    let released = panics::caught(|| run(text, id, context, &kwargs)).map_err(failed)?;
    let name = text.name().clone();
    let text = |name: PlSmallStr| {
        Series::try_from((name, vec![Box::new(released.text.clone()) as Box<dyn arrow::array::Array>]))
    };
    if !kwargs.spend {
        return text(name);
    }
    let charged = |per_draw: &dyn Fn(u32) -> f64| released.positions.iter().map(|&n| per_draw(n)).collect::<Vec<_>>();
    let epsilon =
        charged(&|n| if n == 0 { 0.0 } else { (kwargs.base_micro + u64::from(n) * kwargs.unit_micro) as f64 / 1e6 });
    let delta = charged(&|n| if n == 0 { 0.0 } else { kwargs.delta });
    let columns = [
        text("text".into())?,
        Series::new("positions".into(), &released.positions),
        Series::new("epsilon".into(), epsilon),
        Series::new("delta".into(), delta),
    ];
    StructChunked::from_series(name, released.positions.len(), columns.iter()).map(IntoSeries::into_series)
}

/// Marks what was released elsewhere, so that a plan shows where raw text ends: the first series as it is. The second,
/// the record ids, is there for the plan to show too.
#[polars_expr(output_type_func=same_field)]
fn dptext_released(inputs: &[Series]) -> PolarsResult<Series> {
    inputs.first().cloned().ok_or_else(|| failed(Error::internal("the marker takes a series")))
}

fn same_field(inputs: &[Field]) -> PolarsResult<Field> {
    inputs.first().cloned().ok_or_else(|| failed(Error::internal("the marker takes a series")))
}

fn run(text: &Series, id: &Series, context: CallerContext, arguments: &Arguments) -> Result<Released> {
    let law = LawFile::open(&arguments.table_path, &arguments.table_sha256)?;
    let policy = InputPolicy::from_json(&arguments.input_policy)?;
    let secret = Secret::resolve(&arguments.key_reference, false)?;
    let key = ReleaseKey::new(&secret, &arguments.dataset, &arguments.column, &arguments.release, &arguments.cfg)?;
    let nonce = arguments.nonce.parse().map_err(|_| Error::policy("the nonce is a whole number below 2^64"))?;
    let (texts, ids) = (Strings::new(&chunks(text))?, ids::canonical(chunks(id))?);
    ids.expect_len(texts.len(), "texts")?;
    let record = |row: usize, text: Option<&str>| {
        let id = ids.get(row)?.unwrap_or_default();
        Ok(key.record(id, text.map(str::as_bytes), nonce))
    };
    let threads = if context.parallel() || in_a_streaming_worker() { 1 } else { threads::count(None)? };
    law.release(&policy, &texts, &record, threads)
}

/// Whether this is one of several threads that Polars runs the expression on, one per morsel.
fn in_a_streaming_worker() -> bool {
    std::fs::read_to_string("/proc/thread-self/comm").is_ok_and(|name| name.starts_with("async-executor"))
}
