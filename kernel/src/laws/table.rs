//! Table laws: output sets and integer weights in a mapped file ("dptext-table/1").
//!
//! Every index in the file is checked when it is opened, so that a malformed file is refused before any draw.

use std::ops::Range;
use std::sync::Arc;

use safetensors::Dtype;

use crate::draw::outline::Outline;
use crate::draw::sampler::Draws;
use crate::draw::stream::{purpose, Stream};
use crate::draw::weights::{Weights, ONE_LEVEL};
use crate::errors::{Error, Result};
use crate::laws::law::{resize, ExactRow, Facts, Law, Room};
use crate::laws::mapped::{malformed, spans, Mapped};
use crate::pages::prefetch;
use crate::text::reading::{Fate, Reading};

/// One input word: its weights' outline, where its running sums lie and where its output set begins.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Row {
    outline: Outline,
    sums: usize,
    members: u32,
    len: u32,
}

/// Rows of weights; the weights stay in the file's mapping.
pub struct Table {
    file: Arc<Mapped>,
    cumulative: Range<usize>,
    rows: Vec<Row>,
    members: Vec<u32>,
    outputs: usize,
    sets: usize,
    max_set: usize,
    width: usize,
}

impl Table {
    /// The table of a file with this many input and output words.
    pub fn new(file: Arc<Mapped>, inputs: usize, outputs: usize) -> Result<Self> {
        let input_set = file.numbers::<u32>(file.needed("input_set", Dtype::U32)?)?.to_vec();
        let set_offsets = file.numbers::<u64>(file.needed("set_offsets", Dtype::U64)?)?.to_vec();
        let members = file.numbers::<u32>(file.needed("members", Dtype::U32)?)?.to_vec();
        let row_offsets = file.numbers::<u64>(file.needed("row_offsets", Dtype::U64)?)?.to_vec();
        let cumulative = file.needed("cumulative", Dtype::U64)?;
        let sums = file.numbers::<u64>(cumulative.clone())?;

        let sets = spans(&set_offsets, members.len(), "set_offsets")?;
        let spans = spans(&row_offsets, sums.len(), "row_offsets")?;
        if input_set.len() != inputs || spans.len() != inputs {
            return Err(malformed("inputs, input_set and row_offsets name different numbers of words"));
        }
        if !members.iter().all(|&member| (member as usize) < outputs) {
            return Err(malformed("members names an output that is not there"));
        }
        if u32::try_from(members.len()).is_err() {
            return Err(malformed("members has 2^32 entries or more"));
        }
        let mut rows = Vec::with_capacity(inputs);
        for (&set, span) in input_set.iter().zip(spans) {
            let set = sets.get(set as usize).ok_or_else(|| malformed("input_set names a set that is not there"))?;
            let row = sums.get(span.clone()).unwrap_or(&[]);
            if set.is_empty() || set.len() != row.len() {
                return Err(malformed("a row does not have one weight for each member of its set"));
            }
            if !row.is_sorted() || row.last() == Some(&0) {
                return Err(malformed("a row's running sums fall, or end at zero"));
            }
            rows.push(Row {
                outline: Outline::new(row),
                sums: span.start,
                members: set.start as u32,
                len: set.len() as u32,
            });
        }
        let max_set = sets.iter().map(Range::len).max().unwrap_or(0);
        let sets = sets.len();
        let width = if max_set > ONE_LEVEL { 2 } else { 1 };
        Ok(Self { file, cumulative, rows, members, outputs, sets, max_set, width })
    }

    /// The weights of a row among the mapped `sums`.
    #[inline(always)]
    fn weights<'t>(&self, sums: &'t [u64], row: &'t Row) -> Result<Weights<'t>> {
        let sums = sums.get(row.sums..row.sums + row.len as usize).ok_or_else(missing_row)?;
        Ok(Weights::outlined(sums, &row.outline))
    }

    /// Draws an output for each word from the slots that are made.
    #[inline(always)]
    fn choose_all(&self, sums: &[u64], draws: &mut Draws<'_>, reading: &Reading, room: &mut Room) -> Result<()> {
        let mut slots = room.slots.chunks_exact(self.width);
        room.drawn.clear();
        room.drawn.reserve(reading.draws as usize);
        for (position, fate) in (0..).zip(reading.drawn()) {
            let slot = slots.next().unwrap_or_default();
            room.drawn.push(match fate {
                Fate::Draw(input) => {
                    let row = self.rows.get(input as usize).ok_or_else(missing_row)?;
                    let index = draws.choose(position, slot, self.weights(sums, row)?)?;
                    *self.members.get(row.members as usize + index).ok_or_else(missing_row)?
                }
                _ => draws.uniform(position, slot, self.outputs as u64)? as u32,
            });
        }
        Ok(())
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn choose_all_avx2(&self, sums: &[u64], draws: &mut Draws<'_>, reading: &Reading, room: &mut Room) -> Result<()> {
        self.choose_all(sums, draws, reading, room)
    }
}

impl Law for Table {
    fn facts(&self) -> Facts {
        Facts { name: "table", lists: 0, sets: self.sets, max_set: self.max_set, width: self.width }
    }

    fn prefetch(&self, reading: &Reading) {
        for fate in reading.drawn() {
            if let Fate::Draw(input) = fate {
                let at = input as usize;
                prefetch(self.rows.get(at..=at).unwrap_or_default());
            }
        }
    }

    fn draw(&self, key: &[u8; 32], reading: &Reading, room: &mut Room) -> Result<()> {
        let sums = self.file.numbers::<u64>(self.cumulative.clone())?;
        let mut draws = Draws::new(Stream::new(key, purpose::TOKEN)?, self.width);
        resize(&mut room.slots, reading.draws as usize * self.width);
        draws.slots(0, &mut room.slots)?;
        #[cfg(target_arch = "x86_64")]
        if crate::processor::has_avx2() {
            // SAFETY: the processor has what the function is compiled for, as the line above found.
            return unsafe { self.choose_all_avx2(sums, &mut draws, reading, room) };
        }
        self.choose_all(sums, &mut draws, reading, room)
    }

    fn row(&self, input: u32) -> Result<ExactRow> {
        let sums = self.file.numbers::<u64>(self.cumulative.clone())?;
        let row = self.rows.get(input as usize).ok_or_else(missing_row)?;
        let members = self.members.get(row.members as usize..(row.members + row.len) as usize);
        let weights = self.weights(sums, row)?.each().collect();
        Ok(ExactRow { outputs: members.ok_or_else(missing_row)?.to_vec(), weights: vec![weights] })
    }
}

fn missing_row() -> Error {
    Error::internal("a row of the table is not there")
}
