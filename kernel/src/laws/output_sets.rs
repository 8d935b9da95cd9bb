//! The greedy partition of a vocabulary into output sets: the next free word in public order and its nearest free words.
//!
//! Coordinates are int16. Their high bytes estimate products by the widest integers at hand (`products`); what the low
//! bytes can add is bounded by the lengths of both parts (Cauchy and Schwarz). Words that the bounds leave in doubt are
//! compared by exact integers, so that the sets are the same on every machine; of equally near words, the earlier comes
//! first. The keys equal `dptext_etl.embeddings.WordVectors.rank_keys` bit for bit.

use crate::errors::{Error, Result};
use crate::laws::exact::{parts, product, Lengths, HIGH, MOST_DIMENSIONS};
use crate::laws::products::{Packed, Queries, Way};
use crate::pages::prefetch;

/// Words that are asked together.
const AT_ONCE: usize = 32;
/// Used words leave the tables when the share of free ones falls below `COMPACT.0 / COMPACT.1`.
const COMPACT: (usize, usize) = (8, 10);
/// Words of a group; the best of each group serve to find a limit.
const GROUP: usize = 16;
/// What rounding to 24 bits can add to an estimate and to its doubt, as a share of the numbers they are made of: a few
/// times 2^-24.
const ROUNDING: f64 = 1e-6;

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
    let (mut packed, mut high, mut scores) = (Packed::new(&words.high, dimensions), Vec::new(), Vec::new());
    while words.left >= k {
        if words.compact() {
            packed = Packed::new(&words.high, dimensions);
        }
        let asked = words.first(AT_ONCE);
        high.clear();
        high.extend(asked.iter().filter_map(|&at| words.high.chunks_exact(dimensions).nth(at)).flatten());
        let stride = Queries::new(Way::best(), dimensions, &high).scores(&packed, &mut scores);
        for (&at, scores) in asked.iter().zip(scores.chunks(stride)) {
            if words.left < k || !words.is_free(at) {
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
struct Words<'a> {
    metric: Metric,
    dimensions: usize,
    left: usize,
    /// By id: the vectors, their squared lengths, the lengths of what the high bytes leave out and of what they hold.
    whole: &'a [i16],
    norms: Vec<f64>,
    low_lengths: Vec<f64>,
    high_lengths: Vec<f64>,
    /// By place, as all that follows: ids and high bytes.
    ids: Vec<u32>,
    high: Vec<i8>,
    /// An estimate is `product * factor + offset`; it errs by `low of the one * by_low + high of the one * by_high`.
    factors: Vec<f32>,
    by_low: Vec<f32>,
    by_high: Vec<f32>,
    /// The offset, rounded down and up; infinite for a used word.
    least_offsets: Vec<f32>,
    most_offsets: Vec<f32>,
    least: Vec<f32>,
    most: Vec<f32>,
}

impl<'a> Words<'a> {
    fn new(vectors: &'a [i16], dimensions: usize, metric: Metric) -> Self {
        let count = vectors.len() / dimensions;
        let (high, lengths) = parts(vectors, dimensions);
        let mut all = Self {
            metric,
            dimensions,
            left: count,
            whole: vectors,
            norms: Vec::with_capacity(count),
            low_lengths: Vec::with_capacity(count),
            high_lengths: Vec::with_capacity(count),
            ids: (0..count as u32).collect(),
            high,
            factors: Vec::with_capacity(count),
            by_low: Vec::with_capacity(count),
            by_high: Vec::with_capacity(count),
            least_offsets: Vec::with_capacity(count),
            most_offsets: Vec::with_capacity(count),
            least: vec![0.0; count],
            most: vec![0.0; count],
        };
        for Lengths { squared, low, high } in lengths {
            all.add(squared as f64, low, high);
        }
        all
    }

    /// Adds what is known of the next word.
    fn add(&mut self, norm: f64, low: f64, high: f64) {
        let bytes = f64::from(HIGH * HIGH);
        let whole = norm.sqrt();
        let (norm, factor, offset, by_low, by_high) = match self.metric {
            Metric::Euclidean => (norm, -2.0 * bytes, norm, 2.0 * whole, 2.0 * (low + ROUNDING * high)),
            Metric::Cosine => {
                let whole = whole.max(1.0); // it divides there
                (norm.max(1.0), -bytes / whole, 0.0, 1.0, (low + ROUNDING * high) / whole)
            }
        };
        self.norms.push(norm);
        self.low_lengths.push(low);
        self.high_lengths.push(high);
        self.factors.push(factor as f32);
        self.by_low.push((by_low * (1.0 + ROUNDING)) as f32);
        self.by_high.push((by_high * (1.0 + ROUNDING)) as f32);
        self.least_offsets.push((offset * (1.0 - ROUNDING)) as f32);
        self.most_offsets.push((offset * (1.0 + ROUNDING)) as f32);
    }

    fn is_free(&self, at: usize) -> bool {
        self.most_offsets.get(at).is_some_and(|offset| offset.is_finite())
    }

    fn id(&self, at: usize) -> usize {
        self.ids.get(at).map_or(0, |&id| id as usize)
    }

    fn row(&self, id: usize) -> &[i16] {
        self.whole.get(id * self.dimensions..(id + 1) * self.dimensions).unwrap_or_default()
    }

    /// Places of the first free words, up to `count`.
    fn first(&self, count: usize) -> Vec<usize> {
        (0..self.ids.len()).filter(|&at| self.is_free(at)).take(count).collect()
    }

    /// Drops used words from the tables when they are many, and says so.
    fn compact(&mut self) -> bool {
        if self.left * COMPACT.1 >= self.ids.len() * COMPACT.0 {
            return false;
        }
        let free = self.first(self.left);
        keep(&mut self.ids, &free, 1);
        keep(&mut self.high, &free, self.dimensions);
        for numbers in [
            &mut self.factors,
            &mut self.by_low,
            &mut self.by_high,
            &mut self.least_offsets,
            &mut self.most_offsets,
            &mut self.least,
            &mut self.most,
        ] {
            keep(numbers, &free, 1);
        }
        true
    }

    /// Puts a free word into a set.
    fn take(&mut self, at: usize, sets: &mut Vec<u32>) {
        let offsets = (self.least_offsets.get_mut(at), self.most_offsets.get_mut(at));
        if let ((Some(least), Some(most)), Some(&id)) = (offsets, self.ids.get(at)) {
            (*least, *most) = (f32::INFINITY, f32::INFINITY);
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
        let mut doubtful = Vec::new();
        for (group, least) in self.least.chunks(GROUP).enumerate() {
            if least.iter().fold(false, |any, &least| any | (least <= limit)) {
                let some = least.iter().enumerate().filter(|(_, &least)| least <= limit);
                doubtful.extend(some.map(|(other, &least)| (f64::from(least), group * GROUP + other)));
            }
        }
        if doubtful.len() > k {
            doubtful.select_nth_unstable_by(k - 1, |one, other| one.0.total_cmp(&other.0));
        }
        let (some, others) = doubtful.split_at(k.min(doubtful.len()));
        let mut near = Vec::with_capacity(doubtful.len());
        self.add_keys(at, some.iter(), &mut near);
        let last = near.iter().fold(f64::NEG_INFINITY, |last, &(key, _)| last.max(key));
        let farthest = self.estimate(at, last);
        self.add_keys(at, others.iter().filter(|(least, _)| *least <= farthest), &mut near);
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
        let id = self.id(at);
        let of = |lengths: &[f64]| (lengths.get(id).copied().unwrap_or(0.0) * (1.0 + ROUNDING)) as f32;
        let (low, high) = (of(&self.low_lengths), of(&self.high_lengths));
        let estimates = scores.iter().zip(&self.factors).zip(self.least_offsets.iter().zip(&self.most_offsets));
        let doubts = self.by_low.iter().zip(&self.by_high);
        let bounds = self.least.iter_mut().zip(&mut self.most);
        for ((least, most), (((&score, &factor), (&down, &up)), (&by_low, &by_high))) in
            bounds.zip(estimates.zip(doubts))
        {
            let estimate = score as f32 * factor;
            let doubt = low * by_low + high * by_high;
            *least = estimate + down - doubt;
            *most = estimate + up + doubt;
        }
    }

    /// Adds the keys of some words, whose vectors are all asked for before the first is read.
    #[inline(always)]
    fn add_keys<'b>(
        &self,
        at: usize,
        some: impl Iterator<Item = &'b (f64, usize)> + Clone,
        keys: &mut Vec<(f64, usize)>,
    ) {
        for &(_, other) in some.clone() {
            prefetch(self.row(self.id(other)));
        }
        for &(_, other) in some {
            keys.push((self.key(at, other), other));
        }
    }

    /// The number that orders words by nearness, from exact integers.
    #[inline(always)]
    fn key(&self, at: usize, other: usize) -> f64 {
        let (at, other) = (self.id(at), self.id(other));
        let of = |id: usize| self.norms.get(id).copied().unwrap_or(1.0);
        let dot = product(self.row(at), self.row(other)) as f64;
        match self.metric {
            Metric::Euclidean => dot * -2.0 + of(at) + of(other),
            Metric::Cosine => dot * -dot.abs() / of(other),
        }
    }

    /// The largest estimate that a key can have had without doubt.
    #[inline(always)]
    fn estimate(&self, at: usize, key: f64) -> f64 {
        let estimate = match self.metric {
            Metric::Euclidean => key - self.norms.get(self.id(at)).copied().unwrap_or(1.0),
            Metric::Cosine => key.abs().sqrt().copysign(key),
        };
        estimate + ROUNDING * estimate.abs()
    }
}

/// The `k`-th smallest number, or a slightly larger one from the groups' best where that is much faster.
#[inline(always)]
fn limit(numbers: &[f32], k: usize) -> f32 {
    let kth = |mut numbers: Vec<f32>| {
        let at = (k - 1).min(numbers.len().saturating_sub(1));
        if numbers.is_empty() {
            f32::INFINITY
        } else {
            *numbers.select_nth_unstable_by(at, f32::total_cmp).1
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
fn by_group(numbers: &[f32]) -> Vec<f32> {
    let mut rows = numbers.chunks_exact(numbers.len() / GROUP);
    let mut best = rows.next().unwrap_or_default().to_vec();
    for row in rows {
        for (best, &number) in best.iter_mut().zip(row) {
            *best = if number < *best { number } else { *best };
        }
    }
    best
}

/// Keeps the rows at some places, in their order: each is moved at most once, and no memory is asked for.
fn keep<T: Copy>(rows: &mut Vec<T>, places: &[usize], width: usize) {
    for (to, &from) in places.iter().enumerate() {
        rows.copy_within(from * width..(from + 1) * width, to * width);
    }
    rows.truncate(places.len() * width);
}

#[cfg(test)]
mod tests;
