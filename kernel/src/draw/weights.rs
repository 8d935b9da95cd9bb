//! Draws from integer weights, in one level or two (docs/spec/stream.md#draw). No floating point.

use crate::draw::bounded::{accepted, below, first, no_weight, second};
use crate::draw::outline::Outline;
use crate::draw::stream::Overflow;
use crate::errors::{Error, Result};

/// Output sets above this size are drawn in two levels.
pub const ONE_LEVEL: usize = 4096;

/// Ids of one block of the first level.
pub const BLOCK: usize = 256;

/// One output set's weights as running sums: element `i` is the sum of the weights `0 ..= i`.
#[derive(Clone, Copy)]
pub struct Weights<'a> {
    running: &'a [u64],
    outline: Option<&'a Outline>,
}

impl<'a> Weights<'a> {
    pub fn from_running(running: &'a [u64]) -> Self {
        Self { running, outline: None }
    }

    /// Running sums with their outline.
    #[inline(always)]
    pub fn outlined(running: &'a [u64], outline: &'a Outline) -> Self {
        Self { running, outline: Some(outline) }
    }

    #[inline(always)]
    fn total(&self) -> u64 {
        match self.outline {
            Some(outline) => outline.total,
            None => self.running.last().copied().unwrap_or(0),
        }
    }

    /// The first index whose running sum exceeds `chosen`.
    #[inline(always)]
    pub fn first_above(&self, chosen: u64) -> usize {
        let len = self.running.len();
        let range = match self.outline {
            Some(outline) => outline.range(len, chosen),
            None => 0..len,
        };
        if range.len() == 1 {
            return range.start;
        }
        let sums = self.running.get(range.clone()).unwrap_or_default();
        range.start + sums.partition_point(|&sum| sum <= chosen)
    }

    /// The weights themselves.
    pub fn each(self) -> impl Iterator<Item = u64> + 'a {
        let before = std::iter::once(0).chain(self.running.iter().copied());
        self.running.iter().zip(before).map(|(sum, before)| sum.saturating_sub(before))
    }

    /// The index that the first word of a slot chooses, if it decides the draw by itself.
    #[inline(always)]
    pub fn decided(&self, word: u64) -> Option<usize> {
        let chosen = accepted(self.total(), word)?;
        (self.running.len() <= ONE_LEVEL).then(|| self.first_above(chosen))
    }

    /// The index that a slot's words choose, with further words from `more`.
    #[inline(always)]
    pub fn draw(&self, slot: &[u64], more: &mut Overflow<'_>) -> Result<usize> {
        let chosen = below(self.total(), first(slot)?, more)?;
        if self.running.len() <= ONE_LEVEL {
            Ok(self.first_above(chosen))
        } else {
            self.in_a_block(chosen, slot, more)
        }
    }

    /// The second level: an id inside the block that `chosen` falls into.
    #[inline(never)]
    fn in_a_block(&self, chosen: u64, slot: &[u64], more: &mut Overflow<'_>) -> Result<usize> {
        let block = first_block(self.running, chosen);
        let start = block * BLOCK;
        let before = start.checked_sub(1).and_then(|last| self.running.get(last)).copied().unwrap_or(0);
        let inside = self.running.get(start..).map(|rest| rest.get(..BLOCK).unwrap_or(rest)).unwrap_or(&[]);
        let total = inside.last().copied().unwrap_or(before) - before;
        let chosen = below(total, second(slot)?, more)?;
        Ok(start + inside.partition_point(|&sum| sum - before <= chosen))
    }
}

/// The first block whose running total exceeds `chosen`.
fn first_block(running: &[u64], chosen: u64) -> usize {
    let last = running.len().saturating_sub(1);
    let (mut low, mut high) = (0, running.len().div_ceil(BLOCK));
    while low < high {
        let middle = low.midpoint(high);
        let end = (middle * BLOCK + BLOCK - 1).min(last);
        if running.get(end).is_some_and(|&sum| sum <= chosen) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Running sums of integer weights; refuses a total of zero or of 2^64 and more.
pub fn running_sums(weights: &[u64]) -> Result<Vec<u64>> {
    let mut total = 0u64;
    let mut sums = Vec::with_capacity(weights.len());
    for &weight in weights {
        total = total.checked_add(weight).ok_or_else(|| Error::artifact("the weights' sum is 2^64 or more"))?;
        sums.push(total);
    }
    if total == 0 {
        return Err(no_weight());
    }
    Ok(sums)
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
    fn one_level_is_the_first_running_sum_above() {
        let weights = [5u64, 0, 1, 3];
        let sums = running_sums(&weights).unwrap();
        let drawn = |word| Weights::from_running(&sums).draw(&[word], &mut overflow()).unwrap();
        assert_eq!((0..9).map(drawn).collect::<Vec<_>>(), [0, 0, 0, 0, 0, 2, 3, 3, 3]);
        assert_eq!(Weights::from_running(&sums).each().collect::<Vec<_>>(), weights);
    }

    #[test]
    fn two_levels_take_a_block_and_then_an_id() {
        let weights =
            (0..5000u64).map(|i| if i % 7 == 0 { 0 } else { 1 + i * 2_654_435_761 % 1009 }).collect::<Vec<_>>();
        let sums = running_sums(&weights).unwrap();
        let blocks = weights.chunks(BLOCK).map(|block| block.iter().sum()).collect::<Vec<u64>>();
        let naive = |weights: &[u64], mut rest: u64| {
            weights.iter().position(|&w| {
                let found = rest < w;
                rest = rest.wrapping_sub(w);
                found
            })
        };
        let total: u64 = blocks.iter().sum();
        for i in 0..4000u64 {
            let slot = [i.wrapping_mul(0x9E37_79B9_7F4A_7C15), i.wrapping_mul(0xBF58_476D_1CE4_E5B9)];
            let block = naive(&blocks, slot[0] % total).unwrap();
            let inside = &weights[block * BLOCK..(block * BLOCK + BLOCK).min(weights.len())];
            let expected = block * BLOCK + naive(inside, slot[1] % blocks[block]).unwrap();
            assert_eq!(Weights::from_running(&sums).draw(&slot, &mut overflow()).unwrap(), expected);
        }
        assert!(Weights::from_running(&sums).draw(&[1], &mut overflow()).is_err(), "a slot of one word is too narrow");
    }

    #[test]
    fn totals_of_nothing_and_of_too_much_are_refused() {
        assert!(running_sums(&[]).is_err());
        assert!(running_sums(&[0, 0]).is_err());
        assert!(running_sums(&[u64::MAX, 1]).is_err());
        assert!(running_sums(&[u64::MAX]).is_ok());
    }
}
