//! Exact inner products of int8 vectors: many vectors with a few queries at a time, by the widest integers at hand.
//!
//! Vectors are packed once, in blocks of 32: a step of a block holds four dimensions of every vector as bytes that are
//! 128 too large, and every sum starts at -128 times the query's sum. A query's word meets all vectors of a step at
//! once, and no sum is taken across lanes. Sums of int32 hold whatever is added (they wrap); sums of int16 are split
//! before they could wrap (`plan`). So every way gives the same integers, and a self-test at first use checks it.

use std::ops::Range;
use std::sync::LazyLock;

use crate::pages::large_pages;

#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
mod plan;
#[cfg(target_arch = "x86_64")]
mod x86;

use plan::Plan;

/// Vectors of one block.
pub const BLOCK: usize = 32;
/// Queries that meet a block together.
pub const GROUP: usize = 8;

const LANES: usize = 16;
/// Dimensions of one word.
const WORD: usize = 4;

/// One step of a block: a word of each of its vectors.
type Step = [[u8; WORD * LANES]; 2];
/// The words of a group's queries for one step.
type Words = [u32; GROUP];

/// How products are computed; all ways give the same integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Bytes by bytes into int32, four at a time.
    #[cfg(target_arch = "x86_64")]
    Vnni,
    /// Bytes by bytes into int16, two at a time.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// The same without the machine's own words for it.
    Portable,
}

static BEST: LazyLock<Way> =
    LazyLock::new(|| Way::here().into_iter().find(|way| way.is_exact()).unwrap_or(Way::Portable));

impl Way {
    /// The ways of this machine, the fastest first.
    pub fn here() -> Vec<Self> {
        let mut ways = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni") {
                ways.push(Self::Vnni);
            }
            if is_x86_feature_detected!("avx2") {
                ways.push(Self::Avx2);
            }
        }
        ways.push(Self::Portable);
        ways
    }

    /// The plan of a group, which takes from its words what is met again; no plan where no sum is one of int16.
    fn plan(self, words: &mut [Words]) -> Plan {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => Plan::new(words),
            _ => Plan::default(),
        }
    }

    /// The fastest way that passed its self-test.
    pub fn best() -> Self {
        *BEST
    }

    /// Whether extreme vectors have the products that they must have: queries of 64 meet sums of int16 at their limit.
    fn is_exact(self) -> bool {
        const K: usize = 1040;
        let signs = |row: usize, size: i8| (0..K).map(move |i| if (i >> (row % 8)) & 1 == 0 { size } else { -size });
        let vectors = (0..BLOCK).flat_map(|row| signs(row, 127)).collect::<Vec<_>>();
        let packed = Packed::new(&vectors, K);
        [127, 64].into_iter().all(|size| {
            let queries = Queries::new(self, K, &(0..GROUP).flat_map(|row| signs(row, size)).collect::<Vec<_>>());
            let mut scores = Vec::new();
            let stride = queries.scores(&packed, &mut scores);
            let expected = |a: usize, b: usize| -> i32 {
                signs(a, size).zip(signs(b, 127)).map(|(a, b)| i32::from(a) * i32::from(b)).sum()
            };
            scores.chunks(stride).take(GROUP).enumerate().all(|(query, scores)| {
                scores.iter().take(BLOCK).enumerate().all(|(row, &score)| score == expected(query, row))
            })
        })
    }
}

/// Vectors in blocks, as queries of the same dimensions meet them.
pub struct Packed {
    k: usize,
    rows: usize,
    steps: Vec<Step>,
}

impl Packed {
    /// No vectors yet, and room for this number of `k` dimensions.
    pub fn with_capacity(rows: usize, k: usize) -> Self {
        Self { k, rows: 0, steps: large_pages(rows.div_ceil(BLOCK) * k.div_ceil(WORD)) }
    }

