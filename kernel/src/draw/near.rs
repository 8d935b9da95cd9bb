//! Draws by distance: the exponential mechanism over all words, row by row, from a block of dot products.
//!
//! A row's weights are those of `dptext_etl.sampling.integer_weights`, bit for bit: the same additions,
//! multiplications, divisions and square roots in the same order, none of them fused, no function of a library. They
//! live for one row only; every occurrence of the row's word draws for itself from them.

use zeroize::Zeroizing;

use crate::draw::bounded::{below, first, second};
use crate::draw::exp::{exp_negative, Real, LANES, SERIES, WHOLE};
use crate::draw::extremes::smallest;
use crate::draw::occurrences::Occurrences;
use crate::draw::stream::{Overflow, Stream};
use crate::draw::weights::{BLOCK, ONE_LEVEL};
use crate::errors::{Error, Result};
use crate::threads;

/// Cells of a block that one thread takes at a time.
const CELLS_AT_ONCE: usize = 1 << 18;

/// Scores of a draw: minus the distance to every word, from 0 down to minus the diameter.
#[derive(Debug)]
pub struct Law {
    /// Squared length of every word's vector, in grid steps: a whole number.
    norms: Vec<f64>,
    scale: f64,
    half_epsilon: f64,
    diameter: f64,
    top: f64,
    least: f64,
}

impl Law {
    /// The law over the words whose squared lengths are `norms`; `least` is the smallest weight of any word.
    pub fn new(norms: Vec<f64>, scale: f64, epsilon: f64, diameter: f64, least: u64) -> Result<Self> {
        let m = norms.len();
        if !(2..=1 << 31).contains(&m) {
            return Err(Error::artifact(format!("an output set has at least 2 members, got {m}")));
        }
        let bits = 46.min(62 - (m - 1).ilog2() - 1);
        let top = 1u64 << bits;
        let positive = [scale, epsilon, diameter].iter().all(|value| value.is_finite() && *value > 0.0);
        if !positive || least < 1 || least > top {
            return Err(Error::policy(
                "scale, epsilon and diameter are finite and above 0; the least weight is from 1 to S",
            ));
        }
        Ok(Self { norms, scale, half_epsilon: epsilon / 2.0, diameter, top: top as f64, least: least as f64 })
    }

    /// Number of words.
    pub fn len(&self) -> usize {
        self.norms.len()
    }

    /// Words of a slot: one number for all draws from this law.
    pub fn width(&self) -> usize {
        if self.len() > ONE_LEVEL {
            2
        } else {
            1
        }
    }

    /// The integer weights of a row: `products` with every word, `norm` the row's own squared length.
    pub fn weigh<T: Real>(&self, products: &[T], norm: f64, out: &mut [u64]) {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, as was just asked.
            unsafe { self.weigh_avx2(products, norm, out) };
            return;
        }
        self.weigh_plain(products, norm, out);
    }

    /// The same instructions, four at a time; AVX2 does not bring fused ones.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn weigh_avx2<T: Real>(&self, products: &[T], norm: f64, out: &mut [u64]) {
        self.weigh_plain(products, norm, out);
    }

    #[inline(always)]
    fn weigh_plain<T: Real>(&self, products: &[T], norm: f64, out: &mut [u64]) {
        let squared = |product: T, other: f64| (other + norm) - 2.0 * product.real();
        let nearest = self.distance(smallest(products, &self.norms, squared));
        let rows = out.len().min(products.len()).min(self.norms.len());
        let whole = rows - rows % LANES;
        let (out, out_rest) = out.split_at_mut(whole);
        let (products, products_rest) = products.split_at(whole);
        let (norms, norms_rest) = self.norms.split_at(whole);
        let series = std::hint::black_box(SERIES.as_slice());
        let lanes = products.as_chunks::<LANES>().0.iter().zip(norms.as_chunks::<LANES>().0);
        let mut away = [0.0; LANES];
        for (out, (products, norms)) in out.as_chunks_mut::<LANES>().0.iter_mut().zip(lanes) {
            for ((away, &product), &other) in away.iter_mut().zip(products).zip(norms) {
                *away = self.distance(squared(product, other)) - nearest;
            }
            self.weights(&away, series, out);
        }
        for ((away, &product), &other) in away.iter_mut().zip(products_rest).zip(norms_rest) {
            *away = self.distance(squared(product, other)) - nearest;
        }
        let mut rest = [0; LANES];
        self.weights(&away, series, &mut rest);
        for (out, weight) in out_rest.iter_mut().zip(rest) {
            *out = weight;
        }
    }

    /// The real distance, not above the diameter.
    #[inline(always)]
    fn distance(&self, squared: f64) -> f64 {
        let distance = squared.sqrt() * self.scale;
        if distance < self.diameter {
            distance
        } else {
            self.diameter
        }
    }

    /// The weights of words that are `away` farther than the nearest.
    #[inline(always)]
    fn weights(&self, away: &[f64; LANES], series: &[f64], out: &mut [u64; LANES]) {
        let mut t = [0.0; LANES];
        for (t, away) in t.iter_mut().zip(away) {
            *t = away * self.half_epsilon / self.diameter;
        }
        for (out, exp) in out.iter_mut().zip(exp_negative(&t, series)) {
            let weight = (exp * self.top).floor();
            let weight = if weight > self.least { weight } else { self.least };
            let weight = if weight < self.top { weight } else { self.top };
            *out = (weight + WHOLE).to_bits() & ((1 << 52) - 1);
        }
    }
}

