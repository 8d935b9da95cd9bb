//! One of m ids of which d weigh W and all others w, from one integer (docs/spec/stream.md#mixture-draw).

use crate::draw::bounded::below;
use crate::draw::stream::Overflow;
use crate::errors::{Error, Result};

/// Totals are at most 2^62.
const MOST: u64 = 1 << 62;

/// The weights of a choice among m ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mixture {
    m: u64,
    inside: u64,
    outside: u64,
    /// m times the lesser weight: integers below it name an id, whatever the text.
    common: u64,
    total: u64,
}

/// What an integer chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// The id itself.
    Id(u64),
    /// The id of this rank, from 0, among the d near ones.
    Rank(u64),
}

impl Mixture {
    /// Refuses weights that are none of a mixture, and totals above 2^62.
    pub fn new(m: u64, d: u64, inside: u64, outside: u64) -> Result<Self> {
        let total = || {
            let near = inside.checked_sub(outside)?.checked_mul(d)?;
            let common = m.checked_mul(outside)?;
            Some((common, common.checked_add(near)?))
        };
        match total() {
            Some((common, total)) if outside > 0 && (1..m).contains(&d) && total <= MOST => {
                Ok(Self { m, inside, outside, common, total })
            }
            _ => Err(Error::policy(
                "a mixture has from 1 to m - 1 near ids, weights from 1 that do not fall, and a total of at most 2^62",
            )),
        }
    }

    /// What the words of a slot choose: an id, or a rank among the near ones.
    #[inline(always)]
    pub fn draw(&self, word: u64, more: &mut Overflow<'_>) -> Result<Chosen> {
        let number = below(self.total, word, more)?;
        Ok(match number.checked_sub(self.common) {
            None => Chosen::Id(number / self.outside),
            Some(rest) => Chosen::Rank(rest / (self.inside - self.outside)),
        })
    }

    /// A uniform id, where nothing is near: a missing input.
    #[inline(always)]
    pub fn uniform(&self, word: u64, more: &mut Overflow<'_>) -> Result<u64> {
        below(self.m, word, more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::stream::Stream;

    #[test]
    fn every_integer_below_the_total_chooses_once() {
        let mut more = Stream::new(&[7; 32], 1).unwrap().overflow(0);
        for (m, d, inside, outside) in [(5, 2, 7, 3), (4, 3, 9, 1), (2, 1, 5, 5), (3, 1, 1, 1)] {
            let mixture = Mixture::new(m, d, inside, outside).unwrap();
            let total = m * outside + d * (inside - outside);
            let (mut ids, mut ranks) = (vec![0; m as usize], vec![0; d as usize]);
            for word in 0..total {
                match mixture.draw(word, &mut more).unwrap() {
                    Chosen::Id(id) => ids[id as usize] += 1,
                    Chosen::Rank(rank) => ranks[rank as usize] += 1,
                }
            }
            assert!(ids.iter().all(|&count| count == outside));
            assert!(ranks.iter().all(|&count| count == inside - outside));
        }
    }

    #[test]
    fn other_weights_are_refused() {
        let refused = [
            (5, 0, 7, 3),
            (5, 5, 7, 3),
            (5, 2, 2, 3),
            (5, 2, 7, 0),
            (2, 1, 1 << 62, 1),
            (u64::MAX, 2, 7, 3),
            (5, 3, u64::MAX, 1),
        ];
        for (m, d, inside, outside) in refused {
            assert!(Mixture::new(m, d, inside, outside).is_err());
        }
        assert!(Mixture::new(2, 1, (1 << 62) - 1, 1).is_ok());
    }
}