    /// Vectors, row after row of `k` numbers.
    pub fn new(vectors: &[i8], k: usize) -> Self {
        let mut packed = Self::with_capacity(vectors.len() / k.max(1), k);
        packed.extend(vectors);
        packed
    }

    /// Adds vectors behind whole blocks of others.
    pub fn extend(&mut self, vectors: &[i8]) {
        let k = self.k.max(1);
        self.rows += vectors.len() / k;
        for block in vectors.chunks(BLOCK * k) {
            let start = self.steps.len();
            self.steps.resize(start + k.div_ceil(WORD), [[0; WORD * LANES]; 2]);
            for (row, numbers) in block.chunks_exact(k).enumerate() {
                let (half, lane) = (row / LANES, row % LANES);
                for (step, numbers) in self.steps.iter_mut().skip(start).zip(numbers.chunks(WORD)) {
                    let word = (word(numbers) ^ 0x8080_8080).to_le_bytes();
                    let place = step.get_mut(half).and_then(|half| half.as_chunks_mut::<WORD>().0.get_mut(lane));
                    if let Some(place) = place {
                        *place = word;
                    }
                }
            }
        }
    }

    /// How many vectors there are.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// The steps of some blocks, block after block.
    fn blocks(&self, blocks: Range<usize>) -> impl Iterator<Item = &[Step]> {
        let size = self.k.div_ceil(WORD).max(1);
        self.steps.chunks_exact(size).skip(blocks.start).take(blocks.len())
    }
}

/// Four numbers in one word; missing ones are 0.
fn word(numbers: &[i8]) -> u32 {
    let at = |i: usize| numbers.get(i).copied().unwrap_or(0) as u8;
    u32::from_le_bytes([at(0), at(1), at(2), at(3)])
}

/// Queries in groups of `GROUP`.
pub struct Queries {
    way: Way,
    count: usize,
    groups: Vec<Group>,
}

/// Queries that meet blocks together; those that are not there are zero.
struct Group {
    /// By step.
    words: Vec<Words>,
    /// What sums start from.
    starts: [i32; GROUP],
    /// How sums of int16 are split, where there are any.
    plan: Plan,
}

impl Queries {
    /// Queries, row after row of `k` numbers.
    pub fn new(way: Way, k: usize, queries: &[i8]) -> Self {
        let group = |queries: &[i8]| {
            let (mut words, mut starts) = (vec![[0; GROUP]; k.div_ceil(WORD)], [0; GROUP]);
            for (at, (numbers, start)) in queries.chunks_exact(k.max(1)).zip(&mut starts).enumerate() {
                *start = -128 * numbers.iter().map(|&number| i32::from(number)).sum::<i32>();
                for (words, numbers) in words.iter_mut().zip(numbers.chunks(WORD)) {
                    if let Some(place) = words.get_mut(at) {
                        *place = word(numbers);
                    }
                }
            }
            let plan = way.plan(&mut words);
            Group { words, starts, plan }
        };
        Self { way, count: queries.len() / k.max(1), groups: queries.chunks(GROUP * k.max(1)).map(group).collect() }
    }

    pub fn len(&self) -> usize {
        self.count
    }

