//! The discrete Gaussian distribution, exactly: Canonne, Kamath and Steinke 2020, algorithm 3, only in integers.
//!
//! The variance is a / b, both at most 2^48, so with t = floor(sqrt(a / b)) + 1 the denominator 2 a b t^2 of the last step
//! is at most 2^99. Its integers are read from pairs of words (docs/spec/stream.md#discrete-gaussian).

use crate::draw::laplace::{drawn, Source, Words, LARGEST};
use crate::draw::stream::Overflow;
use crate::errors::{Error, Result};

/// An integer k with probability proportional to exp(-k^2 b / (2 a)), for a variance a / b.
///
/// `a` and `b` are from 1 to 2^48 and should be in lowest terms: the law depends only on the quotient, the draw on both.
pub fn discrete_gaussian(a: u64, b: u64, more: &mut Overflow<'_>) -> Result<i64> {
    if !(1..=LARGEST).contains(&a) || !(1..=LARGEST).contains(&b) {
        return Err(Error::policy("a variance is a fraction of whole numbers from 1 to 2^48")
            .hint("raise epsilon, or use vectors on a coarser grid"));
    }
    let words = &mut Words::new(more);
    let t = (a / b).isqrt() + 1;
    let (a, b, wide) = (u128::from(a), u128::from(b), u128::from(t));
    let denominator = 2 * a * b * wide * wide;
    loop {
        let k = drawn(1, t, words)?;
        // (|k| - a / (b t))^2 b / (2 a) is (|k| t b - a)^2 / (2 a b t^2)
        let numerator = u128::from(k.unsigned_abs())
            .checked_mul(wide * b)
            .and_then(|product| product.abs_diff(a).checked_pow(2))
            .ok_or_else(far)?;
        if exp_minus(numerator, denominator, words)? {
            return Ok(k);
        }
    }
}

/// True with probability exp(-p/q), for any p (algorithm 1).
fn exp_minus(p: u128, q: u128, words: &mut Words<'_, '_>) -> Result<bool> {
    let mut whole = p / q;
    while whole > 0 {
        if !words.exp_minus_one()? {
            return Ok(false);
        }
        whole -= 1;
    }
    let (rest, mut k) = (p % q, 1u128);
    loop {
        if wide_below(q.checked_mul(k).ok_or_else(far)?, words)? >= rest {
            return Ok(k % 2 == 1);
        }
        k += 1;
    }
}

/// An integer below `bound`, from two words, the low one first; pairs from the largest multiple on are rejected.
fn wide_below(bound: u128, words: &mut Words<'_, '_>) -> Result<u128> {
    loop {
        let low = u128::from(words.next()?);
        let pair = u128::from(words.next()?) << 64 | low;
        let rest = pair.checked_rem(bound).ok_or_else(far)?;
        if pair - rest <= bound.wrapping_neg() {
            return Ok(rest);
        }
    }
}

/// Beyond 2^14 scales of the Laplace distribution (probability exp(-16384)), or after 2^28 trials (1 / (2^28)!).
#[cold]
fn far() -> Error {
    Error::internal("a draw takes more trials than can be")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::stream::Stream;

    const KEY: [u8; 32] = [9; 32];

    fn draws(a: u64, b: u64, count: u64) -> Vec<i64> {
        let stream = Stream::new(&KEY, 9).unwrap();
        (0..count).map(|position| discrete_gaussian(a, b, &mut stream.overflow(position)).unwrap()).collect()
    }

    #[test]
    fn variances_out_of_reach_are_refused() {
        let stream = Stream::new(&KEY, 9).unwrap();
        for (a, b) in [(0, 1), (1, 0), (LARGEST + 1, 1), (1, LARGEST + 1)] {
            assert!(discrete_gaussian(a, b, &mut stream.overflow(0)).is_err());
        }
    }

    #[test]
    fn ends_of_the_scale() {
        assert!(draws(1, LARGEST, 200).iter().all(|&k| k == 0));
        let near_one = draws(LARGEST, LARGEST - 1, 500);
        assert!(near_one.iter().any(|&k| k != 0) && near_one.iter().all(|&k| k.abs() < 8));
        let wide = draws(LARGEST, 1, 500);
        let mean_square = wide.iter().map(|&k| (k as f64).powi(2)).sum::<f64>() / wide.len() as f64;
        assert!((mean_square / LARGEST as f64 - 1.0).abs() < 6.0 * (2.0 / wide.len() as f64).sqrt());
    }

    #[test]
    fn the_law_of_small_variances() {
        for (a, b) in [(1u64, 1u64), (1, 3), (9, 2)] {
            let draws = draws(a, b, 3_000);
            let weight = |k: i64| (-(k * k) as f64 * b as f64 / (2.0 * a as f64)).exp();
            let total: f64 = (-60..=60).map(weight).sum();
            for k in -4..=4i64 {
                let (exact, n) = (weight(k) / total, draws.len() as f64);
                let share = draws.iter().filter(|&&drawn| drawn == k).count() as f64 / n;
                assert!((share - exact).abs() < 6.0 * (exact / n).sqrt() + 1e-9, "{k} of {a}/{b}");
            }
        }
    }
}
