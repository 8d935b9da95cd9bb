//! List laws: words in several orders, one of them drawn for every token, and a law of places on it ("dptext-lists/1",
//! docs/spec/privacy.md#diffractor). The choice of the list does not look at the word.

use std::collections::BTreeSet;
use std::ops::Range;

use safetensors::Dtype;

use crate::draw::lanes::AHEAD;
use crate::draw::sampler::Draws;
use crate::draw::stream::{purpose, Overflow, Stream};
use crate::errors::{Error, Result};
use crate::laws::law::{resize, ExactRow, Facts, Law, Room, Start};
use crate::laws::mapped::{malformed, spans, Mapped};
use crate::text::input_policy::{InputPolicy, Unknown};
use crate::text::reading::{Fate, Reading};

/// A law of places of a list, given a place.
pub trait PlaceLaw: Send + Sync {
    const NAME: &'static str;

    /// Words per slot of the tokens' stream.
    fn width(&self) -> usize;

    /// Whether every draw starts with overflow words, so that they are worth making ahead.
    const OVERFLOWS: bool;

    /// The place of a list of `len` that a slot and the words beyond it choose.
    fn draw(&self, len: usize, place: usize, slot: &[u64], more: &mut Overflow<'_>) -> Result<usize>;

    /// The same place from the first words beyond the slot, for laws that start with them; none if more are needed.
    #[inline(always)]
    fn draw_ahead<'w>(&self, _len: usize, _place: usize, _words: impl Iterator<Item = &'w u64>) -> Option<usize> {
        None
    }

    /// The integer weight of another place.
    fn weight(&self, place: usize, other: usize) -> Result<u64>;
}

/// Orders of words. Even lists hold every word once each; uneven ones hold some words, and are only for modes that
/// claim nothing.
pub struct Lists {
    /// How many words there are.
    inputs: usize,
    /// How many lists there are.
    count: usize,
    /// Where each list lies among `words`.
    spans: Vec<Range<usize>>,
    /// Words by list and place.
    words: Vec<u32>,
    /// Places by word and list; `ABSENT` where the list does not hold the word.
    places: Vec<u32>,
    even: bool,
}

const ABSENT: u32 = u32::MAX;

/// Uneven lists, at most: what is stored of them grows with lists times words.
const MOST: usize = 255;

impl Lists {
    /// The lists of a file with this many words.
    pub fn new(file: &Mapped, inputs: usize) -> Result<Self> {
        let words = file.numbers::<u32>(file.needed("lists", Dtype::U32)?)?.to_vec();
        let spans = match file.place("list_offsets", Dtype::U64)? {
            Some(offsets) => spans(file.numbers::<u64>(offsets)?, words.len(), "list_offsets")?,
            None => {
                let count = words.len().checked_div(inputs).unwrap_or(0);
                (0..count).map(|list| list * inputs..(list + 1) * inputs).collect()
            }
        };
        let count = spans.len();
        if count == 0 || spans.iter().any(Range::is_empty) || spans.last().is_some_and(|last| last.end != words.len()) {
            return Err(malformed("lists does not hold a whole number of lists"));
        }
        if count > MOST && count * inputs > words.len() {
            return Err(malformed("more than 255 lists have different lengths"));
        }
        let mut places = vec![ABSENT; count * inputs];
        for (list, span) in spans.iter().enumerate() {
            for (place, &word) in (0..ABSENT).zip(words.get(span.clone()).unwrap_or_default()) {
                let known = places.get_mut(word as usize * count + list);
                let known = known.ok_or_else(|| malformed("a list names a word that is not there"))?;
                if *known != ABSENT {
                    return Err(malformed("a list names a word twice"));
                }
                *known = place;
            }
        }
        if places.chunks_exact(count).any(|word| word.iter().all(|&place| place == ABSENT)) {
            return Err(malformed("a word is on no list"));
        }
        let even = !places.contains(&ABSENT);
        Ok(Self { inputs, count, spans, words, places, even })
    }

    /// Lengths of the lists, each once.
    pub fn lens(&self) -> BTreeSet<usize> {
        self.spans.iter().map(Range::len).collect()
    }

    fn longest(&self) -> usize {
        self.lens().last().copied().unwrap_or(0)
    }

    #[inline(always)]
    fn len(&self, list: usize) -> usize {
        self.spans.get(list).map_or(0, Range::len)
    }

    #[inline(always)]
    fn place(&self, list: usize, word: u32) -> Result<usize> {
        let place = self.places.get(word as usize * self.count + list);
        place.map(|&place| place as usize).ok_or_else(missing)
    }

    #[inline(always)]
    fn word(&self, list: usize, place: usize) -> Result<u32> {
        let start = self.spans.get(list).ok_or_else(missing)?.start;
        self.words.get(start + place).copied().ok_or_else(missing)
    }

    /// The lists that hold a word, in order.
    fn holding(&self, word: u32) -> impl Iterator<Item = usize> + Clone + '_ {
        let first = word as usize * self.count;
        let places = self.places.get(first..first + self.count).unwrap_or_default();
        places.iter().enumerate().filter(|(_, place)| **place != ABSENT).map(|(list, _)| list)
    }

    /// The list that is drawn at `position` for a word, among those that hold it; a single one is not drawn.
    #[inline(always)]
    fn choose(&self, word: u32, position: u64, slot: &[u64], draws: &mut Draws<'_>) -> Result<usize> {
        if self.even {
            return if self.count == 1 {
                Ok(0)
            } else {
                Ok(draws.uniform(position, slot, self.count as u64)? as usize)
            };
        }
        let holding = self.holding(word);
        let chosen = match holding.clone().count() {
            1 => 0,
            count => draws.uniform(position, slot, count as u64)? as usize,
        };
        holding.clone().nth(chosen).ok_or_else(missing)
    }
}

