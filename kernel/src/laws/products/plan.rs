//! How sums of int16 are split so that none of them wraps.
//!
//! A lane of int16 takes two dimensions of a step: bytes from 0 to 255 by numbers of the query. It holds its sum as
//! long as the query's positive numbers add up to 128 at most, and its negative ones to -128: 255 * 128 < 2^15. A pair
//! of numbers beyond that saturates in one instruction, so its step is met twice, with half of every number each.

use super::{Words, GROUP};

const MOST: u16 = 128;

/// The rounds of a group: steps whose products add up in int16.
#[derive(Default)]
pub struct Plan {
    /// Where each round ends, as a number of steps; the last one ends with the steps.
    pub ends: Vec<usize>,
    /// Steps that are met again, each a round by itself.
    pub again: Vec<(usize, Words)>,
}

impl Plan {
    /// Plans the rounds of a group, and takes from its words what is met again.
    pub fn new(words: &mut [Words]) -> Self {
        let (mut plan, mut sums) = (Self::default(), [[0; 4]; GROUP]);
        for (at, words) in words.iter_mut().enumerate() {
            let mut sizes = words.map(sizes);
            if sizes.iter().any(exceeds) {
                let halves = words.map(|word| word.to_le_bytes().map(|byte| byte as i8 / 2));
                let rest = |word: u32, half: [i8; 4]| {
                    let mut rest = word.to_le_bytes();
                    rest.iter_mut().zip(half).for_each(|(byte, half)| *byte = (*byte as i8 - half) as u8);
                    u32::from_le_bytes(rest)
                };
                let mut again = [0; GROUP];
                for ((again, word), half) in again.iter_mut().zip(words).zip(halves) {
                    *again = rest(*word, half);
                    *word = u32::from_le_bytes(half.map(|number| number as u8));
                }
                plan.again.push((at, again));
                sizes = halves.map(|half| self::sizes(u32::from_le_bytes(half.map(|number| number as u8))));
            }
            let mut more = sums;
            let pairs = more.iter_mut().zip(&sizes);
            pairs.for_each(|(sums, sizes)| sums.iter_mut().zip(sizes).for_each(|(sum, size)| *sum += size));
            if more.iter().any(exceeds) {
                plan.ends.push(at);
                more = sizes;
            }
            sums = more;
        }
        plan.ends.push(words.len());
        plan
    }
}

/// What the positive and the negative numbers of both pairs of a word add up to, without their sign.
fn sizes(word: u32) -> [u16; 4] {
    let [a, b, c, d] = word.to_le_bytes().map(|byte| i16::from(byte as i8));
    let up = |number: i16| number.max(0).unsigned_abs();
    let down = |number: i16| number.min(0).unsigned_abs();
    [up(a) + up(b), down(a) + down(b), up(c) + up(d), down(c) + down(d)]
}

fn exceeds(sizes: &[u16; 4]) -> bool {
    sizes.iter().any(|&size| size > MOST)
}
