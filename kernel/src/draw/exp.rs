//! exp(-t) from only additions and multiplications, and reals of either width: what integer weights are made of.
//!
//! The same operations in the same order as `dptext_etl.sampling`, none of them fused: the same bits on every machine.

/// 36 bits of ln 2 after the point, so that products with a whole number are exact; and the rest.
pub const LN2_HIGH: f64 = f64::from_bits(0x3FE6_2E42_FEFA_0000);
pub const LN2_LOW: f64 = f64::from_bits(0x3D7C_F79A_BC9E_3B39);

/// 1 / n!, from 12 down to 0; the series begins with `SERIES_FIRST`, 1 / 13!.
const SERIES_FIRST: f64 = 1.0 / 6_227_020_800.0;
pub const SERIES: [f64; 13] = [
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
pub const WHOLE: f64 = 4_503_599_627_370_496.0;

/// Numbers that are computed together.
pub const LANES: usize = 32;

/// Reals as models and BLAS give them, in either width.
pub trait Real: Copy + PartialOrd + Send + Sync {
    const LEAST: Self;
    fn real(self) -> f64;
}

impl Real for f64 {
    const LEAST: Self = Self::NEG_INFINITY;

    #[inline(always)]
    fn real(self) -> f64 {
        self
    }
}

impl Real for f32 {
    const LEAST: Self = Self::NEG_INFINITY;

    #[inline(always)]
    fn real(self) -> f64 {
        Self::into(self)
    }
}

/// exp(-t) for t >= 0, of many t at once: one step of all before the next step of one, as a processor likes it.
///
/// `series` is `SERIES` by a name that the compiler does not see through; it would take the lanes one by one.
#[inline(always)]
pub fn exp_negative(t: &[f64; LANES], series: &[f64]) -> [f64; LANES] {
    let (mut k, mut r) = ([0.0; LANES], [0.0; LANES]);
    for ((k, r), &t) in k.iter_mut().zip(&mut r).zip(t) {
        let t = if t < 700.0 { t } else { 700.0 };
        *k = (t * (1.0 / std::f64::consts::LN_2) + 0.5).floor();
        *r = (*k * LN2_HIGH - t) + *k * LN2_LOW;
    }
    let mut exp = [SERIES_FIRST; LANES];
    for &coefficient in series {
        for (exp, &r) in exp.iter_mut().zip(&r) {
            *exp = *exp * r + coefficient;
        }
    }
    for (exp, k) in exp.iter_mut().zip(k) {
        *exp *= f64::from_bits(1023u64.wrapping_sub((k + WHOLE).to_bits()) << 52);
    }
    exp
}
