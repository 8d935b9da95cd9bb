//! Short ASCII words in two machine words: cut out of a text, lower-cased and compared eight bytes at a time.

use std::ops::Range;

use crate::text::classes::{class_at, Class};

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
    /// Bytes of a word, at most.
    pub const LONGEST: usize = 16;

    /// A word of `len` ASCII letters at a place of a block; `None` if it is too long.
    #[inline(always)]
    pub fn cut(block: &[u8], at: usize, len: usize) -> Option<Self> {
        let chunk = block.get(at..)?.first_chunk::<{ Self::LONGEST }>()?;
        let mask = u128::MAX.checked_shr(8 * Self::LONGEST.checked_sub(len)? as u32)?;
        let both = (u128::from_le_bytes(*chunk) | u128::from(CASE_BITS) | u128::from(CASE_BITS) << 64) & mask;
        Some(Self { low: both as u64, high: (both >> 64) as u64 })
    }

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

    /// A word of up to 15 ASCII letters that starts at `at` and ends before anything except a letter, with its end;
    /// `None` if it is longer, near the text's end, or another character has a say in where it ends.
    #[inline(always)]
    pub fn of_letters(bytes: &[u8], at: usize) -> Option<(usize, Self)> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
