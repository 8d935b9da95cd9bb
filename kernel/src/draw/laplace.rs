//! The discrete Laplace distribution, exactly: Canonne, Kamath and Steinke 2020, algorithms 1 and 2, in integers alone.
//!
//! Every Bernoulli(p/q) below is "an integer below q is less than p", and every such integer is read by the rule of
//! docs/spec/stream.md#integer-below from the overflow words of one position, in sequence. Nothing is skipped where an
//! outcome is certain, so the printed algorithms reproduce every draw.

use zeroize::Zeroize;

use crate::draw::bounded::accepted;
use crate::draw::stream::Overflow;
use crate::errors::{Error, Result};

/// Numerators and denominators stay below it: sums and products then fit, whatever the draw.
pub const LARGEST: u64 = 1 << 48;

/// Whether `num / den` is a rate that can be drawn, in lowest terms.
pub fn is_rate(num: u64, den: u64) -> bool {
    let (mut common, mut rest) = (num, den);
    while rest > 0 {
        (common, rest) = (rest, common % rest);
    }
    common == 1 && (1..=LARGEST).contains(&num) && (1..=LARGEST).contains(&den)
}

/// An integer k with probability proportional to exp(-|k| num / den); saturates at the ends of `i64`.
///
/// `num` and `den` are from 1 to 2^48 and should be in lowest terms: the law depends on the quotient alone, the draw
/// on both.
pub fn discrete_laplace(num: u64, den: u64, more: &mut Overflow<'_>) -> Result<i64> {
    if !(1..=LARGEST).contains(&num) || !(1..=LARGEST).contains(&den) {
        return Err(Error::policy("a rate is a fraction of whole numbers from 1 to 2^48")
            .hint("give the rate with fewer decimals; for a noisy length lower n_max"));
    }
    let mut words = Words::new(more);
    loop {
        let rest = words.below(den)?;
        if !words.exp_minus_fraction(rest, den)? {
            continue;
        }
        let mut whole = 0u64;
        while words.exp_minus_fraction(1, 1)? {
            whole += 1;
        }
        let steps = (u128::from(rest) + u128::from(den) * u128::from(whole)) / u128::from(num);
        let negative = words.bernoulli(1, 2)?;
        if negative && steps == 0 {
            continue;
        }
        let size = i64::try_from(steps).unwrap_or(i64::MAX);
        return Ok(if negative { -size } else { size });
    }
}

/// Words fetched together, two blocks of the stream: most draws need no third.
const AT_ONCE: usize = 16;

/// Overflow words, fetched several at a time; those not used are given back.
struct Words<'m, 'k> {
    more: &'m mut Overflow<'k>,
    fetched: [u64; AT_ONCE],
    used: usize,
}

impl<'m, 'k> Words<'m, 'k> {
    fn new(more: &'m mut Overflow<'k>) -> Self {
        Self { more, fetched: [0; AT_ONCE], used: AT_ONCE }
    }

    #[inline]
    fn next(&mut self) -> Result<u64> {
        loop {
            if let Some(&word) = self.fetched.get(self.used) {
                self.used += 1;
                return Ok(word);
            }
            self.more.fill(&mut self.fetched)?;
            self.used = 0;
        }
    }

    #[inline]
    fn below(&mut self, bound: u64) -> Result<u64> {
        loop {
            if let Some(rest) = accepted(bound, self.next()?) {
                return Ok(rest);
            }
        }
    }

    #[inline]
    fn bernoulli(&mut self, p: u64, q: u64) -> Result<bool> {
        Ok(self.below(q)? < p)
    }

    /// True with probability exp(-p/q), for p <= q (algorithm 1).
    fn exp_minus_fraction(&mut self, p: u64, q: u64) -> Result<bool> {
        let mut k = 1u64;
        loop {
            let bound = q.checked_mul(k).ok_or_else(|| Error::internal("a draw takes more trials than can be"))?;
            if !self.bernoulli(p, bound)? {
                return Ok(k % 2 == 1);
            }
            k += 1;
        }
    }
}

impl Drop for Words<'_, '_> {
    fn drop(&mut self) {
        self.more.give_back((AT_ONCE - self.used) as u64);
        self.fetched.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::stream::Stream;

    const KEY: [u8; 32] = [9; 32];

    fn drawn(num: u64, den: u64, count: u64) -> Vec<i64> {
        let stream = Stream::new(&KEY, 6).unwrap();
        (0..count).map(|position| discrete_laplace(num, den, &mut stream.overflow(position)).unwrap()).collect()
    }

    #[test]
    fn no_word_is_lost_or_used_twice() {
        let stream = Stream::new(&KEY, 6).unwrap();
        for position in 0..60 {
            let (mut more, mut plain) = (stream.overflow(position), stream.overflow(position));
            let plain_words = (0..2000).map(|_| plain.next_word().unwrap()).collect::<Vec<_>>();
            for _ in 0..5 {
                discrete_laplace(1, 3, &mut more).unwrap();
            }
            let next = more.next_word().unwrap();
            let used = plain_words.iter().position(|&word| word == next).unwrap();
            plain.give_back(2000);
            let mut words = Words::new(&mut plain);
            for expected in plain_words.iter().take(used) {
                assert_eq!(words.next().unwrap(), *expected);
            }
            drop(words);
            assert_eq!(plain.next_word().unwrap(), next, "after {used} words");
        }
    }

    #[test]
    fn rates_out_of_reach_are_refused() {
        let stream = Stream::new(&KEY, 6).unwrap();
        for (num, den) in [(0, 1), (1, 0), (LARGEST + 1, 1), (1, LARGEST + 1)] {
            assert!(discrete_laplace(num, den, &mut stream.overflow(0)).is_err());
        }
        assert!(discrete_laplace(LARGEST, LARGEST, &mut stream.overflow(0)).is_ok());
    }

    #[test]
    fn ends_of_the_scale() {
        assert!(drawn(LARGEST, 1, 200).iter().all(|&k| k == 0), "exp(-2^48) never happens");
        assert!(drawn(1, LARGEST, 50).iter().all(|&k| k.unsigned_abs() > 1 << 20), "steps are tiny");
    }

    #[test]
    fn zero_has_its_share_and_the_sides_are_alike() {
        let draws = drawn(1, 2, 40_000);
        let share = |wanted: i64| draws.iter().filter(|&&k| k == wanted).count() as f64 / draws.len() as f64;
        let a = (-0.5f64).exp();
        for k in -3..=3i64 {
            let exact = (1.0 - a) / (1.0 + a) * a.powi(k.unsigned_abs() as i32);
            assert!((share(k) - exact).abs() < 6.0 * (exact / draws.len() as f64).sqrt(), "{k}");
        }
    }
}
