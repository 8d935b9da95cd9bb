//! Noise of vectors: density proportional to exp(-|eta|) in k dimensions (docs/spec/privacy.md#madlib,
//! docs/spec/stream.md#slot-width).
//!
//! Direction: k normals, divided by their length. Length: Gamma(k), the sum of k exponentials. Only additions,
//! multiplications, divisions and square roots in a fixed order: the same bits on every machine, in every batch.

use crate::draw::exp::{LN2_HIGH, LN2_LOW};
use crate::draw::occurrences::Occurrences;
use crate::draw::stream::{Stream, Words};
use crate::draw::uniforms::signed;
use crate::errors::{Error, Result};
use crate::threads;

/// 2 / (2n + 1) from n = 12 down to 1: artanh's series, for arguments below 0.172.
const ARTANH: [f64; 12] = [
    2.0 / 25.0,
    2.0 / 23.0,
    2.0 / 21.0,
    2.0 / 19.0,
    2.0 / 17.0,
    2.0 / 15.0,
    2.0 / 13.0,
    2.0 / 11.0,
    2.0 / 9.0,
    2.0 / 7.0,
    2.0 / 5.0,
    2.0 / 3.0,
];

/// A quotient of two polynomials, highest powers first.
type Quotient = ([f64; 8], [f64; 8]);

/// Coefficients of Wichura 1988, algorithm AS 241 (PPND16): the normal quantile near the middle, farther out, and far
/// out, to about 16 digits.
const MIDDLE: Quotient = (
    [
        2.509_080_928_730_122_7e3,
        3.343_057_558_358_813e4,
        6.726_577_092_700_87e4,
        4.592_195_393_154_987e4,
        1.373_169_376_550_946e4,
        1.971_590_950_306_551_3e3,
        1.331_416_678_917_843_8e2,
        3.387_132_872_796_366_5,
    ],
    [
        5.226_495_278_852_854e3,
        2.872_908_573_572_194_3e4,
        3.930_789_580_009_271e4,
        2.121_379_430_158_659_7e4,
        5.394_196_021_424_751e3,
        6.871_870_074_920_579e2,
        4.231_333_070_160_091e1,
        1.0,
    ],
);
const OUTER: Quotient = (
    [
        7.745_450_142_783_414e-4,
        2.272_384_498_926_918_4e-2,
        2.417_807_251_774_506e-1,
        1.270_458_252_452_368_4,
        3.647_848_324_763_204_5,
        5.769_497_221_460_691,
        4.630_337_846_156_546,
        1.423_437_110_749_683_5,
    ],
    [
        1.050_750_071_644_416_9e-9,
        5.475_938_084_995_345e-4,
        1.519_866_656_361_645_7e-2,
        1.481_039_764_274_800_8e-1,
        6.897_673_349_851e-1,
        1.676_384_830_183_803_8,
        2.053_191_626_637_759,
        1.0,
    ],
);
const TAIL: Quotient = (
    [
        2.010_334_399_292_288_1e-7,
        2.711_555_568_743_487_6e-5,
        1.242_660_947_388_078_4e-3,
        2.653_218_952_657_612_4e-2,
        2.965_605_718_285_048_7e-1,
        1.784_826_539_917_291_3,
        5.463_784_911_164_114,
        6.657_904_643_501_103,
    ],
    [
        2.044_263_103_389_939_8e-15,
        1.421_511_758_316_446e-7,
        1.846_318_317_510_054_8e-5,
        7.868_691_311_456_133e-4,
        1.487_536_129_085_061_5e-2,
        1.369_298_809_227_358e-1,
        5.998_322_065_558_88e-1,
        1.0,
    ],
);

#[inline(always)]
fn polynomial(coefficients: &[f64], x: f64) -> f64 {
    coefficients.iter().fold(0.0, |sum, coefficient| sum * x + coefficient)
}

#[inline(always)]
fn quotient((above, below): &Quotient, x: f64) -> f64 {
    polynomial(above, x) / polynomial(below, x)
}

