//! Draws grouped by word, so that what a word needs is made once for all its draws.

use crate::errors::{Error, Result};
use crate::pages::large_pages;

/// Words beyond this many are a number that no vocabulary has.
const MOST: usize = 1 << 31;

/// The numbers of draws ordered by word, in the order of the draws where words are equal; unknown words, which have the
/// number 2^32 - 1, are last. One thread does it: it waits for memory, and two would each read all words.
pub fn by_word(words: &[u32]) -> Result<Vec<i64>> {
    let largest = words.iter().filter(|&&word| word != u32::MAX).max();
    let known = largest.map_or(0, |&largest| largest as usize + 1);
    if known > MOST {
        return Err(Error::input("a word's number is below 2^31, or 2^32 - 1 for an unknown word"));
    }
    let group = |word: u32| (word as usize).min(known);
    let mut places = vec![0usize; known + 1];
    for &word in words {
        if let Some(place) = places.get_mut(group(word)) {
            *place += 1;
        }
    }
    let mut before = 0;
    for place in &mut places {
        before += std::mem::replace(place, before);
    }
    let mut order = large_pages::<i64>(words.len());
    order.resize(words.len(), 0);
    for (number, &word) in (0i64..).zip(words) {
        let Some(place) = places.get_mut(group(word)) else { continue };
        if let Some(slot) = order.get_mut(*place) {
            *slot = number;
        }
        *place += 1;
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_sorted_by_word_and_keep_their_order() {
        let of = |count: u32, words: u32| (0..count).map(move |i| i.wrapping_mul(2_654_435_761) % words);
        let unknown = |words: Vec<u32>| words.into_iter().map(|word| if word % 5 == 0 { u32::MAX } else { word });
        let cases =
            [vec![], vec![u32::MAX; 3], vec![7], of(999, 3).collect(), unknown(of(5000, 700).collect()).collect()];
        for words in cases {
            let mut expected = (0..words.len() as i64).collect::<Vec<_>>();
            expected.sort_by_key(|&at| words[at as usize]);
            assert_eq!(by_word(&words).unwrap(), expected);
        }
        assert!(by_word(&[u32::MAX - 1]).is_err());
    }
}
