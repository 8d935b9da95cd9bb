//! Columns of texts through a law of words: words, record key, draws, join, row by row in parallel.

use std::ops::Range;
use std::sync::Mutex;

use arrow_array::LargeStringArray;

use crate::columns::strings::{Strings, StringsBuilder};
use crate::errors::Result;
use crate::keys::secrets::Key;
use crate::laws::law::{Law, Room};
use crate::laws::law_file::LawFile;
use crate::text::input_policy::{InputPolicy, Length, Null};
use crate::text::reading::Reading;
use crate::text::vocabulary::Vocabulary;
use crate::threads::{self, lock};

/// Text that one unit of parallel work holds, in bytes.
const BLOCK_BYTES: usize = 1 << 18;

/// A released column and how many draws each row is charged.
pub struct Released {
    pub text: LargeStringArray,
    pub positions: Vec<u32>,
}

impl LawFile {
    /// Releases a column; `key` gives the record key of a row.
    pub fn release(
        &self,
        policy: &InputPolicy,
        texts: &Strings,
        key: &(dyn Fn(usize, Option<&str>) -> Result<Key> + Sync),
        threads: usize,
    ) -> Result<Released> {
        self.law.check(policy)?;
        release(&*self.law, &self.vocabulary, policy, texts, key, threads)
    }

    /// The draws that each row is charged.
    pub fn positions(&self, policy: &InputPolicy, texts: &Strings, threads: usize) -> Result<Vec<u32>> {
        self.law.check(policy)?;
        positions(&self.vocabulary, policy, texts, threads)
    }
}

/// Releases a column; `key` gives the record key of a row.
fn release(
    law: &dyn Law,
    vocabulary: &Vocabulary,
    policy: &InputPolicy,
    texts: &Strings,
    key: &(dyn Fn(usize, Option<&str>) -> Result<Key> + Sync),
    threads: usize,
) -> Result<Released> {
    vocabulary.check(policy)?;
    by_rows(texts, threads, |(reading, room): &mut (Reading, Room), row, value, values| {
        if passes(policy, value) {
            return Ok(None);
        }
        let words = value.unwrap_or_default();
        reading.read(vocabulary, policy, words)?;
        law.prefetch(reading);
        let key = if reading.draws > 0 || policy.hides_length() { key(row, value)? } else { Key::default() };
        reading.hide_length(vocabulary, policy, &key)?;
        law.draw(&key, reading, room)?;
        reading.write(vocabulary, policy, words, &room.drawn, values)?;
        Ok(Some(charged(policy, reading)))
    })
}

/// Releases a column row by row, in parallel. `write` appends a row's text and returns the draws that it is charged, or
/// returns none for a null; what it keeps from row to row is its first argument.
pub fn by_rows<Kept: Default + Send>(
    texts: &Strings,
    threads: usize,
    write: impl Fn(&mut Kept, usize, Option<&str>, &mut Vec<u8>) -> Result<Option<u32>> + Sync,
) -> Result<Released> {
    let fill = |part: &mut Part<Kept>, rows: Range<usize>| -> Result<()> {
        for row in rows {
            let draws = write(&mut part.kept, row, texts.get(row)?, &mut part.text.values)?;
            part.text.end_row(draws.is_some());
            part.positions.push(draws.unwrap_or(0));
        }
        Ok(())
    };
    let (rows, bytes, step) = (texts.len(), texts.bytes(), rows_at_once(texts));
    let mut all = Part {
        text: StringsBuilder::with_capacity(rows, bytes + bytes / 4),
        positions: Vec::with_capacity(rows),
        kept: Kept::default(),
    };
    if threads == 1 || rows <= step {
        fill(&mut all, 0..rows)?;
    } else {
        // Few parts live at a time: each is copied as soon as those before it are there, and filled again.
        let spare = Mutex::new(Vec::<Part<Kept>>::new());
        let work = |rows| {
            let mut part = lock(&spare).pop().unwrap_or_default();
            fill(&mut part, rows)?;
            Ok(part)
        };
        threads::in_order(rows, step, threads, work, |mut part| {
            all.text.append(&part.text);
            all.positions.extend_from_slice(&part.positions);
            part.text.clear();
            part.positions.clear();
            lock(&spare).push(part);
        })?;
    }
    Ok(Released { text: all.text.finish()?, positions: all.positions })
}

