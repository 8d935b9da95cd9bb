//! Draws from a model's scores: the exponential mechanism over all ids of a row (docs/spec/privacy.md#integer-sampler).
//!
//! A row's weights equal `dptext_etl.sampling.integer_weights` bit for bit. They are never all in memory: sums
//! of blocks are, and the weights of the block that a draw falls into are made once more.

use zeroize::Zeroizing;

use crate::draw::bounded::{below, first, second};
use crate::draw::exp::{exp_negative, Real, LANES, SERIES};
use crate::draw::extremes::{largest, largest_of, padded};
use crate::draw::occurrences::Occurrences;
use crate::draw::stream::{Overflow, Stream};
use crate::draw::weights::{BLOCK, ONE_LEVEL};
use crate::errors::{Error, Result};
use crate::threads;

/// Cells that one thread takes at a time.
const CELLS_AT_ONCE: usize = 1 << 18;

/// How a row of scores becomes weights.
#[derive(Debug)]
pub struct Law {
    m: usize,
    low: f64,
    high: f64,
    range: f64,
    half_epsilon: f64,
    top: f64,
    least: f64,
    /// Exponents from here on have the least weight without being computed; infinite where none can be that large.
    far: f64,
}

impl Law {
    /// The law over `m` ids whose scores lie in `[low, high]`; `least` is the smallest weight of any id.
    pub fn new(m: usize, epsilon: f64, low: f64, high: f64, least: u64) -> Result<Self> {
        if !(2..=1 << 31).contains(&m) {
            return Err(Error::policy(format!("an output set has at least 2 members, got {m}")));
        }
        let top = 1u64 << 46.min(62 - (m - 1).ilog2() - 1);
        let range = high - low;
        if !(epsilon.is_finite() && epsilon > 0.0 && low.is_finite() && range.is_finite() && range > 0.0) {
            return Err(Error::policy("epsilon is finite and above 0, low and high are finite and low is below high"));
        }
        if least < 1 || least > top {
            return Err(Error::policy("the least weight is from 1 to S"));
        }
        let (top, least, half_epsilon) = (top as f64, least as f64, epsilon / 2.0);
        let far = (top / least).ln() + 1e-6; // more than all rounding below
        let far = if far < half_epsilon { far } else { f64::INFINITY };
        Ok(Self { m, low, high, range, half_epsilon, top, least, far })
    }

    /// Words of a slot: one number for all draws from this law.
    pub fn width(&self) -> usize {
        if self.m > ONE_LEVEL {
            2
        } else {
            1
        }
    }

    /// The score in its range; anything that is not a number counts as the lowest.
    #[inline(always)]
    fn clip(&self, score: f64) -> f64 {
        let score = if score > self.low { score } else { self.low };
        if score < self.high {
            score
        } else {
            self.high
        }
    }

    /// How far a score lies below the row's best, in units of the exponential; never less for a lower score.
    #[inline(always)]
    fn exponent<T: Real>(&self, score: T, best: f64) -> f64 {
        (best - self.clip(score.real())) * self.half_epsilon / self.range
    }

    /// The weights of some scores, whole numbers up to 2^46 as reals.
    #[inline(always)]
    fn weigh<T: Real>(&self, scores: &[T; LANES], best: f64, series: &[f64]) -> [f64; LANES] {
        let mut weights = [self.least; LANES];
        if self.far.is_finite() && self.exponent(largest_of(scores), best) >= self.far {
            return weights;
        }
        let mut t = [0.0; LANES];
        for (t, &score) in t.iter_mut().zip(scores) {
            *t = self.exponent(score, best);
        }
        for (weight, exp) in weights.iter_mut().zip(exp_negative(&t, series)) {
            let exact = (exp * self.top).floor();
            let exact = if exact > self.least { exact } else { self.least };
            *weight = if exact < self.top { exact } else { self.top };
        }
        weights
    }

    /// The sum of a block's weights. As reals they are added 64 at a time at most, which is exact below 2^53.
    #[inline(always)]
    fn block_sum<T: Real>(&self, block: &[T], best: f64, series: &[f64]) -> u64 {
        let (whole, rest) = block.as_chunks::<LANES>();
        let mut sums = [0.0; LANES];
        for scores in whole {
            for (sum, weight) in sums.iter_mut().zip(self.weigh(scores, best, series)) {
                *sum += weight;
            }
        }
        if !rest.is_empty() {
            let weights = self.weigh(&padded(rest), best, series);
            for (sum, weight) in sums.iter_mut().zip(weights).take(rest.len()) {
                *sum += weight;
            }
        }
        let mut eighths = [0.0; LANES / 8];
        for part in sums.as_chunks::<{ LANES / 8 }>().0 {
            for (sum, part) in eighths.iter_mut().zip(part) {
                *sum += part;
            }
        }
        eighths.iter().map(|&sum| sum as u64).sum()
    }

    /// Sums of weights up to the end of every block, into `out`; the row's best score comes back.
    #[inline(always)]
    fn ends_plain<T: Real>(&self, scores: &[T], out: &mut Vec<u64>) -> f64 {
        let series = std::hint::black_box(SERIES.as_slice());
        let best = self.clip(largest(scores).real());
        let mut total = 0; // S m <= 2^62
        out.clear();
        for block in scores.chunks(BLOCK) {
            total += self.block_sum(block, best, series);
            out.push(total);
        }
        best
    }