/// -ln u for u from 2^-128 to 1.
#[inline]
pub fn exponential(u: f64) -> f64 {
    let bits = u.to_bits();
    let mut power = (bits >> 52) as i32 - 1023;
    let mut rest = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    if rest > std::f64::consts::SQRT_2 {
        rest *= 0.5;
        power += 1;
    }
    let s = (rest - 1.0) / (rest + 1.0);
    let square = s * s;
    let ln = 2.0 * s + s * (square * polynomial(&ARTANH, square));
    let power = f64::from(-power);
    power * LN2_HIGH + (power * LN2_LOW - ln)
}

/// The size of a normal: minus its quantile at u / 2, for u from 2^-128 to 1.
#[inline]
pub fn normal_size(u: f64) -> f64 {
    let q = 0.5 - 0.5 * u;
    if q <= 0.425 {
        return q * quotient(&MIDDLE, 0.180_625 - q * q);
    }
    let r = exponential(0.5 * u).sqrt();
    if r <= 5.0 {
        quotient(&OUTER, r - 1.6)
    } else {
        quotient(&TAIL, r - 5.0)
    }
}

/// One draw's noise from its slot of 4 k words.
fn noise(slot: &[u64], out: &mut [f64]) {
    let (pairs, _) = slot.as_chunks::<2>();
    let (normals, exponentials) = pairs.split_at(out.len());
    let mut squares = 0.0;
    for (value, &[high, low]) in out.iter_mut().zip(normals) {
        let u = signed(high, low);
        let size = normal_size(u.abs());
        *value = size.copysign(u);
        squares += size * size;
    }
    let radius = exponentials.iter().fold(0.0, |sum, &[high, low]| sum + exponential(signed(high, low).abs()));
    if squares == 0.0 {
        if let Some(value) = out.first_mut() {
            *value = radius.copysign(*value); // every normal was 0: any direction will do
        }
        return;
    }
    let factor = radius / squares.sqrt();
    for value in out {
        *value *= factor;
    }
}

/// Noise of every draw, one draw after the other: `dimensions` coordinates each.
pub fn radial_noise(draws: &Occurrences<'_>, purpose: u32, dimensions: usize, threads: usize) -> Result<Vec<f64>> {
    if !(1..=1 << 20).contains(&dimensions) {
        return Err(Error::policy(format!("vectors have from 1 to 2^20 dimensions; got {dimensions}")));
    }
    let parts = threads::over_rows(draws.len(), ((1 << 14) / dimensions).max(1), threads, |some| {
        let mut slot = Words::new(vec![0; 4 * dimensions]);
        let mut all = vec![0.0; some.len() * dimensions];
        for (at, out) in some.zip(all.chunks_exact_mut(dimensions)) {
            let (key, position) = draws.get(at)?;
            Stream::new(key, purpose)?.slot(position, &mut slot)?;
            noise(&slot, out);
        }
        Ok(all)
    })?;
    Ok(parts.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_right_to_the_last_places() {
        assert_eq!(exponential(1.0), 0.0);
        let mut u = 1.0;
        while u > 3e-39 {
            let error = (exponential(u) + u.ln()).abs() / u.ln().abs();
            assert!(error < 5e-16 || u == 1.0, "{u}: {error}");
            u *= 0.9973;
        }
        assert_eq!(exponential(0.5), std::f64::consts::LN_2);
    }

    #[test]
    fn normals_at_known_probabilities() {
        let known = [
            (1.0, 0.0),
            (0.5, 0.674_489_750_196_081_7),
            (0.05, 1.959_963_984_540_054),
            (2.0 * 1e-10, 6.361_340_902_404_056),
            (2.0 * 1e-30, 11.464_024_688_443_616),
        ];
        for (u, size) in known {
            assert!((normal_size(u) - size).abs() <= 4e-15 * size, "{u}");
        }
    }

    #[test]
    fn noise_of_a_slot() {
        let mut out = [0.0; 2];
        noise(&[1 << 63, 0, 1 << 63, 1, 1 << 62, 0, 1 << 61, 0], &mut out);
        let side = 5.0 * std::f64::consts::LN_2 / std::f64::consts::SQRT_2;
        assert!((out[0] - side).abs() < 1e-14 && (out[1] + side).abs() < 1e-14);
        noise(&[u64::MAX, u64::MAX, u64::MAX, 1, 1 << 63, 0, 1 << 63, 0], &mut out);
        assert_eq!(out[1].abs() + out[0].abs(), 2.0 * std::f64::consts::LN_2, "no direction is not no noise");
    }
}
