//! What of an original stands in its release: whole copies, words at their place, stretches of words.
//!
//! It counts what `dptext_etl.checks.reports.copies` defines, for originals of ASCII letters alone; other originals are
//! left to it. Words of an original are runs of letters, digits and "'", lower-cased; a single blank separates words of
//! a release. Hashes find rows that may share a stretch; words decide.

use std::collections::HashSet;
use std::ops::{AddAssign, Range};

/// Multiplier of hashes of words and of stretches.
const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
/// Places of a table for every hash in it, at least.
const SPARSE: usize = 4;

/// Counts over rows of at least one draw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// Releases that are their originals, word by word.
    pub copies: u64,
    /// Words that stand at their place, in rows with as many words as their originals.
    pub kept: u64,
    /// Words of those rows.
    pub compared: u64,
    /// Rows that share a stretch of words with their originals.
    pub shared: u64,
}

impl AddAssign for Copies {
    fn add_assign(&mut self, other: Self) {
        self.copies += other.copies;
        self.kept += other.kept;
        self.compared += other.compared;
        self.shared += other.shared;
    }
}

/// Buffers of one thread, reused from row to row.
#[derive(Default)]
pub struct Room {
    lowered: Vec<u8>,
    raw: Vec<Word>,
    released: Vec<Word>,
    hashes: Vec<u64>,
    table: Vec<u64>,
}

/// A word of a text.
struct Word {
    place: Range<usize>,
    hash: u64,
}

impl Word {
    fn new(text: &[u8], place: Range<usize>) -> Self {
        let hash = hash(text, &place);
        Self { place, hash }
    }

    fn of<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        text.get(self.place.clone()).unwrap_or_default()
    }
}

impl Room {
    /// Counts one row; `draws` words of the original are searched for stretches of `stretch` words. None if the original
    /// is not ASCII.
    pub fn count(&mut self, raw: &str, released: &str, draws: usize, stretch: Option<usize>) -> Option<Copies> {
        if !raw.is_ascii() {
            return None;
        }
        self.read(raw, released.as_bytes());
        let released = released.as_bytes();
        let mut found = Copies::default();
        if self.raw.len() == self.released.len() {
            let pairs = self.raw.iter().zip(&self.released);
            let same = |raw: &Word, ours: &Word| raw.hash == ours.hash && raw.of(&self.lowered) == ours.of(released);
            let kept = pairs.filter(|(raw, ours)| same(raw, ours)).count();
            found.compared = self.raw.len() as u64;
            found.kept = kept as u64;
            found.copies = u64::from(kept == self.raw.len());
        }
        self.raw.truncate(draws);
        if let Some(words) = stretch.filter(|&words| (1..=self.raw.len().min(self.released.len())).contains(&words)) {
            found.shared = u64::from(self.may_share(words) && self.shares(released, words));
        }
        Some(found)
    }

    /// Where the words of both texts are.
    fn read(&mut self, raw: &str, released: &[u8]) {
        self.lowered.clear();
        self.lowered.extend(raw.bytes().map(|byte| byte.to_ascii_lowercase()));
        let inside = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'\'';
        self.raw.clear();
        let mut at = 0;
        for part in self.lowered.split(|&byte| !inside(byte)) {
            if !part.is_empty() {
                self.raw.push(Word::new(&self.lowered, at..at + part.len()));
            }
            at += part.len() + 1;
        }
        self.released.clear();
        at = 0;
        for part in released.split(|&byte| byte == b' ') {
            self.released.push(Word::new(released, at..at + part.len()));
            at += part.len() + 1;
        }
    }

    /// Whether the hashes of two stretches are equal.
    fn may_share(&mut self, words: usize) -> bool {
        let places = (SPARSE * self.raw.len()).next_power_of_two();
        self.table.clear();
        self.table.resize(places, 0);
        let shift = u64::BITS - places.ilog2();
        let place = |hash: u64| (hash >> shift) as usize;
        stretches(&self.raw, words, &mut self.hashes);
        for &hash in &self.hashes {
            let mut at = place(hash);
            while let Some(held) = self.table.get_mut(at) {
                if *held == 0 || *held == hash {
                    *held = hash;
                    break;
                }
                at = (at + 1) % places;
            }
        }
        stretches(&self.released, words, &mut self.hashes);
        self.hashes.iter().any(|&hash| {
            let mut at = place(hash);
            loop {
                match self.table.get(at) {
                    Some(&held) if held == hash => return true,
                    Some(&held) if held != 0 => at = (at + 1) % places,
                    _ => return false,
                }
            }
        })
    }

