//! The discrete Laplace distribution, exactly: Canonne, Kamath and Steinke 2020, algorithms 1 and 2, only in integers.
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
/// `num` and `den` are from 1 to 2^48 and should be in lowest terms: the law depends only on the quotient, the draw
/// on both.
pub fn discrete_laplace(num: u64, den: u64, more: &mut Overflow<'_>) -> Result<i64> {
    if !(1..=LARGEST).contains(&num) || !(1..=LARGEST).contains(&den) {
        return Err(Error::policy("a rate is a fraction of whole numbers from 1 to 2^48")
            .hint("give the rate with fewer decimals; for a noisy length lower n_max"));
    }
    drawn(num, den, &mut Words::new(more))
}

/// The same integer, from overflow words that were made already; none if they do not suffice. Give a rate (`is_rate`).
#[inline(always)]
pub fn made_laplace<'w>(num: u64, den: u64, words: impl Iterator<Item = &'w u64>) -> Option<i64> {
    drawn(num, den, &mut Made(words)).ok()
}

/// Where a draw reads its words, from the first on.
pub(super) trait Source {
    /// Why there are no more words, or no more than a draw could take.
    type End;

    fn next(&mut self) -> std::result::Result<u64, Self::End>;

    fn too_many(&self) -> Self::End;

    /// An integer below `bound`; with a bound of 1 the word is read and says nothing.
    #[inline(always)]
    fn below(&mut self, bound: u64) -> std::result::Result<u64, Self::End> {
        loop {
            let word = self.next()?;
            if bound == 1 {
                return Ok(0);
            }
            if let Some(rest) = accepted(bound, word) {
                return Ok(rest);
            }
        }
    }

    /// True with probability exp(-p/q), for p <= q, after the first `k - 1` trials succeeded (algorithm 1).
    #[inline(always)]
    fn exp_minus_fraction(&mut self, p: u64, q: u64, mut k: u64) -> std::result::Result<bool, Self::End> {
        loop {
            let bound = q.checked_mul(k).ok_or_else(|| self.too_many())?;
            if self.below(bound)? >= p {
                return Ok(k % 2 == 1);
            }
            k += 1;
        }
    }

    /// True with probability exp(-1): the same trials, with the first bounds written out, which need no division.
    #[inline(always)]
    fn exp_minus_one(&mut self) -> std::result::Result<bool, Self::End> {
        self.next()?; // an integer below 1 is below 1
        if self.below(2)? > 0 {
            return Ok(false);
        }
        if self.below(3)? > 0 {
            return Ok(true);
        }
        if self.below(4)? > 0 {
            return Ok(false);
        }
        if self.below(5)? > 0 {
            return Ok(true);
        }
        self.exp_minus_fraction(1, 1, 6)
    }
}

#[inline(always)]
pub(super) fn drawn<S: Source>(num: u64, den: u64, words: &mut S) -> std::result::Result<i64, S::End> {
    loop {
        let rest = words.below(den)?;
        if !words.exp_minus_fraction(rest, den, 1)? {
            continue;
        }
        let mut whole = 0u64;
        while words.exp_minus_one()? {
            whole += 1;
        }
        let steps = match den.checked_mul(whole).and_then(|size| size.checked_add(rest)) {
            Some(size) if num == 1 => u128::from(size),
            Some(size) => u128::from(size / num.max(1)),
            None => (u128::from(rest) + u128::from(den) * u128::from(whole)) / u128::from(num),
        };
        let negative = words.below(2)? == 0;
        if negative && steps == 0 {
            continue;
        }
        let size = i64::try_from(steps).unwrap_or(i64::MAX);
        return Ok(if negative { -size } else { size });
    }
}

/// Words that were made already.
struct Made<I>(I);

struct UsedUp;

impl<'w, I: Iterator<Item = &'w u64>> Source for Made<I> {
    type End = UsedUp;

    #[inline(always)]
    fn next(&mut self) -> std::result::Result<u64, UsedUp> {
        self.0.next().copied().ok_or(UsedUp)
    }

    fn too_many(&self) -> UsedUp {
        UsedUp
    }
}

/// Words fetched together, two blocks of the stream: most draws need no third.
const AT_ONCE: usize = 16;

/// Overflow words, fetched several at a time; those not used are given back.
pub(super) struct Words<'m, 'k> {
    more: &'m mut Overflow<'k>,
    fetched: [u64; AT_ONCE],
    used: usize,
}

impl<'m, 'k> Words<'m, 'k> {
    pub(super) fn new(more: &'m mut Overflow<'k>) -> Self {
        Self { more, fetched: [0; AT_ONCE], used: AT_ONCE }
    }
}

impl Source for Words<'_, '_> {
    type End = Error;

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

    fn too_many(&self) -> Error {
        Error::internal("a draw takes more trials than can be")
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

    fn draws(num: u64, den: u64, count: u64) -> Vec<i64> {
        let stream = Stream::new(&KEY, 6).unwrap();
        (0..count).map(|position| discrete_laplace(num, den, &mut stream.overflow(position)).unwrap()).collect()
    }

    #[test]
    fn no_word_is_lost_or_used_twice() {
        let stream = Stream::new(&KEY, 6).unwrap();
        for position in 0..12 {
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

    /// Words made ahead give the draw of the stream, and none where the draw needs more of them.
    #[test]
    fn words_at_hand_give_the_same_draw_or_none() {
        let stream = Stream::new(&KEY, 6).unwrap();
        for (num, den) in [(1, 1), (1, 3), (7, 5), (LARGEST, 1), (1, LARGEST)] {
            let mut short = 0;
            for position in 0..80 {
                let mut more = stream.overflow(position);
                let expected = discrete_laplace(num, den, &mut more).unwrap();
                let next = more.next_word().unwrap();
                let mut plain = stream.overflow(position);
                let words = (0..200).map(|_| plain.next_word().unwrap()).collect::<Vec<_>>();
                let used = words.iter().position(|&word| word == next).unwrap();
                assert_eq!(made_laplace(num, den, words[..used].iter()), Some(expected));
                assert_eq!(made_laplace(num, den, words[..8].iter().chain(&words[8..])), Some(expected));
                assert_eq!(made_laplace(num, den, words[..used - 1].iter()), None);
                short += usize::from(used > 16);
            }
            assert!(short > 0, "some draws need more than 16 words");
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
        assert!(draws(LARGEST, 1, 200).iter().all(|&k| k == 0), "exp(-2^48) never happens");
        assert!(draws(1, LARGEST, 50).iter().all(|&k| k.unsigned_abs() > 1 << 20), "steps are tiny");
    }

    #[test]
    fn zero_has_its_share_and_the_sides_are_alike() {
        let draws = draws(1, 2, 10_000);
        let share = |wanted: i64| draws.iter().filter(|&&k| k == wanted).count() as f64 / draws.len() as f64;
        let a = (-0.5f64).exp();
        for k in -3..=3i64 {
            let exact = (1.0 - a) / (1.0 + a) * a.powi(k.unsigned_abs() as i32);
            assert!((share(k) - exact).abs() < 6.0 * (exact / draws.len() as f64).sqrt(), "{k}");
        }
    }
}