/// Some rows of a release, and what is kept from row to row.
#[derive(Default)]
struct Part<Kept> {
    text: StringsBuilder,
    positions: Vec<u32>,
    kept: Kept,
}

/// The draws that each row is charged.
pub fn positions(vocabulary: &Vocabulary, policy: &InputPolicy, texts: &Strings, threads: usize) -> Result<Vec<u32>> {
    vocabulary.check(policy)?;
    let parts = threads::over_rows(texts.len(), rows_at_once(texts), threads, |rows| {
        let mut reading = Reading::default();
        rows.map(|row| {
            let value = texts.get(row)?;
            if passes(policy, value) {
                return Ok(0);
            }
            if !policy.hides_length() {
                reading.count(vocabulary, policy, value.unwrap_or_default())?;
            }
            Ok(charged(policy, &reading))
        })
        .collect::<Result<Vec<_>>>()
    })?;
    Ok(parts.concat())
}

/// Whether a row is released as a null.
pub fn passes(policy: &InputPolicy, value: Option<&str>) -> bool {
    value.is_none() && policy.null == Null::Pass
}

/// The draws that a text is charged: its own, or as many as any text may have where their number is hidden.
pub fn charged(policy: &InputPolicy, reading: &Reading) -> u32 {
    match policy.length {
        Length::Disclose => reading.draws,
        Length::Fixed | Length::Noisy(..) => policy.n_max as u32,
    }
}

