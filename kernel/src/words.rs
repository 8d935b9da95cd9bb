//! Words of a text: Unicode word segments (UAX 29) that hold a letter or digit, and how they are looked up.
//!
//! Stretches of ASCII are scanned by the same rules written out for ASCII; where another character comes near,
//! the `unicode-segmentation` crate decides. Tests hold the two to each other.

use std::ops::{ControlFlow, Range};

use unicode_segmentation::UnicodeSegmentation;

/// The segmentation's Unicode version; the standard library's stands beside it if that differs.
pub fn unicode_version() -> String {
    let (major, _, _) = unicode_segmentation::UNICODE_VERSION;
    let (letters, _, _) = char::UNICODE_VERSION;
    if major == u64::from(letters) {
        format!("unicode-{major}")
    } else {
        format!("unicode-{major}-letters-{letters}")
    }
}

/// All segments of a text with whether they are words; joined they are the text.
pub fn segments(text: &str) -> impl Iterator<Item = (&str, bool)> {
    let mut words = text.unicode_word_indices().map(|(start, _)| start).peekable();
    text.split_word_bound_indices().map(move |(start, segment)| (segment, words.next_if_eq(&start).is_some()))
}

/// Whether a word counts as a number: its first letter or digit is numeric.
pub fn is_number(word: &str) -> bool {
    word.chars().find(|c| c.is_alphanumeric()).is_some_and(char::is_numeric)
}

/// The form under which a word is looked up: lower case, the typographic apostrophe as the plain one.
pub fn look_up_form(word: &str) -> String {
    let lower = word.to_lowercase();
    if lower.contains('\u{2019}') {
        lower.replace('\u{2019}', "'")
    } else {
        lower
    }
}

/// An ASCII word of 1 to 16 bytes, lower-cased and zero-padded. No word holds a zero byte, so different words differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    pub low: u64,
    pub high: u64,
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x80 * ONES;
const CASE_BITS: u64 = 0x20 * ONES;

/// Marks bytes from `first` to `last` by their highest bit, among bytes below 0x80.
#[inline(always)]
const fn between(bytes: u64, first: u8, last: u8) -> u64 {
    let from_first = bytes + ONES * (0x80 - first as u64);
    let above_last = bytes + ONES * (0x7f - last as u64);
    from_first & !above_last & HIGH_BITS
}

/// Lower-cases eight ASCII bytes at once.
#[inline(always)]
const fn lower(bytes: u64) -> u64 {
    bytes | (between(bytes, b'A', b'Z') >> 2)
}

/// Marks ASCII letters among any bytes.
#[inline(always)]
const fn letters(bytes: u64) -> u64 {
    between((bytes | CASE_BITS) & !HIGH_BITS, b'a', b'z') & !bytes
}

impl Packed {
    /// The word at `range`, lower-cased; `None` if it is too long or not ASCII.
    pub fn from_text(text: &[u8], range: Range<usize>) -> Option<Self> {
        let word = text.get(range)?;
        let mut chunk = [0u8; 16];
        if word.is_empty() || !word.is_ascii() {
            return None;
        }
        chunk.get_mut(..word.len())?.copy_from_slice(word);
        let both = u128::from_le_bytes(chunk);
        Some(Self { low: lower(both as u64), high: lower((both >> 64) as u64) })
    }

    /// A word of up to 15 ASCII letters that starts at `at` and ends before anything but a letter, with its end;
    /// `None` if it is longer, near the text's end, or another character has a say in where it ends.
    #[inline(always)]
    fn of_letters(bytes: &[u8], at: usize) -> Option<(usize, Self)> {
        let chunk = bytes.get(at..)?.first_chunk::<16>()?;
        let both = u128::from_le_bytes(*chunk);
        let (low, high) = (both as u64, (both >> 64) as u64);
        let (low_ends, high_ends) = (!letters(low) & HIGH_BITS, !letters(high) & HIGH_BITS);
        let (len, packed) = if low_ends != 0 {
            let bits = low_ends.trailing_zeros() - 7;
            let word = low & ((1 << bits) - 1);
            (bits / 8, Self { low: word | CASE_BITS & ((1 << bits) - 1), high: 0 })
        } else if high_ends != 0 {
            let bits = high_ends.trailing_zeros() - 7;
            let mask = (1 << bits) - 1;
            (8 + bits / 8, Self { low: low | CASE_BITS, high: (high | CASE_BITS) & mask })
        } else {
            return None;
        };
        let end = at + len as usize;
        match class_at(bytes, end) {
            Class::Space | Class::Other | Class::MidNum => Some((end, packed)),
            Class::MidLetter | Class::MidNumLet if !matches!(class_at(bytes, end + 1), Class::Letter | Class::Wide) => {
                Some((end, packed))
            }
            _ => None,
        }
    }
}

