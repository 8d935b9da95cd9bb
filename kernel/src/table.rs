//! Table mechanisms: a vocabulary, output sets and integer weights in one mapped file, known by its hash.
//!
//! Every index in the file is checked when it is opened, so that a malformed file is refused before any draw.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex};

use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};
use sha2::{Digest, Sha256};

use crate::errors::{Error, Result};
use crate::keys::hex;
use crate::lexicon::Lexicon;
use crate::outline::Outline;
use crate::weights::{Weights, ONE_LEVEL};

/// One input word: its weights' outline, where its running sums lie and where its output set begins.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Row {
    outline: Outline,
    sums: usize,
    members: u32,
    len: u32,
}

/// An open table; the weights stay in the file's mapping.
pub struct Table {
    map: Mmap,
    inputs: Range<usize>,
    outputs: Range<usize>,
    kept: Range<usize>,
    pub metadata: HashMap<String, String>,
    cumulative: Range<usize>,
    rows: Vec<Row>,
    members: Vec<u32>,
    pub lexicon: Lexicon,
    pub words: Outputs,
    pub sets: usize,
    pub max_set: usize,
    pub width: usize,
}

/// The layout this kernel reads.
const FORMAT: &str = "dptext-table/1";

static OPEN: LazyLock<Mutex<HashMap<String, Arc<Table>>>> = LazyLock::new(Mutex::default);

impl Table {
    /// The table with this hash, mapped from `path` unless the process has it already.
    pub fn open(path: &str, sha256: &str) -> Result<Arc<Self>> {
        let mut open = OPEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(table) = open.get(sha256) {
            return Ok(table.clone());
        }
        let table = Arc::new(Self::map(path, sha256)?);
        open.insert(sha256.to_owned(), table.clone());
        Ok(table)
    }

    fn map(path: &str, sha256: &str) -> Result<Self> {
        let failed = |error: std::io::Error| {
            Error::artifact(format!("the table file {path} cannot be read ({})", error.kind()))
                .hint("build the mechanism's table again, or bring its file to this machine")
        };
        let file = std::fs::File::open(path).map_err(failed)?;
        // SAFETY: the mapping is private and read-only. Tables are written once under another name and renamed into
        // place, never changed; should another process cut the file all the same, this process ends by SIGBUS.
        // Everything that bounds an access is copied out and checked below; the weights left in the mapping only
        // choose among checked indices.
        let map = unsafe { Mmap::map(&file) }.map_err(failed)?;
        let found = hex(&Sha256::digest(&map));
        if found != sha256 {
            return Err(Error::artifact(format!("the table file {path} is not the one named: its SHA-256 is {found}"))
                .hint(format!("the configuration names {sha256}; restore that file or build the table again")));
        }
        Self::parse(map)
    }

    fn parse(map: Mmap) -> Result<Self> {
        let broken = |_| malformed("it is no safetensors file");
        let file = SafeTensors::deserialize(&map).map_err(broken)?;
        let (_, header) = SafeTensors::read_metadata(&map).map_err(broken)?;
        let metadata =
            header.metadata().iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect::<HashMap<_, _>>();
        if metadata.get("format").is_some_and(|format| format != FORMAT) {
            return Err(malformed("it is of another format"));
        }
        let place = |name: &str, dtype: Dtype| place(&map, &file, name, dtype);
        let inputs = place("inputs", Dtype::U8)?.unwrap_or(0..0);
        let outputs = place("outputs", Dtype::U8)?.filter(|range| !range.is_empty()).unwrap_or_else(|| inputs.clone());
        let kept = place("kept", Dtype::U8)?.unwrap_or(0..0);
        let needed = |name: &str, dtype| place(name, dtype)?.ok_or_else(|| malformed(&format!("{name} is missing")));
        let input_set = numbers::<u32>(&map, needed("input_set", Dtype::U32)?)?.to_vec();
        let set_offsets = numbers::<u64>(&map, needed("set_offsets", Dtype::U64)?)?.to_vec();
        let members = numbers::<u32>(&map, needed("members", Dtype::U32)?)?.to_vec();
        let row_offsets = numbers::<u64>(&map, needed("row_offsets", Dtype::U64)?)?.to_vec();
        let cumulative = needed("cumulative", Dtype::U64)?;
        let sums = numbers::<u64>(&map, cumulative.clone())?;

        let lexicon = Lexicon::new(lines(&map, &inputs)?, lines(&map, &kept)?)?;
        let words = Outputs::new(lines(&map, &outputs)?)?;
        let sets = spans(&set_offsets, members.len(), "set_offsets")?;
        let spans = spans(&row_offsets, sums.len(), "row_offsets")?;
        let count = lines(&map, &inputs)?.count();
        if count == 0 || input_set.len() != count || spans.len() != count {
            return Err(malformed("inputs, input_set and row_offsets name different numbers of words"));
        }
        if !members.iter().all(|&member| (member as usize) < words.len()) {
            return Err(malformed("members names an output that is not there"));
        }
        if u32::try_from(members.len()).is_err() {
            return Err(malformed("members has 2^32 entries or more"));
        }
        let mut rows = Vec::with_capacity(count);
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
        Ok(Self {
            inputs,
            outputs,
            kept,
            metadata,
            cumulative,
            rows,
            members,
            lexicon,
            words,
            sets,
            max_set,
            width,
            map,
        })
    }

    pub fn inputs(&self) -> Result<impl Iterator<Item = &str> + Clone> {
        lines(&self.map, &self.inputs)
    }

