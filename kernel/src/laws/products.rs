//! Exact inner products of int8 vectors: many vectors with a few queries at a time, by the widest integers at hand.
//!
//! Vectors are packed in blocks of 32, so that a step of a block is one word of every vector: four dimensions where the
//! machine multiplies bytes (AVX-512 VNNI), else two dimensions as int16. A query's word meets all of them at once, and
//! no sum is ever taken across lanes. Products of int8 numbers other than -128 stay below 2^24 in 1,040 dimensions, so
//! nothing saturates and every way gives the same integers; a self-test at first use holds the machine's way to that.

use std::sync::LazyLock;

use crate::pages::large_pages;

#[cfg(target_arch = "x86_64")]
mod x86;

/// Vectors of one block.
pub const BLOCK: usize = 32;
/// Queries that meet a block together.
pub const GROUP: usize = 8;

const LANES: usize = 16;

/// One step of a block: a word of each of its vectors.
type Step = [[u8; 4 * LANES]; 2];

/// How products are computed; all ways give the same integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Bytes by bytes, four at a time.
    #[cfg(target_arch = "x86_64")]
    Vnni,
    /// int16 by int16, two at a time.
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
            let wide = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
            if wide && is_x86_feature_detected!("avx512vnni") {
                ways.push(Self::Vnni);
            }
            if is_x86_feature_detected!("avx2") {
                ways.push(Self::Avx2);
            }
        }
        ways.push(Self::Portable);
        ways
    }

    /// The fastest way that passed its self-test.
    pub fn best() -> Self {
        *BEST
    }

    /// Whether extreme vectors have the products that they must have.
    fn is_exact(self) -> bool {
        const K: usize = 1040;
        let signs = |row: usize| (0..K).map(move |i| if (i >> (row % 8)) & 1 == 0 { 127i8 } else { -127 });
        let vectors = (0..BLOCK).flat_map(signs).collect::<Vec<_>>();
        let mut queries = Queries::new(self, K);
        (0..GROUP).for_each(|row| queries.push(&signs(row).collect::<Vec<_>>()));
        let mut scores = Vec::new();
        let stride = queries.scores(&vectors, &mut scores);
        let expected =
            |a: usize, b: usize| -> i32 { signs(a).zip(signs(b)).map(|(a, b)| i32::from(a) * i32::from(b)).sum() };
        scores.chunks(stride).take(GROUP).enumerate().all(|(query, scores)| {
            scores.iter().take(BLOCK).enumerate().all(|(row, &score)| score == expected(query, row))
        })
    }

    /// Dimensions of one word.
    const fn dimensions(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Vnni => 4,
            _ => 2,
        }
    }

    /// The word of a query for some of its dimensions.
    fn word(self, numbers: &[i8]) -> u32 {
        let at = |i: usize| numbers.get(i).copied().unwrap_or(0);
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Vnni => u32::from_le_bytes([at(0) as u8, at(1) as u8, at(2) as u8, at(3) as u8]),
            _ => u32::from(i16::from(at(0)) as u16) | u32::from(i16::from(at(1)) as u16) << 16,
        }
    }
}

/// Vectors in blocks, as queries of the same way and dimensions meet them.
pub struct Packed {
    rows: usize,
    steps: Vec<Step>,
}

/// Queries that wait for their products, as words in groups of `GROUP`.
pub struct Queries {
    way: Way,
    k: usize,
    steps: usize,
    count: usize,
    /// By group, step and query.
    words: Vec<[u32; GROUP]>,
    /// By group: what a sum starts from.
    starts: Vec<[i32; GROUP]>,
    packed: Vec<Step>,
}

