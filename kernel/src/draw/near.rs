//! Draws by distance: the exponential mechanism over all words, row by row, from a block of dot products.
//!
//! A row's weights (`distances`) live for one row only; every occurrence of the row's word draws for itself from them.

use std::ops::Range;

use zeroize::Zeroizing;

use crate::draw::bounded::{below, first, second};
use crate::draw::distances::Law;
use crate::draw::kept::Kept;
use crate::draw::occurrences::Occurrences;
use crate::draw::stream::{Overflow, Stream};
use crate::draw::weights::{BLOCK, ONE_LEVEL};
use crate::errors::{Error, Result};
use crate::threads;

/// Cells of a block that one thread takes at a time.
const CELLS_AT_ONCE: usize = 1 << 18;

/// One row's weights, ready for its draws: sums up to the end of every block.
#[derive(Default)]
pub struct Row {
    weights: Vec<u64>,
    ends: Vec<u64>,
    nearest: f64,
}

impl Row {
    /// Takes the weights of a row in place of the weights of the row before.
    pub fn fill(&mut self, law: &Law, products: &Products<'_>, norm: f64) {
        self.weights.resize(law.len(), 0);
        self.nearest = products.weigh(law, norm, &mut self.weights);
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

/// Draws of some occurrences: `rows` says which row of the block each one's word has, `some` which occurrence it is
/// (else they are all of them, in order).
///
/// Rows are weighed one at a time on each thread; a row without draws is not weighed. `keep` gives the words of
/// the rows, if these are to be kept.
#[allow(clippy::too_many_arguments)]
pub fn draw(
    law: &Law,
    block: &Block<'_>,
    rows: &[u32],
    occurrences: &Occurrences<'_>,
    some: Option<&[i64]>,
    purpose: u32,
    threads: usize,
    keep: Option<(&Kept, &[u32])>,
) -> Result<Vec<u32>> {
    let drawers = some.map_or(occurrences.len(), <[i64]>::len);
    if rows.len() != drawers {
        return Err(Error::input(format!("{} rows are given for {drawers} draws", rows.len())));
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
    let sorted = rows.is_sorted();
    let mut by_row = if sorted { Vec::new() } else { (0..rows.len()).collect::<Vec<_>>() };
    by_row.sort_by_key(|&at| rows.get(at));
    let drawer = |at: usize| if sorted { at } else { by_row.get(at).copied().unwrap_or(at) };
    let occurrence = |drawer: usize| match some {
        None => Ok(drawer),
        Some(some) => {
            some.get(drawer).and_then(|&at| usize::try_from(at).ok().filter(|&at| at < occurrences.len())).ok_or_else(
                || Error::input(format!("the number of a draw is below {}, and not negative", occurrences.len())),
            )
        }
    };
    let (width, at_once) = (law.width(), (CELLS_AT_ONCE / law.len()).max(1));
    let work = |numbers: Range<usize>| {
        let (mut row, mut slot, mut drawn) = (Row::default(), Zeroizing::new([0u64; 2]), Vec::new());
        let (mut keys, mut positions) = (Zeroizing::new(Vec::new()), Vec::new());
        for at in numbers {
            let (Some(&start), Some(&end)) = (ends.get(at), ends.get(at + 1)) else { continue };
            if start == end {
                continue;
            }
            let (products, norm) = block.row(at)?;
            row.fill(law, &products, norm);
            if let Some((kept, Some(&word))) = keep.map(|(kept, words)| (kept, words.get(at))) {
                kept.keep(word, &row.weights, norm, row.nearest);
            }
            // Fetched by a short loop, so that many are under way at once: they lie all over a batch.
            keys.clear();
            positions.clear();
            for at in start..end {
                let (key, position) = occurrences.get(occurrence(drawer(at))?)?;
                keys.push(*key);
                positions.push(position);
            }
            for (key, &position) in keys.iter().zip(&positions) {
                let stream = Stream::new(key, purpose)?;
                let slot = slot.get_mut(..width).unwrap_or_default();
                stream.slot(position, slot)?;
                drawn.push(row.draw(slot, &mut stream.overflow(position))? as u32);
            }
        }
        Ok(drawn)
    };
    let mut choices = Vec::with_capacity(rows.len());
    threads::in_order(block.len(), at_once, threads, work, |drawn: Vec<u32>| choices.extend_from_slice(&drawn))?;
    if sorted {
        return Ok(choices);
    }
    let mut placed = vec![0; rows.len()];
    for (choice, drawer) in choices.into_iter().zip(by_row) {
        if let Some(place) = placed.get_mut(drawer) {
            *place = choice;
        }
    }
    Ok(placed)
}

/// The integer weights of every row of a block, one row after the other.
pub fn weights(law: &Law, block: &Block<'_>, threads: usize) -> Result<Vec<u64>> {
    let at_once = (CELLS_AT_ONCE / law.len()).max(1);
    let parts = threads::over_rows(block.len(), at_once, threads, |some| {
        let mut part = vec![0; some.len() * law.len()];
        for (at, out) in some.zip(part.chunks_exact_mut(law.len())) {
            let (products, norm) = block.row(at)?;
            products.weigh(law, norm, out);
        }
        Ok(part)
    })?;
    Ok(parts.concat())
}

/// Products of words with all words, row by row.
#[derive(Clone, Copy)]
pub enum Products<'a> {
    Single(&'a [f32]),
    Double(&'a [f64]),
}

impl<'a> Products<'a> {
    const fn len(&self) -> usize {
        match self {
            Self::Single(products) => products.len(),
            Self::Double(products) => products.len(),
        }
    }

    fn get(&self, range: Range<usize>) -> Option<Self> {
        match self {
            Self::Single(products) => products.get(range).map(Self::Single),
            Self::Double(products) => products.get(range).map(Self::Double),
        }
    }

    /// The weights of one row, and the distance of its nearest word.
    fn weigh(&self, law: &Law, norm: f64, weights: &mut [u64]) -> f64 {
        match self {
            Self::Single(products) => law.weigh(products, norm, weights),
            Self::Double(products) => law.weigh(products, norm, weights),
        }
    }
}

/// Some words' products with all words, and the squared lengths of the rows' own vectors.
pub struct Block<'a> {
    products: Products<'a>,
    norms: &'a [f64],
    width: usize,
}

impl<'a> Block<'a> {
    pub fn new(law: &Law, products: Products<'a>, norms: &'a [f64]) -> Result<Self> {
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

    fn row(&self, at: usize) -> Result<(Products<'a>, f64)> {
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
            row.fill(&law, &Products::Single(&products(m)), 20.0);
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
    fn kept_rows_draw_what_rows_draw() {
        let keys = [KEY];
        for (m, dimensions) in [(2usize, 1usize), (17, 3), (300, 5), (4096, 2), (4097, 2), (9000, 3)] {
            let vectors = (0..m * dimensions).map(|i| (i * 7919 % 61) as i16 - 30).collect::<Vec<_>>();
            let each = vectors.chunks_exact(dimensions).collect::<Vec<_>>();
            let product =
                |a: &[i16], b: &[i16]| a.iter().zip(b).map(|(&a, &b)| f32::from(a) * f32::from(b)).sum::<f32>();
            let norms = each.iter().map(|v| f64::from(product(v, v))).collect::<Vec<_>>();
            let law = Law::new(norms.clone(), 0.05, 9.0, 4.0, 1 << 18).unwrap();
            let kept = Kept::new(&law, &vectors, &vectors, dimensions).unwrap();
            let words = [0, m as u32 / 2, m as u32 - 1];
            let products = words.iter().flat_map(|&word| each.iter().map(move |v| (word, v)));
            let products = products.map(|(word, v)| product(each[word as usize], v)).collect::<Vec<_>>();
            let own = words.map(|word| norms[word as usize]);
            let block = Block::new(&law, Products::Single(&products), &own).unwrap();
            let count = 400u32;
            let positions = (0..u64::from(3 * count)).collect::<Vec<_>>();
            let records = vec![0; positions.len()];
            let occurrences = Occurrences::new(&keys, &records, &positions).unwrap();
            let rows = (0..3 * count).map(|at| at / count).collect::<Vec<_>>();
            assert_eq!(kept.serves(&law, &words, &[0; 3]), [0; 3]);
            let drawn = draw(&law, &block, &rows, &occurrences, None, 1, 1, Some((&kept, &words))).unwrap();
            assert_eq!(kept.serves(&law, &words, &[0; 3]), [u32::from(m >= 16); 3]);
            let asked = rows.iter().map(|&row| words[row as usize]).collect::<Vec<_>>();
            let some = (0..asked.len() as i64).collect::<Vec<_>>();
            assert_eq!(kept.draw(&law, &asked, &occurrences, &some, 1, 1).unwrap(), drawn, "{m} words");
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
        assert!(Block::new(&law, Products::Single(&products(5)), &[1.0, 2.0]).is_err());
        let products = products(6);
        let block = Block::new(&law, Products::Single(&products), &[1.0, 2.0]).unwrap();
        let keys = [KEY];
        let occurrences = Occurrences::new(&keys, &[0, 0], &[0, 1]).unwrap();
        assert!(draw(&law, &block, &[0, 2], &occurrences, None, 1, 1, None).is_err());
        assert!(draw(&law, &block, &[0], &occurrences, None, 1, 1, None).is_err());
        assert!(draw(&law, &block, &[1, 0], &occurrences, None, 1, 1, None).is_ok());
    }
}