    /// The products of one group with some blocks into `scores`, query after query at the distance `stride`.
    pub fn meet(&self, group: usize, vectors: &Packed, blocks: Range<usize>, scores: &mut [i32], stride: usize) {
        let Some(group) = self.groups.get(group) else { return };
        for (number, block) in vectors.blocks(blocks).enumerate() {
            let scores = scores.get_mut(number * BLOCK..).unwrap_or_default();
            match self.way {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: `here` saw the features, and `Queries` are made only of ways of this machine.
                Way::Vnni => unsafe { x86::meet_vnni(block, &group.words, &group.starts, scores, stride) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above.
                Way::Avx2 => unsafe { x86::meet_avx2(block, &group.words, &group.plan, &group.starts, scores, stride) },
                Way::Portable => meet(block, &group.words, &group.starts, scores, stride),
            }
        }
    }

    /// The products of all queries with all vectors, query after query at the distance that is returned. Ignore the
    /// numbers behind the products of a query.
    pub fn scores(&self, vectors: &Packed, scores: &mut Vec<i32>) -> usize {
        let blocks = vectors.len().div_ceil(BLOCK);
        let stride = blocks.max(1) * BLOCK;
        scores.resize(self.groups.len() * GROUP * stride, 0);
        // a block meets all groups while it is at hand
        for block in 0..blocks {
            for (group, scores) in scores.chunks_exact_mut(GROUP * stride).enumerate() {
                let scores = scores.get_mut(block * BLOCK..).unwrap_or_default();
                self.meet(group, vectors, block..block + 1, scores, stride);
            }
        }
        stride
    }
}

fn meet(steps: &[Step], words: &[Words], starts: &[i32; GROUP], scores: &mut [i32], stride: usize) {
    for half in 0..2 {
        let mut sums = starts.map(|start| [start; LANES]);
        for (step, words) in steps.iter().zip(words) {
            let lanes = step.get(half).map_or(&[] as &[_], |lanes| lanes.as_chunks::<WORD>().0);
            for (sums, word) in sums.iter_mut().zip(words) {
                let [e, f, g, h] = word.to_le_bytes().map(|number| i32::from(number as i8));
                for (sum, lane) in sums.iter_mut().zip(lanes) {
                    let [a, b, c, d] = lane.map(i32::from);
                    *sum = sum.wrapping_add(a * e + b * f + c * g + d * h);
                }
            }
        }
        for (scores, sums) in scores.chunks_mut(stride).zip(&sums) {
            if let Some(place) = scores.get_mut(half * LANES..(half + 1) * LANES) {
                place.copy_from_slice(sums);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pseudo_random::numbers;

    /// Numbers of at most `most`, or of exactly that size.
    fn small(len: usize, seed: u64, most: i8, extreme: bool) -> Vec<i8> {
        let mut next = numbers(seed);
        let range = 2 * u64::from(most.unsigned_abs()) + 1;
        let number = |random: u64| (random % range) as i64 - i64::from(most);
        (0..len).map(|_| if extreme { [most, -most][next() as usize % 2] } else { number(next()) as i8 }).collect()
    }

    #[test]
    fn every_way_gives_the_products_of_int64() {
        assert!(Way::here().contains(&Way::Portable));
        let shapes = [(1, 1, 1), (33, 5, 3), (64, 64, 8), (100, 300, 17), (31, 1040, 9)];
        for way in Way::here() {
            assert!(way.is_exact(), "{way:?}");
            for (rows, k, count) in shapes {
                for (most, extreme) in [(127, true), (127, false), (65, true), (64, true), (63, true), (20, false)] {
                    let vectors = small(rows * k, 5, 127, extreme);
                    let asked = small(count * k, 6, most, extreme);
                    let (queries, mut scores) = (Queries::new(way, k, &asked), Vec::new());
                    let packed = Packed::new(&vectors, k);
                    assert_eq!((queries.len(), packed.len()), (count, rows));
                    let stride = queries.scores(&packed, &mut scores);
                    for (query, scores) in asked.chunks(k).zip(scores.chunks(stride)) {
                        for (vector, &score) in vectors.chunks(k).zip(scores) {
                            let exact = query.iter().zip(vector).map(|(&a, &b)| i64::from(a) * i64::from(b));
                            assert_eq!(i64::from(score), exact.sum::<i64>(), "{way:?} {rows} {k} {most}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn vectors_that_come_in_pieces_are_packed_as_one() {
        let vectors = small(75 * 7, 3, 127, false);
        let mut packed = Packed::with_capacity(75, 7);
        vectors.chunks(32 * 7).for_each(|piece| packed.extend(piece));
        let whole = Packed::new(&vectors, 7);
        assert_eq!((packed.steps, packed.rows), (whole.steps, whole.rows));
    }
}
