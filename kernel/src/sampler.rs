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
#[inline(always)]
pub fn below(bound: u64, word: u64, more: &mut Overflow<'_>) -> Result<u64> {
    match accepted(bound, word) {
        Some(rest) => Ok(rest),
        None => from_overflow(bound, more),
    }
}

/// What a word gives below `bound`; none if it is rejected, or if there is no integer below the bound.
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

fn no_weight() -> Error {
    Error::artifact("a draw has no output with a weight above zero")
}

/// One output set's weights as running sums: element `i` is the sum of the weights `0 ..= i`.
#[derive(Clone, Copy)]
pub struct Weights<'a> {
    running: &'a [u64],
    outline: Option<&'a Outline>,
}

/// What finds nearly every draw without a look at the running sums: their last one, and the highest 16 bits of up to
/// 20 of them at equal distances. Beside its row's place it fills one line of the processor's cache.
#[derive(Clone, Copy)]
pub struct Outline {
    total: u64,
    highest: [u16; Self::LEN],
}

impl Outline {
    const LEN: usize = 20;

    /// The outline of running sums; those that do not fill it leave places that no draw reaches.
    pub fn new(running: &[u64]) -> Self {
        let mut outline = Self { total: running.last().copied().unwrap_or(0), highest: [u16::MAX; Self::LEN] };
        let (shift, last) = (outline.shift(), running.len().saturating_sub(1));
        let ends = (1..).map(|part| (part * Self::stride(running.len())).saturating_sub(1));
        for (place, end) in outline.highest.iter_mut().zip(ends.take_while(|&end| end < last).chain([last])) {
            *place = running.get(end).map_or(u16::MAX, |sum| (sum >> shift) as u16);
        }
        outline
    }

    /// How far sums up to the total are shifted to fit 16 bits.
    #[inline(always)]
    const fn shift(&self) -> u32 {
        48u32.saturating_sub(self.total.leading_zeros())
    }

    /// How many running sums stand behind each of the outline's.
    #[inline(always)]
    const fn stride(len: usize) -> usize {
        if len <= Self::LEN {
            1
        } else {
            len.div_ceil(Self::LEN)
        }
    }

    /// Where the first of `len` running sums above `chosen` must be. Where the highest bits are equal that is more
    /// than one stride.
    #[inline(always)]
    fn range(&self, len: usize, chosen: u64) -> std::ops::Range<usize> {
        let wanted = (chosen >> self.shift()) as u16;
        let below = usize::from(self.highest.iter().map(|&sum| u16::from(sum < wanted)).sum::<u16>());
        let up_to = if self.highest.get(below) == Some(&wanted) { self.up_to(wanted) } else { below };
        let stride = Self::stride(len);
        below * stride..len.min((up_to + 1) * stride)
    }

    #[cold]
    fn up_to(&self, wanted: u16) -> usize {
        self.highest.iter().filter(|&&sum| sum <= wanted).count()
    }
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
        self.outline.map_or_else(|| self.running.last().copied().unwrap_or(0), |outline| outline.total)
    }

    /// The first index whose running sum exceeds `chosen`.
    #[inline(always)]
    fn first_above(&self, chosen: u64) -> usize {
        let len = self.running.len();
        let range = self.outline.map_or(0..len, |outline| outline.range(len, chosen));
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

    /// The index that a slot's words choose, with further words from `more`.
    #[inline(always)]
    pub fn draw(&self, slot: &[u64], more: &mut Overflow<'_>) -> Result<usize> {
        let word = *slot.first().ok_or_else(|| Error::internal("a draw needs a slot"))?;
        let chosen = below(self.total(), word, more)?;
        if self.running.len() <= ONE_LEVEL {
            Ok(self.first_above(chosen))
        } else {
            self.in_a_block(chosen, slot, more)
        }
    }

    /// The second level: an id inside the block that `chosen` falls into.
    #[inline(never)]
    fn in_a_block(&self, chosen: u64, slot: &[u64], more: &mut Overflow<'_>) -> Result<usize> {
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
    #[inline(always)]
    pub fn choose(&mut self, position: u64, slot: &[u64], weights: Weights<'_>) -> Result<usize> {
        self.take(position)?;
        weights.draw(slot, &mut self.stream.overflow(position))
    }

    /// An integer below `bound` drawn at `position` from its slot: one level, whatever the bound.
    #[inline(always)]
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

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn one_level_is_the_first_running_sum_above() {
        let weights = [5u64, 0, 1, 3];
        let sums = running_sums(&weights).unwrap();
        let drawn = |word| Weights::from_running(&sums).draw(&[word], &mut overflow()).unwrap();
        assert_eq!((0..9).map(drawn).collect::<Vec<_>>(), [0, 0, 0, 0, 0, 2, 3, 3, 3]);
        assert_eq!(Weights::from_running(&sums).each().collect::<Vec<_>>(), weights);
    }

    #[test]
    fn an_outline_changes_nothing() {
        let shapes: [&dyn Fn(u64) -> u64; 6] =
            [&|i| i % 3, &|i| 1 << (i % 50), &|_| 1 << 46, &|i| 1 + i * i * i, &|i| u64::from(i == 17), &|_| 1];
        let lens = [18u64, 19, 20, 21, 39, 40, 41, 64, 399, 400, 401, 4096];
        for (shape, len) in shapes.iter().flat_map(|shape| lens.map(|len| (shape, len))) {
            let sums = running_sums(&(0..len).map(shape).collect::<Vec<_>>()).unwrap();
            let total = *sums.last().unwrap();
            let outline = Outline::new(&sums);
            assert!(total >> outline.shift() <= u64::from(u16::MAX));
            let near = sums.iter().flat_map(|&sum| [sum.wrapping_sub(1), sum, sum + 1]).filter(|&sum| sum < total);
            for chosen in near.chain((0..999u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) % total)) {
                let expected = sums.partition_point(|&sum| sum <= chosen);
                assert_eq!(Weights::outlined(&sums, &outline).first_above(chosen), expected);
                assert_eq!(Weights::from_running(&sums).first_above(chosen), expected);
            }
        }
        for len in 1..18 {
            let sums = running_sums(&vec![3; len]).unwrap();
            let outline = Outline::new(&sums);
            let drawn = |chosen| Weights::outlined(&sums, &outline).first_above(chosen);
            assert!((0..3 * len as u64).all(|chosen| drawn(chosen) as u64 == chosen / 3));
        }
        let largest = [u64::MAX - 1, u64::MAX];
        let outlined = Outline::new(&largest);
        assert_eq!(Weights::outlined(&largest, &outlined).first_above(u64::MAX - 2), 0);
        assert_eq!(Weights::outlined(&largest, &outlined).first_above(u64::MAX - 1), 1);
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

    #[test]
    #[cfg(debug_assertions)]
    fn a_position_is_drawn_once() {
        let mut draws = Draws::new(Stream::new(&KEY, 1).unwrap(), 1);
        assert!(draws.uniform(3, &[5], 10).is_ok());
        assert!(draws.uniform(4, &[5], 10).is_ok());
        assert!(draws.uniform(3, &[6], 10).is_err());
    }
}
