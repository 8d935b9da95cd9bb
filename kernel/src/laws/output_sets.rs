//! The greedy partition of a vocabulary into output sets: the next free word in public order and its nearest free words.
//!
//! Coordinates are int16. Their high bytes estimate products by the widest integers at hand (`products`); what the low
//! bytes can add is bounded by the lengths of both parts (Cauchy and Schwarz). Words that the bounds leave in doubt are
//! compared by exact integers, so that the sets are the same on every machine; of equally near words, the earlier comes
//! first. The keys are those of `dptext_etl.embeddings.WordVectors.rank_keys`, bit for bit.

use crate::errors::{Error, Result};
use crate::laws::products::{Queries, Way};

/// Words that are asked together.
const AT_ONCE: usize = 64;
/// Used words leave the tables when the share of free ones falls below `COMPACT.0 / COMPACT.1`.
const COMPACT: (usize, usize) = (8, 10);
/// Words of a group; the best of each group serve to find a limit.
const GROUP: usize = 16;
/// What rounding can add to an estimate, beside the lengths of both vectors.
const ROUNDING: f64 = 1e-9;
/// Sums of products of bytes stay below 2^31.
const MOST_DIMENSIONS: usize = 1 << 16;
const HIGH: i32 = 256;

/// What is near.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    Euclidean,
    Cosine,
}

/// Disjoint sets of `k` words that cover the vocabulary, one after the other; what remains (fewer than `k`) comes last.
///
/// `vectors` has `dimensions` numbers for every word, in public order.
pub fn output_sets(vectors: &[i16], dimensions: usize, k: usize, metric: Metric) -> Result<Vec<u32>> {
    if dimensions == 0 || dimensions >= MOST_DIMENSIONS || !vectors.len().is_multiple_of(dimensions) || k < 2 {
        return Err(Error::artifact("vectors have from 1 to 65,535 dimensions each, and sets 2 words and more"));
    }
    let (mut words, mut sets) = (Words::new(vectors, dimensions, metric), Vec::new());
    let (mut queries, mut scores) = (Queries::new(Way::best(), dimensions), Vec::new());
    while words.left >= k {
        words.compact();
        let asked = words.first(AT_ONCE);
        queries.clear();
        asked.iter().filter_map(|&at| words.high.chunks_exact(dimensions).nth(at)).for_each(|high| queries.push(high));
        let stride = queries.scores(&words.high, &mut scores);
        for (&at, scores) in asked.iter().zip(scores.chunks(stride)) {
            if words.left < k || words.used.get(at) != Some(&0.0) {
                continue;
            }
            words.take(at, &mut sets);
            for near in words.nearest(at, k - 1, scores) {
                words.take(near, &mut sets);
            }
        }
    }
    for at in words.first(words.left) {
        words.take(at, &mut sets);
    }
    Ok(sets)
}

/// Words of the vocabulary, most of them free.
struct Words {
    metric: Metric,
    dimensions: usize,
    left: usize,
    ids: Vec<u32>,
    whole: Vec<i16>,
    high: Vec<i8>,
    /// Infinite for a used word, else 0.
    used: Vec<f64>,
    norms: Vec<f64>,
    /// Length of the part that the high bytes leave out, and of the part that they hold.
    low_lengths: Vec<f64>,
    high_lengths: Vec<f64>,
    /// An estimate is `product * factor + offset`; it errs by `low of the one * by_low + high of the one * by_high`.
    factors: Vec<f64>,
    offsets: Vec<f64>,
    by_low: Vec<f64>,
    by_high: Vec<f64>,
    least: Vec<f64>,
    most: Vec<f64>,
}

