//! The vector instructions of x86-64 that meet blocks with queries.

use std::arch::x86_64::*;

use super::plan::Plan;
use super::{Step, Words, GROUP, LANES};

/// Queries whose sums fit into the registers of AVX2 together, for 16 vectors.
const AT_ONCE: usize = 4;
/// int32 numbers of a register of AVX2.
const EIGHT: usize = 8;

#[target_feature(enable = "avx512f,avx512vnni")]
pub fn meet_vnni(steps: &[Step], words: &[Words], starts: &[i32; GROUP], scores: &mut [i32], stride: usize) {
    let mut sums = [[_mm512_setzero_si512(); 2]; GROUP];
    for (sums, &start) in sums.iter_mut().zip(starts) {
        *sums = [_mm512_set1_epi32(start); 2];
    }
    for ([left, right], words) in steps.iter().zip(words) {
        // SAFETY: each half of a step has 64 bytes.
        let (left, right) =
            unsafe { (_mm512_loadu_si512(left.as_ptr().cast()), _mm512_loadu_si512(right.as_ptr().cast())) };
        for ([one, other], &word) in sums.iter_mut().zip(words) {
            let word = _mm512_set1_epi32(word as i32);
            *one = _mm512_dpbusd_epi32(*one, left, word);
            *other = _mm512_dpbusd_epi32(*other, right, word);
        }
    }
    for (scores, [one, other]) in scores.chunks_mut(stride).zip(sums) {
        if let Some(place) = scores.first_chunk_mut::<{ 2 * LANES }>() {
            let (left, right) = place.split_at_mut(LANES);
            // SAFETY: each half has 16 numbers.
            unsafe {
                _mm512_storeu_si512(left.as_mut_ptr().cast(), one);
                _mm512_storeu_si512(right.as_mut_ptr().cast(), other);
            }
        }
    }
}

/// Sums of 16 vectors with some queries, eight vectors a register.
type Sums = [[__m256i; 2]; AT_ONCE];

#[target_feature(enable = "avx2")]
pub fn meet_avx2(
    steps: &[Step],
    words: &[Words],
    plan: &Plan,
    starts: &[i32; GROUP],
    scores: &mut [i32],
    stride: usize,
) {
    for half in 0..2 {
        for (at, starts) in starts.as_chunks::<AT_ONCE>().0.iter().enumerate() {
            let mut sums = [[_mm256_setzero_si256(); 2]; AT_ONCE];
            for (sums, &start) in sums.iter_mut().zip(starts) {
                *sums = [_mm256_set1_epi32(start); 2];
            }
            let mut from = 0;
            for &end in &plan.ends {
                let steps = steps.get(from..end).unwrap_or_default();
                let words = words.get(from..end).unwrap_or_default();
                round(steps.iter().zip(words), half, at, &mut sums);
                from = end;
            }
            for (step, words) in &plan.again {
                round(steps.get(*step).map(|step| (step, words)).into_iter(), half, at, &mut sums);
            }
            for (scores, sums) in scores.chunks_mut(stride).skip(AT_ONCE * at).zip(sums) {
                let places = scores.get_mut(LANES * half..).unwrap_or_default().as_chunks_mut::<EIGHT>().0;
                for (place, sum) in places.iter_mut().zip(sums) {
                    // SAFETY: the place has 8 numbers.
                    unsafe { _mm256_storeu_si256(place.as_mut_ptr().cast(), sum) };
                }
            }
        }
    }
}

/// Adds the products of one round, which fit into int16.
#[inline]
#[target_feature(enable = "avx2")]
fn round<'a>(steps: impl Iterator<Item = (&'a Step, &'a Words)>, half: usize, at: usize, sums: &mut Sums) {
    let mut short = [[_mm256_setzero_si256(); 2]; AT_ONCE];
    for (step, words) in steps {
        let (Some(bytes), Some(words)) = (step.get(half), words.as_chunks::<AT_ONCE>().0.get(at)) else { return };
        let (left, right) = bytes.split_at(bytes.len() / 2);
        // SAFETY: each half has 32 bytes.
        let (left, right) =
            unsafe { (_mm256_loadu_si256(left.as_ptr().cast()), _mm256_loadu_si256(right.as_ptr().cast())) };
        for ([one, other], &word) in short.iter_mut().zip(words) {
            let word = _mm256_set1_epi32(word as i32);
            *one = _mm256_add_epi16(*one, _mm256_maddubs_epi16(left, word));
            *other = _mm256_add_epi16(*other, _mm256_maddubs_epi16(right, word));
        }
    }
    let ones = _mm256_set1_epi16(1);
    for (sums, short) in sums.iter_mut().zip(short) {
        for (sum, short) in sums.iter_mut().zip(short) {
            *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(short, ones));
        }
    }
}
