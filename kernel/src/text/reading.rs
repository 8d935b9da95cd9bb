//! One text on its way: its words, what becomes of each, and the released text with outputs in their places.

use std::ops::{ControlFlow, Range};

use crate::draw::laplace::discrete_laplace;
use crate::draw::sampler::Draws;
use crate::draw::stream::{purpose, Stream};
use crate::errors::{Error, Result};
use crate::pages::AHEAD;
use crate::text::input_policy::{Case, InputPolicy, Length, Punctuation, Unknown};
use crate::text::lexicon::Entry;
use crate::text::packed::Packed;
use crate::text::vocabulary::Vocabulary;
use crate::text::words;

/// What becomes of one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// A draw from the law of the input with this number.
    Draw(u32),
    /// A uniform draw from the outputs.
    Uniform,
    /// Released as it is.
    Copy,
    /// Skipped.
    Drop,
}

impl Fate {
    #[inline(always)]
    pub fn is_drawn(self) -> bool {
        matches!(self, Self::Draw(_) | Self::Uniform)
    }
}

/// A word of a text, with its packed form where the scan had it at hand.
#[derive(Clone, Copy)]
struct Word {
    start: u32,
    end: u32,
    packed: Option<Packed>,
}

impl Word {
    const NOWHERE: Self = Self { start: 0, end: 0, packed: None };

    fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    fn of(self, text: &str) -> &str {
        text.get(self.range()).unwrap_or_default()
    }
}

/// One row's words and fates, reused from row to row.
///
/// The row goes through one short loop after another, so that the look-ups of many words are under way at once.
#[derive(Default)]
pub struct Reading {
    words: Vec<Word>,
    fates: Vec<Fate>,
    /// How many words are drawn.
    pub draws: u32,
    cut: bool,
}

impl Reading {
    /// Finds the words of a text and what becomes of each.
    pub fn read(&mut self, vocabulary: &Vocabulary, policy: &InputPolicy, text: &str) -> Result<()> {
        refuse_huge(text)?;
        self.words.clear();
        self.cut = false;
        words::scan(text, |range, packed| {
            if self.words.len() == policy.n_max {
                self.cut = true;
                return ControlFlow::Break(());
            }
            if let Some(packed) = packed {
                vocabulary.prefetch(packed);
            }
            self.words.push(Word { start: range.start as u32, end: range.end as u32, packed });
            ControlFlow::Continue(())
        });
        self.fates.clear();
        self.fates.extend(self.words.iter().map(|word| match vocabulary.find(text, word.range(), word.packed) {
            Some(Entry::Input(input)) => Fate::Draw(input),
            Some(Entry::Kept) => Fate::Copy,
            None => unknown(policy, word.of(text)),
        }));
        self.draws = self.fates.iter().map(|fate| u32::from(fate.is_drawn())).sum();
        Ok(())
    }

    /// Counts the words of a text that are drawn, and keeps nothing else of it.
    pub fn count(&mut self, vocabulary: &Vocabulary, policy: &InputPolicy, text: &str) -> Result<()> {
        if !vocabulary.draws_all(policy) {
            return self.read(vocabulary, policy, text);
        }
        refuse_huge(text)?;
        let mut words = 0;
        words::scan(text, |_, _| {
            if words == policy.n_max {
                return ControlFlow::Break(());
            }
            words += 1;
            ControlFlow::Continue(())
        });
        self.draws = words as u32;
        Ok(())
    }

    /// Cuts or fills the text up to the number of draws that the policy lets be seen
    /// (docs/spec/privacy.md#length-options). Only the key decides a noisy length: purpose 6, position 0.
    pub fn hide_length(&mut self, vocabulary: &Vocabulary, policy: &InputPolicy, key: &[u8; 32]) -> Result<()> {
        let length = match policy.length {
            Length::Disclose => return Ok(()),
            Length::Fixed => policy.n_max,
            Length::Noisy(num, den) => {
                let mut draws = Draws::new(Stream::new(key, purpose::LENGTH)?, 1);
                let more = discrete_laplace(num, den, &mut draws.beyond(0)?)?;
                let longest = i64::try_from(policy.n_max).unwrap_or(i64::MAX);
                i64::from(self.draws).clamp(1, longest).saturating_add(more).clamp(1, longest) as usize
            }
        };
        let pad = vocabulary.pad.ok_or_else(|| Error::internal("a text is filled up with a word that is not there"))?;
        self.fates.retain(|fate| fate.is_drawn());
        self.fill(length, pad);
        Ok(())
    }

