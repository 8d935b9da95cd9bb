//! Parts of an original in its release: whole copies, words at their place, stretches of words.
//!
//! Words of an original are runs of letters, marks, numbers and "'" after it was lower-cased; a single blank separates
//! words of a release. Hashes find rows that may share a stretch; words decide.

use std::collections::HashSet;
use std::iter;
use std::ops::AddAssign;

use crate::text::marks::in_word;

/// Multiplier of hashes of words and of stretches.
const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
/// Places of a table for every hash in it, at least.
const SPARSE: usize = 8;
/// Behind every text, so that eight bytes can be read from each of its places.
const BLANKS: [u8; 8] = [b' '; 8];

/// Counts over rows of at least one draw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// Releases that are their originals, word by word.
    pub copies: u64,
    /// Words at their place, in rows with as many words as their originals.
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
    raw: Words,
    released: Words,
    table: Vec<u64>,
}

impl Room {
    /// Counts one row; `draws` words of the original are searched for stretches of `stretch` words.
    pub fn count(&mut self, raw: &str, released: &str, draws: usize, stretch: Option<usize>) -> Copies {
        self.raw.read_original(raw);
        self.released.read_release(released);
        let (raw, ours) = (&self.raw, &self.released);
        let mut found = Copies::default();
        if raw.words.len() == ours.words.len() {
            let pairs = raw.words.iter().zip(&ours.words);
            let kept = pairs.filter(|(word, other)| word.hash == other.hash && raw.of(word) == ours.of(other)).count();
            found.compared = raw.words.len() as u64;
            found.kept = kept as u64;
            found.copies = u64::from(kept == raw.words.len());
        }
        self.raw.words.truncate(draws);
        let most = self.raw.words.len().min(self.released.words.len());
        if let Some(words) = stretch.filter(|words| (1..=most).contains(words)) {
            let block = words.div_ceil(2); // of blocks end to end, every stretch holds a whole one
            let may_share = self.meet(block, block) && self.meet(words, 1);
            found.shared = u64::from(may_share && self.shares(words));
        }
        found
    }

