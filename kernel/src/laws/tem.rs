//! The truncated exponential mechanism over the places of a list (docs/spec/privacy.md#diffractor-tem): a weight for
//! every distance up to a reach, and one weight for all places beyond. Sums of weights have a closed form, so that none
//! is stored per place.

use std::collections::BTreeSet;

use crate::draw::bounded::{below, first, second};
use crate::draw::stream::Overflow;
use crate::draw::weights::{BLOCK, ONE_LEVEL};
use crate::errors::{Error, Result};
use crate::laws::lists::PlaceLaw;
use crate::laws::mapped::malformed;

/// The weights of all places of a list, seen from any one of them.
pub struct Tem {
    /// Words per slot: 2 if a list is drawn from in two levels.
    width: usize,
    /// The largest distance that has its own weight.
    reach: usize,
    /// Sums of the weights from distance `reach` on one side to `reach` on the other: element `k` is the sum of the first `k`.
    window: Vec<u64>,
    /// The weight of places farther away.
    outside: u64,
}

/// What is seen from one place of a list: the places that have their own weight, and their sum.
#[derive(Clone, Copy)]
struct Near {
    len: usize,
    place: usize,
    first: usize,
    end: usize,
    sum_before: u64,
    sum: u64,
}

impl Tem {
    /// Weights by distance from 0, then the weight of all other places, for lists of these lengths.
    pub fn new(weights: &[u64], outside: u64, lens: &BTreeSet<usize>) -> Result<Self> {
        let longest = lens.last().copied().unwrap_or(0);
        let weights = weights.get(..longest).unwrap_or(weights);
        let reach = weights.len().checked_sub(1).ok_or_else(|| malformed("its law has no weights"))?;
        let mut window = Vec::with_capacity(2 * weights.len());
        let mut sum = 0u128;
        window.push(0);
        for weight in weights.iter().rev().chain(weights.iter().skip(1)) {
            sum += u128::from(*weight);
            window.push(sum as u64);
        }
        if sum + longest as u128 * u128::from(outside) > u128::from(u64::MAX) {
            return Err(malformed("the weights' sum is 2^64 or more"));
        }
        let law = Self { width: if longest > ONE_LEVEL { 2 } else { 1 }, reach, window, outside };
        for (len, place) in lens.iter().flat_map(|&len| (0..len).map(move |place| (len, place))) {
            if law.near(len, place)?.total(outside) == 0 {
                return Err(malformed("a place has no weight above zero"));
            }
        }
        Ok(law)
    }

    #[inline(always)]
    fn near(&self, len: usize, place: usize) -> Result<Near> {
        let first = place.saturating_sub(self.reach);
        let end = len.min(place + self.reach + 1);
        let (from, to) = (first + self.reach - place, end + self.reach - place);
        match (self.window.get(from), self.window.get(to)) {
            (Some(&before), Some(&after)) => {
                Ok(Near { len, place, first, end, sum_before: before, sum: after - before })
            }
            _ => Err(Error::internal("a place lies outside its list")),
        }
    }

    /// The sum of the weights of the first `count` places.
    fn sum_of(&self, near: &Near, count: usize) -> u64 {
        let far = count.min(near.first) + count.saturating_sub(near.end);
        let inside = count.clamp(near.first, near.end) + self.reach - near.place;
        let inside = self.window.get(inside).copied().unwrap_or(0) - near.sum_before;
        far as u64 * self.outside + inside
    }

    /// The first place whose running sum exceeds `chosen`, which is below the total.
    #[inline(always)]
    fn first_above(&self, near: &Near, chosen: u64) -> usize {
        let left = near.first as u64 * self.outside;
        if chosen < left {
            return (chosen / self.outside) as usize;
        }
        let rest = chosen - left;
        if rest < near.sum {
            let from = near.first + self.reach - near.place;
            let sums = self.window.get(from + 1..).unwrap_or_default();
            return near.first + sums.partition_point(|&sum| sum - near.sum_before <= rest);
        }
        near.end + (rest - near.sum).checked_div(self.outside).unwrap_or(0) as usize
    }

    /// The place that a slot's words choose, exactly as from explicit weights (docs/spec/stream.md#draw).
    #[inline(always)]
    fn choose(&self, near: &Near, slot: &[u64], more: &mut Overflow<'_>) -> Result<usize> {
        let chosen = below(near.total(self.outside), first(slot)?, more)?;
        let found = self.first_above(near, chosen);
        if near.len <= ONE_LEVEL {
            return Ok(found);
        }
        let start = found / BLOCK * BLOCK;
        let before = self.sum_of(near, start);
        let block = self.sum_of(near, near.len.min(start + BLOCK)) - before;
        let chosen = below(block, second(slot)?, more)?;
        Ok(self.first_above(near, before + chosen))
    }
}

impl Near {
    #[inline(always)]
    fn total(&self, outside: u64) -> u64 {
        (self.len - (self.end - self.first)) as u64 * outside + self.sum
    }
}

