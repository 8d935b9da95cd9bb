//! The input policy as data (docs/spec/privacy.md#input-policy, docs/spec/privacy.md#output-text): strict and faithful
//! are two values of it.

use serde::Deserialize;

use crate::draw::laplace::is_rate;
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

/// What becomes of a word that the law does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unknown {
    /// A uniform draw from the outputs: one position, like any word.
    Uniform,
    /// A draw from the law of the first input: one position, like any word (docs/spec/privacy.md#unknown-words).
    First,
    /// Leaves no trace: neither a word nor a position.
    Drop,
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

/// Treatment of the number of words (docs/spec/privacy.md#length-options); N is the policy's `n_max`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Length {
    /// As many draws as words.
    #[default]
    Disclose,
    /// N draws, whatever the text: it is cut, or filled up with `PAD`.
    Fixed,
    /// As many draws as words plus a discrete Laplace number of this rate (numerator, denominator), from 1 to N.
    Noisy(u64, u64),
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
    #[serde(default)]
    pub length: Length,
}

/// Words of a text whose length is hidden, at most.
const LONGEST: usize = 1 << 24;

impl InputPolicy {
    pub fn from_json(json: &str) -> Result<Self> {
        let policy: Self = serde_json::from_str(json).map_err(|error| {
            Error::policy(format!("the input policy is not one the kernel knows (at column {})", error.column())).hint(
                "its fields are case, punctuation, numbers, oov, null, n_max and length; see docs on input policies",
            )
        })?;
        policy.checked()
    }

    /// Refuses a hidden length together with anything that reveals it, or one that cannot be drawn.
    fn checked(self) -> Result<Self> {
        let least = match self.length {
            Length::Disclose => return Ok(self),
            Length::Fixed => 1,
            Length::Noisy(num, den) if is_rate(num, den) => 2,
            Length::Noisy(..) => {
                return Err(Error::policy(
                    "a noisy length's rate is a fraction in lowest terms of whole numbers from 1 to 2^48",
                )
                .hint("lower n_max, or give epsilon_length with fewer decimals"));
            }
        };
        if !(least..=LONGEST).contains(&self.n_max) {
            return Err(Error::policy(format!(
                "a hidden length needs an n_max from {least} to {LONGEST}; got {}",
                self.n_max
            )));
        }
        if self.keeps() || self.punctuation == Punctuation::Keep {
            return Err(Error::policy(
                "a hidden length is told by punctuation, numbers or unknown words kept in clear",
            )
            .hint("drop punctuation and give numbers and oov another value than \"keep\""));
        }
        Ok(self)
    }

    /// Whether every word is a position, known or not.
    pub fn draws_unknown(&self) -> bool {
        [self.numbers, self.oov].iter().all(|rule| matches!(rule, Unknown::Uniform | Unknown::First))
    }

    /// Whether unknown words may be released as they are.
    fn keeps(&self) -> bool {
        self.numbers == Unknown::Keep || self.oov == Unknown::Keep
    }

    /// Whether the number of words is hidden.
    pub fn hides_length(&self) -> bool {
        self.length != Length::Disclose
    }
}
