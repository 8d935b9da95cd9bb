//! Weights of all words by their distance from one, from a row of dot products.
//!
//! They equal `dptext_etl.sampling.integer_weights` bit for bit: the same additions, multiplications, divisions
//! and square roots in the same order, none of them fused, no function of a library.

use crate::draw::exp::{exp_negative, Real, LANES, SERIES, WHOLE};
use crate::draw::extremes::smallest;
use crate::draw::weights::ONE_LEVEL;
use crate::errors::{Error, Result};

/// Scores of a draw: minus the distance to every word, from 0 down to minus the diameter.
#[derive(Debug)]
pub struct Law {
    /// Squared length of every word's vector, in grid steps: a whole number.
    norms: Vec<f64>,
    scale: f64,
    half_epsilon: f64,
    diameter: f64,
    pub(super) top: f64,
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

    /// The integer weights of a row: `products` with every word, `norm` the row's own squared length. Returns the
    /// distance of the nearest word.
    pub fn weigh<T: Real>(&self, products: &[T], norm: f64, out: &mut [u64]) -> f64 {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, as was just asked.
            return unsafe { self.weigh_avx2(products, norm, out) };
        }
        self.weigh_plain(products, norm, out)
    }

    /// The same instructions, four at a time; AVX2 does not bring fused ones.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn weigh_avx2<T: Real>(&self, products: &[T], norm: f64, out: &mut [u64]) -> f64 {
        self.weigh_plain(products, norm, out)
    }

    #[inline(always)]
    pub(super) fn weigh_plain<T: Real>(&self, products: &[T], norm: f64, out: &mut [u64]) -> f64 {
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
        nearest
    }

    /// The weights of some words from `first` on in a row whose nearest word is at a known distance, bit for bit as
    /// `weigh` gives them.
    #[inline(always)]
    pub(super) fn weigh_some(&self, products: &[f64], first: usize, norm: f64, nearest: f64) -> [u64; LANES] {
        let (mut away, mut out) = ([0.0; LANES], [0; LANES]);
        let norms = self.norms.get(first..).unwrap_or_default();
        for ((away, &product), &other) in away.iter_mut().zip(products).zip(norms) {
            *away = self.distance((other + norm) - 2.0 * product) - nearest;
        }
        self.weights(&away, std::hint::black_box(SERIES.as_slice()), &mut out);
        out
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
