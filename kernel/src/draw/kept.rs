//! Rows of draws by distance that are kept from batch to batch: sums of weights up to the end of every run of words.
//!
//! A draw finds its run from the sums and weighs the run's words again from their vectors, with the same bits. That takes
//! less time than to weigh all words where few draw from a row.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use zeroize::Zeroizing;

use crate::draw::bounded::{below, first, second};
use crate::draw::distances::Law;
use crate::draw::exp::LANES;
use crate::draw::occurrences::Occurrences;
use crate::draw::stream::{Overflow, Stream};
use crate::draw::weights::{BLOCK, ONE_LEVEL};
use crate::errors::{Error, Result};
use crate::threads::{self, lock};

/// Words of a run.
const RUN: usize = 16;
/// Bytes of kept rows, at most.
const MOST: usize = 1 << 27;
/// Squared length of a vector, at most: then products are exact in 32 bits, and in float32.
const LONGEST: i64 = 1 << 22;
/// Draws that one thread takes at a time.
const AT_ONCE: usize = 4096;

/// Vectors of all words in grid steps, and the rows that are kept.
pub struct Kept {
    inputs: Vec<i16>,
    outputs: Vec<i16>,
    dimensions: usize,
    rows: Mutex<Rows>,
}

#[derive(Default)]
struct Rows {
    held: HashMap<u32, Arc<Row>>,
    bytes: usize,
}

/// One word's row: sums up to the end of every run, its squared length, and the distance of the nearest word.
struct Row {
    sums: Box<[u64]>,
    norm: f64,
    nearest: f64,
}

impl Kept {
    /// Keeps rows of a law; `inputs` are the vectors of the rows' words, `outputs` the vectors of the words that are drawn.
    pub fn new(law: &Law, inputs: &[i16], outputs: &[i16], dimensions: usize) -> Result<Self> {
        let sized = dimensions > 0 && inputs.len().is_multiple_of(dimensions);
        if !sized || law.len().checked_mul(dimensions) != Some(outputs.len()) {
            return Err(Error::input("vectors have as many numbers each as they have dimensions"));
        }
        let squared = |vector: &[i16]| vector.iter().map(|&number| i64::from(number).pow(2)).sum::<i64>();
        if [inputs, outputs].iter().any(|side| side.chunks_exact(dimensions).any(|vector| squared(vector) > LONGEST)) {
            return Err(Error::input("rows are kept of vectors whose products are exact in 32 bits"));
        }
        Ok(Self { inputs: inputs.to_vec(), outputs: outputs.to_vec(), dimensions, rows: Mutex::default() })
    }

    /// Which words have a kept row from which to draw `counts` times takes less than to weigh all words.
    pub fn serves(&self, law: &Law, words: &[u32], counts: &[u32]) -> Vec<u32> {
        let rows = lock(&self.rows);
        let few = |&count: &u32| (count as usize) < law.len() / RUN;
        words.iter().zip(counts).map(|(word, count)| u32::from(few(count) && rows.held.contains_key(word))).collect()
    }

    /// Keeps a row that was weighed, while there is room.
    pub fn keep(&self, word: u32, weights: &[u64], norm: f64, nearest: f64) {
        let bytes = weights.len().div_ceil(RUN) * size_of::<u64>();
        if lock(&self.rows).bytes + bytes > MOST {
            return;
        }
        let mut total = 0;
        let sums = weights.chunks(RUN).map(|run| {
            total += run.iter().sum::<u64>();
            total
        });
        let row = Row { sums: sums.collect(), norm, nearest };
        let mut rows = lock(&self.rows);
        if rows.held.insert(word, Arc::new(row)).is_none() {
            rows.bytes += bytes;
        }
    }

