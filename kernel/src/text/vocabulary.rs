//! The words that a law reads, the words that are released unchanged, and the words that it releases.

use std::ops::Range;

use crate::errors::{Error, Result};
use crate::text::input_policy::InputPolicy;
use crate::text::lexicon::{Entry, Lexicon};
use crate::text::outputs::{Outputs, PAD};
use crate::text::packed::Packed;

pub struct Vocabulary {
    lexicon: Lexicon,
    pub outputs: Outputs,
    /// The number of `PAD` among the inputs, where it is the last input and the last output.
    pub pad: Option<u32>,
    keeps: bool,
}

impl Vocabulary {
    /// Refuses no inputs at all and a repeated input; `kept` words win over inputs.
    pub fn new<'a>(
        inputs: impl Iterator<Item = &'a str> + Clone,
        outputs: impl Iterator<Item = &'a str> + Clone,
        kept: impl Iterator<Item = &'a str> + Clone,
    ) -> Result<Self> {
        let pads = inputs.clone().last() == Some(PAD) && outputs.clone().last() == Some(PAD);
        let last = (0..u32::MAX).zip(inputs.clone()).last().map(|(number, _)| number);
        let keeps = kept.clone().next().is_some();
        let (lexicon, outputs) = (Lexicon::new(inputs, kept)?, Outputs::new(outputs)?);
        if last.is_none() || outputs.len() == 0 {
            return Err(Error::artifact("a vocabulary holds at least one word"));
        }
        Ok(Self { lexicon, outputs, pad: last.filter(|_| pads), keeps })
    }

    /// Asks for what is known about a word that will be looked up soon.
    #[inline(always)]
    pub fn prefetch(&self, word: Packed) {
        self.lexicon.prefetch(word);
    }

    /// What is known about the word at `range` of a text; `packed` is its packed form if that is at hand.
    #[inline(always)]
    pub fn find(&self, text: &str, range: Range<usize>, packed: Option<Packed>) -> Option<Entry> {
        self.lexicon.find(text, range, packed)
    }

    /// Whether every word of any text is drawn, known or not.
    pub fn draws_all(&self, policy: &InputPolicy) -> bool {
        !self.keeps && policy.draws_unknown()
    }

    /// Refuses a hidden length where `PAD` is missing or words kept unchanged would reveal the length.
    pub fn check(&self, policy: &InputPolicy) -> Result<()> {
        if policy.hides_length() && self.pad.is_none() {
            return Err(Error::artifact(format!("a hidden length needs {PAD} as the last input and the last output"))
                .hint("build the mechanism's artifact for this length option"));
        }
        if policy.hides_length() && self.keeps {
            return Err(Error::artifact("words that are kept unchanged reveal a hidden length")
                .hint("build the mechanism's artifact without kept words"));
        }
        Ok(())
    }
}
