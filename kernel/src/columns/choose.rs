//! Columns of texts through a corpus: each text, or each part of it, becomes a public text that is drawn near it
//! (docs/spec/surrogate.md#draw).
//!
//! A draw that does not fall to the near texts is decided before anything is scored. The others wait until there are
//! enough of them to pass over the corpus once for all.

use std::collections::HashMap;

use serde::Deserialize;

use crate::columns::release::Released;
use crate::columns::strings::{Strings, StringsBuilder};
use crate::draw::mixture::{Chosen, Mixture};
use crate::draw::sampler::Draws;
use crate::draw::stream::{purpose, Stream, Words};
use crate::errors::{Error, Result};
use crate::keys::secrets::Key;
use crate::laws::corpus::{Corpus, Encoding};
use crate::laws::nearest::{self, Kept};
use crate::laws::products::{Queries, Way, GROUP};
use crate::laws::ranks;
use crate::laws::sums::MOST_WORDS;
use crate::text::input_policy::Null;
use crate::threads;

/// Rows that one unit of parallel work takes.
const ROWS: usize = 512;
/// Scores that one thread keeps at a time.
const SCORES: usize = 12 << 20;
/// Queries that wait for one pass over the corpus, at most.
const WAITING: usize = 64;
/// Draws from one text's scores from which on it pays to put all scores in order.
const WORTH_AN_ORDER: usize = 32;
/// Draws of one text, at most.
const MOST_DRAWS: usize = 1024;

/// How texts are drawn, as data; numbers of the corpus are checked against it.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChoicePolicy {
    /// How many texts of the corpus are near.
    pub near: u64,
    /// Their weight, and the weight of all others.
    pub inside: u64,
    pub outside: u64,
    /// Consecutive parts of a text, and draws of each part: positions are numbered part by part.
    pub parts: usize,
    pub draws: usize,
    /// Words of one text; the rest is cut before anything else.
    pub n_max: usize,
    pub null: Null,
}

impl ChoicePolicy {
    pub fn from_json(json: &str) -> Result<Self> {
        let policy: Self = serde_json::from_str(json).map_err(|error| {
            Error::policy(format!("the draw is not one the kernel knows (at column {})", error.column()))
                .hint("its fields are near, inside, outside, parts, draws, n_max and null")
        })?;
        let count = policy.parts.checked_mul(policy.draws).unwrap_or(0);
        if !(1..=MOST_DRAWS).contains(&count) || !(1..=MOST_WORDS).contains(&policy.n_max) {
            return Err(Error::policy(format!(
                "a text has from 1 to {MOST_DRAWS} draws, and from 1 to {MOST_WORDS} of its words are read"
            )));
        }
        Ok(policy)
    }

    /// Whether data say how whole texts are drawn, and not how words are.
    pub fn is_one(json: &str) -> bool {
        serde_json::from_str::<serde_json::Value>(json).is_ok_and(|value| value.get("near").is_some())
    }

    /// Draws of one text.
    pub fn count(&self) -> usize {
        self.parts * self.draws
    }

    fn passes(&self, value: Option<&str>) -> bool {
        value.is_none() && self.null == Null::Pass
    }
}

/// Where the vector of a text comes from.
pub enum Source<'a> {
    /// The corpus encodes it.
    Words,
    /// A model did: one vector per row and part; zeros where it failed.
    Given(&'a [i8]),
}

/// A draw that waits for its text's scores.
struct Waiting {
    /// Which of the unit's draws it is.
    place: usize,
    rank: usize,
    query: usize,
}

/// What one thread keeps from row to row.
struct Room<'c> {
    corpus: &'c Corpus,
    /// The vectors of the queries, row after row, and their numbers.
    queries: Vec<i8>,
    numbers: HashMap<Vec<i8>, usize>,
    waiting: Vec<Waiting>,
    most: usize,
    kept: Vec<Kept>,
    ranks: ranks::Room,
    /// What became of the unit's draws, as numbers of texts.
    drawn: Vec<u32>,
}