    /// Draws of occurrences whose words have kept rows; `some` says which occurrence each one is.
    pub fn draw(
        &self,
        law: &Law,
        words: &[u32],
        occurrences: &Occurrences<'_>,
        some: &[i64],
        purpose: u32,
        threads: usize,
    ) -> Result<Vec<u32>> {
        if words.len() != some.len() {
            return Err(Error::input(format!("{} words are given for {} draws", words.len(), some.len())));
        }
        let parts = threads::over_rows(words.len(), AT_ONCE, threads, |range: Range<usize>| {
            let (mut slot, mut drawn) = (Zeroizing::new([0u64; 2]), Vec::with_capacity(range.len()));
            let slot = slot.get_mut(..law.width()).unwrap_or_default();
            let mut held: Option<(u32, Arc<Row>)> = None;
            for at in range {
                let (Some(&word), Some(&number)) = (words.get(at), some.get(at)) else { continue };
                let row = match held.take() {
                    Some((before, row)) if before == word => row,
                    _ => lock(&self.rows).held.get(&word).cloned().ok_or_else(no_row)?,
                };
                let number = usize::try_from(number).ok().filter(|&number| number < occurrences.len());
                let (key, position) = occurrences.get(number.ok_or_else(no_draw)?)?;
                let stream = Stream::new(key, purpose)?;
                stream.slot(position, slot)?;
                drawn.push(self.choose(law, word, &row, slot, &mut stream.overflow(position))? as u32);
                held = Some((word, row));
            }
            Ok(drawn)
        })?;
        Ok(parts.concat())
    }

    /// The index that a slot's words choose: one level up to 4,096 words, two above.
    fn choose(&self, law: &Law, word: u32, row: &Row, slot: &[u64], more: &mut Overflow<'_>) -> Result<usize> {
        let sum_before = |run: usize| run.checked_sub(1).and_then(|at| row.sums.get(at)).copied().unwrap_or(0);
        let mut chosen = below(sum_before(row.sums.len()), first(slot)?, more)?;
        let mut run = row.sums.partition_point(|&sum| sum <= chosen);
        if law.len() > ONE_LEVEL {
            let start = run * RUN / BLOCK * (BLOCK / RUN);
            let end = row.sums.len().min(start + BLOCK / RUN);
            let before = sum_before(start);
            chosen = before + below(sum_before(end) - before, second(slot)?, more)?;
            run = start + row.sums.get(start..end).unwrap_or_default().partition_point(|&sum| sum <= chosen);
        }
        let mut rest = chosen - sum_before(run);
        let at = self.weights(law, word, row, run)?.iter().position(|&weight| {
            let found = rest < weight;
            rest = rest.wrapping_sub(weight);
            found
        });
        at.map(|at| run * RUN + at).filter(|&at| at < law.len()).ok_or_else(no_row)
    }

    /// The weights of a run; places behind the last word are not words.
    fn weights(&self, law: &Law, word: u32, row: &Row, run: usize) -> Result<[u64; LANES]> {
        let start = word as usize * self.dimensions;
        let own = self.inputs.get(start..start + self.dimensions).ok_or_else(no_row)?;
        let end = law.len().min((run + 1) * RUN) * self.dimensions;
        let others = self.outputs.get(run * RUN * self.dimensions..end).ok_or_else(no_row)?;
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, as was just asked.
            return Ok(unsafe { weigh_avx2(law, row, own, others, run * RUN) });
        }
        Ok(weigh(law, row, own, others, run * RUN))
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn weigh_avx2(law: &Law, row: &Row, own: &[i16], others: &[i16], first: usize) -> [u64; LANES] {
    weigh(law, row, own, others, first)
}

#[inline(always)]
fn weigh(law: &Law, row: &Row, own: &[i16], others: &[i16], first: usize) -> [u64; LANES] {
    let mut products = [0.0; RUN];
    for (product, other) in products.iter_mut().zip(others.chunks_exact(own.len())) {
        let sum = own.iter().zip(other).map(|(&one, &other)| i32::from(one) * i32::from(other)).sum::<i32>();
        *product = f64::from(sum);
    }
    law.weigh_some(&products, first, row.norm, row.nearest)
}

fn no_row() -> Error {
    Error::internal("a kept row is not there")
}

fn no_draw() -> Error {
    Error::input("the number of a draw is below the number of draws, and not negative")
}