/// One row's weights, ready for its draws: sums up to the end of every block.
#[derive(Default)]
pub struct Row {
    weights: Vec<u64>,
    ends: Vec<u64>,
}

impl Row {
    /// Takes the weights of a row in place of those of the row before.
    pub fn fill<T: Real>(&mut self, law: &Law, products: &[T], norm: f64) {
        self.weights.resize(law.len(), 0);
        law.weigh(products, norm, &mut self.weights);
        self.ends.clear();
        let mut total = 0u64; // S * m < 2^62
        self.ends.extend(self.weights.chunks(BLOCK).map(|block| {
            total += block.iter().sum::<u64>();
            total
        }));
    }

    /// The index that a slot's words choose: one level up to 4,096 words, two above.
    pub fn draw(&self, slot: &[u64], more: &mut Overflow<'_>) -> Result<usize> {
        let total = self.ends.last().copied().unwrap_or(0);
        let chosen = below(total, first(slot)?, more)?;
        let block = self.ends.partition_point(|&end| end <= chosen);
        let before = block.checked_sub(1).and_then(|at| self.ends.get(at)).copied().unwrap_or(0);
        let mut rest = chosen - before;
        if self.weights.len() > ONE_LEVEL {
            let end = self.ends.get(block).copied().unwrap_or(before);
            rest = below(end - before, second(slot)?, more)?;
        }
        let inside = self.weights.get(block * BLOCK..).unwrap_or_default();
        let at = inside.iter().position(|&weight| {
            let found = rest < weight;
            rest = rest.wrapping_sub(weight);
            found
        });
        at.map(|at| block * BLOCK + at).ok_or_else(|| Error::internal("a draw found no word"))
    }
}

/// Draws of all occurrences: `rows` says which row of the block each one's word has.
///
/// Rows are weighed one at a time on each thread; a row that nobody draws from is not weighed.
pub fn draw<T: Real>(
    law: &Law,
    block: &Block<'_, T>,
    rows: &[u32],
    occurrences: &Occurrences<'_>,
    purpose: u32,
    threads: usize,
) -> Result<Vec<u32>> {
    if rows.len() != occurrences.len() {
        return Err(Error::input(format!("{} rows are given for {} draws", rows.len(), occurrences.len())));
    }
    let mut ends = vec![0usize; block.len() + 1];
    for &row in rows {
        let end = ends.get_mut(row as usize + 1).filter(|_| (row as usize) < block.len());
        *end.ok_or_else(|| Error::input(format!("a row is below {}; got {row}", block.len())))? += 1;
    }
    let mut total = 0;
    for end in &mut ends {
        total += *end;
        *end = total;
    }
    let mut by_row = (0..rows.len()).collect::<Vec<_>>();
    by_row.sort_by_key(|&at| rows.get(at));
    let width = law.width();
    let at_once = (CELLS_AT_ONCE / law.len()).max(1);
    let parts = threads::over_rows(block.len(), at_once, threads, |some| {
        let (mut row, mut slot, mut drawn) = (Row::default(), Zeroizing::new([0u64; 2]), Vec::new());
        for at in some {
            let (Some(&start), Some(&end)) = (ends.get(at), ends.get(at + 1)) else { continue };
            let drawers = by_row.get(start..end).unwrap_or_default();
            if drawers.is_empty() {
                continue;
            }
            let (products, norm) = block.row(at)?;
            row.fill(law, products, norm);
            for &drawer in drawers {
                let (key, position) = occurrences.get(drawer)?;
                let stream = Stream::new(key, purpose)?;
                let slot = slot.get_mut(..width).unwrap_or_default();
                stream.slot(position, slot)?;
                drawn.push((drawer, row.draw(slot, &mut stream.overflow(position))? as u32));
            }
        }
        Ok(drawn)
    })?;
    let mut choices = vec![0; rows.len()];
    for (drawer, choice) in parts.into_iter().flatten() {
        if let Some(place) = choices.get_mut(drawer) {
            *place = choice;
        }
    }
    Ok(choices)
}

