//! Uniforms of many draws at once: reals for continuous noise (`stream.md`, amendment A9), and choices among m ids.

use zeroize::Zeroizing;

use crate::errors::{Error, Result};
use crate::occurrences::Occurrences;
use crate::sampler::{below, first as first_word};
use crate::stream::{Stream, Words};
use crate::threads;

/// 2^-128.
const UNIT: f64 = 1.0 / (1u128 << 127) as f64 / 2.0;

/// Words that one thread turns into reals at a time.
const WORDS_AT_ONCE: usize = 1 << 16;

/// The real in (0, 1] of two words, with the sign that the second one's lowest bit says: set is minus.
#[inline]
pub fn signed(high: u64, low: u64) -> f64 {
    let size = (u128::from(high) << 64 | u128::from(low | 1)) as f64 * UNIT;
    if low & 1 == 1 {
        -size
    } else {
        size
    }
}

/// `count` signed uniforms of every draw, one draw after the other.
///
/// Number i of a draw at position p comes from words `p * width + first + 2 i` and the next one.
pub fn signed_uniforms(
    draws: &Occurrences<'_>,
    purpose: u32,
    width: usize,
    first: usize,
    count: usize,
    threads: usize,
) -> Result<Vec<f64>> {
    let words = count.checked_mul(2).filter(|words| words.checked_add(first).is_some_and(|end| end <= width));
    let words = words.ok_or_else(|| Error::policy("the numbers of a draw lie in its slot"))?;
    let parts = threads::over_rows(draws.len(), (WORDS_AT_ONCE / words.max(1)).max(1), threads, |some| {
        let mut pairs: Words = Zeroizing::new(vec![0; words]);
        let mut reals = Vec::with_capacity(some.len() * count);
        for at in some {
            let (key, position) = draws.get(at)?;
            let start = position.checked_mul(width as u64).and_then(|start| start.checked_add(first as u64));
            let start = start.ok_or_else(|| Error::input("a position is too large"))?;
            Stream::new(key, purpose)?.words(start, &mut pairs)?;
            let (pairs, _) = pairs.as_chunks::<2>();
            reals.extend(pairs.iter().map(|&[high, low]| signed(high, low)));
        }
        Ok(reals)
    })?;
    Ok(parts.concat())
}

/// An integer below `bound` for every draw: from word 0 of its slot, or from its overflow where slots have no width.
pub fn choices(draws: &Occurrences<'_>, purpose: u32, width: usize, bound: u64, threads: usize) -> Result<Vec<u64>> {
    let parts = threads::over_rows(draws.len(), WORDS_AT_ONCE, threads, |some| {
        let mut slot: Words = Zeroizing::new(vec![0; width]);
        some.map(|at| {
            let (key, position) = draws.get(at)?;
            let stream = Stream::new(key, purpose)?;
            let mut more = stream.overflow(position);
            let word = if width == 0 {
                more.next_word()?
            } else {
                stream.slot(position, &mut slot)?;
                first_word(&slot)?
            };
            below(bound, word, &mut more)
        })
        .collect::<Result<Vec<_>>>()
    })?;
    Ok(parts.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_words_are_a_real_of_full_precision() {
        assert_eq!(signed(0, 0), UNIT);
        assert_eq!(signed(0, 1), -UNIT);
        assert_eq!(signed(1 << 63, 0), 0.5);
        assert_eq!(signed(u64::MAX, u64::MAX), -1.0);
        assert_eq!(signed(0, 6), 7.0 * UNIT);
        assert_eq!(UNIT, (-128f64).exp2());
    }

    #[test]
    fn numbers_outside_the_slot_are_refused() {
        let keys = [[3; 32]];
        let draws = Occurrences::new(&keys, &[0, 0], &[0, 9]).unwrap();
        assert!(signed_uniforms(&draws, 5, 8, 4, 3, 1).is_err());
        assert!(signed_uniforms(&draws, 5, 8, 4, usize::MAX / 2 + 1, 1).is_err());
        let whole = signed_uniforms(&draws, 5, 8, 0, 4, 1).unwrap();
        let tail = signed_uniforms(&draws, 5, 8, 4, 2, 2).unwrap();
        assert_eq!(tail, [whole[2], whole[3], whole[6], whole[7]]);
        assert!(choices(&draws, 1, 1, 0, 1).is_err());
        assert!(choices(&draws, 1, 1, 7, 1).unwrap().iter().all(|&choice| choice < 7));
    }
}
