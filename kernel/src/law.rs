//! What every law of words is to the loops over columns: one record's draws, and one word's exact weights.

use crate::errors::Result;
use crate::reading::Reading;
use crate::stream::Words;

/// What one input word's law is, exactly: output numbers and their integer weights.
pub type ExactRow = (Vec<u32>, Vec<u128>);

/// A law of output words given an input word. The loops over columns are compiled for each.
pub trait Law: Sync {
    /// Draws an output for each word that needs one into `room.drawn`; position p is the p-th of them.
    fn draw(&self, key: &[u8; 32], reading: &Reading, room: &mut Room) -> Result<()>;

    /// The exact law of an input.
    fn row(&self, input: u32) -> Result<ExactRow>;
}

/// Buffers of one thread, reused from row to row.
#[derive(Default)]
pub struct Room {
    /// Slots of the tokens' stream.
    pub slots: Words,
    /// Slots of the lists' stream.
    pub lists: Words,
    /// Outputs by position.
    pub drawn: Vec<u32>,
}

/// Room for a row's slots; a buffer that is too small is forgotten before it is given back.
pub fn resize(slots: &mut Words, len: usize) {
    if len > slots.capacity() {
        *slots = Words::new(Vec::with_capacity(len.next_power_of_two()));
    }
    slots.resize(len, 0);
}
