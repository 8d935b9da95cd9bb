//! The kernel of dptext_etl: everything where a wrong bit is a privacy bug or a slow loop.
//!
//! Normative: docs/spec/stream.md#stream (bytes of keys and draws), docs/spec/privacy.md#integer-sampler and
//! docs/spec/privacy.md#input-policy.

#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]
#![cfg_attr(not(feature = "python"), allow(dead_code, unused_imports))] // functions that only Python calls
#![cfg_attr(
    not(test),
    deny(
        clippy::string_slice,
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::todo,
        clippy::unimplemented,
        clippy::dbg_macro,
        clippy::print_stdout
    )
)]

mod columns;
mod csv_rows;
mod draw;
mod errors;
#[cfg(feature = "plugin")]
mod expressions;
mod json_rows;
mod keys;
mod laws;
mod pages;
mod panics;
#[cfg(feature = "plugin")]
mod polars_plugin;
mod processor;
#[cfg(test)]
mod pseudo_random;
#[cfg(feature = "python")]
mod py;
mod text;
mod threads;
