//! Which number is at a rank, of many: by score descending, then by index ascending.

const BINS: usize = 1024;
const APART: usize = 4;

/// Buffers of one thread.
#[derive(Default)]
pub struct Room {
    counts: Vec<[u32; APART]>,
    near: Vec<(u32, u32)>,
    /// All indices of the scores that were put in order last.
    order: Vec<u32>,
}

impl Room {
    /// Puts all scores in order, for many ranks of the same scores.
    pub fn order(&mut self, scores: &[i32]) {
        let depth = |score: i32| u64::from(i32::MAX.wrapping_sub(score) as u32);
        let mut keys = scores.iter().zip(0..).map(|(&score, at)| depth(score) << 32 | at).collect::<Vec<u64>>();
        keys.sort_unstable();
        self.order.clear();
        self.order.extend(keys.into_iter().map(|key| key as u32));
    }

    /// The index at `rank` of what was put in order; none beyond the last.
    pub fn at(&self, rank: usize) -> Option<usize> {
        self.order.get(rank).map(|&index| index as usize)
    }
}

/// The index at `rank`, from 0; none beyond the last.
///
/// Scores are counted by how far they lie below the highest, in bins; the few of the rank's own bin are put in order.
pub fn at_rank(scores: &[i32], rank: usize, room: &mut Room) -> Option<usize> {
    if rank >= scores.len() {
        return None;
    }
    let (low, high) = scores.iter().fold((i32::MAX, i32::MIN), |(low, high), &score| (low.min(score), high.max(score)));
    let depth = |score: i32| high.wrapping_sub(score) as u32;
    let shift = (u32::BITS - depth(low).leading_zeros()).saturating_sub(BINS.trailing_zeros());
    room.counts.clear();
    room.counts.resize(BINS, [0; APART]);
    let mut count = |score: i32, column: usize| {
        let bin = room.counts.get_mut((depth(score) >> shift) as usize);
        if let Some(count) = bin.and_then(|bin| bin.get_mut(column)) {
            *count += 1;
        }
    };
    let (fours, rest) = scores.as_chunks::<APART>();
    for &[a, b, c, d] in fours {
        count(a, 0);
        count(b, 1);
        count(c, 2);
        count(d, 3);
    }
    rest.iter().for_each(|&score| count(score, 0));
    let (mut before, mut bin) = (0, 0);
    for counts in &room.counts {
        let here = counts.iter().sum::<u32>() as usize;
        if before + here > rank {
            break;
        }
        before += here;
        bin += 1;
    }
    room.near.clear();
    let near = scores.iter().zip(0..).filter(|(&score, _)| depth(score) >> shift == bin);
    room.near.extend(near.map(|(&score, index)| (depth(score), index)));
    let place = rank - before;
    if place >= room.near.len() {
        return None;
    }
    let (_, &mut (_, index), _) = room.near.select_nth_unstable(place);
    Some(index as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_is_that_of_the_whole_order() {
        let mut room = Room::default();
        let shapes: [&dyn Fn(i64) -> i64; 6] = [
            &|_| 7,
            &|i| i * 2_654_435_761 % 16_129,
            &|i| -(i % 3),
            &|i| i64::from((i * 7_919) as i32),
            &|i| if i % 2 == 0 { i64::from(i32::MAX) } else { i64::from(i32::MIN) },
            &|i| 16_000 - i / 9,
        ];
        for shape in shapes {
            for len in [1i64, 2, 5, 257, 3001] {
                let scores = (0..len).map(|i| shape(i) as i32).collect::<Vec<_>>();
                let mut order = (0..scores.len()).collect::<Vec<_>>();
                order.sort_by_key(|&index| (std::cmp::Reverse(scores[index]), index));
                for rank in (0..scores.len()).filter(|rank| rank % 37 == 0 || rank + 3 > scores.len()) {
                    assert_eq!(at_rank(&scores, rank, &mut room), Some(order[rank]));
                }
                assert_eq!(at_rank(&scores, scores.len(), &mut room), None);
                room.order(&scores);
                assert!((0..=scores.len()).all(|rank| room.at(rank) == order.get(rank).copied()));
            }
        }
        assert_eq!(at_rank(&[], 0, &mut room), None);
    }
}