impl PlaceLaw for Tem {
    const NAME: &'static str = "tem";
    const OVERFLOWS: bool = false;

    fn width(&self) -> usize {
        self.width
    }

    #[inline(always)]
    fn draw(&self, len: usize, place: usize, slot: &[u64], more: &mut Overflow<'_>) -> Result<usize> {
        self.choose(&self.near(len, place)?, slot, more)
    }

    fn weight(&self, place: usize, other: usize) -> Result<u64> {
        let distance = place.abs_diff(other);
        if distance > self.reach {
            return Ok(self.outside);
        }
        match (self.window.get(self.reach + distance), self.window.get(self.reach + distance + 1)) {
            (Some(before), Some(sum)) => Ok(sum - before),
            _ => Err(Error::internal("a weight is not there")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::stream::{purpose, Stream};
    use crate::draw::weights::{running_sums, Weights};
    use crate::pseudo_random::numbers;

    /// Explicit weights of all places, by the definition.
    fn explicit(weights: &[u64], outside: u64, len: usize, place: usize) -> Vec<u64> {
        (0..len).map(|other| weights.get(place.abs_diff(other)).copied().unwrap_or(outside)).collect()
    }

    fn agrees(weights: &[u64], outside: u64, len: usize, place: usize, words: u64) {
        let law = Tem::new(weights, outside, &[len, len + 3].into()).unwrap();
        let explicit = explicit(weights, outside, len, place);
        let sums = running_sums(&explicit).unwrap();
        let near = law.near(len, place).unwrap();
        let total = *sums.last().unwrap();
        assert_eq!(near.total(outside), total);
        for (other, &weight) in explicit.iter().enumerate() {
            assert_eq!(law.weight(place, other).unwrap(), weight);
        }
        let key = [len as u8; 32];
        let stream = Stream::new(&key, purpose::TOKEN).unwrap();
        let mut random = numbers(words | 1);
        // Words that fall on either side of every border of a block or of the near places, and random ones.
        let borders =
            (0..len).step_by(BLOCK).chain([near.first, near.end, len]).flat_map(|at| at.saturating_sub(1)..=at + 1);
        let sides = borders.filter_map(|at| sums.get(at)).flat_map(|sum| [sum.wrapping_sub(1), *sum, sum + 1]);
        let drawn = sides.filter(|&chosen| chosen < total).collect::<Vec<_>>();
        let at_random = (0..20).map(|_| random()).collect::<Vec<_>>();
        for first in drawn.into_iter().chain(at_random).chain([u64::MAX, 0]) {
            for second in [random(), 0, u64::MAX, 1] {
                let slot = [first, second];
                let expected = Weights::from_running(&sums).draw(&slot, &mut stream.overflow(3)).unwrap();
                let found = law.choose(&near, &slot, &mut stream.overflow(3)).unwrap();
                assert_eq!(found, expected, "{len} places, seen from {place}");
            }
        }
    }

    #[test]
    fn closed_sums_draw_what_explicit_weights_draw() {
        let mut random = numbers(77);
        for len in [1usize, 2, 3, 9, 257] {
            for reach in [1usize, 2, 5, 20, 400] {
                let weights = (0..reach).map(|_| random() >> 20).collect::<Vec<_>>();
                let outside = random() >> 30;
                for place in (0..len).filter(|place| len < 10 || place % 64 == 0 || place + 2 > len) {
                    agrees(&weights, outside, len, place, random());
                }
            }
        }
    }

    #[test]
    fn two_levels_draw_what_explicit_weights_draw() {
        let mut random = numbers(78);
        for len in [4096usize, 4097, 4353, 9001] {
            for reach in [1usize, 5, 300] {
                let weights = (0..reach as u64).map(|d| 1 + ((1u64 << 40) >> d.min(60))).collect::<Vec<_>>();
                let outside = 1 + (random() >> 40);
                for place in [0, 5, 255, 256, 2048, 4096, len - 1] {
                    if place < len {
                        agrees(&weights, outside, len, place, random());
                    }
                }
            }
        }
    }

    #[test]
    fn weights_of_zero_are_never_drawn() {
        for len in [40, 5000] {
            agrees(&[3, 0, 5], 0, len, 7, 5);
            agrees(&[0, 7], 1, len, 0, 5);
            agrees(&[0, 7], 0, len, len - 1, 5);
        }
        assert!(Tem::new(&[0, 0, 1], 0, &[2].into()).is_err(), "no place of two is two away");
    }

    #[test]
    fn totals_of_nothing_and_of_too_much_are_refused() {
        assert!(Tem::new(&[], 1, &[5].into()).is_err());
        assert!(Tem::new(&[0], 0, &[5].into()).is_err());
        assert!(Tem::new(&[u64::MAX], 1, &[5].into()).is_err());
        assert!(Tem::new(&[1], u64::MAX / 4, &[5].into()).is_err());
        assert!(Tem::new(&[u64::MAX], 0, &[5].into()).is_ok());
    }
}
