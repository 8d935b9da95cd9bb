//! Draws of many records at once, each with its record's key and its position.

use std::collections::HashSet;

use crate::errors::{Error, Result};

/// Where each draw takes its words from.
pub struct Occurrences<'a> {
    keys: &'a [[u8; 32]],
    records: &'a [u32],
    positions: &'a [u64],
}

impl<'a> Occurrences<'a> {
    /// Draw i belongs to record key `keys[records[i]]` and has position `positions[i]`.
    ///
    /// Debug builds refuse two draws of one position of one record (docs/spec/stream.md#one-stream-per-draw).
    pub fn new(keys: &'a [[u8; 32]], records: &'a [u32], positions: &'a [u64]) -> Result<Self> {
        if records.len() != positions.len() {
            return Err(Error::input(format!("{} records for {} positions", records.len(), positions.len())));
        }
        if let Some(record) = records.iter().find(|&&record| record as usize >= keys.len()) {
            return Err(Error::input(format!("a record is below {}; got {record}", keys.len())));
        }
        let draws = Self { keys, records, positions };
        #[cfg(debug_assertions)]
        draws.refuse_repeats()?;
        Ok(draws)
    }

    /// Refuses two draws of one position of one record in release builds too.
    pub fn refuse_repeats(&self) -> Result<()> {
        let mut used = HashSet::with_capacity(self.len());
        if self.records.iter().zip(self.positions).all(|draw| used.insert(draw)) {
            Ok(())
        } else {
            Err(Error::internal("a position of a stream was drawn twice"))
        }
    }

    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Key and position of draw `at`.
    #[inline]
    pub fn get(&self, at: usize) -> Result<(&'a [u8; 32], u64)> {
        let key = self.records.get(at).and_then(|&record| self.keys.get(record as usize));
        key.zip(self.positions.get(at).copied()).ok_or_else(|| Error::internal("a draw has no record"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_has_a_record_and_a_position() {
        let keys = [[1; 32], [2; 32]];
        let draws = Occurrences::new(&keys, &[1, 0, 1], &[7, 7, 8]).unwrap();
        assert_eq!(draws.get(0).unwrap(), (&[2; 32], 7));
        assert_eq!(draws.get(2).unwrap(), (&[2; 32], 8));
        assert!(draws.get(3).is_err());
        assert!(Occurrences::new(&keys, &[2], &[0]).is_err());
        assert!(Occurrences::new(&keys, &[1], &[]).is_err());
    }

    #[test]
    #[cfg(debug_assertions)]
    fn a_position_is_drawn_once() {
        assert!(Occurrences::new(&[[1; 32]], &[0, 0], &[4, 4]).is_err());
    }
}
