//! Released words, ready to be appended to a text.

use std::collections::HashMap;

use crate::errors::{Error, Result};
use crate::pages::{prefetch, AHEAD};

/// The word that fills a text up to a hidden length: drawn like any word, released as nothing. No text holds it, as
/// look-up forms have no capitals.
pub const PAD: &str = "<PAD>";

/// The released words, each with a space behind it, in 16 bytes where word, space and their length fit.
pub struct Outputs {
    short: Vec<Short>,
    long: HashMap<u32, Box<[u8]>>,
}

#[derive(Clone, Copy)]
#[repr(align(16))]
struct Short {
    word: [u8; SHORT],
    len: u8,
}

const LONG: u8 = u8::MAX;

/// Bytes of a short word and its space, at most.
const SHORT: usize = 15;
/// Words that are joined before they are appended.
const AT_ONCE: usize = 32;

impl Outputs {
    pub fn new<'a>(words: impl Iterator<Item = &'a str>) -> Result<Self> {
        let (mut short, mut long) = (Vec::new(), HashMap::new());
        for (number, word) in (0..u32::MAX).zip(words) {
            let mut place = Short { word: [0; SHORT], len: LONG };
            match place.word.split_at_mut_checked(word.len()) {
                _ if word == PAD => place.len = 0,
                Some((head, [space, ..])) => {
                    head.copy_from_slice(word.as_bytes());
                    *space = b' ';
                    place.len = word.len() as u8 + 1;
                }
                _ => {
                    long.insert(number, format!("{word} ").into_bytes().into_boxed_slice());
                }
            }
            short.push(place);
        }
        Ok(Self { short, long })
    }

    pub fn len(&self) -> usize {
        self.short.len()
    }

    /// Asks for a word that will be appended soon.
    #[inline(always)]
    pub fn prefetch(&self, word: u32) {
        let at = word as usize;
        prefetch(self.short.get(at..=at).unwrap_or_default());
    }

    /// Appends words, each with a space behind it; nothing for `PAD`.
    pub fn push_all(&self, out: &mut Vec<u8>, words: &[u32]) -> Result<()> {
        let (first, ahead) = words.split_at(words.len().min(AHEAD));
        first.iter().for_each(|&word| self.prefetch(word));
        let mut ahead = ahead.iter();
        for some in words.chunks(AT_ONCE) {
            let (mut room, mut end) = ([0u8; (AT_ONCE + 1) * SHORT], 0);
            for &word in some {
                ahead.next().into_iter().for_each(|&word| self.prefetch(word));
                let short = self.short.get(word as usize).ok_or_else(no_output)?;
                if short.len == LONG {
                    out.extend_from_slice(room.get(..end).unwrap_or_default());
                    out.extend_from_slice(self.long.get(&word).ok_or_else(no_output)?);
                    end = 0;
                } else if let Some(place) = room.get_mut(end..).and_then(|rest| rest.first_chunk_mut()) {
                    *place = short.word;
                    end += usize::from(short.len);
                }
            }
            out.extend_from_slice(room.get(..end).unwrap_or_default());
        }
        Ok(())
    }

    /// Appends a word and a space; nothing for `PAD`.
    #[inline(always)]
    pub fn push(&self, out: &mut Vec<u8>, word: u32) -> Result<()> {
        let short = self.short.get(word as usize).ok_or_else(no_output)?;
        if short.len == LONG {
            out.extend_from_slice(self.long.get(&word).ok_or_else(no_output)?);
        } else {
            let end = out.len() + usize::from(short.len);
            out.extend_from_slice(&short.word);
            out.truncate(end);
        }
        Ok(())
    }
}

fn no_output() -> Error {
    Error::internal("a drawn output is not there")
}