    pub fn outputs(&self) -> Result<impl Iterator<Item = &str> + Clone> {
        lines(&self.map, &self.outputs)
    }

    pub fn kept(&self) -> Result<impl Iterator<Item = &str> + Clone> {
        lines(&self.map, &self.kept)
    }

    /// The mapped weights, to be held through a loop over rows.
    pub fn sums(&self) -> Result<Sums<'_>> {
        Ok(Sums { table: self, sums: numbers(&self.map, self.cumulative.clone())? })
    }
}

/// The table's weights and members.
#[derive(Clone, Copy)]
pub struct Sums<'t> {
    table: &'t Table,
    sums: &'t [u64],
}

impl<'t> Sums<'t> {
    /// The weights of an input's output set and the output ids of its members.
    #[inline(always)]
    pub fn row(&self, input: u32) -> Option<(Weights<'t>, &'t [u32])> {
        let row = self.table.rows.get(input as usize)?;
        let len = row.len as usize;
        let sums = self.sums.get(row.sums..row.sums + len)?;
        let members = self.table.members.get(row.members as usize..row.members as usize + len)?;
        Some((Weights::outlined(sums, &row.outline), members))
    }
}

/// The released words, each with a space behind it, in 16 bytes where word, space and their length fit.
pub struct Outputs {
    short: Vec<Short>,
    long: HashMap<u32, Box<[u8]>>,
}

#[derive(Clone, Copy)]
#[repr(align(16))]
struct Short {
    word: [u8; 15],
    len: u8,
}

const LONG: u8 = u8::MAX;

impl Outputs {
    fn new<'a>(words: impl Iterator<Item = &'a str>) -> Result<Self> {
        let (mut short, mut long) = (Vec::new(), HashMap::new());
        for (number, word) in (0..u32::MAX).zip(words) {
            let mut place = Short { word: [0; 15], len: LONG };
            match place.word.split_at_mut_checked(word.len()) {
                Some((head, [space, ..])) => {
                    head.copy_from_slice(word.as_bytes());
                    *space = b' ';
                    place.len = word.len() as u8 + 1;
                }
                _ => {
                    long.insert(number, format!("{word} ").into_bytes().into_boxed_slice());
                }
            }
            short.push(place);
        }
        Ok(Self { short, long })
    }

    pub fn len(&self) -> usize {
        self.short.len()
    }

    /// Appends a word and a space.
    #[inline(always)]
    pub fn push(&self, out: &mut Vec<u8>, word: u32) -> Result<()> {
        let short = self.short.get(word as usize).ok_or_else(no_output)?;
        if short.len == LONG {
            out.extend_from_slice(self.long.get(&word).ok_or_else(no_output)?);
        } else {
            let end = out.len() + usize::from(short.len);
            out.extend_from_slice(&short.word);
            out.truncate(end);
        }
        Ok(())
    }
}

fn no_output() -> Error {
    Error::internal("a drawn output is not there")
}

fn malformed(what: &str) -> Error {
    Error::artifact(format!("the table file is malformed: {what}"))
        .hint("its layout is \"dptext-table/1\"; build the table again with this version")
}

/// Where a tensor of one dimension lies in the file.
fn place(map: &[u8], file: &SafeTensors<'_>, name: &str, dtype: Dtype) -> Result<Option<Range<usize>>> {
    let Ok(tensor) = file.tensor(name) else { return Ok(None) };
    if tensor.dtype() != dtype || tensor.shape().len() != 1 {
        return Err(malformed(&format!("{name} is not one row of {dtype:?}")));
    }
    let start = (tensor.data().as_ptr() as usize).wrapping_sub(map.as_ptr() as usize);
    let range = start..start + tensor.data().len();
    if map.get(range.clone()).is_none() {
        return Err(malformed(&format!("{name} lies outside the file")));
    }
    Ok(Some(range))
}

/// Numbers at a place of the file, in the machine's own byte order.
fn numbers<T: bytemuck::AnyBitPattern>(map: &[u8], range: Range<usize>) -> Result<&[T]> {
    if cfg!(target_endian = "big") {
        return Err(Error::artifact("tables are read on little-endian machines alone"));
    }
    let bytes = map.get(range).ok_or_else(|| malformed("a tensor lies outside the file"))?;
    bytemuck::try_cast_slice(bytes).map_err(|_| malformed("a tensor is not aligned to its numbers"))
}

/// Words at a place of the file, one per line.
fn lines<'a>(map: &'a [u8], range: &Range<usize>) -> Result<impl Iterator<Item = &'a str> + Clone> {
    let bytes = map.get(range.clone()).ok_or_else(|| malformed("a word list lies outside the file"))?;
    let text = std::str::from_utf8(bytes).map_err(|_| malformed("a word list is not UTF-8"))?;
    let mut words = text.split('\n');
    if text.is_empty() {
        words.next();
    } else if words.clone().any(str::is_empty) {
        return Err(malformed("a word list holds an empty word"));
    }
    Ok(words)
}

/// Spans between rising offsets that start at 0 and end at `end`.
fn spans(offsets: &[u64], end: usize, name: &str) -> Result<Vec<Range<usize>>> {
    let whole = offsets.first() == Some(&0) && offsets.last() == Some(&(end as u64)) && offsets.is_sorted();
    if !whole {
        return Err(malformed(&format!("{name} does not rise from 0 to the end")));
    }
    Ok(offsets
        .windows(2)
        .filter_map(|pair| match pair {
            [from, to] => Some(*from as usize..*to as usize),
            _ => None,
        })
        .collect())
}