    /// The same instructions, four at a time; AVX2 does not bring fused ones.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn ends_avx2<T: Real>(&self, scores: &[T], out: &mut Vec<u64>) -> f64 {
        self.ends_plain(scores, out)
    }

    fn ends<T: Real>(&self, scores: &[T], out: &mut Vec<u64>) -> f64 {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, as was just asked.
            return unsafe { self.ends_avx2(scores, out) };
        }
        self.ends_plain(scores, out)
    }

    /// The weights of some of a row's scores, one by one.
    fn some_weights<T: Real>(&self, some: &[T], best: f64, out: &mut [u64]) {
        for (scores, out) in some.chunks(LANES).zip(out.chunks_mut(LANES)) {
            let weights = self.weigh(&padded(scores), best, &SERIES);
            out.iter_mut().zip(weights).for_each(|(place, weight)| *place = weight as u64);
        }
    }

    /// The index that a slot's words choose: one level up to 4,096 ids, two above.
    fn draw<T: Real>(&self, scores: &[T], row: (&[u64], f64), slot: &[u64], more: &mut Overflow<'_>) -> Result<usize> {
        let (ends, best) = row;
        let total = ends.last().copied().unwrap_or(0);
        let chosen = below(total, first(slot)?, more)?;
        let block = ends.partition_point(|&end| end <= chosen);
        let before = block.checked_sub(1).and_then(|at| ends.get(at)).copied().unwrap_or(0);
        let mut rest = chosen - before;
        if self.m > ONE_LEVEL {
            let end = ends.get(block).copied().unwrap_or(before);
            rest = below(end - before, second(slot)?, more)?;
        }
        let inside = scores.get(block * BLOCK..).unwrap_or_default();
        let inside = inside.get(..BLOCK).unwrap_or(inside);
        let mut weights = [0; BLOCK];
        self.some_weights(inside, best, &mut weights);
        let at = weights.iter().take(inside.len()).position(|&weight| {
            let found = rest < weight;
            rest = rest.wrapping_sub(weight);
            found
        });
        at.map(|at| block * BLOCK + at).ok_or_else(|| Error::internal("a draw found no id"))
    }
}

/// Rows of scores, one after the other.
fn rows<'a, T>(law: &Law, scores: &'a [T], rows: usize) -> Result<impl Fn(usize) -> Result<&'a [T]> + Sync>
where
    T: Real,
{
    let m = law.m;
    if rows.checked_mul(m) != Some(scores.len()) {
        return Err(Error::input(format!("{rows} rows of {m} ids need as many scores; got {}", scores.len())));
    }
    Ok(move |at: usize| scores.get(at * m..(at + 1) * m).ok_or_else(|| Error::internal("scores ended early")))
}

/// One id per row of scores, by the slot of each.
pub fn choose<T: Real>(
    law: &Law,
    scores: &[T],
    draws: &Occurrences<'_>,
    purpose: u32,
    threads: usize,
) -> Result<Vec<u32>> {
    choose_each(std::slice::from_ref(law), scores, draws, purpose, threads)
}

/// One id per row of scores, each by a separate law, or all by one; laws differ only in epsilon.
pub fn choose_each<T: Real>(
    laws: &[Law],
    scores: &[T],
    draws: &Occurrences<'_>,
    purpose: u32,
    threads: usize,
) -> Result<Vec<u32>> {
    draws.refuse_repeats()?;
    let Some(one) = laws.first() else { return Ok(Vec::new()) };
    if laws.len() > 1 && (laws.len() != draws.len() || laws.iter().any(|law| law.m != one.m)) {
        return Err(Error::input("every draw has its own epsilon, over one output set"));
    }
    let (law, row) = (one, rows(one, scores, draws.len())?);
    let parts = threads::over_rows(draws.len(), (CELLS_AT_ONCE / law.m).max(1), threads, |some| {
        let (mut ends, mut slot) = (Zeroizing::new(Vec::new()), Zeroizing::new([0u64; 2]));
        let slot = slot.get_mut(..law.width()).unwrap_or_default();
        some.map(|at| {
            let (scores, law) = (row(at)?, laws.get(at).unwrap_or(one));
            let best = law.ends(scores, &mut ends);
            let (key, position) = draws.get(at)?;
            let stream = Stream::new(key, purpose)?;
            stream.slot(position, slot)?;
            Ok(law.draw(scores, (&ends, best), slot, &mut stream.overflow(position))? as u32)
        })
        .collect::<Result<Vec<_>>>()
    })?;
    Ok(parts.concat())
}

/// The integer weights of all rows, one row after the other.
pub fn weights<T: Real>(law: &Law, scores: &[T], threads: usize) -> Result<Vec<u64>> {
    let count = scores.len() / law.m;
    let row = rows(law, scores, count)?;
    let parts = threads::over_rows(count, (CELLS_AT_ONCE / law.m).max(1), threads, |some| {
        let mut part = vec![0; some.len() * law.m];
        for (at, out) in some.zip(part.chunks_exact_mut(law.m)) {
            let scores = row(at)?;
            law.some_weights(scores, law.clip(largest(scores).real()), out);
        }
        Ok(part)
    })?;
    Ok(parts.concat())
}

#[cfg(test)]
mod tests;
