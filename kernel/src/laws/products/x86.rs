//! The vector instructions of x86-64 that pack blocks and meet them with queries.

use std::arch::x86_64::*;

use super::{Step, GROUP, LANES};

/// Four dimensions of every vector in one word, each number 128 larger, by transposition of 16 rows at a time.
#[target_feature(enable = "avx512f,avx512bw")]
pub fn pack_bytes(block: &[i8], k: usize, packed: &mut [Step]) {
    let shift = _mm512_set1_epi8(-128);
    for (half, rows) in block.chunks(LANES * k).enumerate() {
        for (part, steps) in packed.chunks_exact_mut(LANES).enumerate() {
            let mut words = [shift; LANES];
            for (words, row) in words.iter_mut().zip(rows.chunks(k)) {
                let row = row.get(part * 64..).unwrap_or_default();
                let mask = u64::MAX.checked_shr(64u32.saturating_sub(row.len() as u32)).unwrap_or(0);
                // SAFETY: the mask keeps the load inside the row.
                let bytes = unsafe { _mm512_maskz_loadu_epi8(mask, row.as_ptr()) };
                *words = _mm512_xor_si512(bytes, shift);
            }
            for (step, column) in steps.iter_mut().zip(transposed(words)) {
                if let Some(place) = step.get_mut(half) {
                    // SAFETY: a half of a step has 64 bytes.
                    unsafe { _mm512_storeu_si512(place.as_mut_ptr().cast(), column) };
                }
            }
        }
    }
}

/// The columns of 16 rows of 16 words.
#[target_feature(enable = "avx512f")]
fn transposed(rows: [__m512i; LANES]) -> [__m512i; LANES] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = rows;
    let (w, x) = (four([a, b, c, d]), four([e, f, g, h]));
    let (y, z) = (four([i, j, k, l]), four([m, n, o, p]));
    let mut columns = [_mm512_setzero_si512(); LANES];
    let (first, rest) = columns.split_at_mut(4);
    let (second, rest) = rest.split_at_mut(4);
    let (third, fourth) = rest.split_at_mut(4);
    let places = first.iter_mut().zip(second).zip(third.iter_mut().zip(fourth));
    for (((first, second), (third, fourth)), (((w, x), y), z)) in places.zip(w.into_iter().zip(x).zip(y).zip(z)) {
        let (even, even_below) = (_mm512_shuffle_i32x4::<0x88>(w, x), _mm512_shuffle_i32x4::<0x88>(y, z));
        let (odd, odd_below) = (_mm512_shuffle_i32x4::<0xdd>(w, x), _mm512_shuffle_i32x4::<0xdd>(y, z));
        *first = _mm512_shuffle_i32x4::<0x88>(even, even_below);
        *second = _mm512_shuffle_i32x4::<0x88>(odd, odd_below);
        *third = _mm512_shuffle_i32x4::<0xdd>(even, even_below);
        *fourth = _mm512_shuffle_i32x4::<0xdd>(odd, odd_below);
    }
    columns
}

/// Of four rows: number c holds in its lane L the words of column 4L + c.
#[target_feature(enable = "avx512f")]
fn four([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    let (low, high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let (low_below, high_below) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    [
        _mm512_unpacklo_epi64(low, low_below),
        _mm512_unpackhi_epi64(low, low_below),
        _mm512_unpacklo_epi64(high, high_below),
        _mm512_unpackhi_epi64(high, high_below),
    ]
}

#[target_feature(enable = "avx512f,avx512vnni")]
pub fn meet_bytes(steps: &[Step], words: &[[u32; GROUP]], starts: &[i32; GROUP], scores: &mut [i32], stride: usize) {
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

#[target_feature(enable = "avx2")]
pub fn meet_pairs(steps: &[Step], words: &[[u32; GROUP]], scores: &mut [i32], stride: usize) {
    for quarter in 0..4 {
        let mut sums = [_mm256_setzero_si256(); GROUP];
        for (step, words) in steps.iter().zip(words) {
            let Some(lanes) = step.as_flattened().get(32 * quarter..32 * quarter + 32) else { return };
            // SAFETY: a quarter of a step has 32 bytes.
            let lanes = unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) };
            for (sum, &word) in sums.iter_mut().zip(words) {
                let word = _mm256_set1_epi32(word as i32);
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(lanes, word));
            }
        }
        for (scores, sum) in scores.chunks_mut(stride).zip(sums) {
            if let Some(place) = scores.get_mut(8 * quarter..8 * quarter + 8) {
                // SAFETY: the place has 8 numbers.
                unsafe { _mm256_storeu_si256(place.as_mut_ptr().cast(), sum) };
            }
        }
    }
}
