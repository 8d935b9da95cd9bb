//! Draws by distance: the exponential mechanism over all words, row by row, from a block of dot products.
//!
//! A row's weights are those of `dptext_etl.sampling.integer_weights`, bit for bit: the same additions,
//! multiplications, divisions and square roots in the same order, none of them fused, no function of a library. They
//! live for one row only; every occurrence of the row's word draws for itself from them.

use crate::errors::{Error, Result};
use crate::sampler::{below, first, second};
use crate::stream::Overflow;
use crate::weights::{BLOCK, ONE_LEVEL};

/// 36 bits of ln 2 after the point, so that products with a whole number are exact; and the rest.
const LN2_HIGH: f64 = f64::from_bits(0x3FE6_2E42_FEFA_0000);
const LN2_LOW: f64 = f64::from_bits(0x3D7C_F79A_BC9E_3B39);

/// 1 / n!, from 12 down to 0; the series begins with `SERIES_FIRST`, 1 / 13!.
const SERIES_FIRST: f64 = 1.0 / 6_227_020_800.0;
const SERIES: [f64; 13] = [
    1.0 / 479_001_600.0,
    1.0 / 39_916_800.0,
    1.0 / 3_628_800.0,
    1.0 / 362_880.0,
    1.0 / 40_320.0,
    1.0 / 5_040.0,
    1.0 / 720.0,
    1.0 / 120.0,
    1.0 / 24.0,
    1.0 / 6.0,
    1.0 / 2.0,
    1.0,
    1.0,
];

/// 2^52: added to a whole number below it, the sum's lowest 52 bits are the number.
const WHOLE: f64 = 4_503_599_627_370_496.0;

/// Products of integer vectors as a BLAS gives them: exact in either width.
pub trait Product: Copy + Send + Sync {
    fn real(self) -> f64;
}

impl Product for f64 {
    #[inline(always)]
    fn real(self) -> f64 {
        self
    }
}

impl Product for f32 {
    #[inline(always)]
    fn real(self) -> f64 {
        Self::into(self)
    }
}

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
            return Err(Error::policy("scale, epsilon and diameter are finite and above 0; the least weight is from 1 to S"));
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
    pub fn weigh<T: Product>(&self, products: &[T], norm: f64, out: &mut [u64]) {
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
    fn weigh_avx2<T: Product>(&self, products: &[T], norm: f64, out: &mut [u64]) {
        self.weigh_plain(products, norm, out);
    }

    #[inline(always)]
    fn weigh_plain<T: Product>(&self, products: &[T], norm: f64, out: &mut [u64]) {
        let squared = |product: T, other: f64| (other + norm) - 2.0 * product.real();
        let nearest = self.distance(smallest(products, &self.norms, squared));
        for ((weight, &product), &other) in out.iter_mut().zip(products).zip(&self.norms) {
            let away = self.distance(squared(product, other)) - nearest;
            *weight = self.weight(away);
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

    /// The weight of a word `away` farther than the nearest.
    #[inline(always)]
    fn weight(&self, away: f64) -> u64 {
        let weight = (exp_negative(away * self.half_epsilon / self.diameter) * self.top).floor();
        let weight = if weight > self.least { weight } else { self.least };
        let weight = if weight < self.top { weight } else { self.top };
        (weight + WHOLE).to_bits() & ((1 << 52) - 1)
    }
}

/// exp(-t) for t >= 0.
#[inline(always)]
fn exp_negative(t: f64) -> f64 {
    let t = if t < 700.0 { t } else { 700.0 };
    let k = (t * (1.0 / std::f64::consts::LN_2) + 0.5).floor();
    let r = (k * LN2_HIGH - t) + k * LN2_LOW;
    let mut series = SERIES_FIRST;
    for coefficient in SERIES {
        series = series * r + coefficient;
    }
    series * f64::from_bits(1023u64.wrapping_sub((k + WHOLE).to_bits()) << 52)
}

/// The smallest squared distance, in lanes that a processor compares together.
#[inline(always)]
fn smallest<T: Product>(products: &[T], norms: &[f64], squared: impl Fn(T, f64) -> f64) -> f64 {
    const LANES: usize = 16;
    let lesser = |a: f64, b: f64| if a < b { a } else { b };
    let mut lanes = [f64::INFINITY; LANES];
    let (products, products_rest) = products.as_chunks::<LANES>();
    let (norms, norms_rest) = norms.as_chunks::<LANES>();
    for (products, norms) in products.iter().zip(norms) {
        for ((lane, &product), &norm) in lanes.iter_mut().zip(products).zip(norms) {
            *lane = lesser(squared(product, norm), *lane);
        }
    }
    let rest = products_rest.iter().zip(norms_rest).map(|(&product, &norm)| squared(product, norm));
    lanes.into_iter().chain(rest).fold(f64::INFINITY, lesser)
}

/// One row's weights, ready for its draws: sums up to the end of every block.
#[derive(Default)]
pub struct Row {
    weights: Vec<u64>,
    ends: Vec<u64>,
}

impl Row {
    /// Takes the weights of a row in place of those of the row before.
    pub fn fill<T: Product>(&mut self, law: &Law, products: &[T], norm: f64) {
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
