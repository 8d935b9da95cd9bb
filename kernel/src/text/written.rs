//! Released texts as readers see them: words between single blanks.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

const ONES: u128 = u128::MAX / 0xff;
const HIGH_BITS: u128 = 0x80 * ONES;
const BLANKS: u128 = 0x20 * ONES;
/// Bytes of a short word, at most; the byte behind them holds its length.
const SHORT: usize = 15;

/// Mixes the two halves of a short word.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u128(u128::from(byte));
        }
    }

    fn write_u128(&mut self, word: u128) {
        let mixed = (word as u64 ^ ((word >> 64) as u64).rotate_left(23) ^ self.0).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    }
}

/// Words, byte for byte.
#[derive(Default)]
pub struct WordSet {
    short: HashSet<u128, BuildHasherDefault<Mix>>,
    long: HashSet<Box<[u8]>>,
}

impl WordSet {
    pub fn new<'a>(words: impl Iterator<Item = &'a str>) -> Self {
        let mut set = Self::default();
        for word in words {
            match short(word.as_bytes()) {
                Some(word) => set.short.insert(word),
                None => set.long.insert(word.as_bytes().into()),
            };
        }
        set
    }

    /// The words of a text, and how many of them are not in the set. A single blank separates words: an empty text has
    /// none, a doubled blank has an empty one behind it.
    pub fn outside(&self, text: &str) -> (u64, u64) {
        let (mut words, mut outside) = (0, 0);
        let mut rest = (!text.is_empty()).then_some(text.as_bytes());
        while let Some(from) = rest {
            let (found, behind) = self.first(from);
            words += 1;
            outside += u64::from(!found);
            rest = behind;
        }
        (words, outside)
    }

    /// Whether the first word is in the set, and what follows its blank.
    #[inline(always)]
    fn first<'t>(&self, rest: &'t [u8]) -> (bool, Option<&'t [u8]>) {
        if let Some(chunk) = rest.first_chunk::<16>() {
            let whole = u128::from_le_bytes(*chunk);
            let other = whole ^ BLANKS;
            let blanks = other.wrapping_sub(ONES) & !other & HIGH_BITS; // its lowest bit is right
            if blanks != 0 {
                let bits = blanks.trailing_zeros() - 7;
                let word = whole & ((1 << bits) - 1) | u128::from(bits / 8) << (8 * SHORT);
                return (self.short.contains(&word), rest.get(bits as usize / 8 + 1..));
            }
        }
        let end = rest.iter().position(|&byte| byte == b' ');
        let word = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
        let found = short(word).map_or_else(|| self.long.contains(word), |word| self.short.contains(&word));
        (found, end.and_then(|end| rest.get(end + 1..)))
    }
}

/// A word of up to `SHORT` bytes, with its length.
fn short(word: &[u8]) -> Option<u128> {
    let mut bytes = [0; 16];
    bytes.get_mut(..SHORT)?.get_mut(..word.len())?.copy_from_slice(word);
    Some(u128::from_le_bytes(bytes) | (word.len() as u128) << (8 * SHORT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pseudo_random::numbers;

    /// Texts of up to 40 letters and blanks.
    fn texts() -> impl Iterator<Item = String> {
        let mut numbers = numbers(9);
        let mut next = move || numbers() as usize;
        let letters = "aaab      é\0!".chars().collect::<Vec<_>>();
        (0..40_000).map(move |_| (0..next() % 41).map(|_| letters[next() % letters.len()]).collect())
    }

    #[test]
    fn words_are_counted_as_a_split_counts_them() {
        let listed =
            ["a", "b", "ab", "aaa", "é", "\0", "!", "aaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaa", "éaaaaaaaaaaaaaaaaaaa"];
        let set = WordSet::new(listed.into_iter());
        let long = ["aaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaa b", "x éaaaaaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaaa a"]
            .map(str::to_owned);
        for text in texts().chain(long) {
            let words = if text.is_empty() { vec![] } else { text.split(' ').collect::<Vec<_>>() };
            let outside = words.iter().filter(|word| !listed.contains(word)).count();
            assert_eq!(set.outside(&text), (words.len() as u64, outside as u64), "{text:?}");
        }
        assert_eq!(WordSet::new(["", "a"].into_iter()).outside("a  a"), (3, 0));
    }
}