    /// Whether this number of words of the release has the hash of as many of the original, which are looked at every `step`
    /// words.
    fn meet(&mut self, words: usize, step: usize) -> bool {
        let places = (SPARSE * self.raw.words.len().div_ceil(step)).next_power_of_two();
        self.table.clear();
        self.table.resize(places, 0);
        let shift = u64::BITS - places.ilog2();
        let place = |hash: u64| (hash >> shift) as usize;
        for hash in self.raw.stretches(words).step_by(step) {
            let mut at = place(hash);
            while let Some(held) = self.table.get_mut(at) {
                if *held == 0 || *held == hash {
                    *held = hash;
                    break;
                }
                at = (at + 1) % places;
            }
        }
        self.released.stretches(words).any(|hash| {
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
    fn shares(&self, words: usize) -> bool {
        let (raw, ours) = (self.raw.all(), self.released.all());
        let known = raw.windows(words).collect::<HashSet<_>>();
        ours.windows(words).any(|stretch| known.contains(stretch))
    }
}

/// The words of a text.
#[derive(Default)]
struct Words {
    /// The text, blanks between its words and behind it.
    text: Vec<u8>,
    words: Vec<Word>,
}

/// Where a word is, and its hash.
struct Word {
    start: usize,
    end: usize,
    hash: u64,
}

impl Words {
    fn read_original(&mut self, text: &str) {
        self.text.clear();
        if text.is_ascii() {
            self.text.extend(text.bytes().map(in_word_or_blank));
        } else {
            let mut utf8 = [0; 4];
            for c in text.to_lowercase().chars() {
                match c {
                    '\0'..='\x7f' => self.text.push(in_word_or_blank(c as u8)),
                    '\u{2019}' => self.text.push(b'\''),
                    _ if in_word(c) => self.text.extend_from_slice(c.encode_utf8(&mut utf8).as_bytes()),
                    _ => self.text.push(b' '),
                }
            }
        }
        self.split(false);
    }

    fn read_release(&mut self, text: &str) {
        self.text.clear();
        self.text.extend_from_slice(text.as_bytes());
        self.split(true);
    }

    /// Finds the words of the text between single blanks; keeps empty ones if asked.
    fn split(&mut self, empty: bool) {
        let end = self.text.len();
        self.text.extend_from_slice(&BLANKS);
        self.words.clear();
        let mut start = 0;
        while start <= end {
            let word = Word::at(&self.text, start);
            start = word.end + 1;
            if empty || word.start < word.end {
                self.words.push(word);
            }
        }
    }

    fn of(&self, word: &Word) -> &[u8] {
        self.text.get(word.start..word.end).unwrap_or_default()
    }

    fn all(&self) -> Vec<&[u8]> {
        self.words.iter().map(|word| self.of(word)).collect()
    }

    /// The hash of every stretch of a number of words, in order; never 0.
    fn stretches(&self, words: usize) -> impl Iterator<Item = u64> + '_ {
        let hashes = || self.words.iter().map(|word| word.hash);
        let gone = (0..words).fold(1u64, |power, _| power.wrapping_mul(ODD));
        let join = |rolling: u64, hash: u64| rolling.wrapping_mul(ODD).wrapping_add(hash);
        let mut rolling = hashes().take(words - 1).fold(0, join);
        hashes().skip(words - 1).zip(iter::once(0).chain(hashes())).map(move |(hash, before)| {
            rolling = join(rolling, hash).wrapping_sub(before.wrapping_mul(gone));
            (rolling ^ rolling >> 32).wrapping_mul(ODD).max(1)
        })
    }
}

impl Word {
    /// The word from a place of a text to the next blank, hashed eight bytes at a time. `BLANKS` end the text.
    fn at(text: &[u8], start: usize) -> Self {
        let (mut end, mut hash) = (start, 1);
        while let Some(&bytes) = text.get(end..).and_then(|rest| rest.first_chunk::<8>()) {
            let bytes = u64::from_le_bytes(bytes);
            let before = bytes_before_a_blank(bytes);
            if before < 8 {
                hash = mixed(hash ^ (bytes & !(u64::MAX << (8 * before))));
                end += before;
                break;
            }
            hash = mixed(hash ^ bytes);
            end += 8;
        }
        Self { start, end, hash }
    }
}

fn mixed(hash: u64) -> u64 {
    let hash = hash.wrapping_mul(ODD);
    hash ^ hash >> 29
}

/// How many of eight bytes are before the first blank; 8 if none is one.
fn bytes_before_a_blank(bytes: u64) -> usize {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    let zero_at_blanks = bytes ^ (ONES * b' ' as u64);
    let marked = zero_at_blanks.wrapping_sub(ONES) & !zero_at_blanks & (ONES << 7); // the lowest mark is a blank's
    marked.trailing_zeros() as usize / 8
}

/// A byte of ASCII as it is in a word, lower-cased; a blank where it is in none.
fn in_word_or_blank(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() | (byte == b'\'') {
        byte.to_ascii_lowercase()
    } else {
        b' '
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pseudo_random::numbers;

    fn counted(raw: &str, released: &str, draws: usize, stretch: Option<usize>) -> [u64; 4] {
        let found = Room::default().count(raw, released, draws, stretch);
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
    }

    #[test]
    fn letters_and_marks_beyond_ascii_are_in_words() {
        assert_eq!(counted("\u{c4}RGER\u{a0}e\u{301}\u{2014}x", "\u{e4}rger e\u{301} x", 3, Some(3)), [1, 3, 3, 1]);
        assert_eq!(counted("Don\u{2019}t \u{130}", "don't i\u{307}", 2, Some(2)), [1, 2, 2, 1]);
        assert_eq!(counted("\u{24b6}a\u{1f600}b", "a b", 2, None), [1, 2, 2, 0], "a circled letter is a symbol");
        assert_eq!(counted("\u{e9}", "\u{e9}\u{a0}", 1, None), [0, 0, 1, 0], "only a blank ends a released word");
    }

    #[test]
    fn words_of_any_length_are_found_and_hashed() {
        for length in 0..40 {
            let word = "abcdefghij".repeat(4)[..length].to_owned();
            for (text, words) in [(word.clone(), 1), (format!("{word} {word}"), 2), (format!(" {word}x"), 2)] {
                let mut read = Words::default();
                read.read_release(&text);
                assert_eq!(read.all(), text.split(' ').map(str::as_bytes).collect::<Vec<_>>());
                assert_eq!(read.words.len(), words);
                read.read_original(&text);
                assert_eq!(read.all(), text.split_whitespace().map(str::as_bytes).collect::<Vec<_>>());
            }
        }
        let hash = |text: &str| Word::at(&[text.as_bytes(), &BLANKS].concat(), 0).hash;
        assert_eq!(hash("abcdefghi x"), hash("abcdefghi y"));
        assert_ne!(hash("abcdefgh"), hash("abcdefghi"));
    }

    #[test]
    fn stretches_are_those_of_a_plain_search() {
        let (mut numbers, mut room) = (numbers(7), Room::default());
        let mut next = |below: u64| numbers() % below;
        for _ in 0..3_000 {
            let mut text = || (0..next(12)).map(|_| ["a", "b", "c"][next(3) as usize]).collect::<Vec<_>>().join(" ");
            let (raw, released) = (text(), text());
            for words in 1..5 {
                let known = raw.split_whitespace().collect::<Vec<_>>();
                let plain = known
                    .windows(words)
                    .any(|stretch| format!(" {released} ").contains(&format!(" {} ", stretch.join(" "))));
                let found = room.count(&raw, &released, 99, Some(words));
                assert_eq!(found.shared == 1, plain, "{raw} | {released} | {words}");
            }
        }
    }
}