impl<'c> Room<'c> {
    fn new(corpus: &'c Corpus, near: u64) -> Self {
        let each = nearest::expected(corpus.len(), near as usize);
        Self {
            corpus,
            queries: Vec::new(),
            numbers: HashMap::new(),
            waiting: Vec::new(),
            most: (SCORES / each.max(1)).clamp(GROUP, WAITING) / GROUP * GROUP,
            kept: Vec::new(),
            ranks: ranks::Room::default(),
            drawn: Vec::new(),
        }
    }

    /// The number of the query for this vector, which equal texts share.
    fn query(&mut self, vector: &[i8]) -> usize {
        if let Some(&query) = self.numbers.get(vector) {
            return query;
        }
        let query = self.numbers.len();
        self.queries.extend_from_slice(vector);
        self.numbers.insert(vector.to_vec(), query);
        query
    }

    /// Lets what waits have its scores.
    fn settle(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let queries = Queries::new(Way::best(), self.corpus.k, &self.queries);
        let mut deepest = vec![0; queries.len()];
        for one in &self.waiting {
            deepest.get_mut(one.query).into_iter().for_each(|rank| *rank = one.rank.max(*rank));
        }
        nearest::keep(&queries, self.corpus.packed()?, &deepest, &mut self.kept);
        self.waiting.sort_unstable_by_key(|one| one.query);
        for alike in self.waiting.chunk_by(|one, next| one.query == next.query) {
            let kept = alike.first().and_then(|first| self.kept.get(first.query));
            let Kept { scores, numbers, .. } = kept.ok_or_else(no_rank)?;
            let ordered = alike.len() >= WORTH_AN_ORDER;
            if ordered {
                self.ranks.order(scores);
            }
            for &Waiting { place, rank, .. } in alike {
                let index = if ordered { self.ranks.at(rank) } else { ranks::at_rank(scores, rank, &mut self.ranks) };
                let number = index.and_then(|index| numbers.get(index)).ok_or_else(no_rank)?;
                *self.drawn.get_mut(place).ok_or_else(no_rank)? = *number;
            }
        }
        self.waiting.clear();
        self.queries.clear();
        self.numbers.clear();
        Ok(())
    }
}

fn no_rank() -> Error {
    Error::internal("a rank of the corpus is not there")
}

impl Corpus {
    /// Releases a column; `key` gives the record key of a row.
    pub fn release(
        &self,
        policy: &ChoicePolicy,
        texts: &Strings,
        source: &Source<'_>,
        key: &(dyn Fn(usize, Option<&str>) -> Result<Key> + Sync),
        threads: usize,
    ) -> Result<Released> {
        let mixture = Mixture::new(self.len() as u64, policy.near, policy.inside, policy.outside)?;
        if let Source::Given(vectors) = source {
            if Some(vectors.len()) != texts.len().checked_mul(policy.parts * self.k) || vectors.contains(&i8::MIN) {
                return Err(Error::input(format!(
                    "every part of a text has one vector of {} numbers from -127 to 127",
                    self.k
                )));
            }
        }
        let parts = threads::over_rows(texts.len(), ROWS, threads, |rows| {
            let mut text = StringsBuilder::with_capacity(rows.len(), texts.bytes() / texts.len().max(1) * rows.len());
            let (mut positions, mut room) = (Vec::with_capacity(rows.len()), Room::new(self, policy.near));
            let mut encoding = Encoding::default();
            let starts = rows.clone().step_by(ROWS);
            for some in starts.map(|start| start..rows.end.min(start + ROWS)) {
                room.drawn.clear();
                for row in some.clone() {
                    let value = texts.get(row)?;
                    if !policy.passes(value) {
                        let key = key(row, value)?;
                        self.draw(policy, mixture, source, row, value, &key, &mut encoding, &mut room)?;
                    }
                }
                room.settle()?;
                let mut drawn = room.drawn.chunks_exact(policy.count());
                for row in some {
                    let passes = policy.passes(texts.get(row)?);
                    if !passes {
                        self.write(drawn.next().unwrap_or_default(), &mut text.values)?;
                    }
                    text.end_row(!passes);
                    positions.push(if passes { 0 } else { policy.count() as u32 });
                }
            }
            Ok((text, positions))
        })?;
        let mut parts = parts.into_iter();
        let (mut text, mut positions) = parts.next().unwrap_or_default();
        for (some, their_positions) in parts {
            text.append(&some);
            positions.extend(their_positions);
        }
        Ok(Released { text: text.finish()?, positions })
    }

