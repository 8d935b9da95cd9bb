//! What every law of words is to the loops over columns: one record's draws, and one word's exact weights.

use crate::draw::stream::Words;
use crate::errors::Result;
use crate::text::input_policy::InputPolicy;
use crate::text::reading::Reading;

/// What one input word's law is, exactly.
pub struct ExactRow {
    /// Output numbers.
    pub outputs: Vec<u32>,
    /// Their integer weights in each of the rows that are drawn from with equal probability. Totals may differ.
    pub weights: Vec<Vec<u64>>,
}

/// What a law says of itself.
#[derive(Clone, Copy)]
pub struct Facts {
    /// "table", "tem" or "geometric".
    pub name: &'static str,
    /// How many lists it draws from; 0 for tables.
    pub lists: usize,
    /// Number of output sets.
    pub sets: usize,
    /// Size of the largest output set.
    pub max_set: usize,
    /// Words per slot: 2 if any weighted output set exceeds 4,096, else 1.
    pub width: usize,
}

/// A law of output words given an input word. It is asked once per record; the loop over words is its own.
pub trait Law: Send + Sync {
    fn facts(&self) -> Facts;

    /// Refuses an input policy that the law does not serve.
    fn check(&self, _policy: &InputPolicy) -> Result<()> {
        Ok(())
    }

    /// Asks for what the draws of a record need, so that it comes while the record's key is made.
    fn prefetch(&self, _reading: &Reading) {}

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
    /// The tokens' first overflow words.
    pub ahead: Words,
    /// Further ones, of the tokens that need more.
    pub further: Words,
    /// Outputs by position.
    pub drawn: Vec<u32>,
    /// Draws that start from a place of a list and need words beyond their slots.
    pub starts: Vec<Start>,
    /// Which of them need further words.
    pub unfinished: Vec<usize>,
}

/// A draw that starts from a place of a list; when it is done, the place that it chose.
pub struct Start {
    pub position: u64,
    pub list: usize,
    pub place: usize,
}

/// Room for a row's slots; a buffer that is too small is forgotten before it is given back.
pub fn resize(slots: &mut Words, len: usize) {
    if len > slots.capacity() {
        *slots = Words::new(Vec::with_capacity(len.next_power_of_two()));
    }
    slots.resize(len, 0);
}
