//! Which vectors may be at a rank of a query's scores, without all scores at hand
//! (docs/spec/surrogate.md#near-texts).
//!
//! The scores of a few blocks, spread over all, say how far down a rank may lie. Then every query meets all blocks, and
//! keeps the scores that do not lie below that. Where a rank is not among them, which is rare, it keeps all scores.

use std::ops::Range;

use crate::laws::products::{Packed, Queries, BLOCK, GROUP};

/// Blocks that meet all queries while they are at hand.
const AT_ONCE: usize = 16;
/// Blocks of the sample.
const SAMPLE: usize = 16;
/// Distance of the blocks of a sample, at least; fewer blocks have none.
const APART: usize = 4;
const STRIDE: usize = BLOCK * AT_ONCE;
/// Scores that are compared at once.
const EIGHT: usize = 8;

/// Scores of one query that do not lie below a floor, in the order of their vectors.
#[derive(Default)]
pub struct Kept {
    floor: i32,
    pub scores: Vec<i32>,
    /// The number of each score's vector.
    pub numbers: Vec<u32>,
}

impl Kept {
    /// Adds the ones of some scores in a row that do not lie below the floor.
    fn take(&mut self, scores: &[i32], first: usize) {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, as was just asked.
            return unsafe { self.take_avx2(scores, first) };
        }
        self.take_plain(scores, first);
    }

    /// The same instructions, eight at a time.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn take_avx2(&mut self, scores: &[i32], first: usize) {
        self.take_plain(scores, first);
    }

    #[inline(always)]
    fn take_plain(&mut self, scores: &[i32], first: usize) {
        let floor = self.floor;
        let (eights, rest) = scores.as_chunks::<EIGHT>();
        let mut number = first as u32;
        for eight in eights {
            // no branch in between, so that it takes two instructions
            if eight.iter().fold(false, |any, &score| any | (score >= floor)) {
                self.add(eight, number);
            }
            number += EIGHT as u32;
        }
        self.add(rest, number);
    }

    #[inline(always)]
    fn add(&mut self, scores: &[i32], first: u32) {
        for (&score, number) in scores.iter().zip(first..).filter(|(&score, _)| score >= self.floor) {
            self.scores.push(score);
            self.numbers.push(number);
        }
    }

    fn restart(&mut self, floor: i32) {
        self.floor = floor;
        self.scores.clear();
        self.numbers.clear();
    }
}

/// Keeps the scores of every query with `vectors` down to the rank `ranks` has for it, at least.
pub fn keep(queries: &Queries, vectors: &Packed, ranks: &[usize], kept: &mut Vec<Kept>) {
    kept.resize_with(queries.len(), Kept::default);
    let mut scores = vec![0; GROUP * STRIDE];
    floors(queries, vectors, ranks, kept, &mut scores);
    for blocks in pieces(vectors) {
        for (group, kept) in kept.chunks_mut(GROUP).enumerate() {
            queries.meet(group, vectors, blocks.clone(), &mut scores, STRIDE);
            for (kept, scores) in kept.iter_mut().zip(scores.chunks(STRIDE)) {
                take(kept, scores, &blocks, vectors);
            }
        }
    }
    for (query, (kept, &rank)) in kept.iter_mut().zip(ranks).enumerate() {
        if kept.scores.len() > rank {
            continue;
        }
        kept.restart(i32::MIN);
        for blocks in pieces(vectors) {
            queries.meet(query / GROUP, vectors, blocks.clone(), &mut scores, STRIDE);
            take(kept, scores.chunks(STRIDE).nth(query % GROUP).unwrap_or_default(), &blocks, vectors);
        }
    }
}

/// About how many scores of a query are kept, of `len`, down to a rank.
pub fn expected(len: usize, rank: usize) -> usize {
    depth(len, rank).map_or(len, |depth| depth * len / (SAMPLE * BLOCK)).min(len)
}

/// How deep in a sample the floor lies; none if all scores are kept.
///
/// Of n scores of the sample, about n * rank / len come before the rank, and hardly ever 4 square roots of it more.
fn depth(len: usize, rank: usize) -> Option<usize> {
    let sample = SAMPLE * BLOCK;
    let before = (rank + 1) as f64 * sample as f64 / len as f64;
    let depth = (before + 4.0 * before.sqrt() + 4.0) as usize;
    (len >= APART * sample && depth < sample).then_some(depth)
}