/// Word break classes of ASCII (UAX 29, table 3).
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Class {
    Letter,
    Digit,
    /// `_`
    ExtendNumLet,
    /// `:`
    MidLetter,
    /// `,` and `;`
    MidNum,
    /// `.` and `'`
    MidNumLet,
    Space,
    Other,
    /// A byte of a character that is not ASCII.
    Wide,
    End,
}

const fn class(byte: u8) -> Class {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' => Class::Letter,
        b'0'..=b'9' => Class::Digit,
        b'_' => Class::ExtendNumLet,
        b':' => Class::MidLetter,
        b',' | b';' => Class::MidNum,
        b'.' | b'\'' => Class::MidNumLet,
        b' ' => Class::Space,
        0x80.. => Class::Wide,
        _ => Class::Other,
    }
}

// Indexed while compiling, never while running.
#[allow(clippy::indexing_slicing)]
const CLASSES: [Class; 256] = {
    let mut classes = [Class::Other; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = class(byte as u8);
        byte += 1;
    }
    classes
};

#[inline(always)]
fn class_at(bytes: &[u8], at: usize) -> Class {
    bytes.get(at).and_then(|&byte| CLASSES.get(usize::from(byte))).copied().unwrap_or(Class::End)
}

/// Calls `found` with the byte range of each word, in order, and its packed form where the scan has it at hand,
/// until it breaks.
pub fn scan(text: &str, mut found: impl FnMut(Range<usize>, Option<Packed>) -> ControlFlow<()>) {
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        let (start, end, is_word, packed) = match class_at(bytes, at) {
            Class::Letter => match Packed::of_letters(bytes, at) {
                Some((end, packed)) => (at, end, Some(true), Some(packed)),
                None => ascii_word(bytes, at),
            },
            Class::Digit | Class::ExtendNumLet => ascii_word(bytes, at),
            // The character before, if there is one, is ASCII and no part of a word: a boundary lies before it.
            Class::Wide => (at.saturating_sub(1), at, None, None),
            Class::End => return,
            _ => {
                at += 1;
                continue;
            }
        };
        at = end;
        let flow = match is_word {
            Some(true) => found(start..end, packed),
            Some(false) => ControlFlow::Continue(()),
            None => {
                let stretch = wide_stretch(bytes, start);
                at = stretch.end;
                by_the_crate(text, stretch, &mut found)
            }
        };
        if flow.is_break() {
            return;
        }
    }
}

/// The segment of letters, digits and joiners that starts at `start`, and whether it holds a letter or digit; `None`
/// if a character beyond ASCII has a say in it.
fn ascii_word(bytes: &[u8], start: usize) -> (usize, usize, Option<bool>, Option<Packed>) {
    let mut at = start;
    let mut before = class_at(bytes, at);
    let mut alphanumeric = before != Class::ExtendNumLet;
    loop {
        at += 1;
        let here = class_at(bytes, at);
        match here {
            Class::Letter | Class::Digit => alphanumeric = true, // WB5, WB8, WB9, WB10, WB13b
            Class::ExtendNumLet => {}                            // WB13a
            Class::MidLetter | Class::MidNum | Class::MidNumLet => {
                let after = class_at(bytes, at + 1);
                let joins = match (before, here) {
                    (Class::Letter, Class::MidLetter | Class::MidNumLet) => after == Class::Letter, // WB6, WB7
                    (Class::Digit, Class::MidNum | Class::MidNumLet) => after == Class::Digit,      // WB11, WB12
                    _ => false,
                };
                if after == Class::Wide {
                    return (start, at, None, None);
                }
                if !joins {
                    return (start, at, Some(alphanumeric), None);
                }
                at += 1;
                before = after;
                continue;
            }
            Class::Wide => return (start, at, None, None),
            Class::Space | Class::Other | Class::End => return (start, at, Some(alphanumeric), None),
        }
        before = here;
    }
}

/// From a boundary at `start` to the next boundary that ASCII alone decides: before a space that follows another
/// character than a space, behind the first character that is not ASCII.
fn wide_stretch(bytes: &[u8], start: usize) -> Range<usize> {
    let mut seen = false;
    let mut before = b' ';
    for (i, &byte) in bytes.iter().enumerate().skip(start) {
        if seen && byte == b' ' && before != b' ' {
            return start..i;
        }
        seen |= byte >= 0x80;
        before = byte;
    }
    start..bytes.len()
}

