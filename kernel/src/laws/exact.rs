//! Exact integers of int16 vectors: inner products of two or of all pairs of a set, high bytes, lengths.

use crate::pages::large_pages;

/// Sums of products of bytes stay below 2^32 in fewer dimensions than these.
pub const MOST_DIMENSIONS: usize = 1 << 16;
/// What a high byte counts.
pub const HIGH: i32 = 256;

/// The squared length of a vector, and the lengths of what its high bytes leave out and of what they hold.
pub struct Lengths {
    pub squared: i64,
    pub low: f64,
    pub high: f64,
}

/// The high bytes of all numbers, rounded, and the lengths of all vectors.
pub fn parts(vectors: &[i16], dimensions: usize) -> (Vec<i8>, Vec<Lengths>) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, as was just asked.
        return unsafe { parts_avx2(vectors, dimensions) };
    }
    parts_plain(vectors, dimensions)
}

/// The same instructions, more at a time.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn parts_avx2(vectors: &[i16], dimensions: usize) -> (Vec<i8>, Vec<Lengths>) {
    parts_plain(vectors, dimensions)
}

#[inline(always)]
fn parts_plain(vectors: &[i16], dimensions: usize) -> (Vec<i8>, Vec<Lengths>) {
    let mut all = large_pages(vectors.len());
    all.resize(vectors.len(), 0);
    let mut lengths = Vec::with_capacity(vectors.len() / dimensions);
    for (whole, bytes) in vectors.chunks_exact(dimensions).zip(all.chunks_exact_mut(dimensions)) {
        for (byte, &number) in bytes.iter_mut().zip(whole) {
            *byte = high_byte(number);
        }
        let (mut low_squares, mut high_squares) = (0u32, 0u32);
        for (&number, &high) in whole.iter().zip(&*bytes) {
            let (low, high) = (i32::from(number) - HIGH * i32::from(high), i32::from(high));
            low_squares += (low * low) as u32;
            high_squares += (high * high) as u32;
        }
        let (low, high) = (f64::from(low_squares).sqrt(), f64::from(HIGH) * f64::from(high_squares).sqrt());
        lengths.push(Lengths { squared: product(whole, whole), low, high });
    }
    (all, lengths)
}

#[inline(always)]
fn high_byte(number: i16) -> i8 {
    (i32::from(number) + HIGH / 2).div_euclid(HIGH).clamp(-128, 127) as i8
}

/// All pairs of each set of `members` vectors: its products one row after the other. Vectors have `dimensions` numbers
/// each, fewer than `MOST_DIMENSIONS`.
pub fn within(vectors: &[i16], dimensions: usize, members: usize) -> Vec<f64> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, as was just asked.
        return unsafe { within_avx2(vectors, dimensions, members) };
    }
    pairs(vectors, dimensions, members, product)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn within_avx2(vectors: &[i16], dimensions: usize, members: usize) -> Vec<f64> {
    pairs(vectors, dimensions, members, |one, other| product_avx2(one, other))
}

#[inline(always)]
fn pairs(vectors: &[i16], dimensions: usize, members: usize, product: impl Fn(&[i16], &[i16]) -> i64) -> Vec<f64> {
    let mut products = Vec::with_capacity(vectors.len() / dimensions * members);
    for set in vectors.chunks_exact(dimensions * members) {
        let start = products.len();
        for (row, one) in set.chunks_exact(dimensions).enumerate() {
            for column in 0..row {
                products.push(products.get(start + column * members + row).copied().unwrap_or(0.0));
            }
            products.extend(set.chunks_exact(dimensions).skip(row).map(|other| product(one, other) as f64));
        }
    }
    products
}

/// Both halves of every product are summed in 32 bits, as many at a time as the machine has lanes.
#[inline(always)]
pub fn product(one: &[i16], other: &[i16]) -> i64 {
    let (mut low, mut high) = (0u32, 0i32);
    for (&a, &b) in one.iter().zip(other) {
        let product = i32::from(a) * i32::from(b);
        low += product as u32 & 0xffff;
        high += product >> 16;
    }
    (i64::from(high) << 16) + i64::from(low)
}

/// The same by sums of two products, of which the largest, 2^31, is one too large for 32 bits: each is lowered by one.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn product_avx2(one: &[i16], other: &[i16]) -> i64 {
    use std::arch::x86_64::*;
    let ((ones, left_over), (others, left_over_too)) = (one.as_chunks::<16>(), other.as_chunks::<16>());
    let (lowered, mask) = (_mm256_set1_epi32(-1), _mm256_set1_epi32(0xffff));
    let (mut low, mut high) = (_mm256_setzero_si256(), _mm256_setzero_si256());
    for (one, other) in ones.iter().zip(others) {
        // SAFETY: both chunks have 32 bytes.
        let (a, b) = unsafe { (_mm256_loadu_si256(one.as_ptr().cast()), _mm256_loadu_si256(other.as_ptr().cast())) };
        let sums = _mm256_add_epi32(_mm256_madd_epi16(a, b), lowered);
        low = _mm256_add_epi32(low, _mm256_and_si256(sums, mask));
        high = _mm256_add_epi32(high, _mm256_srai_epi32::<16>(sums));
    }
    let (mut lows, mut highs) = ([0i32; 8], [0i32; 8]);
    // SAFETY: both arrays have 32 bytes.
    unsafe {
        _mm256_storeu_si256(lows.as_mut_ptr().cast(), low);
        _mm256_storeu_si256(highs.as_mut_ptr().cast(), high);
    }
    let sum = |lanes: [i32; 8]| lanes.into_iter().map(i64::from).sum::<i64>();
    (sum(highs) << 16) + sum(lows) + 8 * ones.len().min(others.len()) as i64 + product(left_over, left_over_too)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_within_sets_are_those_of_int64() {
        let mut state = 7u64;
        let mut number = |at: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            [(state >> 48) as i16, i16::MIN, i16::MAX, 3][at % 5 % 4]
        };
        for (dimensions, members, sets) in [(1, 2, 3), (15, 3, 2), (16, 1, 4), (300, 20, 2), (1_037, 5, 1)] {
            for extreme in [false, true] {
                let count = dimensions * members * sets;
                let vectors = (0..count).map(|at| if extreme { i16::MIN } else { number(at) }).collect::<Vec<_>>();
                let mut expected = Vec::new();
                for set in vectors.chunks(dimensions * members) {
                    for one in set.chunks(dimensions) {
                        for other in set.chunks(dimensions) {
                            let products = one.iter().zip(other).map(|(&a, &b)| i64::from(a) * i64::from(b));
                            expected.push(products.sum::<i64>() as f64);
                        }
                    }
                }
                assert_eq!(within(&vectors, dimensions, members), expected, "{dimensions} {members}");
                assert_eq!(pairs(&vectors, dimensions, members, product), expected, "{dimensions} {members}");
            }
        }
    }
}
