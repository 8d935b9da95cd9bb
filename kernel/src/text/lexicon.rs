//! From a word of a text to what the table knows about it.
//!
//! ASCII words of up to 16 bytes, nearly all words of most texts, are packed into two machine words, lower-cased
//! there and found by open addressing; all others go through their look-up form and an ordinary map.

use std::collections::HashMap;
use std::ops::Range;

use crate::errors::{Error, Result};
use crate::pages::prefetch;
use crate::text::packed::Packed;
use crate::text::words::look_up_form;

/// What the table knows about a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The input with this number.
    Input(u32),
    /// Released unchanged.
    Kept,
}

const KEPT: u32 = u32::MAX - 1;
const EMPTY: u32 = u32::MAX;

/// Some words and what they are, in one line of the processor's cache; filled from the first place on.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    words: [Packed; Self::LEN],
    entries: [u32; Self::LEN],
}

impl Line {
    const LEN: usize = 3;
    const EMPTY: Self = Self { words: [Packed { low: 0, high: 0 }; Self::LEN], entries: [EMPTY; Self::LEN] };

    /// What the word is, or `EMPTY`, all ones, if it is not in the line: every place is compared by arithmetic, which
    /// costs less than a branch that is hard to predict.
    #[inline(always)]
    fn find(&self, word: Packed) -> u32 {
        let places = self.words.iter().zip(&self.entries);
        places.fold(EMPTY, |found, (held, &entry)| {
            let differs = (held.low ^ word.low) | (held.high ^ word.high);
            found & (entry | u32::from(differs != 0).wrapping_neg())
        })
    }

    #[inline(always)]
    fn is_full(&self) -> bool {
        self.entries.last() != Some(&EMPTY)
    }
}

#[inline(always)]
const fn hash(word: Packed) -> u64 {
    let mixed = (word.low ^ word.high.rotate_left(23)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

/// Words of a vocabulary and words that are released unchanged.
pub struct Lexicon {
    lines: Vec<Line>,
    shift: u32,
    others: HashMap<String, u32>,
}

impl Lexicon {
    /// A lexicon of inputs in order; `kept` words win over inputs. Refuses a repeated input.
    pub fn new<'a>(inputs: impl Iterator<Item = &'a str> + Clone, kept: impl Iterator<Item = &'a str>) -> Result<Self> {
        let count = inputs.clone().count();
        if count >= KEPT as usize {
            return Err(Error::artifact("a table has fewer than 2^32 - 2 input words"));
        }
        let kept = kept.collect::<Vec<_>>();
        let size = ((count + kept.len()) * 2 / Line::LEN).next_power_of_two().max(16);
        let mut lexicon =
            Self { lines: vec![Line::EMPTY; size], shift: 64 - size.trailing_zeros(), others: HashMap::new() };
        for word in kept {
            lexicon.insert(word, KEPT);
        }
        for (number, word) in (0..KEPT).zip(inputs) {
            if lexicon.insert(word, number).is_some_and(|before| before != KEPT) {
                return Err(Error::artifact("the table names an input word twice"));
            }
        }
        Ok(lexicon)
    }

    /// Adds a word unless it is there; then what it is.
    fn insert(&mut self, word: &str, entry: u32) -> Option<u32> {
        let packed = Packed::from_text(word.as_bytes(), 0..word.len());
        // A word with capitals or zero bytes is not a look-up form: it can be held, never found.
        let Some(packed) = packed.filter(|_| !word.bytes().any(|b| b == 0 || b.is_ascii_uppercase())) else {
            if let Some(before) = self.others.get(word) {
                return Some(*before);
            }
            self.others.insert(word.to_owned(), entry);
            return None;
        };
        let mask = self.lines.len() - 1;
        let mut at = (hash(packed) >> self.shift) as usize;
        while let Some(line) = self.lines.get_mut(at) {
            let before = line.find(packed);
            if before != EMPTY {
                return Some(before);
            }
            if let Some((held, place)) =
                line.words.iter_mut().zip(&mut line.entries).find(|(_, place)| **place == EMPTY)
            {
                (*held, *place) = (packed, entry);
                return None;
            }
            at = (at + 1) & mask;
        }
        None
    }

    /// Asks for the place of a word that will be looked up soon.
    #[inline(always)]
    pub fn prefetch(&self, word: Packed) {
        let at = (hash(word) >> self.shift) as usize;
        prefetch(self.lines.get(at..=at).unwrap_or_default());
    }

    /// What is known about the word at `range` of a text; `packed` is its packed form if that is at hand.
    #[inline(always)]
    pub fn find(&self, text: &str, range: Range<usize>, packed: Option<Packed>) -> Option<Entry> {
        let entry = match packed.or_else(|| Packed::from_text(text.as_bytes(), range.clone())) {
            Some(packed) => self.find_packed(packed)?,
            None => self.find_other(text.get(range)?)?,
        };
        Some(if entry == KEPT { Entry::Kept } else { Entry::Input(entry) })
    }

    #[inline(always)]
    fn find_packed(&self, word: Packed) -> Option<u32> {
        let mask = self.lines.len() - 1;
        let mut at = (hash(word) >> self.shift) as usize;
        loop {
            let line = self.lines.get(at)?;
            let entry = line.find(word);
            if entry != EMPTY {
                return Some(entry);
            }
            if !line.is_full() {
                return None;
            }
            at = (at + 1) & mask;
        }
    }

    #[cold]
    fn find_other(&self, word: &str) -> Option<u32> {
        let form = look_up_form(word);
        if let Some(packed) = Packed::from_text(form.as_bytes(), 0..form.len()) {
            return self.find_packed(packed);
        }
        self.others.get(&form).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_any_case_and_anywhere_in_a_text() {
        let inputs = ["a", "sixteen-letters!", "seventeen-letters", "don't", "été", "straße", "i̇", "z9"];
        let lexicon = Lexicon::new(inputs.iter().copied(), ["the", "don't"].into_iter()).unwrap();
        let found = |word: &str| {
            let text = format!("xx {word}");
            let inside = lexicon.find(&text, 3..text.len(), None);
            let text = format!("xx {word} and a long tail behind it");
            assert_eq!(lexicon.find(&text, 3..3 + word.len(), None), inside);
            inside
        };
        assert_eq!(found("A"), Some(Entry::Input(0)));
        assert_eq!(found("SIXTEEN-letters!"), Some(Entry::Input(1)));
        assert_eq!(found("SEVENTEEN-letters"), Some(Entry::Input(2)));
        assert_eq!(found("Don\u{2019}t"), Some(Entry::Kept), "kept words win");
        assert_eq!(found("ÉTÉ"), Some(Entry::Input(4)));
        assert_eq!(found("Straße"), Some(Entry::Input(5)));
        assert_eq!(found("İ"), Some(Entry::Input(6)));
        assert_eq!(found("\u{212a}"), None, "the Kelvin sign is a k, which is not listed");
        assert_eq!(found("The"), Some(Entry::Kept));
        for other in ["b", "aa", "z", "z90", "don", "@", "[", "`"] {
            assert_eq!(found(other), None, "{other}");
        }
    }

    #[test]
    fn a_repeated_input_is_refused() {
        assert!(Lexicon::new(["a", "b", "a"].into_iter(), std::iter::empty()).is_err());
        let wide = ["seventeen-letters", "seventeen-letters"];
        assert!(Lexicon::new(wide.into_iter(), std::iter::empty()).is_err());
    }
}
