//! Exact integers below a bound from words of a stream (docs/spec/stream.md#draws). No floating point.

use crate::draw::stream::Overflow;
use crate::errors::{Error, Result};

/// An integer below `bound`: words at or above the largest multiple of `bound` are rejected.
///
/// `word - word % bound` is the multiple of the bound below the word; it is accepted if a whole bound still fits
/// above it under 2^64, which is `word <= floor(2^64 / bound) * bound - 1` without leaving 64 bits.
#[inline(always)]
pub fn below(bound: u64, word: u64, more: &mut Overflow<'_>) -> Result<u64> {
    match accepted(bound, word) {
        Some(rest) => Ok(rest),
        None => from_overflow(bound, more),
    }
}

/// What a word gives below `bound`; none if it is rejected, or if no integer is below the bound.
#[inline(always)]
pub fn accepted(bound: u64, word: u64) -> Option<u64> {
    let rest = word.checked_rem(bound)?;
    (word - rest <= bound.wrapping_neg()).then_some(rest)
}

#[cold]
#[inline(never)]
fn from_overflow(bound: u64, more: &mut Overflow<'_>) -> Result<u64> {
    if bound == 0 {
        return Err(no_weight());
    }
    loop {
        if let Some(rest) = accepted(bound, more.next_word()?) {
            return Ok(rest);
        }
    }
}

pub fn no_weight() -> Error {
    Error::artifact("a draw has no output with a weight above zero")
}

/// Word 0 of a slot.
#[inline(always)]
pub fn first(slot: &[u64]) -> Result<u64> {
    slot.first().copied().ok_or_else(|| Error::internal("a draw needs a slot"))
}

/// Word 1 of a slot, for the second level of a draw.
#[inline(always)]
pub fn second(slot: &[u64]) -> Result<u64> {
    slot.get(1).copied().ok_or_else(|| Error::internal("a two-level draw needs a slot of two words"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::stream::Stream;

    const KEY: [u8; 32] = [7; 32];

    fn overflow() -> Overflow<'static> {
        Stream::new(&KEY, 1).unwrap().overflow(0)
    }

    #[test]
    fn words_below_the_largest_multiple_are_accepted_and_no_others() {
        for bound in [1u64, 2, 3, 5, 1 << 32, (1 << 46) + 1, (1 << 61) + 1, 1 << 63, (1 << 63) + 1, u64::MAX] {
            let multiple = (1u128 << 64) / u128::from(bound) * u128::from(bound);
            for word in [0, 1, bound - 1, bound, bound / 2, (multiple - 1) as u64, multiple as u64, u64::MAX] {
                let mut more = overflow();
                let got = below(bound, word, &mut more).unwrap();
                assert!(got < bound);
                if u128::from(word) < multiple {
                    assert_eq!(got, word % bound, "bound {bound}, word {word}");
                } else {
                    let next = overflow().next_word().unwrap();
                    assert_eq!(got, next % bound, "bound {bound}, word {word} is drawn again");
                }
            }
        }
        assert!(below(0, 1, &mut overflow()).is_err());
    }
}