fn floors(queries: &Queries, vectors: &Packed, ranks: &[usize], kept: &mut [Kept], scores: &mut [i32]) {
    let apart = vectors.len() / BLOCK / SAMPLE;
    for (group, (kept, ranks)) in kept.chunks_mut(GROUP).zip(ranks.chunks(GROUP)).enumerate() {
        if ranks.iter().any(|&rank| depth(vectors.len(), rank).is_some()) {
            for at in 0..SAMPLE {
                let scores = scores.get_mut(at * BLOCK..).unwrap_or_default();
                queries.meet(group, vectors, at * apart..at * apart + 1, scores, STRIDE);
            }
        }
        for ((kept, &rank), scores) in kept.iter_mut().zip(ranks).zip(scores.chunks_mut(STRIDE)) {
            let floor = depth(vectors.len(), rank).map(|depth| {
                let (_, floor, _) = scores.select_nth_unstable_by(depth.min(STRIDE - 1), |one, other| other.cmp(one));
                *floor
            });
            kept.restart(floor.unwrap_or(i32::MIN));
        }
    }
}

fn pieces(vectors: &Packed) -> impl Iterator<Item = Range<usize>> {
    let blocks = vectors.len().div_ceil(BLOCK);
    (0..blocks).step_by(AT_ONCE).map(move |start| start..blocks.min(start + AT_ONCE))
}

/// Takes the scores of some blocks, without the padding behind the last vector.
fn take(kept: &mut Kept, scores: &[i32], blocks: &Range<usize>, vectors: &Packed) {
    let first = blocks.start * BLOCK;
    let len = (blocks.len() * BLOCK).min(vectors.len().saturating_sub(first));
    kept.take(scores.get(..len).unwrap_or_default(), first);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::products::Way;
    use crate::laws::ranks;
    use crate::pseudo_random::numbers;

    const K: usize = 6;

    /// Whatever the order of the vectors, the number at a rank is the number there among all scores.
    #[test]
    fn every_rank_is_that_of_all_scores() {
        let mut next = numbers(9);
        for (len, range) in [(1, 9u64), (40, 255), (2_047, 5), (2_048, 255), (2_100, 1), (5_000, 3), (5_003, 255)] {
            let mut random = || (next() % range) as i64 as i8;
            let asked = (0..11 * K).map(|_| random().max(-127)).collect::<Vec<_>>();
            let shuffled = (0..len * K).map(|_| random().max(-127)).collect::<Vec<_>>();
            let mut sorted = shuffled.clone();
            sorted.sort_unstable();
            // the sample holds only large ones, so that floors are too high
            let apart = len / BLOCK / SAMPLE;
            let large = |row: usize| apart > 1 && (row / BLOCK).is_multiple_of(apart);
            let biased = (0..len * K).map(|i| if large(i / K) { 127 } else { 1 }).collect::<Vec<i8>>();
            for vectors in [shuffled, sorted, biased] {
                let (queries, packed) = (Queries::new(Way::best(), K, &asked), Packed::new(&vectors, K));
                let (mut all, mut kept, mut room) = (Vec::new(), Vec::new(), ranks::Room::default());
                let stride = queries.scores(&packed, &mut all);
                for rank in [0, 1, 7, len / 100, len / 9, len / 2, len - 1].map(|rank| rank.min(len - 1)) {
                    keep(&queries, &packed, &[rank; 11], &mut kept);
                    for (all, kept) in all.chunks(stride).zip(&kept) {
                        let found = ranks::at_rank(&kept.scores, rank, &mut room).unwrap();
                        let number = kept.numbers[found] as usize;
                        assert_eq!(Some(number), ranks::at_rank(&all[..len], rank, &mut room), "{len} {rank}");
                    }
                }
            }
        }
    }

    #[test]
    fn few_scores_are_kept_where_few_are_asked_for() {
        assert_eq!(expected(1_000, 5), 1_000);
        assert_eq!(expected(30_000, 29_999), 30_000);
        assert!(expected(30_000, 60) < 1_000 && expected(1_000_000, 3_000) < 30_000);
    }
}
