//! The geometric mechanism over the places of a list (docs/spec/privacy.md#diffractor-geometric): a discrete Laplace
//! step, kept within the list. Never integer weights: their rounded tails would not keep the metric bound
//! (docs/spec/privacy.md#metric-certificate).

use crate::draw::laplace::{discrete_laplace, is_rate, made_laplace};
use crate::draw::stream::Overflow;
use crate::errors::{Error, Result};
use crate::laws::lists::PlaceLaw;
use crate::laws::mapped::malformed;

/// Steps of rate `num / den` per place.
pub struct Geometric {
    num: u64,
    den: u64,
}

impl Geometric {
    pub fn new(num: u64, den: u64) -> Result<Self> {
        if !is_rate(num, den) {
            return Err(malformed("its law's rate is not a fraction in lowest terms of whole numbers from 1 to 2^48"));
        }
        Ok(Self { num, den })
    }
}

/// A step from a place, kept within a list of `len`.
#[inline(always)]
fn stepped(len: usize, place: usize, step: i64) -> usize {
    let last = len.saturating_sub(1) as i64;
    (place as i64).saturating_add(step).clamp(0, last) as usize
}

impl PlaceLaw for Geometric {
    const NAME: &'static str = "geometric";
    const OVERFLOWS: bool = true;

    /// Only unknown words read slots.
    fn width(&self) -> usize {
        1
    }

    #[inline(always)]
    fn draw(&self, len: usize, place: usize, _slot: &[u64], more: &mut Overflow<'_>) -> Result<usize> {
        Ok(stepped(len, place, discrete_laplace(self.num, self.den, more)?))
    }

    #[inline(always)]
    fn draw_ahead<'w>(&self, len: usize, place: usize, words: impl Iterator<Item = &'w u64>) -> Option<usize> {
        Some(stepped(len, place, made_laplace(self.num, self.den, words)?))
    }

    fn weight(&self, _place: usize, _other: usize) -> Result<u64> {
        Err(Error::policy("the geometric law has no integer weights: its probabilities are irrational")
            .hint("ask the mechanism for transition(word), which has the closed form"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::stream::{purpose, Stream};

    #[test]
    fn a_step_is_kept_within_the_list() {
        let key = [5; 32];
        let law = Geometric::new(1, 2).unwrap();
        let stream = Stream::new(&key, purpose::TOKEN).unwrap();
        let mut seen = [0; 4];
        for position in 0..400 {
            let step = discrete_laplace(1, 2, &mut stream.overflow(position)).unwrap();
            let found = law.draw(4, 1, &[], &mut stream.overflow(position)).unwrap();
            assert_eq!(found as i64, (1 + step).clamp(0, 3));
            seen[found] += 1;
        }
        assert!(seen.iter().all(|&count| count > 20));
    }

    #[test]
    fn rates_out_of_reach_are_refused() {
        for (num, den) in [(0, 1), (1, 0), (2, 4), (1 << 49, 1), (1, (1 << 48) + 1)] {
            assert!(Geometric::new(num, den).is_err(), "{num}/{den}");
        }
        assert!(Geometric::new(3, 4).is_ok());
    }
}
