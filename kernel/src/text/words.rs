//! Words of a text: Unicode word segments (UAX 29) that hold a letter or digit, and how they are looked up.
//!
//! Stretches of ASCII are scanned by the same rules written out for ASCII; where another character comes near,
//! the `unicode-segmentation` crate decides. Tests hold the two to each other.

use std::ops::{ControlFlow, Range};

use unicode_segmentation::UnicodeSegmentation;

use crate::text::blocks;
use crate::text::classes::{class_at, Class};
use crate::text::packed::Packed;

/// The segmentation's Unicode version; the standard library's follows if it differs.
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

/// Calls `found` with the byte range of each word, in order, and its packed form where the scan has it at hand,
/// until it breaks.
pub fn scan(text: &str, found: impl FnMut(Range<usize>, Option<Packed>) -> ControlFlow<()>) {
    #[cfg(target_arch = "x86_64")]
    if crate::processor::has_avx2() {
        // SAFETY: the processor has what the function is compiled for, as the line above found.
        return unsafe { scan_avx2(text, found) };
    }
    scan_plain(text, found);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn scan_avx2(text: &str, found: impl FnMut(Range<usize>, Option<Packed>) -> ControlFlow<()>) {
    scan_plain(text, found);
}

#[inline(always)]
fn scan_plain(text: &str, mut found: impl FnMut(Range<usize>, Option<Packed>) -> ControlFlow<()>) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(other) = blocks::words(bytes, at, &mut found) {
        at = other;
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

/// From a boundary at `start` to the next boundary that only ASCII decides: before a space that follows another
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
    use crate::pseudo_random::numbers;

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

    /// Texts of up to `len` characters of an alphabet.
    fn texts(alphabet: &[char], len: usize, count: usize, seed: u64) -> impl Iterator<Item = String> + '_ {
        let mut numbers = numbers(seed);
        let mut next = move || numbers() as usize;
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
        texts(&ascii, 40, 10_000, 11).for_each(|text| agrees(&text));
        let likely = "abzA09__::;;,,..''\"\"  --\r\n\t@/".chars().collect::<Vec<_>>();
        texts(&likely, 60, 10_000, 12).for_each(|text| agrees(&text));
        let words = "aaaaaaaaaaaaBBBBBBBZ     .',1".chars().collect::<Vec<_>>();
        texts(&words, 300, 400, 16).for_each(|text| agrees(&text));
        let letters = "abcdefghijklmnopqrstuvwxyz".repeat(3);
        let starts = [0, 1, 30, 46, 47, 48, 60, 61, 62, 63, 64];
        let ends = ["", " ", "'s", "."];
        for (before, len, after) in
            starts.iter().flat_map(|&n| (0..78).flat_map(move |len| ends.map(|after| (n, len, after))))
        {
            agrees(&format!("{}{}{after}", " ".repeat(before), &letters[..len]));
        }
    }

    #[test]
    fn mixed_texts_agree_with_the_crate() {
        let mixed = "ab1_:,.'\"  -\r\né\u{301}\u{308}\u{200d}\u{ad}\u{2019}\u{2018}·٠אשב我カｶ\u{3000}\u{2003}\u{85}🇩🇪👩👧😀\u{1f3fb}\u{fe0f}ǅ½²Ⅷ\u{e0001}\u{2028}ะ"
            .chars()
            .collect::<Vec<_>>();
        texts(&mixed, 24, 15_000, 13).for_each(|text| agrees(&text));
        let every = (0..0x3000u32).chain(0x1f000..0x1fa00).filter_map(char::from_u32).collect::<Vec<_>>();
        texts(&every, 12, 10_000, 14).for_each(|text| agrees(&text));
        let mostly_ascii = "aaaaaaaaa    ....''''1111é\u{301}\u{200d}我".chars().collect::<Vec<_>>();
        texts(&mostly_ascii, 40, 10_000, 15).for_each(|text| agrees(&text));
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