    /// As if a text of hidden length had been read: what it said plays no part in writing it.
    pub fn of_choices(&mut self, length: usize) {
        self.fates.clear();
        self.fill(length, 0);
    }

    /// Cuts or fills the fates; words are then nowhere, as nothing is copied from a text of hidden length.
    fn fill(&mut self, length: usize, pad: u32) {
        self.fates.resize(length, Fate::Draw(pad));
        self.words.clear();
        self.words.resize(length, Word::NOWHERE);
        self.draws = length as u32;
    }

    /// The fates of words that are drawn, by position.
    #[inline(always)]
    pub fn drawn(&self) -> impl Iterator<Item = Fate> + Clone + '_ {
        self.fates.iter().copied().filter(|fate| fate.is_drawn())
    }

    /// The words of a text as it holds them, and their fates.
    pub fn each<'a, 't>(&'a self, text: &'t str) -> impl Iterator<Item = (&'t str, Fate)> + use<'a, 't> {
        self.words.iter().zip(&self.fates).map(move |(word, fate)| (word.of(text), *fate))
    }

    /// The fate of a text that is one word and nothing else.
    pub fn only(&self, text: &str) -> Option<Fate> {
        match (self.words.as_slice(), self.fates.as_slice()) {
            ([word], [fate]) if word.range() == (0..text.len()) => Some(*fate),
            _ => None,
        }
    }

    /// Appends the released text: outputs in the place of words.
    pub fn write(
        &self,
        vocabulary: &Vocabulary,
        policy: &InputPolicy,
        text: &str,
        drawn: &[u32],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let begin = out.len();
        if policy.punctuation == Punctuation::Drop && self.draws as usize == self.fates.len() {
            vocabulary.outputs.push_all(out, drawn.get(..self.fates.len()).ok_or_else(too_few)?)?;
            if out.len() > begin {
                out.pop();
            }
            return Ok(());
        }
        let in_place = policy.punctuation == Punctuation::Keep;
        let (first, ahead) = drawn.split_at(drawn.len().min(AHEAD));
        first.iter().for_each(|&word| vocabulary.outputs.prefetch(word));
        let (mut drawn, mut ahead) = (drawn.iter(), ahead.iter());
        let mut end = 0;
        for (word, fate) in self.words.iter().zip(&self.fates) {
            if in_place {
                out.extend_from_slice(text.get(end..word.start as usize).unwrap_or_default().as_bytes());
                end = word.end as usize;
            }
            let before = out.len();
            match fate {
                Fate::Draw(_) | Fate::Uniform => {
                    ahead.next().into_iter().for_each(|&word| vocabulary.outputs.prefetch(word));
                    vocabulary.outputs.push(out, *drawn.next().ok_or_else(too_few)?)?;
                }
                Fate::Copy => copy(policy, word.of(text), out),
                Fate::Drop => {}
            }
            if in_place && out.len() > before {
                out.pop();
            }
        }
        match policy.punctuation {
            Punctuation::Keep if !self.cut => out.extend_from_slice(text.get(end..).unwrap_or_default().as_bytes()),
            Punctuation::Drop if out.len() > begin => {
                out.pop();
            }
            _ => {}
        }
        Ok(())
    }
}

fn refuse_huge(text: &str) -> Result<()> {
    if u32::try_from(text.len()).is_ok() {
        return Ok(());
    }
    Err(Error::input("a text has 4 GiB or more").hint("split such documents into records"))
}

fn too_few() -> Error {
    Error::internal("a text has fewer outputs than draws")
}

/// What the policy says of a word that the law does not know.
fn unknown(policy: &InputPolicy, word: &str) -> Fate {
    let rule = if words::is_number(word) { policy.numbers } else { policy.oov };
    match rule {
        Unknown::Uniform => Fate::Uniform,
        Unknown::First => Fate::Draw(0),
        Unknown::Drop => Fate::Drop,
        Unknown::Keep => Fate::Copy,
    }
}

/// Appends a word that is released as it is, and a space.
pub fn copy(policy: &InputPolicy, word: &str, out: &mut Vec<u8>) {
    match policy.case {
        Case::Keep => out.extend_from_slice(word.as_bytes()),
        Case::Lower if word.is_ascii() => out.extend(word.bytes().map(|byte| byte.to_ascii_lowercase())),
        Case::Lower => out.extend_from_slice(words::look_up_form(word).as_bytes()),
    }
    out.push(b' ');
}