impl Queries {
    /// No queries yet, of `k` dimensions.
    pub fn new(way: Way, k: usize) -> Self {
        let steps = k.div_ceil(way.dimensions());
        let packed = vec![[[0; 4 * LANES]; 2]; steps.next_multiple_of(LANES)];
        Self { way, k, steps, count: 0, words: Vec::new(), starts: Vec::new(), packed }
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn clear(&mut self) {
        self.count = 0;
        self.words.clear();
        self.starts.clear();
    }

    /// Adds a query; numbers beyond `k` are left out, missing ones are 0.
    pub fn push(&mut self, numbers: &[i8]) {
        let numbers = numbers.get(..self.k).unwrap_or(numbers);
        let (group, place) = (self.count / GROUP, self.count % GROUP);
        if place == 0 {
            self.words.resize((group + 1) * self.steps, [0; GROUP]);
            self.starts.push([0; GROUP]);
        }
        let words = self.words.get_mut(group * self.steps..).unwrap_or_default();
        for (words, numbers) in words.iter_mut().zip(numbers.chunks(self.way.dimensions())) {
            if let Some(word) = words.get_mut(place) {
                *word = self.way.word(numbers);
            }
        }
        #[cfg(target_arch = "x86_64")]
        if let (Way::Vnni, Some(start)) = (self.way, self.starts.last_mut().and_then(|starts| starts.get_mut(place))) {
            // the vectors' bytes are 128 too large there
            *start = -128 * numbers.iter().map(|&number| i32::from(number)).sum::<i32>();
        }
        self.count += 1;
    }

    /// The products of all queries with `vectors` (row after row of `k` numbers) into `scores`, query after query at
    /// the distance that is returned; what stands behind a query's own products is of no use.
    pub fn scores(&mut self, vectors: &[i8], scores: &mut Vec<i32>) -> usize {
        let stride = self.room(vectors.len() / self.k.max(1), scores);
        let mut packed = std::mem::take(&mut self.packed);
        for (number, block) in vectors.chunks(BLOCK * self.k.max(1)).enumerate() {
            self.pack(block, &mut packed);
            self.meet_all(number, &packed, scores, stride);
        }
        self.packed = packed;
        stride
    }

    /// The same with vectors that were packed before.
    pub fn scores_with(&self, vectors: &Packed, scores: &mut Vec<i32>) -> usize {
        let stride = self.room(vectors.rows, scores);
        for (number, block) in vectors.steps.chunks_exact(self.packed.len().max(1)).enumerate() {
            self.meet_all(number, block, scores, stride);
        }
        stride
    }

    /// Packs vectors that meet queries several times.
    pub fn packed(&self, vectors: &[i8]) -> Packed {
        let rows = vectors.len() / self.k.max(1);
        let size = self.packed.len();
        let mut steps = large_pages(rows.div_ceil(BLOCK) * size);
        for (number, block) in vectors.chunks(BLOCK * self.k.max(1)).enumerate() {
            steps.resize((number + 1) * size, [[0; 4 * LANES]; 2]);
            self.pack(block, steps.get_mut(number * size..).unwrap_or_default());
        }
        Packed { rows, steps }
    }

    /// Makes room for the products with so many vectors; returns the distance from query to query.
    fn room(&self, rows: usize, scores: &mut Vec<i32>) -> usize {
        let stride = rows.next_multiple_of(BLOCK).max(BLOCK);
        scores.resize(self.starts.len() * GROUP * stride, 0);
        stride
    }

    /// All queries meet a block.
    fn meet_all(&self, number: usize, block: &[Step], scores: &mut [i32], stride: usize) {
        let steps = block.get(..self.steps).unwrap_or_default();
        let groups = self.words.chunks_exact(self.steps.max(1)).zip(&self.starts);
        for (scores, (words, starts)) in scores.chunks_exact_mut(GROUP * stride).zip(groups) {
            if let Some(scores) = scores.get_mut(number * BLOCK..) {
                self.meet(steps, words, starts, scores, stride);
            }
        }
    }

    fn pack(&self, block: &[i8], packed: &mut [Step]) {
        match self.way {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `here` saw the features, and `Queries` are made of ways of this machine alone.
            Way::Vnni => unsafe { x86::pack_bytes(block, self.k, packed) },
            _ => pack_pairs(block, self.k, packed),
        }
    }

    fn meet(&self, steps: &[Step], words: &[[u32; GROUP]], starts: &[i32; GROUP], scores: &mut [i32], stride: usize) {
        match self.way {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Way::Vnni => unsafe { x86::meet_bytes(steps, words, starts, scores, stride) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Way::Avx2 => unsafe { x86::meet_pairs(steps, words, scores, stride) },
            Way::Portable => meet_pairs(steps, words, scores, stride),
        }
    }
}

/// Two dimensions of every vector as int16 in one word.
fn pack_pairs(block: &[i8], k: usize, packed: &mut [Step]) {
    for (row, numbers) in block.chunks(k).enumerate() {
        let (half, lane) = (row / LANES, row % LANES);
        for (step, pair) in packed.iter_mut().zip(numbers.chunks(2)) {
            let word = Way::Portable.word(pair).to_le_bytes();
            if let Some(place) = step.get_mut(half).and_then(|half| half.get_mut(4 * lane..4 * lane + 4)) {
                place.copy_from_slice(&word);
            }
        }
    }
}

fn meet_pairs(steps: &[Step], words: &[[u32; GROUP]], scores: &mut [i32], stride: usize) {
    let halves = |word: u32| (i32::from(word as u16 as i16), i32::from((word >> 16) as u16 as i16));
    for half in 0..2 {
        let mut sums = [[0i32; LANES]; GROUP];
        for (step, words) in steps.iter().zip(words) {
            let lanes = step.get(half).map_or(&[] as &[_], |lanes| lanes.as_chunks::<4>().0);
            for (sums, &word) in sums.iter_mut().zip(words) {
                let (low, high) = halves(word);
                for (sum, &lane) in sums.iter_mut().zip(lanes) {
                    let (a, b) = halves(u32::from_le_bytes(lane));
                    *sum += a * low + b * high;
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

    fn small(len: usize, seed: u64, extreme: bool) -> Vec<i8> {
        let mut next = numbers(seed);
        (0..len)
            .map(|_| if extreme { [127, -127][next() as usize % 2] } else { (next() % 255) as i8 })
            .map(|number| number.max(-127))
            .collect()
    }

    #[test]
    fn every_way_gives_the_products_of_int64() {
        assert!(Way::here().contains(&Way::Portable));
        for way in Way::here() {
            assert!(way.is_exact(), "{way:?}");
            for (rows, k, count, extreme) in
                [(1, 1, 1, true), (33, 5, 3, false), (64, 64, 8, true), (100, 300, 17, false), (31, 1040, 9, true)]
            {
                let vectors = small(rows * k, 5, extreme);
                let asked = small(count * k, 6, extreme);
                let mut queries = Queries::new(way, k);
                let mut scores = Vec::new();
                for _ in 0..2 {
                    queries.clear();
                    asked.chunks(k).for_each(|query| queries.push(query));
                    let stride = queries.scores(&vectors, &mut scores);
                    let mut again = Vec::new();
                    assert_eq!(queries.scores_with(&queries.packed(&vectors), &mut again), stride);
                    for ((query, scores), again) in asked.chunks(k).zip(scores.chunks(stride)).zip(again.chunks(stride))
                    {
                        assert_eq!(scores[..rows], again[..rows]);
                        for (vector, &score) in vectors.chunks(k).zip(scores) {
                            let exact = query.iter().zip(vector).map(|(&a, &b)| i64::from(a) * i64::from(b));
                            assert_eq!(i64::from(score), exact.sum::<i64>(), "{way:?} {rows} {k}");
                        }
                    }
                }
            }
        }
    }
}
