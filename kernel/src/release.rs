//! A table mechanism over a column of texts: words, record key, draws, join, row by row in parallel.

use std::ops::{ControlFlow, Range};

use arrow::array::Utf8Array;

use crate::column::{Strings, StringsBuilder};
use crate::errors::{Error, Result};
use crate::keys::Key;
use crate::lexicon::Entry;
use crate::policy::{Case, InputPolicy, Null, Punctuation, Unknown};
use crate::sampler::Draws;
use crate::stream::{purpose, Stream, Words};
use crate::table::{Sums, Table};
use crate::threads;
use crate::packed::Packed;
use crate::words;

/// Text that one unit of parallel work holds, in bytes.
const BLOCK_BYTES: usize = 1 << 18;

/// What becomes of one word.
#[derive(Clone, Copy)]
enum Fate {
    Draw(u32),
    Uniform,
    Copy,
}

/// A word of a text, with its packed form where the scan had it at hand.
#[derive(Clone, Copy)]
struct Word {
    start: u32,
    end: u32,
    packed: Option<Packed>,
}

impl Word {
    fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    fn of(self, text: &str) -> &str {
        text.get(self.range()).unwrap_or_default()
    }
}

/// A released column and how many draws each row took.
pub struct Released {
    pub text: Utf8Array<i64>,
    pub positions: Vec<u32>,
}

/// Releases a column; `key` gives the record key of a row.
pub fn release(
    table: &Table,
    policy: &InputPolicy,
    texts: &Strings,
    key: &(dyn Fn(usize, Option<&str>) -> Result<Key> + Sync),
    threads: usize,
) -> Result<Released> {
    let sums = table.sums()?;
    let parts = threads::over_rows(texts.len(), rows_at_once(texts), threads, |rows| {
        let bytes = texts.bytes() / texts.len().max(1) * rows.len();
        let mut text = StringsBuilder::with_capacity(rows.len(), bytes + bytes / 4);
        let mut positions = Vec::with_capacity(rows.len());
        let mut scratch = Scratch::default();
        for row in rows {
            let value = texts.get(row)?;
            match (value, policy.null) {
                (None, Null::Pass) => {
                    text.end_row(false);
                    positions.push(0);
                }
                _ => {
                    let drawn =
                        scratch.release(table, &sums, policy, value.unwrap_or_default(), &mut text.values, || {
                            key(row, value)
                        })?;
                    text.end_row(true);
                    positions.push(drawn);
                }
            }
        }
        Ok((text, positions))
    })?;
    let (texts, positions): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    Ok(Released { text: StringsBuilder::join(texts)?, positions: positions.concat() })
}

/// The draws that each row would take.
pub fn positions(table: &Table, policy: &InputPolicy, texts: &Strings, threads: usize) -> Result<Vec<u32>> {
    let parts = threads::over_rows(texts.len(), rows_at_once(texts), threads, |rows| {
        let mut scratch = Scratch::default();
        rows.map(|row| {
            scratch.read(table, policy, texts.get(row)?.unwrap_or_default())?;
            Ok(scratch.draws)
        })
        .collect::<Result<Vec<_>>>()
    })?;
    Ok(parts.concat())
}

/// The exact law of one word: output words and integer weights.
pub fn law(table: &Table, policy: &InputPolicy, word: &str) -> Result<(Vec<String>, Vec<u64>)> {
    let mut scratch = Scratch::default();
    scratch.read(table, policy, word)?;
    let ([only], [fate]) = (scratch.words.as_slice(), scratch.fates.as_slice()) else { return Err(not_a_word()) };
    if only.range() != (0..word.len()) {
        return Err(not_a_word());
    }
    let outputs = table.outputs()?.collect::<Vec<_>>();
    match *fate {
        Fate::Copy => {
            let mut form = Vec::new();
            copy(policy, word, &mut form);
            form.pop();
            Ok((vec![String::from_utf8(form).map_err(|_| Error::internal("a word is not UTF-8"))?], vec![1]))
        }
        Fate::Uniform => Ok((outputs.iter().map(|&word| word.to_owned()).collect(), vec![1; outputs.len()])),
        Fate::Draw(input) => {
            let (weights, members) = table.sums()?.row(input).ok_or_else(missing_row)?;
            let words = members.iter().filter_map(|&member| outputs.get(member as usize)).map(|&word| word.to_owned());
            Ok((words.collect(), weights.each().collect()))
        }
    }
}

fn not_a_word() -> Error {
    Error::input("the exact distribution is defined for one word; got another number of words, or more than the word")
        .hint("ask for words one by one, without spaces or punctuation around them")
}

