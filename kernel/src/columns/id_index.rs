//! Number distinct ids of 128 bits, and look for them among many others.
//!
//! Ids are keyed hashes, and so evenly spread: their bits say where the search for one begins. Both halves decide, because
//! callers that go through ranges of ids (`id_ranges`) give ids whose first bits are all the same.

use crate::errors::{Error, Result};

/// The first and the second half of an id.
pub type Id = (u64, u64);

/// An odd number without a pattern in its bits: ids of equal halves lie apart, too.
const MIXING: u64 = 0x9E37_79B9_7F4A_7C15;

/// Distinct ids by number, in the order in which each came first.
#[derive(Default)]
pub struct IdIndex {
    ids: Vec<Id>,
    /// For every id a slot: 32 bits of it, and above them its number plus 1; 0 where there is none.
    slots: Vec<u64>,
    shift: u32,
}

impl IdIndex {
    /// Numbers ids; also returns the number of each row.
    pub fn new(hi: &[u64], lo: &[u64]) -> Result<(Self, Vec<i64>)> {
        if hi.len() != lo.len() || u32::try_from(hi.len()).is_err() {
            return Err(Error::input("ids have two halves each, and there are fewer than 2^32 of them"));
        }
        let bits = (2 * hi.len()).next_power_of_two().trailing_zeros().max(1);
        let mut index = Self { ids: Vec::with_capacity(hi.len()), slots: vec![0; 1 << bits], shift: 64 - bits };
        let numbers = hi.iter().zip(lo).map(|(&hi, &lo)| i64::from(index.number((hi, lo)))).collect();
        Ok((index, numbers))
    }

    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// The rows of other ids that are among these, in ascending order from `first` on, and their numbers.
    pub fn find(&self, hi: &[u64], lo: &[u64], first: usize) -> (Vec<i64>, Vec<i64>) {
        let pairs = (first as i64..).zip(hi.iter().zip(lo));
        pairs.filter_map(|(row, (&hi, &lo))| Some((row, i64::from(self.search((hi, lo)).ok()?)))).unzip()
    }

    /// The number of an id, or the free slot where its number would be.
    #[inline]
    fn search(&self, id: Id) -> std::result::Result<u32, usize> {
        let mut place = ((id.0 ^ id.1.wrapping_mul(MIXING)) >> self.shift) as usize;
        while let Some(&slot) = self.slots.get(place).filter(|slot| **slot != 0) {
            let number = (slot >> 32) as u32 - 1;
            if slot as u32 == id.0 as u32 && self.ids.get(number as usize) == Some(&id) {
                return Ok(number);
            }
            place = (place + 1) & (self.slots.len() - 1); // at least half of the slots are free
        }
        Err(place)
    }

    /// The number of an id, which is a new one unless it came before.
    #[inline]
    fn number(&mut self, id: Id) -> u32 {
        let free = match self.search(id) {
            Ok(number) => return number,
            Err(free) => free,
        };
        let number = self.ids.len() as u32;
        if let Some(slot) = self.slots.get_mut(free) {
            *slot = (u64::from(number) + 1) << 32 | u64::from(id.0 as u32);
        }
        self.ids.push(id);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pseudo_random::numbers;

    /// Few halves of ids: most slots are taken, and searches run over the end of the table.
    #[test]
    fn ids_are_numbered_and_found_as_a_list_says() {
        let mut next = numbers(7);
        for size in 0..200_usize {
            let mut half = |many: u64| match next() % many {
                0 => u64::MAX,
                1 => 1,
                few => few << 60,
            };
            let given = (0..size).map(|_| (half(5), half(40))).collect::<Vec<_>>();
            let others = (0..size).map(|_| (half(6), half(50))).collect::<Vec<_>>();
            let ((hi, lo), (other_hi, other_lo)): ((Vec<_>, Vec<_>), (Vec<_>, Vec<_>)) =
                (given.iter().copied().unzip(), others.iter().copied().unzip());
            let (index, found) = IdIndex::new(&hi, &lo).unwrap();
            let mut distinct = Vec::new();
            for id in &given {
                if !distinct.contains(id) {
                    distinct.push(*id);
                }
            }
            let number = |id: &Id| distinct.iter().position(|one| one == id).map(|at| at as i64);
            assert_eq!(index.len(), distinct.len());
            assert_eq!(found, given.iter().filter_map(number).collect::<Vec<_>>());
            let expected = others.iter().enumerate().filter_map(|(row, id)| Some((row as i64, number(id)?)));
            let expected: (Vec<i64>, Vec<i64>) = expected.unzip();
            assert_eq!(index.find(&other_hi, &other_lo, 0), expected);
        }
        assert!(IdIndex::new(&[1], &[]).is_err());
    }

    /// The ids of a range share the first bits of one half; no search may pass more than a few of the others.
    #[test]
    fn ids_of_a_range_lie_apart() {
        let mut next = numbers(11);
        for shared in [0, 1, 4, 16, 63] {
            let hi = (0..20_000).map(|_| next() >> shared).collect::<Vec<_>>();
            let lo = (0..20_000).map(|_| next()).collect::<Vec<_>>();
            for (hi, lo) in [(&hi, &lo), (&lo, &hi), (&lo, &lo)] {
                let (index, _) = IdIndex::new(hi, lo).unwrap();
                let taken = index.slots.split(|slot| *slot == 0).map(<[u64]>::len).max();
                assert!(taken.unwrap() < 200, "{shared} bits: {taken:?} slots in a row are taken");
            }
        }
    }
}