/// The integer weights of every row of a block, one row after the other.
pub fn weights<T: Real>(law: &Law, block: &Block<'_, T>, threads: usize) -> Result<Vec<u64>> {
    let at_once = (CELLS_AT_ONCE / law.len()).max(1);
    let parts = threads::over_rows(block.len(), at_once, threads, |some| {
        let mut part = vec![0; some.len() * law.len()];
        for (at, out) in some.zip(part.chunks_exact_mut(law.len())) {
            let (products, norm) = block.row(at)?;
            law.weigh(products, norm, out);
        }
        Ok(part)
    })?;
    Ok(parts.concat())
}

/// Some words' products with all words, row by row, and the squared lengths of the rows' own vectors.
pub struct Block<'a, T> {
    products: &'a [T],
    norms: &'a [f64],
    width: usize,
}

impl<'a, T: Real> Block<'a, T> {
    pub fn new(law: &Law, products: &'a [T], norms: &'a [f64]) -> Result<Self> {
        if norms.len().checked_mul(law.len()) != Some(products.len()) {
            return Err(Error::input(format!(
                "{} rows of {} words need as many products; got {}",
                norms.len(),
                law.len(),
                products.len()
            )));
        }
        Ok(Self { products, norms, width: law.len() })
    }

    fn len(&self) -> usize {
        self.norms.len()
    }

    fn row(&self, at: usize) -> Result<(&'a [T], f64)> {
        let products = self.products.get(at * self.width..(at + 1) * self.width);
        products.zip(self.norms.get(at).copied()).ok_or_else(|| Error::internal("a block ended early"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::weights::{running_sums, Weights};

    const KEY: [u8; 32] = [5; 32];

    fn law(m: usize) -> Law {
        let norms = (0..m).map(|i| (i * 37 % 1000) as f64).collect();
        Law::new(norms, 0.03, 4.0, 2.0, 1 << 20).unwrap()
    }

    fn products(m: usize) -> Vec<f32> {
        (0..m).map(|i| -((i * 7919 % 600) as f32)).collect()
    }

    #[test]
    fn rows_draw_as_their_weights_in_one_list() {
        let stream = Stream::new(&KEY, 1).unwrap();
        for m in [2, 15, 16, 17, 255, 256, 257, 4096, 4097, 9000] {
            let law = law(m);
            let mut row = Row::default();
            row.fill(&law, &products(m), 20.0);
            let mut weights = vec![0; m];
            law.weigh(&products(m), 20.0, &mut weights);
            assert_eq!(weights.iter().max(), Some(&(law.top as u64)));
            let sums = running_sums(&weights).unwrap();
            for position in 0..200 {
                let mut slot = vec![0; law.width()];
                stream.slot(position, &mut slot).unwrap();
                let expected = Weights::from_running(&sums).draw(&slot, &mut stream.overflow(position)).unwrap();
                assert_eq!(row.draw(&slot, &mut stream.overflow(position)).unwrap(), expected);
            }
        }
    }

    #[test]
    fn both_widths_and_both_instruction_sets_agree() {
        for m in [2, 63, 64, 1000] {
            let law = law(m);
            let doubles = products(m).into_iter().map(f64::from).collect::<Vec<_>>();
            let (mut single, mut double, mut plain) = (vec![0; m], vec![0; m], vec![0; m]);
            law.weigh(&products(m), 11.0, &mut single);
            law.weigh(&doubles, 11.0, &mut double);
            law.weigh_plain(&doubles, 11.0, &mut plain);
            assert_eq!(single, double);
            assert_eq!(single, plain);
        }
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        assert!(Law::new(vec![1.0], 1.0, 1.0, 1.0, 1).is_err());
        assert!(Law::new(vec![1.0; 3], 1.0, 1.0, f64::NAN, 1).is_err());
        assert!(Law::new(vec![1.0; 3], 1.0, 1.0, 1.0, 0).is_err());
        assert!(Law::new(vec![1.0; 3], 1.0, 1.0, 1.0, 1 << 47).is_err());
        let law = law(3);
        assert!(Block::new(&law, &products(5), &[1.0, 2.0]).is_err());
        let products = products(6);
        let block = Block::new(&law, &products, &[1.0, 2.0]).unwrap();
        let keys = [KEY];
        let occurrences = Occurrences::new(&keys, &[0, 0], &[0, 1]).unwrap();
        assert!(draw(&law, &block, &[0, 2], &occurrences, 1, 1).is_err());
        assert!(draw(&law, &block, &[0], &occurrences, 1, 1).is_err());
        assert!(draw(&law, &block, &[1, 0], &occurrences, 1, 1).is_ok());
    }
}
