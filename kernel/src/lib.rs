//! The kernel of dptext_etl: everything where a wrong bit is a privacy bug or a slow loop.
//!
//! Normative: `stream.md` (bytes of keys and draws), `privacy.md` 2.2 (sampler) and 1.6 (input policy).

#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]
#![cfg_attr(not(feature = "python"), allow(dead_code, unused_imports))] // what Python alone calls
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

mod canon;
mod cdata;
mod classes;
mod column;
mod digests;
mod encode;
mod errors;
mod exp;
#[cfg(feature = "plugin")]
mod expressions;
mod geometric;
mod ids;
mod keys;
mod lanes;
mod laplace;
mod latents;
mod law;
mod lawfile;
mod lexicon;
mod lists;
mod mapped;
mod near;
mod occurrences;
mod outline;
mod outputs;
mod packed;
mod panics;
#[cfg(feature = "plugin")]
mod polars_plugin;
mod policy;
#[cfg(feature = "python")]
mod py;
mod radial;
mod reading;
mod release;
mod sampler;
mod scores;
mod stream;
mod table;
mod tem;
mod threads;
mod uniforms;
mod vocabulary;
mod weights;
mod words;
