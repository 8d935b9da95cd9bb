//! Uniforms of many draws at once: reals for continuous noise (docs/spec/stream.md#uniform-real), and choices among m
//! ids.

use zeroize::Zeroizing;

use crate::draw::bounded::first as first_word;
use crate::draw::bounded::{below, second};
use crate::draw::occurrences::Occurrences;
use crate::draw::stream::{Stream, Words};
use crate::errors::{Error, Result};
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

/// An integer below `totals` for every draw, from word 0 of its slot.
///
/// With `before`, the second level of the same draws: an integer below `totals` from word 1, after the first level,
/// an integer below `before`, has taken what it needs of the overflow that both share.
pub fn bounded(
    draws: &Occurrences<'_>,
    purpose: u32,
    width: usize,
    totals: &[u64],
    before: Option<&[u64]>,
    threads: usize,
) -> Result<Vec<u64>> {
    if totals.len() != draws.len() || before.is_some_and(|before| before.len() != draws.len()) {
        return Err(Error::input(format!("{} draws need as many totals", draws.len())));
    }
    draws.refuse_repeats()?;
    let parts = threads::over_rows(draws.len(), WORDS_AT_ONCE, threads, |some| {
        let mut slot: Words = Zeroizing::new(vec![0; width]);
        some.map(|at| {
            let (key, position) = draws.get(at)?;
            let stream = Stream::new(key, purpose)?;
            stream.slot(position, &mut slot)?;
            let (mut more, total) = (stream.overflow(position), totals.get(at).copied().unwrap_or(0));
            match before {
                None => below(total, first_word(&slot)?, &mut more),
                Some(before) => {
                    below(before.get(at).copied().unwrap_or(0), first_word(&slot)?, &mut more)?;
                    below(total, second(&slot)?, &mut more)
                }
            }
        })
        .collect::<Result<Vec<_>>>()
    })?;
    Ok(parts.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::weights::{running_sums, Weights};

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
    fn two_bounded_integers_are_a_draw_of_two_levels() {
        let weights = (0..5000u64).map(|i| if i < 300 { (1 << 54) - 1 } else { 1 << 49 }).collect::<Vec<_>>();
        let (sums, keys) = (running_sums(&weights).unwrap(), [[3; 32]]);
        let (records, positions) = (vec![0; 400], (0..400).collect::<Vec<_>>());
        let draws = Occurrences::new(&keys, &records, &positions).unwrap();
        let blocks = weights.chunks(256).map(|block| block.iter().sum()).collect::<Vec<u64>>();
        let totals = vec![*sums.last().unwrap(); 400];
        let chosen = bounded(&draws, 1, 2, &totals, None, 1).unwrap();
        let find = |weights: &[u64], mut rest: u64| {
            let at = |&weight: &u64| {
                rest < weight || {
                    rest -= weight;
                    false
                }
            };
            weights.iter().position(at).unwrap()
        };
        let found = chosen.iter().map(|&chosen| find(&blocks, chosen)).collect::<Vec<_>>();
        let second = found.iter().map(|&block| blocks[block]).collect::<Vec<_>>();
        let inside = bounded(&draws, 1, 2, &second, Some(&totals), 2).unwrap();
        let stream = Stream::new(&keys[0], 1).unwrap();
        let mut rejected = 0;
        for (at, &position) in positions.iter().enumerate() {
            let mut slot = [0; 2];
            stream.slot(position, &mut slot).unwrap();
            let expected = Weights::from_running(&sums).draw(&slot, &mut stream.overflow(position)).unwrap();
            assert_eq!(found[at] * 256 + find(&weights[found[at] * 256..], inside[at]), expected);
            rejected += usize::from(slot[0] % totals[at] != chosen[at]);
        }
        assert!(rejected > 20, "the overflow is shared");
        assert!(bounded(&draws, 1, 1, &second, Some(&totals), 1).is_err());
        assert!(bounded(&draws, 1, 2, &second[1..], None, 1).is_err());
        assert!(bounded(&draws, 1, 2, &vec![0; 400], None, 1).is_err());
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