    /// Whether two stretches are equal.
    fn shares(&self, released: &[u8], words: usize) -> bool {
        let raw = self.raw.iter().map(|word| word.of(&self.lowered)).collect::<Vec<_>>();
        let ours = self.released.iter().map(|word| word.of(released)).collect::<Vec<_>>();
        let known = raw.windows(words).collect::<HashSet<_>>();
        ours.windows(words).any(|stretch| known.contains(stretch))
    }
}

/// The hash of every stretch of so many words; never 0.
fn stretches(all: &[Word], words: usize, hashes: &mut Vec<u64>) {
    hashes.clear();
    let gone = (0..words).fold(1u64, |power, _| power.wrapping_mul(ODD));
    let mut rolling = 0u64;
    for (at, word) in all.iter().enumerate() {
        rolling = rolling.wrapping_mul(ODD).wrapping_add(word.hash);
        if let Some(before) = at.checked_sub(words).and_then(|before| all.get(before)) {
            rolling = rolling.wrapping_sub(before.hash.wrapping_mul(gone));
        }
        if at + 1 >= words {
            hashes.push((rolling ^ rolling >> 32).wrapping_mul(ODD).max(1));
        }
    }
}

/// A hash of a word, eight bytes at a time.
fn hash(text: &[u8], place: &Range<usize>) -> u64 {
    let (mut hash, mut at) = (place.len() as u64 + 1, place.start);
    while at < place.end {
        let left = (place.end - at).min(8);
        let here = text.get(at..).unwrap_or_default();
        let bytes = match here.first_chunk::<8>() {
            Some(&bytes) => u64::from_le_bytes(bytes),
            None => here.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
        };
        hash = (hash ^ (bytes & u64::MAX >> (64 - 8 * left))).wrapping_mul(ODD);
        hash ^= hash >> 29;
        at += 8;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(raw: &str, released: &str, draws: usize, stretch: Option<usize>) -> [u64; 4] {
        let found = Room::default().count(raw, released, draws, stretch).unwrap();
        [found.copies, found.kept, found.compared, found.shared]
    }

    #[test]
    fn copies_words_and_stretches_are_counted() {
        assert_eq!(counted("It's GOOD, 2 day!", "it's good 2 day", 4, Some(3)), [1, 4, 4, 1]);
        assert_eq!(counted("a b c d", "a x c y", 4, Some(2)), [0, 2, 4, 0]);
        assert_eq!(counted("a b c d", "z a b", 4, Some(2)), [0, 0, 0, 1]);
        assert_eq!(counted("x a b", "a b y z", 2, Some(2)), [0, 0, 0, 0], "only words that took a draw");
        assert_eq!(counted("a", "a", 1, Some(2)), [1, 1, 1, 0]);
        assert_eq!(counted("a", "", 1, Some(1)), [0, 0, 1, 0], "an empty release is one empty word");
        assert_eq!(counted("...", "", 1, None), [0, 0, 0, 0]);
        assert_eq!(Room::default().count("\u{e4}", "a", 1, None), None);
    }

    #[test]
    fn stretches_are_those_of_a_plain_search() {
        let (mut state, mut room) = (7u64, Room::default());
        let mut next = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        for _ in 0..3_000 {
            let mut text = || (0..next(12)).map(|_| ["a", "b", "c"][next(3) as usize]).collect::<Vec<_>>().join(" ");
            let (raw, released) = (text(), text());
            for words in 1..5 {
                let known = raw.split_whitespace().collect::<Vec<_>>();
                let plain = known
                    .windows(words)
                    .any(|stretch| format!(" {released} ").contains(&format!(" {} ", stretch.join(" "))));
                let found = room.count(&raw, &released, 99, Some(words)).unwrap();
                assert_eq!(found.shared == 1, plain, "{raw} | {released} | {words}");
            }
        }
    }
}