impl Words {
    fn new(vectors: &[i16], dimensions: usize, metric: Metric) -> Self {
        let count = vectors.len() / dimensions;
        let high = vectors.iter().map(|&number| high(number)).collect::<Vec<_>>();
        let rows = || vectors.chunks_exact(dimensions).zip(high.chunks_exact(dimensions));
        let least = i64::from(metric == Metric::Cosine); // it divides there
        let norms = rows().map(|(whole, _)| product(whole, whole).max(least) as f64).collect::<Vec<_>>();
        let length = |number: i64| (number as f64).sqrt() * (1.0 + ROUNDING);
        let low_lengths = rows().map(|(whole, high)| {
            length(whole.iter().zip(high).map(|(&whole, &high)| square(i64::from(whole) - stood_for(high))).sum())
        });
        let low_lengths = low_lengths.collect::<Vec<_>>();
        let high_lengths = rows().map(|(_, high)| length(high.iter().map(|&high| square(stood_for(high))).sum()));
        let lengths = norms.iter().map(|norm| norm.sqrt() * (1.0 + ROUNDING)).collect::<Vec<_>>();
        let bytes = f64::from(HIGH * HIGH);
        let (factors, offsets, by_low, by_high) = match metric {
            Metric::Euclidean => (
                vec![-2.0 * bytes; count],
                norms.clone(),
                lengths.iter().map(|length| 2.0 * length).collect(),
                low_lengths.iter().map(|low| 2.0 * low).collect(),
            ),
            Metric::Cosine => (
                lengths.iter().map(|length| -bytes / length).collect(),
                vec![0.0; count],
                vec![1.0 + ROUNDING; count],
                low_lengths.iter().zip(&lengths).map(|(low, length)| low / length * (1.0 + ROUNDING)).collect(),
            ),
        };
        Self {
            metric,
            dimensions,
            left: count,
            ids: (0..count as u32).collect(),
            whole: vectors.to_vec(),
            used: vec![0.0; count],
            low_lengths,
            high_lengths: high_lengths.collect(),
            norms,
            factors,
            offsets,
            by_low,
            by_high,
            least: vec![0.0; count],
            most: vec![0.0; count],
            high,
        }
    }

    /// Places of the first free words, up to `count`.
    fn first(&self, count: usize) -> Vec<usize> {
        let places = self.used.iter().enumerate().filter(|(_, &used)| used == 0.0);
        places.map(|(at, _)| at).take(count).collect()
    }

    /// Drops used words from the tables when they are many.
    fn compact(&mut self) {
        if self.left * COMPACT.1 >= self.used.len() * COMPACT.0 {
            return;
        }
        let free = self.used.iter().map(|&used| used == 0.0).collect::<Vec<_>>();
        keep(&mut self.ids, &free, 1);
        keep(&mut self.whole, &free, self.dimensions);
        keep(&mut self.high, &free, self.dimensions);
        for numbers in [
            &mut self.used,
            &mut self.norms,
            &mut self.low_lengths,
            &mut self.high_lengths,
            &mut self.factors,
            &mut self.offsets,
            &mut self.by_low,
            &mut self.by_high,
            &mut self.least,
            &mut self.most,
        ] {
            keep(numbers, &free, 1);
        }
    }

    /// Puts a free word into a set.
    fn take(&mut self, at: usize, sets: &mut Vec<u32>) {
        if let (Some(used), Some(&id)) = (self.used.get_mut(at), self.ids.get(at)) {
            *used = f64::INFINITY;
            self.left -= 1;
            sets.push(id);
        }
    }