fn missing_row() -> Error {
    Error::internal("a row of the table is not there")
}

fn rows_at_once(texts: &Strings) -> usize {
    let mean = texts.bytes() / texts.len().max(1) + 32;
    (BLOCK_BYTES / mean).clamp(16, 8192)
}

/// Appends a word that is released as it is, and a space.
fn copy(policy: &InputPolicy, word: &str, out: &mut Vec<u8>) {
    match policy.case {
        Case::Keep => out.extend_from_slice(word.as_bytes()),
        Case::Lower if word.is_ascii() => out.extend(word.bytes().map(|byte| byte.to_ascii_lowercase())),
        Case::Lower => out.extend_from_slice(words::look_up_form(word).as_bytes()),
    }
    out.push(b' ');
}

/// One row's words, fates and outputs, reused from row to row.
///
/// The row goes through one short loop after another, so that the look-ups of many words are under way at once.
#[derive(Default)]
struct Scratch {
    words: Vec<Word>,
    fates: Vec<Fate>,
    slots: Words,
    drawn: Vec<u32>,
    draws: u32,
    cut: bool,
}

impl Scratch {
    /// Finds the words of a text and what becomes of each.
    fn read(&mut self, table: &Table, policy: &InputPolicy, text: &str) -> Result<()> {
        if u32::try_from(text.len()).is_err() {
            return Err(Error::input("a text has 4 GiB or more").hint("split such documents into records"));
        }
        self.words.clear();
        self.cut = false;
        words::scan(text, |range, packed| {
            if self.words.len() == policy.n_max {
                self.cut = true;
                return ControlFlow::Break(());
            }
            self.words.push(Word { start: range.start as u32, end: range.end as u32, packed });
            ControlFlow::Continue(())
        });
        self.fates.clear();
        self.fates.extend(self.words.iter().map(|word| match table.lexicon.find(text, word.range(), word.packed) {
            Some(Entry::Input(input)) => Fate::Draw(input),
            Some(Entry::Kept) => Fate::Copy,
            None => unknown(policy, word.of(text)),
        }));
        self.draws = self.fates.iter().map(|fate| u32::from(!matches!(fate, Fate::Copy))).sum();
        Ok(())
    }

    /// Draws an output for each word that needs one; position p is the p-th of them.
    fn draw(&mut self, table: &Table, sums: &Sums<'_>, key: &Key) -> Result<()> {
        let mut draws = Draws::new(Stream::new(key, purpose::TOKEN)?, table.width);
        self.resize_slots(self.draws as usize * table.width);
        draws.slots(0, &mut self.slots)?;
        let mut slots = self.slots.chunks_exact(table.width);
        self.drawn.clear();
        for (position, fate) in (0..).zip(self.fates.iter().filter(|fate| !matches!(fate, Fate::Copy))) {
            let slot = slots.next().unwrap_or_default();
            self.drawn.push(match fate {
                Fate::Draw(input) => {
                    let (weights, members) = sums.row(*input).ok_or_else(missing_row)?;
                    let index = draws.choose(position, slot, weights)?;
                    *members.get(index).ok_or_else(missing_row)?
                }
                _ => draws.uniform(position, slot, table.words.len() as u64)? as u32,
            });
        }
        Ok(())
    }

    /// Room for a row's slots; a buffer that is too small is forgotten before it is given back.
    fn resize_slots(&mut self, len: usize) {
        if len > self.slots.capacity() {
            self.slots = Words::new(Vec::with_capacity(len.next_power_of_two()));
        }
        self.slots.resize(len, 0);
    }

    /// Appends the released text: outputs in the place of words.
    fn write(&self, table: &Table, policy: &InputPolicy, text: &str, out: &mut Vec<u8>) -> Result<()> {
        let in_place = policy.punctuation == Punctuation::Keep;
        let mut drawn = self.drawn.iter();
        let mut end = 0;
        for (word, fate) in self.words.iter().zip(&self.fates) {
            if in_place {
                out.extend_from_slice(text.get(end..word.start as usize).unwrap_or_default().as_bytes());
                end = word.end as usize;
            }
            match fate {
                Fate::Copy => copy(policy, word.of(text), out),
                _ => table.words.push(out, *drawn.next().ok_or_else(missing_row)?)?,
            }
            if in_place {
                out.pop();
            }
        }
        match policy.punctuation {
            Punctuation::Keep if !self.cut => out.extend_from_slice(text.get(end..).unwrap_or_default().as_bytes()),
            Punctuation::Drop if !self.words.is_empty() => {
                out.pop();
            }
            _ => {}
        }
        Ok(())
    }