/// How many rows one unit of parallel work takes.
pub fn rows_at_once(texts: &Strings) -> usize {
    let mean = texts.bytes() / texts.len().max(1) + 32;
    (BLOCK_BYTES / mean).clamp(16, 8192)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Array, StringViewArray};
    use safetensors::tensor::{serialize, Dtype, TensorView};
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::columns::c_data::Chunked;
    use crate::keys::secrets::hex;
    use crate::text::outputs::PAD;

    const WORDS: &str = "alpha\nbeta\ngamma\ndelta";

    fn whole(numbers: &[u64]) -> Vec<u8> {
        numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
    }

    fn half(numbers: &[u32]) -> Vec<u8> {
        numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
    }

    fn open(name: &str, tensors: &[(&str, Dtype, Vec<u8>)], stated: &[(&str, &str)]) -> Arc<LawFile> {
        let views = tensors.iter().map(|(name, dtype, bytes)| {
            let size = dtype.bitsize() / 8;
            (*name, TensorView::new(*dtype, vec![bytes.len() / size], bytes).unwrap())
        });
        let stated = stated.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let file = serialize(views, Some(stated)).unwrap();
        let path = std::env::temp_dir().join(format!("dptext-kernel-test-{name}-{}", std::process::id()));
        std::fs::write(&path, &file).unwrap();
        let law = LawFile::open(path.to_str().unwrap(), &hex(&Sha256::digest(&file))).unwrap();
        std::fs::remove_file(path).unwrap();
        law
    }

    /// Four words that draw from each other with weights 1, 2, 3, 4.
    fn table(name: &str) -> Arc<LawFile> {
        let tensors = [
            ("inputs", Dtype::U8, WORDS.as_bytes().to_vec()),
            ("kept", Dtype::U8, b"the".to_vec()),
            ("input_set", Dtype::U32, half(&[0; 4])),
            ("set_offsets", Dtype::U64, whole(&[0, 4])),
            ("members", Dtype::U32, half(&[0, 1, 2, 3])),
            ("row_offsets", Dtype::U64, whole(&[0, 4, 8, 12, 16])),
            ("cumulative", Dtype::U64, whole(&[1, 3, 6, 10].repeat(4))),
        ];
        open(name, &tensors, &[])
    }

    /// Two lists of four words and a pad.
    fn lists(name: &str, law: &str) -> Arc<LawFile> {
        let tensors = [
            ("inputs", Dtype::U8, format!("{WORDS}\n{PAD}").into_bytes()),
            ("lists", Dtype::U32, half(&[0, 1, 2, 3, 4, 3, 4, 0, 2, 1])),
        ];
        open(name, &tensors, &[("format", "dptext-lists/1"), ("law", law)])
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
        let array = rows.collect::<StringViewArray>();
        let texts = Strings::new(&Chunked::one(Arc::new(array))).unwrap();
        let key = |row: usize, _: Option<&str>| Ok(Key::new([row as u8; 32]));
        for policy in [policy("drop"), policy("keep")] {
            let one = table.release(&policy, &texts, &key, 1).unwrap();
            let three = table.release(&policy, &texts, &key, 3).unwrap();
            assert_eq!(one.text, three.text);
            assert_eq!(one.positions, three.positions);
            assert_eq!(one.positions, positions(&table.vocabulary, &policy, &texts, 2).unwrap());
            assert_eq!(one.text.null_count(), texts.null_count());
            assert!(one.positions.iter().zip(0..).all(|(&n, i)| n == if i % 9 > 0 { i % 5 * 4 } else { 0 }));
        }
    }

    #[test]
    fn the_law_of_a_word_is_its_row() {
        let table = table("law");
        let outputs = WORDS.split('\n').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(table.row(&policy("drop"), "ALPHA").unwrap(), (outputs.clone(), vec![vec![1, 2, 3, 4]]));
        assert_eq!(table.row(&policy("drop"), "7").unwrap(), (outputs, vec![vec![1; 4]]));
        assert_eq!(table.row(&policy("drop"), "The").unwrap(), (vec!["the".to_owned()], vec![vec![1]]));
        assert!(table.row(&policy("drop"), "alpha beta").is_err());
    }

    /// Every position is drawn once here too, of the lists' stream as of the tokens', whatever becomes of the length.
    #[test]
    fn laws_on_lists_draw_each_position_once() {
        let laws = [r#"{"tem":{"weights":[9,3],"outside":1}}"#, r#"{"geometric":{"rate":[1,2]}}"#];
        let rows = (0..80).map(|i| (i % 9 > 0).then(|| format!("Alpha, unknown {i} beta! ").repeat(i % 5)));
        let array = rows.collect::<StringViewArray>();
        let texts = Strings::new(&Chunked::one(Arc::new(array))).unwrap();
        let key = |row: usize, _: Option<&str>| Ok(Key::new([row as u8; 32]));
        for (number, law) in laws.iter().enumerate() {
            let lists = lists(&format!("lists-{number}"), law);
            for (length, draws) in
                [(r#""disclose""#, None), (r#""fixed""#, Some(20)), (r#"{"noisy":[1,19]}"#, Some(20))]
            {
                let rest = r#""case":"lower","numbers":"uniform","oov":"drop","null":"pass","n_max":20"#;
                let policy = format!(r#"{{"punctuation":"drop","length":{length},{rest}}}"#);
                let policy = InputPolicy::from_json(&policy).unwrap();
                let one = lists.release(&policy, &texts, &key, 1).unwrap();
                assert_eq!(one.text, lists.release(&policy, &texts, &key, 3).unwrap().text);
                let charged = |i: u32| if i.is_multiple_of(9) { 0 } else { draws.unwrap_or(i % 5 * 3) };
                assert!(one.positions.iter().zip(0..).all(|(&n, i)| n == charged(i)), "{law} {length}");
                assert_eq!(one.positions, positions(&lists.vocabulary, &policy, &texts, 2).unwrap());
            }
        }
    }
}
