//! Columns through a vocabulary: words become numbers, and outputs that were chosen elsewhere become texts.

use std::collections::HashMap;
use std::ops::Range;

use crate::columns::release::{by_rows, charged, passes, rows_at_once, Released};
use crate::columns::strings::Strings;
use crate::errors::{Error, Result};
use crate::keys::secrets::Key;
use crate::pages::large_pages;
use crate::text::input_policy::{InputPolicy, Length};
use crate::text::reading::{Fate, Reading};
use crate::text::vocabulary::Vocabulary;
use crate::threads;

/// Stands for a word that is unknown and drawn uniformly.
pub const UNKNOWN: u32 = u32::MAX;

/// Bytes of a text for each of its words, at least in most texts: room for more words is made when they come.
const BYTES_PER_WORD: usize = 4;

/// The drawn words of a column: their numbers, and where each row's begin (one more offset than rows).
pub struct Encoded {
    pub words: Vec<u32>,
    pub offsets: Vec<u64>,
}

/// The numbers of all words that are drawn, by row and position. `key` gives the record key of a row; it decides
/// only a noisy length.
pub fn encode(
    vocabulary: &Vocabulary,
    policy: &InputPolicy,
    texts: &Strings,
    key: Option<&(dyn Fn(usize) -> Result<Key> + Sync)>,
    threads: usize,
) -> Result<Encoded> {
    vocabulary.check(policy)?;
    if matches!(policy.length, Length::Noisy(..)) && key.is_none() {
        return Err(Error::policy("a noisy length is drawn from record keys, and none were given"));
    }
    let work = |rows: Range<usize>| {
        let mut part = Encoded { words: Vec::new(), offsets: Vec::with_capacity(rows.len()) };
        let mut reading = Reading::default();
        for row in rows {
            let value = texts.get(row)?;
            if !passes(policy, value) {
                reading.read(vocabulary, policy, value.unwrap_or_default())?;
                let key = key.filter(|_| policy.hides_length()).map_or_else(|| Ok(Key::default()), |key| key(row))?;
                reading.hide_length(vocabulary, policy, &key)?;
                part.words.extend(reading.drawn().map(|fate| match fate {
                    Fate::Draw(input) => input,
                    _ => UNKNOWN,
                }));
            }
            part.offsets.push(part.words.len() as u64);
        }
        Ok(part)
    };
    let room = if policy.hides_length() { 0 } else { texts.bytes() / BYTES_PER_WORD };
    let mut all = Encoded { words: large_pages(room), offsets: Vec::with_capacity(texts.len() + 1) };
    all.offsets.push(0);
    threads::in_order(texts.len(), rows_at_once(texts), threads, work, |part| {
        let before = all.words.len() as u64;
        all.offsets.extend(part.offsets.iter().map(|offset| before + offset));
        all.words.extend_from_slice(&part.words);
    })?;
    Ok(all)
}

/// The words of a column: each distinct one once, as texts hold it.
#[derive(Default)]
pub struct Words<'a> {
    pub distinct: Vec<&'a str>,
    /// Whether each distinct word is drawn; if not, it is released unchanged.
    pub drawn: Vec<bool>,
    /// The number of every word of every row, among the distinct ones.
    pub numbers: Vec<u32>,
    /// Where the words of each row begin: one more than rows.
    pub offsets: Vec<u64>,
}

impl<'a> Words<'a> {
    fn number(&mut self, known: &mut HashMap<&'a str, u32>, word: &'a str, drawn: bool) -> u32 {
        *known.entry(word).or_insert_with(|| {
            self.distinct.push(word);
            self.drawn.push(drawn);
            (self.distinct.len() - 1) as u32
        })
    }
}

/// All words of a column but those that leave no trace, cut to `n_max` words a row: for a model that reads them.
pub fn words<'a>(
    vocabulary: &Vocabulary,
    policy: &InputPolicy,
    texts: &'a Strings,
    threads: usize,
) -> Result<Words<'a>> {
    vocabulary.check(policy)?;
    let work = |rows: Range<usize>| {
        let (mut part, mut known, mut reading) = (Words::default(), HashMap::new(), Reading::default());
        for row in rows {
            let value = texts.get(row)?.unwrap_or_default();
            reading.read(vocabulary, policy, value)?;
            for (word, fate) in reading.each(value).filter(|(_, fate)| *fate != Fate::Drop) {
                let number = part.number(&mut known, word, fate.is_drawn());
                part.numbers.push(number);
            }
            part.offsets.push(part.numbers.len() as u64);
        }
        Ok(part)
    };
    let (mut all, mut known) = (Words::default(), HashMap::new());
    all.offsets.push(0);
    threads::in_order(texts.len(), rows_at_once(texts), threads, work, |part: Words<'a>| {
        let before = all.numbers.len() as u64;
        all.offsets.extend(part.offsets.iter().map(|offset| before + offset));
        let merged = part.distinct.iter().zip(&part.drawn).map(|(word, drawn)| all.number(&mut known, word, *drawn));
        let merged = merged.collect::<Vec<u32>>();
        all.numbers.extend(part.numbers.iter().filter_map(|&number| merged.get(number as usize)));
    })?;
    Ok(all)
}

/// Released texts from the outputs that were chosen for the words of `encode`.
pub fn assemble(
    vocabulary: &Vocabulary,
    policy: &InputPolicy,
    texts: &Strings,
    offsets: &[u64],
    choices: &[u32],
    threads: usize,
) -> Result<Released> {
    vocabulary.check(policy)?;
    if offsets.len() != texts.len() + 1 {
        return Err(Error::input(format!("{} texts need one offset more; got {}", texts.len(), offsets.len())));
    }
    if !choices.iter().all(|&choice| (choice as usize) < vocabulary.outputs.len()) {
        return Err(Error::input("a choice is not the number of an output")
            .hint("words that encode() numbers 2^32 - 1 are unknown: draw their outputs uniformly"));
    }
    let of_row = |row: usize| {
        let (from, to) = (*offsets.get(row)?, *offsets.get(row + 1)?);
        choices.get(usize::try_from(from).ok()?..usize::try_from(to).ok()?)
    };
    by_rows(texts, threads, |reading: &mut Reading, row, value, values| {
        let chosen = of_row(row).ok_or_else(|| Error::input("offsets do not rise within the choices"))?;
        if passes(policy, value) {
            expect(0, chosen.len())?;
            return Ok(None);
        }
        let words = value.unwrap_or_default();
        match policy.length {
            Length::Disclose => {
                reading.read(vocabulary, policy, words)?;
                expect(reading.draws as usize, chosen.len())?;
            }
            Length::Fixed => expect(policy.n_max, chosen.len())?,
            Length::Noisy(..) if (1..=policy.n_max).contains(&chosen.len()) => {}
            Length::Noisy(..) => return Err(Error::input("a text of noisy length has from 1 to n_max choices")),
        }
        if policy.hides_length() {
            reading.of_choices(chosen.len());
        }
        reading.write(vocabulary, policy, words, chosen, values)?;
        Ok(Some(charged(policy, reading)))
    })
}

fn expect(draws: usize, choices: usize) -> Result<()> {
    if draws == choices {
        return Ok(());
    }
    Err(Error::input(format!("a text needs one choice for each of its {draws} draws; got {choices}"))
        .hint("give the offsets of encode() over the same texts under the same input policy"))
}
