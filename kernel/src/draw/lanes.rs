//! The first overflow words of many positions at once: ChaCha20 (RFC 8439) on several nonces side by side. One position
//! alone waits for one operation after the other; side by side they fill the processor's vectors.

use zeroize::Zeroize;

/// Added to a purpose: the stream that a position's further words come from.
pub const OVERFLOW: u32 = 1 << 31;

/// Positions at a time.
const LANES: usize = 8;

/// Words of one block.
const BLOCK: usize = 8;

/// Words that are made ahead for each position: two blocks.
pub const AHEAD: usize = 2 * BLOCK;

/// One word of the state, for every position.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct Lanes([u32; LANES]);

impl Lanes {
    const fn all(word: u32) -> Self {
        Self([word; LANES])
    }

    #[inline(always)]
    fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word = word.wrapping_add(*other));
    }

    #[inline(always)]
    fn turn<const BITS: u32>(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word = (*word ^ other).rotate_left(BITS));
    }
}

#[inline(always)]
fn quarter(a: &mut Lanes, b: &mut Lanes, c: &mut Lanes, d: &mut Lanes) {
    a.add(b);
    d.turn::<16>(a);
    c.add(d);
    b.turn::<12>(c);
    a.add(b);
    d.turn::<8>(a);
    c.add(d);
    b.turn::<7>(c);
}

type State = [Lanes; 16];

/// Twenty rounds and the sum with the state before them.
#[inline(always)]
fn blocks(start: &State) -> State {
    let mut end = *start;
    {
        let [a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3] = &mut end;
        for _ in 0..10 {
            quarter(a0, b0, c0, d0);
            quarter(a1, b1, c1, d1);
            quarter(a2, b2, c2, d2);
            quarter(a3, b3, c3, d3);
            quarter(a0, b1, c2, d3);
            quarter(a1, b2, c3, d0);
            quarter(a2, b3, c0, d1);
            quarter(a3, b0, c1, d2);
        }
    }
    end.iter_mut().zip(start).for_each(|(word, start)| word.add(start));
    end
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn blocks_in_wide_vectors(start: &State) -> State {
    blocks(start)
}

fn best_blocks(start: &State) -> State {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has what the function is compiled for, as the line above found.
        return unsafe { blocks_in_wide_vectors(start) };
    }
    blocks(start)
}

/// The first `AHEAD` overflow words of each position from `first` on, one position after the other, into `out`.
pub fn overflow_words(key: &[u8; 32], purpose: u32, first: u64, out: &mut [u64]) {
    let mut state = [Lanes::all(0); 16];
    let words = key.chunks_exact(4).filter_map(|bytes| bytes.try_into().ok().map(u32::from_le_bytes));
    let constants = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];
    let known = constants.into_iter().chain(words).chain([0, purpose | OVERFLOW]);
    state.iter_mut().zip(known).for_each(|(lanes, word)| *lanes = Lanes::all(word));
    for (first, out) in (first..).step_by(LANES).zip(out.chunks_mut(LANES * AHEAD)) {
        let [.., low, high] = &mut state;
        for ((position, low), high) in (0..).map(|i| first.wrapping_add(i)).zip(&mut low.0).zip(&mut high.0) {
            (*low, *high) = (position as u32, (position >> 32) as u32);
        }
        for counter in 0..AHEAD / BLOCK {
            let [.., count, _, _, _] = &mut state;
            *count = Lanes::all(counter as u32);
            let made = best_blocks(&state);
            for (word, halves) in made.chunks_exact(2).enumerate() {
                let [low, high] = halves else { continue };
                let places = out.iter_mut().skip(counter * BLOCK + word).step_by(AHEAD);
                for ((place, low), high) in places.zip(low.0).zip(high.0) {
                    *place = u64::from(low) | u64::from(high) << 32;
                }
            }
        }
    }
    state.iter_mut().for_each(|lanes| lanes.0.zeroize());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::stream::keystream;

    #[test]
    fn words_made_ahead_are_those_of_the_stream() {
        let key = std::array::from_fn(|i| i as u8 * 7 + 1);
        for (purpose, first) in [(1, 0), (1, 5), (6, u64::from(u32::MAX) - 3), (300, 1 << 40)] {
            for count in [0usize, 1, 7, 8, 9, 16, 21] {
                let mut made = vec![0; count * AHEAD];
                overflow_words(&key, purpose, first, &mut made);
                for (position, made) in (first..).zip(made.chunks_exact(AHEAD)) {
                    let mut expected = [0; AHEAD];
                    keystream(&key, purpose | OVERFLOW, position, 0, &mut expected).unwrap();
                    assert_eq!(made, expected, "purpose {purpose}, position {position}");
                }
            }
        }
    }

    #[test]
    fn vectors_of_any_width_give_the_same_blocks() {
        let state = std::array::from_fn(|i| {
            Lanes(std::array::from_fn(|lane| ((i * 31 + lane) as u32).wrapping_mul(0x9E37_79B9)))
        });
        let (plain, best) = (blocks(&state), best_blocks(&state));
        assert!(plain.iter().zip(&best).all(|(plain, best)| plain.0 == best.0));
    }
}
