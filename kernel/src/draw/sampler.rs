//! The draws of a record: each position of a stream once (docs/spec/stream.md#draws).

use crate::draw::bounded::{accepted, below, first};
use crate::draw::stream::{Overflow, Stream};
use crate::draw::weights::Weights;
use crate::errors::{Error, Result};

/// The draws of one record for one purpose: each position once.
///
/// Slots are `width` words wide, one number per purpose and configuration. Debug builds refuse a second use of a
/// position (docs/spec/stream.md#one-stream-per-draw).
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
    #[inline(always)]
    pub fn choose(&mut self, position: u64, slot: &[u64], weights: Weights<'_>) -> Result<usize> {
        self.take(position)?;
        match weights.decided(first(slot)?) {
            Some(index) => Ok(index),
            None => weights.draw(slot, &mut self.again(position)),
        }
    }

    /// An integer below `bound` drawn at `position` from its slot: one level, whatever the bound.
    #[inline(always)]
    pub fn uniform(&mut self, position: u64, slot: &[u64], bound: u64) -> Result<u64> {
        self.take(position)?;
        match accepted(bound, first(slot)?) {
            Some(drawn) => Ok(drawn),
            None => below(bound, first(slot)?, &mut self.again(position)),
        }
    }

    /// The first words beyond their slots of some positions, or further ones (`Stream::ahead`).
    pub fn ahead(&self, part: u32, positions: impl Iterator<Item = u64>, out: &mut [u64]) {
        self.stream.ahead(part, positions, out);
    }

    /// The words of `position` beyond its slot, for draws that a slot's words do not decide by themselves.
    #[inline(always)]
    pub fn beyond(&mut self, position: u64) -> Result<Overflow<'k>> {
        self.take(position)?;
        Ok(self.again(position))
    }

    /// The same words for a draw that continues where words made ahead did not suffice; it takes its position itself.
    #[inline(always)]
    pub fn again(&self, position: u64) -> Overflow<'k> {
        self.stream.overflow(position)
    }

    /// Marks a position as drawn: with words made ahead, say.
    #[cfg(debug_assertions)]
    pub fn take(&mut self, position: u64) -> Result<()> {
        if self.used.insert(position) {
            Ok(())
        } else {
            Err(Error::internal(format!("position {position} of a stream was drawn twice")))
        }
    }

    #[cfg(not(debug_assertions))]
    #[inline(always)]
    #[allow(clippy::unused_self, clippy::unnecessary_wraps)]
    /// Marks a position as drawn: with words made ahead, say.
    pub fn take(&mut self, _position: u64) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [7; 32];

    #[test]
    #[cfg(debug_assertions)]
    fn a_position_is_drawn_once() {
        let mut draws = Draws::new(Stream::new(&KEY, 1).unwrap(), 1);
        assert!(draws.uniform(3, &[5], 10).is_ok());
        assert!(draws.uniform(4, &[5], 10).is_ok());
        assert!(draws.uniform(3, &[6], 10).is_err());
    }
}
