//! The first overflow words of many positions at once: ChaCha20 (RFC 8439) on several nonces side by side. One position
//! by itself waits for one operation after the other; side by side they fill the processor's vectors.

use zeroize::Zeroize;

/// Added to a purpose: the stream that a position's further words come from.
pub const OVERFLOW: u32 = 1 << 31;

/// Words of one block.
const BLOCK: usize = 8;

/// Words that are made ahead for each position: two blocks.
pub const AHEAD: usize = 2 * BLOCK;

/// One word of the state, for `N` positions at a time.
#[derive(Clone, Copy)]
struct Lanes<const N: usize>([u32; N]);

impl<const N: usize> Lanes<N> {
    const fn all(word: u32) -> Self {
        Self([word; N])
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
fn quarter<const N: usize>(a: &mut Lanes<N>, b: &mut Lanes<N>, c: &mut Lanes<N>, d: &mut Lanes<N>) {
    a.add(b);
    d.turn::<16>(a);
    c.add(d);
    b.turn::<12>(c);
    a.add(b);
    d.turn::<8>(a);
    c.add(d);
    b.turn::<7>(c);
}

type State<const N: usize> = [Lanes<N>; 16];

/// Twenty rounds and the sum with the state before them.
#[inline(always)]
fn blocks<const N: usize>(start: &State<N>) -> State<N> {
    let mut end = *start;
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
    end.iter_mut().zip(start).for_each(|(word, start)| word.add(start));
    end
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn blocks_avx2(start: &State<8>) -> State<8> {
    blocks(start)
}

/// The same in vectors of sixteen, written out: left to itself, a compiler turns these rounds on their side.
#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::{
        __m512i, _mm512_add_epi32, _mm512_loadu_si512, _mm512_rol_epi32, _mm512_storeu_si512, _mm512_xor_si512,
    };

    use super::{Lanes, State};

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn quarter(a: &mut __m512i, b: &mut __m512i, c: &mut __m512i, d: &mut __m512i) {
        *a = _mm512_add_epi32(*a, *b);
        *d = _mm512_rol_epi32::<16>(_mm512_xor_si512(*d, *a));
        *c = _mm512_add_epi32(*c, *d);
        *b = _mm512_rol_epi32::<12>(_mm512_xor_si512(*b, *c));
        *a = _mm512_add_epi32(*a, *b);
        *d = _mm512_rol_epi32::<8>(_mm512_xor_si512(*d, *a));
        *c = _mm512_add_epi32(*c, *d);
        *b = _mm512_rol_epi32::<7>(_mm512_xor_si512(*b, *c));
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn load(lanes: &Lanes<16>) -> __m512i {
        // SAFETY: sixteen words are read, wherever they lie.
        unsafe { _mm512_loadu_si512(lanes.0.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx512f")]
    pub fn blocks(start: &State<16>) -> State<16> {
        let [s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15] = start;
        let (mut a0, mut a1, mut a2, mut a3) = (load(s0), load(s1), load(s2), load(s3));
        let (mut b0, mut b1, mut b2, mut b3) = (load(s4), load(s5), load(s6), load(s7));
        let (mut c0, mut c1, mut c2, mut c3) = (load(s8), load(s9), load(s10), load(s11));
        let (mut d0, mut d1, mut d2, mut d3) = (load(s12), load(s13), load(s14), load(s15));
        for _ in 0..10 {
            quarter(&mut a0, &mut b0, &mut c0, &mut d0);
            quarter(&mut a1, &mut b1, &mut c1, &mut d1);
            quarter(&mut a2, &mut b2, &mut c2, &mut d2);
            quarter(&mut a3, &mut b3, &mut c3, &mut d3);
            quarter(&mut a0, &mut b1, &mut c2, &mut d3);
            quarter(&mut a1, &mut b2, &mut c3, &mut d0);
            quarter(&mut a2, &mut b3, &mut c0, &mut d1);
            quarter(&mut a3, &mut b0, &mut c1, &mut d2);
        }
        let rounds = [a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3];
        let mut end = *start;
        for (word, made) in end.iter_mut().zip(rounds) {
            let sum = _mm512_add_epi32(load(word), made);
            // SAFETY: sixteen words are written, wherever they lie.
            unsafe { _mm512_storeu_si512(word.0.as_mut_ptr().cast(), sum) };
        }
        end
    }
}

/// Overflow words of several positions, `AHEAD` of each, one position after the other, into `out`: those from word
/// `AHEAD * part` on.
pub fn overflow_words(key: &[u8; 32], purpose: u32, part: u32, positions: impl Iterator<Item = u64>, out: &mut [u64]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has what the function is compiled for, as the line above found; so below.
        return by_blocks(key, purpose, part, positions, out, |start| unsafe { wide::blocks(start) });
    } else if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: as above.
        return by_blocks(key, purpose, part, positions, out, |start| unsafe { blocks_avx2(start) });
    }
    by_blocks(key, purpose, part, positions, out, blocks::<8>);
}

/// `overflow_words` by a way to make the blocks of `N` positions.
fn by_blocks<const N: usize>(
    key: &[u8; 32],
    purpose: u32,
    part: u32,
    mut positions: impl Iterator<Item = u64>,
    out: &mut [u64],
    blocks: impl Fn(&State<N>) -> State<N>,
) {
    let mut state = [Lanes::all(0); 16];
    let words = key.chunks_exact(4).filter_map(|bytes| bytes.try_into().ok().map(u32::from_le_bytes));
    let constants = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];
    let known = constants.into_iter().chain(words).chain([0, purpose | OVERFLOW]);
    state.iter_mut().zip(known).for_each(|(lanes, word)| *lanes = Lanes::all(word));
    for out in out.chunks_mut(N * AHEAD) {
        let [.., low, high] = &mut state;
        for ((low, high), position) in low.0.iter_mut().zip(&mut high.0).zip(&mut positions) {
            (*low, *high) = (position as u32, (position >> 32) as u32);
        }
        for counter in 0..AHEAD / BLOCK {
            let [.., count, _, _, _] = &mut state;
            *count = Lanes::all(part * (AHEAD / BLOCK) as u32 + counter as u32);
            let made = blocks(&state);
            for (lane, words) in out.chunks_exact_mut(AHEAD).enumerate() {
                let words = words.iter_mut().skip(counter * BLOCK).take(BLOCK);
                for (word, halves) in words.zip(made.as_chunks::<2>().0) {
                    let half = |lanes: &Lanes<N>| lanes.0.get(lane).copied().map_or(0, u64::from);
                    let [low, high] = halves;
                    *word = half(low) | half(high) << 32;
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
                for (part, step) in [(0, 1), (1, 3)] {
                    let positions = (first..).step_by(step);
                    let mut made = vec![0; count * AHEAD];
                    overflow_words(&key, purpose, part, positions.clone(), &mut made);
                    for (position, made) in positions.zip(made.chunks_exact(AHEAD)) {
                        let (mut expected, start) = ([0; AHEAD], u64::from(part) * AHEAD as u64);
                        keystream(&key, purpose | OVERFLOW, position, start, &mut expected).unwrap();
                        assert_eq!(made, expected, "purpose {purpose}, position {position}, part {part}");
                    }
                }
            }
        }
    }

    #[test]
    fn vectors_of_any_width_give_the_same_words() {
        let key = std::array::from_fn(|i| i as u8 * 5 + 3);
        let positions = || (7..).step_by(5);
        for count in [1usize, 8, 19, 40] {
            let mut made = [vec![0; count * AHEAD], vec![0; count * AHEAD], vec![0; count * AHEAD]];
            let [one, eight, best] = &mut made;
            by_blocks(&key, 1, 1, positions(), one, blocks::<1>);
            by_blocks(&key, 1, 1, positions(), eight, blocks::<8>);
            overflow_words(&key, 1, 1, positions(), best);
            assert_eq!(one, eight);
            assert_eq!(one, best);
        }
    }
}