fn by_the_crate(
    text: &str,
    stretch: Range<usize>,
    found: &mut impl FnMut(Range<usize>, Option<Packed>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    for (at, word) in text.get(stretch.clone()).unwrap_or_default().unicode_word_indices() {
        let start = stretch.start + at;
        found(start..start + word.len(), None)?;
    }
    ControlFlow::Continue(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(text: &str) -> Vec<&str> {
        let mut words = Vec::new();
        scan(text, |range, packed| {
            if let Some(packed) = packed {
                assert_eq!(Packed::from_text(text.as_bytes(), range.clone()), Some(packed));
            }
            words.push(&text[range]);
            ControlFlow::Continue(())
        });
        words
    }

    fn agrees(text: &str) {
        assert_eq!(scanned(text), text.unicode_words().collect::<Vec<_>>(), "{text:?}");
        let parts = segments(text).collect::<Vec<_>>();
        assert_eq!(parts.iter().map(|part| part.0).collect::<String>(), text);
        let words = parts.iter().filter(|part| part.1).map(|part| part.0).collect::<Vec<_>>();
        assert_eq!(words, scanned(text), "{text:?}");
    }

    /// Texts of up to `len` characters of an alphabet, by a small generator.
    fn texts(alphabet: &[char], len: usize, count: usize, seed: u64) -> impl Iterator<Item = String> + '_ {
        let mut state = seed;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as usize
        };
        (0..count).map(move |_| (0..next() % len + 1).map(|_| alphabet[next() % alphabet.len()]).collect())
    }

    #[test]
    fn every_short_ascii_text_agrees_with_the_crate() {
        let alphabet = "aZ0_:;,.'\" -\r\n\u{b}\t\0".chars().collect::<Vec<_>>();
        let mut all = vec![String::new()];
        for _ in 0..4 {
            all = all.iter().flat_map(|text| alphabet.iter().map(move |c| format!("{text}{c}"))).collect();
            all.iter().for_each(|text| agrees(text));
        }
    }

    #[test]
    fn random_ascii_texts_agree_with_the_crate() {
        let ascii = (0u8..0x80).map(char::from).collect::<Vec<_>>();
        texts(&ascii, 40, 40_000, 11).for_each(|text| agrees(&text));
        let likely = "abzA09__::;;,,..''\"\"  --\r\n\t@/".chars().collect::<Vec<_>>();
        texts(&likely, 60, 40_000, 12).for_each(|text| agrees(&text));
    }

    #[test]
    fn mixed_texts_agree_with_the_crate() {
        let mixed = "ab1_:,.'\"  -\r\né\u{301}\u{308}\u{200d}\u{ad}\u{2019}\u{2018}·٠אשב我カｶ\u{3000}\u{2003}\u{85}🇩🇪👩👧😀\u{1f3fb}\u{fe0f}ǅ½²Ⅷ\u{e0001}\u{2028}ะ"
            .chars()
            .collect::<Vec<_>>();
        texts(&mixed, 24, 60_000, 13).for_each(|text| agrees(&text));
        let every = (0..0x3000u32).chain(0x1f000..0x1fa00).filter_map(char::from_u32).collect::<Vec<_>>();
        texts(&every, 12, 40_000, 14).for_each(|text| agrees(&text));
        let mostly_ascii = "aaaaaaaaa    ....''''1111é\u{301}\u{200d}我".chars().collect::<Vec<_>>();
        texts(&mostly_ascii, 40, 40_000, 15).for_each(|text| agrees(&text));
    }

    #[test]
    fn scanning_stops_when_told() {
        let mut seen = 0;
        scan("a b cé d e", |_, _| {
            seen += 1;
            if seen == 3 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        assert_eq!(seen, 3);
    }

    #[test]
    fn every_byte_is_classed_and_lower_cased_as_ascii() {
        for byte in 0..=u8::MAX {
            let eight = u64::from_le_bytes([byte; 8]);
            assert_eq!(letters(eight), if byte.is_ascii_alphabetic() { HIGH_BITS } else { 0 }, "{byte}");
            if byte.is_ascii() {
                assert_eq!(lower(eight), u64::from_le_bytes([byte.to_ascii_lowercase(); 8]), "{byte}");
            }
        }
    }

    #[test]
    fn numbers_and_look_up_forms() {
        for (word, number) in
            [("42", true), ("3.14", true), ("½", true), ("10th", true), ("_1", true), ("b2b", false), ("é1", false)]
        {
            assert_eq!(is_number(word), number, "{word}");
        }
        assert_eq!(look_up_form("Don\u{2019}T"), "don't");
        assert_eq!(look_up_form("ΟΔΟΣ"), "οδος");
    }
}
