//! The exact sampler: integer weights, rejection, one and two levels (`stream.md`, `privacy.md` 2.2). No floating point.

use crate::errors::{Error, Result};
use crate::stream::{Overflow, Stream};

/// Output sets above this size are drawn in two levels.
pub const ONE_LEVEL: usize = 4096;

/// Ids of one block of the first level.
pub const BLOCK: usize = 256;

/// An integer below `bound`: words at or above the largest multiple of `bound` are rejected.
///
/// `word - word % bound` is the multiple of the bound below the word; it is accepted if a whole bound still fits
/// above it under 2^64, which is `word <= floor(2^64 / bound) * bound - 1` without leaving 64 bits.
#[inline]
pub fn below(bound: u64, word: u64, more: &mut Overflow<'_>) -> Result<u64> {
    let mut word = word;
    loop {
        let rest = word.checked_rem(bound).ok_or_else(no_weight)?;
        if word - rest <= bound.wrapping_neg() || bound == 1 {
            return Ok(rest);
        }
        word = more.next_word()?;
    }
}

fn no_weight() -> Error {
    Error::artifact("a draw has no output with a weight above zero")
}

/// One output set's weights as running sums: element `i` is the sum of the weights `0 ..= i`.
#[derive(Clone, Copy)]
pub struct Weights<'a> {
    running: &'a [u64],
}

impl<'a> Weights<'a> {
    pub fn from_running(running: &'a [u64]) -> Self {
        Self { running }
    }

    /// The weights themselves.
    pub fn each(self) -> impl Iterator<Item = u64> + 'a {
        let before = std::iter::once(0).chain(self.running.iter().copied());
        self.running.iter().zip(before).map(|(sum, before)| sum.saturating_sub(before))
    }

    /// The index that a slot's words choose, with further words from `more`.
    #[inline]
    pub fn draw(&self, slot: &[u64], more: &mut Overflow<'_>) -> Result<usize> {
        let (Some(&total), Some(&word)) = (self.running.last(), slot.first()) else {
            return Err(no_weight());
        };
        let chosen = below(total, word, more)?;
        if self.running.len() <= ONE_LEVEL {
            return Ok(self.running.partition_point(|&sum| sum <= chosen));
        }
        let word = *slot.get(1).ok_or_else(|| Error::internal("a two-level draw needs a slot of two words"))?;
        let block = first_block(self.running, chosen);
        let start = block * BLOCK;
        let before = start.checked_sub(1).and_then(|last| self.running.get(last)).copied().unwrap_or(0);
        let inside = self.running.get(start..).map(|rest| rest.get(..BLOCK).unwrap_or(rest)).unwrap_or(&[]);
        let total = inside.last().copied().unwrap_or(before) - before;
        let chosen = below(total, word, more)?;
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

/// The draws of one record for one purpose: each position once.
///
/// Slots are `width` words wide, one number per purpose and configuration. Debug builds refuse a second use of a
/// position (amendment A6).
pub struct Draws<'k> {
    stream: Stream<'k>,
    width: usize,
    #[cfg(debug_assertions)]
    used: std::collections::HashSet<u64>,
}

impl<'k> Draws<'k> {
    pub fn new(stream: Stream<'k>, width: usize) -> Self {
        Self {
            stream,
            width: width.max(1),
            #[cfg(debug_assertions)]
            used: std::collections::HashSet::new(),
        }
    }

    /// Slots of the positions `first ..`, one after the other, into `out` (a whole number of slots).
    pub fn slots(&self, first: u64, out: &mut [u64]) -> Result<()> {
        let start = first.checked_mul(self.width as u64).ok_or_else(|| Error::input("a position is too large"))?;
        self.stream.words(start, out)
    }

    /// The index drawn at `position` from its slot.
    #[inline]
    pub fn choose(&mut self, position: u64, slot: &[u64], weights: Weights<'_>) -> Result<usize> {
        self.take(position)?;
        weights.draw(slot, &mut self.stream.overflow(position))
    }

    /// An integer below `bound` drawn at `position` from its slot: one level, whatever the bound.
    #[inline]
    pub fn uniform(&mut self, position: u64, slot: &[u64], bound: u64) -> Result<u64> {
        self.take(position)?;
        let word = *slot.first().ok_or_else(|| Error::internal("a draw needs a slot"))?;
        below(bound, word, &mut self.stream.overflow(position))
    }

    #[cfg(debug_assertions)]
    fn take(&mut self, position: u64) -> Result<()> {
        if self.used.insert(position) {
            Ok(())
        } else {
            Err(Error::internal(format!("position {position} of a stream was drawn twice")))
        }
    }

    #[cfg(not(debug_assertions))]
    #[inline(always)]
    #[allow(clippy::unused_self, clippy::unnecessary_wraps)]
    fn take(&mut self, _position: u64) -> Result<()> {
        Ok(())
    }
}
