//! The input policy as data (`privacy.md` 1.6, amendments A22 and A24): strict and faithful are two values of it.

use serde::Deserialize;

use crate::errors::{Error, Result};

/// What becomes of letters' case in words that are released as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Case {
    Lower,
    Keep,
}

/// What becomes of everything between words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Punctuation {
    /// Dropped; words are joined by one space.
    Drop,
    /// Released as it is, in place.
    Keep,
}

/// What becomes of a word that the table does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unknown {
    /// A uniform draw from the outputs: one position, like any word.
    Uniform,
    /// Released as it is, without a draw.
    Keep,
}

/// What becomes of a null text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Null {
    Pass,
    Empty,
}

/// How a text becomes words, and what becomes of each kind of segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputPolicy {
    pub case: Case,
    pub punctuation: Punctuation,
    pub numbers: Unknown,
    pub oov: Unknown,
    pub null: Null,
    /// Words of one text; the rest is cut before anything else.
    pub n_max: usize,
}

impl InputPolicy {
    pub fn from_json(json: &str) -> Result<Self> {
        serde_json::from_str(json).map_err(|error| {
            Error::policy(format!("the input policy is not one the kernel knows (at column {})", error.column()))
                .hint("its fields are case, punctuation, numbers, oov, null and n_max; see docs on input policies")
        })
    }
}