    /// The draws that each row is charged.
    pub fn positions(&self, policy: &ChoicePolicy, texts: &Strings) -> Result<Vec<u32>> {
        let charged = |value| if policy.passes(value) { 0 } else { policy.count() as u32 };
        (0..texts.len()).map(|row| texts.get(row).map(charged)).collect()
    }

    /// Draws every position of one text: at once where no score is needed, else when the room settles.
    #[allow(clippy::too_many_arguments)]
    fn draw(
        &self,
        policy: &ChoicePolicy,
        mixture: Mixture,
        source: &Source<'_>,
        row: usize,
        value: Option<&str>,
        key: &[u8; 32],
        encoding: &mut Encoding,
        room: &mut Room<'_>,
    ) -> Result<()> {
        let mut draws = Draws::new(Stream::new(key, purpose::TOKEN)?, 1);
        let mut slots = Words::new(vec![0; policy.count()]);
        draws.slots(0, &mut slots)?;
        if matches!(source, Source::Words) {
            self.read(value.unwrap_or_default(), policy.n_max, encoding)?;
        }
        let (mut position, mut slots) = (0, slots.iter());
        for part in 0..policy.parts {
            let says = match source {
                Source::Words => self.encode(part, policy.parts, encoding)?,
                Source::Given(vectors) => {
                    let start = (row * policy.parts + part) * self.k;
                    encoding.vector.clear();
                    encoding.vector.extend_from_slice(vectors.get(start..start + self.k).unwrap_or_default());
                    encoding.vector.iter().any(|&number| number != 0)
                }
            };
            let mut query = None;
            for &word in slots.by_ref().take(policy.draws) {
                let mut more = draws.beyond(position)?;
                position += 1;
                let (place, mut number) = (room.drawn.len(), 0);
                if !says {
                    number = mixture.uniform(word, &mut more)?;
                } else {
                    match mixture.draw(word, &mut more)? {
                        Chosen::Id(id) => number = id,
                        Chosen::Rank(rank) => {
                            let query = *query.get_or_insert_with(|| room.query(&encoding.vector));
                            room.waiting.push(Waiting { place, rank: rank as usize, query });
                        }
                    }
                }
                room.drawn.push(number as u32);
            }
            if room.numbers.len() >= room.most {
                room.settle()?;
            }
        }
        Ok(())
    }

    /// The near texts of a whole text in their order; none where it says nothing.
    pub fn near(&self, text: &str, policy: &ChoicePolicy) -> Result<Option<Vec<u32>>> {
        let mut encoding = Encoding::default();
        self.read(text, policy.n_max, &mut encoding)?;
        if !self.encode(0, 1, &mut encoding)? {
            return Ok(None);
        }
        let (queries, mut scores) = (Queries::new(Way::best(), self.k, &encoding.vector), Vec::new());
        queries.scores(self.packed()?, &mut scores);
        let mut order = scores.iter().take(self.len()).zip(0..).map(|(&score, id)| (-score, id)).collect::<Vec<_>>();
        order.sort_unstable();
        Ok(Some(order.into_iter().take(policy.near as usize).map(|(_, id)| id).collect()))
    }

    /// Appends the texts with these numbers, a space between them.
    fn write(&self, numbers: &[u32], out: &mut Vec<u8>) -> Result<()> {
        for (place, &number) in numbers.iter().enumerate() {
            if place > 0 {
                out.push(b' ');
            }
            out.extend_from_slice(self.text(number as usize)?.as_bytes());
        }
        Ok(())
    }
}