    /// The `k` nearest free words of a word, nearest first; `scores` are the products of their high bytes.
    fn nearest(&mut self, at: usize, k: usize, scores: &[i32]) -> Vec<usize> {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, as was just asked.
            return unsafe { self.nearest_avx2(at, k, scores) };
        }
        self.nearest_plain(at, k, scores)
    }

    /// The same instructions, four at a time; AVX2 does not bring fused ones.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn nearest_avx2(&mut self, at: usize, k: usize, scores: &[i32]) -> Vec<usize> {
        self.nearest_plain(at, k, scores)
    }

    #[inline(always)]
    fn nearest_plain(&mut self, at: usize, k: usize, scores: &[i32]) -> Vec<usize> {
        self.bound(at, scores);
        let limit = limit(&self.most, k);
        let mut near = Vec::new();
        for (group, least) in self.least.chunks(GROUP).enumerate() {
            if least.iter().fold(false, |any, &least| any | (least <= limit)) {
                let some = least.iter().enumerate().filter(|(_, &least)| least <= limit);
                near.extend(some.map(|(other, _)| group * GROUP + other).map(|other| (self.key(at, other), other)));
            }
        }
        let by_key = |one: &(f64, usize), other: &(f64, usize)| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1));
        if near.len() > k {
            near.select_nth_unstable_by(k - 1, by_key);
            near.truncate(k);
        }
        near.sort_unstable_by(by_key);
        near.into_iter().map(|(_, other)| other).collect()
    }

    /// Between which numbers the nearness of every word to one of them lies; used words are infinitely far.
    #[inline(always)]
    fn bound(&mut self, at: usize, scores: &[i32]) {
        let of = |numbers: &[f64]| numbers.get(at).copied().unwrap_or(0.0);
        let (low, high) = (of(&self.low_lengths), of(&self.high_lengths));
        let estimates = self.factors.iter().zip(&self.offsets).zip(&self.used).zip(scores);
        let doubts = self.by_low.iter().zip(&self.by_high);
        let bounds = self.least.iter_mut().zip(&mut self.most);
        for ((least, most), ((((&factor, &offset), &used), &score), (&by_low, &by_high))) in
            bounds.zip(estimates.zip(doubts))
        {
            let estimate = f64::from(score) * factor + offset;
            let doubt = low * by_low + high * by_high + ROUNDING * estimate.abs();
            *least = estimate - doubt + used;
            *most = estimate + doubt + used;
        }
    }

    /// The number that orders words by nearness, from exact integers.
    #[inline(always)]
    fn key(&self, at: usize, other: usize) -> f64 {
        let row = |at: usize| self.whole.get(at * self.dimensions..(at + 1) * self.dimensions).unwrap_or_default();
        let of = |at: usize| self.norms.get(at).copied().unwrap_or(1.0);
        let dot = product(row(at), row(other)) as f64;
        match self.metric {
            Metric::Euclidean => dot * -2.0 + of(at) + of(other),
            Metric::Cosine => dot * -dot.abs() / of(other),
        }
    }
}

/// The high byte of a number, rounded.
fn high(number: i16) -> i8 {
    (i32::from(number) + HIGH / 2).div_euclid(HIGH).clamp(-128, 127) as i8
}

fn stood_for(high: i8) -> i64 {
    i64::from(HIGH) * i64::from(high)
}

fn square(number: i64) -> i64 {
    number * number
}

/// Both halves of every product are summed in 32 bits, as many at a time as the machine has lanes.
#[inline(always)]
fn product(one: &[i16], other: &[i16]) -> i64 {
    let (mut low, mut high) = (0u32, 0i32);
    for (&a, &b) in one.iter().zip(other) {
        let product = i32::from(a) * i32::from(b);
        low += product as u32 & 0xffff;
        high += product >> 16;
    }
    (i64::from(high) << 16) + i64::from(low)
}

/// The `k`-th smallest number, or a slightly larger one from the groups' best where that is much faster.
#[inline(always)]
fn limit(numbers: &[f64], k: usize) -> f64 {
    let kth = |mut numbers: Vec<f64>| {
        let at = (k - 1).min(numbers.len().saturating_sub(1));
        if numbers.is_empty() {
            f64::INFINITY
        } else {
            *numbers.select_nth_unstable_by(at, f64::total_cmp).1
        }
    };
    if numbers.len() / GROUP >= 4 * k {
        let best = kth(by_group(numbers));
        if best.is_finite() {
            return best;
        }
    }
    kth(numbers.to_vec())
}

/// The smallest number of every group; its words lie far apart in the public order.
#[inline(always)]
fn by_group(numbers: &[f64]) -> Vec<f64> {
    let mut rows = numbers.chunks_exact(numbers.len() / GROUP);
    let mut best = rows.next().unwrap_or_default().to_vec();
    for row in rows {
        for (best, &number) in best.iter_mut().zip(row) {
            *best = if number < *best { number } else { *best };
        }
    }
    best
}

/// Keeps the rows of some words, in their place: every row is moved at most once, and no memory is asked for.
fn keep<T: Copy>(rows: &mut Vec<T>, free: &[bool], width: usize) {
    let mut kept = 0;
    for (row, _) in free.iter().enumerate().filter(|(_, &free)| free) {
        rows.copy_within(row * width..(row + 1) * width, kept * width);
        kept += 1;
    }
    rows.truncate(kept * width);
}

#[cfg(test)]
mod tests;