fn missing() -> Error {
    Error::internal("a place of a list is not there")
}

/// A law of places on lists.
pub struct OnLists<P> {
    pub lists: Lists,
    pub law: P,
}

impl<P: PlaceLaw> OnLists<P> {
    /// Draws from the places of `room.starts` by words beyond the slots, which are made for many positions at once: a
    /// few for all, as many again for those that need more.
    fn draw_beyond(&self, tokens: &mut Draws<'_>, room: &mut Room) -> Result<()> {
        let (lists, starts) = (&self.lists, &mut room.starts);
        resize(&mut room.ahead, starts.len() * AHEAD);
        tokens.ahead(0, starts.iter().map(|start| start.position), &mut room.ahead);
        room.unfinished.clear();
        for (at, (start, words)) in starts.iter_mut().zip(room.ahead.chunks_exact(AHEAD)).enumerate() {
            match self.law.draw_ahead(lists.len(start.list), start.place, words.iter()) {
                Some(place) => start.place = place,
                None => room.unfinished.push(at),
            }
        }
        resize(&mut room.further, room.unfinished.len() * AHEAD);
        let unfinished = room.unfinished.iter().filter_map(|&at| starts.get(at).map(|start| start.position));
        tokens.ahead(1, unfinished, &mut room.further);
        for (&at, further) in room.unfinished.iter().zip(room.further.chunks_exact(AHEAD)) {
            let (Some(start), Some(words)) = (starts.get_mut(at), room.ahead.get(at * AHEAD..(at + 1) * AHEAD)) else {
                return Err(missing());
            };
            let len = lists.len(start.list);
            start.place = match self.law.draw_ahead(len, start.place, words.iter().chain(further)) {
                Some(place) => place,
                None => self.law.draw(len, start.place, &[], &mut tokens.again(start.position))?,
            };
        }
        for start in starts {
            tokens.take(start.position)?;
            let drawn = room.drawn.get_mut(start.position as usize).ok_or_else(missing)?;
            *drawn = lists.word(start.list, start.place)?;
        }
        Ok(())
    }
}

impl<P: PlaceLaw> Law for OnLists<P> {
    fn facts(&self) -> Facts {
        let max_set = self.lists.longest();
        Facts { name: P::NAME, lists: self.lists.count, sets: 1, max_set, width: self.law.width() }
    }

    /// On uneven lists the choice of the list looks at the word: no bound holds, so they serve no policy that hides
    /// unknown words.
    fn check(&self, policy: &InputPolicy) -> Result<()> {
        if self.lists.even || (policy.oov == Unknown::Keep && policy.numbers == Unknown::Keep) {
            return Ok(());
        }
        Err(Error::policy(
            "lists of different words have no bound, so unknown words and numbers must be kept unchanged",
        )
        .hint("build the lists over a common vocabulary, or use mode faithful"))
    }

    fn draw(&self, key: &[u8; 32], reading: &Reading, room: &mut Room) -> Result<()> {
        let (lists, width, count) = (&self.lists, self.law.width(), reading.draws as usize);
        let mut tokens = Draws::new(Stream::new(key, purpose::TOKEN)?, width);
        let from_slots = !P::OVERFLOWS || reading.drawn().any(|fate| fate == Fate::Uniform);
        resize(&mut room.slots, if from_slots { count * width } else { 0 });
        tokens.slots(0, &mut room.slots)?;
        let mut choices = Draws::new(Stream::new(key, purpose::LIST)?, 1);
        resize(&mut room.lists, if lists.count > 1 { count } else { 0 });
        choices.slots(0, &mut room.lists)?;
        let (mut slots, mut list_slots) = (room.slots.chunks_exact(width), room.lists.chunks_exact(1));
        room.drawn.clear();
        room.starts.clear();
        for (position, fate) in (0..).zip(reading.drawn()) {
            let (slot, list_slot) = (slots.next().unwrap_or_default(), list_slots.next().unwrap_or_default());
            room.drawn.push(match fate {
                Fate::Draw(word) => {
                    let list = lists.choose(word, position, list_slot, &mut choices)?;
                    let place = lists.place(list, word)?;
                    if P::OVERFLOWS {
                        room.starts.push(Start { position, list, place });
                        0
                    } else {
                        lists.word(list, self.law.draw(lists.len(list), place, slot, &mut tokens.beyond(position)?)?)?
                    }
                }
                _ => tokens.uniform(position, slot, lists.inputs as u64)? as u32,
            });
        }
        if P::OVERFLOWS {
            self.draw_beyond(&mut tokens, room)?;
        }
        Ok(())
    }

    /// One row for each list that holds the word. Their totals differ where it is near an end of one of them.
    fn row(&self, input: u32) -> Result<ExactRow> {
        let lists = &self.lists;
        let mut reached = vec![false; lists.inputs];
        let mut on_list = |list: usize| {
            let mut weights = vec![0; lists.inputs];
            let place = lists.place(list, input)?;
            for other in 0..lists.len(list) {
                let word = lists.word(list, other)? as usize;
                *weights.get_mut(word).ok_or_else(missing)? = self.law.weight(place, other)?;
                *reached.get_mut(word).ok_or_else(missing)? = true;
            }
            Ok(weights)
        };
        let mut weights = lists.holding(input).map(&mut on_list).collect::<Result<Vec<_>>>()?;
        for row in &mut weights {
            let mut reached = reached.iter();
            row.retain(|_| reached.next() == Some(&true));
        }
        let outputs = (0..u32::MAX).zip(&reached).filter(|(_, reached)| **reached).map(|(word, _)| word).collect();
        Ok(ExactRow { outputs, weights })
    }
}
