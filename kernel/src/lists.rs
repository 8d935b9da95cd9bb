//! List laws: words in several orders, one of them drawn for every token, and a law of places on it ("dptext-lists/1",
//! `privacy.md` 3.4). The choice of the list does not look at the word.

use safetensors::Dtype;

use crate::errors::{Error, Result};
use crate::law::{resize, ExactRow, Facts, Law, Room};
use crate::mapped::{malformed, Mapped};
use crate::reading::{Fate, Reading};
use crate::sampler::Draws;
use crate::stream::{purpose, Stream};

/// A law of places of a list, given a place.
pub trait PlaceLaw: Send + Sync {
    const NAME: &'static str;

    /// Words per slot of the tokens' stream.
    fn width(&self) -> usize;

    /// The place drawn at `position`, whose slot is at hand.
    fn draw(&self, place: usize, position: u64, slot: &[u64], draws: &mut Draws<'_>) -> Result<usize>;

    /// The integer weight of another place.
    fn weight(&self, place: usize, other: usize) -> Result<u64>;
}

/// Orders of the same words: each holds every word once.
pub struct Lists {
    /// Words of one list.
    pub len: usize,
    /// How many lists there are.
    pub count: usize,
    /// Words by list and place.
    words: Vec<u32>,
    /// Places by word and list.
    places: Vec<u32>,
}

impl Lists {
    /// The lists of a file with this many words.
    pub fn new(file: &Mapped, len: usize) -> Result<Self> {
        let words = file.numbers::<u32>(file.needed("lists", Dtype::U32)?)?.to_vec();
        let count = words.len().checked_div(len).unwrap_or(0);
        if count == 0 || count * len != words.len() {
            return Err(malformed("lists does not hold a whole number of lists of all words"));
        }
        let mut places = vec![u32::MAX; words.len()];
        for (list, order) in words.chunks_exact(len).enumerate() {
            for (place, &word) in (0..u32::MAX).zip(order) {
                let known = places.get_mut(word as usize * count + list);
                let known = known.ok_or_else(|| malformed("a list names a word that is not there"))?;
                if *known != u32::MAX {
                    return Err(malformed("a list names a word twice"));
                }
                *known = place;
            }
        }
        Ok(Self { len, count, words, places })
    }

    #[inline(always)]
    fn place(&self, list: usize, word: u32) -> Result<usize> {
        let place = self.places.get(word as usize * self.count + list);
        place.map(|&place| place as usize).ok_or_else(missing)
    }

    #[inline(always)]
    fn word(&self, list: usize, place: usize) -> Result<u32> {
        self.words.get(list * self.len + place).copied().ok_or_else(missing)
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

impl<P: PlaceLaw> Law for OnLists<P> {
    fn facts(&self) -> Facts {
        Facts { name: P::NAME, lists: self.lists.count, sets: 1, max_set: self.lists.len, width: self.law.width() }
    }

    fn draw(&self, key: &[u8; 32], reading: &Reading, room: &mut Room) -> Result<()> {
        let (lists, width, count) = (&self.lists, self.law.width(), reading.draws as usize);
        let mut tokens = Draws::new(Stream::new(key, purpose::TOKEN)?, width);
        resize(&mut room.slots, count * width);
        tokens.slots(0, &mut room.slots)?;
        let mut choices = Draws::new(Stream::new(key, purpose::LIST)?, 1);
        resize(&mut room.lists, if lists.count > 1 { count } else { 0 });
        choices.slots(0, &mut room.lists)?;
        let (mut slots, mut list_slots) = (room.slots.chunks_exact(width), room.lists.chunks_exact(1));
        room.drawn.clear();
        for (position, fate) in (0..).zip(reading.drawn()) {
            let (slot, list_slot) = (slots.next().unwrap_or_default(), list_slots.next().unwrap_or_default());
            room.drawn.push(match fate {
                Fate::Draw(word) => {
                    let list = match lists.count {
                        1 => 0,
                        more => choices.uniform(position, list_slot, more as u64)? as usize,
                    };
                    let place = self.law.draw(lists.place(list, word)?, position, slot, &mut tokens)?;
                    lists.word(list, place)?
                }
                _ => tokens.uniform(position, slot, lists.len as u64)? as u32,
            });
        }
        Ok(())
    }

    /// One row for each list. Their totals differ where the word stands near an end of one of them.
    fn row(&self, input: u32) -> Result<ExactRow> {
        let lists = &self.lists;
        let on_list = |list: usize| {
            let mut weights = vec![0; lists.len];
            let place = lists.place(list, input)?;
            for other in 0..lists.len {
                let word = lists.word(list, other)?;
                *weights.get_mut(word as usize).ok_or_else(missing)? = self.law.weight(place, other)?;
            }
            Ok(weights)
        };
        let weights = (0..lists.count).map(on_list).collect::<Result<Vec<_>>>()?;
        Ok(ExactRow { outputs: (0..lists.len as u32).collect(), weights })
    }
}