    /// Appends the released text and returns the number of draws.
    fn release(
        &mut self,
        table: &Table,
        sums: &Sums<'_>,
        policy: &InputPolicy,
        text: &str,
        out: &mut Vec<u8>,
        key: impl FnOnce() -> Result<Key>,
    ) -> Result<u32> {
        self.read(table, policy, text)?;
        let key = if self.draws > 0 { key()? } else { Key::default() };
        self.draw(table, sums, &key)?;
        self.write(table, policy, text, out)?;
        Ok(self.draws)
    }
}

/// What the policy says of a word that the table does not know.
fn unknown(policy: &InputPolicy, word: &str) -> Fate {
    let rule = if words::is_number(word) { policy.numbers } else { policy.oov };
    match rule {
        Unknown::Uniform => Fate::Uniform,
        Unknown::Keep => Fate::Copy,
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, Utf8ViewArray};
    use safetensors::tensor::{serialize, Dtype, TensorView};
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::keys::hex;

    const WORDS: &str = "alpha\nbeta\ngamma\ndelta";

    /// Four words that draw from each other with weights 1, 2, 3, 4.
    fn table(name: &str) -> std::sync::Arc<Table> {
        let whole = |numbers: &[u64]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>();
        let half = |numbers: &[u32]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>();
        let tensors = [
            ("inputs", Dtype::U8, WORDS.as_bytes().to_vec()),
            ("kept", Dtype::U8, b"the".to_vec()),
            ("input_set", Dtype::U32, half(&[0; 4])),
            ("set_offsets", Dtype::U64, whole(&[0, 4])),
            ("members", Dtype::U32, half(&[0, 1, 2, 3])),
            ("row_offsets", Dtype::U64, whole(&[0, 4, 8, 12, 16])),
            ("cumulative", Dtype::U64, whole(&[1, 3, 6, 10].repeat(4))),
        ];
        let views = tensors.iter().map(|(name, dtype, bytes)| {
            let size = dtype.bitsize() / 8;
            (*name, TensorView::new(*dtype, vec![bytes.len() / size], bytes).unwrap())
        });
        let file = serialize(views, None).unwrap();
        let path = std::env::temp_dir().join(format!("dptext-kernel-test-{name}-{}", std::process::id()));
        std::fs::write(&path, &file).unwrap();
        let table = Table::open(path.to_str().unwrap(), &hex(&Sha256::digest(&file))).unwrap();
        std::fs::remove_file(path).unwrap();
        table
    }

    fn policy(punctuation: &str) -> InputPolicy {
        let rest = r#""case":"lower","numbers":"uniform","oov":"uniform","null":"pass","n_max":100"#;
        InputPolicy::from_json(&format!(r#"{{"punctuation":"{punctuation}",{rest}}}"#)).unwrap()
    }

    /// Debug builds refuse a second use of a position, so this also shows that each is drawn once.
    #[test]
    fn a_column_is_released_the_same_on_any_number_of_threads() {
        let table = table("threads");
        let rows = (0..500).map(|i| (i % 9 > 0).then(|| format!("The Alpha, unknown {i} beta! ").repeat(i % 5)));
        let array: Box<dyn Array> = Box::new(Utf8ViewArray::from_slice(rows.collect::<Vec<_>>()));
        let texts = Strings::new(&[array]).unwrap();
        let key = |row: usize, _: Option<&str>| Ok(Key::new([row as u8; 32]));
        for policy in [policy("drop"), policy("keep")] {
            let one = release(&table, &policy, &texts, &key, 1).unwrap();
            let three = release(&table, &policy, &texts, &key, 3).unwrap();
            assert_eq!(one.text, three.text);
            assert_eq!(one.positions, three.positions);
            assert_eq!(one.positions, positions(&table, &policy, &texts, 2).unwrap());
            assert_eq!(one.text.null_count(), texts.null_count());
            assert!(one.positions.iter().zip(0..).all(|(&n, i)| n == if i % 9 > 0 { i % 5 * 4 } else { 0 }));
        }
    }

    #[test]
    fn the_law_of_a_word_is_its_row() {
        let table = table("law");
        let outputs = WORDS.split('\n').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(law(&table, &policy("drop"), "ALPHA").unwrap(), (outputs.clone(), vec![1, 2, 3, 4]));
        assert_eq!(law(&table, &policy("drop"), "7").unwrap(), (outputs, vec![1; 4]));
        assert_eq!(law(&table, &policy("drop"), "The").unwrap(), (vec!["the".to_owned()], vec![1]));
        assert!(law(&table, &policy("drop"), "alpha beta").is_err());
    }
}
